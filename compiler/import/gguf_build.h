/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the keys and tensors of a GGUF file in memory, for importers of other formats.
 */
#ifndef TW_COMPILER_IMPORT_GGUF_BUILD_H
#define TW_COMPILER_IMPORT_GGUF_BUILD_H

#include "compiler/import/gguf.h"

/* What is being made; zero-initialise it, but for gguf.path and `memory`. */
struct tw_gguf_build {
    struct tw_gguf gguf;
    struct tw_import_memory *memory;
    const char *architecture;
    uint64_t kv_room, tensor_room;
    bool failed; /* out of memory: tw_gguf_build_finish reports it */
};

/* Append a key. One that begins with a dot gets the architecture before it. */
void tw_gguf_put_uint(struct tw_gguf_build *b, const char *key, uint32_t value);
void tw_gguf_put_float(struct tw_gguf_build *b, const char *key, float value);
void tw_gguf_put_bool(struct tw_gguf_build *b, const char *key, bool value);
void tw_gguf_put_text(struct tw_gguf_build *b, const char *key, const char *value);

/* Appends a tensor; its name is not copied. */
void tw_gguf_put_tensor(struct tw_gguf_build *b, const struct tw_gguf_tensor *tensor);

/* Sorts keys and tensors by name, as struct tw_gguf requires. Errors: NOMEM, FORMAT (a tensor
 * twice). */
int tw_gguf_build_finish(struct tw_gguf_build *b, tw_error *err);

#endif
