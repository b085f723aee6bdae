/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharing of op streams (compiler/emit/images.h) in three passes over the streams: classify each by
 * a hash of its structural words, mark the words that differ from those of its class's first
 * member, then write the marked words of each stream as its arguments.
 */
#include "compiler/emit/images.h"

#include "loader/base/assert.h"
#include "loader/base/grow.h"
#include "tilewright/opcode.h"

#include <stdlib.h>
#include <string.h>

/* One shape. `fixed[i]`: word i is structural; `patch[i]`: word i differs between members. */
struct shape {
    const uint32_t *words;
    uint32_t n_words;
    uint64_t hash;
    uint8_t *fixed, *patch;
    uint32_t next; /* in its hash bucket, TW_NONE at the end */
};

struct builder {
    struct shape *shapes;
    uint32_t n_shapes;
    size_t capacity;
    uint32_t *bucket; /* heads of the hash chains, n_buckets of them, a power of two */
    uint32_t n_buckets;
    uint8_t *mark; /* structural words of the current stream */
};

static uint32_t mark_affine(uint8_t *fixed, uint32_t at, const struct tw_affine *a) {
    fixed[at + 2] = 1;
    for (uint32_t t = 0; t < a->n_terms; t++) {
        fixed[at + 3 + 3 * t] = 1;
    }
    return at + 3 + 3 * a->n_terms;
}

/* Marks the words that determine the layout of the op: its header, the numbers of terms, the
 * variables. */
static void mark_op(uint8_t *fixed, uint32_t at, const struct tw_op *op) {
    fixed[at] = 1;
    at += 2;
    for (uint32_t i = 0; i < op->n_operands; i++) {
        const struct tw_operand *o = &op->operand[i];
        if (o->kind == 'V') {
            fixed[at] = 1;
        }
        at += o->kind == 'A' ? 0 : o->kind == 'X' ? 2 : 1;
        if (o->kind == 'T' || o->kind == 'U') {
            fixed[at++] = 1; /* the table, without which there is no element */
            at = mark_affine(fixed, at, &o->instance);
        }
        if (strchr("RWMDTUA", o->kind)) {
            at = mark_affine(fixed, at, &o->offset);
        }
        at = o->paged ? mark_affine(fixed, at, &o->element) : at;
    }
}

static int mark_stream(const struct tw_stream *s, uint8_t *fixed, tw_error *err) {
    memset(fixed, 0, s->n_words);
    for (uint32_t at = 0; at < s->n_words;) {
        struct tw_op op;
        if (!tw_op_decode(s->words, s->n_words, at, &op)) {
            return tw_fail(err, TW_E_INTERNAL, "bundle: site %u engine %s: word %u does not decode",
                           s->site, tw_engine_name(s->engine), at);
        }
        mark_op(fixed, at, &op);
        at += op.n_words;
    }
    return 0;
}

static uint64_t hash_shape(const struct tw_stream *s, const uint8_t *fixed) {
    uint64_t h = 0x9E3779B97F4A7C15u ^ s->n_words;
    for (uint32_t i = 0; i < s->n_words; i++) {
        if (fixed[i]) {
            h = (h ^ s->words[i] ^ (uint64_t)i << 32) * 0xD6E8FEB86659FD93u;
            h ^= h >> 32;
        }
    }
    return h;
}

static bool has_shape(const struct shape *a, const struct tw_stream *s) {
    if (a->n_words != s->n_words) {
        return false;
    }
    for (uint32_t i = 0; i < s->n_words; i++) {
        if (a->fixed[i] && a->words[i] != s->words[i]) {
            return false;
        }
    }
    return true;
}

static int add_shape(struct builder *b, const struct tw_stream *s, uint64_t hash, uint32_t *out,
                     tw_error *err) {
    if (b->n_shapes >= TW_MAX_IMAGES) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "bundle: there are more than %u different engine programs", TW_MAX_IMAGES);
    }
    if (!tw_grow(&b->shapes, &b->capacity, b->n_shapes + 1, sizeof *b->shapes)) {
        return tw_fail(err, TW_E_NOMEM, "bundle: no memory for %u images", b->n_shapes + 1);
    }
    struct shape *shape = &b->shapes[b->n_shapes];
    uint8_t *marks = calloc(2, s->n_words);
    if (!marks) {
        return tw_fail(err, TW_E_NOMEM, "bundle: no memory for an image of %u words", s->n_words);
    }
    uint32_t *head = &b->bucket[hash & (b->n_buckets - 1)];
    memcpy(marks, b->mark, s->n_words);
    *shape = (struct shape){.words = s->words, .n_words = s->n_words, .hash = hash, .next = *head};
    shape->fixed = marks;
    shape->patch = marks + s->n_words;
    *head = *out = b->n_shapes++;
    return 0;
}

/* Finds the image of a stream: one of equal shape, whose patches are extended by the words that
 * differ, or a new one. */
static int classify(struct builder *b, const struct tw_stream *s, uint32_t *out, tw_error *err) {
    int rc = mark_stream(s, b->mark, err);
    if (rc != 0) {
        return rc;
    }
    uint64_t hash = hash_shape(s, b->mark);
    for (uint32_t i = b->bucket[hash & (b->n_buckets - 1)]; i != TW_NONE; i = b->shapes[i].next) {
        TW_ASSERT(b->shapes && i < b->n_shapes);
        struct shape *shape = &b->shapes[i];
        if (shape->hash == hash && has_shape(shape, s)) {
            for (uint32_t w = 0; w < s->n_words; w++) {
                shape->patch[w] |= shape->words[w] != s->words[w];
            }
            *out = i;
            return 0;
        }
    }
    return add_shape(b, s, hash, out, err);
}

