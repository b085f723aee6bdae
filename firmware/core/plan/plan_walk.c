/* SPDX-License-Identifier: Apache-2.0
 *
 * The symbolic step. Engines run in the canonical order, those of a site as far as they get before
 * the next site's; constant loops are unrolled. At a dynamic loop the engines of the site that
 * share it meet; its body is then walked once, separately.
 */
#include "firmware/core/plan/plan_walk.h"

#include "loader/base/assert.h"

#define ALL_ENGINES ((1u << TW_ENGINE_COUNT) - 1)

static int locate_fault(const struct walk *w, const struct walk_engine *e, int rc) {
    const struct walk_op *op = e->pc < e->end ? &w->ops[e->pc] : NULL;
    w->fault->site = e->site;
    w->fault->engine = e->engine;
    w->fault->op_index = op ? op->index : TW_NONE;
    w->fault->opcode = op ? op->code : 0;
    w->fault->stage = op ? op->stage : TW_NONE;
    return rc;
}

/* ---- FIFOs ---- */

/* Inside a dynamic loop a FIFO must not carry pages from one iteration to the next: only then is a
 * single walk of the body sufficient. */
static int enter_dynamic(struct walk *w, uint32_t id) {
    struct walk_buffer *f = &w->buffers[id];
    if (w->dynamic_depth > 0 && f->touched != w->dynamic_serial) {
        f->touched = w->dynamic_serial;
        if (f->level != 0) {
            return tw_fault_fail(w->fault, "PagesInDynamicLoop", id, f->level, 0);
        }
    }
    return 0;
}

static int fifo_op(struct walk *w, const struct walk_engine *e, const struct walk_op *op) {
    const struct tw_buffer *b = &w->program->buffers[op->object];
    struct walk_buffer *f = &w->buffers[op->object];
    bool produces = op->code == TW_OP_RESERVE || op->code == TW_OP_PUSH;
    if (b->kind != TW_BUF_FIFO || b->site != e->site ||
        (produces ? b->producer : b->consumer) != e->engine) {
        return tw_fault_fail(w->fault, "Role", op->object, e->engine,
                             produces ? b->producer : b->consumer);
    }
    int rc = enter_dynamic(w, op->object);
    if (rc != 0) {
        return rc;
    }
    TW_ASSERT(f->level <= b->pages && f->head < b->pages);
    if (op->code == TW_OP_PUSH) {
        if (op->number > b->pages - f->level) {
            return tw_fault_fail(w->fault, "FifoOverrun", op->object, b->pages - f->level,
                                 op->number);
        }
        f->level += op->number;
        w->dynamic_pages += op->number;
    } else if (op->code == TW_OP_POP) {
        if (op->number > f->level) {
            return tw_fault_fail(w->fault, "FifoUnderrun", op->object, f->level, op->number);
        }
        for (uint32_t i = 0; i < op->number; i++) {
            tw_walk_release_page(w, &w->pages[f->first_page + (f->head + i) % b->pages]);
        }
        f->head = (f->head + op->number) % b->pages;
        f->level -= op->number;
        w->dynamic_pages -= op->number;
    }
    TW_ASSERT(f->level <= b->pages && f->head < b->pages);
    return 0;
}

static bool is_blocked(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                       uint32_t *have, uint32_t *need) {
    if (op->code == TW_OP_SEM_WAIT) {
        return tw_walk_sem_blocked(w, e, op, have, need);
    }
    if (op->code != TW_OP_RESERVE && op->code != TW_OP_WAIT) {
        return false;
    }
    *have = op->code == TW_OP_WAIT
                ? w->buffers[op->object].level
                : w->program->buffers[op->object].pages - w->buffers[op->object].level;
    *need = op->number;
    return *have < *need;
}

/* ---- one engine ---- */

static int sync_op(struct walk *w, const struct walk_engine *e, const struct walk_op *op) {
    if (w->dynamic_depth > 0) {
        return tw_fault_fail(w->fault, "SyncInDynamicLoop", op->object, w->dynamic_depth, 0);
    }
    if (op->code == TW_OP_SEM_WAIT) {
        return tw_walk_sem_wait(w, e, op);
    }
    if (op->code == TW_OP_SEM_INC) {
        return tw_walk_sem_increment(w, e, op->object, op->target, op->number);
    }
    int rc = 0;
    for (uint32_t site = 0; site < w->program->n_sites && rc == 0; site++) {
        if (tw_group_has(w->program, op->target, site)) {
            rc = tw_walk_sem_increment(w, e, op->object, site, 1);
        }
    }
    return rc;
}

static bool is_dynamic(const struct walk *w, const struct walk_op *op) {
    TW_ASSERT(op->code != TW_OP_END || op->match < w->n_ops);
    const struct walk_op *loop = op->code == TW_OP_END ? &w->ops[op->match] : op;
    return (op->code == TW_OP_LOOP || op->code == TW_OP_END) && loop->rows_trip != PLAN_NO_TRIP;
}

