/* SPDX-License-Identifier: Apache-2.0
 *
 * Corrupted bundles: every field of every header and table is set to hostile values and the file is
 * truncated everywhere, once with the content hash left wrong and once corrected ("sealed"); then
 * one file for each check, which must be refused for that reason.
 */
#include "loader/bundle/loader.h"
#include "tests/support/bundle_fixture.h"

#include "tests/support/test.h"
#include "tilewright/progblob.h"
#include "tilewright/range.h"

#include <elf.h>

/* A valid bundle in memory, a scratch copy of it, and the results of opening copies. */
struct world {
    uint8_t *good, *copy;
    size_t size;
    const Elf64_Ehdr *header;
    const Elf64_Shdr *sections;
    unsigned long opened, refused;
    tw_error err;
};

static int setup(void **state) {
    struct world *w = calloc(1, sizeof *w);
    struct bundle_fixture *f = calloc(1, sizeof *f);
    char path[4200], *folder = bundle_fixture_folder();
    void *copy = NULL;
    if (!w || !f) {
        return -1;
    }
    bundle_fixture_init(f);
    snprintf(path, sizeof path, "%s/a.twb", folder);
    int rc = tw_bundle_write(path, &f->spec, &w->err);
    w->good = rc ? NULL : bundle_fixture_read(path, &w->size);
    bundle_fixture_remove(folder);
    free(f);
    if (!w->good || posix_memalign(&copy, TW_PARAM_ALIGN, w->size) != 0) {
        fprintf(stderr, "%s\n", w->err.message);
        return -1;
    }
    w->copy = copy;
    memcpy(w->copy, w->good, w->size);
    w->header = (const Elf64_Ehdr *)(const void *)w->good;
    w->sections = (const Elf64_Shdr *)(const void *)(w->good + w->header->e_shoff);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    struct world *w = *state;
    free(w->good);
    free(w->copy);
    free(w);
    return 0;
}

static uint32_t section_number(const struct world *w, const char *name) {
    const char *names = (const char *)w->good + w->sections[w->header->e_shstrndx].sh_offset;
    for (uint32_t i = 1; i < w->header->e_shnum; i++) {
        if (strcmp(names + w->sections[i].sh_name, name) == 0) {
            return i;
        }
    }
    fail_msg("no section %s", name);
    return 0;
}

static uint64_t section_offset(const struct world *w, const char *name) {
    return w->sections[section_number(w, name)].sh_offset;
}

/* Reads everything that the loader promises of an open bundle. */
static void read_all(const struct tw_bundle *b) {
    uint64_t sum = 0;
    for (uint32_t p = 0; p < b->n_programs; p++) {
        const struct tw_program *program = &b->programs[p];
        sum += strlen(program->name) + program->strings_bytes;
        for (uint32_t i = 0; i < program->n_sites * TW_ENGINE_COUNT; i++) {
            const struct tw_stream *s = &program->streams[i];
            assert_int_equal(s->site * TW_ENGINE_COUNT + s->engine, i);
            for (uint32_t k = 0; k < s->n_words; k++) {
                sum += s->words[k];
            }
        }
        for (uint32_t t = 0; t < program->n_tensors; t++) {
            const struct tw_tensor *tensor = &program->tensors[t];
            for (uint32_t i = 0; i < tensor->bind_count; i++) {
                assert_true(tensor->bind_first + i < b->n_bind_rows);
                assert_true(b->bind[tensor->bind_first + i].size >= tensor->bytes);
            }
        }
    }
    for (uint64_t i = 0; i < b->n_bind_rows; i++) {
        assert_true(b->bind[i].segment < b->n_segments);
        assert_true(
            tw_range_ok(b->bind[i].offset, b->bind[i].size, b->segments[b->bind[i].segment].size));
    }
    for (uint32_t i = 0; i < b->n_symbols; i++) {
        sum += strlen(b->symbols[i].name);
        assert_true(tw_range_ok(b->symbols[i].offset, b->symbols[i].size,
                                b->segments[b->symbols[i].segment].size));
    }
    for (uint32_t i = 0; i < b->n_segments; i++) {
        sum += b->segments[i].bytes && b->segments[i].size
                   ? b->segments[i].bytes[b->segments[i].size - 1]
                   : 0;
    }
    sum += (b->plan ? strlen(b->plan) : 0) + (b->origin ? strlen(b->origin) : 0) +
           strlen(b->note->model);
    assert_true(sum != 1);
}

