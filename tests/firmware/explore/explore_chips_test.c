/* SPDX-License-Identifier: Apache-2.0
 *
 * The explorer on several chips: an exchange over all chips and a small decoder that spans them
 * take one path; a flag that precedes its data on one chip only, or a step that does not wait for
 * one chip, is found.
 */
#include "tests/support/explore_kit.h"
#include "tests/support/tiny_decoder.h"

static void one_path_represents_all_of_a_decoder_that_spans_chips(void **state) {
    (void)state;
    static const struct td_options shapes[] = {
        {.width = 1, .height = 1, .chips = 2},
        {.width = 1, .height = 1, .chips = 2, .unshared = true},
        {.width = 1, .height = 1, .chips = 4},
        {.width = 2, .height = 1, .chips = 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct td d = td_create(shapes[i]);
        for (uint32_t rows = 1; rows <= 4; rows += 3) {
            td_input(&d, 62, rows);
            expect(d.m, (struct tw_explore_options){.steps = 2}, 0);
        }
        expect(d.m, (struct tw_explore_options){.steps = 2, .overlap = true}, 0);
        pb_free(d.m);
    }
}

/* ---- an exchange ---- */

enum fault { NONE, EARLY_FLAG, ONE_FLAG_LESS, OPEN_STEP };

struct exchange {
    struct base b;
    uint32_t set, valid, gather, release, chip_sites;
};

/* Site s has row s of the Param; it sends it to row s of the set on every chip, then its flag. */
static void send(struct exchange *x, uint32_t s, enum fault fault) {
    struct pb *m = x->b.m;
    uint32_t fifo = pb_fifo(m, s, TW_ENGINE_LOAD, TW_ENGINE_STORE, 1, 64);
    mb_op(m, s, L, RESERVE, F_(fifo), I_(1));
    READ_ROW(x->b, s, x->b.param, mb_at(s * 64), W_(fifo, mb_at(0)));
    mb_op(m, s, L, PUSH, F_(fifo), I_(1));
    mb_op(m, s, S, WAIT, F_(fifo), I_(1));
    for (uint32_t chip = 0; chip < m->p.n_chips; chip++) {
        bool last = s == 0 && chip + 1 == m->p.n_chips, early = last && fault == EARLY_FLAG;
        if (early) {
            mb_op(m, s, S, MCAST_SET, S_(x->valid), G_(x->chip_sites + chip));
        }
        mb_op(m, s, S, MCAST, R_(fifo, mb_at(0)), I_(64), D_(x->set + s, mb_at(s * 64)), I_(64),
              I_(64), ONE, G_(x->chip_sites + chip));
        if (!early && !(last && fault == ONE_FLAG_LESS)) {
            mb_op(m, s, S, MCAST_SET, S_(x->valid), G_(x->chip_sites + chip));
        }
    }
    mb_op(m, s, S, POP, F_(fifo), I_(1));
}

/* Sums the rows of all sites into the site's Output: two rows per op. */
static void receive(struct exchange *x, uint32_t s) {
    struct pb *m = x->b.m;
    uint32_t fifo = pb_fifo(m, s, TW_ENGINE_MATH, TW_ENGINE_STORE, 1, 128), n = m->p.n_sites;
    mb_op(m, s, M, SEM_WAIT, S_(x->valid), A_(tw_affine_plus(mb_at(n), 0, n)));
    mb_op(m, s, M, RESERVE, F_(fifo), I_(1));
    mb_op(m, s, M, ADD, R_(x->set + s, mb_at(0)), I_(64), R_(x->set + s, mb_at(64)), I_(64),
          W_(fifo, mb_at(0)), I_(64), I_(16), ONE);
    mb_op(m, s, M, PUSH, F_(fifo), I_(1));
    mb_op(m, s, S, WAIT, F_(fifo), I_(1));
    WRITE_ROW(x->b, s, R_(fifo, mb_at(0)), x->b.out, mb_at(s * 64));
    mb_op(m, s, S, POP, F_(fifo), I_(1));
}

/* The STORE engines of all sites rendezvous; with OPEN_STEP those of the first chip do not wait for
 * the last chip's. */
static void close_step(struct exchange *x, uint32_t s, enum fault fault) {
    struct pb *m = x->b.m;
    uint32_t n = m->p.n_sites - (fault == OPEN_STEP);
    if (fault != OPEN_STEP || s + 1 < m->p.n_sites) {
        mb_op(m, s, S, SEM_INC, S_(x->gather), C_(0), I_(1));
    }
    if (s == 0) {
        mb_op(m, s, S, SEM_WAIT, S_(x->gather), A_(tw_affine_plus(mb_at(n), 0, n)));
        for (uint32_t chip = 0; chip < m->p.n_chips; chip++) {
            mb_op(m, s, S, MCAST_SET, S_(x->release), G_(x->chip_sites + chip));
        }
    }
    mb_op(m, s, S, SEM_WAIT, S_(x->release), A_(tw_affine_plus(mb_at(1), 0, 1)));
}

static struct exchange exchange_create(uint32_t chips, enum fault fault) {
    struct exchange x = {.b = {.m = mb_create_chips(chips, 1, 1)}};
    struct pb *m = x.b.m;
    x.b.param = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, 4, 16, 1);
    x.b.out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, 4, 16, 1);
    x.chip_sites = m->p.n_groups;
    for (uint32_t chip = 0; chip < chips; chip++) {
        pb_chip_group(m, chip, 0, 0, 1, 1);
    }
    x.set = pb_siblings(m, 256);
    x.valid = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    x.gather = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    x.release = pb_semaphore(m, NULL, TW_SEM_READY, 0, 0);
    mb_fill(m, x.b.param);
    for (uint32_t s = 0; s < chips; s++) {
        send(&x, s, fault);
        receive(&x, s);
        close_step(&x, s, fault);
    }
    return x;
}

