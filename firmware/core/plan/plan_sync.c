/* SPDX-License-Identifier: Apache-2.0
 *
 * Semaphores of the symbolic step. Each increment by another thread is recorded with that thread's
 * vector clock. A wait takes the increments it needs, joins their clocks, and emits waits only for
 * threads whose progress is not already implied by what the waiting thread or another of the
 * increments knows.
 */
#include "firmware/core/plan/plan_walk.h"

#include "loader/base/assert.h"

static struct walk_word *word_of(const struct walk *w, uint32_t semaphore, uint32_t site) {
    TW_ASSERT(semaphore < w->program->n_semaphores && site < w->program->n_sites);
    return &w->words[(size_t)semaphore * w->program->n_sites + site];
}

static bool has_word(const struct walk *w, uint32_t semaphore, uint32_t site) {
    return tw_group_has(w->program, w->program->semaphores[semaphore].group, site);
}

/* Returns the threshold in a step of epoch 0, relative to the initial value, and the step of its
 * epoch term. */
static uint32_t threshold(const struct walk *w, const struct walk_engine *e,
                          const struct walk_op *op, uint32_t *epoch_step) {
    const uint32_t *a = op->affine;
    TW_ASSERT(a && a[2] <= TW_MAX_TERMS);
    uint32_t value = a[0];
    *epoch_step = 0;
    for (uint32_t i = 0; i < a[2]; i++) {
        const uint32_t *term = a + 3 + (size_t)3 * i;
        TW_ASSERT(term[0] < TW_MAX_VARS);
        if (term[0] == 0) {
            *epoch_step += term[1];
        } else {
            value += term[1] * e->vars[term[0]];
        }
    }
    return value - w->program->semaphores[op->object].initial;
}

bool tw_walk_sem_blocked(struct walk *w, const struct walk_engine *e, const struct walk_op *op,
                         uint32_t *have, uint32_t *need) {
    uint32_t ignored, initial = w->program->semaphores[op->object].initial;
    uint32_t value = word_of(w, op->object, e->site)->value,
             at_least = threshold(w, e, op, &ignored);
    *have = value + initial;
    *need = at_least + initial;
    return has_word(w, op->object, e->site) && (int32_t)(value - at_least) < 0;
}

/* Consecutive increments without an entry between them share a snapshot. */
static uint32_t take_snapshot(struct walk *w, uint32_t thread) {
    uint32_t last = w->last_snapshot[thread], *clock = walk_clock(w, thread);
    if (last != TW_NONE &&
        w->snapshots[(size_t)last * w->n_threads + thread] == w->n_entries[thread]) {
        return last;
    }
    TW_ASSERT(w->n_snapshots < w->bounds.snapshots);
    uint32_t id = w->n_snapshots++;
    TW_ASSERT(clock[thread] <= w->n_entries[thread]); /* nobody knows more of it than it has done */
    clock[thread] = w->n_entries[thread];
    memcpy(&w->snapshots[(size_t)id * w->n_threads], clock, w->n_threads * sizeof *clock);
    w->snapshot_thread[id] = thread;
    w->last_snapshot[thread] = id;
    return id;
}

static void append_event(struct walk *w, struct walk_word *word, uint32_t thread) {
    TW_ASSERT(w->n_events < w->bounds.events);
    uint32_t id = w->n_events++;
    struct walk_event *event = &w->events[id];
    event->before = word->value;
    event->snapshot = take_snapshot(w, thread);
    event->next = TW_NONE;
    if (word->first == TW_NONE) {
        word->first = id;
    } else {
        TW_ASSERT(word->last < id && w->events[word->last].next == TW_NONE);
        w->events[word->last].next = id;
    }
    word->last = id;
}

int tw_walk_sem_increment(struct walk *w, const struct walk_engine *e, uint32_t semaphore,
                          uint32_t site, uint32_t by) {
    struct walk_word *word = word_of(w, semaphore, site);
    if (!has_word(w, semaphore, site)) {
        return tw_fault_fail(w->fault, "BadOp", semaphore, site, TW_NONE);
    }
    if (walk_thread(w, site) != e->thread) {
        append_event(w, word, e->thread);
    }
    word->value += by;
    return 0;
}

/* Sets direct[t] to the number of entries of thread t that its own increments in [first, end)
 * require. */
