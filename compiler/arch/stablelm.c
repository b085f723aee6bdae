/* SPDX-License-Identifier: Apache-2.0
 *
 * StableLM: LayerNorm, a part of each head rotates; some have norms with their own weights for each
 * head of q and k, and some feed both blocks from one norm.
 */
#include "compiler/arch/arch.h"

int tw_arch_stablelm(struct tw_arch_source *s) {
    struct tw_hparams *h = s->h;
    h->rope_pairing = TW_ROPE_HALVES;
    h->norm = TW_NORM_LAYER;
    h->parallel = !tw_arch_has_tensor(s, "blk.0.ffn_norm.weight");
    h->qk_norm =
        tw_arch_has_tensor(s, "blk.0.attn_q_norm.weight") ? TW_QK_NORM_HEADS : TW_QK_NORM_NONE;
    bool parallel = h->parallel;
    int rc = tw_arch_bool(s, "use_parallel_residual", &parallel);
    if (rc == 0 && parallel && !h->parallel) {
        rc = tw_fail(s->err, TW_E_UNSUPPORTED,
                     "%s: key stablelm.use_parallel_residual is true, but there is a tensor "
                     "blk.0.ffn_norm.weight; two norms in parallel are not supported",
                     s->gguf->path);
    }
    return rc;
}
