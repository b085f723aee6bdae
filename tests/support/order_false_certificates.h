/* SPDX-License-Identifier: Apache-2.0
 *
 * False certificates: a certificate with words changed, dropped, duplicated or exchanged; and other
 * orders in which a program without loops can run.
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

/* Each makes one more change: order_false_edit the one given by three numbers, which a fuzzer can
 * choose, order_false_describe a random one. */
void order_false_edit(struct order_false *l, uint32_t kind, uint32_t at, uint32_t value);
void order_false_describe(struct order_false *l, uint64_t *seed);

/* Splits RUN turns into shorter ones; the order stays the same. */
void order_false_split(struct order_false *l, uint64_t *seed);

/* Finds an order in which the program can run by executing, op by op, a random engine that can run.
 * Returns false if the program has loops or gets stuck; the words then end where it stopped. */
bool order_false_wander(struct order_false *l, const struct tw_program *p, uint64_t *seed);

#endif
