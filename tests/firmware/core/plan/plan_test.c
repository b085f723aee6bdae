/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans on one thread: replay leaves the same bytes as strict execution, reads in place where that
 * is sound and nowhere else, and refuses what it cannot flatten.
 */
#include "tests/support/machine_run.h"
#include "tests/support/plan_describe.h"
#include "tests/support/test.h"
#include "tests/support/tiny_decoder.h"

/* Strict, under two schedulers, and replay must agree; returns the plan's figures. */
static struct tw_plan_stats expect_equal(const struct mr_case *c) {
    struct tw_plan_stats stats;
    struct mr_result strict = mr_strict(c, TW_SCHED_CANONICAL, 0),
                     random = mr_strict(c, TW_SCHED_RANDOM, 99);
    struct mr_result fast = mr_fast(c, 1, &stats);
    if (strict.rc != 0 || fast.rc != 0) {
        print_message("strict %s, fast %s\n", strict.rc ? strict.fault.what : "ok",
                      fast.rc ? fast.fault.what : "ok");
    }
    assert_int_equal(strict.rc, 0);
    assert_int_equal(random.rc, 0);
    assert_int_equal(fast.rc, 0);
    assert_memory_equal(strict.bytes, random.bytes, strict.size);
    assert_memory_equal(strict.bytes, fast.bytes, strict.size);
    free(strict.bytes);
    free(random.bytes);
    free(fast.bytes);
    return stats;
}

/* ---- the decoder ---- */

static void decoder_input(void *ctx, uint32_t step) {
    static const uint32_t pos[] = {0, 3, 4, 8, 62, 64, 127, 188}, rows[] = {3, 1, 4, 2, 4, 4, 2, 4};
    td_input(ctx, pos[step], rows[step]);
}

static void the_decoder_replays_to_the_same_bytes(void **state) {
    (void)state;
    static const struct td_options options[] = {
        {.width = 1, .height = 1},
        {.width = 2, .height = 1},
        {.width = 2, .height = 2},
        {.width = 2, .height = 1, .unshared = true},
        {.width = 2, .height = 1, .misalign = 4},
        {.width = 1, .height = 1, .chips = 2},
        {.width = 2, .height = 1, .chips = 2},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct td d = td_create(options[i]);
        struct mr_case c = {d.m, decoder_input, &d, 8};
        expect_equal(&c);
        pb_free(d.m);
    }
}

static void weights_norms_and_caches_are_read_in_place(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 2, .height = 2});
    struct mr_case c = {d.m, decoder_input, &d, 1};
    struct tw_plan_stats stats = expect_equal(&c);
    assert_int_equal(stats.in_place_reads, 4 * TD_LAYERS * (1 + 4 + 2));
    /* multicasts, one copy each although they have four receivers */
    assert_int_equal(stats.copies, 4 * TD_LAYERS * 2);
    assert_int_equal(stats.waits, 0);
    assert_int_equal(stats.posts, 0);
    pb_free(d.m);
}

static void siblings_that_may_differ_get_a_copy_each(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 2, .height = 2, .unshared = true});
    struct mr_case c = {d.m, decoder_input, &d, 1};
    struct tw_plan_stats stats = expect_equal(&c);
    assert_int_equal(stats.copies, 4 * TD_LAYERS * (4 + 1));
    pb_free(d.m);
}

static void unaligned_tensors_are_copied(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 2, .height = 1, .misalign = 4});
    struct mr_case c = {d.m, decoder_input, &d, 1};
    struct tw_plan_stats stats = expect_equal(&c);
    assert_int_equal(stats.in_place_reads, 0);
    pb_free(d.m);
}

/* Both sites get page 0 of the Param, then site 1 alone gets page 1: site 0 must keep page 0. */
static void a_multicast_to_some_leaves_the_others_alone(void **state) {
    (void)state;
    struct pb *m = mb_create(2, 1);
    uint32_t param = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 2, 16, 1);
    uint32_t out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 2, 16, 1);
    uint32_t set = pb_siblings(m, 64),
             source = pb_fifo(m, 0, TW_ENGINE_LOAD, TW_ENGINE_STORE, 2, 64);
    uint32_t second = pb_group(m, 1, 0, 2, 1), valid = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    mb_fill(m, param);
    for (uint32_t page = 0; page < 2; page++) {
        mb_op(m, 0, L, RESERVE, F_(source), I_(1));
        mb_op(m, 0, L, READ, T_(param, mb_at(0), mb_at(page * 64)), W_(source, mb_at(0)), I_(1),
              I_(64), I_(64), I_(64));
        mb_op(m, 0, L, PUSH, F_(source), I_(1));
        mb_op(m, 0, S, WAIT, F_(source), I_(1));
        mb_op(m, 0, S, MCAST, R_(source, mb_at(0)), I_(64), D_(set, mb_at(0)), I_(64), I_(64),
              X_(TW_NONE, 1), G_(page ? second : 0));
        mb_op(m, 0, S, POP, F_(source), I_(1));
    }
    mb_op(m, 0, S, MCAST_SET, S_(valid), G_(0));
    for (uint32_t s = 0; s < 2; s++) {
        mb_op(m, s, S, SEM_WAIT, S_(valid), A_(tw_affine_plus(mb_at(1), 0, 1)));
        mb_op(m, s, S, WRITE, R_(set + s, mb_at(0)), I_(64), U_(out, mb_at(0), mb_at(s * 64)),
              I_(64), I_(64), X_(TW_NONE, 1));
    }
    mb_freeze(m);
    struct mr_case c = {m, NULL, NULL, 2};
    assert_int_equal(expect_equal(&c).copies, 3);
    assert_memory_equal(mb_data(m, out, 0), mb_data(m, param, 0), 128);
    pb_free(m);
}

