/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing cells (state_write.h).
 */
#include "driver/state/state_write.h"

#include "driver/state/state_internal.h"
#include "firmware/link/packet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define SCRATCH_ALIGN 8u

int tw_saved_writer_begin(struct tw_saved_writer *w, const char *name,
                          const struct tw_saved_schema *schema, const struct tw_saved_sizes *sizes,
                          const uint32_t *tokens, uint32_t n_tokens,
                          const struct tw_saved_source *source, tw_error *err) {
    w->name = name;
    w->schema = schema;
    w->sizes = sizes;
    w->tokens = tokens;
    w->n_tokens = n_tokens;
    w->source = source;
    w->calls.write = w->calls.write ? w->calls.write : pwritev;
    w->calls.sync = w->calls.sync ? w->calls.sync : fdatasync;
    w->calls.replace = w->calls.replace ? w->calls.replace : rename;
    w->scratch_bytes = tw_saved_chunk(schema, sizes);
    w->scratch = malloc(w->scratch_bytes);
    return w->scratch ? 0 : tw_fail(err, TW_E_NOMEM, "%s: out of memory to save a state", name);
}

void tw_saved_writer_end(struct tw_saved_writer *w) {
    free(w->scratch);
}

int tw_saved_fail_write(const char *name, const char *what, int number, tw_error *err) {
    bool full = number == ENOSPC || number == EDQUOT || number == EFBIG;
    return tw_fail(err, full ? TW_E_NOSPACE : TW_E_IO, "%s: cannot %s: %s", name, what,
                   strerror(number));
}

static int write_parts(struct tw_saved_writer *w, tw_error *err) {
    uint32_t first = 0;
    while (first < w->n_parts) {
        ssize_t n =
            w->calls.write(w->fd, w->parts + first, (int)(w->n_parts - first), (off_t)w->at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return tw_saved_fail_write(w->name, "write", n ? errno : ENOSPC, err);
        }
        w->at += (uint64_t)n;
        w->written += (uint64_t)n;
        tw_saved_skip(w->parts, w->n_parts, &first, (uint64_t)n);
    }
    return 0;
}

static void copy_parts(struct tw_saved_writer *w) {
    for (uint32_t i = 0; i < w->n_parts; i++) {
        memcpy(w->memory + w->at, w->parts[i].iov_base, w->parts[i].iov_len);
        w->at += w->parts[i].iov_len;
        w->written += w->parts[i].iov_len;
    }
}

int tw_saved_flush(struct tw_saved_writer *w, tw_error *err) {
    int code = 0;
    if (w->fd >= 0) {
        code = write_parts(w, err);
    } else {
        copy_parts(w);
    }
    w->n_parts = 0;
    w->pending = 0;
    w->scratch_used = 0;
    return code;
}

int tw_saved_sync(struct tw_saved_writer *w, tw_error *err) {
    return w->fd < 0 || w->calls.sync(w->fd) == 0
               ? 0
               : tw_saved_fail_write(w->name, "write to the disk", errno, err);
}

/* Flushes if no part can be added at offset `at`, or `scratch` bytes are not left. */
static int make_room(struct tw_saved_writer *w, uint64_t at, uint64_t scratch, tw_error *err) {
    bool is_full = w->n_parts == TW_SAVED_PARTS || w->pending >= w->scratch_bytes ||
                   w->scratch_bytes - w->scratch_used < scratch;
    return is_full || (w->n_parts && at != w->at + w->pending) ? tw_saved_flush(w, err) : 0;
}

int tw_saved_add(struct tw_saved_writer *w, uint64_t at, const void *bytes, uint64_t n,
                 tw_error *err) {
    int code = make_room(w, at, 0, err);
    w->at = w->n_parts ? w->at : at;
    w->parts[w->n_parts].iov_base = (void *)(uintptr_t)bytes; /* iovec has no const */
    w->parts[w->n_parts++].iov_len = (size_t)n;
    w->pending += n;
    return code;
}

/* ---- a slot ---- */

static int add_page(struct tw_saved_writer *w, uint32_t slot, uint32_t tensor, uint32_t instance,
                    uint64_t *at, uint32_t *checksum, tw_error *err) {
    uint64_t n = w->schema->tensors[tensor].page_bytes;
    int code = make_room(w, *at, n, err); /* before the page is where a flush would free it */
    if (code) {
        return code;
    }
    uint8_t *scratch = w->scratch + w->scratch_used;
    const void *page = w->source->page(w->source->ctx, slot, tensor, instance, scratch, err);
    if (!page) {
        return err->code;
    }
    *checksum = tw_packet_crc32c(0, page, n);
    if (page == scratch) {
        uint64_t used = w->scratch_used + (n + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
        w->scratch_used = used < w->scratch_bytes ? used : w->scratch_bytes;
    }
    code = tw_saved_add(w, *at, page, n, err);
    *at += n;
    return code;
}

static void make_tail(const struct tw_saved_writer *w, uint32_t slot, uint8_t *tail) {
    uint32_t first = slot * w->schema->page_positions, left = w->n_tokens - first;
    struct tw_saved_tail t = {slot,
                              left < w->schema->page_positions ? left : w->schema->page_positions};
    memset(tail, 0, w->sizes->checksums);
    memcpy(tail, &t, sizeof t);
    for (uint32_t i = 0; i < t.n_tokens; i++) {
        memcpy(tail + sizeof t + (size_t)i * w->sizes->token_bytes, &w->tokens[first + i],
               w->sizes->token_bytes);
    }
}

int tw_saved_add_slot(struct tw_saved_writer *w, uint32_t slot, uint32_t cell, uint8_t *tail,
                      tw_error *err) {
    uint64_t at = w->sizes->first_cell + cell * w->sizes->cell_bytes;
    uint8_t *checksum = tail + w->sizes->checksums;
    int code = 0;
    make_tail(w, slot, tail);
    for (uint32_t t = 0; t < w->schema->n_tensors && !code; t++) {
        for (uint32_t i = 0; i < w->schema->tensors[t].instances && !code; i++) {
            uint32_t sum = 0;
            code = add_page(w, slot, t, i, &at, &sum, err);
            memcpy(checksum, &sum, sizeof sum);
            checksum += sizeof sum;
        }
    }
    return code ? code : tw_saved_add(w, at, tail, w->sizes->tail_bytes, err);
}
