/* SPDX-License-Identifier: Apache-2.0
 *
 * Mistral 3 and Ministral 3: a plain decoder with YaRN, whose queries grow with the logarithm of
 * their position, in steps of the original context.
 */
#include "compiler/arch/arch.h"

int tw_arch_mistral3(struct tw_arch_source *s) {
    struct tw_hparams *h = s->h;
    h->rope_pairing = TW_ROPE_INTERLEAVED;
    h->query_period = h->rope_original_ctx ? h->rope_original_ctx : h->n_ctx_train;
    return tw_arch_float(s, "attention.temperature_scale", false, &h->query_slope);
}
