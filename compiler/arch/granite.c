/* SPDX-License-Identifier: Apache-2.0
 *
 * Granite 3: a plain decoder with four factors; the logits are divided by the last.
 */
#include "compiler/arch/arch.h"

int tw_arch_granite(struct tw_arch_source *s) {
    struct tw_hparams *h = s->h;
    float divisor = 1.0f;
    h->rope_pairing = TW_ROPE_INTERLEAVED;
    int rc = tw_arch_positive(s, "embedding_scale", false, &h->embedding_scale);
    rc = rc ? rc : tw_arch_positive(s, "attention.scale", false, &h->attention_scale);
    rc = rc ? rc : tw_arch_positive(s, "residual_scale", false, &h->residual_scale);
    rc = rc ? rc : tw_arch_positive(s, "logit_scale", false, &divisor);
    h->logit_scale = 1.0f / divisor;
    return rc;
}