static void multicast_page(struct pb *m, uint32_t source, uint32_t set, uint32_t param,
                           uint32_t page) {
    mb_op(m, 0, L, RESERVE, F_(source), I_(1));
    mb_op(m, 0, L, READ, T_(param, mb_at(0), mb_at(page * 64)), W_(source, mb_at(0)), I_(1), I_(64),
          I_(64), I_(64));
    mb_op(m, 0, L, PUSH, F_(source), I_(1));
    mb_op(m, 0, S, WAIT, F_(source), I_(1));
    for (uint32_t chip = 0; chip < (page ? 1u : 2u); chip++) {
        mb_op(m, 0, S, MCAST, R_(source, mb_at(0)), I_(64), D_(set, mb_at(0)), I_(64), I_(64),
              X_(TW_NONE, 1), G_(page ? 3 : 1 + chip));
    }
    mb_op(m, 0, S, POP, F_(source), I_(1));
}

/* Page 0 of the Param goes to all sites of both chips, page 1 to site 3 alone: the siblings of the
 * first chip can share one storage, those of the second cannot. */
static void the_siblings_of_a_chip_share_their_storage_if_they_are_alike(void **state) {
    (void)state;
    struct pb *m = mb_create_chips(2, 2, 1);
    uint32_t param = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 2, 16, 1);
    uint32_t out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 4, 16, 1);
    uint32_t set = pb_siblings(m, 64),
             source = pb_fifo(m, 0, TW_ENGINE_LOAD, TW_ENGINE_STORE, 2, 64);
    uint32_t valid =
        pb_semaphore(m, NULL, TW_SEM_READY, 0, 0); /* a word on every site of both chips */
    pb_chip_group(m, 0, 0, 0, 2, 1);
    pb_chip_group(m, 1, 0, 0, 2, 1);
    pb_chip_group(m, 1, 1, 0, 2, 1);
    mb_fill(m, param);
    multicast_page(m, source, set, param, 0);
    multicast_page(m, source, set, param, 1);
    mb_op(m, 0, S, MCAST_SET, S_(valid), G_(1));
    mb_op(m, 0, S, MCAST_SET, S_(valid), G_(2));
    for (uint32_t s = 0; s < 4; s++) {
        mb_op(m, s, S, SEM_WAIT, S_(valid), A_(tw_affine_plus(mb_at(1), 0, 1)));
        mb_op(m, s, S, WRITE, R_(set + s, mb_at(0)), I_(64), U_(out, mb_at(0), mb_at(s * 64)),
              I_(64), I_(64), X_(TW_NONE, 1));
    }
    mb_freeze(m);
    struct mr_case c = {m, NULL, NULL, 2};
    assert_int_equal(expect_equal(&c).copies, 1 + 2 + 1);
    const uint8_t *got = mb_data(m, out, 0), *pages = mb_data(m, param, 0);
    for (uint32_t s = 0; s < 4; s++) {
        assert_memory_equal(got + s * 64, pages + (s == 3 ? 64 : 0), 64);
    }
    pb_free(m);
}

/* Of four sites those in the middle have a set, at the bytes of another buffer on the first. The
 * multicast goes to both of them, or also to the last, which has nothing to take it. */
static struct pb *set_in_the_middle(bool beyond) {
    struct pb *m = mb_create(4, 1);
    uint32_t param = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 2, 16, 1);
    uint32_t out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 4, 16, 1);
    uint32_t middle = pb_group(m, 1, 0, 3, 1), right = pb_group(m, 1, 0, 4, 1);
    uint32_t set = pb_siblings_of(m, middle, 64), alone = pb_buffer(m, 0, TW_BUF_RESIDENT, 1, 64);
    uint32_t source = pb_fifo(m, 1, TW_ENGINE_LOAD, TW_ENGINE_STORE, 1, 64),
             valid = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    mb_fill(m, param);
    mb_op(m, 0, L, READ, T_(param, mb_at(0), mb_at(0)), W_(alone, mb_at(0)), I_(1), I_(64), I_(64),
          I_(64));
    mb_op(m, 0, L, SEM_INC, S_(valid), C_(0), I_(1));
    mb_op(m, 1, L, RESERVE, F_(source), I_(1));
    mb_op(m, 1, L, READ, T_(param, mb_at(0), mb_at(64)), W_(source, mb_at(0)), I_(1), I_(64),
          I_(64), I_(64));
    mb_op(m, 1, L, PUSH, F_(source), I_(1));
    mb_op(m, 1, S, WAIT, F_(source), I_(1));
    mb_op(m, 1, S, MCAST, R_(source, mb_at(0)), I_(64), D_(set, mb_at(0)), I_(64), I_(64),
          X_(TW_NONE, 1), G_(beyond ? right : middle));
    mb_op(m, 1, S, POP, F_(source), I_(1));
    mb_op(m, 1, S, MCAST_SET, S_(valid), G_(middle));
    for (uint32_t s = 0; s < 3; s++) {
        mb_op(m, s, S, SEM_WAIT, S_(valid), A_(tw_affine_plus(mb_at(1), 0, 1)));
        mb_op(m, s, S, WRITE, R_(s ? set + s - 1 : alone, mb_at(0)), I_(64),
              U_(out, mb_at(0), mb_at(s * 64)), I_(64), I_(64), X_(TW_NONE, 1));
    }
    mb_freeze(m);
    return m;
}

