/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and tensors of a GGUF file, made in memory (gguf_build.h).
 */
#include "compiler/import/gguf_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns a table with room for one more entry, or NULL. */
static void *grow(struct tw_gguf_build *b, void *table, uint64_t n, uint64_t *room, uint64_t size) {
    if (n < *room) {
        return table;
    }
    uint64_t wanted = *room ? *room * 2 : 64;
    void *larger = tw_import_alloc(b->memory, wanted, size);
    if (!larger) {
        b->failed = true;
        return NULL;
    }
    if (n) {
        memcpy(larger, table, (size_t)(n * size));
    }
    *room = wanted;
    return larger;
}

static void put(struct tw_gguf_build *b, const char *key, enum tw_gguf_type type, const void *value,
                uint64_t bytes) {
    char name[160];
    snprintf(name, sizeof name, "%s%s", *key == '.' ? b->architecture : "", key);
    struct tw_gguf_kv *table = grow(b, b->gguf.kv, b->gguf.n_kv, &b->kv_room, sizeof *table);
    const char *copy = tw_import_text(b->memory, name, strlen(name)),
               *data = tw_import_text(b->memory, value, bytes);
    if (!table || !copy || !data) {
        b->failed = true;
        return;
    }
    b->gguf.kv = table;
    table[b->gguf.n_kv++] = (struct tw_gguf_kv){.key = copy,
                                                .value = (const uint8_t *)data,
                                                .count = type == TW_GGUF_STRING ? bytes : 1,
                                                .type = type};
}

static void put_u32(struct tw_gguf_build *b, const char *key, enum tw_gguf_type type,
                    uint32_t value) {
    uint8_t bytes[4] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
                        (uint8_t)(value >> 24)};
    put(b, key, type, bytes, sizeof bytes);
}

void tw_gguf_put_uint(struct tw_gguf_build *b, const char *key, uint32_t value) {
    put_u32(b, key, TW_GGUF_U32, value);
}

void tw_gguf_put_float(struct tw_gguf_build *b, const char *key, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_u32(b, key, TW_GGUF_F32, bits);
}

void tw_gguf_put_bool(struct tw_gguf_build *b, const char *key, bool value) {
    uint8_t byte = value ? 1 : 0;
    put(b, key, TW_GGUF_BOOL, &byte, 1);
}

void tw_gguf_put_text(struct tw_gguf_build *b, const char *key, const char *value) {
    put(b, key, TW_GGUF_STRING, value, strlen(value));
}

void tw_gguf_put_tensor(struct tw_gguf_build *b, const struct tw_gguf_tensor *tensor) {
    struct tw_gguf_tensor *table =
        grow(b, b->gguf.tensors, b->gguf.n_tensors, &b->tensor_room, sizeof *table);
    if (table) {
        b->gguf.tensors = table;
        table[b->gguf.n_tensors++] = *tensor;
    }
}

int tw_gguf_build_finish(struct tw_gguf_build *b, tw_error *err) {
    struct tw_gguf *g = &b->gguf;
    if (b->failed) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for its keys and tensors", g->path);
    }
    (void)tw_gguf_sort_keys(g); /* an importer puts each key once */
    const struct tw_gguf_tensor *twice = tw_gguf_sort_tensors(g);
    return twice
               ? tw_fail(err, TW_E_FORMAT, "%s: there are two tensors for %s", g->path, twice->name)
               : 0;
}
