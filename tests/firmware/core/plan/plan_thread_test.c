/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans on real threads: the bytes do not depend on how many there are, and waits are few. Also run
 * under the thread sanitizer.
 */
#include "firmware/core/plan/plan.h"
#include "tests/support/machine_run.h"
#include "tests/support/test.h"
#include "tests/support/tiny_decoder.h"

static void decoder_input(void *ctx, uint32_t step) {
    uint32_t pos = step * 5 % (TD_CTX - TD_ROWS);
    td_input(ctx, pos, step % TD_ROWS + 1);
}

static void expect_equal_on_threads(struct td_options options, uint32_t steps) {
    static const uint32_t threads[] = {1, 2, 3, 5};
    struct td d = td_create(options);
    struct mr_case c = {d.m, decoder_input, &d, steps};
    struct mr_result strict = mr_strict(&c, TW_SCHED_CANONICAL, 0);
    assert_int_equal(strict.rc, 0);
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        struct tw_plan_stats stats;
        struct mr_result fast = mr_fast(&c, threads[i], &stats);
        assert_int_equal(fast.rc, 0);
        assert_memory_equal(fast.bytes, strict.bytes, strict.size);
        assert_true((threads[i] == 1 || d.m->p.n_sites == 1) == (stats.waits == 0));
        assert_true(stats.posts <= stats.waits);
        free(fast.bytes);
    }
    free(strict.bytes);
    pb_free(d.m);
}

static void two_sites_give_the_same_bytes_on_any_number_of_threads(void **state) {
    (void)state;
    expect_equal_on_threads((struct td_options){.width = 2, .height = 1}, 12);
}

static void four_sites_give_the_same_bytes_on_any_number_of_threads(void **state) {
    (void)state;
    expect_equal_on_threads((struct td_options){.width = 2, .height = 2}, 8);
}

static void nine_sites_give_the_same_bytes_on_any_number_of_threads(void **state) {
    (void)state;
    expect_equal_on_threads((struct td_options){.width = 3, .height = 3}, 3);
}

static void separate_siblings_give_the_same_bytes_on_any_number_of_threads(void **state) {
    (void)state;
    expect_equal_on_threads((struct td_options){.width = 2, .height = 2, .unshared = true}, 6);
}

static void copied_tensors_give_the_same_bytes_on_any_number_of_threads(void **state) {
    (void)state;
    expect_equal_on_threads((struct td_options){.width = 2, .height = 1, .misalign = 4}, 6);
}

/* Progress counts wrap between steps and in the middle of one, and pass 2^31. */
static void progress_may_start_just_below_its_wrap(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 2, .height = 2});
    struct mr_case c = {d.m, decoder_input, &d, 5};
    struct mr_result strict = mr_strict(&c, TW_SCHED_CANONICAL, 0);
    for (uint32_t n = 1; n <= 4; n++) {
        void *memory;
        struct tw_plan *plan = NULL;
        assert_int_equal(mb_plan(d.m, n, &memory, &plan, NULL), 0);
        uint64_t stride = plan->stride, inside = (UINT64_C(1) << 32) / stride;
        const uint32_t first[] = {UINT32_MAX - 1, (uint32_t)inside - 2, (uint32_t)(inside * 7) - 1,
                                  (uint32_t)((UINT64_C(1) << 31) / stride) - 1};
        free(memory);
        for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
            d.m->config.first_epoch = first[i];
            struct mr_result fast = mr_fast(&c, n, NULL);
            assert_int_equal(fast.rc, 0);
            assert_memory_equal(fast.bytes, strict.bytes, strict.size);
            free(fast.bytes);
        }
        d.m->config.first_epoch = 0;
    }
    free(strict.bytes);
    pb_free(d.m);
}

static void each_rendezvous_and_gather_costs_one_wait_per_thread(void **state) {
    (void)state;
    struct td d = td_create((struct td_options){.width = 2, .height = 1});
    struct mr_case c = {d.m, decoder_input, &d, 1};
    struct tw_plan_stats stats;
    struct mr_result fast = mr_fast(&c, 2, &stats);
    assert_int_equal(fast.rc, 0);
    /* Two gathers and the rendezvous, on each of two threads; all else is implied. */
    assert_true(stats.waits <= (uint64_t)TD_LAYERS * 3 * 2);
    assert_true(stats.waits >= (uint64_t)TD_LAYERS * 2 * 2);
    /* heads of other threads do not disturb the caches */
    assert_int_equal(stats.in_place_reads, 2 * TD_LAYERS * 7);
    free(fast.bytes);
    pb_free(d.m);
}

/* Site 0 signals sites 1 and 2; site 1 waits for that, then signals site 2: so for site 2 the
 * signal of site 1 implies that of site 0. */
