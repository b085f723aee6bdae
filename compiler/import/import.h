/* SPDX-License-Identifier: Apache-2.0
 *
 * The importers: they read a model file that is already in memory. model.c maps files and
 * selects one; the fuzzers call them directly. `path` is for messages only. Results point into
 * `bytes` and `memory`. Errors as for tw_model_open; on failure *out is unspecified and `memory`
 * holds what the caller has to free.
 */
#ifndef TW_COMPILER_IMPORT_IMPORT_H
#define TW_COMPILER_IMPORT_IMPORT_H

#include "compiler/import/gguf.h"
#include "compiler/import/model.h"
#include "compiler/import/model_memory.h"

/* Imports a GGUF file of a supported architecture (compiler/arch/arch.h), with its vocabulary if
 * that is of a supported kind (gguf_decoder.c). */
int tw_import_gguf(const char *path, const uint8_t *bytes, uint64_t size,
                   struct tw_import_memory *memory, struct tw_model *out, tw_error *err);

/* The same for keys and tensors that were parsed already, which must outlive the model. */
int tw_import_gguf_keys(const struct tw_gguf *gguf, struct tw_import_memory *memory,
                        struct tw_model *out, tw_error *err);

/* Imports the vocabulary of a parsed GGUF file whose embedding has h.n_vocab rows (gguf_vocab.c).
 * Leaves model->vocab NULL if there is none or it is of another kind. */
int tw_import_gguf_vocab(const struct tw_gguf *gguf, struct tw_import_memory *memory,
                         struct tw_model *model, tw_error *err);

/* Imports a llama2.c checkpoint, legacy form or version 1 (llama2c.c), without vocabulary. */
int tw_import_llama2c(const char *path, const uint8_t *bytes, uint64_t size,
                      struct tw_import_memory *memory, struct tw_model *out, tw_error *err);

/* Imports the llama2.c tokenizer file of a model with h.n_vocab tokens (llama2c_vocab.c). */
int tw_import_llama2c_vocab(const char *path, const uint8_t *bytes, uint64_t size,
                            struct tw_import_memory *memory, struct tw_model *model, tw_error *err);

#endif
