/* SPDX-License-Identifier: Apache-2.0
 *
 * Vocabularies for tests: puts what the spec lists into the builder (vocab_made.h).
 */
#include "tests/support/vocab_made.h"

#include "loader/bundle/vocab_open.h"

#include <stdio.h>
#include <string.h>

static int put(struct tw_vocab_builder *b, const char *text, size_t n, float score, unsigned type,
               tw_error *err) {
    char *to;
    int rc = tw_vocab_put(b, score, type, n, &to, err);
    if (rc == 0 && n > 0) {
        memcpy(to, text, n);
    }
    return rc;
}

static int put_bytes(struct tw_vocab_builder *b, bool plain, tw_error *err) {
    int rc = 0;
    for (unsigned byte = 0; byte < 256 && rc == 0; byte++) {
        char text[8], c = (char)byte;
        snprintf(text, sizeof text, "<0x%02X>", byte);
        rc =
            plain ? put(b, &c, 1, 0, TW_TOKEN_NORMAL, err) : put(b, text, 6, 0, TW_TOKEN_BYTE, err);
    }
    return rc;
}

static int put_merges(const struct made_spec *spec, struct tw_vocab_builder *b, tw_error *err) {
    int rc = 0;
    for (uint32_t i = 0; i < spec->n_merges && rc == 0; i++) {
        char joined[256];
        const struct made_merge *m = &spec->merges[i];
        snprintf(joined, sizeof joined, "%s%s", m->left, m->right);
        rc = tw_vocab_find(b, m->left, strlen(m->left), &b->merges[i].left, err);
        rc = rc ? rc : tw_vocab_find(b, m->right, strlen(m->right), &b->merges[i].right, err);
        rc = rc ? rc : tw_vocab_find(b, joined, strlen(joined), &b->merges[i].merged, err);
    }
    return rc;
}

static int fill(const struct made_spec *spec, struct tw_vocab_builder *b, tw_error *err) {
    int rc = spec->bytes ? put_bytes(b, spec->kind == TW_VOCAB_BYTE_BPE, err) : 0;
    for (uint32_t i = 0; i < spec->n_pieces && rc == 0; i++) {
        const struct made_piece *p = &spec->pieces[i];
        rc = put(b, p->text, strlen(p->text), p->score, p->type, err);
    }
    rc = rc ? rc : put_merges(spec, b, err);
    b->header->flags = spec->flags;
    b->header->bos = spec->has_bos ? spec->bos : TW_NONE;
    b->header->eos = spec->has_eos ? spec->eos : TW_NONE;
    b->header->unk = spec->has_unk ? spec->unk : TW_NONE;
    if (spec->pre) {
        snprintf(b->extra->pre, sizeof b->extra->pre, "%s", spec->pre);
    }
    if (spec->charsmap_bytes) {
        memcpy(b->charsmap, spec->charsmap, spec->charsmap_bytes);
    }
    return rc ? rc : tw_vocab_add_known_names(b, err);
}

int made_vocab(const struct made_spec *spec, struct made_vocab *out, tw_error *err) {
    struct tw_vocab_builder b;
    struct tw_vocab_sizes sizes = {.kind = spec->kind,
                                   .n_tokens = spec->n_pieces + (spec->bytes ? 256u : 0u),
                                   .bytes = spec->bytes ? 256 * 6 : 0,
                                   .n_merges = spec->n_merges,
                                   .charsmap_bytes = spec->charsmap_bytes};
    for (uint32_t i = 0; i < spec->n_pieces; i++) {
        sizes.bytes += strlen(spec->pieces[i].text);
    }
    memset(out, 0, sizeof *out);
    int rc = tw_vocab_begin(&b, "made", &sizes, &out->memory, err);
    rc = rc ? rc : fill(spec, &b, err);
    rc = rc ? rc : tw_vocab_finish(&b, &out->model, err);
    return rc ? rc : tw_vocab_open(out->model.vocab, out->model.vocab_bytes, &out->vocab, err);
}
