/* SPDX-License-Identifier: Apache-2.0
 *
 * Symbols and binding rows (loader/bundle/bundle_parts.h): each symbol becomes a place in a
 * segment, each relocation the place that its row names; then every tensor's rows are checked to
 * name as many bytes, of its kind, as the tensor has.
 */
#include "loader/bundle/bundle_parts.h"

#include "tilewright/range.h"

#include <stdlib.h>
#include <string.h>

/* Returns the segment of a section, or TW_NONE. */
static uint32_t segment_of(const struct tw_elf *elf, uint32_t section) {
    for (uint32_t i = 0; i < elf->n_banks; i++) {
        if (elf->bank[i] == section) {
            return i;
        }
    }
    return section == elf->fixed[TW_SEC_STATE]     ? elf->n_banks
           : section == elf->fixed[TW_SEC_SCRATCH] ? elf->n_banks + 1
                                                   : TW_NONE;
}

static bool role_fits(enum tw_segment_kind kind, uint32_t role) {
    switch (kind) {
    case TW_SEG_PARAM:
        return role == TW_ROLE_PARAM;
    case TW_SEG_STATE:
        return role == TW_ROLE_STATE;
    case TW_SEG_SCRATCH:
        return role == TW_ROLE_INPUT || role == TW_ROLE_OUTPUT;
    }
    return false;
}

static int read_symbol(struct tw_bundle *bundle, uint32_t i, const Elf64_Sym *sym,
                       const struct tw_symbol_type *type, tw_error *err) {
    const struct tw_elf *elf = &tw_owner(bundle)->elf;
    uint64_t names_bytes;
    const char *names = tw_elf_content(elf, TW_SEC_STRTAB, &names_bytes);
    if (sym->st_name == 0 || sym->st_name >= names_bytes ||
        sym->st_info != ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT) || sym->st_other != 0) {
        return tw_fail(
            err, TW_E_FORMAT,
            "%s: .symtab: symbol %u: name %u of %llu, info %u or other %u is not a tensor's",
            bundle->path, i, sym->st_name, (unsigned long long)names_bytes, sym->st_info,
            sym->st_other);
    }
    const char *name = names + sym->st_name;
    uint32_t segment = segment_of(elf, sym->st_shndx);
    if (sym->st_shndx == SHN_UNDEF || segment == TW_NONE) {
        return tw_fail(
            err, TW_E_FORMAT,
            "%s: .symtab: symbol %u (%.80s) is undefined or in section %u, which holds no tensors",
            bundle->path, i, name, sym->st_shndx);
    }
    const Elf64_Shdr *section = &elf->sections[sym->st_shndx];
    uint64_t offset = sym->st_value - section->sh_addr;
    if (sym->st_value < section->sh_addr || sym->st_size == 0 ||
        !tw_range_ok(offset, sym->st_size, section->sh_size) || offset % TW_SYMBOL_ALIGN != 0) {
        return tw_fail(
            err, TW_E_RANGE,
            "%s: .symtab: symbol %u (%.80s): value %llu size %llu, section at %llu of %llu bytes",
            bundle->path, i, name, (unsigned long long)sym->st_value,
            (unsigned long long)sym->st_size, (unsigned long long)section->sh_addr,
            (unsigned long long)section->sh_size);
    }
    if (!role_fits(bundle->segments[segment].kind, type->role) || type->dtype >= TW_DT_COUNT) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: .tw.types: symbol %u (%.80s): role %u or dtype %u does not fit %.40s",
                       bundle->path, i, name, type->role, type->dtype, elf->names[sym->st_shndx]);
    }
    struct tw_symbol symbol = {name, segment, type->role, type->dtype, offset, sym->st_size};
    bundle->symbols[i - 1] = symbol;
    return 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* State is carried from bundle to bundle by name, so a name must mean one symbol. */
