/* SPDX-License-Identifier: Apache-2.0
 *
 * Replay: a thread executes its array of entries from first to last. Nothing is decoded, checked or
 * allocated here; whatever depends on the step's input was checked in tw_plan_begin().
 */
#include "firmware/core/kernel_parts.h"
#include "firmware/core/plan/plan.h"
#include "loader/base/compiler.h"

#include "loader/base/assert.h"

#define SPINS_BEFORE_RELAX 2048u
/* A thread checks for cancellation at the end of each iteration of a dynamic loop, and after this
 * many entries or spins of a wait. Powers of two, so that the test is cheap: on a small model an
 * entry takes 100 ns. */
#define ENTRIES_PER_LOOK 8u
#define SPINS_PER_LOOK 16u

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
    int rc = tw_bind_trips(&plan->config, plan->inputs, plan->trip_min, plan->trips, &plan->pages,
                           fault);
    for (uint32_t i = 0; i < plan->checks.n_ids && rc == 0; i++) {
        rc = check_ids(plan, &plan->checks.ids[i], fault);
    }
    for (uint32_t i = 0; i < plan->checks.n_pos && rc == 0; i++) {
        rc = check_pos(plan, &plan->checks.pos[i], fault);
    }
    if (rc == 0) {
        plan->base += plan->stride;
        atomic_store_explicit(&plan->cut, 0, memory_order_relaxed);
    }
    return rc;
}

/* ---- run ---- */

struct run {
    struct tw_plan *plan;
    const struct plan_thread *thread;
    void (*relax)(void *ctx);
    void *ctx;
    uint32_t base;
    uint32_t iteration[TW_MAX_VARS]; /* of the open dynamic loops, by nesting level */
};

/* Returns true if the step must end here. The first thread that sees the cancellation sets `cut`
 * for all others: they may be waiting for entries that it will not complete, and may not see the
 * cancellation themselves. */
static bool must_end(const struct run *r) {
    if (tw_cancelled(r->plan->config.cancel)) {
        atomic_store_explicit(&r->plan->cut, 1, memory_order_relaxed);
    }
    return atomic_load_explicit(&r->plan->cut, memory_order_relaxed) != 0;
}

/* Returns a number of a latched table, which was checked when the step began. */
static uint32_t page_number(const struct run *r, uint32_t table, uint64_t element) {
    uint32_t number;
    memcpy(&number, r->plan->inputs[table] + (size_t)element * 4, sizeof number);
    return number;
}

/* Stores the call's arguments in this iteration. Returns false if there are no rows. */
static bool patch_call(const struct run *r, const struct plan_entry *e, struct tw_kargs *args) {
    const struct plan_patch *patch = &r->thread->patches[e->first_patch];
    *args = e->u.call.args;
    if (e->rows_trip != PLAN_NO_TRIP) {
        args->rows = r->plan->trips[e->rows_trip];
        if (args->rows == 0) {
            return false;
        }
    }
    if (e->pos_trip != PLAN_NO_TRIP) {
        args->pos = r->plan->trips[e->pos_trip];
    }
    uint64_t element = 0;
    for (uint32_t i = 0; i < e->n; i++) {
        uint32_t target = patch[i].target;
        if (target >= PLAN_PATCH_PAGE) {
            target -= PLAN_PATCH_PAGE;
            args->p[target] = (uint8_t *)args->p[target] +
                              patch[i].step * page_number(r, patch[i].level, element);
            continue;
        }
        if (target == PLAN_PATCH_ELEMENT_BASE) {
            element = patch[i].step;
            continue;
        }
        uint64_t add = patch[i].step * r->iteration[patch[i].level];
        if (target == PLAN_PATCH_BLOCK) {
            args->block += (uint32_t)add;
        } else if (target == PLAN_PATCH_ELEMENT) {
            element += add;
        } else {
            args->p[target] = (uint8_t *)args->p[target] + add;
        }
    }
    return true;
}

static void call_patched(const struct run *r, const struct plan_entry *e) {
    struct tw_kargs args;
    if (patch_call(r, e, &args)) {
        e->u.call.fn(&args);
    }
}

/* Returns false if the step must end. */
static bool call_in_parts(const struct run *r, const struct plan_entry *e) {
    struct tw_kargs args = e->u.call.args, part;
    if (e->kind == PLAN_PATCHED && !patch_call(r, e, &args)) {
        return true;
    }
    uint32_t n = tw_part_panels(&args), panels = tw_args_matmul(&args).panels;
    for (uint32_t first = 0; first < panels; first += n) {
        if (must_end(r)) {
            return false;
        }
        tw_part_of(&args, first, n, &part);
        e->u.call.fn(&part);
    }
    return true;
}

