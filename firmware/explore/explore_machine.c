/* SPDX-License-Identifier: Apache-2.0
 *
 * The explorer's machine: created in a separate block so that its state can be copied, advanced one
 * op at a time, driven along a given schedule.
 */
#include "firmware/explore/explore_internal.h"

enum { DEFAULT_STATES = 65536, DEFAULT_DEPTH = 64 };

/* ---- memory ---- */

static void alloc_scratch(struct explore *x, struct tw_arena *a) {
    const struct tw_program *p = x->config.program;
    x->engines = tw_arena_zeroed(a, x->n_engines, sizeof *x->engines, 8);
    x->pos = tw_arena_zeroed(a, x->n_engines, sizeof *x->pos, 8);
    x->front = tw_arena_zeroed(a, x->n_engines, sizeof *x->front, 8);
    x->pushes = tw_arena_zeroed(a, p->n_buffers, sizeof *x->pushes, 8);
    x->pops = tw_arena_zeroed(a, p->n_buffers, sizeof *x->pops, 8);
    x->level = tw_arena_zeroed(a, p->n_buffers, sizeof *x->level, 8);
    x->words = tw_arena_zeroed(a, (uint64_t)p->n_semaphores * p->n_sites, sizeof *x->words, 8);
}

/* Creates the machine in a separate block, which is cleared first so that equal states have equal
 * bytes. */
static int make_machine(struct explore *x, struct tw_arena *a, struct tw_fault *fault) {
    struct tw_arena counter = {NULL, 0, 0};
    int rc = tw_strict_init(&x->config, &counter, &x->s, fault);
    if (rc != TW_E_NOMEM) {
        return rc;
    }
    size_t from = a->used, room = a->base && from < a->size ? a->size - from : 0;
    if (room > 0) {
        memset(a->base + from, 0, counter.used < room ? counter.used : room);
    }
    rc = tw_strict_init(&x->config, a, &x->s, fault);
    if (rc == 0) {
        x->block = a->base + from;
        x->block_bytes = a->used - from;
        rc = tw_bind_trips(&x->config, x->s->inputs, x->s->trip_min, x->s->trips, &x->s->pages,
                           fault);
    }
    return rc;
}

static void find_compared(struct explore *x) {
    const struct tw_program *p = x->config.program;
    x->n_compared = 0;
    x->compared_bytes = 0;
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        bool compared = p->tensors[t].role == TW_ROLE_OUTPUT || p->tensors[t].role == TW_ROLE_STATE;
        for (uint32_t i = 0; compared && i < p->tensors[t].bind_count; i++) {
            uint8_t *at = tw_bind_tensor(&x->config, t, i);
            struct explore_compared k = {at, (size_t)p->tensors[t].bytes, t, i};
            if (at && x->compared) {
                x->compared[x->n_compared] = k;
            }
            x->n_compared += at ? 1u : 0u;
            x->compared_bytes += at ? k.bytes : 0;
        }
    }
}

static void make_traces(struct explore *x, struct tw_arena *a) {
    tw_explore_unroll(x); /* only counts, as there are no arrays yet */
    find_compared(x);
    x->ops = tw_arena_zeroed(a, x->n_ops, sizeof *x->ops, 8);
    x->accesses = tw_arena_zeroed(a, x->n_accesses, sizeof *x->accesses, 8);
    x->last = tw_arena_zeroed(a, x->n_ops, x->n_engines * sizeof *x->last, 8);
    x->compared = tw_arena_zeroed(a, x->n_compared, sizeof *x->compared, 8);
    if (a->used <= a->size) {
        tw_explore_unroll(x);
        find_compared(x);
    }
}

int tw_explore_prepare(struct explore *x, const struct tw_machine_config *config,
                       struct tw_arena *arena, const struct tw_explore_options *options,
                       struct tw_fault *fault) {
    memset(x, 0, sizeof *x);
    memset(fault, 0, sizeof *fault);
    x->config = *config;
    x->options = *options;
    x->options.steps = options->steps ? options->steps : 1;
    x->options.max_states = options->max_states ? options->max_states : DEFAULT_STATES;
    x->options.max_depth = options->max_depth ? options->max_depth : DEFAULT_DEPTH;
    if (config->program->n_sites > UINT16_MAX / TW_ENGINE_COUNT ||
        x->options.max_states > UINT32_MAX / 4) {
        return tw_fault_fail(fault, "BadTable", TW_NONE, config->program->n_sites,
                             UINT16_MAX / TW_ENGINE_COUNT);
    }
    x->n_engines = config->program->n_sites * TW_ENGINE_COUNT;
    alloc_scratch(x, arena);
    int rc = make_machine(x, arena, fault);
    if (rc == 0) {
        make_traces(x, arena);
    }
    return rc;
}

