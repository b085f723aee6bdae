/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of tw_bundle_open, each a pass over one part of the parsed ELF file that fills its
 * fields of struct tw_bundle. Every table is sized by counts that were checked against the bytes of
 * the file first, so memory stays in proportion to the file.
 */
#ifndef TW_LOADER_BUNDLE_BUNDLE_PARTS_H
#define TW_LOADER_BUNDLE_BUNDLE_PARTS_H

#include "loader/base/file_map.h"
#include "loader/bundle/elf_parse.h"
#include "loader/bundle/loader.h"
#include "tilewright/requirements.h"

/* The target of tw_bundle.owner: the mapping, the parsed headers and all memory to which the bundle
 * points. */
struct tw_bundle_owner {
    struct tw_elf elf;
    struct tw_file_map map; /* zeroed: the caller's memory */
    char *path;
    struct tw_stream *streams; /* of all programs, one after the other */
    uint64_t n_streams;
    uint32_t *words;                      /* the expanded streams of images with patches */
    const struct tw_requirements **needs; /* what each program states that it needs */
};

/* The passes, in this order. Errors: as tw_bundle_open. */

/* note.c: note, versions, where the metadata ends */
int tw_parts_note(struct tw_bundle *bundle, tw_error *err);
/* note.c: segments with their stored hashes */
int tw_parts_segments(struct tw_bundle *bundle, tw_error *err);
/* programs.c: program tables, texts, vocabulary */
int tw_parts_programs(struct tw_bundle *bundle, tw_error *err);
/* sites.c: streams from images and arguments */
int tw_parts_sites(struct tw_bundle *bundle, tw_error *err);
/* symbols.c: symbols */
int tw_parts_symbols(struct tw_bundle *bundle, tw_error *err);
/* symbols.c: binding rows and the tensors that they bind */
int tw_parts_bind(struct tw_bundle *bundle, tw_error *err);
/* note.c: hash of the metadata; `whole`: also those of the weights */
int tw_parts_check_hash(const struct tw_bundle *bundle, bool whole, tw_error *err);

static inline struct tw_bundle_owner *tw_owner(const struct tw_bundle *bundle) {
    return (struct tw_bundle_owner *)bundle->owner;
}

#endif
