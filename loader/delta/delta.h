/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of this room: a delta in memory and its records (the format:
 * tilewright/delta.h), and which bytes of two bundles correspond.
 */
#ifndef TW_LOADER_DELTA_DELTA_H
#define TW_LOADER_DELTA_DELTA_H

#include "loader/base/hash.h"
#include "loader/bundle/bundle_parts.h"
#include "tilewright/delta.h"

/* ---- reading (delta_read.c) ---- */

struct tw_delta {
    const char *name; /* for messages */
    const uint8_t *bytes;
    uint64_t size;
    struct tw_delta_header header; /* a copy */
};

struct tw_delta_record {
    enum tw_delta_kind kind;
    uint64_t bytes;      /* that it makes; 0: there are no more records */
    uint64_t at;         /* in the base */
    uint64_t n;          /* changes */
    const uint8_t *data; /* DATA: the bytes; PATCH: the changes */
};

/* Checks all of a delta, which must not change: magic, version, sizes, hash, and that every record
 * is well formed, stays inside the base, and that together they make as many bytes as the header
 * says. Errors: TRUNCATED, FORMAT, UNSUPPORTED, HASH. */
int tw_delta_parse(const char *name, const uint8_t *bytes, uint64_t size, struct tw_delta *out,
                   tw_error *err);
/* Sets the header's hash, with that of the records so far, which is then over. */
void tw_delta_seal(struct tw_delta_header *h, struct tw_hash *records);
/* Sums up the records. */
void tw_delta_describe(const struct tw_delta *d, struct tw_delta_info *info);

/* Makes the target of the base's bytes, of which there must be header.base_bytes: gives it piece by
 * piece to write(ctx, bytes, n), whose value other than 0 ends it. */
int tw_delta_run(const struct tw_delta *d,
                 int (*read)(void *ctx, uint64_t at, void *to, uint64_t n),
                 int (*write)(void *ctx, const void *bytes, uint64_t n), void *ctx);

/* ---- two bundles (delta_parts.c) ---- */

/* A range of the new bundle's file, or of the memory that it asks for, and what it was in the old
 * one: of the same tensor or section. */
struct tw_delta_part {
    const char *name;
    const struct tw_symbol *symbol, *old_symbol; /* NULL: a section */
    uint64_t at, bytes;         /* in the file; `at` is TW_NOT_IN_FILE of State, Inputs, Outputs */
    uint64_t old_at, old_bytes; /* 0 bytes: the old bundle has no such part */
};
#define TW_NOT_IN_FILE UINT64_MAX

/* The parts of the new bundle by their place in the file, then those that are not in
 * the file, then those of the old bundle alone, which have 0 bytes. */
struct tw_delta_parts {
    struct tw_delta_part *items;
    size_t n, room;
};
/* The caller frees parts->items, unless it fails. Errors: NOMEM. */
int tw_delta_list_parts(const struct tw_bundle *old, const struct tw_bundle *now,
                        struct tw_delta_parts *parts, tw_error *err);

/* The bytes of a bundle's file, mapped. */
static inline const uint8_t *tw_bundle_bytes(const struct tw_bundle *b) {
    return tw_owner(b)->elf.bytes;
}
static inline uint64_t tw_bundle_size(const struct tw_bundle *b) {
    return tw_owner(b)->elf.size;
}

#define TW_CHUNK_BYTES 65536u

/* Returns how many of the n bytes differ, and how many chunks from a and b on have such. */
uint64_t tw_delta_count(const uint8_t *a, const uint8_t *b, uint64_t n, uint64_t *chunks);

#endif