static void constant_loop(struct walk *w, struct walk_engine *e, const struct walk_op *op) {
    if (op->code == TW_OP_LOOP) {
        TW_ASSERT(op->target < TW_MAX_VARS && op->match > e->pc && op->match < e->end);
        e->vars[op->target] = 0;
        e->pc = op->number == 0 ? op->match + 1 : e->pc + 1;
        return;
    }
    const struct walk_op *loop = &w->ops[op->match];
    TW_ASSERT(loop->code == TW_OP_LOOP && op->match < e->pc && op->match >= e->first);
    TW_ASSERT(loop->target < TW_MAX_VARS && e->vars[loop->target] < loop->number);
    bool again = ++e->vars[loop->target] < loop->number;
    e->pc = again ? op->match + 1 : e->pc + 1;
}

/* Runs until the engine blocks, ends, or is at the beginning or end of a dynamic loop. */
static int run_engine(struct walk *w, struct walk_engine *e, bool *progressed) {
    uint32_t have, need;
    TW_ASSERT(e->first <= e->pc && e->pc <= e->end && e->end <= w->n_ops);
    while (e->pc < e->end) {
        const struct walk_op *op = &w->ops[e->pc];
        int rc = 0;
        if (is_dynamic(w, op) || is_blocked(w, e, op, &have, &need)) {
            return 0;
        }
        if (tw_cancelled(w->config.cancel)) {
            return locate_fault(w, e, tw_fault_cancelled(w->fault));
        }
        *progressed = true;
        if (op->code == TW_OP_LOOP || op->code == TW_OP_END) {
            constant_loop(w, e, op);
            continue;
        }
        if (op->code >= TW_OP_RESERVE && op->code <= TW_OP_POP) {
            rc = fifo_op(w, e, op);
        } else {
            rc = tw_op_is_data(op->code) ? tw_walk_data(w, e, op) : sync_op(w, e, op);
        }
        if (rc != 0) {
            return locate_fault(w, e, rc);
        }
        e->pc++;
    }
    return 0;
}

/* Reports the first of the engines in `mask` that cannot continue. */
static int report_deadlock(struct walk *w, uint32_t first, uint32_t n, uint32_t mask) {
    for (uint32_t i = first; i < first + n; i++) {
        const struct walk_engine *e = &w->engines[i];
        uint32_t have = 0, need = 0;
        if ((mask >> e->engine & 1u) && e->pc < e->end && w->ops[e->pc].code != TW_OP_END) {
            const struct walk_op *op = &w->ops[e->pc];
            (void)is_blocked(w, e, op, &have, &need);
            return locate_fault(w, e, tw_fault_fail(w->fault, "Deadlock", op->object, have, need));
        }
    }
    return tw_fault_fail(w->fault, "Deadlock", TW_NONE, 0, 0);
}

/* ---- dynamic loops ---- */

static struct walk_engine *site_engine(const struct walk *w, uint32_t site, uint32_t n) {
    TW_ASSERT(site < w->program->n_sites && n < TW_ENGINE_COUNT);
    return &w->engines[site * TW_ENGINE_COUNT + n];
}

/* Returns a dynamic loop that all of its engines have reached, or NULL. Only engines of `mask` are
 * considered. */
static const struct walk_op *loop_all_have_reached(const struct walk *w, uint32_t site,
                                                   uint32_t mask) {
    for (uint32_t n = 0; n < TW_ENGINE_COUNT; n++) {
        const struct walk_engine *e = site_engine(w, site, n);
        if (!(mask >> n & 1u) || e->pc >= e->end || w->ops[e->pc].code != TW_OP_LOOP ||
            !is_dynamic(w, &w->ops[e->pc])) {
            continue;
        }
        const struct walk_op *loop = &w->ops[e->pc];
        bool all = (loop->participants & ~mask) == 0;
        for (uint32_t m = 0; m < TW_ENGINE_COUNT && all; m++) {
            const struct walk_engine *other = site_engine(w, site, m);
            const struct walk_op *op = other->pc < other->end ? &w->ops[other->pc] : NULL;
            all = !(loop->participants >> m & 1u) ||
                  (op && op->code == TW_OP_LOOP && is_dynamic(w, op) &&
                   op->object == loop->object && op->rows_trip == loop->rows_trip);
        }
        if (all) {
            return loop;
        }
    }
    return NULL;
}

static void open_dynamic(struct walk *w, uint32_t site, const struct walk_op *loop) {
    TW_ASSERT(w->dynamic_depth < TW_MAX_VARS && loop->participants != 0);
    uint32_t level = w->dynamic_depth++;
    w->dynamic_serial++;
    w->dynamic_max[level] = loop->number;
    for (uint32_t n = 0; n < TW_ENGINE_COUNT; n++) {
        struct walk_engine *e = site_engine(w, site, n);
        if (loop->participants >> n & 1u) {
            TW_ASSERT(e->pc < e->end && w->ops[e->pc].code == TW_OP_LOOP);
            e->level[w->ops[e->pc].target] = level + 1;
            e->pc++;
        }
    }
}

