/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of a GGUF file (import.h). Only tokenizer model "llama" (SentencePiece's byte-pair
 * form) becomes a blob; of other models only the size is checked, since such a file can
 * still be run with token ids.
 */
#include "compiler/import/bytes.h"
#include "compiler/import/import.h"
#include "compiler/import/vocab_build.h"

#include <inttypes.h>
#include <string.h>

struct source {
    const struct tw_gguf *gguf;
    const struct tw_gguf_kv *tokens, *scores, *types; /* types may be NULL */
    tw_error *err;
};

static int check_count(const struct source *s, const struct tw_gguf_kv *array, uint32_t n_vocab) {
    if (array && array->count != n_vocab) {
        return tw_fail(s->err, TW_E_SHAPE,
                       "%s: key %s has %" PRIu64
                       " entries, expected %u (the rows of token_embd.weight)",
                       s->gguf->path, array->key, array->count, n_vocab);
    }
    return 0;
}

/* Writers use 0xFFFFFFFF, or -1 in a signed key, for "none". */
static int read_id(const struct source *s, const char *key, uint32_t n_vocab, uint32_t *out) {
    const struct tw_gguf_kv *kv = tw_gguf_find(s->gguf, key);
    uint64_t value = TW_NONE;
    if (kv && (kv->type == TW_GGUF_U32 || kv->type == TW_GGUF_I32) &&
        tw_load_u32(kv->value) == TW_NONE) {
        return 0;
    }
    int rc = tw_gguf_uint(s->gguf, key, false, 0, n_vocab - 1, &value, s->err);
    if (rc == 0) {
        *out = (uint32_t)value;
    }
    return rc;
}

/* Reads a further id that ends a text besides eos: the end of a turn or of a message. */
static int read_end(const struct source *s, const char *key, struct tw_vocab_header *h) {
    uint32_t id = TW_NONE;
    int rc = read_id(s, key, h->n_tokens, &id);
    bool new = id != TW_NONE &&id != h->eos && !(h->n_ends && h->end[0] == id);
    if (rc == 0 && new) {
        h->end[h->n_ends++] = id;
    }
    return rc;
}

static bool is_end(const struct tw_vocab_header *h, uint32_t id) {
    return id == h->eos || (h->n_ends > 0 && id == h->end[0]) || (h->n_ends > 1 && id == h->end[1]);
}

static int read_ids(const struct source *s, struct tw_vocab_header *h) {
    int rc = read_id(s, "tokenizer.ggml.bos_token_id", h->n_tokens, &h->bos);
    rc = rc ? rc : read_id(s, "tokenizer.ggml.eos_token_id", h->n_tokens, &h->eos);
    rc = rc ? rc : read_id(s, "tokenizer.ggml.unknown_token_id", h->n_tokens, &h->unk);
    rc = rc ? rc : read_end(s, "tokenizer.ggml.eot_token_id", h);
    rc = rc ? rc : read_end(s, "tokenizer.ggml.eom_token_id", h);
    return rc ? rc : read_id(s, "tokenizer.ggml.padding_token_id", h->n_tokens, &h->pad);
}

static int read_flags(const struct source *s, struct tw_vocab_header *h) {
    bool bos = true, eos = false, space = true;
    int rc = tw_gguf_bool(s->gguf, "tokenizer.ggml.add_bos_token", &bos, s->err);
    rc = rc ? rc : tw_gguf_bool(s->gguf, "tokenizer.ggml.add_eos_token", &eos, s->err);
    rc = rc ? rc : tw_gguf_bool(s->gguf, "tokenizer.ggml.add_space_prefix", &space, s->err);
    h->flags = (bos ? TW_VOCAB_ADD_BOS : 0u) | (eos ? TW_VOCAB_ADD_EOS : 0u) |
               (space ? TW_VOCAB_SPACE_PREFIX : 0u);
    return rc;
}

