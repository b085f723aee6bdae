/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses a bundle's ELF headers (loader/bundle/elf_parse.h). The header's own fields are checked
 * here, so that libelf only reads tables that lie inside the file; it then returns
 * section and segment headers, which are copied and checked.
 */
#include "loader/bundle/elf_parse.h"

#include "tilewright/range.h"

#include <libelf.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SEGMENTS 256u

static int check_number(const struct tw_elf *elf, const char *field, uint64_t found,
                        uint64_t expected, tw_error *err) {
    if (found == expected) {
        return 0;
    }
    return tw_fail(err, TW_E_FORMAT, "%s: ELF header: %s is %llu, expected %llu", elf->name, field,
                   (unsigned long long)found, (unsigned long long)expected);
}

static int check_identity(const struct tw_elf *elf, const Elf64_Ehdr *h, tw_error *err) {
    if (elf->size < sizeof *h) {
        return tw_fail(err, TW_E_TRUNCATED, "%s: the file has %llu bytes, an ELF header needs %zu",
                       elf->name, (unsigned long long)elf->size, sizeof *h);
    }
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0) {
        return tw_fail(err, TW_E_FORMAT, "%s: not a bundle: no ELF magic at offset 0", elf->name);
    }
    int rc = check_number(elf, "class", h->e_ident[EI_CLASS], ELFCLASS64, err);
    rc = rc ? rc : check_number(elf, "byte order", h->e_ident[EI_DATA], ELFDATA2LSB, err);
    rc = rc ? rc : check_number(elf, "ident version", h->e_ident[EI_VERSION], EV_CURRENT, err);
    rc = rc ? rc : check_number(elf, "OS ABI", h->e_ident[EI_OSABI], ELFOSABI_NONE, err);
    rc = rc ? rc : check_number(elf, "e_type", h->e_type, ET_EXEC, err);
    rc = rc ? rc : check_number(elf, "e_machine", h->e_machine, EM_X86_64, err);
    rc = rc ? rc : check_number(elf, "e_version", h->e_version, EV_CURRENT, err);
    rc = rc ? rc : check_number(elf, "e_entry", h->e_entry, 0, err);
    rc = rc ? rc : check_number(elf, "e_ehsize", h->e_ehsize, sizeof(Elf64_Ehdr), err);
    rc = rc ? rc : check_number(elf, "e_phentsize", h->e_phentsize, sizeof(Elf64_Phdr), err);
    return rc ? rc : check_number(elf, "e_shentsize", h->e_shentsize, sizeof(Elf64_Shdr), err);
}

static int check_table(const struct tw_elf *elf, const char *what, uint64_t offset, uint64_t bytes,
                       tw_error *err) {
    if (offset % 8 != 0) {
        return tw_fail(err, TW_E_FORMAT, "%s: %s table at offset %llu is not aligned to 8 bytes",
                       elf->name, what, (unsigned long long)offset);
    }
    if (!tw_range_ok(offset, bytes, elf->size)) {
        return tw_fail(err, TW_E_TRUNCATED,
                       "%s: %s table at offset %llu, %llu bytes, extends past the end of the file "
                       "(%llu bytes)",
                       elf->name, what, (unsigned long long)offset, (unsigned long long)bytes,
                       (unsigned long long)elf->size);
    }
    if (!tw_range_ok(offset, bytes, elf->head_bytes)) {
        return tw_fail(
            err, TW_E_RANGE,
            "%s: %s table at offset %llu, %llu bytes, extends past the end of the metadata",
            elf->name, what, (unsigned long long)offset, (unsigned long long)bytes);
    }
    return 0;
}

static int check_tables(const struct tw_elf *elf, const Elf64_Ehdr *h, tw_error *err) {
    if (h->e_phnum == 0 || h->e_phnum > MAX_SEGMENTS || h->e_shnum < 2 || h->e_shstrndx == 0 ||
        h->e_shstrndx >= h->e_shnum) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: ELF header: e_phnum %u, e_shnum %u or e_shstrndx %u is out of range",
                       elf->name, h->e_phnum, h->e_shnum, h->e_shstrndx);
    }
    int rc = check_table(elf, "segment", h->e_phoff, h->e_phnum * sizeof(Elf64_Phdr), err);
    return rc ? rc : check_table(elf, "section", h->e_shoff, h->e_shnum * sizeof(Elf64_Shdr), err);
}

