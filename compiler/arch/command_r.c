/* SPDX-License-Identifier: Apache-2.0
 *
 * Command R: LayerNorm without bias, both blocks fed from one norm, logits times a factor; the
 * largest also have norms with their own weights for each head of q and k.
 */
#include "compiler/arch/arch.h"

int tw_arch_command_r(struct tw_arch_source *s) {
    struct tw_hparams *h = s->h;
    h->rope_pairing = TW_ROPE_INTERLEAVED;
    h->norm = TW_NORM_LAYER;
    h->parallel = true;
    h->qk_norm =
        tw_arch_has_tensor(s, "blk.0.attn_q_norm.weight") ? TW_QK_NORM_HEADS : TW_QK_NORM_NONE;
    return tw_arch_positive(s, "logit_scale", false, &h->logit_scale);
}
