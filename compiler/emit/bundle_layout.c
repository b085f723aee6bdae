/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of a bundle (compiler/emit/bundle_layout.h): lists the sections, gives each symbol its
 * place, then each section its offset: headers and metadata first, then weights on 64 KiB
 * boundaries, then the sections that occupy memory only.
 */
#include "compiler/emit/bundle_layout.h"

#include "tilewright/range.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t tw_emit_symbol_section(const struct tw_emit_layout *layout,
                                const struct tw_emit_symbol *symbol) {
    switch ((enum tw_role)symbol->role) {
    case TW_ROLE_PARAM:
        return layout->first_param + symbol->bank;
    case TW_ROLE_STATE:
        return layout->index[TW_SEC_STATE];
    case TW_ROLE_INPUT:
    case TW_ROLE_OUTPUT:
        return layout->index[TW_SEC_SCRATCH];
    case TW_ROLE_ACTIVATION:
    case TW_ROLE_COUNT:
        break;
    }
    return 0;
}

static int check_programs(const struct tw_emit_layout *layout, tw_error *err) {
    const struct tw_emit_spec *spec = layout->spec;
    const char *strings = spec->n_programs ? spec->programs[0].strings : NULL;
    uint32_t bytes = strings ? spec->programs[0].strings_bytes : 0;
    if (bytes == 0 || strings[0] != 0 || strings[bytes - 1] != 0) {
        return tw_fail(err, TW_E_INTERNAL,
                       "%s: there are no programs, or their string table is not terminated",
                       layout->path);
    }
    for (uint32_t i = 0; i < spec->n_programs; i++) {
        const struct tw_program *p = &spec->programs[i];
        if (p->strings != strings || p->strings_bytes != bytes) {
            return tw_fail(err, TW_E_INTERNAL, "%s: program %s has a different string table",
                           layout->path, p->name);
        }
        for (uint32_t t = 0; t < p->n_tensors; t++) {
            if (p->tensors[t].init == TW_INIT_BLOB) {
                return tw_fail(err, TW_E_UNSUPPORTED,
                               "%s: tensor %s: initial values from a blob are not supported",
                               layout->path, tw_program_string(p, p->tensors[t].name));
            }
        }
    }
    return 0;
}

static int check_symbols(const struct tw_emit_layout *layout, tw_error *err) {
    const struct tw_emit_spec *spec = layout->spec;
    if (spec->note.n_banks > TW_MAX_BANKS || spec->n_symbols >= UINT32_MAX / sizeof(Elf64_Sym)) {
        return tw_fail(err, TW_E_UNSUPPORTED, "%s: too many banks (%u) or symbols (%u)",
                       layout->path, spec->note.n_banks, spec->n_symbols);
    }
    for (uint32_t i = 0; i < spec->n_symbols; i++) {
        const struct tw_emit_symbol *s = &spec->symbols[i];
        if (tw_emit_symbol_section(layout, s) == 0 || s->dtype >= TW_DT_COUNT || s->bytes == 0 ||
            s->name[0] == 0 || (s->role == TW_ROLE_PARAM && s->bank >= spec->note.n_banks)) {
            return tw_fail(err, TW_E_INTERNAL,
                           "%s: symbol %u (%s) is invalid: role %u, dtype %u, bank %u, %llu bytes",
                           layout->path, i, s->name, s->role, s->dtype, s->bank,
                           (unsigned long long)s->bytes);
        }
    }
    for (uint64_t row = 0; row < spec->n_bind_rows; row++) {
        if (spec->bind_symbol[row] >= spec->n_symbols) {
            return tw_fail(err, TW_E_INTERNAL,
                           "%s: binding row %llu names symbol %u, but there are %u", layout->path,
                           (unsigned long long)row, spec->bind_symbol[row], spec->n_symbols);
        }
    }
    return 0;
}

static bool has_section(const struct tw_emit_spec *spec, enum tw_section_id id, bool required) {
    return required || (id == TW_SEC_VOCAB && spec->vocab_bytes != 0) ||
           (id == TW_SEC_CERT && spec->certificate_bytes != 0) ||
           (id == TW_SEC_PLAN && spec->plan) || (id == TW_SEC_CHAT && spec->chat) ||
           (id == TW_SEC_ORIGIN && spec->origin) || (id == TW_SEC_IDENTITY && spec->identity);
}

static uint32_t add_part(struct tw_emit_layout *layout, const char *name, uint32_t type,
                         uint64_t flags, uint64_t align) {
    struct tw_emit_part *part = &layout->parts[layout->n_parts++];
    snprintf(part->name, sizeof part->name, "%s", name);
    part->header.sh_type = type;
    part->header.sh_flags = flags;
    part->header.sh_addralign = align;
    return layout->n_parts;
}

