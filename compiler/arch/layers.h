/* SPDX-License-Identifier: Apache-2.0
 *
 * Which layers of a decoder are alike, so that one body serves them all.
 */
#ifndef TW_COMPILER_ARCH_LAYERS_H
#define TW_COMPILER_ARCH_LAYERS_H

#include "compiler/arena.h"
#include "compiler/import/model.h"

/* `period` layers, from `first` on, are the body; the whole is `repeat` of them in a row, layer
 * first + i like layer first + i % period. */
struct tw_layer_group {
    uint32_t first, period, repeat;
};

struct tw_layer_groups {
    TW_VEC(struct tw_layer_group) v;
};

/* Divides all layers into groups, in order. Layers are alike if their numbers, the types of their
 * matrices and what biases they have are. Of a group's possible periods the one that leaves out the
 * most bodies is taken, of these the shortest. */
void tw_layer_groups(const struct tw_model *model, struct tw_cmem *mem,
                     struct tw_layer_groups *out);

#endif
