/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a bundle (compiler/emit/bundle_write.h). The weights go first, streamed to their final
 * offsets and hashed on the way; then libelf writes headers and metadata in front of them; then
 * comes the content hash, computed over what the file now contains. The finished file must pass the
 * loader before it gets its name.
 */
#include "compiler/emit/bundle_layout.h"
#include "loader/base/file_limit.h"
#include "loader/base/hash.h"
#include "loader/base/new_file.h"
#include "loader/bundle/loader.h"

#include <errno.h>
#include <libelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES (8u << 20)

/* The file being written and the current piece of weights. */
struct output {
    const struct tw_new_file *file;
    uint8_t *piece; /* PIECE_BYTES */
    struct tw_hash hash;
    uint64_t done, total; /* bytes of weights */
};

/* Hashes and writes the `used` bytes of the piece, which belong at `*offset` of the file, and
 * starts the next one. */
static int flush(struct output *out, uint64_t *used, uint64_t *offset,
                 const struct tw_emit_spec *spec, tw_error *err) {
    tw_hash_update(&out->hash, out->piece, *used);
    int rc = tw_new_file_write_at(out->file, *offset, out->piece, *used, err);
    out->done += *used;
    *offset += *used;
    *used = 0;
    if (rc == 0 && spec->progress) {
        spec->progress(spec->ctx, out->done, out->total);
    }
    return rc;
}

/* Writes one bank in pieces: its symbols and the zeros between them. */
static int write_bank(struct output *out, const struct tw_emit_layout *layout, uint32_t bank,
                      tw_error *err) {
    const struct tw_emit_spec *spec = layout->spec;
    uint64_t offset = layout->parts[layout->first_param + bank - 1].header.sh_offset, used = 0,
             in_bank = 0;
    for (uint32_t i = 0; i < spec->n_symbols; i++) {
        const struct tw_emit_symbol *s = &spec->symbols[i];
        if (s->role != TW_ROLE_PARAM || s->bank != bank) {
            continue;
        }
        memset(out->piece + used, 0, layout->symbol_offset[i] - in_bank);
        used += layout->symbol_offset[i] - in_bank;
        in_bank = layout->symbol_offset[i] + s->bytes;
        for (uint64_t at = 0; at < s->bytes;) {
            int rc = used == PIECE_BYTES ? flush(out, &used, &offset, spec, err) : 0;
            uint64_t room = PIECE_BYTES - used, n = s->bytes - at < room ? s->bytes - at : room;
            rc = rc ? rc : spec->fill(spec->ctx, s, at, n, out->piece + used, err);
            if (rc != 0) {
                return rc;
            }
            used += n;
            at += n;
        }
    }
    return flush(out, &used, &offset, spec, err);
}

static int write_weights(struct output *out, const struct tw_emit_layout *layout, tw_error *err) {
    struct tw_bank_record *record = layout->parts[layout->index[TW_SEC_BANKS] - 1].data;
    uint32_t n_banks = layout->spec->note.n_banks;
    out->piece = malloc(PIECE_BYTES);
    if (!out->piece) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for a piece of weights", out->file->path);
    }
    for (uint32_t bank = 0; bank < n_banks; bank++) {
        out->total += layout->parts[layout->first_param + bank - 1].header.sh_size;
    }
    for (uint32_t bank = 0; bank < n_banks; bank++) {
        tw_hash_init(&out->hash);
        int rc = write_bank(out, layout, bank, err);
        if (rc != 0) {
            return rc;
        }
        record[bank].bytes = layout->parts[layout->first_param + bank - 1].header.sh_size;
        tw_hash_final(&out->hash, record[bank].hash);
    }
    return 0;
}

static bool describe_header(const struct tw_emit_layout *layout, Elf *elf) {
    Elf64_Ehdr *header = elf64_newehdr(elf);
    Elf64_Phdr *segments = elf64_newphdr(elf, layout->n_segments);
    if (!header || !segments) {
        return false;
    }
    header->e_ident[EI_DATA] = ELFDATA2LSB;
    header->e_type = ET_EXEC;
    header->e_machine = EM_X86_64;
    header->e_version = EV_CURRENT;
    header->e_phoff = layout->segment_table;
    header->e_shoff = layout->section_table;
    header->e_shstrndx = (Elf64_Half)layout->index[TW_SEC_SHSTRTAB];
    memcpy(segments, layout->segments, layout->n_segments * sizeof *segments);
    return true;
}

/* Sections without data (weights, already in the file) are only described: libelf writes nothing
 * for them. */