static void set_links(struct tw_emit_layout *layout) {
    const uint32_t *index = layout->index;
    Elf64_Shdr *rela = &layout->parts[index[TW_SEC_RELA] - 1].header;
    Elf64_Shdr *symtab = &layout->parts[index[TW_SEC_SYMTAB] - 1].header;
    rela->sh_link = index[TW_SEC_SYMTAB];
    rela->sh_info = index[TW_SEC_BIND];
    rela->sh_entsize = sizeof(Elf64_Rela);
    symtab->sh_link = index[TW_SEC_STRTAB];
    symtab->sh_info = 1; /* all symbols except the null symbol are global */
    symtab->sh_entsize = sizeof(Elf64_Sym);
    layout->parts[index[TW_SEC_NOTE] - 1].header.sh_addralign = 4;
    layout->parts[index[TW_SEC_STRTAB] - 1].header.sh_addralign = 1;
    layout->parts[index[TW_SEC_SHSTRTAB] - 1].header.sh_addralign = 1;
    layout->parts[index[TW_SEC_STATE] - 1].header.sh_addralign = TW_PARAM_ALIGN;
    layout->parts[index[TW_SEC_SCRATCH] - 1].header.sh_addralign = TW_PARAM_ALIGN;
}

static int list_parts(struct tw_emit_layout *layout, tw_error *err) {
    const struct tw_emit_spec *spec = layout->spec;
    layout->parts =
        calloc(TW_SEC_COUNT + TW_MAX_BANKS + layout->images.n_images, sizeof *layout->parts);
    if (!layout->parts) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for %u images", layout->path,
                       layout->images.n_images);
    }
#define TW_X(id, name, type, flags, required)                                \
    if (has_section(spec, TW_SEC_##id, required)) {                          \
        layout->index[TW_SEC_##id] = add_part(layout, name, type, flags, 8); \
    }
    TW_BUNDLE_SECTIONS(TW_X)
#undef TW_X
    set_links(layout);
    char name[24];
    layout->first_param = layout->n_parts + 1;
    for (uint32_t i = 0; i < spec->note.n_banks && i < TW_MAX_BANKS; i++) {
        snprintf(name, sizeof name, ".tw.param.%u", i);
        add_part(layout, name, SHT_PROGBITS, SHF_ALLOC, TW_PARAM_ALIGN);
    }
    layout->first_image = layout->n_parts + 1;
    for (uint32_t i = 0; i < layout->images.n_images; i++) {
        snprintf(name, sizeof name, ".tw.image.%u", i);
        add_part(layout, name, SHT_PROGBITS, 0, 8);
    }
    return 0;
}

/* Places each symbol after the previous one of its section. */
static int place_symbols(struct tw_emit_layout *layout, tw_error *err) {
    const struct tw_emit_spec *spec = layout->spec;
    layout->symbol_offset = calloc(spec->n_symbols + 1u, sizeof *layout->symbol_offset);
    if (!layout->symbol_offset) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for %u symbols", layout->path,
                       spec->n_symbols);
    }
    for (uint32_t i = 0; i < spec->n_symbols; i++) {
        const struct tw_emit_symbol *s = &spec->symbols[i];
        Elf64_Shdr *section = &layout->parts[tw_emit_symbol_section(layout, s) - 1].header;
        uint64_t end;
        if (!tw_align_u64(section->sh_size, TW_SYMBOL_ALIGN, &layout->symbol_offset[i]) ||
            !tw_add_u64(layout->symbol_offset[i], s->bytes, &end) || end > UINT64_MAX / 4) {
            return tw_fail(err, TW_E_UNSUPPORTED,
                           "%s: symbol %s of %llu bytes does not fit its section", layout->path,
                           s->name, (unsigned long long)s->bytes);
        }
        section->sh_size = end;
    }
    return 0;
}

/* Places section `number` at the first aligned offset that is not below `at`; returns its end.
 * Sizes are far below 2^63. */
static uint64_t place(struct tw_emit_layout *layout, uint32_t number, uint64_t at) {
    Elf64_Shdr *h = &layout->parts[number - 1].header;
    h->sh_offset = (at + h->sh_addralign - 1) & ~(h->sh_addralign - 1);
    h->sh_addr = h->sh_flags & SHF_ALLOC ? h->sh_offset : 0;
    return h->sh_offset + h->sh_size;
}

/* Places the writable segment, as a linker lays out .data and .bss: the bindings, whose address
 * must be congruent to their offset, then state and scratch, which occupy memory only. `at` is the
 * end of the weights. */
