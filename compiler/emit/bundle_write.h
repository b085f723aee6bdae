/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a bundle with libelf. Weights are streamed: the bytes of each tensor are requested in
 * pieces when the writer reaches their place in the file, so that memory does not grow with the
 * model.
 */
#ifndef TW_COMPILER_EMIT_BUNDLE_WRITE_H
#define TW_COMPILER_EMIT_BUNDLE_WRITE_H

#include "tilewright/bundle.h"
#include "tilewright/error.h"

/* One instance of a tensor. Its offset is assigned by the writer: PARAM symbols are laid out in
 * order inside their bank, STATE in .tw.state and INPUT and OUTPUT in .tw.scratch, each aligned to
 * 64 bytes. */
struct tw_emit_symbol {
    const char *name;
    uint32_t role, dtype;
    uint32_t bank; /* PARAM: memory bank */
    uint64_t bytes;
    const void *source; /* PARAM: passed to fill */
};

/* Everything that goes into a bundle. Nothing is owned; all of it must stay valid during
 * tw_bundle_write(). */
struct tw_emit_spec {
    /* the writer sets bundle_*, abi_major, n_programs, meta_bytes and content_hash itself */
    struct tw_bundle_note note;
    uint32_t n_programs;
    const struct tw_program *programs; /* with one common string table */
    uint32_t n_symbols;
    const struct tw_emit_symbol *symbols;
    uint64_t n_bind_rows;
    const uint32_t *bind_symbol; /* binding row -> symbol */
    const void *vocab;
    size_t vocab_bytes;
    const void *certificate; /* content of .tw.cert, or NULL */
    size_t certificate_bytes;
    const char *plan, *origin; /* text, or NULL */
    const char *chat;          /* the chat template, or NULL */
    const uint8_t *identity;   /* TW_HASH_BYTES (compiler/graph/identity.h), or NULL */
    /* Writes bytes [offset, offset + size) of the packed tensor to dst. Called in ascending order
     * of offset, for pieces of at most 8 MiB (multiples of 64 except the last). Returns 0 or an
     * error code with *err set, which ends the writing. */
    int (*fill)(void *ctx, const struct tw_emit_symbol *symbol, uint64_t offset, uint64_t size,
                uint8_t *dst, tw_error *err);
    void *ctx;
    void (*progress)(void *ctx, uint64_t done, uint64_t total); /* of weight bytes; may be NULL */
};

/* Writes a bundle to `path`: to a file without a name next to it (if the file system has none, to
 * "path.tmp-<pid>"), then fsync and rename. On any failure no file named `path` is created or
 * changed, and a compiler that is killed leaves nothing. The finished file must pass
 * tw_bundle_open() (without the program rules) before it gets its name. The same spec gives the
 * same bytes. Errors: IO (also if `path` exists and is not a regular file), NOSPACE, NOMEM,
 * UNSUPPORTED (a limit of the format), INTERNAL (the spec contradicts itself), those of
 * tw_bundle_open() and those of `fill`. */
int tw_bundle_write(const char *path, const struct tw_emit_spec *spec, tw_error *err);

#endif
