/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds small GGUF files for tests: starts from a complete two-layer llama, lets a test change one
 * key or tensor, and writes the file. It shares no code with the importer.
 */
#ifndef TW_TESTS_COMPILER_IMPORT_KIT_H
#define TW_TESTS_COMPILER_IMPORT_KIT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIT_DIM 32u
#define KIT_HIDDEN 64u
#define KIT_LAYERS 2u
#define KIT_HEADS 4u
#define KIT_KV_HEADS 2u
#define KIT_KV_DIM 16u
#define KIT_VOCAB 9u

struct kit_kv {
    char key[80];
    uint32_t type;
    uint8_t value[512];
    size_t bytes;
};

struct kit_tensor {
    char name[80];
    uint32_t type, n_dims;
    uint64_t dims[5];
    uint64_t bytes;
    const void *data; /* NULL: a pattern */
};

struct kit {
    uint32_t version;
    uint64_t alignment;
    struct kit_kv kv[64];
    size_t n_kv;
    struct kit_tensor tensors[64];
    size_t n_tensors;
    int64_t kv_count_error, tensor_count_error; /* added to the counts in the header */
    uint8_t *file;                              /* made by kit_write */
    size_t size, capacity;
};

/* ---- bytes ---- */

static inline void kit_put(struct kit *k, const void *bytes, size_t n) {
    if (k->size + n > k->capacity) {
        k->capacity = (k->size + n) * 2;
        k->file = realloc(k->file, k->capacity);
        if (!k->file) {
            abort();
        }
    }
    if (n > 0) {
        memcpy(k->file + k->size, bytes, n);
    }
    k->size += n;
}

static inline void kit_put_int(struct kit *k, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)(value >> (8 * i));
        kit_put(k, &byte, 1);
    }
}

static inline void kit_put_text(struct kit *k, const char *text) {
    kit_put_int(k, strlen(text), 8);
    kit_put(k, text, strlen(text));
}

static inline void kit_pad(struct kit *k, uint64_t alignment) {
    while (k->size % alignment != 0) {
        kit_put_int(k, 0, 1);
    }
}

/* ---- keys ---- */

static inline void kit_drop(struct kit *k, const char *key) {
    for (size_t i = 0; i < k->n_kv; i++) {
        if (strcmp(k->kv[i].key, key) == 0) {
            memmove(&k->kv[i], &k->kv[i + 1], (k->n_kv - i - 1) * sizeof k->kv[0]);
            k->n_kv--;
            return;
        }
    }
}

static inline void kit_raw(struct kit *k, const char *key, uint32_t type, const void *value,
                           size_t bytes) {
    kit_drop(k, key);
    struct kit_kv *kv = &k->kv[k->n_kv++];
    if (k->n_kv > 64 || bytes > sizeof kv->value || strlen(key) >= sizeof kv->key) {
        abort();
    }
    strcpy(kv->key, key);
    kv->type = type;
    memcpy(kv->value, value, bytes);
    kv->bytes = bytes;
}

/* All integer types share their low bytes. */
static inline void kit_int(struct kit *k, const char *key, uint32_t type, int64_t value) {
    static const uint8_t bytes[13] = {1, 1, 2, 2, 4, 4, 0, 1, 0, 0, 8, 8, 0};
    uint8_t raw[8];
    for (unsigned i = 0; i < 8; i++) {
        raw[i] = (uint8_t)((uint64_t)value >> (8 * i));
    }
    kit_raw(k, key, type, raw, bytes[type]);
}
static inline void kit_u32(struct kit *k, const char *key, uint32_t value) {
    kit_int(k, key, 4, value);
}
static inline void kit_bool(struct kit *k, const char *key, int value) {
    kit_int(k, key, 7, value);
}
static inline void kit_f32(struct kit *k, const char *key, float value) {
    kit_raw(k, key, 6, &value, sizeof value);
}
static inline void kit_string(struct kit *k, const char *key, const char *text) {
    struct kit value = {0};
    kit_put_text(&value, text);
    kit_raw(k, key, 8, value.file, value.size);
    free(value.file);
}
static inline void kit_array(struct kit *k, const char *key, uint32_t elem_type, uint64_t count,
                             const void *elements, size_t bytes) {
    struct kit value = {0};
    kit_put_int(&value, elem_type, 4);
    kit_put_int(&value, count, 8);
    kit_put(&value, elements, bytes);
    kit_raw(k, key, 9, value.file, value.size);
    free(value.file);
}
static inline void kit_strings(struct kit *k, const char *key, const char *const *texts,
                               size_t count) {
    struct kit value = {0};
    for (size_t i = 0; i < count; i++) {
        kit_put_text(&value, texts[i]);
    }
    kit_array(k, key, 8, count, value.file, value.size);
    free(value.file);
}

/* ---- tensors ---- */

static inline void kit_drop_tensor(struct kit *k, const char *name) {
    for (size_t i = 0; i < k->n_tensors; i++) {
        if (strcmp(k->tensors[i].name, name) == 0) {
            memmove(&k->tensors[i], &k->tensors[i + 1],
                    (k->n_tensors - i - 1) * sizeof k->tensors[0]);
            k->n_tensors--;
            return;
        }
    }
}

static inline void kit_append_tensor(struct kit *k, const char *name, uint32_t type,
                                     uint32_t n_dims, uint64_t d0, uint64_t d1) {
    /* bytes per 32-element block of the types that the tests use */
    uint64_t block = type == 0                 ? 128
                     : type == 1 || type == 30 ? 64
                     : type == 8               ? 34
                     : type == 24              ? 32
                                               : 18;
    struct kit_tensor *t = &k->tensors[k->n_tensors++];
    if (k->n_tensors > 64 || strlen(name) >= sizeof t->name) {
        abort();
    }
    *t = (struct kit_tensor){.type = type, .n_dims = n_dims, .dims = {d0, d1, 1, 1, 1}};
    strcpy(t->name, name);
    t->bytes = type == 0 ? d0 * d1 * 4 : d0 * d1 / 32 * block;
}

