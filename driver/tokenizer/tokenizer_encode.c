/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to ids (tokenizer.h): special pieces are found in the text where that is asked for; each
 * stretch of plain text between them is cut into words (byte-level BPE), or normalised and cut at
 * blanks if no piece spans one (SentencePiece), or split as a whole (unigram).
 */
#include "driver/tokenizer/tokenizer_internal.h"
#include "driver/tokenizer/utf8_stream.h"

#include "loader/base/grow.h"

#include <stdlib.h>
#include <string.h>

/* What stands for a byte that is not part of a character while words are cut. */
#define ODD_BYTE '\x01'

struct encoder {
    const struct tw_tokenizer *tokenizer;
    const char *text;
    size_t n;
    const struct tw_text_span *literal; /* spans without special tokens, in ascending order */
    size_t n_literal;
    const uint8_t *reserved; /* bits of pieces not recognised in them, or NULL */
    unsigned flags;
    struct tw_encode_scratch scratch;
    struct tw_token_list *out;
    tw_error *err;
};

int tw_append_id(struct tw_token_list *list, uint32_t id, tw_error *err) {
    if (!tw_grow(&list->ids, &list->capacity, list->n + 1, sizeof *list->ids)) {
        return tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for more than %zu ids", list->n);
    }
    TW_ASSERT(list->n < list->capacity);
    list->ids[list->n++] = id;
    return 0;
}

void tw_token_list_finish(struct tw_token_list *list) {
    free(list->ids);
    memset(list, 0, sizeof *list);
}

int tw_append_unspelled(const struct tw_tokenizer *tokenizer, const char *bytes, uint32_t n,
                        bool *unknown, struct tw_token_list *out, tw_error *err) {
    bool after_unknown = *unknown;
    *unknown = false;
    for (uint32_t i = 0; i < n; i++) {
        *unknown = *unknown || tokenizer->byte_ids[(uint8_t)bytes[i]] == TW_NONE;
    }
    if (*unknown) {
        /* Byte-level vocabularies have none, even if a file names one. */
        uint32_t unk = tokenizer->pre ? TW_NONE : tokenizer->vocab.header.unk;
        if (unk == TW_NONE) {
            return tw_fail(err, TW_E_UNSUPPORTED,
                           "text: the vocabulary has neither a token for the character that begins "
                           "with byte 0x%02X nor an unknown token",
                           (uint8_t)bytes[0]);
        }
        return after_unknown ? 0 : tw_append_id(out, unk, err);
    }
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        rc = tw_append_id(out, tokenizer->byte_ids[(uint8_t)bytes[i]], err);
    }
    return rc;
}

/* ---- byte-level BPE ---- */

/* A text for byte-level BPE: its bytes, of which each has a token if possible, and as many bytes of
 * well-formed UTF-8 for cutting it into words. */
struct byte_text {
    char *bytes, *clean;
    size_t n;
};

static void put(struct byte_text *out, const char *bytes, const char *clean, size_t n) {
    memcpy(out->bytes + out->n, bytes, n);
    memcpy(out->clean + out->n, clean, n);
    out->n += n;
}

static bool have_tokens(const struct tw_tokenizer *t, const char *bytes, size_t n) {
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        all = all && t->byte_ids[(uint8_t)bytes[i]] != TW_NONE;
    }
    return all;
}

/* Copies the text. Many vocabularies have no tokens for bytes that are rare, or cannot occur, in
 * UTF-8: U+FFFD stands for characters with these. Returns false if out of memory; the caller frees
 * both texts. */
static bool make_byte_text(const struct tw_tokenizer *t, const char *text, size_t n,
                           struct byte_text *out) {
    static const char odd[] = {ODD_BYTE}, replacement[] = "\xEF\xBF\xBD";
    size_t room = n;
    for (size_t at = 0; at < n; at++) {
        room += have_tokens(t, text + at, 1) ? 0 : 2;
    }
    *out = (struct byte_text){.bytes = malloc(room + 1), .clean = malloc(room + 1)};
    if (!out->bytes || !out->clean) {
        return false;
    }
    for (size_t at = 0, length; at < n; at += length) {
        length = tw_utf8_char(text + at, n - at);
        bool whole = length > 0;
        length = whole ? length : 1;
        if (have_tokens(t, text + at, length)) {
            put(out, text + at, whole ? text + at : odd, length);
        } else {
            put(out, replacement, replacement, 3);
        }
    }
    return true;
}

