/* SPDX-License-Identifier: Apache-2.0
 *
 * The bundle's note, its segments and its hashes (loader/bundle/bundle_parts.h). The note says
 * where the metadata ends; every section but the weights must lie before that point, which is what
 * makes the content hash cover the file.
 */
#include "loader/base/hash.h"
#include "loader/bundle/bundle_parts.h"

#include "tilewright/range.h"

#include <stdlib.h>
#include <string.h>

/* Returns the remedy for another version. */
static const char *advice(bool newer) {
    return newer ? "recompile the model, or upgrade tilewright" : "recompile the model";
}

static int check_versions(const struct tw_bundle *bundle, tw_error *err) {
    const struct tw_bundle_note *note = bundle->note;
    if (note->bundle_major != TW_BUNDLE_MAJOR) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "%s: bundle format %u.%u, this program reads %u.x: %s", bundle->path,
                       note->bundle_major, note->bundle_minor, TW_BUNDLE_MAJOR,
                       advice(note->bundle_major > TW_BUNDLE_MAJOR));
    }
    if (note->abi_major != TW_MACHINE_ABI_MAJOR || note->abi_min_minor > TW_MACHINE_ABI_MINOR) {
        bool newer =
            note->abi_major > TW_MACHINE_ABI_MAJOR ||
            (note->abi_major == TW_MACHINE_ABI_MAJOR && note->abi_min_minor > TW_MACHINE_ABI_MINOR);
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "%s: needs machine ABI %u.%u, this program has %u.%u: %s", bundle->path,
                       note->abi_major, note->abi_min_minor, TW_MACHINE_ABI_MAJOR,
                       TW_MACHINE_ABI_MINOR, advice(newer));
    }
    return 0;
}

static bool terminated(const char *text, size_t size) {
    return text[size - 1] == 0;
}

static int check_texts(const struct tw_bundle *bundle, tw_error *err) {
    const struct tw_bundle_note *n = bundle->note;
    if (!terminated(n->target, sizeof n->target) || !terminated(n->model, sizeof n->model) ||
        !terminated(n->arch, sizeof n->arch) || !terminated(n->license, sizeof n->license) ||
        !terminated(n->tool, sizeof n->tool)) {
        return tw_fail(err, TW_E_FORMAT, "%s: .tw.header: a text field is not terminated",
                       bundle->path);
    }
    return 0;
}

/* Everything but the weights is metadata. */
static int check_meta(const struct tw_bundle *bundle, tw_error *err) {
    const struct tw_elf *elf = &tw_owner(bundle)->elf;
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)elf->bytes;
    uint64_t meta = bundle->note->meta_bytes;
    if (meta > elf->size) {
        return tw_fail(err, TW_E_TRUNCATED,
                       "%s: the metadata has %llu bytes, but the file only %llu", bundle->path,
                       (unsigned long long)meta, (unsigned long long)elf->size);
    }
    if (!tw_range_ok(h->e_phoff, h->e_phnum * sizeof(Elf64_Phdr), meta) ||
        !tw_range_ok(h->e_shoff, h->e_shnum * sizeof(Elf64_Shdr), meta)) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: the header tables extend past the end of the metadata (%llu bytes)",
                       bundle->path, (unsigned long long)meta);
    }
    for (uint32_t i = 1; i < elf->n_sections; i++) {
        const Elf64_Shdr *s = &elf->sections[i];
        bool bank = tw_elf_is_bank(elf, i);
        if (s->sh_type != SHT_NOBITS && s->sh_size != 0 &&
            (bank ? s->sh_offset < meta : !tw_range_ok(s->sh_offset, s->sh_size, meta))) {
            return tw_fail(err, TW_E_RANGE,
                           "%s: section %u (%.40s) at offset %llu is on the wrong side of the "
                           "metadata's end, %llu",
                           bundle->path, i, elf->names[i], (unsigned long long)s->sh_offset,
                           (unsigned long long)meta);
        }
    }
    return 0;
}

/* Note and header are at fixed offsets, so that a reader of the first 4 KiB needs no section
 * table. */
