/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator's team of threads, with plans of the smallest program: every member runs its part of
 * every step once, whether it was spinning, asleep, or left out of the step before.
 */
#include "firmware/emulator/workers.h"
#include "tests/support/bigram.h"
#include "tests/support/test.h"

#include <time.h>

#define SITES 4u

/* The bigram program on SITES sites, which look up their own tokens; so each thread has work and
 * its result shows. */
struct wide {
    struct bigram b[SITES];
    struct tw_program program;
    struct tw_tensor tensors[4 * SITES];
    struct tw_buffer buffers[2 * SITES];
    struct tw_trip trips[SITES];
    struct tw_stage stages[TW_ENGINE_COUNT];
    struct tw_stream streams[SITES * TW_ENGINE_COUNT];
    uint64_t bind[SITES * BIGRAM_BINDS];
    int32_t ids[SITES][BIGRAM_ROWS], rows[SITES];
    float logits[SITES][BIGRAM_COLS];
    uint8_t *memory;
    struct tw_plan *plan;
};

static void shift_words(uint32_t *words, uint32_t n, uint32_t site) {
    struct tw_op op;
    for (uint32_t at = 0; at < n; at += op.n_words) {
        assert_true(tw_op_decode(words, n, at, &op));
        for (uint32_t i = 0; i < op.n_operands; i++) {
            struct tw_operand *o = &op.operand[i];
            o->id += strchr("RWF", o->kind)                 ? 2 * site
                     : strchr("TU", o->kind)                ? 4 * site
                     : (o->kind == 'X' && o->id != TW_NONE) ? site
                                                            : 0;
        }
        tw_op_encode(&op, words + at);
    }
}

static void add_site(struct wide *w, uint32_t s) {
    struct bigram *b = &w->b[s];
    bigram_init(b);
    for (uint32_t i = 0; i < 4; i++) {
        w->tensors[4 * s + i] = b->tensors[i];
        w->tensors[4 * s + i].bind_first += BIGRAM_BINDS * s;
    }
    for (uint32_t i = 0; i < 2; i++) {
        w->buffers[2 * s + i] = b->buffers[i];
        w->buffers[2 * s + i].site = s;
    }
    w->trips[s] = b->trip;
    w->trips[s].input += 4 * s;
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        shift_words(b->words[e], b->streams[e].n_words, s);
        w->streams[s * TW_ENGINE_COUNT + e] =
            (struct tw_stream){s, e, b->words[e], b->streams[e].n_words};
    }
    const void *at[BIGRAM_BINDS] = {w->ids[s], &w->rows[s], b->table, w->logits[s]};
    for (uint32_t i = 0; i < BIGRAM_BINDS; i++) {
        w->bind[BIGRAM_BINDS * s + i] = (uintptr_t)at[i];
    }
    w->rows[s] = BIGRAM_ROWS;
}

static void *identity(void *ctx, uint64_t address, uint64_t size) {
    (void)ctx;
    (void)size;
    return (void *)(uintptr_t)address;
}

static void build(struct wide *w, uint32_t n_threads) {
    memset(w, 0, sizeof *w);
    for (uint32_t s = 0; s < SITES; s++) {
        add_site(w, s);
    }
    w->program = w->b[0].program;
    w->program.n_sites = w->program.mesh_width = SITES;
    w->program.n_tensors = 4 * SITES;
    w->program.n_buffers = 2 * SITES;
    w->program.n_trips = SITES;
    w->program.tensors = w->tensors;
    w->program.buffers = w->buffers;
    w->program.trips = w->trips;
    w->program.streams = w->streams;
    struct tw_machine_config config = {.program = &w->program,
                                       .bind = w->bind,
                                       .n_bind = SITES * BIGRAM_BINDS,
                                       .map = identity,
                                       .kernels = tw_kernel_table(TW_ISA_SCALAR)};
    struct tw_arena arena = {0};
    struct tw_fault fault = {0};
    assert_int_equal(tw_plan_build(&config, n_threads, &arena, &w->plan, &fault), TW_E_NOMEM);
    w->memory = aligned_alloc(64, (arena.used + 63) / 64 * 64);
    arena = (struct tw_arena){.base = w->memory, .size = arena.used};
    assert_int_equal(tw_plan_build(&config, n_threads, &arena, &w->plan, &fault), 0);
}

/* Steps once with new tokens and checks every site's answer. */
static void step(struct wide *w, struct tw_workers *team, uint32_t n_threads, uint32_t number) {
    struct tw_fault fault = {0};
    for (uint32_t s = 0; s < SITES; s++) {
        w->ids[s][BIGRAM_ROWS - 1] = (int32_t)((number + s) % BIGRAM_VOCAB);
        memset(w->logits[s], 0, sizeof w->logits[s]);
    }
    assert_int_equal(tw_plan_begin(w->plan, &fault), 0);
    tw_workers_run(team, w->plan, n_threads);
    for (uint32_t s = 0; s < SITES; s++) {
        assert_memory_equal(w->logits[s], w->b[s].table[(number + s) % BIGRAM_VOCAB],
                            sizeof w->logits[s]);
    }
}

static void nap(long ms) {
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

static void every_step_runs_on_every_member(void **state) {
    (void)state;
    static struct wide w;
    build(&w, 3);
    struct tw_workers *team = tw_workers_create(3);
    assert_int_equal(tw_workers_prepare(team, 3), 3);
    for (uint32_t i = 0; i < 300; i++) {
        step(&w, team, 3, i);
    }
    tw_workers_destroy(team);
    free(w.memory);
}

static void sleeping_members_wake_up(void **state) {
    (void)state;
    static struct wide w;
    build(&w, 2);
    struct tw_workers *team = tw_workers_create(2);
    assert_int_equal(tw_workers_prepare(team, 2), 2);
    for (uint32_t i = 0; i < 10; i++) {
        step(&w, team, 2, i);
        nap(5); /* far longer than members spin */
    }
    tw_workers_destroy(team);
    free(w.memory);
}

static void steps_of_different_sizes_take_turns(void **state) {
    (void)state;
    static struct wide one, two, four;
    build(&one, 1);
    build(&two, 2);
    build(&four, 4);
    struct tw_workers *team = tw_workers_create(4);
    assert_int_equal(tw_workers_prepare(team, 4), 4);
    for (uint32_t i = 0; i < 60; i++) {
        step(&four, team, 4, i);
        step(&two, team, 2, i + 1);
        step(&one, team, 1, i + 2);
        step(&two, team, 2, i + 3);
    }
    tw_workers_destroy(team);
    free(one.memory);
    free(two.memory);
    free(four.memory);
}

static void a_team_never_exceeds_its_maximum(void **state) {
    (void)state;
    struct tw_workers *team = tw_workers_create(1);
    assert_int_equal(tw_workers_prepare(team, 8), 1);
    tw_workers_destroy(team);
    tw_workers_destroy(NULL);
}

static void a_team_that_never_ran_ends(void **state) {
    (void)state;
    struct tw_workers *team = tw_workers_create(3);
    assert_int_equal(tw_workers_prepare(team, 3), 3);
    tw_workers_destroy(team);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_runs_on_every_member),
        cmocka_unit_test(sleeping_members_wake_up),
        cmocka_unit_test(steps_of_different_sizes_take_turns),
        cmocka_unit_test(a_team_never_exceeds_its_maximum),
        cmocka_unit_test(a_team_that_never_ran_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