static int try_open(struct world *w, const uint8_t *bytes, size_t size, unsigned flags) {
    struct tw_bundle b;
    w->err.message[0] = 0;
    int rc = tw_bundle_open_memory("hostile", bytes, size, flags | TW_BUNDLE_NO_RULES, &b, &w->err);
    if (rc == 0) {
        read_all(&b);
        w->opened++;
    } else {
        assert_true(rc != TW_E_INTERNAL && rc != TW_E_NOMEM && w->err.message[0] != 0);
        assert_null(b.owner);
        w->refused++;
    }
    tw_bundle_close(&b);
    return rc;
}

/* Opens the copy with the field set to each hostile value, unsealed and sealed, and restores the
 * field. */
static void corrupt(struct world *w, uint64_t offset, uint32_t width) {
    uint64_t old = 0;
    memcpy(&old, w->good + offset, width);
    const uint64_t values[] = {0,          1,          old + 1,    w->size,   w->size + 1,
                               1ull << 31, UINT32_MAX, 1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        memcpy(w->copy + offset, &values[i], width);
        bool changed = memcmp(w->copy + offset, w->good + offset, width) != 0;
        assert_int_equal(try_open(w, w->copy, w->size, 0) != 0, changed);
        bundle_fixture_seal(w->copy, w->size);
        try_open(w, w->copy, w->size, i % 2 ? TW_BUNDLE_CHECK_HASH : 0);
        memcpy(w->copy, w->good, TW_HEADER_OFFSET + sizeof(struct tw_bundle_note));
        memcpy(w->copy + offset, w->good + offset, width);
    }
}

/* Corrupts every field of a record; `widths` are the widths of its fields. */
static void corrupt_record(struct world *w, uint64_t offset, const char *widths) {
    for (; *widths; widths++) {
        corrupt(w, offset, (uint32_t)(*widths - '0'));
        offset += (uint64_t)(*widths - '0');
    }
}

/* Corrupts a section of 32- and 64-bit numbers: every word, and every aligned pair of words. */
static void corrupt_words(struct world *w, const char *section) {
    const Elf64_Shdr *s = &w->sections[section_number(w, section)];
    for (uint64_t at = 0; at + 4 <= s->sh_size; at += 4) {
        corrupt(w, s->sh_offset + at, 4);
        if (at % 8 == 0 && at + 8 <= s->sh_size) {
            corrupt(w, s->sh_offset + at, 8);
        }
    }
}

static void report(struct world *w, const char *what) {
    print_message("%s: %lu opened, %lu refused\n", what, w->opened, w->refused);
    assert_true(w->refused > 0);
    assert_memory_equal(w->copy, w->good, w->size);
    assert_int_equal(try_open(w, w->copy, w->size, TW_BUNDLE_CHECK_HASH), 0);
}

static void hostile_elf_headers_never_crash_the_loader(void **state) {
    struct world *w = *state;
    corrupt_record(w, 0,
                   "11111111"
                   "8"
                   "2248884222222");
    for (uint32_t i = 0; i < w->header->e_phnum; i++) {
        corrupt_record(w, w->header->e_phoff + i * sizeof(Elf64_Phdr), "44888888");
    }
    for (uint32_t i = 0; i < w->header->e_shnum; i++) {
        corrupt_record(w, w->header->e_shoff + i * sizeof(Elf64_Shdr), "4488884488");
    }
    report(w, "ELF headers");
}

