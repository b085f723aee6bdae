/* SPDX-License-Identifier: Apache-2.0
 *
 * The programs' tables, the texts and the vocabulary of a bundle (loader/bundle/bundle_parts.h),
 * used in place. Streams are read later (sites.c).
 */
#include "loader/bundle/bundle_parts.h"

#include "tilewright/progblob.h"

#include <stdlib.h>
#include <string.h>

/* A text section is one terminated string. */
static int read_text(const struct tw_bundle *bundle, enum tw_section_id id, const char *name,
                     const char **out, tw_error *err) {
    uint64_t size;
    const char *text = tw_elf_content(&tw_owner(bundle)->elf, id, &size);
    if (text && (size == 0 || text[size - 1] != 0)) {
        return tw_fail(err, TW_E_FORMAT, "%s: %s: text of %llu bytes is not terminated",
                       bundle->path, name, (unsigned long long)size);
    }
    *out = text;
    return 0;
}

static int read_texts(struct tw_bundle *bundle, tw_error *err) {
    uint64_t size;
    bundle->vocab = tw_elf_content(&tw_owner(bundle)->elf, TW_SEC_VOCAB, &size);
    bundle->vocab_bytes = (size_t)size;
    int rc = read_text(bundle, TW_SEC_PLAN, ".tw.plan", &bundle->plan, err);
    rc = rc ? rc : read_text(bundle, TW_SEC_CHAT, ".tw.chat", &bundle->chat, err);
    rc = rc ? rc : read_text(bundle, TW_SEC_ORIGIN, ".tw.origin", &bundle->origin, err);
    bundle->identity = tw_elf_content(&tw_owner(bundle)->elf, TW_SEC_IDENTITY, &size);
    if (rc == 0 && bundle->identity && size != TW_HASH_BYTES) {
        rc = tw_fail(err, TW_E_FORMAT, "%s: .tw.identity: has %llu bytes, expected %u",
                     bundle->path, (unsigned long long)size, TW_HASH_BYTES);
    }
    return rc;
}

static int read_strings(const struct tw_bundle *bundle, const char **out, uint32_t *bytes,
                        tw_error *err) {
    uint64_t size;
    const char *strings = tw_elf_content(&tw_owner(bundle)->elf, TW_SEC_STRINGS, &size);
    if (size == 0 || size > UINT32_MAX || strings[0] != 0 || strings[size - 1] != 0) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: .tw.strings: %llu bytes are not a table of terminated strings that "
                       "starts with \"\"",
                       bundle->path, (unsigned long long)size);
    }
    *out = strings;
    *bytes = (uint32_t)size;
    return 0;
}

static int check_header(const struct tw_bundle *bundle, const struct tw_programs_header *h,
                        uint64_t size, tw_error *err) {
    if (size < sizeof *h || h->magic != TW_PROGRAMS_MAGIC) {
        return tw_fail(err, TW_E_FORMAT, "%s: .tw.programs: no valid header in its %llu bytes",
                       bundle->path, (unsigned long long)size);
    }
    if (h->n_programs == 0 ||
        h->n_programs > (size - sizeof *h) / sizeof(struct tw_program_record) ||
        h->n_programs != bundle->note->n_programs) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: .tw.programs: %u programs in %llu bytes; the note has %u", bundle->path,
                       h->n_programs, (unsigned long long)size, bundle->note->n_programs);
    }
    return 0;
}

static int read_program(struct tw_bundle *bundle, uint32_t i, const uint8_t *section, uint64_t size,
                        const char *strings, uint32_t strings_bytes, tw_error *err) {
    const struct tw_program_record *r =
        (const struct tw_program_record *)(const void *)(section +
                                                         sizeof(struct tw_programs_header)) +
        i;
    const char *what = "";
    if (r->offset % 8 != 0 || !tw_range_ok(r->offset, r->bytes, size)) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: .tw.programs: program %u at offset %llu, %llu bytes, is misaligned or "
                       "outside the section "
                       "(%llu bytes)",
                       bundle->path, i, (unsigned long long)r->offset, (unsigned long long)r->bytes,
                       (unsigned long long)size);
    }
    struct tw_program *p = &bundle->programs[i];
    int rc = tw_progblob_open(section + r->offset, (size_t)r->bytes, strings, strings_bytes, p,
                              NULL, 0, &what);
    if (rc != 0) {
        return tw_fail(err, rc, "%s: .tw.programs: program %u: %s", bundle->path, i, what);
    }
    const struct tw_progblob_header *h =
        (const struct tw_progblob_header *)(const void *)(section + r->offset);
    tw_owner(bundle)->needs[i] = &h->needs;
    for (uint32_t k = 0; k < i; k++) {
        if (strcmp(bundle->programs[k].name, p->name) == 0) {
            return tw_fail(err, TW_E_FORMAT,
                           "%s: .tw.programs: programs %u and %u are both named %s", bundle->path,
                           k, i, p->name);
        }
    }
    return 0;
}

int tw_parts_programs(struct tw_bundle *bundle, tw_error *err) {
    uint64_t size;
    const uint8_t *section = tw_elf_content(&tw_owner(bundle)->elf, TW_SEC_PROGRAMS, &size);
    const struct tw_programs_header *h = (const struct tw_programs_header *)(const void *)section;
    const char *strings = NULL;
    uint32_t strings_bytes = 0;
    int rc = read_texts(bundle, err);
    rc = rc ? rc : read_strings(bundle, &strings, &strings_bytes, err);
    rc = rc ? rc : check_header(bundle, h, size, err);
    if (rc != 0) {
        return rc;
    }
    bundle->programs = calloc(h->n_programs, sizeof *bundle->programs);
    tw_owner(bundle)->needs = calloc(h->n_programs, sizeof *tw_owner(bundle)->needs);
    if (!bundle->programs || !tw_owner(bundle)->needs) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory for %u programs", bundle->path,
                       h->n_programs);
    }
    bundle->n_programs = h->n_programs;
    bundle->n_bind_rows = h->n_bind_rows;
    for (uint32_t i = 0; rc == 0 && i < h->n_programs; i++) {
        rc = read_program(bundle, i, section, size, strings, strings_bytes, err);
    }
    return rc;
}
