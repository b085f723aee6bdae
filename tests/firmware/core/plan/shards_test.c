/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing across shards: every site lists the largest of its columns, sends the list to one site,
 * and that site merges them, in any order. The result is the list of the whole row, strictly under
 * every scheduler and fast with any number of threads.
 */
#include "tests/support/kernel_fixture.h"
#include "tests/support/machine_run.h"
#include "tests/support/test.h"
#include "tilewright/numerics.h"

enum { MAX_OWNERS = 16, MAX_K = 12, MAX_COLS = 400, SCHEDULES = 60 };

struct shards {
    struct pb *m;
    uint32_t param, out, slots, flag, cols, k, owners;
    uint32_t at[MAX_OWNERS + 1];
};

#define ONE X_(TW_NONE, 1)

/* Site s lists columns [at[s], at[s + 1]) and sends the list to slot s of site 0. */
static void add_owner(struct shards *x, uint32_t s, bool flag) {
    struct pb *m = x->m;
    uint32_t n = x->at[s + 1] - x->at[s], bytes = x->k * 8,
             in = pb_fifo(m, s, TW_ENGINE_LOAD, TW_ENGINE_MATH, 1, n * 4),
             list = pb_fifo(m, s, TW_ENGINE_MATH, TW_ENGINE_STORE, 1, bytes);
    mb_op(m, s, L, RESERVE, F_(in), I_(1));
    mb_op(m, s, L, READ, T_(x->param, mb_at(0), mb_at(x->at[s] * 4)), W_(in, mb_at(0)), I_(1),
          I_(n * 4), I_(n * 4), I_(n * 4));
    mb_op(m, s, L, PUSH, F_(in), I_(1));
    mb_op(m, s, M, WAIT, F_(in), I_(1));
    mb_op(m, s, M, RESERVE, F_(list), I_(1));
    mb_op(m, s, M, TOPK, R_(in, mb_at(0)), I_(n * 4), W_(list, mb_at(0)), I_(bytes), I_(n),
          I_(x->k), A_(mb_at(x->at[s])), ONE);
    mb_op(m, s, M, PUSH, F_(list), I_(1));
    mb_op(m, s, M, POP, F_(in), I_(1));
    mb_op(m, s, S, WAIT, F_(list), I_(1));
    if (s == 0) {
        mb_op(m, s, S, COPY, R_(list, mb_at(0)), I_(bytes), W_(x->slots, mb_at(0)), I_(bytes),
              I_(bytes), ONE);
    } else {
        mb_op(m, s, S, SEND, R_(list, mb_at(0)), I_(bytes), D_(x->slots, mb_at(s * bytes)),
              I_(bytes), I_(bytes), ONE);
    }
    mb_op(m, s, S, POP, F_(list), I_(1));
    if (flag) {
        mb_op(m, s, S, SEM_INC, S_(x->flag), C_(0), I_(1));
    }
}

/* Site 0 merges the slots, two at a time in a random order, in place. */
static void add_merges(struct shards *x, struct fixture_random *r, uint32_t flags) {
    struct pb *m = x->m;
    uint32_t bytes = x->k * 8, slot[MAX_OWNERS], left = x->owners,
             out = pb_fifo(m, 0, TW_ENGINE_MATH, TW_ENGINE_STORE, 1, bytes);
    mb_op(m, 0, M, SEM_WAIT, S_(x->flag), A_(tw_affine_plus(mb_at(flags), 0, flags)));
    for (uint32_t s = 0; s < x->owners; s++) {
        slot[s] = s * bytes;
    }
    for (; left > 1; left--) {
        uint32_t a = fixture_below(r, left), b = fixture_below(r, left - 1);
        b += b >= a;
        mb_op(m, 0, M, TOPK_MERGE, R_(x->slots, mb_at(slot[a])), I_(bytes),
              R_(x->slots, mb_at(slot[b])), I_(bytes), W_(x->slots, mb_at(slot[a])), I_(bytes),
              I_(x->k), ONE);
        slot[b] = slot[left - 1];
    }
    mb_op(m, 0, M, RESERVE, F_(out), I_(1));
    mb_op(m, 0, M, COPY, R_(x->slots, mb_at(slot[0])), I_(bytes), W_(out, mb_at(0)), I_(bytes),
          I_(bytes), ONE);
    mb_op(m, 0, M, PUSH, F_(out), I_(1));
    mb_op(m, 0, S, WAIT, F_(out), I_(1));
    mb_op(m, 0, S, WRITE, R_(out, mb_at(0)), I_(bytes), U_(x->out, mb_at(0), mb_at(0)), I_(bytes),
          I_(bytes), ONE);
    mb_op(m, 0, S, POP, F_(out), I_(1));
}

