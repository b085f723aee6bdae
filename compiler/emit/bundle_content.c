/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a bundle's metadata sections (compiler/emit/bundle_layout.h): each is built in
 * memory in the form that tilewright/bundle.h defines, from the programs, the shared images and the
 * symbols.
 */
#include "compiler/emit/bundle_layout.h"

#include "loader/bundle/bindings.h"
#include "tilewright/progblob.h"

#include <stdlib.h>
#include <string.h>

/* Returns zeroed content of `size` bytes for section `number`; NULL, with `err` filled, if memory
 * ran out. */
static void *content_of(struct tw_emit_layout *layout, uint32_t number, uint64_t size,
                        tw_error *err) {
    struct tw_emit_part *part = &layout->parts[number - 1];
    part->data = calloc(size + 1, 1);
    part->header.sh_size = size;
    if (!part->data) {
        tw_error_set(err, TW_E_NOMEM, "%s: no memory for section %s of %llu bytes", layout->path,
                     part->name, (unsigned long long)size);
    }
    return part->data;
}

static int copy_content(struct tw_emit_layout *layout, enum tw_section_id id, const void *bytes,
                        uint64_t size, tw_error *err) {
    void *to = content_of(layout, layout->index[id], size, err);
    if (!to) {
        return TW_E_NOMEM;
    }
    memcpy(to, bytes, size);
    return 0;
}

static int make_programs(struct tw_emit_layout *layout, tw_error *err) {
    const struct tw_emit_spec *spec = layout->spec;
    uint64_t at = sizeof(struct tw_programs_header) +
                  spec->n_programs * sizeof(struct tw_program_record),
             size = at;
    for (uint32_t i = 0; i < spec->n_programs; i++) {
        uint32_t bytes = tw_progblob_bytes(&spec->programs[i], false);
        if (bytes == 0) {
            return tw_fail(err, TW_E_UNSUPPORTED,
                           "%s: the tables or the name of program %s are too large", layout->path,
                           spec->programs[i].name);
        }
        size += bytes;
    }
    uint8_t *data = content_of(layout, layout->index[TW_SEC_PROGRAMS], size, err);
    if (!data) {
        return TW_E_NOMEM;
    }
    struct tw_programs_header header = {TW_PROGRAMS_MAGIC, spec->n_programs, spec->n_bind_rows};
    memcpy(data, &header, sizeof header);
    for (uint32_t i = 0; i < spec->n_programs; i++) {
        struct tw_program_record record = {at, tw_progblob_bytes(&spec->programs[i], false)};
        memcpy(data + sizeof header + i * sizeof record, &record, sizeof record);
        tw_progblob_write(&spec->programs[i], false, data + at);
        at += record.bytes;
    }
    return 0;
}

static int make_sites(struct tw_emit_layout *layout, tw_error *err) {
    const struct tw_images *m = &layout->images;
    struct tw_sites_header header = {TW_SITES_MAGIC, m->n_images, m->n_streams,
                                     m->n_patches,   m->n_args,   0};
    uint64_t images = m->n_images * sizeof *m->images, streams = m->n_streams * sizeof *m->streams;
    uint64_t patches = m->n_patches * sizeof *m->patches, args = m->n_args * sizeof *m->args;
    uint8_t *to = content_of(layout, layout->index[TW_SEC_SITES],
                             sizeof header + images + streams + patches + args, err);
    if (!to) {
        return TW_E_NOMEM;
    }
    memcpy(to, &header, sizeof header);
    memcpy(to += sizeof header, m->images, images);
    memcpy(to += images, m->streams, streams);
    memcpy(to += streams, m->patches, patches);
    memcpy(to + patches, m->args, args);
    for (uint32_t i = 0; i < m->n_images; i++) {
        uint64_t size = (uint64_t)m->images[i].n_words * 4;
        void *words = content_of(layout, layout->first_image + i, size, err);
        if (!words) {
            return TW_E_NOMEM;
        }
        memcpy(words, m->image_words[i], size);
    }
    return 0;
}

/* Builds .strtab, .tw.types and the names of .symtab; symbol values are set when addresses are
 * known. */