static void a_set_has_members_on_the_sites_of_its_group_only(void **state) {
    (void)state;
    struct pb *m = set_in_the_middle(false);
    struct mr_case c = {m, NULL, NULL, 2};
    assert_int_equal(expect_equal(&c).copies, 1); /* to the storage of both */
    const uint8_t *got = mb_data(m, 1, 0), *pages = mb_data(m, 0, 0);
    for (uint32_t s = 0; s < 3; s++) {
        assert_memory_equal(got + s * 64, pages + (s ? 64 : 0), 64);
    }
    pb_free(m);
}

static void a_multicast_beyond_its_set_faults(void **state) {
    (void)state;
    struct pb *m = set_in_the_middle(true);
    struct mr_case c = {m, NULL, NULL, 1};
    struct mr_result r = mr_strict(&c, TW_SCHED_CANONICAL, 0);
    struct tw_plan *plan;
    struct tw_fault f;
    void *memory;
    assert_int_equal(r.rc, TW_E_FAULT);
    assert_string_equal(r.fault.what, "Role");
    assert_int_equal(mb_plan(m, 1, &memory, &plan, &f), TW_E_FAULT);
    assert_string_equal(f.what, "Role");
    free(memory);
    free(r.bytes);
    pb_free(m);
}

/* A device takes programs from anybody: members that the base does not have, or not all of those
 * that the group has. */
static void a_set_that_is_not_whole_is_refused(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        struct pb *m = set_in_the_middle(false);
        struct tw_plan *plan;
        struct tw_fault f;
        void *memory;
        m->buffers[1].sibling_base = i == 0 ? TW_NONE : i == 1 ? 1 : 0;
        m->buffers[0].group = i == 2 ? 2 : i == 3 ? 0 : i == 4 ? 99 : 1;
        m->buffers[1].group = m->buffers[0].group;
        assert_int_equal(mb_plan(m, 1, &memory, &plan, &f), TW_E_FAULT);
        assert_string_equal(f.what, "BadTable");
        free(memory);
        pb_free(m);
    }
}

/* ---- in-place reads, one hazard each ---- */

/* One site: pages of 64 bytes, a Param of 4 x 16 floats, a State and an Output of 16 floats. */
struct small {
    struct pb *m;
    uint32_t input, param, memory, out, in, pass, result;
    uint32_t read, written; /* semaphores */
};

static struct small small_create(uint32_t width) {
    struct small t = {.m = mb_create(width, 1)};
    t.input = mb_tensor(t.m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 16, 1);
    t.param = mb_tensor(t.m, TW_ROLE_PARAM, TW_INIT_BLOB, 4, 16, 1);
    t.memory = mb_tensor(t.m, TW_ROLE_STATE, TW_INIT_ZERO, 2, 16, 1);
    t.out = mb_tensor(t.m, TW_ROLE_OUTPUT, TW_INIT_NONE, 4, 16, 1);
    t.in = pb_fifo(t.m, 0, TW_ENGINE_LOAD, TW_ENGINE_MATH, 2, 64);
    t.pass = pb_fifo(t.m, 0, TW_ENGINE_LOAD, TW_ENGINE_STORE, 1, 64);
    t.result = pb_fifo(t.m, 0, TW_ENGINE_MATH, TW_ENGINE_STORE, 2, 128);
    mb_fill(t.m, t.input);
    mb_fill(t.m, t.param);
    mb_fill(t.m, t.memory);
    t.read = pb_semaphore(t.m, NULL, TW_SEM_READY, 0, 0);
    t.written = pb_semaphore(t.m, NULL, TW_SEM_READY, 0, 0);
    return t;
}

static struct tw_affine once(void) {
    return tw_affine_plus(mb_at(1), 0, 1);
}

static void load_page(struct pb *m, uint32_t tensor, uint64_t at, uint32_t fifo) {
    mb_op(m, 0, L, RESERVE, F_(fifo), I_(1));
    mb_op(m, 0, L, READ, T_(tensor, mb_at(0), mb_at(at)), W_(fifo, mb_at(0)), I_(1), I_(64), I_(64),
          I_(64));
    mb_op(m, 0, L, PUSH, F_(fifo), I_(1));
}

