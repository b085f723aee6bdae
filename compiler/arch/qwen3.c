/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen 3: a norm on each head of q and k, no biases.
 */
#include "compiler/arch/arch.h"

int tw_arch_qwen3(struct tw_arch_source *s) {
    s->h->rope_pairing = TW_ROPE_HALVES;
    s->h->qk_norm = TW_QK_NORM_HEAD;
    return 0;
}
