/* SPDX-License-Identifier: Apache-2.0
 *
 * Saved states of sequences, tilewright-state(5), as files: what is in them, and their removal.
 * Needs no device and no model. Part of the public API; the conventions are those of tilewright.h.
 */
#ifndef TILEWRIGHT_STATE_H
#define TILEWRIGHT_STATE_H

#include "tilewright/tilewright.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tw_state_info {
    uint32_t size;
    uint32_t version; /* of the format */
    uint32_t n_tokens;
    uint32_t page_positions; /* tokens of a page */
    uint32_t n_slots;        /* pages of a layer and side */
    uint32_t n_tensors;
    uint64_t n_pages;     /* of all layers and sides */
    uint64_t pages_bytes; /* of all pages */
    uint64_t file_bytes;  /* that the state needs */
    uint64_t saves;       /* how often it was saved: 1, and 1 for each time that it grew */
    uint64_t saved_ns;    /* the last time, since 1970 */
    uint8_t model_hash[32];
    char model[64], policy[64], kv[16]; /* kv: element type of keys and values, "f16" */
};

enum tw_state_file_flags {
    TW_STATE_FILE_CHECK = 1 /* read everything and check it, not only what tells the info */
};

/* Describes the saved state at `path`, which must belong to this user and not be writable by
 * others. Errors: IO (cannot be opened; another user's; a link), FORMAT (not a saved state;
 * malformed), UNSUPPORTED (of another version), TRUNCATED, HASH (damaged; says where), RANGE. */
int tw_state_file_info(const char *path, uint32_t flags, struct tw_state_info *info, tw_error *err);

/* Removes the saved state at `path`, also a damaged one or one of another version. Errors: IO,
 * as above; FORMAT (not a saved state: it stays). */
int tw_state_file_remove(const char *path, tw_error *err);

#ifdef __cplusplus
}
#endif
#endif
