/* SPDX-License-Identifier: Apache-2.0
 *
 * Gemma 3: as Gemma 2 without caps, with norms on the heads of q and k. Five layers of six have a
 * window, and rotate by a base of their own, unscaled.
 */
#include "compiler/arch/arch.h"

#include <math.h>

int tw_arch_gemma3(struct tw_arch_source *s) {
    struct tw_hparams *h = s->h;
    h->rope_pairing = TW_ROPE_HALVES;
    h->norm_place = TW_NORM_AROUND;
    h->feed_forward = TW_FFN_GELU;
    h->qk_norm = TW_QK_NORM_HEAD;
    h->embedding_scale = sqrtf((float)h->dim);
    if (h->n_layers == 62) { /* the largest, 27B: as gemma2.c's */
        h->attention_scale = 1.0f / sqrtf((float)h->dim / (float)h->n_heads);
    }
    h->window_rope_theta = 10000.0f;
    int rc = tw_arch_positive(s, "rope.freq_base_swa", false, &h->window_rope_theta);
    rc = rc ? rc : tw_arch_positive(s, "final_logit_softcapping", false, &h->logit_cap);
    return rc ? rc : tw_arch_windows(s, 0, 6, TW_LAYER_ROPE_WINDOW, TW_LAYER_ROPE_MODEL);
}