static int check_place(const struct tw_bundle *bundle, enum tw_section_id id, uint64_t offset,
                       uint64_t size, tw_error *err) {
    const struct tw_elf *elf = &tw_owner(bundle)->elf;
    const Elf64_Shdr *section = &elf->sections[elf->fixed[id]];
    if (section->sh_offset == offset && section->sh_size == size) {
        return 0;
    }
    return tw_fail(
        err, TW_E_FORMAT, "%s: %s at offset %llu with %llu bytes, expected %llu with %llu",
        bundle->path, elf->names[elf->fixed[id]], (unsigned long long)section->sh_offset,
        (unsigned long long)section->sh_size, (unsigned long long)offset, (unsigned long long)size);
}

static int check_mark(const struct tw_bundle *bundle, tw_error *err) {
    static const char owner[12] = TW_NOTE_NAME;
    const Elf64_Nhdr *h =
        (const Elf64_Nhdr *)(const void *)(tw_owner(bundle)->elf.bytes + TW_NOTE_OFFSET);
    if (h->n_namesz != sizeof TW_NOTE_NAME || h->n_descsz != 0 || h->n_type != TW_NOTE_TYPE ||
        memcmp(h + 1, owner, sizeof owner) != 0) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: .note.tilewright: not the note of a bundle (owner of %u bytes, content "
                       "%u, type %u)",
                       bundle->path, h->n_namesz, h->n_descsz, h->n_type);
    }
    return 0;
}

int tw_parts_note(struct tw_bundle *bundle, tw_error *err) {
    const struct tw_elf *elf = &tw_owner(bundle)->elf;
    int rc = check_place(bundle, TW_SEC_NOTE, TW_NOTE_OFFSET, TW_NOTE_BYTES, err);
    rc = rc ? rc
            : check_place(bundle, TW_SEC_HEADER, TW_HEADER_OFFSET, sizeof(struct tw_bundle_note),
                          err);
    rc = rc ? rc : check_mark(bundle, err);
    if (rc != 0) {
        return rc;
    }
    bundle->note = (const struct tw_bundle_note *)(const void *)(elf->bytes + TW_HEADER_OFFSET);
    rc = check_versions(bundle, err);
    rc = rc ? rc : check_texts(bundle, err);
    rc = rc ? rc : check_meta(bundle, err);
    if (rc == 0 && bundle->note->n_banks != elf->n_banks) {
        rc = tw_fail(err, TW_E_FORMAT, "%s: .tw.header: %u banks, the file has %u", bundle->path,
                     bundle->note->n_banks, elf->n_banks);
    }
    return rc;
}

int tw_parts_segments(struct tw_bundle *bundle, tw_error *err) {
    const struct tw_elf *elf = &tw_owner(bundle)->elf;
    uint64_t size;
    const struct tw_bank_record *record = tw_elf_content(elf, TW_SEC_BANKS, &size);
    if (size != elf->n_banks * sizeof *record) {
        return tw_fail(err, TW_E_FORMAT, "%s: .tw.banks: %llu bytes for %u banks", bundle->path,
                       (unsigned long long)size, elf->n_banks);
    }
    bundle->segments = calloc(elf->n_banks + 2u, sizeof *bundle->segments);
    if (!bundle->segments) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory for %u segments", bundle->path,
                       elf->n_banks + 2);
    }
    bundle->n_segments = elf->n_banks + 2;
    for (uint32_t i = 0; i < elf->n_banks; i++) {
        const Elf64_Shdr *s = &elf->sections[elf->bank[i]];
        if (record[i].bytes != s->sh_size) {
            return tw_fail(err, TW_E_FORMAT,
                           "%s: .tw.banks: bank %u of %llu bytes, section has %llu", bundle->path,
                           i, (unsigned long long)record[i].bytes, (unsigned long long)s->sh_size);
        }
        struct tw_segment segment = {TW_SEG_PARAM, i, elf->bytes + s->sh_offset, s->sh_size, {0}};
        memcpy(segment.hash, record[i].hash, sizeof segment.hash);
        bundle->segments[i] = segment;
    }
    bundle->segments[elf->n_banks].kind = TW_SEG_STATE;
    bundle->segments[elf->n_banks].size = elf->sections[elf->fixed[TW_SEC_STATE]].sh_size;
    bundle->segments[elf->n_banks + 1].kind = TW_SEG_SCRATCH;
    bundle->segments[elf->n_banks + 1].size = elf->sections[elf->fixed[TW_SEC_SCRATCH]].sh_size;
    return 0;
}

