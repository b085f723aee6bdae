/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of a GGUF file (import.h): tokenizer models "llama" (SentencePiece's byte-pair
 * form), "gpt2" (byte-level BPE, with a pre-tokenizer that is known by name) and "t5" (unigram)
 * become a blob. Of others only the size is checked, and model->tokenizer_problem says what is
 * missing, since such a file can still be run with token ids.
 */
#include "compiler/import/bytes.h"
#include "compiler/import/import.h"
#include "compiler/import/vocab_build.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHOWN 24 /* bytes of a name in a message */

struct pre {
    const char *name;
    bool ignores_merges, adds_bos;
};

static const struct pre known_pre[] = {
#define TW_X(name, family, ignores_merges, adds_bos) {name, ignores_merges, adds_bos},
    TW_PRETOKENIZERS(TW_X)
#undef TW_X
};

struct source {
    const struct tw_gguf *gguf;
    enum tw_vocab_kind kind;
    const struct pre *pre; /* BYTE_BPE only */
    /* all but tokens may be NULL */
    const struct tw_gguf_kv *tokens, *scores, *types, *merges, *charsmap;
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

/* ---- ids and flags ---- */

/* Writers use 0xFFFFFFFF, or -1 in a signed key, for "none". */
static int read_id(const struct source *s, const char *key, uint32_t n_vocab, uint32_t *out) {
    const struct tw_gguf_kv *kv = tw_gguf_find(s->gguf, key);
    uint64_t value = TW_NONE;
    if (kv && (kv->type == TW_GGUF_U32 || kv->type == TW_GGUF_I32) &&
        tw_load_u32(kv->value) == TW_NONE) {
        return 0;
    }
    int rc = tw_gguf_uint(s->gguf, key, false, 0, n_vocab - 1, &value, s->err);
    if (rc == 0 && value != TW_NONE) {
        *out = (uint32_t)value;
    }
    return rc;
}

static int read_specials(const struct source *s, struct tw_vocab_builder *b) {
    static const struct {
        const char *key;
        enum tw_vocab_special special;
    } keys[] = {
        {"tokenizer.ggml.eot_token_id", TW_SPECIAL_EOT},
        {"tokenizer.ggml.eom_token_id", TW_SPECIAL_EOM},
        {"tokenizer.ggml.seperator_token_id", TW_SPECIAL_SEP}, /* so spelt */
        {"tokenizer.ggml.mask_token_id", TW_SPECIAL_MASK},
        {"tokenizer.ggml.fim_pre_token_id", TW_SPECIAL_FIM_PREFIX},
        {"tokenizer.ggml.prefix_token_id", TW_SPECIAL_FIM_PREFIX},
        {"tokenizer.ggml.fim_suf_token_id", TW_SPECIAL_FIM_SUFFIX},
        {"tokenizer.ggml.suffix_token_id", TW_SPECIAL_FIM_SUFFIX},
        {"tokenizer.ggml.fim_mid_token_id", TW_SPECIAL_FIM_MIDDLE},
        {"tokenizer.ggml.middle_token_id", TW_SPECIAL_FIM_MIDDLE},
        {"tokenizer.ggml.fim_pad_token_id", TW_SPECIAL_FIM_PAD},
        {"tokenizer.ggml.fim_rep_token_id", TW_SPECIAL_FIM_REPO},
        {"tokenizer.ggml.fim_sep_token_id", TW_SPECIAL_FIM_SEP},
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && rc == 0; i++) {
        uint32_t id = TW_NONE;
        rc = read_id(s, keys[i].key, b->header->n_tokens, &id);
        uint32_t *special = &b->extra->special[keys[i].special];
        *special = *special == TW_NONE ? id : *special;
    }
    return rc;
}

static int read_ids(const struct source *s, struct tw_vocab_builder *b) {
    struct tw_vocab_header *h = b->header;
    int rc = read_id(s, "tokenizer.ggml.bos_token_id", h->n_tokens, &h->bos);
    rc = rc ? rc : read_id(s, "tokenizer.ggml.eos_token_id", h->n_tokens, &h->eos);
    rc = rc ? rc : read_id(s, "tokenizer.ggml.unknown_token_id", h->n_tokens, &h->unk);
    rc = rc ? rc : read_id(s, "tokenizer.ggml.padding_token_id", h->n_tokens, &h->pad);
    rc = rc ? rc : read_specials(s, b);
    tw_vocab_add_end(b, b->extra->special[TW_SPECIAL_EOT]);
    tw_vocab_add_end(b, b->extra->special[TW_SPECIAL_EOM]);
    return rc;
}

/* Further ids that end a text, if the file lists them itself. */
static int read_ends(const struct source *s, struct tw_vocab_builder *b) {
    const struct tw_gguf_kv *list = tw_gguf_find(s->gguf, "tokenizer.ggml.eog_token_ids");
    bool known = list && list->type == TW_GGUF_ARRAY &&
                 (list->elem_type == TW_GGUF_U32 || list->elem_type == TW_GGUF_I32);
    for (uint64_t i = 0; known && i < list->count; i++) {
        uint32_t id = tw_load_u32(list->value + 4 * i);
        if (id >= b->header->n_tokens && id != TW_NONE) {
            return tw_fail(s->err, TW_E_RANGE,
                           "%s: entry %" PRIu64 " of key %s is %u, expected below %u",
                           s->gguf->path, i, list->key, id, b->header->n_tokens);
        }
        tw_vocab_add_end(b, id);
    }
    return 0;
}

static int read_flags(const struct source *s, struct tw_vocab_header *h) {
    bool spm = s->kind == TW_VOCAB_SPM_BPE, unigram = s->kind == TW_VOCAB_UNIGRAM;
    bool bos = spm || (s->pre && s->pre->adds_bos), eos = unigram, space = spm || unigram;
    bool squeeze = false, suffix = false, escape = true;
    int rc = tw_gguf_bool(s->gguf, "tokenizer.ggml.add_bos_token", &bos, s->err);
    rc = rc ? rc : tw_gguf_bool(s->gguf, "tokenizer.ggml.add_eos_token", &eos, s->err);
    if (spm || unigram) {
        rc = rc ? rc : tw_gguf_bool(s->gguf, "tokenizer.ggml.add_space_prefix", &space, s->err);
        rc =
            rc ? rc
               : tw_gguf_bool(s->gguf, "tokenizer.ggml.remove_extra_whitespaces", &squeeze, s->err);
        rc = rc ? rc
                : tw_gguf_bool(s->gguf, "tokenizer.ggml.treat_whitespace_as_suffix", &suffix,
                               s->err);
        rc = rc ? rc : tw_gguf_bool(s->gguf, "tokenizer.ggml.escape_whitespaces", &escape, s->err);
    }
    h->flags = (bos ? TW_VOCAB_ADD_BOS : 0u) | (eos ? TW_VOCAB_ADD_EOS : 0u) |
               (space ? TW_VOCAB_SPACE_PREFIX : 0u) | (squeeze ? TW_VOCAB_SQUEEZE : 0u) |
               (suffix ? TW_VOCAB_SPACE_SUFFIX : 0u) | (escape ? 0u : TW_VOCAB_PLAIN_SPACES) |
               (s->pre && s->pre->ignores_merges ? TW_VOCAB_IGNORE_MERGES : 0u);
    return rc;
}

/* ---- tokens ---- */

static bool is_end(const struct tw_vocab_builder *b, uint32_t id) {
    bool end = id == b->header->eos;
    for (uint32_t i = 0; i < b->extra->n_ends; i++) {
        end = end || id == b->ends[i];
    }
    return end;
}

/* The stored type; if the file stores none, it is derived from the piece and the special ids. */
static int token_type(const struct source *s, const struct tw_vocab_builder *b, uint32_t i,
                      const uint8_t *piece, uint64_t length, enum tw_token_type *out) {
    const struct tw_vocab_header *h = b->header;
    if (!s->types) {
        bool bytes = s->kind != TW_VOCAB_BYTE_BPE;
        *out = i == h->unk                   ? TW_TOKEN_UNKNOWN
               : i == h->bos || is_end(b, i) ? TW_TOKEN_CONTROL
               : bytes                       ? tw_vocab_guess_type(piece, length)
                                             : TW_TOKEN_NORMAL;
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

/* Bytes of a piece in the blob: of byte-level BPE those that it stands for, unless it is special
 * and so spelled as it is. */
static uint64_t put_bytes(const struct source *s, enum tw_token_type type, const uint8_t *text,
                          uint64_t length, char *out) {
    bool mapped =
        s->kind == TW_VOCAB_BYTE_BPE && (type == TW_TOKEN_NORMAL || type == TW_TOKEN_UNUSED);
    if (mapped) {
        return tw_vocab_unmap_bytes(text, length, out);
    }
    memcpy(out, text, (size_t)length);
    return length;
}

static int put_tokens(const struct source *s, struct tw_vocab_builder *b) {
    const uint8_t *cursor = s->tokens->value, *text;
    uint64_t length;
    int rc = 0;
    for (uint32_t i = 0; i < b->header->n_tokens && rc == 0; i++) {
        enum tw_token_type type = TW_TOKEN_NORMAL;
        char *piece = NULL;
        float score = s->scores ? tw_load_f32(s->scores->value + (uint64_t)i * 4) : 0.0f;
        tw_gguf_next_string(&cursor, &text, &length);
        rc = token_type(s, b, i, text, length, &type);
        rc = rc ? rc : tw_vocab_put(b, score, type, length, &piece, s->err);
        if (rc == 0 && length > 0) {
            uint64_t used = put_bytes(s, type, text, length, piece);
            b->offsets[i + 1] -= (uint32_t)(length - used);
        }
    }
    return rc;
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

/* In files without a key for the unknown token it is found by its type. */
static void find_unknown(struct tw_vocab_builder *b) {
    for (uint32_t i = 0; i < b->header->n_tokens && b->header->unk == TW_NONE; i++) {
        if (b->types[i] == TW_TOKEN_UNKNOWN) {
            b->header->unk = i;
        }
    }
}

/* Phi-3's special tokens take the white space that follows with them, which GGUF does not say: it
 * is known by the model's name. */
static void mark_phi3(const struct source *s, struct tw_vocab_builder *b) {
    const char *name = NULL;
    char lower[64] = "";
    uint64_t length = 0;
    if (tw_gguf_string(s->gguf, "general.name", false, &name, &length, NULL) || !name) {
        return;
    }
    for (uint64_t i = 0; i < length && i + 1 < sizeof lower; i++) {
        lower[i] = (char)tolower((unsigned char)name[i]);
    }
    if (!strstr(lower, "phi-3") && !strstr(lower, "phi3")) {
        return;
    }
    for (uint32_t i = 0; i < b->header->n_tokens; i++) {
        const char *piece = b->bytes + b->offsets[i];
        uint32_t n = b->offsets[i + 1] - b->offsets[i];
        bool control = b->types[i] == TW_TOKEN_CONTROL || b->types[i] == TW_TOKEN_USER_DEFINED;
        bool plain = (n == 5 && memcmp(piece, "<unk>", 5) == 0) ||
                     (n == 3 && memcmp(piece, "<s>", 3) == 0) ||
                     (n == 13 && memcmp(piece, "<|endoftext|>", 13) == 0);
        b->types[i] |= control && !plain ? TW_TOKEN_RSTRIP : 0;
    }
}

/* ---- merges ---- */

#define PART_BYTES_MAX 1024u

static int bad_merge(const struct source *s, uint64_t number, const char *why, const uint8_t *text,
                     uint64_t length) {
    return tw_fail(s->err, TW_E_FORMAT, "%s: entry %" PRIu64 " of key %s, \"%.*s\", %s",
                   s->gguf->path, number, s->merges->key, (int)(length < 80 ? length : 80), text,
                   why);
}

/* Resolves one merge: two parts with a space between them, which, like the two together, are
 * tokens. */
static int put_merge(const struct source *s, struct tw_vocab_builder *b, uint64_t number,
                     const uint8_t *text, uint64_t length) {
    struct tw_vocab_merge *merge = &b->merges[number];
    char bytes[2 * PART_BYTES_MAX];
    const uint8_t *space = length > 1 ? memchr(text + 1, ' ', (size_t)length - 1) : NULL;
    if (!space || space + 1 == text + length) {
        return bad_merge(s, number, "is not two parts with a space between them", text, length);
    }
    uint64_t left = (uint64_t)(space - text), right = length - left - 1;
    if (left > PART_BYTES_MAX || right > PART_BYTES_MAX) {
        return bad_merge(s, number, "has a part of more than 1024 bytes", text, length);
    }
    left = tw_vocab_unmap_bytes(text, left, bytes);
    right = tw_vocab_unmap_bytes(space + 1, right, bytes + left);
    int rc = tw_vocab_find(b, bytes, left, &merge->left, s->err);
    rc = rc ? rc : tw_vocab_find(b, bytes + left, right, &merge->right, s->err);
    rc = rc ? rc : tw_vocab_find(b, bytes, left + right, &merge->merged, s->err);
    if (rc == 0 &&
        (merge->left == TW_NONE || merge->right == TW_NONE || merge->merged == TW_NONE)) {
        rc = bad_merge(s, number, "names parts that, alone or together, are not tokens", text,
                       length);
    }
    return rc;
}

static int put_merges(const struct source *s, struct tw_vocab_builder *b) {
    const uint8_t *cursor = s->merges->value, *text;
    uint64_t length;
    int rc = 0;
    for (uint64_t i = 0; i < s->merges->count && rc == 0; i++) {
        tw_gguf_next_string(&cursor, &text, &length);
        rc = put_merge(s, b, i, text, length);
    }
    return rc;
}

/* ---- the whole ---- */

/* SentencePiece's table of normalisations, as bytes of either sign. */
static int read_charsmap(struct source *s) {
    const struct tw_gguf_kv *kv = tw_gguf_find(s->gguf, "tokenizer.ggml.precompiled_charsmap");
    if (s->kind != TW_VOCAB_UNIGRAM || !kv) {
        return 0;
    }
    if (kv->type != TW_GGUF_ARRAY || (kv->elem_type != TW_GGUF_U8 && kv->elem_type != TW_GGUF_I8)) {
        return tw_fail(s->err, TW_E_FORMAT, "%s: key %s is not an array of bytes", s->gguf->path,
                       kv->key);
    }
    s->charsmap = kv;
    return 0;
}

static int read_arrays(struct source *s, uint32_t n) {
    bool scored = s->kind != TW_VOCAB_BYTE_BPE;
    int rc = 0;
    if (scored) {
        rc = tw_gguf_array(s->gguf, "tokenizer.ggml.scores", true, TW_GGUF_F32, &s->scores, s->err);
    } else {
        rc = tw_gguf_array(s->gguf, "tokenizer.ggml.merges", true, TW_GGUF_STRING, &s->merges,
                           s->err);
    }
    rc = rc ? rc
            : tw_gguf_array(s->gguf, "tokenizer.ggml.token_type", false, TW_GGUF_I32, &s->types,
                            s->err);
    rc = rc ? rc : read_charsmap(s);
    rc = rc ? rc : check_count(s, s->scores, n);
    return rc ? rc : check_count(s, s->types, n);
}

static int fill(const struct source *s, struct tw_vocab_builder *b) {
    int rc = read_ids(s, b);
    rc = rc ? rc : read_flags(s, b->header);
    rc = rc ? rc : read_ends(s, b);
    rc = rc ? rc : put_tokens(s, b);
    if (rc) {
        return rc;
    }
    find_unknown(b);
    rc = s->merges ? put_merges(s, b) : 0;
    rc = rc ? rc : tw_vocab_add_known_names(b, s->err);
    mark_phi3(s, b);
    return rc;
}

static int build(struct source *s, struct tw_import_memory *memory, struct tw_model *model) {
    struct tw_vocab_builder b;
    uint32_t n = model->h.n_vocab;
    int rc = read_arrays(s, n);
    if (rc) {
        return rc;
    }
    struct tw_vocab_sizes sizes = {.kind = s->kind,
                                   .n_tokens = n,
                                   .bytes = total_bytes(s->tokens),
                                   .n_merges = s->merges ? s->merges->count : 0,
                                   .charsmap_bytes = s->charsmap ? s->charsmap->count : 0};
    rc = tw_vocab_begin(&b, s->gguf->path, &sizes, memory, s->err);
    if (rc == 0 && s->pre) {
        snprintf(b.extra->pre, sizeof b.extra->pre, "%s", s->pre->name);
    }
    if (rc == 0 && s->charsmap) {
        memcpy(b.charsmap, s->charsmap->value, (size_t)s->charsmap->count);
    }
    rc = rc ? rc : fill(s, &b);
    return rc ? rc : tw_vocab_finish(&b, model, s->err);
}

/* Returns the kind of the tokenizer model of that name, or NONE. */
static enum tw_vocab_kind kind_of(const char *name, uint64_t length) {
    static const struct {
        const char *name;
        enum tw_vocab_kind kind;
    } kinds[] = {
        {"llama", TW_VOCAB_SPM_BPE}, {"gpt2", TW_VOCAB_BYTE_BPE}, {"t5", TW_VOCAB_UNIGRAM}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strlen(kinds[i].name) == length && memcmp(kinds[i].name, name, (size_t)length) == 0) {
            return kinds[i].kind;
        }
    }
    return TW_VOCAB_NONE;
}

static int set_problem(struct tw_import_memory *memory, struct tw_model *model, const char *format,
                       const char *name, uint64_t length, tw_error *err) {
    char text[256];
    int n = snprintf(text, sizeof text, format, (int)(length < SHOWN ? length : SHOWN), name);
    model->tokenizer_problem = tw_import_text(memory, text, n < 0 ? 0 : strlen(text));
    return model->tokenizer_problem ? 0 : tw_fail(err, TW_E_NOMEM, "vocabulary: out of memory");
}

/* Finds the pre-tokenizer of byte-level BPE. If it is missing or unknown the words would be cut in
 * the wrong places: then *known is false. */
static int find_pre(struct source *s, struct tw_import_memory *memory, struct tw_model *model,
                    bool *known) {
    const char *name = NULL;
    uint64_t length = 0;
    int rc = tw_gguf_string(s->gguf, "tokenizer.ggml.pre", false, &name, &length, s->err);
    *known = false;
    if (rc) {
        return rc;
    }
    if (!name) {
        return set_problem(memory, model,
                           "key tokenizer.ggml.pre is missing, so it is not known how to cut text "
                           "into words: convert the model with a current converter%.*s",
                           "", 0, s->err);
    }
    for (size_t i = 0; i < sizeof known_pre / sizeof *known_pre && !*known; i++) {
        *known = strlen(known_pre[i].name) == length &&
                 memcmp(known_pre[i].name, name, (size_t)length) == 0;
        s->pre = &known_pre[i];
    }
    return *known ? 0
                  : set_problem(memory, model,
                                "key tokenizer.ggml.pre is \"%.*s\", expected default gpt-2 "
                                "llama-bpe qwen2 qwen35 starcoder falcon deepseek-llm/-coder/-v3 "
                                "tekken gpt-4o seed-coder bailingmoe bloom viking",
                                name, length, s->err);
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
    s.kind = kind_of(kind, length);
    rc = tw_gguf_array(gguf, "tokenizer.ggml.tokens", s.kind != TW_VOCAB_NONE, TW_GGUF_STRING,
                       &s.tokens, err);
    rc = rc ? rc : check_count(&s, s.tokens, model->h.n_vocab);
    bool known = s.kind != TW_VOCAB_NONE;
    if (rc == 0 && !known) {
        rc = set_problem(memory, model,
                         "key tokenizer.ggml.model is \"%.*s\", expected \"llama\" "
                         "(SentencePiece), \"gpt2\" (byte-level BPE) or \"t5\" (unigram)",
                         kind, length, err);
    }
    if (rc == 0 && s.kind == TW_VOCAB_BYTE_BPE) {
        rc = find_pre(&s, memory, model, &known);
    }
    return rc || !known ? rc : build(&s, memory, model);
}
