/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of mutations (ORDER_FAMILIES), and the tools that they share with order_mutate.c.
 */
#ifndef TW_TESTS_SUPPORT_ORDER_MUTATE_FAMILY_H
#define TW_TESTS_SUPPORT_ORDER_MUTATE_FAMILY_H

#include "loader/base/compiler.h"
#include "tests/support/order_mutate.h"

/* False where the program has nothing to change. */
bool order_change_family(const struct order_index *x, struct order_mutant *m, uint32_t family,
                         uint64_t *seed);
#define TW_X(id, name, function)                                                      \
    bool order_family_##function(const struct order_index *x, struct order_mutant *m, \
                                 uint64_t *seed);
ORDER_FAMILIES(TW_X)
#undef TW_X

/* ---- tools ---- */

/* A copy, with one byte more, that is freed with the mutant. */
void *order_own(struct order_mutant *m, const void *from, size_t bytes);
/* A copy of a table with room for `more` records. */
void *order_own_table(struct order_mutant *m, const void *from, uint32_t n, uint32_t more,
                      size_t record_bytes);
/* Adds to the mutant's text. */
void order_describe(struct order_mutant *m, const char *format, ...) TW_PRINTF(2, 3);

/* The word at which op number `op` begins, and the size of the op there; 0 at the end. */
uint32_t order_word_of(const struct tw_stream *s, uint32_t op);
uint32_t order_size_at(const struct tw_stream *s, uint32_t at);
uint32_t order_op_count(const struct tw_stream *s);
/* The END of the LOOP at op number `op`, or the LOOP of the END. */
uint32_t order_other_border(const struct tw_stream *s, uint32_t op);
/* Replaces `cut` words at `at`. */
void order_splice(struct order_mutant *m, uint32_t stream, uint32_t at, uint32_t cut,
                  const uint32_t *put, uint32_t n);
/* Replaces the op at word `at`; returns the words of the new one. */
uint32_t order_put_op(struct order_mutant *m, uint32_t stream, uint32_t at, struct tw_op *op);

/* Calls `change` for every op; true: it has changed the op. Returns how many were. */
uint32_t order_each_op(struct order_mutant *m,
                       bool (*change)(void *ctx, uint32_t stream, struct tw_op *op), void *ctx);

/* An op of a class (class ORDER_N_OP_CLASSES: of any), or one whose code is in `codes`; false:
 * there is none, or not soon enough. */
bool order_choose(const struct order_index *x, uint32_t op_class, struct order_place *out,
                  uint64_t *seed);
bool order_choose_code(const struct order_index *x, const uint32_t *codes, uint32_t n,
                       struct order_place *out, uint64_t *seed);

#endif