static void hostile_notes_never_crash_the_loader(void **state) {
    struct world *w = *state;
    corrupt_words(w, ".note.tilewright");
    corrupt_record(w, TW_HEADER_OFFSET, "222244444488");
    corrupt_words(w, ".tw.header");
    report(w, "note and header");
    assert_true(w->opened > 0); /* the model's name and numbers may be anything */
}

static void hostile_programs_and_sites_never_crash_the_loader(void **state) {
    struct world *w = *state;
    corrupt_words(w, ".tw.programs");
    corrupt_words(w, ".tw.sites");
    corrupt_words(w, ".tw.strings");
    report(w, "programs and sites");
    assert_true(w->opened > 0);
}

static void hostile_symbols_and_relocations_never_crash_the_loader(void **state) {
    struct world *w = *state;
    for (uint64_t at = 0; at < w->sections[section_number(w, ".symtab")].sh_size;
         at += sizeof(Elf64_Sym)) {
        corrupt_record(w, section_offset(w, ".symtab") + at, "411288");
    }
    corrupt_words(w, ".rela.tw.bind");
    corrupt_words(w, ".tw.types");
    corrupt_words(w, ".tw.banks");
    corrupt_words(w, ".strtab");
    corrupt_words(w, ".shstrtab");
    report(w, "symbols and relocations");
}

/* Opens the first `size` bytes, in an allocation of that size, so that a sanitizer sees a read past
 * them. */
static void cut(struct world *w, size_t size) {
    void *bytes = NULL;
    assert_int_equal(posix_memalign(&bytes, 64, size + !size), 0);
    memcpy(bytes, w->good, size);
    int rc = try_open(w, bytes, size, TW_BUNDLE_CHECK_HASH);
    assert_true(size == w->size ? rc == 0 : rc == TW_E_TRUNCATED || rc == TW_E_FORMAT);
    bundle_fixture_seal(bytes, size);
    try_open(w, bytes, size, TW_BUNDLE_CHECK_HASH);
    free(bytes);
}

static void a_truncated_file_is_refused_at_every_length(void **state) {
    struct world *w = *state;
    for (uint32_t i = 1; i < w->header->e_shnum; i++) {
        const Elf64_Shdr *s = &w->sections[i];
        if (s->sh_type != SHT_NOBITS) {
            cut(w, s->sh_offset);
            cut(w, s->sh_offset + s->sh_size);
        }
    }
    for (size_t at = 0; at < w->size; at += 97) {
        cut(w, at);
    }
    report(w, "cut files");
}

static void a_longer_file_with_zeros_opens_and_with_other_bytes_fails_the_hash(void **state) {
    struct world *w = *state;
    void *bytes = NULL;
    assert_int_equal(posix_memalign(&bytes, 64, w->size + 100), 0);
    memcpy(bytes, w->good, w->size);
    memset((uint8_t *)bytes + w->size, 0, 100);
    assert_int_equal(try_open(w, bytes, w->size + 100, TW_BUNDLE_CHECK_HASH), 0);
    ((uint8_t *)bytes)[w->size + 50] = 1;
    assert_int_equal(try_open(w, bytes, w->size + 100, TW_BUNDLE_CHECK_HASH), TW_E_HASH);
    free(bytes);
}

/* ---- one refusal per check ---- */

/* Sets a field of the copy, seals it, expects a refusal that names `word`, and restores the
 * copy. */
static void refuse(struct world *w, uint64_t offset, uint32_t width, uint64_t value, int code,
                   const char *word) {
    memcpy(w->copy + offset, &value, width);
    bundle_fixture_seal(w->copy, w->size);
    int rc = try_open(w, w->copy, w->size, 0);
    if (rc != code || !strstr(w->err.message, word)) {
        fail_msg("expected %d and \"%s\", got %d: %s", code, word, rc, w->err.message);
    }
    memcpy(w->copy, w->good, w->size);
}

