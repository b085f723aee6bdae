/* SPDX-License-Identifier: Apache-2.0
 *
 * The search: a path continues until several orders have to be tried. There the state is saved and
 * each order is run from it in turn; a state whose hash was seen before is abandoned. The state
 * contains everything in which two orders can differ: all of the machine's memory, Output and
 * State.
 */
#include "firmware/explore/explore_internal.h"

/* A state with a choice: the engines whose next ops must be tried first, one after the other. */
struct frame {
    uint8_t *state;
    uint16_t *choices;
    uint32_t n_choices, next, n_path, step;
};

struct search {
    struct explore x;
    struct tw_explore_result *r;
    uint16_t *path; /* the schedule that led to the current state */
    uint32_t n_path;
    struct frame *frames;
    uint32_t depth;
    uint64_t (*table)[2]; /* hashes of the states seen; {0, 0}: free */
    uint32_t table_mask, n_seen;
    /* compared bytes: initially; after each step of the first path that completed it */
    uint8_t *initial, *reference;
    uint16_t *reference_path; /* [step][op] */
    uint32_t *reference_n;    /* [step]: ops of that path + 1; 0: no path has completed the step */
    uint16_t *fault_path, *deadlock_path, *differs_path;
    uint8_t *frozen;
    uint16_t *enabled, *set, *best;
    bool stop;
};

/* ---- memory ---- */

static uint64_t state_bytes(const struct explore *x) {
    return ((uint64_t)x->block_bytes + x->compared_bytes + x->n_engines * sizeof *x->pos + 7) / 8 *
           8;
}

static void alloc_search(struct search *q, struct tw_arena *a) {
    const struct explore *x = &q->x;
    uint64_t steps = x->options.steps, n = x->n_ops;
    uint32_t slots = 2;
    while (slots < x->options.max_states * 2) {
        slots *= 2;
    }
    q->table_mask = slots - 1;
    q->table = tw_arena_zeroed(a, slots, sizeof *q->table, 8);
    q->path = tw_arena_zeroed(a, n, sizeof *q->path, 8);
    q->fault_path = tw_arena_zeroed(a, n, sizeof *q->path, 8);
    q->deadlock_path = tw_arena_zeroed(a, n, sizeof *q->path, 8);
    q->differs_path = tw_arena_zeroed(a, n, sizeof *q->path, 8);
    q->reference_path = tw_arena_zeroed(a, n, (size_t)steps * sizeof *q->path, 8);
    q->reference_n = tw_arena_zeroed(a, steps, sizeof *q->reference_n, 8);
    q->reference = tw_arena_zeroed(a, x->compared_bytes, (size_t)steps, 8);
    q->initial = tw_arena_zeroed(a, x->compared_bytes, 1, 8);
    q->frozen = tw_arena_zeroed(a, x->n_engines, 1, 8);
    q->enabled = tw_arena_zeroed(a, x->n_engines, sizeof *q->enabled, 8);
    q->set = tw_arena_zeroed(a, x->n_engines, sizeof *q->set, 8);
    q->best = tw_arena_zeroed(a, x->n_engines, sizeof *q->best, 8);
    q->frames = tw_arena_zeroed(a, x->options.max_depth, sizeof *q->frames, 8);
    uint8_t *states = tw_arena_zeroed(a, x->options.max_depth, (size_t)state_bytes(x), 8);
    uint16_t *choices = tw_arena_zeroed(a, x->options.max_depth, x->n_engines * sizeof *choices, 8);
    for (uint32_t i = 0; a->used <= a->size && i < x->options.max_depth; i++) {
        q->frames[i].state = states + i * state_bytes(x);
        q->frames[i].choices = choices + (size_t)i * x->n_engines;
    }
}

/* ---- states ---- */

static void save(const struct search *q, struct frame *f) {
    const struct explore *x = &q->x;
    memcpy(f->state, x->block, x->block_bytes);
    memcpy(f->state + x->block_bytes, x->pos, x->n_engines * sizeof *x->pos);
    tw_explore_copy_compared(x, f->state + x->block_bytes + x->n_engines * sizeof *x->pos);
    f->n_path = q->n_path;
    f->step = x->step;
}

static void restore(struct search *q, const struct frame *f) {
    struct explore *x = &q->x;
    memcpy(x->block, f->state, x->block_bytes);
    memcpy(x->pos, f->state + x->block_bytes, x->n_engines * sizeof *x->pos);
    tw_explore_restore_compared(x, f->state + x->block_bytes + x->n_engines * sizeof *x->pos);
    q->n_path = f->n_path;
    x->step = f->step;
}

static void hash_bytes(uint64_t h[2], const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i += 8) {
        uint64_t w = 0;
        memcpy(&w, bytes + i, n - i < 8 ? n - i : 8);
        h[0] = (h[0] ^ w) * 0x9E3779B97F4A7C15u;
        h[0] ^= h[0] >> 32;
        h[1] = (h[1] + w) * 0xD6E8FEB86659FD93u;
        h[1] ^= h[1] >> 29;
    }
}