static int check_unique(const struct tw_bundle *bundle, tw_error *err) {
    const char **names = malloc((bundle->n_symbols + 1u) * sizeof *names);
    if (!names) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory for %u symbols", bundle->path,
                       bundle->n_symbols);
    }
    for (uint32_t i = 0; i < bundle->n_symbols; i++) {
        names[i] = bundle->symbols[i].name;
    }
    qsort(names, bundle->n_symbols, sizeof *names, by_name);
    int rc = 0;
    for (uint32_t i = 1; rc == 0 && i < bundle->n_symbols; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            rc = tw_fail(err, TW_E_FORMAT, "%s: .symtab: symbol %.80s occurs twice", bundle->path,
                         names[i]);
        }
    }
    free(names);
    return rc;
}

int tw_parts_symbols(struct tw_bundle *bundle, tw_error *err) {
    const struct tw_elf *elf = &tw_owner(bundle)->elf;
    uint64_t bytes, types_bytes, names_bytes;
    const Elf64_Sym *sym = tw_elf_content(elf, TW_SEC_SYMTAB, &bytes);
    const struct tw_symbol_type *type = tw_elf_content(elf, TW_SEC_TYPES, &types_bytes);
    const char *names = tw_elf_content(elf, TW_SEC_STRTAB, &names_bytes);
    uint64_t n = bytes / sizeof *sym;
    if (n == 0 || n > UINT32_MAX || bytes % sizeof *sym != 0 || types_bytes != n * sizeof *type) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: .symtab of %llu bytes and .tw.types of %llu bytes do not match",
                       bundle->path, (unsigned long long)bytes, (unsigned long long)types_bytes);
    }
    if (names_bytes == 0 || names[0] != 0 || names[names_bytes - 1] != 0) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: .strtab: %llu bytes are not a table of terminated strings",
                       bundle->path, (unsigned long long)names_bytes);
    }
    bundle->symbols = calloc(n, sizeof *bundle->symbols);
    if (!bundle->symbols) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory for %llu symbols", bundle->path,
                       (unsigned long long)n);
    }
    for (uint32_t i = 1; i < n; i++) {
        int rc = read_symbol(bundle, i, &sym[i], &type[i], err);
        if (rc != 0) {
            return rc;
        }
    }
    bundle->n_symbols = (uint32_t)(n - 1);
    return check_unique(bundle, err);
}

static int read_row(struct tw_bundle *bundle, uint64_t row, const Elf64_Rela *rela,
                    uint64_t address, tw_error *err) {
    uint64_t symbol = ELF64_R_SYM(rela->r_info), type = ELF64_R_TYPE(rela->r_info);
    if (type != TW_R_64 || rela->r_offset != address + row * 8) {
        return tw_fail(
            err, TW_E_FORMAT, "%s: .rela.tw.bind: row %llu: type %llu at %llu, expected %u at %llu",
            bundle->path, (unsigned long long)row, (unsigned long long)type,
            (unsigned long long)rela->r_offset, TW_R_64, (unsigned long long)(address + row * 8));
    }
    if (symbol == 0 || symbol > bundle->n_symbols) {
        return tw_fail(err, TW_E_RANGE, "%s: .rela.tw.bind: row %llu: symbol %llu of %u",
                       bundle->path, (unsigned long long)row, (unsigned long long)symbol,
                       bundle->n_symbols);
    }
    const struct tw_symbol *s = &bundle->symbols[symbol - 1];
    if (rela->r_addend < 0 || (uint64_t)rela->r_addend >= s->size ||
        rela->r_addend % TW_SYMBOL_ALIGN != 0) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: .rela.tw.bind: row %llu: addend %lld in symbol %.80s of %llu bytes",
                       bundle->path, (unsigned long long)row, (long long)rela->r_addend, s->name,
                       (unsigned long long)s->size);
    }
    struct tw_bind_target target = {s->segment, 0, s->offset + (uint64_t)rela->r_addend,
                                    s->size - (uint64_t)rela->r_addend};
    bundle->bind[row] = target;
    return 0;
}

