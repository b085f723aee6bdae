/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the bundles of long_step.h: the weights and tables of the old one, a new stream for one
 * engine, new certificates.
 */
#include "tests/support/long_step.h"

#include "compiler/emit/bundle_write.h"
#include "compiler/spatial/certify.h"
#include "loader/bundle/loader.h"
#include "tilewright/op_schema.h"

#include <stdlib.h>
#include <string.h>

/* The budget is 2^28 ops and an iteration has two; the rest of the step needs some, too. */
#define TIMES ((UINT32_C(1) << 27) - 65536u)
#define MAX_POSITIONS 1024u
#define LOOP_ID 1u
#define VAR 1u

struct writer {
    struct tw_cmem mem;
    struct tw_bundle in;
    struct tw_program *programs;
    struct tw_emit_symbol *symbols;
    uint32_t *bind_symbol;
};

/* The first ROPE_TABLE that stands in no loop: an op of the math engine that writes what it wrote
 * before, however often. */
static bool find_op(const struct tw_stream *s, uint32_t *at, struct tw_op *op) {
    uint32_t depth = 0;
    for (*at = 0; *at < s->n_words; *at += op->n_words) {
        if (!tw_op_decode(s->words, s->n_words, *at, op)) {
            return false;
        }
        depth += op->code == TW_OP_LOOP;
        depth -= op->code == TW_OP_END;
        if (op->code == TW_OP_ROPE_TABLE && depth == 0) {
            return true;
        }
    }
    return false;
}

/* Adds a trip of about TIMES at any position; returns its number. */
static uint32_t add_trip(struct writer *w, struct tw_program *p) {
    struct tw_trip *trips = tw_cmem_alloc(&w->mem, (p->n_trips + 1) * sizeof *trips);
    memcpy(trips, p->trips, p->n_trips * sizeof *trips);
    trips[p->n_trips] = p->trips[0];
    trips[p->n_trips].add = TIMES - MAX_POSITIONS;
    trips[p->n_trips].div = 1;
    trips[p->n_trips].max = TIMES;
    p->trips = trips;
    return p->n_trips++;
}

static void repeat(struct writer *w, struct tw_program *p, struct tw_stream *s, uint32_t at,
                   const struct tw_op *op) {
    uint32_t *words = tw_cmem_alloc(&w->mem, (s->n_words + 64u) * sizeof *words);
    uint32_t n = at + op->n_words; /* once outside, as the trip might be 0 */
    memcpy(words, s->words, n * sizeof *words);
    struct tw_op loop = tw_make_loop(op->stage, VAR, tw_count_of(add_trip(w, p), TIMES), LOOP_ID);
    n += tw_op_encode(&loop, words + n);
    memcpy(words + n, s->words + at, op->n_words * sizeof *words);
    n += op->n_words;
    struct tw_op end = tw_make_end(op->stage);
    n += tw_op_encode(&end, words + n);
    uint32_t rest = s->n_words - at - op->n_words;
    memcpy(words + n, s->words + at + op->n_words, rest * sizeof *words);
    s->words = words;
    s->n_words = n + rest;
}

static int lengthen(struct writer *w, tw_error *err) {
    w->programs = tw_cmem_alloc(&w->mem, w->in.n_programs * sizeof *w->programs);
    memcpy(w->programs, w->in.programs, w->in.n_programs * sizeof *w->programs);
    for (uint32_t i = 0; i < w->in.n_programs; i++) {
        struct tw_program *p = &w->programs[i];
        uint32_t n = p->n_sites * TW_ENGINE_COUNT, at;
        struct tw_stream *streams = tw_cmem_alloc(&w->mem, n * sizeof *streams);
        memcpy(streams, p->streams, n * sizeof *streams);
        p->streams = streams;
        struct tw_op op;
        for (uint32_t s = TW_ENGINE_MATH; strcmp(p->name, "decode") == 0 && s < n;
             s += TW_ENGINE_COUNT) {
            if (find_op(&streams[s], &at, &op)) {
                repeat(w, p, &streams[s], at, &op);
                return 0;
            }
        }
    }
    return tw_fail(err, TW_E_FORMAT, "%s: no rope_table to repeat", w->in.path);
}

static int fill(void *ctx, const struct tw_emit_symbol *symbol, uint64_t offset, uint64_t size,
                uint8_t *dst, tw_error *err) {
    const struct writer *w = ctx;
    const struct tw_symbol *s = symbol->source;
    (void)err;
    memcpy(dst, w->in.segments[s->segment].bytes + s->offset + offset, (size_t)size);
    return 0;
}

/* The tables of symbols and binding rows, in the old order, so that everything keeps its place. */
static void list_symbols(struct writer *w) {
    const struct tw_bundle *b = &w->in;
    w->symbols = tw_cmem_alloc(&w->mem, b->n_symbols * sizeof *w->symbols);
    w->bind_symbol = tw_cmem_alloc(&w->mem, (size_t)b->n_bind_rows * sizeof *w->bind_symbol);
    for (uint32_t i = 0; i < b->n_symbols; i++) {
        const struct tw_symbol *s = &b->symbols[i];
        w->symbols[i] = (struct tw_emit_symbol){.name = s->name,
                                                .role = s->role,
                                                .dtype = s->dtype,
                                                .bank = b->segments[s->segment].bank,
                                                .bytes = s->size,
                                                .source = s};
        for (uint64_t r = 0; r < b->n_bind_rows; r++) {
            if (b->bind[r].segment == s->segment && b->bind[r].offset == s->offset) {
                w->bind_symbol[r] = i;
            }
        }
    }
}

static int write_bundle(struct writer *w, const char *to, tw_error *err) {
    const struct tw_bundle *b = &w->in;
    struct tw_certificate *c = tw_cmem_alloc(&w->mem, b->n_programs * sizeof *c);
    int code = 0;
    for (uint32_t i = 0; i < b->n_programs && !code; i++) {
        code = tw_certify(&w->mem, &w->programs[i], &c[i], err);
    }
    if (code) {
        return code;
    }
    list_symbols(w);
    struct tw_emit_spec spec = {.note = *b->note,
                                .n_programs = b->n_programs,
                                .programs = w->programs,
                                .n_symbols = b->n_symbols,
                                .symbols = w->symbols,
                                .n_bind_rows = b->n_bind_rows,
                                .bind_symbol = w->bind_symbol,
                                .vocab = b->vocab,
                                .vocab_bytes = b->vocab_bytes,
                                .fill = fill,
                                .ctx = w};
    spec.certificate =
        tw_certificate_pack(&w->mem, w->programs, c, b->n_programs, &spec.certificate_bytes);
    return tw_bundle_write(to, &spec, err);
}

int long_step_write(const char *from, const char *to, tw_error *err) {
    struct writer w = {.programs = NULL};
    int code = tw_cmem_init(&w.mem, err);
    if (code) {
        return code;
    }
    code = tw_bundle_open(from, 0, &w.in, err);
    code = code ? code : lengthen(&w, err);
    code = code ? code : write_bundle(&w, to, err);
    tw_bundle_close(&w.in);
    tw_cmem_finish(&w.mem);
    return code;
}