/* Distinct cuts, so that each owner has a column. */
static void cut(struct shards *x, struct fixture_random *r) {
    bool taken[MAX_COLS + 1] = {false};
    for (uint32_t i = 1; i < x->owners;) {
        uint32_t c = 1 + fixture_below(r, x->cols - 1);
        i += !taken[c];
        taken[c] = true;
    }
    uint32_t n = 0;
    for (uint32_t c = 0; c <= x->cols; c++) {
        if (c == 0 || c == x->cols || taken[c]) {
            x->at[n++] = c;
        }
    }
    assert_int_equal(n, x->owners + 1);
}

/* `silent`: an owner that raises no flag; TW_NONE: none. */
static struct shards make_shards(struct fixture_random *r, uint32_t owners, uint32_t silent) {
    struct shards x = {.owners = owners, .k = 1 + fixture_below(r, MAX_K)};
    x.cols = owners + 1 + fixture_below(r, MAX_COLS - owners);
    x.m = mb_create(owners, 1);
    x.param = mb_tensor(x.m, TW_ROLE_PARAM, TW_INIT_BLOB, 1, x.cols, 1);
    x.out = mb_tensor(x.m, TW_ROLE_OUTPUT, TW_INIT_NONE, 1, 2 * x.k, 1);
    float *f = mb_data(x.m, x.param, 0);
    for (uint32_t c = 0; c < x.cols; c++) {
        f[c] = fixture_below(r, 3) ? fixture_unit(r) : (float)fixture_below(r, 3);
    }
    x.slots = pb_buffer(x.m, 0, TW_BUF_RESIDENT, 1, owners * x.k * 8);
    x.flag = pb_semaphore(x.m, NULL, TW_SEM_VALID, 0, 0);
    cut(&x, r);
    for (uint32_t s = 0; s < owners; s++) {
        add_owner(&x, s, s != silent);
    }
    add_merges(&x, r, owners - (silent != TW_NONE));
    mb_freeze(x.m);
    return x;
}

static void assert_list(const struct shards *x, const struct mr_result *r, uint32_t steps) {
    struct tw_top expected[MAX_K];
    tw_top_row(mb_data(x->m, x->param, 0), x->cols, 0, x->k, expected);
    assert_int_equal(r->rc, 0);
    for (uint32_t i = 0; i < steps; i++) {
        assert_memory_equal(r->bytes + (size_t)i * x->k * 8, expected, x->k * 8);
    }
}

static void shards_on_any_number_of_sites_give_the_list_of_the_row(void **state) {
    struct fixture_random r = {51};
    (void)state;
    for (uint32_t n = 0; n < 40; n++) {
        struct shards x = make_shards(&r, 1 + n % MAX_OWNERS, TW_NONE);
        struct mr_case c = {x.m, NULL, NULL, 2};
        for (uint64_t seed = 0; seed < 12; seed++) {
            enum tw_scheduler how = seed == 0   ? TW_SCHED_CANONICAL
                                    : seed & 1u ? TW_SCHED_RANDOM
                                                : TW_SCHED_STARVE;
            struct mr_result strict = mr_strict(&c, how, seed * 7 + n);
            assert_list(&x, &strict, 2);
            free(strict.bytes);
        }
        for (uint32_t threads = 1; threads <= 3 && threads <= x.owners; threads++) {
            struct mr_result fast = mr_fast(&c, threads, NULL);
            assert_list(&x, &fast, 2);
            free(fast.bytes);
        }
        pb_free(x.m);
    }
}

/* Wherever an owner forgets its flag, strict execution does not pass it over: the site that merges
 * reads a list that is still on its way, or was never written. */
static void a_list_whose_flag_is_missing_is_found_under_every_schedule(void **state) {
    struct fixture_random r = {52};
    uint32_t in_flight = 0;
    (void)state;
    for (uint32_t n = 0; n < SCHEDULES; n++) {
        uint32_t owners = 2 + n % 4;
        struct shards x = make_shards(&r, owners, 1 + fixture_below(&r, owners - 1));
        struct mr_case c = {x.m, NULL, NULL, 1};
        struct mr_result strict =
            mr_strict(&c, n % 3 == 0 ? TW_SCHED_CANONICAL : TW_SCHED_RANDOM, n);
        assert_int_equal(strict.rc, TW_E_FAULT);
        in_flight += strcmp(strict.fault.what, "InFlight") == 0;
        assert_true(strcmp(strict.fault.what, "InFlight") == 0 ||
                    strcmp(strict.fault.what, "Undefined") == 0);
        free(strict.bytes);
        pb_free(x.m);
    }
    assert_true(in_flight > SCHEDULES / 3); /* not only luck */
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_on_any_number_of_sites_give_the_list_of_the_row),
        cmocka_unit_test(a_list_whose_flag_is_missing_is_found_under_every_schedule),
    };
    return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