static uint64_t shdr(const struct world *w, const char *section, size_t field) {
    return w->header->e_shoff + section_number(w, section) * sizeof(Elf64_Shdr) + field;
}
#define SHDR(section, field) shdr(w, section, offsetof(Elf64_Shdr, field))
#define NOTE(field) (TW_HEADER_OFFSET + offsetof(struct tw_bundle_note, field))

static void an_elf_file_of_another_kind_is_refused(void **state) {
    struct world *w = *state;
    refuse(w, EI_CLASS, 1, ELFCLASS32, TW_E_FORMAT, "class");
    refuse(w, EI_DATA, 1, ELFDATA2MSB, TW_E_FORMAT, "byte order");
    refuse(w, EI_OSABI, 1, 3, TW_E_FORMAT, "OS ABI");
    refuse(w, offsetof(Elf64_Ehdr, e_type), 2, ET_DYN, TW_E_FORMAT, "e_type");
    refuse(w, offsetof(Elf64_Ehdr, e_machine), 2, EM_AARCH64, TW_E_FORMAT, "e_machine");
    refuse(w, offsetof(Elf64_Ehdr, e_version), 4, 2, TW_E_FORMAT, "e_version");
    refuse(w, offsetof(Elf64_Ehdr, e_entry), 8, 4096, TW_E_FORMAT, "e_entry");
    refuse(w, offsetof(Elf64_Ehdr, e_shoff), 8, w->header->e_shoff + 1, TW_E_FORMAT,
           "section table");
    refuse(w, offsetof(Elf64_Ehdr, e_shoff), 8, w->size / 8 * 8 - 8, TW_E_TRUNCATED,
           "section table");
    refuse(w, offsetof(Elf64_Ehdr, e_phnum), 2, 300, TW_E_RANGE, "e_phnum");
    refuse(w, offsetof(Elf64_Ehdr, e_phnum), 2, 2, TW_E_MISSING, "segment 2");
}

static void versions_that_this_reader_does_not_know_are_refused(void **state) {
    struct world *w = *state;
    refuse(w, NOTE(bundle_major), 2, 3, TW_E_UNSUPPORTED,
           "bundle format 3.1, this program reads 2.x: recompile the model, or upgrade tilewright");
    refuse(w, NOTE(bundle_major), 2, 1, TW_E_UNSUPPORTED,
           "bundle format 1.1, this program reads 2.x: recompile the model");
    refuse(w, NOTE(abi_major), 2, 9, TW_E_UNSUPPORTED, "upgrade tilewright");
    refuse(w, NOTE(abi_major), 2, 9, TW_E_UNSUPPORTED, "ABI 9");
    refuse(w, NOTE(abi_min_minor), 2, TW_MACHINE_ABI_MINOR + 1, TW_E_UNSUPPORTED, "ABI");
    uint16_t newer = 7;
    memcpy(w->copy + NOTE(bundle_minor), &newer, 2);
    bundle_fixture_seal(w->copy, w->size);
    assert_int_equal(try_open(w, w->copy, w->size, 0), 0);
}

