/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a bundle with libelf. Weights are streamed: each tensor's bytes are asked for when their
 * place in the file comes, in pieces, so that memory does not grow with the model.
 */
#ifndef TW_COMPILER_EMIT_BUNDLE_WRITE_H
#define TW_COMPILER_EMIT_BUNDLE_WRITE_H

#include "tilewright/bundle.h"
#include "tilewright/error.h"

/* A tensor instance. Its offset is assigned by the writer: PARAM symbols are laid out in order
 * inside their bank, STATE and INPUT/OUTPUT in .tw.state and .tw.scratch, each aligned to 64
 * bytes. */
struct tw_emit_symbol {
    const char *name;
    uint32_t role, dtype;
    uint32_t bank; /* PARAM */
    uint64_t bytes;
    const void *source; /* PARAM: passed to fill */
};

struct tw_emit_spec {
    /* all but bundle_*, abi_major, n_programs, meta_bytes, content_hash */
    struct tw_bundle_note note;
    uint32_t n_programs;
    const struct tw_program *programs; /* all share one string table */
    uint32_t n_symbols;
    const struct tw_emit_symbol *symbols;
    uint64_t n_bind_rows;
    const uint32_t *bind_symbol; /* row -> symbol */
    const void *vocab;
    size_t vocab_bytes;
    const void *certificate; /* content of .tw.cert, or NULL */
    size_t certificate_bytes;
    const char *plan, *origin; /* text or NULL */
    /* Writes bytes [offset, offset + size) of the packed tensor to dst; called in ascending order
     * of offset, pieces of at most 8 MiB (multiples of 64 except the last). */
    int (*fill)(void *ctx, const struct tw_emit_symbol *symbol, uint64_t offset, uint64_t size,
                uint8_t *dst, tw_error *err);
    void *ctx;
    void (*progress)(void *ctx, uint64_t done, uint64_t total); /* or NULL */
};

/* Writes to a file without a name (where there are none, to "path.tmp-<pid>") beside `path`, then
 * fsync and rename: on any failure (disk full, signal flag) no file of that name is left or
 * changed, and one who is killed leaves nothing. The finished file must pass tw_bundle_open
 * (without the program rules) before it gets its name. Same spec, same bytes. Errors: IO (also:
 * `path` is there and no regular file), NOSPACE, NOMEM, UNSUPPORTED (beyond the format's limits),
 * INTERNAL (the spec contradicts itself), what tw_bundle_open returns, and whatever fill
 * returns. */
int tw_bundle_write(const char *path, const struct tw_emit_spec *spec, tw_error *err);

#endif