static bool describe_sections(const struct tw_emit_layout *layout, Elf *elf) {
    for (uint32_t i = 0; i < layout->n_parts; i++) {
        const struct tw_emit_part *part = &layout->parts[i];
        Elf_Scn *section = elf_newscn(elf);
        Elf64_Shdr *header = section ? elf64_getshdr(section) : NULL;
        if (!header) {
            return false;
        }
        *header = part->header;
        if (part->data) {
            Elf_Data *data = elf_newdata(section);
            if (!data) {
                return false;
            }
            data->d_buf = part->data;
            data->d_size = part->header.sh_size;
            data->d_align = part->header.sh_addralign;
            /* the machine's definition makes all tables little-endian */
            data->d_type = ELF_T_BYTE;
            data->d_version = EV_CURRENT;
        }
    }
    return true;
}

static int write_elf(const struct output *out, const struct tw_emit_layout *layout, tw_error *err) {
    if (elf_version(EV_CURRENT) == EV_NONE) {
        return tw_fail(err, TW_E_INTERNAL, "%s: libelf is too old", out->file->path);
    }
    Elf *elf = elf_begin(out->file->fd, ELF_C_WRITE, NULL);
    if (!elf) {
        return tw_fail(err, TW_E_NOMEM, "%s: libelf: %s", out->file->path, elf_errmsg(-1));
    }
    int rc = 0;
    errno = 0;
    if (!describe_header(layout, elf) || !describe_sections(layout, elf)) {
        rc = tw_fail(err, TW_E_NOMEM, "%s: libelf: %s", out->file->path, elf_errmsg(-1));
    } else {
        elf_flagelf(elf, ELF_C_SET, ELF_F_LAYOUT);
        if (elf_update(elf, ELF_C_WRITE) < 0) {
            int number = errno;
            rc = number ? tw_fail_write(out->file->path, number, err)
                        : tw_fail(err, TW_E_INTERNAL, "%s: libelf: %s", out->file->path,
                                  elf_errmsg(-1));
        }
    }
    elf_end(elf);
    /* libelf zero-fills the gaps between sections, and the segment table is in one of them: write
     * it again. */
    return rc ? rc
              : tw_new_file_write_at(out->file, layout->segment_table, layout->segments,
                                     layout->n_segments * sizeof(Elf64_Phdr), err);
}

/* Reads the metadata back, so that the hash covers what is in the file. */
static int write_content_hash(const struct output *out, uint64_t meta_bytes, tw_error *err) {
    struct tw_hash hash;
    uint8_t digest[TW_HASH_BYTES];
    tw_hash_init(&hash);
    for (uint64_t at = 0; at < meta_bytes;) {
        uint64_t want = meta_bytes - at < PIECE_BYTES ? meta_bytes - at : PIECE_BYTES;
        ssize_t n = pread(out->file->fd, out->piece, want, (off_t)at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return tw_fail(err, TW_E_IO, "%s: cannot read back: %s", out->file->path,
                           n < 0 ? strerror(errno) : "unexpected end of file");
        }
        tw_hash_update(&hash, out->piece, (uint64_t)n);
        at += (uint64_t)n;
    }
    tw_hash_final(&hash, digest);
    return tw_new_file_write_at(out->file,
                                TW_HEADER_OFFSET + offsetof(struct tw_bundle_note, content_hash),
                                digest, sizeof digest, err);
}

static int write_file(struct output *out, const struct tw_emit_layout *layout, tw_error *err) {
    int rc = write_weights(out, layout, err);
    rc = rc ? rc : write_elf(out, layout, err);
    rc = rc ? rc : write_content_hash(out, layout->meta_bytes, err);
    free(out->piece);
    out->piece = NULL;
    if (rc == 0 && ftruncate(out->file->fd, (off_t)layout->file_bytes) != 0) {
        rc = tw_fail_write(out->file->path, errno, err);
    }
    return rc;
}

/* Writes the file and checks it; the caller gives it its name. */
static int write_checked(const struct tw_new_file *file, const struct tw_emit_layout *layout,
                         tw_error *err) {
    struct output out = {.file = file};
    struct tw_bundle bundle;
    int rc = write_file(&out, layout, err);
    if (rc == 0) {
        rc = tw_bundle_open(file->name, TW_BUNDLE_NO_RULES, &bundle, err);
        tw_bundle_close(&bundle);
    }
    return rc;
}

static int write_layout(const char *path, const struct tw_emit_layout *layout, tw_error *err) {
    struct tw_new_file file;
    if (!tw_file_size_allowed(layout->file_bytes)) {
        return tw_fail_write(path, EFBIG, err); /* instead of SIGXFSZ at the first write */
    }
    int rc = tw_new_file_open(path, &file, err);
    return rc ? rc : tw_new_file_end(&file, write_checked(&file, layout, err), err);
}

int tw_bundle_write(const char *path, const struct tw_emit_spec *spec, tw_error *err) {
    struct tw_emit_layout layout;
    memset(&layout, 0, sizeof layout);
    int rc = tw_emit_layout_build(path, spec, &layout, err);
    rc = rc ? rc : write_layout(path, &layout, err);
    tw_emit_layout_finish(&layout);
    return rc;
}