static void sections_out_of_place_are_refused(void **state) {
    struct world *w = *state;
    refuse(w, SHDR(".tw.param.0", sh_flags), 8, SHF_ALLOC | SHF_EXECINSTR, TW_E_FORMAT,
           "executable");
    refuse(w, SHDR(".tw.bind", sh_flags), 8, SHF_ALLOC | SHF_WRITE | SHF_EXECINSTR, TW_E_FORMAT,
           "executable");
    refuse(w, SHDR(".tw.param.0", sh_flags), 8, SHF_ALLOC | SHF_WRITE, TW_E_FORMAT, "sh_flags");
    refuse(w, SHDR(".tw.param.1", sh_offset), 8, section_offset(w, ".tw.param.0"), TW_E_FORMAT,
           "overlap");
    refuse(w, SHDR(".tw.param.1", sh_addr), 8, section_offset(w, ".tw.param.0"), TW_E_FORMAT,
           "overlap");
    refuse(w, SHDR(".tw.plan", sh_offset), 8, section_offset(w, ".tw.vocab"), TW_E_FORMAT,
           "overlap");
    refuse(w, SHDR(".tw.plan", sh_offset), 8, 0, TW_E_FORMAT, "overlap");
    refuse(w, SHDR(".tw.param.0", sh_offset), 8, section_offset(w, ".tw.param.0") + 64, TW_E_FORMAT,
           "aligned");
    refuse(w, SHDR(".tw.param.1", sh_addralign), 8, 64, TW_E_FORMAT, "sh_addralign");
    refuse(w, SHDR(".tw.param.1", sh_size), 8, 1ull << 40, TW_E_TRUNCATED, ".tw.param.1");
    refuse(w, SHDR(".tw.state", sh_size), 8, UINT64_MAX, TW_E_RANGE, "wraps");
    refuse(w, SHDR(".tw.vocab", sh_type), 4, SHT_NOTE, TW_E_FORMAT, "sh_type");
    refuse(w, SHDR(".rela.tw.bind", sh_info), 4, 1, TW_E_FORMAT, "linked");
    refuse(w, w->header->e_phoff + sizeof(Elf64_Phdr) + 4, 4, PF_R | PF_X, TW_E_FORMAT,
           "segment 1");
    refuse(w, w->header->e_phoff + sizeof(Elf64_Phdr) + 16, 8, 0, TW_E_FORMAT, "segment 1");
    refuse(w, NOTE(meta_bytes), 8, w->size + 1, TW_E_TRUNCATED, "metadata");
    refuse(w, NOTE(meta_bytes), 8, section_offset(w, ".tw.plan"), TW_E_RANGE, "metadata");
}

/* Renames a section by changing characters of its name in .shstrtab. */
static uint64_t name_at(const struct world *w, const char *section, uint32_t character) {
    return section_offset(w, ".shstrtab") + w->sections[section_number(w, section)].sh_name +
           character;
}

static void unknown_sections_are_ignored_unless_required(void **state) {
    struct world *w = *state;
    uint64_t flags = TW_SHF_REQUIRED;
    w->copy[name_at(w, ".tw.plan", 4)] = 'q';
    bundle_fixture_seal(w->copy, w->size);
    assert_int_equal(try_open(w, w->copy, w->size, 0), 0);
    memcpy(w->copy + SHDR(".tw.plan", sh_flags), &flags, 8);
    bundle_fixture_seal(w->copy, w->size);
    assert_int_equal(try_open(w, w->copy, w->size, 0), TW_E_UNSUPPORTED);
    assert_non_null(strstr(w->err.message, ".tw.qlan"));
    memcpy(w->copy, w->good, w->size);
}

static void missing_and_duplicate_sections_are_refused(void **state) {
    struct world *w = *state;
    refuse(w, name_at(w, ".tw.strings", 4), 1, 'X', TW_E_MISSING, ".tw.strings");
    refuse(w, name_at(w, ".tw.param.0", 10), 1, '1', TW_E_FORMAT, "are both named");
    refuse(w, name_at(w, ".tw.param.1", 10), 1, '3', TW_E_MISSING, ".tw.param.1");
    refuse(w, name_at(w, ".tw.image.2", 10), 1, '9', TW_E_MISSING, ".tw.image.2");
    refuse(w, NOTE(n_banks), 4, 1, TW_E_FORMAT, "banks");
}