static void math_to_result(struct pb *m, struct tw_operand from, uint32_t bytes, uint32_t result) {
    mb_op(m, 0, M, RESERVE, F_(result), I_(1));
    mb_op(m, 0, M, COPY, from, I_(bytes), W_(result, mb_at(0)), I_(bytes), I_(bytes),
          X_(TW_NONE, 1));
    mb_op(m, 0, M, PUSH, F_(result), I_(1));
}

static void store_page(struct pb *m, uint32_t fifo, uint32_t tensor, uint64_t at, uint32_t bytes) {
    mb_op(m, 0, S, WAIT, F_(fifo), I_(1));
    mb_op(m, 0, S, WRITE, R_(fifo, mb_at(0)), I_(bytes), U_(tensor, mb_at(0), mb_at(at)), I_(bytes),
          I_(bytes), X_(TW_NONE, 1));
    mb_op(m, 0, S, POP, F_(fifo), I_(1));
}

/* The page is read, then the memory is overwritten at `at`, then the page is used: it must hold the
 * old bytes. */
static struct tw_plan_stats old_state_in_page(uint64_t at) {
    struct small t = small_create(1);
    load_page(t.m, t.memory, 0, t.in);
    load_page(t.m, t.input, 0, t.pass);
    mb_op(t.m, 0, L, SEM_INC, S_(t.read), C_(0), I_(1));
    mb_op(t.m, 0, S, SEM_WAIT, S_(t.read), A_(once()));
    store_page(t.m, t.pass, t.memory, at, 64);
    mb_op(t.m, 0, S, SEM_INC, S_(t.written), C_(0), I_(1));
    mb_op(t.m, 0, M, SEM_WAIT, S_(t.written), A_(once()));
    mb_op(t.m, 0, M, WAIT, F_(t.in), I_(1));
    math_to_result(t.m, R_(t.in, mb_at(0)), 64, t.result);
    mb_op(t.m, 0, M, POP, F_(t.in), I_(1));
    store_page(t.m, t.result, t.out, 0, 64);
    mb_freeze(t.m);
    struct mr_case c = {t.m, NULL, NULL, 1};
    struct tw_plan_stats stats = expect_equal(&c);
    uint32_t first = t.m->tensors[t.memory].bind_first;
    size_t before = (size_t)(t.m->bind[first] - (uint64_t)(uintptr_t)t.m->dram);
    assert_memory_equal(mb_data(t.m, t.out, 0), t.m->initial + before, 64);
    pb_free(t.m);
    return stats;
}

static void a_page_keeps_the_state_from_before_a_later_write(void **state) {
    (void)state;
    assert_int_equal(old_state_in_page(0).in_place_reads, 1);  /* the Input; the State was copied */
    assert_int_equal(old_state_in_page(64).in_place_reads, 2); /* the write was elsewhere */
}

static void a_page_of_two_reads_is_copied(void **state) {
    (void)state;
    struct small t = small_create(1);
    mb_op(t.m, 0, L, RESERVE, F_(t.in), I_(1));
    mb_op(t.m, 0, L, READ, T_(t.param, mb_at(0), mb_at(64)), W_(t.in, mb_at(0)), I_(1), I_(32),
          I_(32), I_(32));
    mb_op(t.m, 0, L, READ, T_(t.param, mb_at(0), mb_at(192)), W_(t.in, mb_at(32)), I_(1), I_(32),
          I_(32), I_(32));
    mb_op(t.m, 0, L, PUSH, F_(t.in), I_(1));
    mb_op(t.m, 0, M, WAIT, F_(t.in), I_(1));
    math_to_result(t.m, R_(t.in, mb_at(0)), 64, t.result);
    mb_op(t.m, 0, M, POP, F_(t.in), I_(1));
    store_page(t.m, t.result, t.out, 0, 64);
    mb_freeze(t.m);
    struct mr_case c = {t.m, NULL, NULL, 2};
    struct tw_plan_stats stats = expect_equal(&c);
    assert_int_equal(stats.in_place_reads, 0);
    assert_int_equal(stats.copies, 2);
    pb_free(t.m);
}