/* Copies the headers that libelf finds. */
static int copy_headers(struct tw_elf *elf, Elf *reader, tw_error *err) {
    size_t n_sections = 0, n_segments = 0;
    const Elf64_Phdr *segments = elf64_getphdr(reader);
    if (elf_getshdrnum(reader, &n_sections) != 0 || elf_getphdrnum(reader, &n_segments) != 0 ||
        !segments || n_sections != elf->n_sections || n_segments != elf->n_segments) {
        return tw_fail(err, TW_E_FORMAT, "%s: libelf: %s", elf->name, elf_errmsg(-1));
    }
    memcpy(elf->segments, segments, n_segments * sizeof *segments);
    for (size_t i = 0; i < n_sections; i++) {
        Elf_Scn *section = elf_getscn(reader, i);
        const Elf64_Shdr *header = section ? elf64_getshdr(section) : NULL;
        if (!header) {
            return tw_fail(err, TW_E_FORMAT, "%s: section %zu: libelf: %s", elf->name, i,
                           elf_errmsg(-1));
        }
        elf->sections[i] = *header;
    }
    return 0;
}

static int read_headers(struct tw_elf *elf, const Elf64_Ehdr *h, tw_error *err) {
    elf->n_sections = h->e_shnum;
    elf->n_segments = h->e_phnum;
    elf->sections = calloc(elf->n_sections, sizeof *elf->sections);
    elf->segments = calloc(elf->n_segments, sizeof *elf->segments);
    elf->names = calloc(elf->n_sections, sizeof *elf->names);
    elf->image = calloc(elf->n_sections, sizeof *elf->image);
    if (!elf->sections || !elf->segments || !elf->names || !elf->image ||
        elf_version(EV_CURRENT) == EV_NONE) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory for %u sections", elf->name,
                       elf->n_sections);
    }
    /* libelf's reader does not write to the image; its interface only lacks the const. */
    Elf *reader = elf_memory((char *)(uintptr_t)elf->bytes, elf->head_bytes);
    if (!reader) {
        return tw_fail(err, TW_E_FORMAT, "%s: libelf: %s", elf->name, elf_errmsg(-1));
    }
    int rc = copy_headers(elf, reader, err);
    elf_end(reader);
    return rc;
}

/* Points names[] into the section name table. */
static int read_names(struct tw_elf *elf, uint32_t table, tw_error *err) {
    const Elf64_Shdr *h = &elf->sections[table];
    bool fits = tw_range_ok(h->sh_offset, h->sh_size, elf->size);
    if (fits && !tw_range_ok(h->sh_offset, h->sh_size, elf->head_bytes)) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: section %u: the section names extend past the end of the metadata",
                       elf->name, table);
    }
    if (h->sh_type != SHT_STRTAB || h->sh_size == 0 || !fits ||
        elf->bytes[h->sh_offset + h->sh_size - 1] != 0) {
        return tw_fail(
            err, TW_E_FORMAT,
            "%s: section %u: the section names are not a terminated string table in the file",
            elf->name, table);
    }
    for (uint32_t i = 0; i < elf->n_sections; i++) {
        if (elf->sections[i].sh_name >= h->sh_size) {
            return tw_fail(err, TW_E_RANGE,
                           "%s: section %u: its name is at offset %u of a name table of %llu bytes",
                           elf->name, i, elf->sections[i].sh_name, (unsigned long long)h->sh_size);
        }
        elf->names[i] = (const char *)elf->bytes + h->sh_offset + elf->sections[i].sh_name;
    }
    return 0;
}

int tw_elf_parse(struct tw_elf *elf, tw_error *err) {
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)elf->bytes;
    int rc = check_identity(elf, h, err);
    rc = rc ? rc : check_tables(elf, h, err);
    rc = rc ? rc : read_headers(elf, h, err);
    rc = rc ? rc : read_names(elf, h->e_shstrndx, err);
    rc = rc ? rc : tw_elf_check_sections(elf, err);
    return rc ? rc : tw_elf_check_segments(elf, err);
}

void tw_elf_finish(struct tw_elf *elf) {
    free(elf->sections);
    free(elf->segments);
    free(elf->names);
    free(elf->image);
    memset(elf, 0, sizeof *elf);
}
