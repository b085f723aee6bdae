/* SPDX-License-Identifier: Apache-2.0
 *
 * The ELF side of a bundle: header, sections and segments, checked. After tw_elf_parse every
 * section's bytes lie inside the file, no two of them overlap (nor do their addresses), types,
 * flags and alignments are those of tilewright/bundle.h, every required section is there once,
 * banks and images are numbered without gaps, and each loadable section has its segment.
 */
#ifndef TW_LOADER_BUNDLE_ELF_PARSE_H
#define TW_LOADER_BUNDLE_ELF_PARSE_H

#include "tilewright/bundle.h"
#include "tilewright/error.h"

#include <elf.h>
#include <stdbool.h>

struct tw_elf {
    const char *name; /* of the file, for messages */
    const uint8_t *bytes;
    uint64_t size;
    /* [0, head_bytes) does not change and may be read; the rest is weights */
    uint64_t head_bytes;
    uint32_t n_sections, n_segments;
    Elf64_Shdr *sections; /* owned copies */
    Elf64_Phdr *segments;
    const char **names;           /* owned array of pointers into the file */
    uint32_t fixed[TW_SEC_COUNT]; /* section number, 0: absent */
    uint32_t n_banks, bank[TW_MAX_BANKS];
    uint32_t n_images, *image; /* owned */
};

/* Fills a zeroed struct whose name, bytes (8-aligned), size and head_bytes are set; tw_elf_finish
 * frees it, after an error too. Errors: FORMAT, TRUNCATED, RANGE, MISSING, UNSUPPORTED, NOMEM. */
int tw_elf_parse(struct tw_elf *elf, tw_error *err);
void tw_elf_finish(struct tw_elf *elf);

/* elf_sections.c, called by tw_elf_parse: the checks that need only the section and segment
 * headers. */
int tw_elf_check_sections(struct tw_elf *elf, tw_error *err);
int tw_elf_check_segments(const struct tw_elf *elf, tw_error *err);

/* Returns a fixed section's bytes and *size; NULL and 0 if it is absent. */
static inline const void *tw_elf_content(const struct tw_elf *elf, enum tw_section_id id,
                                         uint64_t *size) {
    const Elf64_Shdr *h = &elf->sections[elf->fixed[id]];
    *size = elf->fixed[id] ? h->sh_size : 0;
    return elf->fixed[id] ? elf->bytes + h->sh_offset : NULL;
}

static inline bool tw_elf_is_bank(const struct tw_elf *elf, uint32_t section) {
    for (uint32_t i = 0; i < elf->n_banks; i++) {
        if (elf->bank[i] == section) {
            return true;
        }
    }
    return false;
}

#endif
