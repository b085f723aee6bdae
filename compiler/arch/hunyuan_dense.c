/* SPDX-License-Identifier: Apache-2.0
 *
 * Hunyuan (dense): norms on the heads of q and k, after the rotation; a factor that raises the base
 * of the rotation to alpha^(d / (d - 2)) times itself, for heads of d (NTK-aware scaling).
 */
#include "compiler/arch/arch.h"

#include <math.h>

int tw_arch_hunyuan_dense(struct tw_arch_source *s) {
    struct tw_hparams *h = s->h;
    float alpha = 1.0f;
    h->rope_pairing = TW_ROPE_HALVES;
    h->qk_norm = TW_QK_NORM_HEAD;
    h->qk_norm_after_rope = true;
    int rc = tw_arch_positive(s, "rope.scaling.alpha", false, &alpha);
    if (rc == 0 && h->head_dim > 2) {
        double d = h->head_dim;
        h->rope_theta = (float)((double)h->rope_theta * pow((double)alpha, d / (d - 2.0)));
    }
    return rc;
}
