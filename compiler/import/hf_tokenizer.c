/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers of Hugging Face's model folders (hf_tokenizer.h): the pieces of `model` and
 * `added_tokens` are sorted by id into a list, which then becomes a blob; the steps around the
 * model are read by hf_parts.c.
 */
#include "compiler/import/hf_tokenizer.h"

#include "compiler/import/hf_chat.h"
#include "compiler/import/hf_parts.h"
#include "compiler/import/json_read.h"
#include "compiler/import/vocab_build.h"

#include <inttypes.h>
#include <sodium/utils.h>
#include <stdio.h>
#include <string.h>

#define PART_BYTES_MAX 1024u

/* A token by its id; text NULL: there is none with that id. */
struct token {
    const char *text;
    uint64_t n;
    float score;
    unsigned type; /* 0: to be guessed */
};

struct source {
    const struct tw_hf_tokenizer_files *files;
    struct tw_import_memory *memory;
    struct tw_model *model;
    const char *path; /* of tokenizer.json */
    json_t *root, *config, *generation;
    const json_t *bpe; /* the object "model" */
    struct tw_hf_parts parts;
    enum tw_vocab_kind kind;
    bool byte_fallback;
    struct token *tokens;
    uint32_t n;
    uint8_t *charsmap;
    size_t charsmap_bytes;
    tw_error *err;
};

static bool is(const char *text, const char *expected) {
    return text && strcmp(text, expected) == 0;
}

static int set_problem(struct source *s, const char *problem) {
    s->model->tokenizer_problem = tw_import_text(s->memory, problem, strlen(problem));
    return s->model->tokenizer_problem ? 0
                                       : tw_fail(s->err, TW_E_NOMEM, "%s: out of memory", s->path);
}

static int problem_with(struct source *s, const char *what, const char *value) {
    char text[160];
    snprintf(text, sizeof text, "tokenizer.json: %s \"%.40s\" is not supported", what,
             value ? value : "(none)");
    return set_problem(s, text);
}

static int check_size(const struct tw_hf_file *file, tw_error *err) {
    return file->size <= TW_HF_TOKENIZER_BYTES_MAX
               ? 0
               : tw_fail(err, TW_E_RANGE, "%s: %" PRIu64 " bytes, expected at most %u", file->path,
                         file->size, TW_HF_TOKENIZER_BYTES_MAX);
}

static int parse(const struct tw_hf_file *file, json_t **out, tw_error *err) {
    int rc = check_size(file, err);
    return rc || !file->bytes ? rc : tw_json_parse(file->path, file->bytes, file->size, out, err);
}

/* Parses tokenizer_config.json, in which transformers writes "no limit" as an integer of 31 digits.
 * Of its numbers none is used. */
static int parse_config(const struct tw_hf_file *file, json_t **out, tw_error *err) {
    json_error_t where;
    int rc = check_size(file, err);
    if (rc || !file->bytes) {
        return rc;
    }
    *out = json_loadb(file->bytes, (size_t)file->size, JSON_DECODE_INT_AS_REAL, &where);
    return *out ? 0
                : tw_fail(err, TW_E_FORMAT, "%s: line %d, column %d: not JSON: %s", file->path,
                          where.line, where.column, where.text);
}

/* ---- tokens ---- */

static int set_token(struct source *s, const char *where, const char *text, const json_t *id,
                     struct token **out) {
    json_int_t i = json_integer_value(id);
    if (!json_is_integer(id) || !text) {
        return tw_fail(s->err, TW_E_FORMAT, "%s: %s: \"%.40s\" has no integer id", s->path, where,
                       text ? text : "(no text)");
    }
    if (i < 0 || (uint64_t)i >= s->n) {
        return tw_fail(s->err, TW_E_RANGE,
                       "%s: %s: token \"%.40s\" has id %" JSON_INTEGER_FORMAT
                       ", expected 0 to %u (the rows of the embedding)",
                       s->path, where, text, i, s->n - 1);
    }
    *out = &s->tokens[i];
    (*out)->text = text;
    (*out)->n = strlen(text);
    return 0;
}

