/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes llama models as transformers does: config.json and safetensors, with the rows of q and k
 * in its order. It shares no code with the importer.
 */
#ifndef TW_TESTS_SUPPORT_HF_FOLDER_H
#define TW_TESTS_SUPPORT_HF_FOLDER_H

#include "compiler/import/model.h"

#include <stdio.h>

/* Returns the text of config.json; `more` (or NULL) is put before its end: ", \"x\": 1". The caller
 * frees it. */
char *hf_config_text(const struct tw_model *m, const char *more);

/* Returns a safetensors file of the model's tensors `part`, part + parts, ... ; the caller frees
 * it. */
uint8_t *hf_safetensors(const struct tw_model *m, uint32_t part, uint32_t parts, size_t *size);

/* Writes a folder, which must exist: config.json and, parts = 1, model.safetensors, else shards and
 * their index. False, with errno set, if it cannot be written. hf_folder_remove deletes it with
 * what was written. */
bool hf_folder_write(const struct tw_model *m, const char *folder, uint32_t parts,
                     const char *more);
void hf_folder_remove(const char *folder, uint32_t parts);

/* Writes a file of the folder. */
bool hf_folder_put(const char *folder, const char *name, const void *bytes, size_t size);

#endif