static int encode_words(struct encoder *e, const char *text, bool *unknown) {
    const struct tw_tokenizer *t = e->tokenizer;
    bool whole = (t->vocab.header.flags & TW_VOCAB_IGNORE_MERGES) != 0;
    uint32_t from = 0;
    int rc = 0;
    for (size_t i = 0; i < e->scratch.cuts.n && rc == 0; i++) {
        uint32_t n = e->scratch.cuts.ends[i] - from;
        uint32_t id = n == 1  ? t->byte_ids[(uint8_t)text[from]]
                      : whole ? tw_piece_find(t, text + from, n)
                              : TW_NONE;
        if (id != TW_NONE) {
            *unknown = false;
            rc = tw_append_id(e->out, id, e->err);
        } else {
            rc = tw_encode_word(t, text + from, n, &e->scratch, unknown, e->out, e->err);
        }
        from = e->scratch.cuts.ends[i];
    }
    return rc;
}

static int encode_byte_level(struct encoder *e, const char *text, size_t n) {
    struct byte_text t;
    bool unknown = false;
    int rc = 0;
    if (!make_byte_text(e->tokenizer, text, n, &t)) {
        rc = tw_fail(e->err, TW_E_NOMEM, "tokenizer: no memory for a text of %zu bytes", n);
    }
    rc = rc ? rc
            : tw_pretokenizer_cut(e->tokenizer->pre, t.clean, (uint32_t)t.n, &e->scratch.cuts,
                                  e->err);
    rc = rc ? rc : encode_words(e, t.bytes, &unknown);
    e->out->work += t.n + e->scratch.cuts.n;
    free(t.bytes);
    free(t.clean);
    return rc;
}

/* ---- SentencePiece ---- */

/* Returns the end of the word that begins at `at`: before the next blank that follows another
 * character. */
static size_t word_end(const char *text, size_t n, size_t at, const char *blank, size_t length) {
    bool other = false;
    while (at < n) {
        if (n - at >= length && memcmp(text + at, blank, length) == 0) {
            if (other) {
                break;
            }
            at += length;
        } else {
            other = true;
            at++;
        }
    }
    return at;
}

static int encode_normalised(struct encoder *e, const char *text, size_t n) {
    const struct tw_tokenizer *t = e->tokenizer;
    bool escaped = tw_escapes_spaces(&t->vocab), unknown = false;
    int rc = 0;
    if (t->vocab.header.kind == TW_VOCAB_UNIGRAM) {
        return tw_encode_unigram(t, text, (uint32_t)n, e->out, e->err);
    }
    for (size_t at = 0, end; at < n && rc == 0; at = end) {
        end = t->words_apart ? word_end(text, n, at, escaped ? TW_SPACE : " ", escaped ? 3 : 1) : n;
        rc = tw_encode_word(t, text + at, (uint32_t)(end - at), &e->scratch, &unknown, e->out,
                            e->err);
    }
    return rc;
}

/* ---- stretches and special pieces ---- */

/* Encodes a stretch of plain text of at least one byte, which is at the text's start or not. */
static int encode_plain(struct encoder *e, const char *text, size_t n) {
    bool start = text == e->text;
    if (e->tokenizer->vocab.header.kind == TW_VOCAB_BYTE_BPE) {
        return encode_byte_level(e, text, n);
    }
    size_t length = 0;
    char *spelled = NULL;
    int rc = tw_normalise(e->tokenizer, text, n, start, &spelled, &length, e->err);
    rc = rc ? rc : encode_normalised(e, spelled, length);
    free(spelled);
    return rc;
}

/* Returns the end of the part that `at` is in, a literal span or what is between two; *literal says
 * which. *span is the first span that ends after `at`. */
static size_t part_end(const struct encoder *e, size_t at, size_t *span, bool *literal) {
    while (*span < e->n_literal && at >= e->literal[*span].at + e->literal[*span].n) {
        ++*span;
    }
    if (*span == e->n_literal) {
        *literal = false;
        return e->n;
    }
    *literal = at >= e->literal[*span].at;
    return *literal ? e->literal[*span].at + e->literal[*span].n : e->literal[*span].at;
}

/* Finds the next marker at or after `at`. Returns its position and stores its id; e->n and TW_NONE
 * if there is none. */
