/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens and closes bundles (loader/bundle/loader.h): maps the file, copies its metadata, parses the
 * ELF headers, then fills the bundle part by part; hash and program rules last, over what was
 * parsed.
 */
#include "loader/bundle/bindings.h"
#include "loader/bundle/bundle_parts.h"
#include "loader/bundle/shared_params.h"
#include "loader/verify/verify.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Bytes copied if the note does not state a valid end of the metadata. Opening such a file fails;
 * this is enough for the checks that name the reason. */
#define HEAD_UNKNOWN ((uint64_t)64 << 20)

static void add_report(struct tw_verify_report *sum, const struct tw_verify_report *one) {
    for (size_t r = 0; sum && r < sizeof sum->checked / sizeof *sum->checked; r++) {
        sum->checked[r] += one->checked[r];
    }
    if (sum) {
        sum->failed_rule = one->failed_rule ? one->failed_rule : sum->failed_rule;
    }
}

static int find_certificates(struct tw_bundle *bundle, tw_error *err) {
    uint64_t size;
    const void *section = tw_elf_content(&tw_owner(bundle)->elf, TW_SEC_CERT, &size);
    bundle->certificates = calloc(bundle->n_programs, sizeof *bundle->certificates);
    if (!bundle->certificates) {
        return tw_fail(err, TW_E_NOMEM, "out of memory for %u certificates", bundle->n_programs);
    }
    uint8_t bindings[TW_HASH_BYTES];
    tw_bindings_hash(bundle->bind, bundle->n_bind_rows, bindings);
    return tw_certificate_open(section, (size_t)size, bundle->programs, bundle->n_programs,
                               bindings, bundle->certificates, err);
}

/* A program states what it needs of a device: exactly what its tables and its code say. */
static int check_needs(const struct tw_bundle *bundle, uint32_t i, tw_error *err) {
    const struct tw_program *p = &bundle->programs[i];
    struct tw_requirements needs;
    bool same = tw_requirements_of(p, &needs) &&
                memcmp(&needs, tw_owner(bundle)->needs[i], sizeof needs) == 0;
    return same ? 0
                : tw_fail(err, TW_E_FORMAT,
                          ".tw.programs: program %s states requirements that are not those of its "
                          "code and tables",
                          p->name);
}

int tw_bundle_check_rules(struct tw_bundle *bundle, struct tw_verify_report *report,
                          tw_error *err) {
    int rc = 0;
    for (uint32_t i = 0; i < bundle->n_programs && rc == 0; i++) {
        struct tw_verify_report one = {.failed_rule = 0};
        rc = tw_verify_program(&bundle->programs[i], &one, err);
        rc = rc ? rc : check_needs(bundle, i, err);
        add_report(report, &one);
    }
    if (rc == 0) {
        rc = tw_same_pinned(bundle->programs, bundle->n_programs, err);
        if (rc == TW_E_VERIFY && report) {
            report->failed_rule = TW_ORDER_memory_apart;
        }
    }
    rc = rc ? rc : tw_bundle_check_bindings(bundle, report, err);
    if (rc == 0 && !bundle->certificates) {
        rc = find_certificates(bundle, err);
        if (rc == TW_E_VERIFY && report) {
            report->failed_rule = TW_ORDER_certificate;
        }
    }
    for (uint32_t i = 0; i < bundle->n_programs && rc == 0; i++) {
        struct tw_verify_report one = {.failed_rule = 0};
        rc = tw_check_order(&bundle->programs[i], &bundle->certificates[i], &one, err);
        add_report(report, &one);
    }
    if (rc) {
        tw_error_prefix(err, bundle->path);
    }
    return rc;
}

static int read_parts(struct tw_bundle *bundle, unsigned flags, tw_error *err) {
    int rc = tw_elf_parse(&tw_owner(bundle)->elf, err);
    rc = rc ? rc : tw_parts_note(bundle, err);
    rc = rc ? rc : tw_parts_segments(bundle, err);
    rc = rc ? rc : tw_parts_programs(bundle, err);
    rc = rc ? rc : tw_parts_sites(bundle, err);
    rc = rc ? rc : tw_parts_symbols(bundle, err);
    rc = rc ? rc : tw_parts_bind(bundle, err);
    rc = rc ? rc : tw_parts_check_hash(bundle, flags & TW_BUNDLE_CHECK_HASH, err);
    return rc || (flags & TW_BUNDLE_NO_RULES) ? rc : tw_bundle_check_rules(bundle, NULL, err);
}

