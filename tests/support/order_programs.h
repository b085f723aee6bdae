/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs to mutate, of every kind: a tiny llama, decode and prefill, compiled for each target;
 * and twice in one step, one after the other or side by side; and small random ones.
 */
#ifndef TW_TESTS_SUPPORT_ORDER_PROGRAMS_H
#define TW_TESTS_SUPPORT_ORDER_PROGRAMS_H

#include "tests/support/compile_stages.h"
#include "tests/support/order_judge.h"
#include "tests/support/order_mutate.h"
#include "tests/support/order_random.h"

enum { ORDER_N_SCENARIOS = 3 };

struct order_program {
    char name[40];
    struct order_small small; /* of a random one; b NULL else */
    struct random_model model;
    struct pipeline pipeline;
    struct tw_target target; /* of a program that runs the model twice */
    struct pipeline_program built;
    struct tw_program program;
    struct tw_certificate certificate;
    struct order_index index;
    struct order_scenario scenario[ORDER_N_SCENARIOS];
    uint8_t *expected[ORDER_N_SCENARIOS]; /* what the program leaves */
    size_t expected_bytes[ORDER_N_SCENARIOS];
    uint32_t weight; /* relative number of mutants made from it */
};

extern const uint32_t order_n_programs;
/* Makes program n: compiles, certifies, checks and runs it. Returns false, with `err` filled, if
 * that fails. */
bool order_program_make(uint32_t n, struct order_program *x, tw_error *err);
/* The small random program of a seed (order_random.h). False if the checker refuses it: half of
 * them are wrong on purpose. */
bool order_program_make_small(uint64_t seed, struct order_program *x, tw_error *err);
void order_program_free(struct order_program *x);

#endif