static size_t next_marker(const struct encoder *e, size_t at, size_t *span, uint32_t *id) {
    const struct tw_tokenizer *t = e->tokenizer;
    *id = TW_NONE;
    if (!(e->flags & (TW_ENCODE_SPECIAL | TW_ENCODE_USER_DEFINED)) || t->n_markers == 0) {
        return e->n;
    }
    for (; at < e->n; at++) {
        uint8_t first = (uint8_t)e->text[at];
        if (t->first_marker[first] == t->first_marker[first + 1]) {
            continue;
        }
        bool literal;
        size_t end = part_end(e, at, span, &literal);
        bool special = e->flags & TW_ENCODE_SPECIAL && !literal;
        if (special || e->flags & TW_ENCODE_USER_DEFINED) {
            *id = tw_marker_find(t, e->text + at, end - at, !special, literal ? e->reserved : NULL);
        }
        if (*id != TW_NONE) {
            break;
        }
    }
    return at;
}

static bool is_white(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Encodes stretches of plain text and the markers between them. Each stretch gets a leading space
 * if the vocabulary says so, as in llama.cpp; or only the first, as in transformers. */
static int encode_text(struct encoder *e) {
    const struct tw_vocab *vocab = &e->tokenizer->vocab;
    size_t span = 0;
    int rc = 0;
    for (size_t at = 0; at < e->n && rc == 0;) {
        uint32_t marker, length = 0;
        size_t end = next_marker(e, at, &span, &marker), plain = end;
        unsigned strip = marker != TW_NONE ? vocab->types[marker] : 0;
        while (strip & TW_TOKEN_LSTRIP && plain > at && is_white(e->text[plain - 1])) {
            plain--;
        }
        if (plain > at) {
            rc = encode_plain(e, e->text + at, plain - at);
        }
        if (rc == 0 && marker != TW_NONE) {
            (void)tw_piece_raw(vocab, marker, &length);
            rc = tw_append_id(e->out, marker, e->err);
        }
        at = end + length;
        while (strip & TW_TOKEN_RSTRIP && at < e->n && is_white(e->text[at])) {
            at++;
        }
    }
    return rc;
}

static bool wants(unsigned flags, unsigned yes, unsigned no, bool otherwise) {
    return (flags & yes) || (otherwise && !(flags & no));
}

static int encode(struct encoder *e) {
    const struct tw_vocab_header *header = &e->tokenizer->vocab.header;
    size_t n_before = e->out->n;
    int rc = 0;
    if (e->n > TW_TEXT_BYTES_MAX) {
        return tw_fail(e->err, TW_E_RANGE, "text of %zu bytes, expected at most %u", e->n,
                       TW_TEXT_BYTES_MAX);
    }
    if (header->bos != TW_NONE &&
        wants(e->flags, TW_ENCODE_BOS, TW_ENCODE_NO_BOS, (header->flags & TW_VOCAB_ADD_BOS) != 0)) {
        rc = tw_append_id(e->out, header->bos, e->err);
    }
    rc = rc ? rc : encode_text(e);
    if (rc == 0 && header->eos != TW_NONE &&
        wants(e->flags, TW_ENCODE_EOS, TW_ENCODE_NO_EOS, (header->flags & TW_VOCAB_ADD_EOS) != 0)) {
        rc = tw_append_id(e->out, header->eos, e->err);
    }
    free(e->scratch.symbols);
    free(e->scratch.heap);
    tw_cuts_finish(&e->scratch.cuts);
    if (rc) {
        e->out->n = n_before;
    }
    return rc;
}

static int check_spans(const struct tw_text_span *spans, size_t count, size_t n, tw_error *err) {
    size_t from = 0;
    for (size_t i = 0; i < count; i++) {
        if (spans[i].at < from || spans[i].at > n || spans[i].n > n - spans[i].at) {
            return tw_fail(err, TW_E_RANGE,
                           "text: span %zu is %zu bytes at %zu, expected it between %zu and %zu", i,
                           spans[i].n, spans[i].at, from, n);
        }
        from = spans[i].at + spans[i].n;
    }
    return 0;
}

int tw_tokenizer_encode_reserving(const struct tw_tokenizer *tokenizer, const char *text, size_t n,
                                  const struct tw_text_span *literal, size_t n_literal,
                                  const uint8_t *reserved, unsigned flags,
                                  struct tw_token_list *out, tw_error *err) {
    struct encoder e = {.tokenizer = tokenizer,
                        .text = text,
                        .n = n,
                        .literal = literal,
                        .n_literal = n_literal,
                        .reserved = reserved,
                        .flags = flags,
                        .out = out,
                        .err = err};
    int rc = check_spans(literal, n_literal, n, err);
    return rc ? rc : encode(&e);
}
