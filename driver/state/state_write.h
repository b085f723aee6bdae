/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing cells: pages are gathered, with their checksums, into large writes, straight from where
 * they are in memory if they can be.
 */
#ifndef TW_DRIVER_STATE_STATE_WRITE_H
#define TW_DRIVER_STATE_STATE_WRITE_H

#include "driver/state/state_file.h"

#define TW_SAVED_PARTS 256u

struct tw_saved_writer {
    const char *name;
    int fd;          /* -1: to memory */
    uint8_t *memory; /* of the size that is written */
    struct tw_saved_calls calls;
    const struct tw_saved_schema *schema;
    const struct tw_saved_sizes *sizes;
    const uint32_t *tokens;
    uint32_t n_tokens;
    const struct tw_saved_source *source;
    uint8_t *scratch; /* pages that the source copied */
    uint64_t scratch_bytes, scratch_used;
    struct iovec parts[TW_SAVED_PARTS];
    uint32_t n_parts;
    uint64_t at, pending; /* where the parts begin, and their bytes */
    uint64_t written;
};

/* Fills in what all fields but fd, memory and calls follow from, and allocates. */
int tw_saved_writer_begin(struct tw_saved_writer *w, const char *name,
                          const struct tw_saved_schema *schema, const struct tw_saved_sizes *sizes,
                          const uint32_t *tokens, uint32_t n_tokens,
                          const struct tw_saved_source *source, tw_error *err);
void tw_saved_writer_end(struct tw_saved_writer *w);

/* Adds n bytes at offset `at`, which stay where they are until the next flush. */
int tw_saved_add(struct tw_saved_writer *w, uint64_t at, const void *bytes, uint64_t n,
                 tw_error *err);
int tw_saved_flush(struct tw_saved_writer *w, tw_error *err);
int tw_saved_sync(struct tw_saved_writer *w, tw_error *err);
/* Adds a slot as cell number `cell`; its tail is made in `tail`. */
int tw_saved_add_slot(struct tw_saved_writer *w, uint32_t slot, uint32_t cell, uint8_t *tail,
                      tw_error *err);
/* Returns the error of a failed write. */
int tw_saved_fail_write(const char *name, const char *what, int number, tw_error *err);

#endif
