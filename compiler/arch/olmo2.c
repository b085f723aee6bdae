/* SPDX-License-Identifier: Apache-2.0
 *
 * OLMo 2 and 3: norms only on what the blocks give, one norm over all heads of q and of k. OLMo 3
 * has a window on three layers of four; these rotate unscaled.
 */
#include "compiler/arch/arch.h"

int tw_arch_olmo2(struct tw_arch_source *s) {
    struct tw_hparams *h = s->h;
    h->rope_pairing = TW_ROPE_HALVES;
    h->norm_place = TW_NORM_AFTER;
    h->qk_norm = TW_QK_NORM_ROW;
    h->window_rope_theta = h->rope_theta;
    return tw_arch_windows(s, 0, 4, TW_LAYER_ROPE_WINDOW, TW_LAYER_ROPE_MODEL);
}