static void a_page_that_is_changed_in_place_is_copied(void **state) {
    (void)state;
    struct small t = small_create(1);
    uint32_t cs = pb_buffer(t.m, 0, TW_BUF_RESIDENT, 1, 64),
             freq = pb_buffer(t.m, 0, TW_BUF_RESIDENT, 1, 64);
    mb_op(t.m, 0, L, READ, T_(t.param, mb_at(0), mb_at(64)), W_(freq, mb_at(0)), I_(1), I_(32),
          I_(32), I_(32));
    load_page(t.m, t.param, 0, t.in);
    mb_op(t.m, 0, M, WAIT, F_(t.in), I_(1));
    mb_op(t.m, 0, M, ROPE_TABLE, R_(freq, mb_at(0)), W_(cs, mb_at(0)), I_(64), I_(8),
          X_(TW_NONE, 3), X_(TW_NONE, 1));
    mb_op(t.m, 0, M, ROPE, M_(t.in, mb_at(0)), I_(64), R_(cs, mb_at(0)), I_(64), I_(1), I_(16),
          I_(16), I_(1), X_(TW_NONE, 1));
    math_to_result(t.m, R_(t.in, mb_at(0)), 64, t.result);
    mb_op(t.m, 0, M, POP, F_(t.in), I_(1));
    store_page(t.m, t.result, t.out, 0, 64);
    mb_freeze(t.m);
    struct mr_case c = {t.m, NULL, NULL, 1};
    struct tw_plan_stats stats = expect_equal(&c);
    assert_int_equal(stats.in_place_reads, 1); /* the frequencies */
    assert_int_equal(stats.copies, 1);
    assert_memory_equal(mb_data(t.m, t.param, 0),
                        t.m->initial + (t.m->bind[1] - (uint64_t)(uintptr_t)t.m->dram), 64);
    pb_free(t.m);
}

static void two_pages_of_one_read_stay_one_piece(void **state) {
    (void)state;
    struct small t = small_create(1);
    mb_op(t.m, 0, L, RESERVE, F_(t.in), I_(2));
    mb_op(t.m, 0, L, READ, T_(t.param, mb_at(0), mb_at(0)), W_(t.in, mb_at(0)), I_(2), I_(64),
          I_(64), I_(64));
    mb_op(t.m, 0, L, PUSH, F_(t.in), I_(2));
    mb_op(t.m, 0, M, WAIT, F_(t.in), I_(2));
    math_to_result(t.m, R_(t.in, mb_at(0)), 128, t.result);
    mb_op(t.m, 0, M, POP, F_(t.in), I_(2));
    store_page(t.m, t.result, t.out, 0, 128);
    mb_freeze(t.m);
    struct mr_case c = {t.m, NULL, NULL, 1};
    assert_int_equal(expect_equal(&c).in_place_reads, 1);
    pb_free(t.m);
}

static void two_pages_of_two_reads_are_copied_when_read_as_one(void **state) {
    (void)state;
    struct small t = small_create(1);
    load_page(t.m, t.param, 128, t.in);
    load_page(t.m, t.param, 0, t.in);
    mb_op(t.m, 0, M, WAIT, F_(t.in), I_(2));
    math_to_result(t.m, R_(t.in, mb_at(0)), 128, t.result);
    mb_op(t.m, 0, M, POP, F_(t.in), I_(2));
    store_page(t.m, t.result, t.out, 0, 128);
    mb_freeze(t.m);
    struct mr_case c = {t.m, NULL, NULL, 1};
    assert_int_equal(expect_equal(&c).in_place_reads, 0);
    pb_free(t.m);
}

static void rows_with_equal_gaps_are_read_in_place_and_others_are_not(void **state) {
    (void)state;
    for (uint32_t stride = 16; stride <= 32; stride += 16) {
        struct small t = small_create(1);
        mb_op(t.m, 0, L, RESERVE, F_(t.in), I_(1));
        mb_op(t.m, 0, L, READ, T_(t.param, mb_at(0), mb_at(0)), W_(t.in, mb_at(0)), I_(2), I_(16),
              I_(32), I_(stride));
        mb_op(t.m, 0, L, PUSH, F_(t.in), I_(1));
        mb_op(t.m, 0, M, WAIT, F_(t.in), I_(1));
        math_to_result(t.m, R_(t.in, mb_at(stride)), 16, t.result);
        mb_op(t.m, 0, M, POP, F_(t.in), I_(1));
        store_page(t.m, t.result, t.out, 0, 16);
        mb_freeze(t.m);
        struct mr_case c = {t.m, NULL, NULL, 1};
        assert_int_equal(expect_equal(&c).in_place_reads, stride == 32 ? 1 : 0);
        pb_free(t.m);
    }
}

/* ---- dynamic loops ---- */

struct nested {
    struct small t;
    uint32_t outer_in, inner_in, outer, inner;
};

static void nested_input(void *ctx, uint32_t step) {
    static const int32_t outer[] = {3, 0, 2, 1}, inner[] = {4, 2, 0, 1};
    struct nested *n = ctx;
    mb_set_i32(n->t.m, n->outer_in, 0, outer[step]);
    mb_set_i32(n->t.m, n->inner_in, 0, inner[step]);
}

