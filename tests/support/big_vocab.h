/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF files with vocabularies as large as those of today's models, for tests and benchmarks: all
 * words of two, three and four letters, in order, up to the size that is asked for.
 */
#ifndef TW_TESTS_SUPPORT_BIG_VOCAB_H
#define TW_TESTS_SUPPORT_BIG_VOCAB_H

#include <stddef.h>
#include <stdint.h>

/* Returns a file without tensors, which the caller frees. `byte_level`: tokenizer model gpt2 with a
 * token for each byte and a merge for each word, else llama with scores, where token 0 is U+2581.
 * n_tokens: 1000 to 400000. NULL: out of memory. */
uint8_t *big_vocab_gguf(uint32_t n_tokens, int byte_level, size_t *size);

#endif
