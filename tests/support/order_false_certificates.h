/* SPDX-License-Identifier: Apache-2.0
 *
 * False certificates: words changed, dropped, doubled, exchanged; and other orders in which a
 * program without loops can run.
 */
#ifndef TW_TESTS_SUPPORT_ORDER_FALSE_CERTIFICATES_H
#define TW_TESTS_SUPPORT_ORDER_FALSE_CERTIFICATES_H

#include "loader/order/certificate.h"

#include <stdbool.h>

struct order_false {
    uint32_t *words;
    uint32_t n, room;
};
void order_false_begin(struct order_false *l, const struct tw_certificate *c);
void order_false_free(struct order_false *l);

/* Makes one more change. order_false_edit takes its choices from three numbers, so that a fuzzer
 * can make them. */
void order_false_edit(struct order_false *l, uint32_t kind, uint32_t at, uint32_t value);
void order_false_describe(struct order_false *l, uint64_t *seed);

/* Splits runs into shorter ones: the same order. */
void order_false_split(struct order_false *l, uint64_t *seed);

/* Finds an order in which the program can run, op by op, each time by a random engine of those that
 * can. False if it has loops or gets stuck; the words then end where it stopped. */
bool order_false_wander(struct order_false *l, const struct tw_program *p, uint64_t *seed);

#endif
