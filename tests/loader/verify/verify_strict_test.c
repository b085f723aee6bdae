/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier against the strict machine, which checks every access on its own: the small program
 * runs without a fault, and no mutant that the verifier accepts ever leaves a buffer, a tensor, a
 * role or a FIFO's bounds. (The structural rules do not cover wrong values, reads of bytes never
 * written and deadlocks.)
 */
#include "firmware/core/tile_machine.h"
#include "loader/verify/verify.h"
#include "tests/support/program_mutate.h"
#include "tests/support/small_program.h"
#include "tests/support/test.h"

enum { MAX_ROWS = 32, MUTANTS = 6000 };

/* One allocation per binding row. */
struct device {
    uint64_t address[MAX_ROWS];
    uint64_t bytes[MAX_ROWS];
    uint32_t n_rows;
    uint8_t *arena;
    size_t arena_bytes;
};

static void *map(void *ctx, uint64_t address, uint64_t size) {
    struct device *d = ctx;
    for (uint32_t i = 0; i < d->n_rows; i++) {
        uint64_t at = address - d->address[i];
        if (address >= d->address[i] && at <= d->bytes[i] && size <= d->bytes[i] - at) {
            return (void *)(uintptr_t)address;
        }
    }
    return NULL;
}

static void device_init(struct device *d, const struct tw_program *p) {
    memset(d, 0, sizeof *d);
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        for (uint32_t i = 0; i < p->tensors[t].bind_count; i++) {
            uint64_t bytes = (p->tensors[t].bytes + 63) / 64 * 64;
            void *at = aligned_alloc(64, bytes);
            assert_true(at && d->n_rows < MAX_ROWS);
            memset(at, 0, bytes);
            d->address[d->n_rows] = (uint64_t)(uintptr_t)at;
            d->bytes[d->n_rows++] = p->tensors[t].bytes;
        }
    }
    static const int32_t ids[] = {1, 5, 63, 0}, n = 3, pos = 61;
    memcpy((void *)(uintptr_t)d->address[0], ids, sizeof ids);
    memcpy((void *)(uintptr_t)d->address[1], &n, sizeof n);
    memcpy((void *)(uintptr_t)d->address[2], &pos, sizeof pos);
}

static void device_finish(struct device *d) {
    for (uint32_t i = 0; i < d->n_rows; i++) {
        free((void *)(uintptr_t)d->address[i]);
    }
    free(d->arena);
}

/* Runs two steps, so that thresholds are tested in a second epoch. Returns 0 or the fault of a
 * step. Returns 0 and clears *ran if the machine refuses the program for its binding rows, which
 * the verifier does not know. */
static int run_steps(struct device *d, const struct tw_program *p, enum tw_scheduler scheduler,
                     uint64_t seed, bool *ran, struct tw_fault *fault) {
    struct tw_machine_config config = {
        .program = p, .bind = d->address, .n_bind = d->n_rows, .map = map, .ctx = d};
    config.kernels = tw_kernel_table(TW_ISA_SCALAR);
    struct tw_arena arena = {NULL, 0, 0};
    struct tw_strict *machine = NULL;
    *ran = false;
    if (tw_strict_init(&config, &arena, &machine, fault) != TW_E_NOMEM || arena.used > 64u << 20) {
        return 0;
    }
    if (arena.used > d->arena_bytes) {
        free(d->arena);
        d->arena_bytes = (arena.used + 4095) / 4096 * 4096;
        d->arena = aligned_alloc(64, d->arena_bytes);
        assert_non_null(d->arena);
    }
    struct tw_arena room = {d->arena, d->arena_bytes, 0};
    if (tw_strict_init(&config, &room, &machine, fault) != 0) {
        return 0;
    }
    *ran = true;
    int rc = 0;
    for (uint64_t step = 0; step < 2 && rc == 0; step++) {
        rc = tw_strict_step(machine, scheduler, seed + step, fault);
    }
    return rc;
}

static void the_small_program_runs_without_a_fault_in_every_order(void **state) {
    (void)state;
    struct pb *b = small_program();
    struct device d;
    device_init(&d, &b->p);
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct tw_fault fault = {0};
        bool ran;
        int rc =
            run_steps(&d, &b->p, seed ? TW_SCHED_RANDOM : TW_SCHED_CANONICAL, seed, &ran, &fault);
        if (!ran || rc != 0) {
            fail_msg("seed %llu: %s at site %u engine %u op %u, have %llu need %llu",
                     (unsigned long long)seed, fault.what ? fault.what : "not taken", fault.site,
                     fault.engine, fault.op_index, (unsigned long long)fault.have,
                     (unsigned long long)fault.need);
        }
    }
    device_finish(&d);
    pb_free(b);
}

/* Returns true if the mutant's tensors still name the device's rows; that rows fit tensors is
 * checked by the loader, not by the verifier. */
static bool rows_kept(const struct tw_program *a, const struct tw_program *b) {
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        if (a->tensors[i].bind_first != b->tensors[i].bind_first ||
            a->tensors[i].bytes != b->tensors[i].bytes) {
            return false;
        }
    }
    return true;
}

/* IdOutOfRange and InputRange depend on the host's input, not on the program. */
static bool is_permitted(const char *what) {
    static const char *const permitted[] = {"Undefined", "Deadlock", "InputRange", "IdOutOfRange"};
    for (size_t i = 0; i < sizeof permitted / sizeof permitted[0]; i++) {
        if (strcmp(what, permitted[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void what_the_verifier_accepts_stays_in_bounds(void **state) {
    (void)state;
    struct pb *b = small_program();
    struct device d;
    uint64_t seed = 777;
    uint32_t accepted = 0, run = 0;
    device_init(&d, &b->p);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint32_t i = 0; i < MUTANTS; i++) {
        struct exact *x = exact_copy(&b->p);
        struct tw_fault fault = {0};
        bool ran = false;
        exact_mutate(x, &seed);
        if (rows_kept(&x->p, &b->p) && tw_verify_program(&x->p, NULL, NULL) == 0) {
            accepted++;
            int rc = run_steps(&d, &x->p, TW_SCHED_RANDOM, i, &ran, &fault);
            if (rc != 0 && !is_permitted(fault.what)) {
                fail_msg("mutant %u: %s at site %u engine %u op %u (%s), have %llu need %llu", i,
                         fault.what, fault.site, fault.engine, fault.op_index,
                         tw_op_info(fault.opcode).name ? tw_op_info(fault.opcode).name : "?",
                         (unsigned long long)fault.have, (unsigned long long)fault.need);
            }
            run += ran;
        }
        exact_free(x);
    }
    print_message("%u of %u mutants accepted, %u run\n", accepted, (uint32_t)MUTANTS, run);
    assert_true(run > MUTANTS / 100);
    device_finish(&d);
    pb_free(b);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_small_program_runs_without_a_fault_in_every_order),
        cmocka_unit_test(what_the_verifier_accepts_stays_in_bounds),
    };
    return cmocka_run_group_tests_name("verify_strict", tests, NULL, NULL);
}
