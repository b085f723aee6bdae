/* SPDX-License-Identifier: Apache-2.0
 *
 * The pages of a saved state (state_file.h). They are read a chunk at a time into a buffer that
 * stays in the processor's cache, checked there, and passed on.
 */
#include "driver/state/state_internal.h"
#include "firmware/link/packet.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* How many bytes of pages from `at` on fit the buffer: at least one page. */
static uint64_t chunk_of(const struct tw_saved *f, const struct place *at, uint64_t room) {
    struct place p = *at;
    uint64_t n = 0;
    while (p.page < f->sizes.cell_pages && n + f->schema.tensors[p.tensor].page_bytes <= room) {
        n += f->schema.tensors[p.tensor].page_bytes;
        next_page(&f->schema, &p);
    }
    return n;
}

static int read_slot(const struct tw_saved *f, uint32_t slot, uint8_t *buffer, uint64_t room,
                     const struct tw_saved_sink *sink, tw_error *err) {
    uint64_t from = f->sizes.first_cell + f->cells[slot] * f->sizes.cell_bytes;
    struct place at = {.slot = slot};
    int code = 0;
    while (at.page < f->sizes.cell_pages && !code) {
        uint64_t n = chunk_of(f, &at, room);
        code = tw_saved_read_at(f, from, buffer, n, err);
        for (uint64_t done = 0; done < n && !code;) {
            uint64_t bytes = f->schema.tensors[at.tensor].page_bytes;
            code = use_page(f, &at, buffer + done, sink, err);
            done += bytes;
            next_page(&f->schema, &at);
        }
        from += n;
    }
    return code;
}

static uint64_t room_for(const struct tw_saved_schema *s) {
    uint64_t room = TW_SAVED_CHUNK;
    for (uint32_t t = 0; t < s->n_tensors; t++) {
        room = s->tensors[t].page_bytes > room ? s->tensors[t].page_bytes : room;
    }
    return room;
}

int tw_saved_read_pages(const struct tw_saved *f, const struct tw_saved_sink *sink, tw_error *err) {
    uint64_t room = room_for(&f->schema);
    uint8_t *buffer = malloc(room);
    int code = buffer ? 0 : tw_fail(err, TW_E_NOMEM, "%s: out of memory", f->name);
    for (uint32_t slot = 0; slot < f->n_slots && !code; slot++) {
        code = read_slot(f, slot, buffer, room, sink, err);
    }
    free(buffer);
    return code;
}

int tw_saved_read(struct tw_saved *f, const struct tw_saved_sink *sink, tw_error *err) {
    return f->tails ? tw_saved_read_pages(f, sink, err)
                    : tw_fail(err, TW_E_USAGE, "%s: was opened without its index", f->name);
}