/* Records the current state. Returns false if it was seen before, or if the table is full. */
static bool record_state(struct search *q) {
    struct explore *x = &q->x;
    uint64_t h[2] = {x->step + 1, 1};
    hash_bytes(h, x->block, x->block_bytes);
    for (uint32_t i = 0; i < x->n_compared; i++) {
        hash_bytes(h, x->compared[i].at, x->compared[i].bytes);
    }
    h[0] += h[0] == 0 && h[1] == 0 ? 1u : 0u;
    uint32_t at = (uint32_t)h[0] & q->table_mask;
    for (; q->table[at][0] | q->table[at][1]; at = (at + 1) & q->table_mask) {
        if (q->table[at][0] == h[0] && q->table[at][1] == h[1]) {
            return false;
        }
    }
    if (q->n_seen == x->options.max_states) {
        q->r->found |= TW_EXPLORE_LIMIT;
        q->stop = true;
        return false;
    }
    q->n_seen++;
    q->table[at][0] = h[0];
    q->table[at][1] = h[1];
    return true;
}

/* ---- which orders matter ---- */

static void record_race(struct search *q, uint32_t a, const struct explore_op *op_a, uint32_t b,
                        const struct explore_op *op_b) {
    if (!(q->r->found & TW_EXPLORE_RACE)) {
        const struct explore_op *op[2] = {op_a, op_b};
        for (uint32_t i = 0; i < 2; i++) {
            q->r->race[i].engine = i ? b : a;
            q->r->race[i].op_index = op[i]->index;
            q->r->race[i].step = op[i]->step;
        }
        q->r->found |= TW_EXPLORE_RACE;
    }
}

/* Returns true if no op that is still to run conflicts with the engine's next op. */
static bool is_independent(const struct explore *x, uint32_t e) {
    const uint32_t *last = &x->last[(size_t)(x->engines[e].first + x->pos[e]) * x->n_engines];
    for (uint32_t f = 0; f < x->n_engines; f++) {
        if (last[f] > x->pos[f]) {
            return false;
        }
    }
    return true;
}

/* Returns true if an op of f that can run before the next op of e conflicts with it. */
static bool can_conflict(struct search *q, uint32_t e, uint32_t f) {
    const struct explore *x = &q->x;
    const struct explore_op *t = explore_next(x, e);
    for (uint32_t i = x->pos[f]; i < x->front[f]; i++) {
        const struct explore_op *u = &x->ops[x->engines[f].first + i];
        if (tw_explore_conflict(x, t, u)) {
            record_race(q, e, t, f, u);
            return true;
        }
    }
    return false;
}

/* Returns the next engine that must be tried in addition to those in the set; TW_NONE if there is
 * none. */
static uint32_t next_interfering(struct search *q, uint32_t n) {
    tw_explore_look_ahead(&q->x, q->frozen);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t f = 0; f < q->x.n_engines; f++) {
            if (!q->frozen[f] && can_conflict(q, q->set[i], f)) {
                return f;
            }
        }
    }
    return TW_NONE;
}

/* Extends {e} to a set of next ops with which nothing outside can interfere. Returns its size; 0 if
 * there is no such set of which every op can run. */
static uint32_t close_set(struct search *q, uint32_t e) {
    uint32_t n = 1, f;
    memset(q->frozen, 0, q->x.n_engines);
    q->set[0] = (uint16_t)e;
    q->frozen[e] = 1;
    while ((f = next_interfering(q, n)) != TW_NONE) {
        if (!tw_explore_can_run(&q->x, f)) {
            return 0;
        }
        q->set[n++] = (uint16_t)f;
        q->frozen[f] = 1;
    }
    return n;
}

/* Stores in q->best the engines whose next ops must each be tried first, and returns their number;
 * 0 if none can run. */
static uint32_t choose(struct search *q) {
    struct explore *x = &q->x;
    uint32_t n_enabled = 0, min_size;
    for (uint32_t e = 0; e < x->n_engines; e++) {
        if (tw_explore_can_run(x, e)) {
            q->enabled[n_enabled++] = (uint16_t)e;
        }
    }
    memcpy(q->best, q->enabled, n_enabled * sizeof *q->best);
    min_size = n_enabled;
    for (uint32_t i = 0; x->monotone && i < n_enabled && min_size > 1; i++) {
        if (is_independent(x, q->enabled[i])) {
            q->best[0] = q->enabled[i];
            min_size = 1;
        }
    }
    for (uint32_t i = 0; x->monotone && i < n_enabled && min_size > 1; i++) {
        uint32_t n = close_set(q, q->enabled[i]);
        if (n > 0 && n < min_size) {
            memcpy(q->best, q->set, n * sizeof *q->best);
            min_size = n;
        }
    }
    return min_size;
}

/* ---- paths ---- */

static struct tw_explore_schedule copy_path(const struct search *q, uint16_t *to) {
    struct tw_explore_schedule s = {to, q->n_path};
    memcpy(to, q->path, q->n_path * sizeof *to);
    return s;
}

static void record_fault(struct search *q, const struct tw_fault *fault) {
    if (!(q->r->found & TW_EXPLORE_FAULT)) {
        q->r->found |= TW_EXPLORE_FAULT;
        q->r->fault = *fault;
        q->r->fault_schedule = copy_path(q, q->fault_path);
    }
}