static void check_exchange(uint32_t chips, enum fault fault, uint32_t in_turn,
                           uint32_t overlapped) {
    struct exchange x = exchange_create(chips, fault);
    expect(x.b.m, (struct tw_explore_options){.steps = 2}, in_turn);
    expect(x.b.m, (struct tw_explore_options){.steps = 2, .overlap = true}, overlapped);
    pb_free(x.b.m);
}

static void one_path_represents_all_of_an_exchange_between_chips(void **state) {
    (void)state;
    for (uint32_t chips = 2; chips <= 4; chips++) {
        check_exchange(chips, NONE, 0, 0);
    }
}

static void a_flag_that_precedes_its_data_on_one_chip_is_found(void **state) {
    (void)state;
    uint32_t found = TW_EXPLORE_RACE | TW_EXPLORE_FAULT; /* bytes that were never written */
    check_exchange(2, EARLY_FLAG, found, found);
}

static void a_flag_that_does_not_reach_one_chip_is_a_deadlock(void **state) {
    (void)state;
    check_exchange(2, ONE_FLAG_LESS, TW_EXPLORE_DEADLOCK, TW_EXPLORE_DEADLOCK);
}

static void a_chip_that_the_step_does_not_wait_for_is_found_if_steps_overlap(void **state) {
    (void)state;
    /* The first chip's flags of two steps count as those of both chips in one: in the second step
     * it reads a row of its own that it has not sent yet. */
    check_exchange(2, OPEN_STEP, 0, TW_EXPLORE_RACE | TW_EXPLORE_FAULT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_path_represents_all_of_a_decoder_that_spans_chips),
        cmocka_unit_test(one_path_represents_all_of_an_exchange_between_chips),
        cmocka_unit_test(a_flag_that_precedes_its_data_on_one_chip_is_found),
        cmocka_unit_test(a_flag_that_does_not_reach_one_chip_is_a_deadlock),
        cmocka_unit_test(a_chip_that_the_step_does_not_wait_for_is_found_if_steps_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