static int read_rows(struct tw_bundle *bundle, tw_error *err) {
    const struct tw_elf *elf = &tw_owner(bundle)->elf;
    uint64_t rela_bytes, bind_bytes, n = bundle->n_bind_rows;
    const Elf64_Rela *rela = tw_elf_content(elf, TW_SEC_RELA, &rela_bytes);
    tw_elf_content(elf, TW_SEC_BIND, &bind_bytes);
    if (n != rela_bytes / sizeof *rela || rela_bytes % sizeof *rela != 0 || bind_bytes % 8 != 0 ||
        n != bind_bytes / 8) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: %llu binding rows, but .tw.bind has %llu bytes and .rela.tw.bind %llu",
                       bundle->path, (unsigned long long)n, (unsigned long long)bind_bytes,
                       (unsigned long long)rela_bytes);
    }
    bundle->bind = calloc(n + 1, sizeof *bundle->bind);
    if (!bundle->bind) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory for %llu binding rows", bundle->path,
                       (unsigned long long)n);
    }
    for (uint64_t row = 0; row < n; row++) {
        int rc =
            read_row(bundle, row, &rela[row], elf->sections[elf->fixed[TW_SEC_BIND]].sh_addr, err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int check_tensor(const struct tw_bundle *bundle, const struct tw_program *p, uint32_t t,
                        tw_error *err) {
    const struct tw_tensor *tensor = &p->tensors[t];
    const char *name = tw_program_string(p, tensor->name);
    if (tensor->bind_count != 0 &&
        !tw_range_ok(tensor->bind_first, tensor->bind_count, bundle->n_bind_rows)) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: program %s: tensor %u (%.80s): binding rows %u + %u of %llu",
                       bundle->path, p->name, t, name, tensor->bind_first, tensor->bind_count,
                       (unsigned long long)bundle->n_bind_rows);
    }
    for (uint32_t i = 0; i < tensor->bind_count; i++) {
        const struct tw_bind_target *b = &bundle->bind[tensor->bind_first + i];
        if (b->size < tensor->bytes ||
            !role_fits(bundle->segments[b->segment].kind, tensor->role)) {
            return tw_fail(err, TW_E_RANGE,
                           "%s: program %s: tensor %u (%.80s): row %u names %llu bytes of segment "
                           "%u for %llu bytes of role %u",
                           bundle->path, p->name, t, name, tensor->bind_first + i,
                           (unsigned long long)b->size, b->segment,
                           (unsigned long long)tensor->bytes, tensor->role);
        }
    }
    if (tensor->init == TW_INIT_BLOB) {
        return tw_fail(
            err, TW_E_UNSUPPORTED,
            "%s: program %s: tensor %u (%.80s): initial values from a blob are not supported",
            bundle->path, p->name, t, name);
    }
    return 0;
}

/* Few tensors share binding rows, so a program that claims many times more rows than there are is
 * refused before they are walked: the work stays linear in the size of the file. */
static int check_tensors(const struct tw_bundle *bundle, const struct tw_program *p,
                         tw_error *err) {
    uint64_t claimed = 0, limit = 16 * (bundle->n_bind_rows + p->n_tensors);
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        claimed += p->tensors[t].bind_count;
    }
    if (claimed > limit) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: program %s: tensors claim %llu binding rows, there are %llu",
                       bundle->path, p->name, (unsigned long long)claimed,
                       (unsigned long long)bundle->n_bind_rows);
    }
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        int rc = check_tensor(bundle, p, t, err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int tw_parts_bind(struct tw_bundle *bundle, tw_error *err) {
    int rc = read_rows(bundle, err);
    for (uint32_t p = 0; rc == 0 && p < bundle->n_programs; p++) {
        rc = check_tensors(bundle, &bundle->programs[p], err);
    }
    return rc;
}
