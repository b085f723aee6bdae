/* SPDX-License-Identifier: Apache-2.0
 *
 * The importers' memory (model_memory.h): small requests are cut from 64 KiB blocks, large ones get
 * a block of their own.
 */
#include "compiler/import/model_memory.h"

#include "tilewright/range.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 65536u

struct tw_import_block {
    struct tw_import_block *next;
    uint64_t used, capacity;
    alignas(max_align_t) unsigned char bytes[];
};

static struct tw_import_block *block_create(struct tw_import_memory *memory, uint64_t bytes) {
    uint64_t capacity = bytes > BLOCK_BYTES / 4 ? bytes : BLOCK_BYTES;
    uint64_t total;
    if (!tw_add_u64(sizeof(struct tw_import_block), capacity, &total) || total > SIZE_MAX) {
        return NULL;
    }
    struct tw_import_block *block = calloc(1, (size_t)total);
    if (!block) {
        return NULL;
    }
    block->capacity = capacity;
    block->next = memory->blocks;
    memory->blocks = block;
    return block;
}

void *tw_import_alloc(struct tw_import_memory *memory, uint64_t count, uint64_t size) {
    uint64_t bytes;
    if (!tw_mul_u64(count, size, &bytes) || !tw_align_u64(bytes, alignof(max_align_t), &bytes)) {
        return NULL;
    }
    struct tw_import_block *block = memory->blocks;
    if (!block || block->capacity - block->used < bytes) {
        block = block_create(memory, bytes);
        if (!block) {
            return NULL;
        }
    }
    void *result = block->bytes + block->used;
    block->used += bytes;
    return result;
}

char *tw_import_text(struct tw_import_memory *memory, const void *bytes, uint64_t length) {
    char *text = length < UINT64_MAX ? tw_import_alloc(memory, length + 1, 1) : NULL;
    if (text && length > 0) {
        memcpy(text, bytes, (size_t)length);
    }
    return text;
}

void tw_import_free(struct tw_import_memory *memory) {
    while (memory->blocks) {
        struct tw_import_block *next = memory->blocks->next;
        free(memory->blocks);
        memory->blocks = next;
    }
}