static void unterminated_texts_are_refused(void **state) {
    struct world *w = *state;
    const Elf64_Shdr *s = &w->sections[section_number(w, ".tw.plan")];
    refuse(w, s->sh_offset + s->sh_size - 1, 1, 'x', TW_E_FORMAT, ".tw.plan");
    s = &w->sections[section_number(w, ".tw.strings")];
    refuse(w, s->sh_offset + s->sh_size - 1, 1, 'x', TW_E_FORMAT, ".tw.strings");
    s = &w->sections[section_number(w, ".strtab")];
    refuse(w, s->sh_offset + s->sh_size - 1, 1, 'x', TW_E_FORMAT, ".strtab");
    s = &w->sections[section_number(w, ".shstrtab")];
    refuse(w, s->sh_offset + s->sh_size - 1, 1, 'x', TW_E_FORMAT, "section names");
    refuse(w, NOTE(tool) + 63, 1, 'x', TW_E_FORMAT, "text field");
}

static void symbols_and_rows_out_of_range_are_refused(void **state) {
    struct world *w = *state;
    uint64_t symbol = section_offset(w, ".symtab") + 2 * sizeof(Elf64_Sym),
             row = section_offset(w, ".rela.tw.bind");
    refuse(w, symbol + offsetof(Elf64_Sym, st_shndx), 2, SHN_UNDEF, TW_E_FORMAT, "undefined");
    refuse(w, symbol + offsetof(Elf64_Sym, st_shndx), 2, section_number(w, ".tw.bind"), TW_E_FORMAT,
           "holds no tensors");
    refuse(w, symbol + offsetof(Elf64_Sym, st_value), 8, 0, TW_E_RANGE, "weight.0");
    refuse(w, symbol + offsetof(Elf64_Sym, st_size), 8, 4096, TW_E_RANGE, "weight.0");
    refuse(w, symbol + offsetof(Elf64_Sym, st_name), 4, 100000, TW_E_FORMAT, "name");
    refuse(w, symbol + offsetof(Elf64_Sym, st_info), 1, ELF64_ST_INFO(STB_LOCAL, STT_OBJECT),
           TW_E_FORMAT, "info");
    refuse(w, symbol + offsetof(Elf64_Sym, st_other), 1, 4, TW_E_FORMAT, "other");
    refuse(w, section_offset(w, ".tw.types") + 8, 1, TW_ROLE_STATE, TW_E_FORMAT, "role");
    refuse(w, section_offset(w, ".tw.types") + 9, 1, TW_DT_COUNT, TW_E_FORMAT, "dtype");
    refuse(w, row + offsetof(Elf64_Rela, r_info), 4, 2, TW_E_FORMAT, "type 2");
    refuse(w, row + offsetof(Elf64_Rela, r_info) + 4, 4, 0, TW_E_RANGE, "symbol 0");
    refuse(w, row + offsetof(Elf64_Rela, r_info) + 4, 4, FIXTURE_SYMBOLS + 1, TW_E_RANGE,
           "symbol 7");
    refuse(w, row + offsetof(Elf64_Rela, r_offset), 8, 0, TW_E_FORMAT, "row 0");
    refuse(w, row + offsetof(Elf64_Rela, r_addend), 8, 64, TW_E_RANGE, "addend");
    refuse(w, row + sizeof(Elf64_Rela) + offsetof(Elf64_Rela, r_addend), 8, 64, TW_E_RANGE,
           "tensor 1");
    refuse(w, section_offset(w, ".tw.banks"), 8, 5, TW_E_FORMAT, ".tw.banks");
    refuse(w, section_offset(w, ".tw.programs") + 8, 8, FIXTURE_ROWS + 1, TW_E_RANGE,
           "binding rows");
}

