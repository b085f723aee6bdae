/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of a bundle's sections and segments (loader/bundle/elf_parse.h): each section on its
 * own against the table of tilewright/bundle.h, then all of them sorted by place to find overlaps,
 * then each segment against its section.
 */
#include "loader/bundle/elf_parse.h"

#include "tilewright/range.h"

#include <stdlib.h>
#include <string.h>

struct known {
    const char *name;
    uint32_t type;
    uint64_t flags;
    bool required;
};

static const struct known known_sections[TW_SEC_COUNT] = {
#define TW_X(id, name, type, flags, required) {name, type, flags, required},
    TW_BUNDLE_SECTIONS(TW_X)
#undef TW_X
};

static int fail_section(const struct tw_elf *elf, uint32_t i, int code, const char *what,
                        uint64_t found, uint64_t expected, tw_error *err) {
    return tw_fail(err, code, "%s: section %u (%.40s): %s: found %llu, expected %llu", elf->name, i,
                   elf->names[i], what, (unsigned long long)found, (unsigned long long)expected);
}

/* Returns n of "prefix<n>", in plain decimal, or TW_NONE. */
static uint32_t numbered(const char *name, const char *prefix) {
    size_t length = strlen(prefix);
    if (strncmp(name, prefix, length) != 0) {
        return TW_NONE;
    }
    const char *digits = name + length;
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 5 || digits[n] != 0 || (digits[0] == '0' && n > 1)) {
        return TW_NONE;
    }
    return (uint32_t)strtoul(digits, NULL, 10);
}

static int check_type(const struct tw_elf *elf, uint32_t i, const struct known *k, tw_error *err) {
    const Elf64_Shdr *h = &elf->sections[i];
    if (h->sh_type != k->type) {
        return fail_section(elf, i, TW_E_FORMAT, "sh_type", h->sh_type, k->type, err);
    }
    if ((h->sh_flags & ~(uint64_t)TW_SHF_REQUIRED) != k->flags) {
        return fail_section(elf, i, TW_E_FORMAT, "sh_flags", h->sh_flags, k->flags, err);
    }
    return 0;
}

static int claim(const struct tw_elf *elf, uint32_t i, uint32_t *slot, tw_error *err) {
    if (*slot != 0) {
        return tw_fail(err, TW_E_FORMAT, "%s: sections %u and %u are both named %.40s", elf->name,
                       *slot, i, elf->names[i]);
    }
    *slot = i;
    return 0;
}

/* Classifies section i by its name, and checks its type and flags. */
static int classify(struct tw_elf *elf, uint32_t i, tw_error *err) {
    static const struct known bank = {"", SHT_PROGBITS, SHF_ALLOC, true},
                              image = {"", SHT_PROGBITS, 0, true};
    for (uint32_t k = 0; k < TW_SEC_COUNT; k++) {
        if (strcmp(elf->names[i], known_sections[k].name) == 0) {
            int rc = claim(elf, i, &elf->fixed[k], err);
            return rc ? rc : check_type(elf, i, &known_sections[k], err);
        }
    }
    uint32_t n = numbered(elf->names[i], ".tw.param.");
    if (n < TW_MAX_BANKS) {
        int rc = claim(elf, i, &elf->bank[n], err);
        elf->n_banks++;
        return rc ? rc : check_type(elf, i, &bank, err);
    }
    n = numbered(elf->names[i], ".tw.image.");
    if (n < elf->n_sections) {
        int rc = claim(elf, i, &elf->image[n], err);
        elf->n_images++;
        return rc ? rc : check_type(elf, i, &image, err);
    }
    if (elf->sections[i].sh_flags & TW_SHF_REQUIRED) {
        return tw_fail(
            err, TW_E_UNSUPPORTED,
            "%s: section %u (%.40s) is required but unknown to this version; upgrade tilewright",
            elf->name, i, elf->names[i]);
    }
    return 0;
}

