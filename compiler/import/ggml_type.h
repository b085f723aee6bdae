/* SPDX-License-Identifier: Apache-2.0
 *
 * The element types of GGUF tensors, by number: names for messages, block sizes for range checks,
 * and which of them are supported.
 */
#ifndef TW_COMPILER_IMPORT_GGML_TYPE_H
#define TW_COMPILER_IMPORT_GGML_TYPE_H

#include <stdint.h>

struct tw_ggml_type {
    const char *name; /* "Q4_K" */
    /* 0: the type was removed from the format or has no published block */
    uint32_t block_elems, block_bytes;
    int dtype; /* enum tw_dtype, or -1 if not supported */
};

/* Returns the type of that number, or NULL if the number was never assigned. */
const struct tw_ggml_type *tw_ggml_type_of(uint32_t number);

#endif
