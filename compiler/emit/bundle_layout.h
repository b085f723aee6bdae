/* SPDX-License-Identifier: Apache-2.0
 *
 * A bundle before it is a file: all its sections, with content (but the weights), addresses and
 * offsets in the file.
 */
#ifndef TW_COMPILER_EMIT_BUNDLE_LAYOUT_H
#define TW_COMPILER_EMIT_BUNDLE_LAYOUT_H

#include "compiler/emit/bundle_write.h"
#include "compiler/emit/images.h"

#include <elf.h>

/* One section. The address of weights equals their offset; the writable sections follow them. */
struct tw_emit_part {
    char name[24];
    Elf64_Shdr header; /* all but sh_name */
    void *data;        /* owned; NULL for weights and NOBITS */
};

struct tw_emit_layout {
    const char *path; /* for messages */
    const struct tw_emit_spec *spec;
    struct tw_images images;
    uint32_t n_parts; /* parts[i] is section i + 1 */
    struct tw_emit_part *parts;
    uint32_t index[TW_SEC_COUNT]; /* section number of each fixed section, 0: absent */
    uint32_t first_param, first_image;
    uint64_t *symbol_offset; /* of each symbol inside its section */
    uint32_t n_segments;
    Elf64_Phdr *segments;
    uint64_t segment_table, section_table; /* offsets of the two header tables */
    uint64_t meta_bytes, file_bytes;
};

/* Fills a zeroed layout; tw_emit_layout_finish frees it, after an error too. Errors: NOMEM,
 * UNSUPPORTED (a size beyond the format), INTERNAL (the spec contradicts itself). */
int tw_emit_layout_build(const char *path, const struct tw_emit_spec *spec,
                         struct tw_emit_layout *layout, tw_error *err);
void tw_emit_layout_finish(struct tw_emit_layout *layout);

/* Section number of a symbol. */
uint32_t tw_emit_symbol_section(const struct tw_emit_layout *layout,
                                const struct tw_emit_symbol *symbol);

/* Inside tw_emit_layout_build: makes the content of each section whose bytes do not depend on
 * offsets (bundle_content.c). */
int tw_emit_make_contents(struct tw_emit_layout *layout, tw_error *err);
/* Then, with all offsets known: symbols, relocations and the note. */
void tw_emit_fill_addresses(struct tw_emit_layout *layout);

#endif
