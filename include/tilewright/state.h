/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving the state of a session and restoring it, also by another process, on another target or
 * number of threads, with the same bits; and saved states as files, tilewright-state(5), for which
 * neither a device nor a model is needed. Part of the public API; the conventions are those of
 * tilewright.h.
 */
#ifndef TILEWRIGHT_STATE_H
#define TILEWRIGHT_STATE_H

#include "tilewright/tilewright.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sessions ---- */

struct tw_session_saved {
    uint32_t size;
    uint32_t n_tokens;      /* of the sequence */
    uint32_t appended;      /* 1: the file had a beginning of the sequence, and got what was new */
    uint64_t written_bytes; /* 0: it had all of it */
    uint64_t file_bytes;
};

/* Saves the session's sequence, its tokens and their state, at `path`. If the sequence continues
 * the one that is saved there, what is new is appended; otherwise that file is replaced; a file
 * that is no saved state is not. If the process dies, or a save fails, the file holds what it held
 * before, or all of the sequence. `saved` may be NULL. The file is for this user only (mode 0600),
 * and never written through a symbolic link. Errors: USAGE (no tokens; the file is no saved state;
 * feeding the tokens of a lost window again was interrupted), UNSUPPORTED (the bundle does not
 * keep its state in pages: compile the model again), FAULT (an earlier step failed), IO, NOSPACE
 * (need). */
int tw_session_save(const tw_session *session, const char *path, struct tw_session_saved *saved,
                    tw_error *err);
/* Saves it in bytes[0..capacity) if that is enough, and sets *size to the bytes that it takes in
 * any case. `bytes` may be NULL if capacity is 0. */
int tw_session_save_memory(const tw_session *session, void *bytes, size_t capacity, size_t *size,
                           tw_error *err);

/* Makes a saved sequence the session's: *n_tokens (may be NULL) of them, which is then its
 * position. The next tokens fed continue it; nothing of it is computed again, but by models with
 * sliding windows in contexts longer than these: only the state of all positions is saved, so their
 * tokens are fed again before the next step. As after a rewind there are no logits before that.
 * Everything is checked before the device is written to, and the session has its former sequence
 * until all of the saved one is on the device; so after an error it goes on as if nothing had been
 * asked. Errors: IO, FORMAT, TRUNCATED, HASH (damaged: where), UNSUPPORTED (of another model,
 * element type of the caches or version: names both; of a context in which windows are kept
 * otherwise; or as above), CONTEXT_FULL (it is longer than the session's context), NOMEM (out of
 * pages of state: who holds them), FAULT. */
int tw_session_restore(tw_session *session, const char *path, uint32_t *n_tokens, tw_error *err);
/* The same from bytes[0..size), which must not change meanwhile. */
int tw_session_restore_memory(tw_session *session, const void *bytes, size_t size,
                              uint32_t *n_tokens, tw_error *err);

/* Stores the first `capacity` tokens of the session's sequence in `ids`, and returns how many it
 * has. `ids` may be NULL if capacity is 0; 0 if `session` is NULL. */
size_t tw_session_tokens(const tw_session *session, uint32_t *ids, size_t capacity);

/* ---- files ---- */

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
    TW_STATE_FILE_CHECK = 1 /* read and check everything, not only what the info needs */
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
