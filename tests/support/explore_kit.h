/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the explorer: a small program to begin with, and the check of a verdict by running the
 * schedules that come with it.
 */
#ifndef TW_TESTS_SUPPORT_EXPLORE_KIT_H
#define TW_TESTS_SUPPORT_EXPLORE_KIT_H

#include "firmware/explore/explore.h"
#include "tests/support/machine_run.h"
#include "tests/support/test.h"

struct explored {
    int rc;
    void *memory;
    struct tw_explore_result r;
    struct tw_fault fault;
};

/* In memory of exactly the size asked for. */
static inline struct explored explore(struct pb *m, struct tw_explore_options o) {
    struct explored x = {0};
    struct tw_arena arena = {NULL, 0, 0};
    while ((x.rc = tw_explore(&m->config, &arena, &o, &x.r, &x.fault)) == TW_E_NOMEM) {
        free(x.memory);
        x.memory = malloc(arena.used);
        arena = (struct tw_arena){x.memory, arena.used, 0};
    }
    return x;
}

static inline int replay(struct pb *m, struct tw_explore_options o, const uint16_t *engines,
                         uint32_t n, struct tw_fault *fault) {
    static uint8_t memory[1 << 20];
    struct tw_arena arena = {memory, sizeof memory, 0};
    struct tw_explore_schedule s = {engines, n};
    memcpy(m->dram, m->initial, m->dram_next); /* all that is in use */
    int rc = tw_explore_replay(&m->config, &arena, &o, &s, fault);
    assert_int_not_equal(rc, TW_E_NOMEM);
    return rc;
}

static inline uint8_t *kept_after(struct pb *m, struct tw_explore_options o,
                                  const struct tw_explore_schedule *s, size_t *n) {
    struct mr_case c = {m, NULL, NULL, 1};
    struct mr_result r = mr_begin(&c);
    struct tw_fault f;
    assert_int_equal(replay(m, o, s->engine, s->n, &f), 0);
    mr_keep(&c, &r, 0);
    mb_rewind(m);
    *n = r.size;
    return r.bytes;
}

/* The two schedules of the result do leave different bytes, and the first difference is where it
 * says. */
static inline void check_differs(struct pb *m, struct tw_explore_options o,
                                 const struct explored *x) {
    size_t n, at = 0;
    uint8_t *a = kept_after(m, o, &x->r.differs_schedule[0], &n);
    uint8_t *b = kept_after(m, o, &x->r.differs_schedule[1], &n);
    while (at < n && a[at] == b[at]) {
        at++;
    }
    assert_true(at < n);
    for (uint32_t t = 0; t < x->r.tensor; t++) {
        bool kept = m->tensors[t].role == TW_ROLE_OUTPUT || m->tensors[t].role == TW_ROLE_STATE;
        at -= kept ? (size_t)m->tensors[t].bytes * m->tensors[t].bind_count : 0;
    }
    assert_int_equal(at, x->r.offset + x->r.instance * m->tensors[x->r.tensor].bytes);
    free(a);
    free(b);
}

static inline void expect(struct pb *m, struct tw_explore_options o, uint32_t found) {
    struct tw_fault f;
    mb_freeze(m);
    struct explored x = explore(m, o);
    assert_int_equal(x.rc, 0);
    assert_int_equal(x.r.found, found);
    assert_memory_equal(m->dram, m->initial, MB_DRAM); /* it leaves no trace */
    if (found & TW_EXPLORE_DIFFERS) {
        check_differs(m, o, &x);
    }
    if (found & TW_EXPLORE_FAULT) {
        const struct tw_explore_schedule *s = &x.r.fault_schedule;
        assert_int_equal(replay(m, o, s->engine, s->n, &f), TW_E_FAULT);
        assert_string_equal(f.what, x.r.fault.what);
        assert_int_equal(f.op_index, x.r.fault.op_index);
        assert_int_equal(f.engine, x.r.fault.engine);
    }
    if (found & TW_EXPLORE_DEADLOCK) {
        const struct tw_explore_schedule *s = &x.r.deadlock_schedule;
        assert_int_equal(replay(m, o, s->engine, s->n, &f), TW_E_FAULT);
        assert_string_equal(f.what, "Deadlock");
    }
    if (!(found & TW_EXPLORE_RACE)) {
        assert_int_equal(x.r.states, 0);
    }
    free(x.memory);
}

struct base {
    struct pb *m;
    uint32_t param, zero, out; /* 16 floats each */
    uint32_t in, done;         /* FIFOs load -> math -> store of site 0 */
    uint32_t sem;
};

static inline struct base base_create(uint32_t sites, uint32_t pages) {
    struct base b = {.m = mb_create(sites, 1)};
    b.param = mb_tensor(b.m, TW_ROLE_PARAM, TW_INIT_BLOB, 4, 16, 1);
    b.zero = mb_tensor(b.m, TW_ROLE_STATE, TW_INIT_ZERO, 4, 16, 1);
    b.out = mb_tensor(b.m, TW_ROLE_OUTPUT, TW_INIT_NONE, 4, 16, 1);
    b.in = pb_fifo(b.m, 0, TW_ENGINE_LOAD, TW_ENGINE_MATH, pages, 64);
    b.done = pb_fifo(b.m, 0, TW_ENGINE_MATH, TW_ENGINE_STORE, pages, 64);
    b.sem = pb_semaphore(b.m, NULL, TW_SEM_READY, 0, 0);
    mb_fill(b.m, b.param);
    return b;
}

#define ONE X_(TW_NONE, 1)
#define READ_ROW(b, s, tensor, row, to) \
    mb_op((b).m, s, L, READ, T_(tensor, mb_at(0), row), to, I_(1), I_(64), I_(64), I_(64))
#define COPY_ROW(b, s, from, to) mb_op((b).m, s, M, COPY, from, I_(64), to, I_(64), I_(64), ONE)
#define WRITE_ROW(b, s, from, tensor, row) \
    mb_op((b).m, s, S, WRITE, from, I_(64), U_(tensor, mb_at(0), row), I_(64), I_(64), ONE)

#endif