/* Replaces the tensor of that name. d1 = 1: a vector. */
static inline void kit_tensor(struct kit *k, const char *name, uint32_t type, uint64_t d0,
                              uint64_t d1) {
    kit_drop_tensor(k, name);
    kit_append_tensor(k, name, type, d1 == 1 ? 1 : 2, d0, d1);
}

/* ---- whole files ---- */

static inline void kit_layer(struct kit *k, unsigned layer) {
    static const struct {
        const char *name;
        uint64_t d0, d1;
    } parts[] = {
        {"attn_norm", KIT_DIM, 1},         {"attn_q", KIT_DIM, KIT_DIM},
        {"attn_k", KIT_DIM, KIT_KV_DIM},   {"attn_v", KIT_DIM, KIT_KV_DIM},
        {"attn_output", KIT_DIM, KIT_DIM}, {"ffn_norm", KIT_DIM, 1},
        {"ffn_gate", KIT_DIM, KIT_HIDDEN}, {"ffn_up", KIT_DIM, KIT_HIDDEN},
        {"ffn_down", KIT_HIDDEN, KIT_DIM},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, parts[i].name);
        kit_tensor(k, name, 0, parts[i].d0, parts[i].d1);
    }
}

static inline void kit_tokens(struct kit *k) {
    static const char *const pieces[KIT_VOCAB] = {"<unk>", "<s>", "</s>", "<0x0A>", "\xE2\x96\x81",
                                                  "a",     "b",   "ab",   ""};
    static const float scores[KIT_VOCAB] = {0, 0, 0, 0, -1, -2, -3, -0.5f, -9};
    static const int32_t types[KIT_VOCAB] = {2, 3, 3, 6, 1, 1, 4, 1, 5};
    kit_string(k, "tokenizer.ggml.model", "llama");
    kit_strings(k, "tokenizer.ggml.tokens", pieces, KIT_VOCAB);
    kit_array(k, "tokenizer.ggml.scores", 6, KIT_VOCAB, scores, sizeof scores);
    kit_array(k, "tokenizer.ggml.token_type", 5, KIT_VOCAB, types, sizeof types);
    kit_u32(k, "tokenizer.ggml.bos_token_id", 1);
    kit_u32(k, "tokenizer.ggml.eos_token_id", 2);
    kit_u32(k, "tokenizer.ggml.unknown_token_id", 0);
}

/* A complete model; `k` must be zeroed or fresh from kit_free. */
static inline void kit_llama(struct kit *k) {
    *k = (struct kit){.version = 3, .alignment = 32};
    kit_string(k, "general.architecture", "llama");
    kit_string(k, "general.name", "kit");
    kit_string(k, "general.license", "CC0-1.0");
    kit_u32(k, "llama.context_length", 128);
    kit_u32(k, "llama.embedding_length", KIT_DIM);
    kit_u32(k, "llama.block_count", KIT_LAYERS);
    kit_u32(k, "llama.feed_forward_length", KIT_HIDDEN);
    kit_u32(k, "llama.attention.head_count", KIT_HEADS);
    kit_u32(k, "llama.attention.head_count_kv", KIT_KV_HEADS);
    kit_f32(k, "llama.attention.layer_norm_rms_epsilon", 1e-6f);
    kit_tokens(k);
    kit_tensor(k, "token_embd.weight", 0, KIT_DIM, KIT_VOCAB);
    kit_tensor(k, "output_norm.weight", 0, KIT_DIM, 1);
    kit_tensor(k, "output.weight", 0, KIT_DIM, KIT_VOCAB);
    for (unsigned layer = 0; layer < KIT_LAYERS; layer++) {
        kit_layer(k, layer);
    }
}

static inline void kit_put_data(struct kit *k, const struct kit_tensor *t) {
    kit_pad(k, k->alignment);
    if (t->data) {
        kit_put(k, t->data, (size_t)t->bytes);
        return;
    }
    for (uint64_t i = 0; i < t->bytes; i++) {
        kit_put_int(k, i * 7 + t->bytes, 1);
    }
}

/* Writes k->file again. */
static inline void kit_write(struct kit *k) {
    uint64_t offset = 0;
    k->size = 0;
    kit_put(k, "GGUF", 4);
    kit_put_int(k, k->version, 4);
    kit_put_int(k, k->n_tensors + (uint64_t)k->tensor_count_error, 8);
    kit_put_int(k, k->n_kv + (uint64_t)k->kv_count_error, 8);
    for (size_t i = 0; i < k->n_kv; i++) {
        kit_put_text(k, k->kv[i].key);
        kit_put_int(k, k->kv[i].type, 4);
        kit_put(k, k->kv[i].value, k->kv[i].bytes);
    }
    for (size_t i = 0; i < k->n_tensors; i++) {
        const struct kit_tensor *t = &k->tensors[i];
        offset = (offset + k->alignment - 1) / k->alignment * k->alignment;
        kit_put_text(k, t->name);
        kit_put_int(k, t->n_dims, 4);
        for (uint32_t d = 0; d < t->n_dims; d++) {
            kit_put_int(k, t->dims[d], 8);
        }
        kit_put_int(k, t->type, 4);
        kit_put_int(k, offset, 8);
        offset += t->bytes;
    }
    for (size_t i = 0; i < k->n_tensors; i++) {
        kit_put_data(k, &k->tensors[i]);
    }
}

static inline void kit_free(struct kit *k) {
    free(k->file);
    *k = (struct kit){0};
}

#endif