/* sum over i < outer, j < inner, c < 2 of table[i][j][c], each a page */
static void nested_dynamic_loops_step_their_addresses(void **state) {
    (void)state;
    struct nested n = {.t = small_create(1)};
    struct pb *m = n.t.m;
    n.outer_in = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 1, 1);
    n.inner_in = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 1, 1);
    n.outer = pb_trip(m, NULL, n.outer_in, 0, 1, 3);
    n.inner = pb_trip(m, NULL, n.inner_in, 0, 1, 4);
    uint32_t table = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 24, 16, 1),
             sum = pb_buffer(m, 0, TW_BUF_SCRATCH, 1, 64);
    mb_fill(m, table);
    struct tw_affine at =
        tw_affine_plus(tw_affine_plus(tw_affine_plus(mb_at(0), 1, 8 * 64), 2, 2 * 64), 3, 64);
    mb_dynamic(m, 0, L, 1, n.outer, 1);
    mb_dynamic(m, 0, L, 2, n.inner, 2);
    mb_loop(m, 0, L, 3, 2);
    mb_op(m, 0, L, RESERVE, F_(n.t.in), I_(1));
    mb_op(m, 0, L, READ, T_(table, mb_at(0), at), W_(n.t.in, mb_at(0)), I_(1), I_(64), I_(64),
          I_(64));
    mb_op(m, 0, L, PUSH, F_(n.t.in), I_(1));
    for (int i = 0; i < 3; i++) {
        mb_end(m, 0, TW_ENGINE_LOAD);
    }
    /* -inf, 0, 0 ... */
    mb_op(m, 0, M, ATTN_INIT, W_(sum, mb_at(0)), I_(1), I_(14), X_(TW_NONE, 1));
    mb_op(m, 0, M, COPY, R_(sum, mb_at(4)), I_(4), W_(sum, mb_at(0)), I_(4), I_(4), X_(TW_NONE, 1));
    mb_dynamic(m, 0, M, 4, n.outer, 1);
    mb_dynamic(m, 0, M, 5, n.inner, 2);
    mb_loop(m, 0, M, 6, 2);
    mb_op(m, 0, M, WAIT, F_(n.t.in), I_(1));
    mb_op(m, 0, M, ADD, R_(sum, mb_at(0)), I_(64), R_(n.t.in, mb_at(0)), I_(64), W_(sum, mb_at(0)),
          I_(64), I_(16), X_(TW_NONE, 1));
    mb_op(m, 0, M, POP, F_(n.t.in), I_(1));
    for (int i = 0; i < 3; i++) {
        mb_end(m, 0, TW_ENGINE_MATH);
    }
    math_to_result(m, R_(sum, mb_at(0)), 64, n.t.result);
    store_page(m, n.t.result, n.t.out, 0, 64);
    mb_freeze(m);
    struct mr_case c = {m, nested_input, &n, 4};
    assert_int_equal(expect_equal(&c).in_place_reads, 2);
    pb_free(m);
}

/* ---- refusals ---- */

static void expect_refusal(struct small *t, const char *what) {
    struct tw_plan *plan = NULL;
    struct tw_fault f;
    void *memory;
    mb_freeze(t->m);
    assert_int_equal(mb_plan(t->m, 1, &memory, &plan, &f), TW_E_FAULT);
    assert_string_equal(f.what, what);
    free(memory);
    pb_free(t->m);
}

static void thresholds_that_do_not_follow_the_epoch_are_refused(void **state) {
    (void)state;
    struct small t = small_create(1);
    mb_op(t.m, 0, L, SEM_INC, S_(t.read), C_(0), I_(1));
    /* satisfied for ever after the first step */
    mb_op(t.m, 0, M, SEM_WAIT, S_(t.read), A_(mb_at(1)));
    expect_refusal(&t, "EpochStep");
}

static void a_deadlock_is_refused_with_the_waiter(void **state) {
    (void)state;
    struct small t = small_create(1);
    load_page(t.m, t.param, 0, t.in);
    mb_op(t.m, 0, M, WAIT, F_(t.in), I_(2));
    mb_freeze(t.m);
    struct tw_plan *plan = NULL;
    struct tw_fault f;
    void *memory;
    assert_int_equal(mb_plan(t.m, 1, &memory, &plan, &f), TW_E_FAULT);
    assert_string_equal(f.what, "Deadlock");
    assert_int_equal(f.engine, TW_ENGINE_MATH);
    assert_int_equal(f.object, t.in);
    assert_int_equal(f.have, 1);
    assert_int_equal(f.need, 2);
    free(memory);
    pb_free(t.m);
}

static void synchronisation_inside_a_dynamic_loop_is_refused(void **state) {
    (void)state;
    struct small t = small_create(1);
    uint32_t trip = pb_trip(t.m, NULL, t.input, 0, 1, 4);
    mb_dynamic(t.m, 0, L, 1, trip, 1);
    mb_op(t.m, 0, L, SEM_INC, S_(t.read), C_(0), I_(1));
    mb_end(t.m, 0, TW_ENGINE_LOAD);
    expect_refusal(&t, "SyncInDynamicLoop");
}

static void pages_carried_from_iteration_to_iteration_are_refused(void **state) {
    (void)state;
    struct small t = small_create(1);
    uint32_t trip = pb_trip(t.m, NULL, t.input, 0, 1, 4);
    load_page(t.m, t.param, 0, t.in);
    mb_dynamic(t.m, 0, L, 1, trip, 1);
    load_page(t.m, t.param, 0, t.in);
    mb_end(t.m, 0, TW_ENGINE_LOAD);
    mb_dynamic(t.m, 0, M, 1, trip, 1);
    mb_op(t.m, 0, M, WAIT, F_(t.in), I_(1));
    mb_op(t.m, 0, M, POP, F_(t.in), I_(1));
    mb_end(t.m, 0, TW_ENGINE_MATH);
    mb_op(t.m, 0, M, WAIT, F_(t.in), I_(1));
    mb_op(t.m, 0, M, POP, F_(t.in), I_(1));
    expect_refusal(&t, "PagesInDynamicLoop");
}