/* Returns false if the step must end before the other threads have got that far. */
static bool wait_for(const struct run *r, const struct plan_entry *e) {
    for (uint32_t i = 0; i < e->n; i++) {
        _Atomic uint32_t *count = &r->plan->progress[e->u.wait[i].thread].count;
        uint32_t target = r->base + e->u.wait[i].count, spins = 0;
        while ((int32_t)(atomic_load_explicit(count, memory_order_acquire) - target) < 0) {
            TW_SPIN_PAUSE();
            if (spins % SPINS_PER_LOOK == 0 && must_end(r)) {
                return false;
            }
            if (++spins >= SPINS_BEFORE_RELAX && r->relax) {
                r->relax(r->ctx);
                spins = 0;
            }
        }
    }
    return true;
}

/* Returns the index of the entry that begins the loop or, if there are no iterations, ends it. */
static uint32_t enter_loop(struct run *r, const struct plan_entry *e, uint32_t at) {
    bool runs = latched(r->plan, (uint16_t)e->u.loop.trip, e->u.loop.max) > 0;
    r->iteration[e->u.loop.level] = 0;
    return runs ? at : e->u.loop.other;
}

static uint32_t repeat_loop(struct run *r, const struct plan_entry *e, uint32_t at) {
    uint32_t n = latched(r->plan, (uint16_t)e->u.loop.trip, e->u.loop.max);
    return ++r->iteration[e->u.loop.level] < n ? e->u.loop.other : at;
}

/* Publishes that entry i is complete, if another thread waits for it. */
static void publish(const struct run *r, uint32_t thread, uint32_t i) {
    if (r->thread->entries[i].flags & PLAN_POST) {
        atomic_store_explicit(&r->plan->progress[thread].count, r->base + i + 1,
                              memory_order_release);
    }
}

void tw_plan_run(struct tw_plan *plan, uint32_t thread, void (*relax)(void *ctx), void *ctx) {
    TW_ASSERT(thread < plan->n_threads);
    struct run r = {plan, &plan->threads[thread], relax, ctx, plan->base, {0}};
    const struct plan_entry *entries = r.thread->entries;
    uint32_t n = r.thread->n_entries;
    for (uint32_t i = 0; i < n; i++) {
        const struct plan_entry *e = &entries[i];
        if ((i % ENTRIES_PER_LOOK == 0 || e->kind == PLAN_END || e->flags & PLAN_LOOK) &&
            must_end(&r)) {
            return;
        }
        atomic_store_explicit(&plan->progress[thread].at, i, memory_order_relaxed);
        if (e->flags & PLAN_PARTS) {
            if (!call_in_parts(&r, e)) {
                return;
            }
            publish(&r, thread, i);
            continue;
        }
        switch ((enum plan_kind)e->kind) {
        case PLAN_CALL:
            e->u.call.fn(&e->u.call.args);
            break;
        case PLAN_PATCHED:
            call_patched(&r, e);
            break;
        case PLAN_WAIT:
            if (!wait_for(&r, e)) {
                return;
            }
            break;
        case PLAN_LOOP:
            i = enter_loop(&r, e, i);
            break;
        case PLAN_END:
            i = repeat_loop(&r, e, i);
            break;
        }
        TW_ASSERT(i < n);
        publish(&r, thread, i);
    }
}

bool tw_plan_was_cut(const struct tw_plan *plan) {
    return atomic_load_explicit(&plan->cut, memory_order_relaxed) != 0;
}

/* ---- run with a check of each result ---- */

/* An op by its number in its stream, and the loops around it. */
struct origin {
    struct tw_op op;
    uint64_t inner;  /* times that it runs in an iteration of the outermost loop */
    bool in_counted; /* the outermost loop has a constant count */
};

static void find_origin(const struct tw_program *p, const struct plan_entry *e,
                        const struct plan_origin *from, struct origin *out) {
    const struct tw_stream *s = &p->streams[e->site * TW_ENGINE_COUNT + from->engine];
    uint32_t count[TW_MAX_VARS] = {0}, depth = 0, at = 0;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i <= from->op_index; i++, at += out->op.n_words) {
        if (!tw_op_decode(s->words, s->n_words, at, &out->op)) {
            return; /* never: the text was walked when the plan was made */
        }
        if (out->op.code == TW_OP_LOOP && depth < TW_MAX_VARS) {
            const struct tw_operand *x = &out->op.operand[TW_LOOP_times];
            count[depth++] = x->id == TW_NONE ? x->max : 0; /* 0: one entry for all iterations */
        } else if (out->op.code == TW_OP_END && depth > 0) {
            depth--;
        }
    }
    out->in_counted = depth > 0 && count[0] > 0;
    out->inner = 1;
    for (uint32_t i = 1; i < depth; i++) {
        out->inner *= count[i] ? count[i] : 1;
    }
}

/* Returns the entry's iteration of the outermost loop, if that has a constant count: such a loop is
 * unrolled, so the earlier entries of the same op are counted. Else 0. */
static uint64_t outer_iteration(const struct plan_thread *t, uint32_t index,
                                const struct origin *o) {
    uint64_t before = 0;
    for (uint32_t i = 0; i < index; i++) {
        before += t->entries[i].site == t->entries[index].site &&
                  t->origins[i].engine == t->origins[index].engine &&
                  t->origins[i].op_index == t->origins[index].op_index &&
                  t->entries[i].kind <= PLAN_PATCHED;
    }
    return o->in_counted ? before / o->inner : 0;
}