#define PIECE_BYTES 65536u

/* Hashes the file by system calls, so that a file that ends too early is an error, not a signal. */
static int hash_weights(const struct tw_bundle *bundle, const struct tw_segment *s,
                        uint8_t found[TW_HASH_BYTES], tw_error *err) {
    const struct tw_bundle_owner *owner = tw_owner(bundle);
    uint8_t piece[PIECE_BYTES];
    struct tw_hash h;
    int rc = 0;
    if (!owner->map.path) {
        tw_hash_bytes(s->bytes, s->size, found);
        return 0;
    }
    tw_hash_init(&h);
    uint64_t at = (uint64_t)(s->bytes - owner->map.bytes), end = at + s->size;
    for (uint64_t n; at < end && rc == 0; at += n) {
        n = end - at < sizeof piece ? end - at : sizeof piece;
        rc = tw_file_map_read(&owner->map, at, piece, n, err);
        tw_hash_update(&h, piece, rc ? 0 : n);
    }
    tw_hash_final(&h, found);
    return rc;
}

int tw_segment_hash(const struct tw_bundle *bundle, uint32_t index, tw_error *err) {
    uint8_t found[TW_HASH_BYTES];
    if (index >= bundle->n_segments || bundle->segments[index].kind != TW_SEG_PARAM) {
        return tw_fail(err, TW_E_USAGE, "%s: segment %u holds no parameters", bundle->path, index);
    }
    const struct tw_segment *s = &bundle->segments[index];
    int rc = hash_weights(bundle, s, found, err);
    if (rc != 0) {
        return rc;
    }
    if (memcmp(found, s->hash, sizeof found) != 0) {
        return tw_fail(err, TW_E_HASH,
                       "%s: weights of .tw.param.%u (%llu bytes) do not match their hash",
                       bundle->path, s->bank, (unsigned long long)s->size);
    }
    return 0;
}

static int check_zero(const struct tw_bundle *bundle, uint64_t from, uint64_t to, tw_error *err) {
    const struct tw_bundle_owner *owner = tw_owner(bundle);
    uint8_t piece[4096];
    for (uint64_t n; from < to; from += n) {
        n = to - from < sizeof piece ? to - from : sizeof piece;
        int rc = owner->map.path ? tw_file_map_read(&owner->map, from, piece, n, err) : 0;
        if (rc != 0) {
            return rc;
        }
        const uint8_t *bytes = owner->map.path ? piece : owner->elf.bytes + from;
        for (uint64_t i = 0; i < n; i++) {
            if (bytes[i] != 0) {
                return tw_fail(err, TW_E_HASH, "%s: byte %llu, outside all sections, is not zero",
                               bundle->path, (unsigned long long)(from + i));
            }
        }
    }
    return 0;
}

/* Checks the banks by their hashes, and that the gaps around them are zero. Banks may have any
 * order in the file. */
static int check_weights(const struct tw_bundle *bundle, tw_error *err) {
    const struct tw_elf *elf = &tw_owner(bundle)->elf;
    uint64_t at = bundle->note->meta_bytes;
    while (at < elf->size) {
        uint64_t next = elf->size, end = next;
        for (uint32_t i = 0; i < elf->n_banks; i++) {
            const Elf64_Shdr *s = &elf->sections[elf->bank[i]];
            if (s->sh_size != 0 && s->sh_offset >= at && s->sh_offset < next) {
                next = s->sh_offset;
                end = next + s->sh_size;
            }
        }
        int rc = check_zero(bundle, at, next, err);
        if (rc != 0) {
            return rc;
        }
        at = end;
    }
    for (uint32_t i = 0; i < elf->n_banks; i++) {
        int rc = tw_segment_hash(bundle, i, err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int tw_parts_check_hash(const struct tw_bundle *bundle, bool whole, tw_error *err) {
    uint8_t found[TW_HASH_BYTES];
    tw_hash_content(tw_owner(bundle)->elf.bytes, bundle->note->meta_bytes, found);
    if (memcmp(found, bundle->note->content_hash, sizeof found) != 0) {
        return tw_fail(err, TW_E_HASH,
                       "%s: the metadata (%llu bytes) does not match the content hash",
                       bundle->path, (unsigned long long)bundle->note->meta_bytes);
    }
    return whole ? check_weights(bundle, err) : 0;
}
