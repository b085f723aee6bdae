/* SPDX-License-Identifier: Apache-2.0
 *
 * A bundle before it is written: all its sections, with content (except the weights), addresses and
 * file offsets.
 */
#ifndef TW_COMPILER_EMIT_BUNDLE_LAYOUT_H
#define TW_COMPILER_EMIT_BUNDLE_LAYOUT_H

#include "compiler/emit/bundle_write.h"
#include "compiler/emit/images.h"

#include <elf.h>

/* One section. The address of weights equals their offset; the writable sections follow them. */
struct tw_emit_part {
    char name[24];
    Elf64_Shdr header; /* sh_name is set last */
    void *data;        /* owned; NULL for weights and NOBITS */
};

/* The whole file. Owned by its creator; finish with tw_emit_layout_finish(). */
struct tw_emit_layout {
    const char *path; /* for messages; not owned */
    const struct tw_emit_spec *spec;
    struct tw_images images;
    uint32_t n_parts; /* parts[i] is section i + 1 */
    struct tw_emit_part *parts;
    uint32_t index[TW_SEC_COUNT]; /* number of each fixed section; 0: absent */
    uint32_t first_param, first_image;
    uint64_t *symbol_offset; /* of each symbol inside its section, in bytes */
    uint32_t n_segments;
    Elf64_Phdr *segments;
    uint64_t segment_table, section_table; /* offsets of the two header tables */
    /* end of the metadata, end of the file */
    uint64_t meta_bytes, file_bytes;
};

/* Builds the layout in *layout, which must be zeroed; tw_emit_layout_finish() frees it, also after
 * an error. `spec` and its arrays must outlive it. Errors: NOMEM, UNSUPPORTED (a size exceeds the
 * format), INTERNAL (the spec contradicts itself). */
int tw_emit_layout_build(const char *path, const struct tw_emit_spec *spec,
                         struct tw_emit_layout *layout, tw_error *err);
void tw_emit_layout_finish(struct tw_emit_layout *layout);

/* Returns the number of the section that holds a symbol; 0 for a role that has no storage. */
uint32_t tw_emit_symbol_section(const struct tw_emit_layout *layout,
                                const struct tw_emit_symbol *symbol);

/* Part of tw_emit_layout_build() (bundle_content.c): builds the content of each section whose bytes
 * do not depend on offsets. Errors: as tw_emit_layout_build(). */
int tw_emit_make_contents(struct tw_emit_layout *layout, tw_error *err);
/* Part of tw_emit_layout_build(), once all offsets are known: fills in symbols, relocations, the
 * note, and the hash of the bindings in the certificates. Errors: NOMEM. */
int tw_emit_fill_addresses(struct tw_emit_layout *layout, tw_error *err);

#endif