static bool run_op(struct search *q, uint32_t e) {
    struct tw_fault fault;
    memset(&fault, 0, sizeof fault);
    q->path[q->n_path++] = (uint16_t)e;
    int rc = tw_explore_run(&q->x, e, &fault);
    if (rc != 0) {
        record_fault(q, &fault);
    }
    return rc == 0;
}

static void compare(struct search *q) {
    const struct explore *x = &q->x;
    const uint8_t *expected = q->reference + (size_t)x->step * x->compared_bytes;
    for (uint32_t i = 0; i < x->n_compared; expected += x->compared[i++].bytes) {
        const struct explore_compared *k = &x->compared[i];
        size_t at = 0;
        while (at < k->bytes && k->at[at] == expected[at]) {
            at++;
        }
        if (at < k->bytes && !(q->r->found & TW_EXPLORE_DIFFERS)) {
            struct tw_explore_schedule first = {q->reference_path + (size_t)x->step * x->n_ops,
                                                q->reference_n[x->step] - 1};
            q->r->found |= TW_EXPLORE_DIFFERS;
            q->r->step = x->options.overlap ? x->options.steps - 1 : x->step;
            q->r->tensor = k->tensor;
            q->r->instance = k->instance;
            q->r->offset = at;
            q->r->differs_schedule[0] = first;
            q->r->differs_schedule[1] = copy_path(q, q->differs_path);
        }
    }
}

/* Ends the step once no engine can run. Returns true if a next step has begun. */
static bool end_step(struct search *q) {
    struct explore *x = &q->x;
    struct tw_fault fault;
    memset(&fault, 0, sizeof fault);
    if (tw_strict_end(x->s, &fault) != 0) {
        bool deadlock = false;
        for (uint32_t e = 0; e < x->n_engines; e++) {
            deadlock = deadlock || x->pos[e] < explore_limit(x, e);
        }
        if (!deadlock) {
            record_fault(q, &fault);
        } else if (!(q->r->found & TW_EXPLORE_DEADLOCK)) {
            q->r->found |= TW_EXPLORE_DEADLOCK;
            q->r->deadlock = fault;
            q->r->deadlock_schedule = copy_path(q, q->deadlock_path);
        }
        return false;
    }
    if (q->reference_n[x->step] == 0) {
        copy_path(q, q->reference_path + (size_t)x->step * x->n_ops);
        q->reference_n[x->step] = q->n_path + 1;
        tw_explore_copy_compared(x, q->reference + (size_t)x->step * x->compared_bytes);
    } else {
        compare(q);
    }
    if (x->options.overlap || x->step + 1 == x->options.steps) {
        q->r->ends++;
        return false;
    }
    if (!record_state(q)) {
        return false;
    }
    x->step++;
    x->s->epoch++;
    tw_explore_begin(x);
    return true;
}

static bool open_frame(struct search *q, uint32_t n) {
    if (!record_state(q)) {
        return false;
    }
    q->r->states++;
    if (q->depth == q->x.options.max_depth) {
        q->r->found |= TW_EXPLORE_LIMIT;
        return false;
    }
    struct frame *f = &q->frames[q->depth++];
    memcpy(f->choices, q->best, n * sizeof *f->choices);
    f->n_choices = n;
    f->next = 1;
    save(q, f);
    return true;
}

/* Runs until the path has ended. */
static void run_path(struct search *q) {
    bool open = true;
    while (open && !q->stop) {
        uint32_t n = choose(q);
        if (n == 0) {
            open = end_step(q);
        } else {
            open = (n == 1 || open_frame(q, n)) && run_op(q, q->best[0]);
        }
    }
}

/* Takes the next order of the last open choice; returns false when none is left. */
static bool backtrack(struct search *q) {
    while (q->depth > 0 && !q->stop) {
        struct frame *f = &q->frames[q->depth - 1];
        if (f->next == f->n_choices) {
            q->depth--;
            continue;
        }
        restore(q, f);
        if (run_op(q, f->choices[f->next++])) {
            return true;
        }
    }
    return false;
}

int tw_explore(const struct tw_machine_config *config, struct tw_arena *arena,
               const struct tw_explore_options *options, struct tw_explore_result *result,
               struct tw_fault *fault) {
    struct tw_fault ignored = {0};
    struct search q;
    fault = fault ? fault : &ignored;
    memset(&q, 0, sizeof q);
    memset(result, 0, sizeof *result);
    int rc = tw_explore_prepare(&q.x, config, arena, options, fault);
    if (rc != 0) {
        return rc;
    }
    alloc_search(&q, arena);
    if (arena->used > arena->size) {
        return tw_fault_nomem(fault, arena->size, arena->used);
    }
    tw_explore_find_conflicts(&q.x);
    tw_explore_copy_compared(&q.x, q.initial);
    q.r = result;
    tw_explore_begin(&q.x);
    do {
        run_path(&q);
    } while (backtrack(&q));
    tw_explore_restore_compared(&q.x, q.initial);
    return 0;
}
