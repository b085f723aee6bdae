/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat template of a folder of transformers: in a file of its own, or else in
 * tokenizer_config.json, as a text or as a list of named ones, of which that named "default"
 * counts.
 */
#ifndef TW_COMPILER_IMPORT_HF_CHAT_H
#define TW_COMPILER_IMPORT_HF_CHAT_H

#include "compiler/import/hf_tokenizer.h"

#include <jansson.h>

/* Sets model->chat, which stays NULL if there is no template. `config`: tokenizer_config.json, or
 * NULL. Errors: RANGE (too long, or with a NUL byte), NOMEM. */
int tw_hf_read_chat(const struct tw_hf_tokenizer_files *files, const json_t *config,
                    struct tw_import_memory *memory, struct tw_model *model, tw_error *err);

#endif