static int check_place(const struct tw_elf *elf, uint32_t i, tw_error *err) {
    const Elf64_Shdr *h = &elf->sections[i];
    uint64_t align = h->sh_addralign ? h->sh_addralign : 1, end;
    if (!tw_is_pow2_u64(align) || align > TW_PARAM_ALIGN) {
        return fail_section(elf, i, TW_E_FORMAT, "sh_addralign", align, TW_PARAM_ALIGN, err);
    }
    if (h->sh_flags & SHF_EXECINSTR) {
        return fail_section(elf, i, TW_E_FORMAT, "is executable, sh_flags", h->sh_flags,
                            h->sh_flags & ~(uint64_t)SHF_EXECINSTR, err);
    }
    if (h->sh_type != SHT_NOBITS && !tw_range_ok(h->sh_offset, h->sh_size, elf->size)) {
        return tw_fail(err, TW_E_TRUNCATED,
                       "%s: section %u (%.40s) at offset %llu, %llu bytes, extends past the end of "
                       "the file (%llu bytes)",
                       elf->name, i, elf->names[i], (unsigned long long)h->sh_offset,
                       (unsigned long long)h->sh_size, (unsigned long long)elf->size);
    }
    if ((h->sh_type != SHT_NOBITS && h->sh_offset % align != 0) || h->sh_addr % align != 0) {
        return fail_section(elf, i, TW_E_FORMAT,
                            "offset or address is not aligned, modulo sh_addralign",
                            (h->sh_offset | h->sh_addr) % align, 0, err);
    }
    if (!tw_add_u64(h->sh_addr, h->sh_size, &end)) {
        return fail_section(elf, i, TW_E_RANGE, "sh_size wraps around the address space",
                            h->sh_size, UINT64_MAX - h->sh_addr, err);
    }
    return 0;
}

/* Returns the alignment that the use of a section's content requires. */
static uint64_t needed_align(const struct tw_elf *elf, uint32_t i) {
    if (tw_elf_is_bank(elf, i)) {
        return TW_PARAM_ALIGN;
    }
    return i == elf->fixed[TW_SEC_NOTE]                                         ? 4
           : i == elf->fixed[TW_SEC_STRTAB] || i == elf->fixed[TW_SEC_SHSTRTAB] ? 1
                                                                                : 8;
}

static int check_all_present(const struct tw_elf *elf, tw_error *err) {
    for (uint32_t k = 0; k < TW_SEC_COUNT; k++) {
        uint32_t i = elf->fixed[k];
        if (i == 0 && known_sections[k].required) {
            return tw_fail(err, TW_E_MISSING, "%s: no section %s", elf->name,
                           known_sections[k].name);
        }
        if (i != 0 && elf->sections[i].sh_addralign < needed_align(elf, i)) {
            return fail_section(elf, i, TW_E_FORMAT, "sh_addralign", elf->sections[i].sh_addralign,
                                needed_align(elf, i), err);
        }
    }
    for (uint32_t n = 0; n < elf->n_banks + elf->n_images; n++) {
        bool is_bank = n < elf->n_banks;
        uint32_t number = is_bank ? n : n - elf->n_banks,
                 i = is_bank ? elf->bank[number] : elf->image[number];
        if (i == 0) {
            return tw_fail(err, TW_E_MISSING, "%s: no section %s%u", elf->name,
                           is_bank ? ".tw.param." : ".tw.image.", number);
        }
        if (elf->sections[i].sh_addralign < needed_align(elf, i)) {
            return fail_section(elf, i, TW_E_FORMAT, "sh_addralign", elf->sections[i].sh_addralign,
                                needed_align(elf, i), err);
        }
    }
    return 0;
}

