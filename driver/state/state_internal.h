/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of this room: an open state, and the parts that reading and saving share.
 */
#ifndef TW_DRIVER_STATE_STATE_INTERNAL_H
#define TW_DRIVER_STATE_STATE_INTERNAL_H

#include "driver/state/state_file.h"
#include "loader/base/file_map.h"

#define TW_SAVED_CHUNK 0x40000u /* bytes that are read or written at once, if pages are smaller */

struct tw_saved {
    char name[TW_SHORT_PATH_BYTES]; /* for messages */
    int fd;                         /* -1: in memory */
    const uint8_t *memory;
    uint64_t size;  /* of file or memory, when it was opened */
    bool is_healed; /* both commits are whole and equal */
    struct tw_saved_commit commit;
    struct tw_saved_schema schema;
    struct tw_saved_sizes sizes;
    uint32_t n_slots;
    uint32_t *cells;  /* of each slot */
    uint32_t *tokens; /* n_slots * page_positions */
    uint8_t *tails;   /* n_slots of them */
};

/* Makes an open state of a file (which tw_saved_close() then closes), or of memory (fd -1). NULL:
 * out of memory, and the file stays the caller's. */
struct tw_saved *tw_saved_new(const char *path, int fd, const void *memory, uint64_t size);
/* Reads and checks it to that depth, as tw_saved_open(). */
int tw_saved_load(struct tw_saved *f, const struct tw_saved_schema *expected,
                  enum tw_saved_depth depth, tw_error *err);
/* Reads bytes of the file into the parts, which it changes. Errors: TRUNCATED, IO. */
int tw_saved_read_parts(const struct tw_saved *f, uint64_t at, struct iovec *parts, uint32_t n,
                        tw_error *err);
/* Reads and checks every page; `sink` may be NULL. */
int tw_saved_read_pages(const struct tw_saved *f, const struct tw_saved_sink *sink, tw_error *err);

/* The most bytes of pages that are read or written at once: TW_SAVED_CHUNK, or a page. */
uint64_t tw_saved_chunk(const struct tw_saved_schema *schema, const struct tw_saved_sizes *sizes);
/* Skips n bytes of the n_parts parts from *first on, which have as many. */
void tw_saved_skip(struct iovec *parts, uint32_t n_parts, uint32_t *first, uint64_t n);

/* Takes the lock of an open file, for reading or for writing; `wait`: if another has it, waits for
 * a while. Errors: IO. */
int tw_saved_lock(int fd, bool write, bool wait, const char *name, tw_error *err);
/* True if the file has a commit of whatever version, or is empty. */
bool tw_saved_may_replace(int fd);

/* Computes the commit's hash. */
void tw_saved_hash_commit(const struct tw_saved_commit *commit, uint8_t hash[TW_SAVED_HASH_BYTES]);

#endif
