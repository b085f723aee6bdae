/* SPDX-License-Identifier: Apache-2.0
 *
 * Replay: a thread runs its array of entries from first to last. Nothing is decoded, checked or
 * allocated here; whatever depends on the step's input was checked in tw_plan_begin.
 */
#include "firmware/core/plan/plan.h"

#include "loader/base/assert.h"

#define SPINS_BEFORE_RELAX 2048u

static void spin_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- begin ---- */

static uint32_t latched(const struct tw_plan *plan, uint16_t trip, uint32_t constant) {
    TW_ASSERT(trip == PLAN_NO_TRIP || trip < plan->config.program->n_trips);
    return trip == PLAN_NO_TRIP ? constant : plan->trips[trip];
}

static int check_ids(const struct tw_plan *plan, const struct plan_id_check *c,
                     struct tw_fault *fault) {
    uint32_t rows = latched(plan, c->rows_trip, c->rows);
    for (uint32_t r = 0; r < rows; r++) {
        int32_t id;
        memcpy(&id, c->ids + (size_t)r * 4, sizeof id);
        if (id < 0 || (uint32_t)id >= c->limit) {
            return tw_fault_fail(fault, "IdOutOfRange", c->object, (uint64_t)(int64_t)id, c->limit);
        }
    }
    return 0;
}

static int check_pos(const struct tw_plan *plan, const struct plan_pos_check *c,
                     struct tw_fault *fault) {
    uint32_t rows = latched(plan, c->rows_trip, c->rows);
    uint64_t end = (uint64_t)latched(plan, c->pos_trip, c->pos) + rows;
    return rows == 0 || end <= c->limit
               ? 0
               : tw_fault_fail(fault, "WriteOutOfRange", c->object, end, c->limit);
}

int tw_plan_begin(struct tw_plan *plan, struct tw_fault *fault) {
    struct tw_fault ignored = {0};
    fault = fault ? fault : &ignored;
    memset(fault, 0, sizeof *fault);
    fault->site = fault->engine = fault->op_index = fault->stage = TW_NONE;
    int rc = tw_bind_trips(&plan->config, plan->trips, fault);
    for (uint32_t i = 0; i < plan->checks.n_ids && rc == 0; i++) {
        rc = check_ids(plan, &plan->checks.ids[i], fault);
    }
    for (uint32_t i = 0; i < plan->checks.n_pos && rc == 0; i++) {
        rc = check_pos(plan, &plan->checks.pos[i], fault);
    }
    if (rc == 0) {
        plan->base += plan->stride;
    }
    return rc;
}

/* ---- run ---- */

struct run {
    const struct tw_plan *plan;
    const struct plan_thread *thread;
    void (*relax)(void *ctx);
    void *ctx;
    uint32_t base;
    uint32_t iteration[TW_MAX_VARS]; /* of the open dynamic loops */
};

static void call_patched(const struct run *r, const struct plan_entry *e) {
    struct tw_kargs args = e->u.call.args;
    const struct plan_patch *patch = &r->thread->patches[e->first_patch];
    if (e->rows_trip != PLAN_NO_TRIP) {
        args.rows = r->plan->trips[e->rows_trip];
        if (args.rows == 0) {
            return;
        }
    }
    if (e->pos_trip != PLAN_NO_TRIP) {
        args.pos = r->plan->trips[e->pos_trip];
    }
    for (uint32_t i = 0; i < e->n; i++) {
        uint64_t add = patch[i].step * r->iteration[patch[i].level];
        if (patch[i].target == PLAN_PATCH_BLOCK) {
            args.block += (uint32_t)add;
        } else {
            args.p[patch[i].target] = (uint8_t *)args.p[patch[i].target] + add;
        }
    }
    e->u.call.fn(&args);
}

static void wait_for(const struct run *r, const struct plan_entry *e) {
    for (uint32_t i = 0; i < e->n; i++) {
        _Atomic uint32_t *count = &r->plan->progress[e->u.wait[i].thread].count;
        uint32_t target = r->base + e->u.wait[i].count, spins = 0;
        while ((int32_t)(atomic_load_explicit(count, memory_order_acquire) - target) < 0) {
            spin_pause();
            if (++spins >= SPINS_BEFORE_RELAX && r->relax) {
                r->relax(r->ctx);
                spins = 0;
            }
        }
    }
}

/* Index of the entry that begins or, for no iterations, ends the loop. */
static uint32_t enter_loop(struct run *r, const struct plan_entry *e, uint32_t at) {
    bool runs = latched(r->plan, (uint16_t)e->u.loop.trip, e->u.loop.max) > 0;
    r->iteration[e->u.loop.level] = 0;
    return runs ? at : e->u.loop.other;
}

static uint32_t repeat_loop(struct run *r, const struct plan_entry *e, uint32_t at) {
    uint32_t n = latched(r->plan, (uint16_t)e->u.loop.trip, e->u.loop.max);
    return ++r->iteration[e->u.loop.level] < n ? e->u.loop.other : at;
}

void tw_plan_run(struct tw_plan *plan, uint32_t thread, void (*relax)(void *ctx), void *ctx) {
    TW_ASSERT(thread < plan->n_threads);
    struct run r = {plan, &plan->threads[thread], relax, ctx, plan->base, {0}};
    const struct plan_entry *entries = r.thread->entries;
    uint32_t n = r.thread->n_entries;
    for (uint32_t i = 0; i < n; i++) {
        const struct plan_entry *e = &entries[i];
        atomic_store_explicit(&plan->progress[thread].at, i, memory_order_relaxed);
        switch ((enum plan_kind)e->kind) {
        case PLAN_CALL:
            e->u.call.fn(&e->u.call.args);
            break;
        case PLAN_PATCHED:
            call_patched(&r, e);
            break;
        case PLAN_WAIT:
            wait_for(&r, e);
            break;
        case PLAN_LOOP:
            i = enter_loop(&r, e, i);
            break;
        case PLAN_END:
            i = repeat_loop(&r, e, i);
            break;
        }
        TW_ASSERT(i < n);
        if (entries[i].flags & PLAN_POST) {
            atomic_store_explicit(&plan->progress[thread].count, plan->base + i + 1,
                                  memory_order_release);
        }
    }
}

/* ---- from outside ---- */

uint64_t tw_plan_progress(const struct tw_plan *plan) {
    uint64_t sum = plan->base;
    for (uint32_t t = 0; t < plan->n_threads; t++) {
        sum = sum * 31 + atomic_load_explicit(&plan->progress[t].at, memory_order_relaxed);
    }
    return sum;
}

/* The op of the entry that a thread is at. */
static void tell_place(const struct plan_thread *t, uint32_t at, struct tw_place *out) {
    out->site = t->entries[at].site;
    out->engine = t->origins[at].engine;
    out->op_index = t->origins[at].op_index;
    out->opcode = t->entries[at].code;
}

void tw_plan_where(const struct tw_plan *plan, struct tw_place *at, struct tw_place *waiting) {
    at->site = waiting->site = TW_NONE;
    for (uint32_t t = 0; t < plan->n_threads; t++) {
        uint32_t i = atomic_load_explicit(&plan->progress[t].at, memory_order_relaxed);
        if (i >= plan->threads[t].n_entries) {
            continue;
        }
        enum plan_kind kind = (enum plan_kind)plan->threads[t].entries[i].kind;
        if (kind == PLAN_WAIT && waiting->site == TW_NONE) {
            tell_place(&plan->threads[t], i, waiting);
        } else if ((kind == PLAN_CALL || kind == PLAN_PATCHED) && at->site == TW_NONE) {
            tell_place(&plan->threads[t], i, at);
        }
    }
}