static int check_links(const struct tw_elf *elf, tw_error *err) {
    const Elf64_Shdr *rela = &elf->sections[elf->fixed[TW_SEC_RELA]],
                     *symtab = &elf->sections[elf->fixed[TW_SEC_SYMTAB]];
    if (rela->sh_link != elf->fixed[TW_SEC_SYMTAB] || rela->sh_info != elf->fixed[TW_SEC_BIND] ||
        symtab->sh_link != elf->fixed[TW_SEC_STRTAB]) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: .rela.tw.bind or .symtab is linked to the wrong sections (%u, %u; %u)",
                       elf->name, rela->sh_link, rela->sh_info, symtab->sh_link);
    }
    if (rela->sh_entsize != sizeof(Elf64_Rela) || symtab->sh_entsize != sizeof(Elf64_Sym) ||
        symtab->sh_info != 1) {
        return tw_fail(
            err, TW_E_FORMAT,
            "%s: sh_entsize of .rela.tw.bind %llu or .symtab %llu, or first global %u, is wrong",
            elf->name, (unsigned long long)rela->sh_entsize, (unsigned long long)symtab->sh_entsize,
            symtab->sh_info);
    }
    static const enum tw_section_id reserved[] = {TW_SEC_INIT, TW_SEC_SIGNATURE};
    for (uint32_t k = 0; k < sizeof reserved / sizeof *reserved; k++) {
        uint32_t i = elf->fixed[reserved[k]];
        if (i != 0 && elf->sections[i].sh_size != 0) {
            return fail_section(elf, i, TW_E_UNSUPPORTED, "is reserved in this version; size",
                                elf->sections[i].sh_size, 0, err);
        }
    }
    return 0;
}

/* A half-open range and the section it belongs to (0: a header table). */
struct interval {
    uint64_t first, end;
    uint32_t section;
};

static int by_first(const void *a, const void *b) {
    const struct interval *x = a, *y = b;
    return x->first != y->first      ? (x->first < y->first ? -1 : 1)
           : x->section < y->section ? -1
                                     : x->section > y->section;
}

static int check_disjoint(const struct tw_elf *elf, struct interval *list, uint32_t n,
                          const char *what, tw_error *err) {
    qsort(list, n, sizeof *list, by_first);
    for (uint32_t i = 1; i < n; i++) {
        if (list[i].first < list[i - 1].end) {
            uint32_t a = list[i - 1].section, b = list[i].section;
            return tw_fail(err, TW_E_FORMAT,
                           "%s: %s of sections %u (%.40s) and %u (%.40s) overlap at %llu",
                           elf->name, what, a, a ? elf->names[a] : "headers", b,
                           b ? elf->names[b] : "headers", (unsigned long long)list[i].first);
        }
    }
    return 0;
}

static void add_interval(struct interval *list, uint32_t *n, uint64_t first, uint64_t size,
                         uint32_t section) {
    if (size != 0) {
        list[*n].first = first;
        list[*n].end = first + size;
        list[(*n)++].section = section;
    }
}

static int check_overlap(const struct tw_elf *elf, tw_error *err) {
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)elf->bytes;
    struct interval *list = calloc(elf->n_sections + 3u, sizeof *list);
    uint32_t n = 0;
    if (!list) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory for %u sections", elf->name,
                       elf->n_sections);
    }
    add_interval(list, &n, 0, sizeof *h, 0);
    add_interval(list, &n, h->e_phoff, h->e_phnum * sizeof(Elf64_Phdr), 0);
    add_interval(list, &n, h->e_shoff, h->e_shnum * sizeof(Elf64_Shdr), 0);
    for (uint32_t i = 1; i < elf->n_sections; i++) {
        const Elf64_Shdr *s = &elf->sections[i];
        add_interval(list, &n, s->sh_offset, s->sh_type == SHT_NOBITS ? 0 : s->sh_size, i);
    }
    int rc = check_disjoint(elf, list, n, "bytes", err);
    n = 0;
    for (uint32_t i = 1; i < elf->n_sections; i++) {
        const Elf64_Shdr *s = &elf->sections[i];
        add_interval(list, &n, s->sh_addr, s->sh_flags & SHF_ALLOC ? s->sh_size : 0, i);
    }
    rc = rc ? rc : check_disjoint(elf, list, n, "addresses", err);
    free(list);
    return rc;
}

