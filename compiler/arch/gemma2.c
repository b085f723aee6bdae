/* SPDX-License-Identifier: Apache-2.0
 *
 * Gemma 2: norms around each block, gated GELU, embeddings times sqrt(dim), capped scores and
 * logits, a window on every second layer, beginning with the first. The stored norm weights include
 * the 1 that the model's definition adds.
 */
#include "compiler/arch/arch.h"

#include <math.h>

int tw_arch_gemma2(struct tw_arch_source *s) {
    struct tw_hparams *h = s->h;
    h->rope_pairing = TW_ROPE_HALVES;
    h->norm_place = TW_NORM_AROUND;
    h->feed_forward = TW_FFN_GELU;
    h->embedding_scale = sqrtf((float)h->dim);
    if (h->n_layers == 46) { /* the largest, 27B: by the width of a head's share of the model */
        h->attention_scale = 1.0f / sqrtf((float)h->dim / (float)h->n_heads);
    }
    h->attention_cap = 50.0f;
    h->logit_cap = 30.0f;
    int rc = tw_arch_positive(s, "attn_logit_softcapping", false, &h->attention_cap);
    rc = rc ? rc : tw_arch_positive(s, "final_logit_softcapping", false, &h->logit_cap);
    return rc ? rc : tw_arch_windows(s, 4096, 2, TW_LAYER_ROPE_MODEL, TW_LAYER_ROPE_MODEL);
}
