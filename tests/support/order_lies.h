/* SPDX-License-Identifier: Apache-2.0
 *
 * Certificates that lie: words changed, dropped, doubled, exchanged; and other orders in which a program without loops
 * can run.
 */
#ifndef TW_TESTS_ORDER_LIES_H
#define TW_TESTS_ORDER_LIES_H

#include "loader/certificate.h"

#include <stdbool.h>

struct order_lie {
    uint32_t *words;
    uint32_t n, room;
};
void order_lie_begin(struct order_lie *l, const struct tw_certificate *c);
void order_lie_free(struct order_lie *l);

/* One more change. order_lie_edit takes its choices from three numbers, so that a fuzzer can make them. */
void order_lie_edit(struct order_lie *l, uint32_t kind, uint32_t at, uint32_t value);
void order_lie_tell(struct order_lie *l, uint64_t *seed);

/* Runs cut into shorter ones: the same order. */
void order_lie_split(struct order_lie *l, uint64_t *seed);

/* An order in which the program can run, op by op, each time a random engine of those that can. False where it has
 * loops or gets stuck; the words tell as far as it came. */
bool order_lie_wander(struct order_lie *l, const struct tw_program *p, uint64_t *seed);

#endif