/* ---- Output and State ---- */

void tw_explore_copy_compared(const struct explore *x, uint8_t *to) {
    for (uint32_t i = 0; i < x->n_compared; to += x->compared[i++].bytes) {
        memcpy(to, x->compared[i].at, x->compared[i].bytes);
    }
}

void tw_explore_restore_compared(const struct explore *x, const uint8_t *from) {
    for (uint32_t i = 0; i < x->n_compared; from += x->compared[i++].bytes) {
        memcpy(x->compared[i].at, from, x->compared[i].bytes);
    }
}

/* ---- advancing ---- */

/* Executes LOOP and END until the engine is at another op; with overlap, an engine at its end
 * begins its next step. */
static void skip_loops(struct explore *x, struct strict_engine *e) {
    struct tw_fault ignored = {0};
    struct tw_op op;
    for (;;) {
        uint32_t code = e->at < e->n_words ? e->words[e->at] & 0xFFFFu : 0;
        if (code == TW_OP_LOOP || code == TW_OP_END) {
            tw_strict_execute(x->s, e, &op, &ignored);
        } else if (code == 0 && x->options.overlap && e->n_words > 0 &&
                   e->vars[0] - x->s->epoch < x->options.steps - 1) {
            e->at = e->index = 0;
            e->vars[0]++;
        } else {
            return;
        }
    }
}

void tw_explore_begin(struct explore *x) {
    tw_strict_begin(x->s);
    for (uint32_t i = 0; i < x->n_engines; i++) {
        skip_loops(x, &x->s->engines[i]);
    }
}

bool tw_explore_can_run(const struct explore *x, uint32_t e) {
    return x->pos[e] < explore_limit(x, e) && strict_runnable(x->s, &x->s->engines[e]);
}

int tw_explore_run(struct explore *x, uint32_t e, struct tw_fault *fault) {
    struct tw_op op;
    int rc = tw_strict_execute(x->s, &x->s->engines[e], &op, fault);
    x->pos[e]++;
    skip_loops(x, &x->s->engines[e]);
    return rc;
}

/* ---- replay ---- */

static bool none_can_run(const struct explore *x) {
    for (uint32_t e = 0; e < x->n_engines; e++) {
        if (tw_explore_can_run(x, e)) {
            return false;
        }
    }
    return true;
}

static int replay(struct explore *x, const struct tw_explore_schedule *schedule,
                  struct tw_fault *fault) {
    int rc = 0;
    tw_explore_begin(x);
    for (uint32_t i = 0; i < schedule->n && rc == 0; i++) {
        while (none_can_run(x) && rc == 0 && x->step + 1 < x->options.steps &&
               !x->options.overlap) {
            rc = tw_strict_end(x->s, fault);
            x->step++;
            x->s->epoch++;
            tw_explore_begin(x);
        }
        uint32_t e = schedule->engine[i];
        if (rc == 0 && (e >= x->n_engines || !tw_explore_can_run(x, e))) {
            rc = tw_fault_fail(fault, "BadSchedule", i, e, x->n_engines);
        }
        rc = rc ? rc : tw_explore_run(x, e, fault);
    }
    return rc == 0 && none_can_run(x) ? tw_strict_end(x->s, fault) : rc;
}

int tw_explore_replay(const struct tw_machine_config *config, struct tw_arena *arena,
                      const struct tw_explore_options *options,
                      const struct tw_explore_schedule *schedule, struct tw_fault *fault) {
    struct tw_fault ignored = {0};
    struct explore x;
    fault = fault ? fault : &ignored;
    int rc = tw_explore_prepare(&x, config, arena, options, fault);
    if (rc == 0 && arena->used > arena->size) {
        rc = tw_fault_nomem(fault, arena->size, arena->used);
    }
    if (rc == 0) {
        rc = replay(&x, schedule, fault);
    }
    return rc;
}
