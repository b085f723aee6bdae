/* SPDX-License-Identifier: Apache-2.0
 *
 * The explorer's verdicts of random small programs are those of running every interleaving one by
 * one.
 */
#include "tests/support/explore_kit.h"

struct outcomes {
    struct pb *m;
    struct tw_explore_options o;
    uint32_t found, n_ends;
    uint16_t schedule[32];
    uint8_t *first; /* kept bytes of the first end */
};

static void see_end(struct outcomes *all) {
    struct mr_case c = {all->m, NULL, NULL, 1};
    struct mr_result r = {.size = mr_kept_bytes(all->m)};
    r.bytes = malloc(r.size);
    mr_keep(&c, &r, 0);
    if (all->n_ends++ == 0) {
        all->first = r.bytes;
        return;
    }
    all->found |= memcmp(all->first, r.bytes, r.size) ? TW_EXPLORE_DIFFERS : 0u;
    free(r.bytes);
}

static void try_all(struct outcomes *all, uint32_t n) {
    bool ran = false;
    assert_true(n < 32);
    for (uint16_t e = 0; e < all->m->p.n_sites * TW_ENGINE_COUNT; e++) {
        struct tw_fault f;
        all->schedule[n] = e;
        int rc = replay(all->m, all->o, all->schedule, n + 1, &f);
        if (rc != 0 && strcmp(f.what, "BadSchedule") == 0) {
            continue;
        }
        ran = true;
        if (rc != 0 && strcmp(f.what, "Deadlock") == 0) {
            all->found |= TW_EXPLORE_DEADLOCK;
        } else if (rc != 0) {
            all->found |= TW_EXPLORE_FAULT;
        } else {
            try_all(all, n + 1);
        }
    }
    if (!ran) { /* no engine can continue: the step has ended, or is deadlocked */
        struct tw_fault f;
        if (replay(all->m, all->o, all->schedule, n, &f) == 0) {
            see_end(all);
            return;
        }
        assert_string_equal(f.what, "Deadlock");
        all->found |= TW_EXPLORE_DEADLOCK;
    }
}

static uint32_t pick(uint32_t *seed, uint32_t n) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 16) % n;
}

/* Two or three ops for each engine, which move rows between two buffers, State and Output, with
 * some increments and waits. */
static struct base random_program(uint32_t seed) {
    struct base b = base_create(1, 1);
    uint32_t page[2] = {pb_buffer(b.m, 0, TW_BUF_RESIDENT, 1, 64),
                        pb_buffer(b.m, 0, TW_BUF_RESIDENT, 1, 64)};
    uint32_t sem2 = pb_semaphore(b.m, NULL, TW_SEM_READY, 0, 0), used[2] = {b.sem, sem2};
    for (unsigned e = 0; e < TW_ENGINE_COUNT; e++) {
        for (uint32_t n = 2 + pick(&seed, 2); n > 0; n--) {
            uint32_t from = page[pick(&seed, 2)], to = page[pick(&seed, 2)],
                     sem = used[pick(&seed, 2)];
            uint32_t what = pick(&seed, 6);
            if (what == 0) {
                mb_append(b.m, 0, (enum tw_engine)e, TW_OP_SEM_INC, 3,
                          (struct tw_operand[]){S_(sem), C_(0), I_(1)});
            } else if (what == 1) {
                mb_append(b.m, 0, (enum tw_engine)e, TW_OP_SEM_WAIT, 2,
                          (struct tw_operand[]){S_(sem), A_(mb_at(1))});
            } else if (e == TW_ENGINE_LOAD) {
                READ_ROW(b, 0, what < 4 ? b.param : b.zero, mb_at(64 * pick(&seed, 2)),
                         W_(to, mb_at(0)));
            } else if (e == TW_ENGINE_MATH && what < 4) {
                mb_op(b.m, 0, M, ATTN_INIT, W_(to, mb_at(0)), I_(1), I_(14), ONE);
            } else if (e == TW_ENGINE_MATH) {
                COPY_ROW(b, 0, R_(from, mb_at(0)), W_(to, mb_at(0)));
            } else {
                WRITE_ROW(b, 0, R_(from, mb_at(0)), what < 4 ? b.zero : b.out, mb_at(0));
            }
        }
    }
    return b;
}

#define RANDOM_PROGRAMS (TEST_ASAN ? 50u : 200u)

static void its_verdicts_are_those_of_every_interleaving(void **state) {
    (void)state;
    uint32_t seen[4] = {0, 0, 0, 0};
    for (uint32_t seed = 1; seed <= RANDOM_PROGRAMS; seed++) {
        struct base b = random_program(seed * 7919);
        struct outcomes all = {.m = b.m};
        mb_freeze(b.m);
        try_all(&all, 0);
        struct explored x = explore(b.m, all.o);
        if (x.rc != 0 || (x.r.found & ~(uint32_t)TW_EXPLORE_RACE) != all.found) {
            fail_msg("program %u: explored %u, every interleaving %u", seed, x.r.found, all.found);
        }
        assert_true(x.r.ends <= all.n_ends || all.n_ends == 0);
        seen[0] += all.found == 0;
        seen[1] += (all.found & TW_EXPLORE_DIFFERS) != 0;
        seen[2] += (all.found & TW_EXPLORE_FAULT) != 0;
        seen[3] += (all.found & TW_EXPLORE_DEADLOCK) != 0;
        expect(b.m, all.o, x.r.found);
        free(all.first);
        free(x.memory);
        pb_free(b.m);
    }
    print_message("# equal %u, differ %u, fault %u, deadlock %u\n", seen[0], seen[1], seen[2],
                  seen[3]);
    assert_true(seen[0] > 0 && seen[1] > 0 && seen[2] > 0 && seen[3] > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_verdicts_are_those_of_every_interleaving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
