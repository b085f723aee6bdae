/* SPDX-License-Identifier: Apache-2.0
 *
 * Saved states: a sequence's tokens and cache pages in a file (state_format.h) or in memory. This
 * room knows no device: pages come from and go to callbacks.
 *
 * A file can be killed, cut, edited or replaced at any time. Saving never changes a byte that the
 * last complete save needs; what is read is first checked, whole, and checked again when its pages
 * are used, so a file that changes meanwhile is noticed. The hashes find accidents and edits; they
 * are not signatures: who can write the file can write another valid one, which is why the file is
 * 0600, must belong to this user, and symbolic links are not followed. Whatever it holds, a state
 * that opens has sizes, slots and ids in range; the values in its pages are any bytes.
 *
 * All functions are legal from any thread; an open state is used by one at a time.
 */
#ifndef TW_DRIVER_STATE_STATE_FILE_H
#define TW_DRIVER_STATE_STATE_FILE_H

#include "driver/state/state_format.h"
#include "tilewright/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* ---- saving ---- */

/* Where the pages of a sequence come from: returns page_bytes bytes of a page, which it either put
 * into `scratch` (as many bytes, at a multiple of 8) or has in memory, unchanged until the save
 * returns. NULL: the save fails with err->code, which it has set. Called once for each page, slot
 * by slot, tensor by tensor, instance by instance. What the last page has after the sequence's
 * last position is stored as it is: the caller clears it if it could be another sequence's. */
struct tw_saved_source {
    const void *(*page)(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance, void *scratch,
                        tw_error *err);
    void *ctx;
};

/* The system calls of a save, so that tests can have them fail. NULL members: the real ones. */
struct tw_saved_calls {
    ssize_t (*write)(int fd, const struct iovec *parts, int n, off_t at); /* pwritev */
    int (*sync)(int fd);                                                  /* fdatasync */
    int (*replace)(const char *from, const char *to);                     /* rename */
};

struct tw_saved_result {
    bool appended;          /* only what the file did not have was written */
    uint32_t n_slots;       /* written */
    uint64_t written_bytes; /* of them and of the commits */
    uint64_t file_bytes;
};

/* Saves the sequence tokens[0..n), n > 0, at `path`. If there is a state with an equal schema whose
 * tokens the sequence begins with, the slots that it lacks are appended, and its last, incomplete
 * one once more; the pages that it has are trusted to be this sequence's. Otherwise the file is
 * replaced as a whole; what is not a saved state (or empty) is never replaced. The data is on the
 * disk when it returns. If it fails or the process dies, the file holds what it held before.
 * `calls` may be NULL. Errors: USAGE (a schema out of bounds; an id outside the vocabulary; the
 * file at `path` is not a saved state), IO (it is another user's or a link; it cannot be written;
 * another process reads or writes it), NOSPACE (disk, quota or limit of file sizes: need), RANGE
 * (too long), NOMEM; those of the source. */
int tw_saved_write(const char *path, const struct tw_saved_schema *schema, const uint32_t *tokens,
                   uint32_t n, const struct tw_saved_source *source,
                   const struct tw_saved_calls *calls, struct tw_saved_result *saved,
                   tw_error *err);

/* Writes the same bytes as a new file has to bytes[0..capacity) if that is enough, and sets *size
 * to their number in any case; `bytes` may be NULL if capacity is 0. Errors: USAGE, RANGE, NOMEM;
 * those of the source. */
int tw_saved_write_memory(const struct tw_saved_schema *schema, const uint32_t *tokens, uint32_t n,
                          const struct tw_saved_source *source, void *bytes, uint64_t capacity,
                          uint64_t *size, tw_error *err);

/* ---- reading ---- */

typedef struct tw_saved tw_saved;

/* Where pages go. */
struct tw_saved_sink {
    /* Takes page_bytes bytes, whose checksum is right, in the order of a source's calls. Returns 0,
     * or a code with *err set, which ends the reading. */
    int (*page)(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance, const void *bytes,
                tw_error *err);
    void *ctx;
    /* Or NULL. Where the page is to be read to, before it is checked; `bytes` is then that. NULL:
     * to a buffer of the reader. */
    void *(*place)(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance);
};

enum tw_saved_depth {
    TW_SAVED_HEAD,  /* commits and schema */
    TW_SAVED_INDEX, /* and which slots there are, their tokens and checksums */
    TW_SAVED_WHOLE  /* and every page */
};

/* Opens and checks a state, to that depth. `expected`: what the schema must be, or NULL. *out is
 * the caller's: tw_saved_close(); until then no process appends to the file. The memory of
 * tw_saved_open_memory() stays the caller's, and unchanged, until then. Errors: IO (cannot be
 * opened, another user's, a link; being written), FORMAT (not a saved state; a table that
 * contradicts itself), UNSUPPORTED (another version; another model, KV type, position policy, page
 * geometry or vocabulary than expected: both are named), TRUNCATED, HASH (damaged: where), RANGE
 * (beyond the limits of state_format.h), NOMEM. */
int tw_saved_open(const char *path, const struct tw_saved_schema *expected,
                  enum tw_saved_depth depth, tw_saved **out, tw_error *err);
int tw_saved_open_memory(const void *bytes, uint64_t size, const struct tw_saved_schema *expected,
                         enum tw_saved_depth depth, tw_saved **out, tw_error *err);
/* Closes it. NULL is legal. */
void tw_saved_close(tw_saved *file);

/* What it holds, valid until it is closed. Tokens: NULL if it was opened for its head only. */
const struct tw_saved_commit *tw_saved_commit_of(const tw_saved *file);
const uint32_t *tw_saved_tokens(const tw_saved *file, uint32_t *n);

/* Reads every page, checks it, and passes it on; the state was opened for its index at least.
 * Errors: TRUNCATED, HASH (the file changed since it was opened, or was not checked whole), IO;
 * those of the sink. */
int tw_saved_read(tw_saved *file, const struct tw_saved_sink *sink, tw_error *err);

/* ---- sizes ---- */

struct tw_saved_sizes {
    uint32_t token_bytes;
    uint32_t cell_pages;
    uint64_t pages_bytes; /* of a cell */
    uint64_t tail_bytes, cell_bytes;
    uint32_t checksums; /* their offset in a tail */
    uint32_t schema_bytes;
    uint64_t first_cell; /* its offset in the file */
};

/* Checks a schema and computes the sizes that follow from it. Errors: RANGE (a count beyond
 * its limit; names it), FORMAT (texts that are not terminated and padded with zeros). */
int tw_saved_sizes_of(const struct tw_saved_schema *schema, struct tw_saved_sizes *out,
                      tw_error *err);

/* How many slots n tokens take. */
static inline uint32_t tw_saved_slots(const struct tw_saved_schema *schema, uint32_t n) {
    return n / schema->page_positions + (n % schema->page_positions != 0);
}

/* The element type of its keys and values: "f16"; "?": none that this version knows. Static. */
const char *tw_saved_kv_name(const struct tw_saved_schema *schema);

/* Checks that a state of schema `found` can be used where `expected` is. `name`: of the file, for
 * messages. Errors: UNSUPPORTED, as tw_saved_open(). */
int tw_saved_schema_match(const char *name, const struct tw_saved_schema *found,
                          const struct tw_saved_schema *expected, tw_error *err);

#endif
