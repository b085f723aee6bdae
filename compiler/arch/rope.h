/* SPDX-License-Identifier: Apache-2.0
 *
 * The frequencies of rotary positions.
 */
#ifndef TW_COMPILER_ARCH_ROPE_H
#define TW_COMPILER_ARCH_ROPE_H

#include "compiler/import/model.h"

/* Stores the rope_dims/2 frequencies by which layers of that kind (not NONE) rotate in a context of
 * n_ctx positions: theta^(-2i/d), scaled as the model demands. */
void tw_rope_frequencies(const struct tw_hparams *h, enum tw_layer_rope kind, uint32_t n_ctx,
                         float *out);

/* Returns the factor of the rotated numbers; 1 for layers with a window. */
float tw_rope_magnitude(const struct tw_hparams *h, enum tw_layer_rope kind);

#endif