static int check_result(const struct run *r, uint32_t index, const struct tw_kargs *args,
                        struct tw_fault *fault) {
    const struct tw_program *p = r->plan->config.program;
    const struct plan_entry *e = &r->thread->entries[index];
    struct origin o;
    uint64_t row;
    find_origin(p, e, &r->thread->origins[index], &o);
    for (uint32_t n = 0; tw_op_region(&o.op, n); n++) {
        struct tw_extent extent = tw_op_extent(&o.op, n, args->rows, args->x_dtype, args->tensor);
        if (tw_bad_row(p, &o.op, n, extent, args->p[n], &row)) {
            fault->site = e->site;
            fault->engine = r->thread->origins[index].engine;
            fault->op_index = r->thread->origins[index].op_index;
            fault->opcode = o.op.code;
            fault->stage = o.op.stage;
            return tw_fault_fail(fault, "NotFinite", tw_op_region(&o.op, n)->id, row,
                                 outer_iteration(r->thread, index, &o));
        }
    }
    return 0;
}

/* Returns false for a PLAN_WAIT that is not satisfied yet. */
static bool can_run(const struct run *r, const struct plan_entry *e) {
    for (uint32_t i = 0; e->kind == PLAN_WAIT && i < e->n; i++) {
        _Atomic uint32_t *count = &r->plan->progress[e->u.wait[i].thread].count;
        uint32_t now = atomic_load_explicit(count, memory_order_acquire);
        if ((int32_t)(now - (r->base + e->u.wait[i].count)) < 0) {
            return false;
        }
    }
    return true;
}

static int call_checked(const struct run *r, uint32_t index, struct tw_fault *fault) {
    const struct plan_entry *e = &r->thread->entries[index];
    struct tw_kargs args = e->u.call.args;
    if (e->kind == PLAN_PATCHED && !patch_call(r, e, &args)) {
        return 0;
    }
    e->u.call.fn(&args);
    return check_result(r, index, &args, fault);
}

/* Runs a thread's entries from its cursor until one has to wait. Sets *progressed if any ran. */
static int run_checked(struct tw_plan *plan, uint32_t thread, bool *progressed,
                       struct tw_fault *fault) {
    struct plan_cursor *c = &plan->cursors[thread];
    struct run r = {plan, &plan->threads[thread], NULL, NULL, plan->base, {0}};
    int rc = 0;
    memcpy(r.iteration, c->iteration, sizeof r.iteration);
    for (; c->at < r.thread->n_entries && rc == 0; c->at++) {
        const struct plan_entry *e = &r.thread->entries[c->at];
        if (must_end(&r)) {
            rc = tw_fault_cancelled(fault);
            break;
        }
        if (!can_run(&r, e)) {
            break;
        }
        atomic_store_explicit(&plan->progress[thread].at, c->at, memory_order_relaxed);
        if (e->kind == PLAN_CALL || e->kind == PLAN_PATCHED) {
            rc = call_checked(&r, c->at, fault);
        } else if (e->kind == PLAN_LOOP) {
            c->at = enter_loop(&r, e, c->at);
        } else if (e->kind == PLAN_END) {
            c->at = repeat_loop(&r, e, c->at);
        }
        if (r.thread->entries[c->at].flags & PLAN_POST) {
            atomic_store_explicit(&plan->progress[thread].count, plan->base + c->at + 1,
                                  memory_order_release);
        }
        *progressed = true;
    }
    memcpy(c->iteration, r.iteration, sizeof r.iteration);
    return rc;
}

int tw_plan_check_numbers(struct tw_plan *plan, struct tw_fault *fault) {
    struct tw_fault ignored = {.code = 0};
    fault = fault ? fault : &ignored;
    int rc = tw_plan_begin(plan, fault);
    memset(plan->cursors, 0, plan->n_threads * sizeof *plan->cursors);
    for (bool progressed = true; progressed && rc == 0;) {
        progressed = false;
        for (uint32_t t = 0; t < plan->n_threads && rc == 0; t++) {
            rc = run_checked(plan, t, &progressed, fault);
        }
    }
    return rc;
}

/* ---- observation ---- */

uint64_t tw_plan_progress(const struct tw_plan *plan) {
    uint64_t sum = plan->base;
    for (uint32_t t = 0; t < plan->n_threads; t++) {
        sum = sum * 31 + atomic_load_explicit(&plan->progress[t].at, memory_order_relaxed);
    }
    return sum;
}

/* Stores the op of the entry that a thread is executing. */
static void report_place(const struct plan_thread *t, uint32_t at, struct tw_place *out) {
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
            report_place(&plan->threads[t], i, waiting);
        } else if ((kind == PLAN_CALL || kind == PLAN_PATCHED) && at->site == TW_NONE) {
            report_place(&plan->threads[t], i, at);
        }
    }
}
