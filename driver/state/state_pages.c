/* SPDX-License-Identifier: Apache-2.0
 *
 * The pages of a saved state (state_file.h). They are read a chunk at a time into a buffer that
 * stays in the processor's cache, checked there, and passed on.
 */
#include "driver/state/state_internal.h"
#include "firmware/link/packet.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_PAGES 256u
#define TWO_THREADS_BYTES 0x800000u /* of pages: less is not worth a thread */

/* Where a page is: counts through the tensors and instances of a slot. */
struct place {
    uint32_t slot, page, tensor, instance;
};

static void next_page(const struct tw_saved_schema *s, struct place *at) {
    at->page++;
    if (++at->instance == s->tensors[at->tensor].instances) {
        at->instance = 0;
        at->tensor++;
    }
}

static int fail_page(const struct tw_saved *f, const struct place *at, tw_error *err) {
    uint32_t first = at->slot * f->schema.page_positions;
    uint32_t end = f->commit.n_tokens - first < f->schema.page_positions
                       ? f->commit.n_tokens
                       : first + f->schema.page_positions;
    return tw_fail(err, TW_E_HASH,
                   "%s: %s of layer %u, positions %u to %u: damaged, the checksum is another",
                   f->name, f->schema.tensors[at->tensor].name, at->instance, first, end - 1);
}

static int use_page(const struct tw_saved *f, const struct place *at, const uint8_t *bytes,
                    const struct tw_saved_sink *sink, tw_error *err) {
    uint32_t expected;
    memcpy(&expected,
           f->tails + at->slot * f->sizes.tail_bytes + f->sizes.checksums + 4 * (size_t)at->page,
           sizeof expected);
    if (tw_packet_crc32c(0, bytes, f->schema.tensors[at->tensor].page_bytes) != expected) {
        return fail_page(f, at, err);
    }
    return sink ? sink->page(sink->ctx, at->slot, at->tensor, at->instance, bytes, err) : 0;
}

uint64_t tw_saved_chunk(const struct tw_saved_schema *s, const struct tw_saved_sizes *sizes) {
    uint64_t n = sizes->pages_bytes < TW_SAVED_CHUNK ? sizes->pages_bytes : TW_SAVED_CHUNK;
    for (uint32_t t = 0; t < s->n_tensors; t++) {
        n = s->tensors[t].page_bytes > n ? s->tensors[t].page_bytes : n;
    }
    return n;
}

/* A chunk: pages that follow each other in a cell. */
struct chunk {
    uint8_t *buffer;
    uint64_t room;
    struct place first;
    uint32_t n;
    uint8_t *at[CHUNK_PAGES]; /* where the pages are */
    uint64_t bytes;
};

/* Where pages from `first` on are to be read: as many as fit the buffer, whether it is used or not,
 * and at least one. */
static void plan_chunk(const struct tw_saved *f, const struct tw_saved_sink *sink,
                       struct chunk *c) {
    struct place p = c->first;
    uint64_t n;
    c->n = 0;
    for (c->bytes = 0; p.page < f->sizes.cell_pages && c->n < CHUNK_PAGES; c->bytes += n) {
        n = f->schema.tensors[p.tensor].page_bytes;
        if (c->bytes + n > c->room) {
            break;
        }
        uint8_t *own =
            sink && sink->place ? sink->place(sink->ctx, p.slot, p.tensor, p.instance) : NULL;
        c->at[c->n++] = own ? own : c->buffer + c->bytes;
        next_page(&f->schema, &p);
    }
}

static int read_chunk(const struct tw_saved *f, uint64_t from, const struct chunk *c,
                      tw_error *err) {
    struct iovec parts[CHUNK_PAGES];
    struct place p = c->first;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        uint64_t bytes = f->schema.tensors[p.tensor].page_bytes;
        if (n && (uint8_t *)parts[n - 1].iov_base + parts[n - 1].iov_len == c->at[i]) {
            parts[n - 1].iov_len += bytes;
        } else {
            parts[n++] = (struct iovec){c->at[i], bytes};
        }
        next_page(&f->schema, &p);
    }
    return tw_saved_read_parts(f, from, parts, n, err);
}

static int read_slot(const struct tw_saved *f, uint32_t slot, struct chunk *c,
                     const struct tw_saved_sink *sink, tw_error *err) {
    uint64_t from = f->sizes.first_cell + f->cells[slot] * f->sizes.cell_bytes;
    struct place at = {.slot = slot};
    int code = 0;
    while (at.page < f->sizes.cell_pages && !code) {
        c->first = at;
        plan_chunk(f, sink, c);
        code = read_chunk(f, from, c, err);
        for (uint32_t i = 0; i < c->n && !code; i++) {
            code = use_page(f, &at, c->at[i], sink, err);
            next_page(&f->schema, &at);
        }
        from += c->bytes;
    }
    return code;
}

/* Slots [from, to). */
static int read_slots(const struct tw_saved *f, uint32_t from, uint32_t to,
                      const struct tw_saved_sink *sink, tw_error *err) {
    struct chunk c = {.room = tw_saved_chunk(&f->schema, &f->sizes)};
    c.buffer = malloc(c.room);
    int code = c.buffer ? 0 : tw_fail(err, TW_E_NOMEM, "%s: out of memory", f->name);
    for (uint32_t slot = from; slot < to && !code; slot++) {
        code = read_slot(f, slot, &c, sink, err);
    }
    free(c.buffer);
    return code;
}

/* ---- checking, by two threads ---- */

struct half {
    const struct tw_saved *f;
    uint32_t from, to;
    int code;
    tw_error err;
};

static void *check_half(void *ctx) {
    struct half *h = ctx;
    h->code = read_slots(h->f, h->from, h->to, NULL, &h->err);
    return NULL;
}

/* What is first damaged is reported, however the work is divided. */
static int check_slots(const struct tw_saved *f, tw_error *err) {
    bool is_large = f->n_slots > 1 && f->n_slots * f->sizes.pages_bytes >= TWO_THREADS_BYTES;
    struct half second = {.f = f, .from = is_large ? f->n_slots / 2 : f->n_slots, .to = f->n_slots};
    pthread_t thread;
    if (is_large && pthread_create(&thread, NULL, check_half, &second) != 0) {
        is_large = false;
        second.from = f->n_slots;
    }
    int code = read_slots(f, 0, second.from, NULL, err);
    if (is_large) {
        pthread_join(thread, NULL);
        code = code || !second.code ? code : tw_fail(err, second.code, "%s", second.err.message);
    }
    return code;
}

int tw_saved_read_pages(const struct tw_saved *f, const struct tw_saved_sink *sink, tw_error *err) {
    return sink ? read_slots(f, 0, f->n_slots, sink, err) : check_slots(f, err);
}

int tw_saved_read(struct tw_saved *f, const struct tw_saved_sink *sink, tw_error *err) {
    return f->tails ? tw_saved_read_pages(f, sink, err)
                    : tw_fail(err, TW_E_USAGE, "%s: was opened without its index", f->name);
}