static int classify_all(struct builder *b, const struct tw_program *programs, uint32_t n_programs,
                        struct tw_images *out, tw_error *err) {
    struct tw_stream_record *record = out->streams;
    for (uint32_t p = 0; p < n_programs; p++) {
        for (uint32_t i = 0; i < programs[p].n_sites * TW_ENGINE_COUNT; i++, record++) {
            const struct tw_stream *s = &programs[p].streams[i];
            struct tw_stream_record r = {p, i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT, TW_NONE, 0,
                                         0};
            if (s->site != r.site || s->engine != r.engine) {
                return tw_fail(err, TW_E_INTERNAL, "bundle: program %s: stream %u is out of order",
                               programs[p].name, i);
            }
            int rc = s->n_words ? classify(b, s, &r.image, err) : 0;
            if (rc != 0) {
                return rc;
            }
            *record = r;
        }
    }
    return 0;
}

/* Builds the image records and the patch list from the marks, and counts the arguments. */
static int write_images(const struct builder *b, struct tw_images *out, tw_error *err) {
    uint64_t n_patches = 0, n_args = 0;
    out->n_images = b->n_shapes;
    out->images = calloc(b->n_shapes + 1u, sizeof *out->images);
    out->image_words = calloc(b->n_shapes + 1u, sizeof *out->image_words);
    if (!out->images || !out->image_words) {
        return tw_fail(err, TW_E_NOMEM, "bundle: no memory for %u images", b->n_shapes);
    }
    for (uint32_t i = 0; i < b->n_shapes; i++) {
        struct tw_image_record r = {b->shapes[i].n_words, (uint32_t)n_patches, 0, 0};
        for (uint32_t w = 0; w < r.n_words; w++) {
            r.n_patches += b->shapes[i].patch[w];
        }
        n_patches += r.n_patches;
        out->images[i] = r;
        out->image_words[i] = b->shapes[i].words;
    }
    for (uint32_t i = 0; i < out->n_streams; i++) {
        n_args +=
            out->streams[i].image == TW_NONE ? 0 : out->images[out->streams[i].image].n_patches;
    }
    if (n_patches > UINT32_MAX || n_args > UINT32_MAX) {
        return tw_fail(err, TW_E_UNSUPPORTED, "bundle: there are more than 2^32 arguments");
    }
    out->n_patches = (uint32_t)n_patches;
    out->n_args = (uint32_t)n_args;
    out->patches = calloc(n_patches + 1, sizeof *out->patches);
    out->args = calloc(n_args + 1, sizeof *out->args);
    return out->patches && out->args
               ? 0
               : tw_fail(err, TW_E_NOMEM, "bundle: no memory for the arguments");
}

static void write_args(const struct builder *b, const struct tw_program *programs,
                       struct tw_images *out) {
    for (uint32_t i = 0, at = 0; i < b->n_shapes; i++) {
        for (uint32_t w = 0; w < b->shapes[i].n_words; w++) {
            if (b->shapes[i].patch[w]) {
                out->patches[at++] = w;
            }
        }
    }
    for (uint32_t i = 0, at = 0; i < out->n_streams; i++) {
        struct tw_stream_record *r = &out->streams[i];
        if (r->image == TW_NONE) {
            continue;
        }
        const struct tw_image_record *image = &out->images[r->image];
        const uint32_t *words =
            programs[r->program].streams[r->site * TW_ENGINE_COUNT + r->engine].words;
        r->first_arg = at;
        for (uint32_t k = 0; k < image->n_patches; k++) {
            out->args[at++] = words[out->patches[image->first_patch + k]];
        }
    }
}

static int init(struct builder *b, const struct tw_program *programs, uint32_t n_programs,
                struct tw_images *out, tw_error *err) {
    uint64_t n_streams = 0;
    uint32_t longest = 0;
    for (uint32_t p = 0; p < n_programs; p++) {
        for (uint32_t i = 0; i < programs[p].n_sites * TW_ENGINE_COUNT; i++, n_streams++) {
            uint32_t n = programs[p].streams[i].n_words;
            longest = n > longest ? n : longest;
        }
    }
    b->n_buckets = 1024;
    b->bucket = malloc(b->n_buckets * sizeof *b->bucket);
    b->mark = malloc(longest + 1u);
    out->streams = calloc(n_streams + 1, sizeof *out->streams);
    if (n_streams > UINT32_MAX || !b->bucket || !b->mark || !out->streams) {
        return tw_fail(err, TW_E_NOMEM, "bundle: no memory for %llu streams",
                       (unsigned long long)n_streams);
    }
    memset(b->bucket, 0xFF, b->n_buckets * sizeof *b->bucket);
    out->n_streams = (uint32_t)n_streams;
    return 0;
}

int tw_images_build(const struct tw_program *programs, uint32_t n_programs, struct tw_images *out,
                    tw_error *err) {
    struct builder b;
    memset(&b, 0, sizeof b);
    memset(out, 0, sizeof *out);
    int rc = init(&b, programs, n_programs, out, err);
    rc = rc ? rc : classify_all(&b, programs, n_programs, out, err);
    rc = rc ? rc : write_images(&b, out, err);
    if (rc == 0) {
        write_args(&b, programs, out);
    }
    for (uint32_t i = 0; i < b.n_shapes; i++) {
        free(b.shapes[i].fixed);
    }
    free(b.shapes);
    free(b.bucket);
    free(b.mark);
    return rc;
}

void tw_images_finish(struct tw_images *images) {
    free(images->images);
    free(images->image_words);
    free(images->streams);
    free(images->patches);
    free(images->args);
    memset(images, 0, sizeof *images);
}
