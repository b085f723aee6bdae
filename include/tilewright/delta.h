/* SPDX-License-Identifier: Apache-2.0
 *
 * What two bundles have in common, and deltas: files that make one bundle of another, so that a
 * recompiled one need not be stored or sent whole. Neither a device nor a model is needed. Part of
 * the public API; the conventions are those of tilewright.h. The format, tilewright-bundle(5): a
 * struct tw_delta_header, then records, each of them
 *
 *   kind      1 byte, enum tw_delta_kind
 *   bytes     of the new bundle that it makes, which follow those of the record before; not 0
 *   COPY      at: they are those of the base from there on
 *   DATA      the bytes themselves
 *   PATCH     at, n, then n changes of the base's bytes from `at` on: how many bytes after the last
 *             change stay, and one byte, not 0, that is combined with the next by exclusive or
 *
 * where bytes, at, n and the distances are unsigned LEB128 numbers of at most 10 bytes.
 */
#ifndef TILEWRIGHT_DELTA_H
#define TILEWRIGHT_DELTA_H

#include "tilewright/bundle.h"
#include "tilewright/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TW_DELTA_MAGIC "TWDELTA" /* 8 bytes with the NUL */
#define TW_DELTA_VERSION 1u
enum tw_delta_kind { TW_DELTA_COPY = 0, TW_DELTA_DATA = 1, TW_DELTA_PATCH = 2 };

struct tw_delta_header {
    char magic[8];
    uint32_t version, reserved;
    uint64_t base_bytes, target_bytes; /* of the two files */
    uint64_t record_bytes;             /* all that follows this header */
    uint8_t base_hash[TW_HASH_BYTES];  /* the content hash of the base */
    uint8_t target_hash[TW_HASH_BYTES];
    uint8_t file_hash[TW_HASH_BYTES]; /* BLAKE2b-256 of the file that the records make */
    uint8_t hash[TW_HASH_BYTES];      /* of the records, then this header with this field zero */
};
TW_STATIC_ASSERT(sizeof(struct tw_delta_header) == 168, "delta header");

struct tw_delta_info {
    uint32_t size;
    uint32_t reserved;
    uint64_t base_bytes, target_bytes, delta_bytes; /* of the files */
    /* of the target's bytes: those that are copied, those stored, those in ranges that differ from
     * the base here and there, and the bytes that differ in these */
    uint64_t copied_bytes, stored_bytes, patched_bytes, changed_bytes;
    uint8_t base_hash[TW_HASH_BYTES], target_hash[TW_HASH_BYTES];
};

/* Writes the delta from the bundle at `base` to the one at `target` to `path`, which gets its name
 * when it is complete. Both bundles are parsed and their metadata checked, their rules are not.
 * `info` may be NULL. Errors: those of reading a bundle (IO, TRUNCATED, FORMAT, VERSION, HASH ...);
 * IO, NOSPACE; NOMEM. */
int tw_delta_make(const char *base, const char *target, const char *path,
                  struct tw_delta_info *info, tw_error *err);

/* Makes the new bundle of the one at `base` and the delta at `delta`, and writes it to `path`,
 * which gets its name when all of it has been compared with the hash in the delta. What has that
 * name stays as it is after an error. Errors: those of reading a bundle; IO, TRUNCATED, FORMAT,
 * UNSUPPORTED (a delta of another version, or for another base: names both), HASH (the delta is
 * damaged; or the base's weights are, so that the result is not what the delta describes), NOSPACE,
 * NOMEM. */
int tw_delta_apply(const char *base, const char *delta, const char *path,
                   struct tw_delta_info *info, tw_error *err);

/* Describes the delta at `path`, of which every byte is checked. Errors: IO, TRUNCATED, FORMAT,
 * UNSUPPORTED (of another version), HASH, NOMEM. */
int tw_delta_get_info(const char *path, struct tw_delta_info *info, tw_error *err);

/* ---- what differs ---- */

/* A tensor, or a section of the file that is not tensors, of one or both of two bundles. */
struct tw_bundle_part {
    uint32_t size;
    uint32_t reserved;
    const char *name;
    const char *role;              /* "param", "state", "input", "output", "section" */
    uint64_t old_bytes, new_bytes; /* 0: the bundle has no such part */
    /* bytes that differ, as far as both have them, if the part is in the file (params, sections) */
    uint64_t changed_bytes;
    uint64_t changed_chunks; /* of 64 KiB of the part in which they are */
};

struct tw_bundle_difference {
    uint32_t size;
    uint32_t same_content; /* 1: equal hashes, so the bundles are the same */
    uint32_t
        same_function;   /* 1: both are known to compute the same, whatever the target and plan */
    uint32_t same_state; /* 1: their State tensors have equal names, types and sizes */
    uint32_t n_params, n_changed_params; /* tensors of either bundle; that differ or are in one */
    uint64_t param_bytes;                /* of the new bundle */
    uint64_t changed_param_bytes;        /* that differ, or that only the new bundle has */
    uint64_t changed_param_chunks;       /* likewise */
    uint8_t old_hash[TW_HASH_BYTES], new_hash[TW_HASH_BYTES];
};

/* Compares two bundles, and calls part(ctx, part), which may be NULL, for every tensor and section
 * that they do not have in common, in the order of the new one, then those of the old one alone. A
 * value other than 0 ends the comparison and is returned. The part is valid during the call.
 * Errors: those of reading a bundle, NOMEM. */
int tw_bundle_compare(const char *old_path, const char *new_path,
                      int (*part)(void *ctx, const struct tw_bundle_part *part), void *ctx,
                      struct tw_bundle_difference *difference, tw_error *err);

#ifdef __cplusplus
}
#endif
#endif