int tw_elf_check_sections(struct tw_elf *elf, tw_error *err) {
    if (elf->sections[0].sh_type != SHT_NULL) {
        return fail_section(elf, 0, TW_E_FORMAT, "sh_type", elf->sections[0].sh_type, SHT_NULL,
                            err);
    }
    for (uint32_t i = 1; i < elf->n_sections; i++) {
        int rc = check_place(elf, i, err);
        rc = rc ? rc : classify(elf, i, err);
        if (rc != 0) {
            return rc;
        }
    }
    int rc = check_all_present(elf, err);
    rc = rc ? rc : check_links(elf, err);
    return rc ? rc : check_overlap(elf, err);
}

static bool is_segment(const Elf64_Phdr *p, uint32_t type, uint32_t flags, const Elf64_Shdr *s,
                       uint64_t memory) {
    return p->p_type == type && p->p_flags == flags && p->p_offset == s->sh_offset &&
           p->p_vaddr == s->sh_addr && p->p_filesz == s->sh_size && p->p_memsz == memory;
}

/* Bindings, state and scratch, in this order, are one segment whose file part is the bindings. */
static bool is_writable_segment(const struct tw_elf *elf, const Elf64_Phdr *p) {
    const Elf64_Shdr *bind = &elf->sections[elf->fixed[TW_SEC_BIND]];
    const Elf64_Shdr *state = &elf->sections[elf->fixed[TW_SEC_STATE]];
    const Elf64_Shdr *scratch = &elf->sections[elf->fixed[TW_SEC_SCRATCH]];
    return bind->sh_addr <= state->sh_addr && state->sh_addr <= scratch->sh_addr &&
           p->p_align == TW_PARAM_ALIGN &&
           bind->sh_addr % TW_PARAM_ALIGN == bind->sh_offset % TW_PARAM_ALIGN &&
           is_segment(p, PT_LOAD, PF_R | PF_W, bind,
                      scratch->sh_addr + scratch->sh_size - bind->sh_addr);
}

static bool segment_ok(const struct tw_elf *elf, uint32_t i, uint32_t section) {
    const Elf64_Phdr *p = &elf->segments[i];
    const Elf64_Shdr *s = &elf->sections[section];
    if (i == 0) {
        return is_segment(p, PT_NOTE, PF_R, s, s->sh_size);
    }
    if (i <= elf->n_banks) {
        return is_segment(p, PT_LOAD, PF_R, s, s->sh_size) && p->p_align == TW_PARAM_ALIGN;
    }
    if (i == elf->n_banks + 1) {
        return is_writable_segment(elf, p);
    }
    return p->p_type != PT_LOAD && p->p_type != PT_NOTE && !(p->p_flags & PF_X);
}

/* Segments have a fixed order: note, banks, the writable one; others may follow if they are not
 * loadable. */
int tw_elf_check_segments(const struct tw_elf *elf, tw_error *err) {
    for (uint32_t i = 0; i < elf->n_segments || i < elf->n_banks + 2; i++) {
        uint32_t section = i == 0                  ? elf->fixed[TW_SEC_NOTE]
                           : i <= elf->n_banks     ? elf->bank[i - 1]
                           : i == elf->n_banks + 1 ? elf->fixed[TW_SEC_BIND]
                                                   : 0;
        if (i >= elf->n_segments) {
            return tw_fail(err, TW_E_MISSING, "%s: segment %u, of section %u (%.40s), is missing",
                           elf->name, i, section, elf->names[section]);
        }
        const Elf64_Phdr *p = &elf->segments[i];
        if (!segment_ok(elf, i, section)) {
            return tw_fail(err, TW_E_FORMAT,
                           "%s: segment %u: type %u flags %u offset %llu address %llu size %llu "
                           "does not match section %u (%.40s)",
                           elf->name, i, p->p_type, p->p_flags, (unsigned long long)p->p_offset,
                           (unsigned long long)p->p_vaddr, (unsigned long long)p->p_memsz, section,
                           elf->names[section]);
        }
    }
    return 0;
}
