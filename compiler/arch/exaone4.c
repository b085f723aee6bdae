/* SPDX-License-Identifier: Apache-2.0
 *
 * EXAONE 4: norms on what the blocks give, norms on the heads of q and k. The kind with 64 layers
 * has a window on three layers of four, and its other layers do not rotate; the smaller kind has
 * neither, whatever its keys say.
 */
#include "compiler/arch/arch.h"

int tw_arch_exaone4(struct tw_arch_source *s) {
    struct tw_hparams *h = s->h;
    uint32_t ignored = 0;
    h->rope_pairing = TW_ROPE_HALVES;
    h->norm_place = TW_NORM_AFTER;
    h->qk_norm = TW_QK_NORM_HEAD;
    if (h->n_layers != 64) {
        return tw_arch_uint(s, "attention.sliding_window", false, 0, INT32_MAX, &ignored);
    }
    return tw_arch_windows(s, 4096, 4, TW_LAYER_ROPE_MODEL, TW_LAYER_ROPE_NONE);
}
