/* SPDX-License-Identifier: Apache-2.0
 *
 * Imports the tokenizer of a Hugging Face model directory: tokenizer.json (models BPE and Unigram,
 * with the normalizers, pre-tokenizers and decoders that text models use), and what
 * tokenizer_config.json, generation_config.json and chat_template.jinja say about it. The result is
 * a blob of tilewright/vocab.h, as from GGUF.
 */
#ifndef TW_COMPILER_IMPORT_HF_TOKENIZER_H
#define TW_COMPILER_IMPORT_HF_TOKENIZER_H

#include "compiler/import/model.h"
#include "compiler/import/model_memory.h"

/* Bytes of one file in memory, and its path for messages. `bytes` NULL: there is no such file. */
struct tw_hf_file {
    const char *path;
    const void *bytes;
    uint64_t size;
};

struct tw_hf_tokenizer_files {
    struct tw_hf_file tokenizer;         /* tokenizer.json; needed */
    struct tw_hf_file config;            /* tokenizer_config.json */
    struct tw_hf_file generation_config; /* generation_config.json: eos_token_id */
    struct tw_hf_file chat_template;     /* chat_template.jinja */
};

/* Files larger than this are refused. */
#define TW_HF_TOKENIZER_BYTES_MAX (64u << 20)

/* Imports the tokenizer of a model whose embedding has model->h.n_vocab rows: rows beyond the last
 * token become UNUSED tokens. Sets model->vocab and vocab_bytes, of `memory`; or, if the tokenizer
 * uses a part that is not known (named by its type), leaves them NULL and sets
 * model->tokenizer_problem. Errors: FORMAT (not JSON, or a value of the wrong type; names file and
 * key), RANGE (too large; an id outside the embedding), NOMEM. */
int tw_import_hf_tokenizer(const struct tw_hf_tokenizer_files *files,
                           struct tw_import_memory *memory, struct tw_model *model, tw_error *err);

#endif
