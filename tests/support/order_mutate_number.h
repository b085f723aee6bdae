/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces one number of an op or record: by a near one, a round one, or that of the same field
 * elsewhere.
 */
#ifndef TW_TESTS_SUPPORT_ORDER_MUTATE_NUMBER_H
#define TW_TESTS_SUPPORT_ORDER_MUTATE_NUMBER_H

#include "tests/support/order_mutate.h"

/* A number that looks like v: near it, round, a bit of it flipped, or small. */
uint64_t order_tweak(uint64_t v, uint64_t *seed);

/* Changes one number of an op of a stream; `what` says which. */
void order_alter_op(const struct tw_program *p, uint32_t stream, struct tw_op *op, uint64_t *seed,
                    char *what, size_t size);

/* The table of a record and its size; NULL for the shape, which is in the program itself. */
const void *order_record_table(const struct tw_program *p, enum order_record record, size_t *bytes);

/* Changes one number of a record in `copy`, a copy of its table, which the program then uses. */
void order_alter_record(struct tw_program *p, enum order_record record, void *copy, uint64_t *seed,
                        char *what, size_t size);

#endif