/* The stored type; if the file stores none, it is derived from the piece and the special ids. */
static int token_type(const struct source *s, const struct tw_vocab_header *h, uint32_t i,
                      const uint8_t *piece, uint64_t length, enum tw_token_type *out) {
    if (!s->types) {
        *out = i == h->unk                   ? TW_TOKEN_UNKNOWN
               : i == h->bos || is_end(h, i) ? TW_TOKEN_CONTROL
                                             : tw_vocab_guess_type(piece, length);
        return 0;
    }
    int32_t stored = (int32_t)tw_load_u32(s->types->value + (uint64_t)i * 4);
    if (stored < 0 || stored > TW_TOKEN_BYTE) {
        return tw_fail(s->err, TW_E_RANGE, "%s: entry %u of key %s is %d, expected 0 to %d",
                       s->gguf->path, i, s->types->key, stored, TW_TOKEN_BYTE);
    }
    *out = stored == 0 ? TW_TOKEN_NORMAL : (enum tw_token_type)stored; /* 0 is "undefined" */
    return 0;
}

static uint64_t total_bytes(const struct tw_gguf_kv *tokens) {
    const uint8_t *cursor = tokens->value, *text;
    uint64_t total = 0, length;
    for (uint64_t i = 0; i < tokens->count; i++) {
        tw_gguf_next_string(&cursor, &text, &length);
        total += length; /* all of them are in the file: no overflow */
    }
    return total;
}

static int put_tokens(const struct source *s, struct tw_vocab_builder *b) {
    const uint8_t *cursor = s->tokens->value, *text;
    uint64_t length;
    int rc = 0;
    for (uint32_t i = 0; i < b->header->n_tokens && rc == 0; i++) {
        enum tw_token_type type = TW_TOKEN_NORMAL;
        char *piece = NULL;
        tw_gguf_next_string(&cursor, &text, &length);
        rc = token_type(s, b->header, i, text, length, &type);
        rc = rc ? rc
                : tw_vocab_put(b, tw_load_f32(s->scores->value + (uint64_t)i * 4), type, length,
                               &piece, s->err);
        if (rc == 0 && length > 0) {
            memcpy(piece, text, (size_t)length);
        }
    }
    return rc;
}

/* In files without a key for the unknown token it is found by its type. */
static void find_unknown(struct tw_vocab_builder *b) {
    for (uint32_t i = 0; i < b->header->n_tokens && b->header->unk == TW_NONE; i++) {
        if (b->types[i] == TW_TOKEN_UNKNOWN) {
            b->header->unk = i;
        }
    }
}

static int build_spm(struct source *s, struct tw_import_memory *memory, struct tw_model *model) {
    struct tw_vocab_builder b;
    uint32_t n = model->h.n_vocab;
    int rc = tw_gguf_array(s->gguf, "tokenizer.ggml.scores", true, TW_GGUF_F32, &s->scores, s->err);
    rc = rc ? rc
            : tw_gguf_array(s->gguf, "tokenizer.ggml.token_type", false, TW_GGUF_I32, &s->types,
                            s->err);
    rc = rc ? rc : check_count(s, s->scores, n);
    rc = rc ? rc : check_count(s, s->types, n);
    rc = rc ? rc : tw_vocab_begin(&b, s->gguf->path, n, total_bytes(s->tokens), memory, s->err);
    rc = rc ? rc : read_ids(s, b.header);
    rc = rc ? rc : read_flags(s, b.header);
    rc = rc ? rc : put_tokens(s, &b);
    if (rc) {
        return rc;
    }
    find_unknown(&b);
    return tw_vocab_finish(&b, model, s->err);
}

int tw_import_gguf_vocab(const struct tw_gguf *gguf, struct tw_import_memory *memory,
                         struct tw_model *model, tw_error *err) {
    struct source s = {.gguf = gguf, .err = err};
    const char *kind = NULL;
    uint64_t length = 0;
    int rc = tw_gguf_string(gguf, "tokenizer.ggml.model", false, &kind, &length, err);
    if (rc || !kind) {
        return rc;
    }
    bool spm = length == 5 && memcmp(kind, "llama", 5) == 0;
    rc = tw_gguf_array(gguf, "tokenizer.ggml.tokens", spm, TW_GGUF_STRING, &s.tokens, err);
    rc = rc ? rc : check_count(&s, s.tokens, model->h.n_vocab);
    return rc || !spm ? rc : build_spm(&s, memory, model);
}
