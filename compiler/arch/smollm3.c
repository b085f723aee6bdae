/* SPDX-License-Identifier: Apache-2.0
 *
 * SmolLM 3: a plain decoder whose every fourth layer does not rotate.
 */
#include "compiler/arch/arch.h"

int tw_arch_smollm3(struct tw_arch_source *s) {
    s->h->rope_pairing = TW_ROPE_INTERLEAVED;
    for (uint32_t i = 3; i < s->h->n_layers; i += 4) {
        s->layers[i].rope = TW_LAYER_ROPE_NONE;
    }
    return 0;
}
