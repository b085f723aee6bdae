/* SPDX-License-Identifier: Apache-2.0
 *
 * Phi 3 and 4: q, k and v in one tensor, gate and up in another, and for long contexts one set of
 * rotation factors up to the original context and another above it. The window that some files
 * name is not used: the models are run without it.
 */
#include "compiler/arch/arch.h"

int tw_arch_phi3(struct tw_arch_source *s) {
    uint32_t ignored = 0;
    s->h->rope_pairing = TW_ROPE_HALVES;
    s->h->fused_gate = true;
    return tw_arch_uint(s, "attention.sliding_window", false, 0, INT32_MAX, &ignored);
}