static void a_wait_that_another_implies_is_dropped(void **state) {
    (void)state;
    struct pb *m = mb_create(3, 1);
    uint32_t first = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0),
             both = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    struct tw_affine once = tw_affine_plus(mb_at(1), 0, 1);
    for (uint32_t s = 0; s < 3; s++) {
        uint32_t work = pb_buffer(m, s, TW_BUF_SCRATCH, 1, 64);
        if (s == 1) {
            mb_op(m, s, M, SEM_WAIT, S_(first), A_(once));
        } else if (s == 2) {
            mb_op(m, s, M, SEM_WAIT, S_(both), A_(tw_affine_plus(mb_at(2), 0, 2)));
        }
        mb_op(m, s, M, ATTN_INIT, W_(work, mb_at(0)), I_(1), I_(14), X_(TW_NONE, 1));
    }
    mb_op(m, 0, M, SEM_INC, S_(first), C_(1), I_(1));
    mb_op(m, 0, M, SEM_INC, S_(both), C_(2), I_(1));
    mb_op(m, 1, M, SEM_INC, S_(both), C_(2), I_(1));
    mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 1, 1, 1);
    mb_freeze(m);
    struct mr_case c = {m, NULL, NULL, 2};
    struct tw_plan_stats stats;
    struct mr_result fast = mr_fast(&c, 3, &stats);
    assert_int_equal(fast.rc, 0);
    assert_int_equal(stats.waits, 2);
    assert_int_equal(stats.posts, 2);
    free(fast.bytes);
    pb_free(m);
}

/* Site 0 reads State into a page and signals site 1, which overwrites the State on another thread;
 * site 1 does not wait until the page has been used, so only a copy is safe. */
static void a_page_in_use_is_safe_from_writers_on_other_threads(void **state) {
    (void)state;
    struct pb *m = mb_create(2, 1);
    uint32_t fresh = mb_tensor(m, TW_ROLE_INPUT, TW_INIT_NONE, 1, 16, 1),
             memory = mb_tensor(m, TW_ROLE_STATE, TW_INIT_ZERO, 1, 16, 1);
    uint32_t out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 1, 16, 1),
             read = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    uint32_t in = pb_fifo(m, 0, TW_ENGINE_LOAD, TW_ENGINE_MATH, 1, 64),
             result = pb_fifo(m, 0, TW_ENGINE_MATH, TW_ENGINE_STORE, 1, 64);
    uint32_t pass = pb_fifo(m, 1, TW_ENGINE_LOAD, TW_ENGINE_STORE, 1, 64);
    struct tw_affine once = tw_affine_plus(mb_at(1), 0, 1);
    mb_fill(m, fresh);
    mb_fill(m, memory);
    mb_op(m, 0, L, RESERVE, F_(in), I_(1));
    mb_op(m, 0, L, READ, T_(memory, mb_at(0), mb_at(0)), W_(in, mb_at(0)), I_(1), I_(64), I_(64),
          I_(64));
    mb_op(m, 0, L, PUSH, F_(in), I_(1));
    mb_op(m, 0, L, SEM_INC, S_(read), C_(1), I_(1));
    mb_op(m, 0, M, WAIT, F_(in), I_(1));
    mb_op(m, 0, M, RESERVE, F_(result), I_(1));
    mb_op(m, 0, M, COPY, R_(in, mb_at(0)), I_(64), W_(result, mb_at(0)), I_(64), I_(64),
          X_(TW_NONE, 1));
    mb_op(m, 0, M, PUSH, F_(result), I_(1));
    mb_op(m, 0, M, POP, F_(in), I_(1));
    mb_op(m, 0, S, WAIT, F_(result), I_(1));
    mb_op(m, 0, S, WRITE, R_(result, mb_at(0)), I_(64), U_(out, mb_at(0), mb_at(0)), I_(64), I_(64),
          X_(TW_NONE, 1));
    mb_op(m, 0, S, POP, F_(result), I_(1));
    mb_op(m, 1, L, RESERVE, F_(pass), I_(1));
    mb_op(m, 1, L, READ, T_(fresh, mb_at(0), mb_at(0)), W_(pass, mb_at(0)), I_(1), I_(64), I_(64),
          I_(64));
    mb_op(m, 1, L, PUSH, F_(pass), I_(1));
    mb_op(m, 1, S, SEM_WAIT, S_(read), A_(once));
    mb_op(m, 1, S, WAIT, F_(pass), I_(1));
    mb_op(m, 1, S, WRITE, R_(pass, mb_at(0)), I_(64), U_(memory, mb_at(0), mb_at(0)), I_(64),
          I_(64), X_(TW_NONE, 1));
    mb_op(m, 1, S, POP, F_(pass), I_(1));
    mb_freeze(m);
    struct mr_case c = {m, NULL, NULL, 2};
    struct mr_result strict = mr_strict(&c, TW_SCHED_RANDOM, 5);
    assert_int_equal(strict.rc, 0);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        struct tw_plan_stats stats;
        struct mr_result fast = mr_fast(&c, threads, &stats);
        assert_int_equal(fast.rc, 0);
        assert_memory_equal(fast.bytes, strict.bytes, strict.size);
        assert_int_equal(stats.in_place_reads,
                         /* on one thread the order of the plan protects the page */
                         threads == 1 ? 2 : 1);
        free(fast.bytes);
    }
    free(strict.bytes);
    pb_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_sites_give_the_same_bytes_on_any_number_of_threads),
        cmocka_unit_test(four_sites_give_the_same_bytes_on_any_number_of_threads),
        cmocka_unit_test(nine_sites_give_the_same_bytes_on_any_number_of_threads),
        cmocka_unit_test(separate_siblings_give_the_same_bytes_on_any_number_of_threads),
        cmocka_unit_test(copied_tensors_give_the_same_bytes_on_any_number_of_threads),
        cmocka_unit_test(progress_may_start_just_below_its_wrap),
        cmocka_unit_test(each_rendezvous_and_gather_costs_one_wait_per_thread),
        cmocka_unit_test(a_wait_that_another_implies_is_dropped),
        cmocka_unit_test(a_page_in_use_is_safe_from_writers_on_other_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