static int make_symbols(struct tw_emit_layout *layout, tw_error *err) {
    const struct tw_emit_spec *spec = layout->spec;
    uint64_t names = 1;
    for (uint32_t i = 0; i < spec->n_symbols; i++) {
        names += strlen(spec->symbols[i].name) + 1;
    }
    if (names > UINT32_MAX) {
        return tw_fail(err, TW_E_UNSUPPORTED, "%s: the symbol names take 4 GiB or more",
                       layout->path);
    }
    char *text = content_of(layout, layout->index[TW_SEC_STRTAB], names, err);
    Elf64_Sym *sym =
        content_of(layout, layout->index[TW_SEC_SYMTAB], (spec->n_symbols + 1u) * sizeof *sym, err);
    struct tw_symbol_type *type =
        content_of(layout, layout->index[TW_SEC_TYPES], (spec->n_symbols + 1u) * sizeof *type, err);
    if (!text || !sym || !type) {
        return TW_E_NOMEM;
    }
    uint32_t at = 1;
    for (uint32_t i = 0; i < spec->n_symbols; i++) {
        const struct tw_emit_symbol *s = &spec->symbols[i];
        size_t length = strlen(s->name) + 1;
        memcpy(text + at, s->name, length);
        sym[i + 1].st_name = at;
        sym[i + 1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
        sym[i + 1].st_shndx = (Elf64_Half)tw_emit_symbol_section(layout, s);
        sym[i + 1].st_size = s->bytes;
        type[i + 1].role = (uint8_t)s->role;
        type[i + 1].dtype = (uint8_t)s->dtype;
        at += (uint32_t)length;
    }
    return 0;
}

static int make_bind(struct tw_emit_layout *layout, tw_error *err) {
    uint64_t n = layout->spec->n_bind_rows;
    if (n > UINT32_MAX) {
        return tw_fail(err, TW_E_UNSUPPORTED, "%s: there are 2^32 binding rows or more",
                       layout->path);
    }
    bool ok = content_of(layout, layout->index[TW_SEC_BIND], n * 8, err) &&
              content_of(layout, layout->index[TW_SEC_RELA], n * sizeof(Elf64_Rela), err);
    return ok ? 0 : TW_E_NOMEM;
}

static int make_section_names(struct tw_emit_layout *layout, tw_error *err) {
    char *text = content_of(layout, layout->index[TW_SEC_SHSTRTAB],
                            1 + layout->n_parts * sizeof(layout->parts->name), err);
    if (!text) {
        return TW_E_NOMEM;
    }
    uint32_t at = 1;
    for (uint32_t i = 0; i < layout->n_parts; i++) {
        size_t length = strlen(layout->parts[i].name) + 1;
        memcpy(text + at, layout->parts[i].name, length);
        layout->parts[i].header.sh_name = at;
        at += (uint32_t)length;
    }
    layout->parts[layout->index[TW_SEC_SHSTRTAB] - 1].header.sh_size = at;
    return 0;
}

static int make_texts(struct tw_emit_layout *layout, tw_error *err) {
    const struct tw_emit_spec *spec = layout->spec;
    int rc = copy_content(layout, TW_SEC_STRINGS, spec->programs[0].strings,
                          spec->programs[0].strings_bytes, err);
    if (rc == 0 && layout->index[TW_SEC_VOCAB]) {
        rc = copy_content(layout, TW_SEC_VOCAB, spec->vocab, spec->vocab_bytes, err);
    }
    if (rc == 0 && layout->index[TW_SEC_CERT]) {
        rc = copy_content(layout, TW_SEC_CERT, spec->certificate, spec->certificate_bytes, err);
    }
    if (rc == 0 && spec->chat) {
        rc = copy_content(layout, TW_SEC_CHAT, spec->chat, strlen(spec->chat) + 1, err);
    }
    if (rc == 0 && spec->plan) {
        rc = copy_content(layout, TW_SEC_PLAN, spec->plan, strlen(spec->plan) + 1, err);
    }
    if (rc == 0 && spec->origin) {
        rc = copy_content(layout, TW_SEC_ORIGIN, spec->origin, strlen(spec->origin) + 1, err);
    }
    if (rc == 0 && spec->identity) {
        rc = copy_content(layout, TW_SEC_IDENTITY, spec->identity, TW_HASH_BYTES, err);
    }
    return rc;
}

int tw_emit_make_contents(struct tw_emit_layout *layout, tw_error *err) {
    uint64_t banks = layout->spec->note.n_banks * sizeof(struct tw_bank_record);
    int rc = make_texts(layout, err);
    rc = rc ? rc : make_programs(layout, err);
    rc = rc ? rc : make_sites(layout, err);
    rc = rc ? rc : make_symbols(layout, err);
    rc = rc ? rc : make_bind(layout, err);
    rc = rc ? rc : make_section_names(layout, err);
    if (rc == 0 &&
        (!content_of(layout, layout->index[TW_SEC_BANKS], banks, err) ||
         !content_of(layout, layout->index[TW_SEC_NOTE], TW_NOTE_BYTES, err) ||
         !content_of(layout, layout->index[TW_SEC_HEADER], sizeof(struct tw_bundle_note), err))) {
        rc = TW_E_NOMEM;
    }
    return rc;
}

static void fill_note(struct tw_emit_layout *layout) {
    uint8_t *to = layout->parts[layout->index[TW_SEC_NOTE] - 1].data;
    struct tw_bundle_note note = layout->spec->note;
    Elf64_Nhdr header = {sizeof TW_NOTE_NAME, 0, TW_NOTE_TYPE};
    note.bundle_major = TW_BUNDLE_MAJOR;
    note.bundle_minor = TW_BUNDLE_MINOR;
    note.abi_major = TW_MACHINE_ABI_MAJOR;
    note.n_programs = layout->spec->n_programs;
    note.meta_bytes = layout->meta_bytes;
    memset(note.content_hash, 0, sizeof note.content_hash);
    memcpy(to, &header, sizeof header);
    memcpy(to + sizeof header, TW_NOTE_NAME, sizeof TW_NOTE_NAME);
    memcpy(layout->parts[layout->index[TW_SEC_HEADER] - 1].data, &note, sizeof note);
}

/* Returns what the loader will find in a binding row. */
static struct tw_bind_target target_of(const struct tw_emit_layout *layout, uint32_t symbol) {
    const struct tw_emit_symbol *s = &layout->spec->symbols[symbol];
    uint32_t segment = s->role == TW_ROLE_PARAM   ? s->bank
                       : s->role == TW_ROLE_STATE ? layout->spec->note.n_banks
                                                  : layout->spec->note.n_banks + 1;
    return (struct tw_bind_target){segment, 0, layout->symbol_offset[symbol], s->bytes};
}

static int fill_certificate(struct tw_emit_layout *layout, tw_error *err) {
    const struct tw_emit_spec *spec = layout->spec;
    if (!layout->index[TW_SEC_CERT]) {
        return 0;
    }
    struct tw_bind_target *rows = calloc(spec->n_bind_rows + 1, sizeof *rows);
    if (!rows) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for %llu binding rows", layout->path,
                       (unsigned long long)spec->n_bind_rows);
    }
    for (uint64_t row = 0; row < spec->n_bind_rows; row++) {
        rows[row] = target_of(layout, spec->bind_symbol[row]);
    }
    struct tw_cert_header *header = layout->parts[layout->index[TW_SEC_CERT] - 1].data;
    if (spec->certificate_bytes >= sizeof *header) {
        tw_bindings_hash(rows, spec->n_bind_rows, header->bindings_hash);
    }
    free(rows);
    return 0;
}

int tw_emit_fill_addresses(struct tw_emit_layout *layout, tw_error *err) {
    const struct tw_emit_spec *spec = layout->spec;
    Elf64_Sym *sym = layout->parts[layout->index[TW_SEC_SYMTAB] - 1].data;
    Elf64_Rela *rela = layout->parts[layout->index[TW_SEC_RELA] - 1].data;
    uint64_t bind = layout->parts[layout->index[TW_SEC_BIND] - 1].header.sh_addr;
    for (uint32_t i = 0; i < spec->n_symbols; i++) {
        sym[i + 1].st_value =
            layout->parts[sym[i + 1].st_shndx - 1].header.sh_addr + layout->symbol_offset[i];
    }
    for (uint64_t row = 0; row < spec->n_bind_rows; row++) {
        rela[row].r_offset = bind + row * 8;
        rela[row].r_info = ELF64_R_INFO(spec->bind_symbol[row] + 1u, TW_R_64);
    }
    fill_note(layout);
    return fill_certificate(layout, err);
}