static int read_bpe_tokens(struct source *s) {
    json_t *vocab = NULL, *id;
    const char *text;
    struct token *token;
    int rc = tw_json_object(s->path, s->bpe, "vocab", &vocab, s->err);
    if (rc == 0 && !vocab) {
        rc = tw_fail(s->err, TW_E_MISSING, "%s: model.vocab is missing", s->path);
    }
    json_object_foreach(vocab, text, id) {
        if (rc == 0) {
            rc = set_token(s, "model.vocab", text, id, &token);
        }
    }
    return rc;
}

static int read_unigram_tokens(struct source *s) {
    json_t *vocab = NULL, *pair;
    size_t i;
    int rc = tw_json_array(s->path, s->bpe, "vocab", &vocab, s->err);
    if (rc == 0 && !vocab) {
        rc = tw_fail(s->err, TW_E_MISSING, "%s: model.vocab is missing", s->path);
    }
    json_array_foreach(vocab, i, pair) {
        const json_t *text = json_array_get(pair, 0), *score = json_array_get(pair, 1);
        if (rc == 0 && (i >= s->n || !json_is_string(text) || !json_is_number(score))) {
            rc = tw_fail(s->err, TW_E_FORMAT,
                         "%s: model.vocab: entry %zu is not a pair of text and score of one of the "
                         "embedding's %u rows",
                         s->path, i, s->n);
        }
        if (rc == 0) {
            s->tokens[i] = (struct token){.text = json_string_value(text),
                                          .n = json_string_length(text),
                                          .score = (float)json_number_value(score)};
        }
    }
    return rc;
}

static int read_added_tokens(struct source *s) {
    json_t *list = NULL;
    const json_t *item;
    size_t i;
    int rc = tw_json_array(s->path, s->root, "added_tokens", &list, s->err);
    json_array_foreach(list, i, item) {
        struct token *token = NULL;
        rc = rc ? rc
                : set_token(s, "added_tokens", tw_hf_text(item, "content"),
                            json_object_get(item, "id"), &token);
        if (rc == 0 && token) {
            token->type = tw_hf_true(item, "special") ? TW_TOKEN_CONTROL : TW_TOKEN_USER_DEFINED;
            token->type |= (tw_hf_true(item, "lstrip") ? TW_TOKEN_LSTRIP : 0u) |
                           (tw_hf_true(item, "rstrip") ? TW_TOKEN_RSTRIP : 0u);
        }
    }
    return rc;
}

/* Rows of the embedding without a token. Plain text may become UNUSED pieces, but never these. */
static int fill_holes(struct source *s) {
    for (uint32_t i = 0; i < s->n; i++) {
        char name[24];
        if (s->tokens[i].text) {
            continue;
        }
        snprintf(name, sizeof name, "[PAD%u]", i);
        const char *text = tw_import_text(s->memory, name, strlen(name));
        if (!text) {
            return tw_fail(s->err, TW_E_NOMEM, "%s: out of memory", s->path);
        }
        s->tokens[i] = (struct token){.text = text, .n = strlen(name), .type = TW_TOKEN_CONTROL};
    }
    return 0;
}

static int put_tokens(const struct source *s, struct tw_vocab_builder *b) {
    int rc = 0;
    for (uint32_t i = 0; i < s->n && rc == 0; i++) {
        const struct token *t = &s->tokens[i];
        char *to;
        unsigned type = t->type;
        if (type == 0) {
            type = s->byte_fallback ? tw_vocab_guess_type(t->text, t->n) : TW_TOKEN_NORMAL;
        }
        rc = tw_vocab_put(b, t->score, type, t->n, &to, s->err);
        if (rc == 0 && s->kind == TW_VOCAB_BYTE_BPE && type == TW_TOKEN_NORMAL) {
            b->offsets[i + 1] -= (uint32_t)(t->n - tw_vocab_unmap_bytes(t->text, t->n, to));
        } else if (rc == 0 && t->n > 0) {
            memcpy(to, t->text, (size_t)t->n);
        }
    }
    return rc;
}

/* ---- merges ---- */

static int bad_merge(const struct source *s, size_t number, const char *why) {
    return tw_fail(s->err, TW_E_FORMAT, "%s: model.merges: entry %zu %s", s->path, number, why);
}