static void programs_and_sites_out_of_range_are_refused(void **state) {
    struct world *w = *state;
    uint64_t programs = section_offset(w, ".tw.programs"), sites = section_offset(w, ".tw.sites");
    uint64_t record = programs + sizeof(struct tw_programs_header), blob = 0;
    memcpy(&blob, w->good + record, 8);
    blob += programs;
    uint64_t images = sites + sizeof(struct tw_sites_header),
             streams = images + 4 * sizeof(struct tw_image_record);
    struct tw_program program;
    const char *what = "";
    assert_int_equal(
        tw_progblob_open(w->good + blob, w->size - blob, "", 1, &program, NULL, 0, &what), 0);
    uint64_t tensor =
        (uint64_t)((const uint8_t *)program.tensors - w->good) + sizeof(struct tw_tensor);
    refuse(w, programs, 4, 0, TW_E_FORMAT, ".tw.programs");
    refuse(w, programs + 4, 4, UINT32_MAX, TW_E_RANGE, "programs");
    refuse(w, record, 8, 1ull << 40, TW_E_RANGE, "program 0");
    refuse(w, record + 8, 8, 8, TW_E_TRUNCATED, "program 0");
    refuse(w, blob + offsetof(struct tw_progblob_header, n_sites), 4, 60000, TW_E_FORMAT,
           "streams");
    refuse(w, blob + offsetof(struct tw_progblob_header, n_sites), 4, UINT32_MAX, TW_E_RANGE,
           "site count");
    refuse(w, blob + offsetof(struct tw_progblob_header, table), 4, 1u << 20, TW_E_RANGE,
           "outside");
    refuse(w, blob + offsetof(struct tw_progblob_header, table) + 4, 4, UINT32_MAX, TW_E_RANGE,
           "outside");
    refuse(w, tensor + offsetof(struct tw_tensor, bind_count), 4, 6, TW_E_RANGE, "tensor 1");
    refuse(w, tensor + offsetof(struct tw_tensor, bind_count), 4, 1u << 30, TW_E_RANGE, "claim");
    refuse(w, tensor + offsetof(struct tw_tensor, bind_first), 4, UINT32_MAX, TW_E_RANGE,
           "tensor 1");
    refuse(w, tensor + offsetof(struct tw_tensor, bytes), 8, 1025, TW_E_RANGE, "tensor 1");
    refuse(w, tensor + offsetof(struct tw_tensor, role), 1, TW_ROLE_STATE, TW_E_RANGE, "tensor 1");
    refuse(w, sites + offsetof(struct tw_sites_header, n_streams), 4, UINT32_MAX, TW_E_RANGE,
           ".tw.sites");
    refuse(w, images, 4, 1, TW_E_RANGE, "image 0");
    refuse(w, images + 8, 4, UINT32_MAX, TW_E_RANGE, "image 0");
    refuse(w, streams + offsetof(struct tw_stream_record, image), 4, 4, TW_E_RANGE, "image 4");
    refuse(w, streams + offsetof(struct tw_stream_record, first_arg), 4, UINT32_MAX, TW_E_RANGE,
           "stream 0");
    refuse(w, streams + offsetof(struct tw_stream_record, engine), 4, 1, TW_E_FORMAT, "engine 1");
    refuse(w, streams + FIXTURE_PROGRAMS * FIXTURE_STREAMS * sizeof(struct tw_stream_record), 4,
           1000, TW_E_RANGE, "patch 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(hostile_elf_headers_never_crash_the_loader),
        T(hostile_notes_never_crash_the_loader),
        T(hostile_programs_and_sites_never_crash_the_loader),
        T(hostile_symbols_and_relocations_never_crash_the_loader),
        T(a_truncated_file_is_refused_at_every_length),
        T(a_longer_file_with_zeros_opens_and_with_other_bytes_fails_the_hash),
        T(an_elf_file_of_another_kind_is_refused),
        T(versions_that_this_reader_does_not_know_are_refused),
        T(sections_out_of_place_are_refused),
        T(unknown_sections_are_ignored_unless_required),
        T(missing_and_duplicate_sections_are_refused),
        T(unterminated_texts_are_refused),
        T(symbols_and_rows_out_of_range_are_refused),
        T(programs_and_sites_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