static void addresses_that_depend_on_the_epoch_are_refused(void **state) {
    (void)state;
    struct small t = small_create(1);
    mb_op(t.m, 0, L, RESERVE, F_(t.in), I_(1));
    mb_op(t.m, 0, L, READ, T_(t.param, mb_at(0), tw_affine_plus(mb_at(0), 0, 64)),
          W_(t.in, mb_at(0)), I_(1), I_(64), I_(64), I_(64));
    expect_refusal(&t, "EpochInAddress");
}

static void a_dynamic_address_out_of_range_in_its_last_iteration_is_refused(void **state) {
    (void)state;
    struct small t = small_create(1);
    uint32_t trip = pb_trip(t.m, NULL, t.input, 0, 1, 5); /* the Param has 4 pages */
    mb_dynamic(t.m, 0, L, 1, trip, 1);
    mb_op(t.m, 0, L, RESERVE, F_(t.in), I_(1));
    mb_op(t.m, 0, L, READ, T_(t.param, mb_at(0), tw_affine_plus(mb_at(0), 1, 64)),
          W_(t.in, mb_at(0)), I_(1), I_(64), I_(64), I_(64));
    mb_op(t.m, 0, L, PUSH, F_(t.in), I_(1));
    mb_end(t.m, 0, TW_ENGINE_LOAD);
    expect_refusal(&t, "ReadOutOfRange");
}

static void impossible_thread_counts_are_refused(void **state) {
    (void)state;
    struct small t = small_create(1);
    struct tw_plan *plan = NULL;
    struct tw_fault f;
    void *memory;
    mb_freeze(t.m);
    assert_int_equal(mb_plan(t.m, 0, &memory, &plan, &f), TW_E_USAGE);
    assert_int_equal(mb_plan(t.m, 100000, &memory, &plan, &f), TW_E_USAGE);
    pb_free(t.m);
}

static void inputs_out_of_range_refuse_the_step_before_it_begins(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 2, .height = 1});
    struct tw_plan *plan = NULL;
    struct tw_fault f;
    void *memory;
    assert_int_equal(mb_plan(d.m, 1, &memory, &plan, &f), 0);
    td_input(&d, 0, TD_ROWS + 1);
    assert_int_equal(tw_plan_begin(plan, &f), TW_E_FAULT);
    assert_string_equal(f.what, "InputRange");
    td_input(&d, 0, 2);
    mb_set_i32(d.m, d.ids, 1, TD_VOCAB);
    assert_int_equal(tw_plan_begin(plan, &f), TW_E_FAULT);
    assert_string_equal(f.what, "IdOutOfRange");
    assert_int_equal(f.have, TD_VOCAB);
    td_input(&d, TD_CTX - 1, 1);
    mb_set_i32(d.m, d.rows_in, 0, 2);
    assert_int_equal(tw_plan_begin(plan, &f), TW_E_FAULT);
    assert_string_equal(f.what, "WriteOutOfRange");
    td_input(&d, TD_CTX - 2, 2);
    assert_int_equal(tw_plan_begin(plan, &f), 0);
    free(memory);
    pb_free(d.m);
}

/* The table of ops says it of ids, so both machines refuse other than Inputs. */
static void ids_that_are_no_input_are_refused_in_both_modes(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 2, .height = 1});
    struct tw_plan *plan = NULL;
    struct tw_strict *strict = NULL;
    struct tw_fault f;
    void *memory;
    td_input(&d, 0, 2);
    d.m->tensors[d.ids].role = TW_ROLE_STATE;
    assert_int_equal(mb_plan(d.m, 1, &memory, &plan, &f), TW_E_FAULT);
    assert_string_equal(f.what, "Role");
    assert_int_equal(f.object, d.ids);
    free(memory);
    assert_int_equal(mb_strict(d.m, &memory, &strict, &f), 0);
    assert_int_equal(tw_strict_step(strict, TW_SCHED_CANONICAL, 0, &f), TW_E_FAULT);
    assert_string_equal(f.what, "Role");
    assert_int_equal(f.object, d.ids);
    free(memory);
    pb_free(d.m);
}

/* What was checked is what is used: the host may write to its Inputs at any time. */
static void inputs_that_change_after_the_check_are_not_read_again(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 2, .height = 1});
    struct tw_plan *plan = NULL;
    struct tw_fault f;
    void *memory;
    assert_int_equal(mb_plan(d.m, 1, &memory, &plan, &f), 0);
    td_input(&d, 0, 2);
    assert_int_equal(tw_plan_begin(plan, &f), 0);
    tw_plan_run(plan, 0, NULL, NULL);
    const float *out = mb_data(d.m, d.out, 0);
    float expected[2 * TD_ROWS];
    memcpy(expected, out, sizeof expected);
    td_input(&d, 0, 2);
    assert_int_equal(tw_plan_begin(plan, &f), 0);
    mb_set_i32(d.m, d.ids, 0, TD_VOCAB + 1000000);
    mb_set_i32(d.m, d.ids, 1, -1);
    mb_set_i32(d.m, d.rows_in, 0, TD_ROWS + 7);
    tw_plan_run(plan, 0, NULL, NULL);
    assert_memory_equal(out, expected, sizeof expected);
    free(memory);
    pb_free(d.m);
}