/* A merge is "left right", or a list of the two. */
static int split_merge(const struct source *s, size_t number, const json_t *item, const char **left,
                       size_t *n_left, const char **right, size_t *n_right) {
    const char *text = json_string_value(item);
    const char *space = text && text[0] ? strchr(text + 1, ' ') : NULL;
    const json_t *first = json_array_get(item, 0), *second = json_array_get(item, 1);
    if (space) {
        *left = text;
        *n_left = (size_t)(space - text);
        *right = space + 1;
        *n_right = strlen(*right);
    } else if (json_is_string(first) && json_is_string(second)) {
        *left = json_string_value(first);
        *n_left = json_string_length(first);
        *right = json_string_value(second);
        *n_right = json_string_length(second);
    } else {
        return bad_merge(s, number, "is not two texts");
    }
    return *n_left && *n_right && *n_left <= PART_BYTES_MAX && *n_right <= PART_BYTES_MAX
               ? 0
               : bad_merge(s, number, "has a part that is empty or longer than 1024 bytes");
}

static int put_merge(const struct source *s, struct tw_vocab_builder *b, size_t number,
                     const json_t *item) {
    struct tw_vocab_merge *merge = &b->merges[number];
    const char *left = NULL, *right = NULL;
    size_t n_left = 0, n_right = 0;
    char bytes[2 * PART_BYTES_MAX];
    int rc = split_merge(s, number, item, &left, &n_left, &right, &n_right);
    if (rc) {
        return rc;
    }
    if (s->kind == TW_VOCAB_BYTE_BPE) {
        n_left = (size_t)tw_vocab_unmap_bytes(left, n_left, bytes);
        n_right = (size_t)tw_vocab_unmap_bytes(right, n_right, bytes + n_left);
    } else {
        memcpy(bytes, left, n_left);
        memcpy(bytes + n_left, right, n_right);
    }
    rc = tw_vocab_find(b, bytes, n_left, &merge->left, s->err);
    rc = rc ? rc : tw_vocab_find(b, bytes + n_left, n_right, &merge->right, s->err);
    rc = rc ? rc : tw_vocab_find(b, bytes, n_left + n_right, &merge->merged, s->err);
    bool missing = merge->left == TW_NONE || merge->right == TW_NONE || merge->merged == TW_NONE;
    return rc || !missing
               ? rc
               : bad_merge(s, number, "names parts that, alone or together, are not tokens");
}

static int put_merges(const struct source *s, struct tw_vocab_builder *b) {
    const json_t *list = json_object_get(s->bpe, "merges"), *item;
    size_t i;
    int rc = 0;
    json_array_foreach(list, i, item) {
        rc = rc ? rc : put_merge(s, b, i, item);
    }
    return rc;
}

/* ---- ids ---- */

/* The text of a token in tokenizer_config.json: itself, or {"content": text}. */
static const char *config_token(const struct source *s, const char *key) {
    const json_t *value = json_object_get(s->config, key);
    const char *text = json_string_value(value);
    return text ? text : tw_hf_text(value, "content");
}

static int find_id(struct tw_vocab_builder *b, const char *text, uint32_t *id, tw_error *err) {
    return text && *text ? tw_vocab_find(b, text, strlen(text), id, err) : 0;
}

static int read_ends(const struct source *s, struct tw_vocab_builder *b) {
    const json_t *ends = json_object_get(s->generation, "eos_token_id"), *item;
    size_t n = json_is_array(ends) ? json_array_size(ends) : json_is_integer(ends) ? 1 : 0;
    for (size_t i = 0; i < n; i++) {
        item = json_is_array(ends) ? json_array_get(ends, i) : ends;
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || (uint64_t)id >= s->n) {
            return tw_fail(s->err, TW_E_RANGE, "%s: eos_token_id is not an id below %u",
                           s->files->generation_config.path, s->n);
        }
        if (b->header->eos == TW_NONE) {
            b->header->eos = (uint32_t)id;
        }
        tw_vocab_add_end(b, (uint32_t)id);
    }
    return 0;
}

static void set_unknown(const struct source *s, struct tw_vocab_builder *b, uint32_t unk) {
    if (unk != TW_NONE && s->kind != TW_VOCAB_BYTE_BPE) {
        b->header->unk = unk;
        b->types[unk] = TW_TOKEN_UNKNOWN;
    }
}

