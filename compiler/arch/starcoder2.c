/* SPDX-License-Identifier: Apache-2.0
 *
 * StarCoder 2: LayerNorm and biases everywhere, GELU without a gate.
 */
#include "compiler/arch/arch.h"

int tw_arch_starcoder2(struct tw_arch_source *s) {
    s->h->rope_pairing = TW_ROPE_HALVES;
    s->h->norm = TW_NORM_LAYER;
    s->h->feed_forward = TW_FFN_GELU_UNGATED;
    return 0;
}