/* ---- memory and text ---- */

static void too_little_memory_for_a_plan_is_reported_with_the_size_needed(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 2, .height = 2});
    for (uint32_t threads = 1; threads <= 5; threads += 2) {
        struct tw_arena arena = {NULL, 0, 0};
        struct tw_plan *plan = NULL;
        struct tw_fault f;
        assert_int_equal(tw_plan_build(&d.m->config, threads, &arena, &plan, &f), TW_E_NOMEM);
        size_t need = arena.used;
        assert_true(need > 10000);
        uint8_t *bytes = malloc(need + 1); /* an odd address, exactly the size */
        arena = (struct tw_arena){bytes + 1, need - 1, 0};
        assert_int_equal(tw_plan_build(&d.m->config, threads, &arena, &plan, &f), TW_E_NOMEM);
        assert_int_equal(arena.used, need);
        arena = (struct tw_arena){bytes + 1, need, 0};
        assert_int_equal(tw_plan_build(&d.m->config, threads, &arena, &plan, &f), 0);
        assert_true(arena.used < need); /* the builder's own memory is given back */
        free(bytes);
    }
    pb_free(d.m);
}

static void a_plan_describes_each_of_its_entries(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 1, .height = 1});
    struct tw_plan *plan = NULL;
    struct tw_plan_stats stats;
    struct tw_fault f;
    void *memory;
    char line[400], tiny[8];
    uint32_t at = 0, lines = 0, loops = 0;
    assert_int_equal(mb_plan(d.m, 1, &memory, &plan, &f), 0);
    stats = plan_stats(plan);
    do {
        uint32_t next = plan_describe(plan, 0, at, line, sizeof line);
        assert_int_equal((uint32_t)strtoul(line, NULL, 10), lines);
        loops += strstr(line, " loop times trip2 ") ? 1u : 0u;
        assert_int_equal(plan_describe(plan, 0, at, tiny, sizeof tiny), next);
        assert_true(strlen(tiny) < sizeof tiny);
        at = next;
        lines++;
    } while (at != 0);
    assert_int_equal(loops, TD_LAYERS);
    assert_int_equal(lines, stats.calls + 2 * TD_LAYERS);
    assert_int_equal(plan_describe(plan, 1, 0, line, sizeof line), 0);
    assert_int_equal(strlen(line), 0);
    free(memory);
    pb_free(d.m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_decoder_replays_to_the_same_bytes),
        cmocka_unit_test(weights_norms_and_caches_are_read_in_place),
        cmocka_unit_test(siblings_that_may_differ_get_a_copy_each),
        cmocka_unit_test(unaligned_tensors_are_copied),
        cmocka_unit_test(a_multicast_to_some_leaves_the_others_alone),
        cmocka_unit_test(the_siblings_of_a_chip_share_their_storage_if_they_are_alike),
        cmocka_unit_test(a_set_has_members_on_the_sites_of_its_group_only),
        cmocka_unit_test(a_multicast_beyond_its_set_faults),
        cmocka_unit_test(a_set_that_is_not_whole_is_refused),
        cmocka_unit_test(a_page_keeps_the_state_from_before_a_later_write),
        cmocka_unit_test(a_page_of_two_reads_is_copied),
        cmocka_unit_test(a_page_that_is_changed_in_place_is_copied),
        cmocka_unit_test(two_pages_of_one_read_stay_one_piece),
        cmocka_unit_test(two_pages_of_two_reads_are_copied_when_read_as_one),
        cmocka_unit_test(rows_with_equal_gaps_are_read_in_place_and_others_are_not),
        cmocka_unit_test(nested_dynamic_loops_step_their_addresses),
        cmocka_unit_test(thresholds_that_do_not_follow_the_epoch_are_refused),
        cmocka_unit_test(a_deadlock_is_refused_with_the_waiter),
        cmocka_unit_test(synchronisation_inside_a_dynamic_loop_is_refused),
        cmocka_unit_test(pages_carried_from_iteration_to_iteration_are_refused),
        cmocka_unit_test(addresses_that_depend_on_the_epoch_are_refused),
        cmocka_unit_test(a_dynamic_address_out_of_range_in_its_last_iteration_is_refused),
        cmocka_unit_test(impossible_thread_counts_are_refused),
        cmocka_unit_test(inputs_out_of_range_refuse_the_step_before_it_begins),
        cmocka_unit_test(ids_that_are_no_input_are_refused_in_both_modes),
        cmocka_unit_test(inputs_that_change_after_the_check_are_not_read_again),
        cmocka_unit_test(too_little_memory_for_a_plan_is_reported_with_the_size_needed),
        cmocka_unit_test(a_plan_describes_each_of_its_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
