/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama 1 to 3.2, Mistral, SmolLM, TinyLlama: the plain decoder. GGUF writers permute the rows of q
 * and k so that neighbours rotate together. The window that files of the first Mistral may name is
 * not used: all that run these files leave it out.
 */
#include "compiler/arch/arch.h"

int tw_arch_llama(struct tw_arch_source *s) {
    uint32_t ignored = 0;
    s->h->rope_pairing = TW_ROPE_INTERLEAVED;
    return tw_arch_uint(s, "attention.sliding_window", false, 0, UINT32_MAX, &ignored);
}