/* Whether the tokenizer adds the token; tokenizer_config.json has the last word. */
static bool adds(const struct source *s, const char *key, bool otherwise) {
    const json_t *value = json_object_get(s->config, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static int read_ids(const struct source *s, struct tw_vocab_builder *b) {
    struct tw_vocab_header *h = b->header;
    const char *bos = config_token(s, "bos_token"), *eos = config_token(s, "eos_token");
    const json_t *unk_id = json_object_get(s->bpe, "unk_id");
    uint32_t unk = json_is_integer(unk_id) && json_integer_value(unk_id) >= 0 &&
                           json_integer_value(unk_id) < s->n
                       ? (uint32_t)json_integer_value(unk_id)
                       : TW_NONE;
    int rc = find_id(b, bos ? bos : s->parts.before, &h->bos, s->err);
    rc = rc ? rc : find_id(b, eos ? eos : s->parts.after, &h->eos, s->err);
    rc = rc ? rc : find_id(b, config_token(s, "pad_token"), &h->pad, s->err);
    rc = rc ? rc : find_id(b, tw_hf_text(s->bpe, "unk_token"), &unk, s->err);
    rc = rc ? rc : read_ends(s, b);
    if (rc) {
        return rc;
    }
    set_unknown(s, b, unk);
    bool ignore = tw_hf_true(s->bpe, "ignore_merges");
    h->flags = (adds(s, "add_bos_token", s->parts.before != NULL) ? TW_VOCAB_ADD_BOS : 0u) |
               (adds(s, "add_eos_token", s->parts.after != NULL) ? TW_VOCAB_ADD_EOS : 0u) |
               (s->parts.prefix_space ? TW_VOCAB_SPACE_PREFIX : 0u) |
               (s->parts.prefix_first ? TW_VOCAB_PREFIX_AT_START : 0u) |
               (s->parts.prefix_new ? TW_VOCAB_PREFIX_IF_NONE : 0u) |
               (s->parts.squeeze ? TW_VOCAB_SQUEEZE : 0u) | (ignore ? TW_VOCAB_IGNORE_MERGES : 0u) |
               (s->parts.escape_spaces || s->parts.byte_level ? 0u : TW_VOCAB_PLAIN_SPACES);
    return 0;
}

/* ---- the whole ---- */

/* Decides the kind, and names what is not supported: then s->kind stays NONE. */
static int check_model(struct source *s) {
    const char *type = tw_hf_text(s->bpe, "type");
    bool merged = is(type, "BPE") || (!type && json_object_get(s->bpe, "merges"));
    const char *prefix = tw_hf_text(s->bpe, "continuing_subword_prefix");
    const char *suffix = tw_hf_text(s->bpe, "end_of_word_suffix");
    s->byte_fallback = tw_hf_true(s->bpe, "byte_fallback");
    tw_hf_read_parts(s->root, &s->parts);
    if (!merged && !is(type, "Unigram")) {
        return problem_with(s, "model", type);
    }
    if ((prefix && *prefix) || (suffix && *suffix)) {
        return problem_with(s, "a model with",
                            prefix && *prefix ? "continuing_subword_prefix" : "end_of_word_suffix");
    }
    if (s->parts.problem[0]) {
        return set_problem(s, s->parts.problem);
    }
    if (s->parts.charsmap && merged) {
        return problem_with(s, "normalizer", "Precompiled");
    }
    if (!merged && s->parts.byte_level) {
        return problem_with(s, "a Unigram model with", "ByteLevel");
    }
    s->kind = !merged               ? TW_VOCAB_UNIGRAM
              : s->parts.byte_level ? TW_VOCAB_BYTE_BPE
                                    : TW_VOCAB_MERGE_BPE;
    return 0;
}

static int decode_charsmap(struct source *s) {
    const char *text = s->parts.charsmap;
    size_t n = text ? strlen(text) : 0;
    if (n == 0) {
        return 0;
    }
    s->charsmap = tw_import_alloc(s->memory, n, 1);
    if (!s->charsmap) {
        return tw_fail(s->err, TW_E_NOMEM, "%s: out of memory", s->path);
    }
    return sodium_base642bin(s->charsmap, n, text, n, NULL, &s->charsmap_bytes, NULL,
                             sodium_base64_VARIANT_ORIGINAL) == 0
               ? 0
               : tw_fail(s->err, TW_E_FORMAT, "%s: normalizer Precompiled is not base64", s->path);
}

static int read_tokens(struct source *s) {
    s->n = s->model->h.n_vocab;
    s->tokens = tw_import_alloc(s->memory, s->n, sizeof *s->tokens);
    if (!s->tokens) {
        return tw_fail(s->err, TW_E_NOMEM, "%s: no memory for %u tokens", s->path, s->n);
    }
    int rc = s->kind == TW_VOCAB_UNIGRAM ? read_unigram_tokens(s) : read_bpe_tokens(s);
    rc = rc ? rc : read_added_tokens(s);
    rc = rc ? rc : decode_charsmap(s);
    return rc ? rc : fill_holes(s);
}

/* Metaspace cuts a text at each blank, unless it says otherwise. Then pieces that span a cut, which
 * are never found, would be. */
static int check_words(struct source *s) {
    const size_t blank = strlen(TW_HF_SPACE);
    for (uint32_t i = 0; i < s->n && s->parts.words; i++) {
        const struct token *t = &s->tokens[i];
        if (t->type == 0 && t->n > blank && memmem(t->text + 1, t->n - 1, TW_HF_SPACE, blank)) {
            s->kind = TW_VOCAB_NONE;
            return problem_with(s, "pre_tokenizer Metaspace, which splits, with the piece",
                                t->text);
        }
    }
    return 0;
}

static int build(struct source *s) {
    struct tw_vocab_builder b;
    struct tw_vocab_sizes sizes = {.kind = s->kind,
                                   .n_tokens = s->n,
                                   .n_merges = json_array_size(json_object_get(s->bpe, "merges")),
                                   .charsmap_bytes = s->charsmap_bytes};
    for (uint32_t i = 0; i < s->n; i++) {
        sizes.bytes += s->tokens[i].n;
    }
    int rc = tw_vocab_begin(&b, s->path, &sizes, s->memory, s->err);
    rc = rc ? rc : put_tokens(s, &b);
    rc = rc ? rc : put_merges(s, &b);
    if (rc) {
        return rc;
    }
    if (s->parts.pre) {
        snprintf(b.extra->pre, sizeof b.extra->pre, "%s", s->parts.pre);
    }
    if (s->charsmap_bytes) {
        memcpy(b.charsmap, s->charsmap, s->charsmap_bytes);
    }
    rc = read_ids(s, &b);
    rc = rc ? rc : tw_vocab_add_known_names(&b, s->err);
    return rc ? rc : tw_vocab_finish(&b, s->model, s->err);
}

static int import(struct source *s) {
    json_t *model = NULL;
    int rc = parse(&s->files->tokenizer, &s->root, s->err);
    rc = rc ? rc : parse_config(&s->files->config, &s->config, s->err);
    rc = rc ? rc : parse(&s->files->generation_config, &s->generation, s->err);
    rc = rc ? rc : tw_json_object(s->path, s->root, "model", &model, s->err);
    if (rc == 0 && !model) {
        rc = tw_fail(s->err, TW_E_MISSING, "%s: model is missing", s->path);
    }
    s->bpe = model;
    rc = rc ? rc : tw_hf_read_chat(s->files, s->config, s->memory, s->model, s->err);
    rc = rc ? rc : check_model(s);
    if (rc || s->kind == TW_VOCAB_NONE) {
        return rc;
    }
    rc = read_tokens(s);
    rc = rc ? rc : check_words(s);
    return rc || s->kind == TW_VOCAB_NONE ? rc : build(s);
}

int tw_import_hf_tokenizer(const struct tw_hf_tokenizer_files *files,
                           struct tw_import_memory *memory, struct tw_model *model, tw_error *err) {
    struct source s = {.files = files,
                       .memory = memory,
                       .model = model,
                       .path = files->tokenizer.path,
                       .err = err};
    int rc = import(&s);
    json_decref(s.root);
    json_decref(s.config);
    json_decref(s.generation);
    return rc;
}
