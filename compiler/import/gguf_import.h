/* SPDX-License-Identifier: Apache-2.0
 *
 * The import of a container's keys and tensors as a decoder, which gguf_decoder.c and
 * gguf_tensors.c share.
 */
#ifndef TW_COMPILER_IMPORT_GGUF_IMPORT_H
#define TW_COMPILER_IMPORT_GGUF_IMPORT_H

#include "compiler/arch/source.h"
#include "compiler/import/model_memory.h"

struct tw_importer {
    const struct tw_gguf *gguf;
    struct tw_import_memory *memory;
    struct tw_model *model;
    struct tw_arch_source source;
    struct tw_model_tensor *tensors; /* model->tensors, writable */
    bool *used;                      /* by index of gguf->tensors */
    tw_error *err;
};

/* Returns how many bytes of a text are shown in a message. */
static inline int tw_import_shown(uint64_t length) {
    return length < 80 ? (int)length : 80;
}

/* gguf_tensors.c: fills model->tensors, the rotary factors and model->tied from the container's
 * tensors, and refuses those that are left over. Errors: MISSING, SHAPE, UNSUPPORTED, RANGE,
 * FORMAT, NOMEM. */
int tw_import_tensors(struct tw_importer *im);

#endif
