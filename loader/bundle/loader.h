/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundle file -> checked, relocated load image. The loader maps and parses a bundle once into a
 * checked structure; after that the code trusts its types. It does not access devices. One thread
 * at a time for each bundle, unless stated otherwise; several threads may read an open bundle.
 */
#ifndef TW_LOADER_BUNDLE_LOADER_H
#define TW_LOADER_BUNDLE_LOADER_H

#include "loader/bundle/vocab_open.h"
#include "loader/order/certificate.h"
#include "tilewright/bundle.h"
#include "tilewright/error.h"
#include "tilewright/machine.h"

/* Memory the device must provide, in this order: parameter banks 0.. n_banks-1, state, scratch. */
enum tw_segment_kind { TW_SEG_PARAM = 0, TW_SEG_STATE = 1, TW_SEG_SCRATCH = 2 };
struct tw_segment {
    enum tw_segment_kind kind;
    uint32_t bank;
    /* PARAM: in the mapped file, 64 KiB aligned; NULL: zero-filled by the device */
    const uint8_t *bytes;
    uint64_t size;
    /* PARAM: BLAKE2b-256 of the bytes, from .tw.banks; see tw_segment_hash */
    uint8_t hash[TW_HASH_BYTES];
};

/* The target of a binding row: offset in a segment. The tensor's bytes at that offset are always
 * inside the segment. */
struct tw_bind_target {
    uint32_t segment;
    uint32_t reserved;
    uint64_t offset;
    uint64_t size; /* of the symbol */
};

struct tw_symbol {
    const char *name;
    uint32_t segment;
    uint32_t role, dtype;
    uint64_t offset, size;
};

struct tw_bundle {
    const char *path;
    const struct tw_bundle_note *note;
    uint32_t n_programs;
    struct tw_program *programs; /* with expanded streams */
    uint32_t n_segments;
    struct tw_segment *segments;
    uint64_t n_bind_rows;
    struct tw_bind_target *bind;
    uint32_t n_symbols;
    struct tw_symbol *symbols;
    const void *vocab; /* blob or NULL */
    size_t vocab_bytes;
    struct tw_certificate *certificates; /* of each program; NULL if opened with NO_RULES */
    const char *plan, *origin;           /* text, NUL-terminated or NULL */
    const char *chat;                    /* the chat template, likewise; untrusted */
    const uint8_t *identity;             /* TW_HASH_BYTES: what is computed; NULL: not known */
    void *owner;
};

/* Maps and checks `path`; every offset, size, id and relocation is in range afterwards and every
 * program obeys the structural rules of loader/verify/verify.h. flags: the metadata is always
 * checked against the content hash, TW_BUNDLE_CHECK_HASH also reads the weights and compares their
 * hashes. A bundle in memory must be 8-aligned, stay unchanged until the close, and for use in
 * place by kernels be aligned to 64 bytes. The vocabulary blob is checked by tw_vocab_open, not
 * here. A file's metadata is copied first and only the copy is read; weights stay in the file
 * (tw_bundle_intact). Errors: IO, TRUNCATED, FORMAT, RANGE, MISSING, UNSUPPORTED, VERSION, HASH,
 * VERIFY, NOMEM. The caller closes with tw_bundle_close (NULL and zeroed are fine). */
enum { TW_BUNDLE_CHECK_HASH = 1, TW_BUNDLE_NO_RULES = 2 /* for inspect and dump: parse only */ };
int tw_bundle_open(const char *path, unsigned flags, struct tw_bundle *out, tw_error *err);
int tw_bundle_open_memory(const char *name, const void *bytes, size_t size, unsigned flags,
                          struct tw_bundle *out, tw_error *err);
void tw_bundle_close(struct tw_bundle *bundle);

/* Returns 0, or TRUNCATED, naming the file, if weights that were read in place are no longer in it,
 * so that results computed from them are invalid. Only for programs that called tw_guard_files;
 * without it such a read raises SIGBUS. Costs two loads; legal from any thread. */
int tw_bundle_intact(const struct tw_bundle *bundle, tw_error *err);

/* Checks every rule for every program, as tw_bundle_open without NO_RULES does. Adds the sums of
 * all programs to `report` (may be NULL; zeroed by the caller). Errors: VERIFY (names file and
 * rule), NOMEM. */
int tw_bundle_check_rules(struct tw_bundle *bundle, struct tw_verify_report *report, tw_error *err);

/* Returns the program of that name, or NULL. */
const struct tw_program *tw_bundle_program(const struct tw_bundle *bundle, const char *name);

/* Fills rows[n_bind_rows] with device addresses: segment_address[bind.segment] + bind.offset. */
void tw_bundle_relocate(const struct tw_bundle *bundle, const uint64_t *segment_address,
                        uint64_t *rows);

/* Recomputes the hash of parameter segment `index` over its bytes and compares it with the stored
 * one: call it before the bytes are sent to a device under that hash. Errors: HASH, USAGE (not
 * a parameter segment). */
int tw_segment_hash(const struct tw_bundle *bundle, uint32_t index, tw_error *err);

#endif