static void collect_direct(struct walk *w, uint32_t first, uint32_t end) {
    memset(w->direct, 0, w->n_threads * sizeof *w->direct);
    for (uint32_t i = first; i != end; i = w->events[i].next) {
        uint32_t snapshot = w->events[i].snapshot, thread = w->snapshot_thread[snapshot];
        uint32_t count = w->snapshots[(size_t)snapshot * w->n_threads + thread];
        w->direct[thread] = count > w->direct[thread] ? count : w->direct[thread];
    }
}

/* Returns true if an increment of a different thread knows that `thread` has progressed as far as
 * required. */
static bool is_implied(const struct walk *w, uint32_t first, uint32_t end, uint32_t thread) {
    for (uint32_t i = first; i != end; i = w->events[i].next) {
        uint32_t snapshot = w->events[i].snapshot;
        if (w->snapshot_thread[snapshot] != thread &&
            w->snapshots[(size_t)snapshot * w->n_threads + thread] >= w->direct[thread]) {
            return true;
        }
    }
    return false;
}

static void join_clocks(struct walk *w, uint32_t *clock, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i != end; i = w->events[i].next) {
        const uint32_t *other = &w->snapshots[(size_t)w->events[i].snapshot * w->n_threads];
        for (uint32_t t = 0; t < w->n_threads; t++) {
            clock[t] = other[t] > clock[t] ? other[t] : clock[t];
        }
    }
}

static void post_at(struct walk *w, uint32_t thread, uint32_t count) {
    TW_ASSERT(count > 0 && count <= w->n_entries[thread]);
    if (w->plan) {
        w->plan->threads[thread].entries[count - 1].flags |= PLAN_POST;
    }
}

static void emit_waits(struct walk *w, const struct walk_engine *e, uint32_t first, uint32_t end) {
    const uint32_t *clock = walk_clock(w, e->thread);
    struct plan_entry *entry = NULL;
    for (uint32_t t = 0; t < w->n_threads; t++) {
        if (w->direct[t] <= clock[t] || is_implied(w, first, end, t)) {
            continue;
        }
        if (!entry || entry->n == PLAN_WAITS) {
            entry = tw_walk_emit(w, e->site, e, PLAN_WAIT);
            entry->code = TW_OP_SEM_WAIT;
        }
        TW_ASSERT(t != e->thread && entry->n < PLAN_WAITS);
        entry->u.wait[entry->n].thread = t;
        entry->u.wait[entry->n].count = w->direct[t];
        entry->n++;
        w->stats.waits++;
        post_at(w, t, w->direct[t]);
    }
}

int tw_walk_sem_wait(struct walk *w, const struct walk_engine *e, const struct walk_op *op) {
    struct walk_word *word = word_of(w, op->object, e->site);
    uint32_t epoch_step, at_least = threshold(w, e, op, &epoch_step);
    if (!has_word(w, op->object, e->site)) {
        return tw_fault_fail(w->fault, "BadOp", op->object, e->site, TW_NONE);
    }
    if (word->waited && word->epoch_step != epoch_step) {
        return tw_fault_fail(w->fault, "EpochStep", op->object, epoch_step, word->epoch_step);
    }
    word->waited = true;
    word->epoch_step = epoch_step;
    uint32_t first = word->first, end = first;
    while (end != TW_NONE && (int32_t)(w->events[end].before - at_least) < 0) {
        end = w->events[end].next;
    }
    if (first != end) {
        collect_direct(w, first, end);
        emit_waits(w, e, first, end);
        join_clocks(w, walk_clock(w, e->thread), first, end);
        word->first = end;
    }
    return 0;
}

/* The walked step represents every step only if each threshold grows per step by the amount by
 * which its word grows. */
int tw_walk_check_epochs(struct walk *w) {
    uint64_t n = (uint64_t)w->program->n_semaphores * w->program->n_sites;
    for (uint64_t i = 0; i < n; i++) {
        if (w->words[i].waited && w->words[i].epoch_step != w->words[i].value) {
            w->fault->site = (uint32_t)(i % w->program->n_sites);
            w->fault->engine = w->fault->op_index = w->fault->stage = TW_NONE;
            w->fault->opcode = TW_OP_SEM_WAIT;
            return tw_fault_fail(w->fault, "EpochStep", (uint32_t)(i / w->program->n_sites),
                                 w->words[i].epoch_step, w->words[i].value);
        }
    }
    return 0;
}
