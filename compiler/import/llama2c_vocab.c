/* SPDX-License-Identifier: Apache-2.0
 *
 * llama2.c tokenizer files (import.h): max_token_length, then score, length and bytes of each
 * token. The pieces are converted to the form that GGUF uses, so that one tokenizer serves both.
 */
#include "compiler/import/bytes.h"
#include "compiler/import/import.h"
#include "compiler/import/vocab_build.h"
#include "tilewright/range.h"

#include <inttypes.h>
#include <string.h>

/* llama2.c does not store these ids: they are fixed in its code. */
#define UNK_ID 0u
#define BOS_ID 1u
#define EOS_ID 2u

struct piece {
    float score;
    const uint8_t *text;
    uint32_t length;
};

struct tokenizer {
    const char *path;
    const uint8_t *bytes;
    uint64_t size, at;
    uint32_t max_length;
    tw_error *err;
};

static int read_head(struct tokenizer *t) {
    if (t->size < 4) {
        return tw_fail(t->err, TW_E_TRUNCATED,
                       "%s: %" PRIu64 " bytes are too few for a llama2.c tokenizer", t->path,
                       t->size);
    }
    int32_t max = (int32_t)tw_load_u32(t->bytes);
    if (max < 1) {
        return tw_fail(t->err, TW_E_RANGE,
                       "%s: max_token_length at offset 0 is %d, expected at least 1", t->path, max);
    }
    t->max_length = (uint32_t)max;
    t->at = 4;
    return 0;
}

static int next_piece(struct tokenizer *t, uint32_t i, uint32_t n_vocab, struct piece *out) {
    if (!tw_range_ok(t->at, 8, t->size)) {
        return tw_fail(t->err, TW_E_TRUNCATED,
                       "%s: the file ends at offset %" PRIu64
                       " inside token %u, expected %u tokens (the model's)",
                       t->path, t->size, i, n_vocab);
    }
    int32_t length = (int32_t)tw_load_u32(t->bytes + t->at + 4);
    if (length < 0 || (uint32_t)length > t->max_length) {
        return tw_fail(t->err, TW_E_RANGE,
                       "%s: the length of token %u at offset %" PRIu64
                       " is %d, expected 0 to max_token_length, %u",
                       t->path, i, t->at + 4, length, t->max_length);
    }
    if (!tw_range_ok(t->at + 8, (uint64_t)length, t->size)) {
        return tw_fail(t->err, TW_E_TRUNCATED,
                       "%s: token %u has %d bytes at offset %" PRIu64
                       ", but the file ends at %" PRIu64,
                       t->path, i, length, t->at + 8, t->size);
    }
    out->score = tw_load_f32(t->bytes + t->at);
    out->text = t->bytes + t->at + 8;
    out->length = (uint32_t)length;
    t->at += 8 + (uint64_t)length;
    return 0;
}

/* The exporter writes the two control tokens with line breaks around them; GGUF does not. */
static void strip_control(struct piece *p, uint32_t id) {
    if ((id == BOS_ID || id == EOS_ID) && p->length > 2 && p->text[0] == '\n' &&
        p->text[p->length - 1] == '\n') {
        p->text++;
        p->length -= 2;
    }
}

/* A blank becomes U+2581, three bytes. */
static uint64_t converted_length(const struct piece *p) {
    uint64_t length = p->length;
    for (uint32_t i = 0; i < p->length; i++) {
        length += p->text[i] == ' ' ? 2u : 0u;
    }
    return length;
}

static void convert(const struct piece *p, char *out) {
    for (uint32_t i = 0; i < p->length; i++) {
        if (p->text[i] == ' ') {
            memcpy(out, "\xE2\x96\x81", 3);
            out += 3;
        } else {
            *out++ = (char)p->text[i];
        }
    }
}

static enum tw_token_type type_of(const struct piece *p, uint32_t id) {
    if (id == UNK_ID) {
        return TW_TOKEN_UNKNOWN;
    }
    return id == BOS_ID || id == EOS_ID ? TW_TOKEN_CONTROL
                                        : tw_vocab_guess_type(p->text, p->length);
}

/* First pass: checks that all tokens are present and nothing follows, and counts the bytes of the
 * converted pieces. */
static int measure(struct tokenizer t, uint32_t n_vocab, uint64_t *total) {
    struct piece p;
    *total = 0;
    int rc = read_head(&t);
    for (uint32_t i = 0; i < n_vocab && rc == 0; i++) {
        rc = next_piece(&t, i, n_vocab, &p);
        if (rc == 0) {
            strip_control(&p, i);
            *total += converted_length(&p);
        }
    }
    if (rc == 0 && t.at != t.size) {
        rc = tw_fail(t.err, TW_E_FORMAT,
                     "%s: %" PRIu64
                     " bytes follow token %u, expected exactly %u tokens (the model's)",
                     t.path, t.size - t.at, n_vocab - 1, n_vocab);
    }
    return rc;
}

static int put_pieces(struct tokenizer t, struct tw_vocab_builder *b) {
    uint32_t n = b->header->n_tokens;
    int rc = read_head(&t);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct piece p;
        char *place;
        rc = next_piece(&t, i, n, &p);
        if (rc) {
            break;
        }
        strip_control(&p, i);
        rc = tw_vocab_put(b, p.score, type_of(&p, i), converted_length(&p), &place, t.err);
        if (rc == 0) {
            convert(&p, place);
        }
    }
    return rc;
}

int tw_import_llama2c_vocab(const char *path, const uint8_t *bytes, uint64_t size,
                            struct tw_import_memory *memory, struct tw_model *model,
                            tw_error *err) {
    struct tokenizer t = {.path = path, .bytes = bytes, .size = size, .err = err};
    struct tw_vocab_builder b;
    uint32_t n = model->h.n_vocab;
    uint64_t total;
    int rc = measure(t, n, &total);
    struct tw_vocab_sizes sizes = {.kind = TW_VOCAB_SPM_BPE, .n_tokens = n, .bytes = total};
    rc = rc ? rc : tw_vocab_begin(&b, path, &sizes, memory, err);
    rc = rc ? rc : put_pieces(t, &b);
    if (rc) {
        return rc;
    }
    b.header->unk = UNK_ID;
    b.header->bos = n > BOS_ID ? BOS_ID : TW_NONE;
    b.header->eos = n > EOS_ID ? EOS_ID : TW_NONE;
    b.header->flags = TW_VOCAB_ADD_BOS | TW_VOCAB_SPACE_PREFIX | TW_VOCAB_STOP_AT_BOS;
    return tw_vocab_finish(&b, model, err);
}
