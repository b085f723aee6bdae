/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama 1 to 3.2, Mistral, SmolLM, TinyLlama: the plain decoder. GGUF writers permute the rows of q
 * and k so that neighbours rotate together.
 */
#include "compiler/arch/arch.h"

int tw_arch_llama(struct tw_arch_source *s) {
    s->h->rope_pairing = TW_ROPE_INTERLEAVED;
    return 0;
}