static int make_owner(const char *name, struct tw_bundle *bundle, tw_error *err) {
    memset(bundle, 0, sizeof *bundle);
    struct tw_bundle_owner *owner = calloc(1, sizeof *owner);
    char *path = malloc(strlen(name) + 1);
    if (!owner || !path) {
        free(owner);
        free(path);
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory", name);
    }
    strcpy(path, name);
    owner->path = path;
    owner->elf.name = path;
    bundle->path = path;
    bundle->owner = owner;
    return 0;
}

int tw_bundle_open_memory(const char *name, const void *bytes, size_t size, unsigned flags,
                          struct tw_bundle *out, tw_error *err) {
    int rc = make_owner(name, out, err);
    if (rc != 0) {
        return rc;
    }
    if ((uintptr_t)bytes % 8 != 0) {
        rc = tw_fail(err, TW_E_USAGE, "%s: a bundle in memory must be aligned to 8 bytes", name);
    } else {
        tw_owner(out)->elf.bytes = bytes;
        tw_owner(out)->elf.size = tw_owner(out)->elf.head_bytes = size;
        rc = read_parts(out, flags, err);
    }
    if (rc != 0) {
        tw_bundle_close(out);
    }
    return rc;
}

/* Starts reading the weights ahead: all of them are needed soon. */
static void prefetch(const struct tw_bundle *bundle) {
    for (uint32_t i = 0; i < bundle->n_segments; i++) {
        const struct tw_segment *s = &bundle->segments[i];
        if (s->kind == TW_SEG_PARAM && s->size != 0) {
            (void)madvise((void *)(uintptr_t)s->bytes, s->size, MADV_WILLNEED);
        }
    }
}

/* Copies the metadata before any of it is checked. From then on only the copy is read, because
 * another process may change the file. */
static int own_metadata(struct tw_bundle_owner *owner, tw_error *err) {
    struct tw_file_map *map = &owner->map;
    const uint64_t min_bytes = TW_HEADER_OFFSET + sizeof(struct tw_bundle_note);
    int rc = tw_file_map_own(map, min_bytes, err);
    if (rc != 0) {
        return rc;
    }
    uint64_t meta = 0;
    if (map->size >= min_bytes) {
        const void *note = map->bytes + TW_HEADER_OFFSET;
        meta = ((const struct tw_bundle_note *)note)->meta_bytes;
    }
    rc = tw_file_map_own(map, meta >= min_bytes && meta <= map->size ? meta : HEAD_UNKNOWN, err);
    owner->elf.bytes = map->bytes;
    owner->elf.size = map->size;
    owner->elf.head_bytes = map->own_bytes;
    return rc;
}

int tw_bundle_intact(const struct tw_bundle *bundle, tw_error *err) {
    return tw_file_map_intact(&tw_owner(bundle)->map, err);
}

int tw_bundle_open(const char *path, unsigned flags, struct tw_bundle *out, tw_error *err) {
    int rc = make_owner(path, out, err);
    if (rc != 0) {
        return rc;
    }
    struct tw_bundle_owner *owner = tw_owner(out);
    rc = tw_file_map_open(path, &owner->map, err);
    rc = rc ? rc : own_metadata(owner, err);
    rc = rc ? rc : read_parts(out, flags, err);
    if (rc != 0) {
        tw_bundle_close(out);
        return rc;
    }
    if (!(flags & TW_BUNDLE_NO_RULES)) { /* it will be run, not only inspected */
        prefetch(out);
    }
    return 0;
}

void tw_bundle_close(struct tw_bundle *bundle) {
    if (!bundle) {
        return;
    }
    struct tw_bundle_owner *owner = tw_owner(bundle);
    free(bundle->programs);
    free(bundle->segments);
    free(bundle->bind);
    free(bundle->symbols);
    free(bundle->certificates);
    if (owner) {
        tw_elf_finish(&owner->elf);
        free(owner->streams);
        free(owner->needs);
        free(owner->words);
        tw_file_map_close(&owner->map);
        free(owner->path);
        free(owner);
    }
    memset(bundle, 0, sizeof *bundle);
}

const struct tw_program *tw_bundle_program(const struct tw_bundle *bundle, const char *name) {
    for (uint32_t i = 0; i < bundle->n_programs; i++) {
        if (strcmp(bundle->programs[i].name, name) == 0) {
            return &bundle->programs[i];
        }
    }
    return NULL;
}

void tw_bundle_relocate(const struct tw_bundle *bundle, const uint64_t *segment_address,
                        uint64_t *rows) {
    for (uint64_t i = 0; i < bundle->n_bind_rows; i++) {
        rows[i] = segment_address[bundle->bind[i].segment] + bundle->bind[i].offset;
    }
}
