/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of one imported model: everything an importer allocates is in one of these and is
 * freed at once, so error paths need not free pieces one by one.
 */
#ifndef TW_COMPILER_IMPORT_MODEL_MEMORY_H
#define TW_COMPILER_IMPORT_MODEL_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct tw_import_block;

/* Zero-initialise it. */
struct tw_import_memory {
    struct tw_import_block *blocks; /* newest first; small requests are cut from the newest */
};

/* Returns `count` zeroed elements of `size` bytes, aligned for any type; NULL if the size overflows
 * or memory ran out. */
void *tw_import_alloc(struct tw_import_memory *memory, uint64_t count, uint64_t size);

/* Returns a terminated copy of `length` bytes, or NULL. */
char *tw_import_text(struct tw_import_memory *memory, const void *bytes, uint64_t length);

/* Frees everything and leaves an empty memory. */
void tw_import_free(struct tw_import_memory *memory);

#endif