static void close_dynamic(struct walk *w, uint32_t site, const struct walk_op *loop) {
    TW_ASSERT(w->dynamic_depth > 0);
    for (uint32_t n = 0; n < TW_ENGINE_COUNT; n++) {
        struct walk_engine *e = site_engine(w, site, n);
        if (loop->participants >> n & 1u) {
            TW_ASSERT(e->pc < e->end && w->ops[e->pc].code == TW_OP_END);
            e->level[w->ops[w->ops[e->pc].match].target] = 0;
            e->pc++;
        }
    }
    w->dynamic_depth--;
    w->dynamic_serial++;
}

static bool all_at_end(const struct walk *w, uint32_t site, uint32_t mask) {
    for (uint32_t n = 0; n < TW_ENGINE_COUNT; n++) {
        const struct walk_engine *e = site_engine(w, site, n);
        if ((mask >> n & 1u) &&
            !(w->ops[e->pc].code == TW_OP_END && is_dynamic(w, &w->ops[e->pc]))) {
            return false;
        }
    }
    return true;
}

static int run_site(struct walk *w, uint32_t site, uint32_t mask, bool *progressed);

static int walk_body(struct walk *w, uint32_t site, const struct walk_op *loop) {
    uint32_t pages = w->dynamic_pages;
    bool progressed;
    int rc = run_site(w, site, loop->participants, &progressed);
    if (rc != 0) {
        return rc;
    }
    if (!all_at_end(w, site, loop->participants)) {
        return report_deadlock(w, site * TW_ENGINE_COUNT, TW_ENGINE_COUNT, loop->participants);
    }
    if (w->dynamic_pages != pages) {
        return tw_fault_fail(w->fault, "PagesInDynamicLoop", loop->object, w->dynamic_pages, pages);
    }
    return 0;
}

/* Recursion depth: the nesting of loops, which the text walk bounds. */
static int walk_dynamic(struct walk *w, uint32_t site, const struct walk_op *loop) {
    uint32_t thread = walk_thread(w, site), begin = w->n_entries[thread];
    struct plan_loop record = {loop->rows_trip, loop->number, w->dynamic_depth, begin};
    struct plan_entry *entry = tw_walk_emit(w, site, NULL, PLAN_LOOP);
    entry->code = TW_OP_LOOP;
    entry->u.loop = record;
    open_dynamic(w, site, loop);
    int rc = walk_body(w, site, loop);
    if (rc != 0) {
        return rc;
    }
    close_dynamic(w, site, loop);
    TW_ASSERT(w->dynamic_depth == record.level && w->n_entries[thread] > begin);
    entry->u.loop.other = w->n_entries[thread];
    entry = tw_walk_emit(w, site, NULL, PLAN_END);
    entry->code = TW_OP_END;
    entry->u.loop = record;
    return 0;
}

/* ---- the step ---- */

/* Runs the engines of `mask` until none of them makes progress. */
static int run_site(struct walk *w, uint32_t site, uint32_t mask, bool *progressed) {
    bool again = true;
    *progressed = false;
    while (again) {
        again = false;
        for (uint32_t n = 0; n < TW_ENGINE_COUNT; n++) {
            int rc = mask >> n & 1u ? run_engine(w, site_engine(w, site, n), &again) : 0;
            if (rc != 0) {
                return rc;
            }
        }
        const struct walk_op *loop = loop_all_have_reached(w, site, mask);
        if (loop) {
            int rc = walk_dynamic(w, site, loop);
            if (rc != 0) {
                return rc;
            }
            again = true;
        }
        *progressed = *progressed || again;
    }
    return 0;
}

static int check_drained(struct walk *w) {
    for (uint32_t i = 0; i < w->program->n_buffers; i++) {
        if (w->buffers[i].level != 0) {
            return tw_fault_fail(w->fault, "FifoOverrun", i, w->buffers[i].level, 0);
        }
    }
    return 0;
}

int tw_walk_step(struct walk *w) {
    uint32_t n = w->program->n_sites * TW_ENGINE_COUNT, done = 0;
    bool any = true;
    while (any) {
        any = false;
        for (uint32_t site = 0; site < w->program->n_sites; site++) {
            bool progressed;
            int rc = run_site(w, site, ALL_ENGINES, &progressed);
            if (rc != 0) {
                return rc;
            }
            any = any || progressed;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        done += w->engines[i].pc >= w->engines[i].end ? 1u : 0u;
    }
    if (done < n) {
        return report_deadlock(w, 0, n, ALL_ENGINES);
    }
    TW_ASSERT(w->dynamic_depth == 0);
    int rc = check_drained(w);
    return rc != 0 ? rc : tw_walk_check_epochs(w);
}
