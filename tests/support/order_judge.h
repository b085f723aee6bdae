/* SPDX-License-Identifier: Apache-2.0
 *
 * The checker's verdict on a program, and its test on the strict machine: under many schedules
 * an accepted program never faults, never gets stuck, and always leaves the same bytes.
 */
#ifndef TW_TESTS_SUPPORT_ORDER_JUDGE_H
#define TW_TESTS_SUPPORT_ORDER_JUDGE_H

#include "compiler/spatial/certify.h"
#include "tests/support/order_device.h"

enum { ORDER_MAX_STEPS = 4, ORDER_RULES = 32 };

struct order_verdict {
    bool structural; /* tw_verify_program refused it */
    int rule;        /* the violated rule; 0: accepted */
    bool stuck;      /* tw_certify found no order */
    bool own, given; /* which certificate was accepted: one made for it, the one given */
    char message[480];
};

/* Verifies, certifies and checks; `given` is a further certificate to try, which may be NULL. The
 * program is accepted if any certificate is. `mem` is left as it was. */
struct order_verdict order_judge(struct tw_cmem *mem, const struct tw_program *p,
                                 const struct tw_certificate *given);

/* One sequence of steps. */
struct order_scenario {
    uint32_t n;
    struct order_inputs in[ORDER_MAX_STEPS];
};

struct order_trial {
    bool safe, ran; /* ran: the machine took the program and the inputs */
    bool same;      /* ran, and its bytes are those of `expected` */
    uint32_t schedules;
    char what[400];
};

/* Runs the scenario under the canonical schedule, n_random random ones and n_adversaries of the
 * adversaries. `expected` (may be NULL) has the bytes of the program that it is a mutant of,
 * `expected_bytes` of them. */
struct order_trial order_try(struct order_device *d, const struct order_scenario *s,
                             uint32_t n_random, uint32_t n_adversaries, uint64_t seed,
                             const uint8_t *expected, size_t expected_bytes);

#endif