static void place_memory(struct tw_emit_layout *layout, uint64_t at) {
    Elf64_Shdr *bind = &layout->parts[layout->index[TW_SEC_BIND] - 1].header;
    Elf64_Shdr *state = &layout->parts[layout->index[TW_SEC_STATE] - 1].header;
    Elf64_Shdr *scratch = &layout->parts[layout->index[TW_SEC_SCRATCH] - 1].header;
    const uint64_t mask = TW_PARAM_ALIGN - 1;
    bind->sh_addr = ((at + mask) & ~mask) + (bind->sh_offset & mask);
    state->sh_addr = (bind->sh_addr + bind->sh_size + mask) & ~mask;
    scratch->sh_addr = (state->sh_addr + state->sh_size + mask) & ~mask;
    state->sh_offset = scratch->sh_offset = bind->sh_offset + bind->sh_size;
}

static void place_parts(struct tw_emit_layout *layout) {
    const uint32_t *index = layout->index;
    uint64_t at = place(layout, index[TW_SEC_NOTE], TW_NOTE_OFFSET);
    at = place(layout, index[TW_SEC_HEADER], at);
    layout->segment_table = (at + 7) & ~(uint64_t)7;
    layout->section_table = layout->segment_table + layout->n_segments * sizeof(Elf64_Phdr);
    at = layout->section_table + (layout->n_parts + 1u) * sizeof(Elf64_Shdr);
    for (uint32_t n = 1; n <= layout->n_parts; n++) {
        bool weights = n >= layout->first_param && n < layout->first_image;
        if (n != index[TW_SEC_NOTE] && n != index[TW_SEC_HEADER] && n != index[TW_SEC_STATE] &&
            n != index[TW_SEC_SCRATCH] && !weights) {
            at = place(layout, n, at);
        }
    }
    layout->meta_bytes = layout->file_bytes = at;
    for (uint32_t n = layout->first_param; n < layout->first_image; n++) {
        at = layout->file_bytes = place(layout, n, at);
    }
    place_memory(layout, at);
}

static void set_segment(struct tw_emit_layout *layout, uint32_t *n, uint32_t number,
                        uint32_t type) {
    const Elf64_Shdr *h = &layout->parts[number - 1].header;
    Elf64_Phdr *segment = &layout->segments[(*n)++];
    segment->p_type = type;
    segment->p_flags = h->sh_flags & SHF_WRITE ? PF_R | PF_W : PF_R;
    segment->p_offset = h->sh_offset;
    segment->p_vaddr = segment->p_paddr = h->sh_addr;
    segment->p_filesz = segment->p_memsz = h->sh_size;
    segment->p_align = h->sh_addralign;
}

static void set_segments(struct tw_emit_layout *layout) {
    uint32_t n = 0;
    set_segment(layout, &n, layout->index[TW_SEC_NOTE], PT_NOTE);
    for (uint32_t number = layout->first_param; number < layout->first_image; number++) {
        set_segment(layout, &n, number, PT_LOAD);
    }
    const Elf64_Shdr *scratch = &layout->parts[layout->index[TW_SEC_SCRATCH] - 1].header;
    Elf64_Phdr *writable = &layout->segments[n];
    set_segment(layout, &n, layout->index[TW_SEC_BIND], PT_LOAD);
    writable->p_memsz = scratch->sh_addr + scratch->sh_size - writable->p_vaddr;
    writable->p_align = TW_PARAM_ALIGN;
}

int tw_emit_layout_build(const char *path, const struct tw_emit_spec *spec,
                         struct tw_emit_layout *layout, tw_error *err) {
    layout->path = path;
    layout->spec = spec;
    int rc = check_programs(layout, err);
    rc = rc ? rc : tw_images_build(spec->programs, spec->n_programs, &layout->images, err);
    rc = rc ? rc : list_parts(layout, err);
    rc = rc ? rc : check_symbols(layout, err);
    rc = rc ? rc : place_symbols(layout, err);
    rc = rc ? rc : tw_emit_make_contents(layout, err);
    if (rc != 0) {
        return rc;
    }
    layout->n_segments = spec->note.n_banks + 2;
    layout->segments = calloc(layout->n_segments, sizeof *layout->segments);
    if (!layout->segments) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for %u segments", path, layout->n_segments);
    }
    place_parts(layout);
    set_segments(layout);
    return tw_emit_fill_addresses(layout, err);
}

void tw_emit_layout_finish(struct tw_emit_layout *layout) {
    for (uint32_t i = 0; i < layout->n_parts; i++) {
        free(layout->parts[i].data);
    }
    free(layout->parts);
    free(layout->symbol_offset);
    free(layout->segments);
    tw_images_finish(&layout->images);
    memset(layout, 0, sizeof *layout);
}
