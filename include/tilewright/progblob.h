/* SPDX-License-Identifier: Apache-2.0
 *
 * A program as one blob of bytes, the form in which `.tw.programs` stores it and LOAD transfers it
 * to a device. Freestanding.
 *   struct tw_progblob_header, then the tables in the order of its (offset, count) pairs, each
 *   8-aligned
 * Two forms. Without streams (in a bundle): tables only; names are offsets in `.tw.strings`,
 * streams come from `.tw.sites`. With streams (on the wire): also a table of struct
 * tw_progblob_stream, all their words, and the string table, so that the blob is self-contained.
 * Little-endian; read in place.
 */
#ifndef TILEWRIGHT_PROGBLOB_H
#define TILEWRIGHT_PROGBLOB_H

#include "tilewright/error.h"
#include "tilewright/machine.h"
#include "tilewright/range.h"
#include "tilewright/requirements.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_PROGBLOB_MAGIC 0x32425754u /* "TWB2" */
#define TW_PROGRAM_NAME_BYTES 32u     /* of a program's name, including its NUL */
#define TW_MAX_SITES 65536u

struct tw_progblob_stream {
    uint32_t site, engine, first_word, n_words;
};
TW_STATIC_ASSERT(sizeof(struct tw_progblob_stream) == 16, "blob stream");

/* X(id, field, count, type): the tables of tw_program that are stored unchanged. */
#define TW_PROGBLOB_TABLES(X)                                    \
    X(TENSORS, tensors, n_tensors, struct tw_tensor)             \
    X(BUFFERS, buffers, n_buffers, struct tw_buffer)             \
    X(SEMAPHORES, semaphores, n_semaphores, struct tw_semaphore) \
    X(GROUPS, groups, n_groups, struct tw_group)                 \
    X(TRIPS, trips, n_trips, struct tw_trip)                     \
    X(STAGES, stages, n_stages, struct tw_stage)                 \
    X(SECTIONS, sections, n_sections, struct tw_section)

enum tw_progblob_table_id {
#define TW_X(id, field, count, type) TW_PB_##id,
    TW_PROGBLOB_TABLES(TW_X)
#undef TW_X
        TW_PB_STREAMS,
    TW_PB_WORDS,
    TW_PB_STRINGS, /* count = bytes */
    TW_PB_COUNT
};

struct tw_progblob_header {
    uint32_t magic, bytes; /* of the whole blob, a multiple of 8 */
    char name[TW_PROGRAM_NAME_BYTES];
    uint32_t rows;
    uint32_t n_sites, mesh_width, mesh_height, n_chips;
    uint32_t with_streams; /* 0 or 1 */
    uint64_t sram_bytes[TW_MEM_CLASSES];
    /* what the program needs of a device: tw_requirements_of; zeros if its code does not decode */
    struct tw_requirements needs;
    struct {
        uint32_t offset, count;
    } table[TW_PB_COUNT];
};
TW_STATIC_ASSERT(sizeof(struct tw_progblob_header) == 96 + 96 + 8 * 10, "blob header");

static inline uint32_t tw_progblob_elem_bytes(unsigned table) {
    static const uint8_t size[TW_PB_COUNT] = {
#define TW_X(id, field, count, type) (uint8_t)sizeof(type),
        TW_PROGBLOB_TABLES(TW_X)
#undef TW_X
            sizeof(struct tw_progblob_stream),
        4, 1};
    return table < TW_PB_COUNT ? size[table] : 0;
}

/* Returns the length of a program's name, or TW_PROGRAM_NAME_BYTES if it does not fit. */
static inline uint32_t tw_progblob_name_length(const char *name) {
    uint32_t n = 0;
    while (n < TW_PROGRAM_NAME_BYTES && name[n] != 0) {
        n++;
    }
    return n;
}

/* Computes offsets, counts and the total size of the blob; returns false if it would not fit 32-bit
 * offsets, or the name or the sites exceed their limits. */
static inline bool tw_progblob_layout(const struct tw_program *p, bool with_streams,
                                      struct tw_progblob_header *h) {
    uint64_t count[TW_PB_COUNT] = {
#define TW_X(id, field, n, type) p->n,
        TW_PROGBLOB_TABLES(TW_X)
#undef TW_X
            0,
        0, 0};
    memset(h, 0, sizeof *h);
    if (with_streams) {
        count[TW_PB_STREAMS] = (uint64_t)p->n_sites * TW_ENGINE_COUNT;
        count[TW_PB_STRINGS] = p->strings_bytes;
        for (uint64_t i = 0; i < count[TW_PB_STREAMS]; i++) {
            count[TW_PB_WORDS] += p->streams[i].n_words;
        }
    }
    uint64_t at = sizeof *h;
    for (unsigned t = 0; t < TW_PB_COUNT; t++) {
        if (at > UINT32_MAX || count[t] > UINT32_MAX) {
            return false;
        }
        h->table[t].offset = (uint32_t)at;
        h->table[t].count = (uint32_t)count[t];
        at += (count[t] * tw_progblob_elem_bytes(t) + 7) & ~(uint64_t)7;
    }
    h->bytes = (uint32_t)at;
    return at <= UINT32_MAX && p->n_sites <= TW_MAX_SITES &&
           tw_progblob_name_length(p->name) < TW_PROGRAM_NAME_BYTES;
}

/* Returns the size of the program's blob in bytes, or 0 if the program cannot be stored: 4 GiB or
 * more, a name of 32 bytes or more, too many sites. */
static inline uint32_t tw_progblob_bytes(const struct tw_program *program, bool with_streams) {
    struct tw_progblob_header h;
    return tw_progblob_layout(program, with_streams, &h) ? h.bytes : 0;
}

static inline void tw_progblob_write_streams(const struct tw_program *p,
                                             const struct tw_progblob_header *h, uint8_t *buf) {
    struct tw_progblob_stream *record =
        (struct tw_progblob_stream *)(void *)(buf + h->table[TW_PB_STREAMS].offset);
    uint8_t *words = buf + h->table[TW_PB_WORDS].offset;
    uint32_t at = 0;
    for (uint32_t i = 0; i < h->table[TW_PB_STREAMS].count; i++) {
        const struct tw_stream *s = &p->streams[i];
        struct tw_progblob_stream r = {s->site, s->engine, at, s->n_words};
        record[i] = r;
        if (s->n_words) {
            memcpy(words + (size_t)at * 4, s->words, (size_t)s->n_words * 4);
        }
        at += s->n_words;
    }
    memcpy(buf + h->table[TW_PB_STRINGS].offset, p->strings, p->strings_bytes);
}

/* Writes the blob into buf, which is 8-aligned and has tw_progblob_bytes() bytes; writes nothing if
 * that is 0. */
static inline void tw_progblob_write(const struct tw_program *program, bool with_streams,
                                     uint8_t *buf) {
    struct tw_progblob_header h;
    if (!tw_progblob_layout(program, with_streams, &h)) {
        return;
    }
    memset(buf, 0, h.bytes);
    h.magic = TW_PROGBLOB_MAGIC;
    memcpy(h.name, program->name, tw_progblob_name_length(program->name));
    h.rows = program->rows;
    h.n_sites = program->n_sites;
    h.mesh_width = program->mesh_width;
    h.mesh_height = program->mesh_height;
    h.n_chips = program->n_chips;
    h.with_streams = with_streams;
    memcpy(h.sram_bytes, program->sram_bytes, sizeof h.sram_bytes);
    if (!tw_requirements_of(program, &h.needs)) {
        memset(&h.needs, 0, sizeof h.needs);
    }
    memcpy(buf, &h, sizeof h);
#define TW_X(id, field, n, type)                                 \
    if (program->n) {                                            \
        memcpy(buf + h.table[TW_PB_##id].offset, program->field, \
               (size_t)program->n * sizeof(type));               \
    }
    TW_PROGBLOB_TABLES(TW_X)
#undef TW_X
    if (with_streams) {
        tw_progblob_write_streams(program, &h, buf);
    }
}

static inline int tw_progblob_refuse(const char **what, int code, const char *text) {
    *what = text;
    return code;
}

static inline int tw_progblob_check_header(const struct tw_progblob_header *h, size_t size,
                                           const char **what) {
    if (size < sizeof *h) {
        return tw_progblob_refuse(what, TW_E_TRUNCATED, "program blob ends inside its header");
    }
    if (h->magic != TW_PROGBLOB_MAGIC) {
        return tw_progblob_refuse(what, TW_E_FORMAT, "program blob has a wrong magic number");
    }
    if (h->bytes > size) {
        return tw_progblob_refuse(what, TW_E_TRUNCATED,
                                  "program blob is shorter than its header states");
    }
    if (h->name[TW_PROGRAM_NAME_BYTES - 1] != 0 || h->name[0] == 0) {
        return tw_progblob_refuse(what, TW_E_FORMAT, "program name is empty or not terminated");
    }
    if (h->with_streams > 1 || h->n_sites == 0 || h->n_sites > TW_MAX_SITES) {
        return tw_progblob_refuse(what, TW_E_RANGE, "program's site count or form is out of range");
    }
    for (unsigned t = 0; t < TW_PB_COUNT; t++) {
        uint64_t bytes = (uint64_t)h->table[t].count * tw_progblob_elem_bytes(t);
        if (h->table[t].offset % 8 != 0 || !tw_range_ok(h->table[t].offset, bytes, h->bytes)) {
            return tw_progblob_refuse(what, TW_E_RANGE,
                                      "a table is outside the program blob or misaligned");
        }
    }
    return 0;
}

static inline int tw_progblob_check_streams(const struct tw_progblob_header *h, const uint8_t *buf,
                                            struct tw_stream *streams, uint32_t max_streams,
                                            const char **what) {
    uint32_t n = h->table[TW_PB_STREAMS].count;
    const struct tw_progblob_stream *r =
        (const struct tw_progblob_stream *)(const void *)(buf + h->table[TW_PB_STREAMS].offset);
    const uint32_t *words = (const uint32_t *)(const void *)(buf + h->table[TW_PB_WORDS].offset);
    if (n != h->n_sites * TW_ENGINE_COUNT) {
        return tw_progblob_refuse(what, TW_E_FORMAT,
                                  "program does not have exactly one stream per site and engine");
    }
    if (n > max_streams) {
        return tw_progblob_refuse(what, TW_E_NOMEM,
                                  "program has more streams than the receiver has room for");
    }
    for (uint32_t i = 0; i < n; i++) {
        if (r[i].site != i / TW_ENGINE_COUNT || r[i].engine != i % TW_ENGINE_COUNT) {
            return tw_progblob_refuse(what, TW_E_FORMAT,
                                      "streams are not in order of site and engine");
        }
        if (!tw_range_ok(r[i].first_word, r[i].n_words, h->table[TW_PB_WORDS].count)) {
            return tw_progblob_refuse(what, TW_E_RANGE,
                                      "a stream's words are outside the program blob");
        }
        streams[i].site = r[i].site;
        streams[i].engine = r[i].engine;
        streams[i].words = words + r[i].first_word;
        streams[i].n_words = r[i].n_words;
    }
    return 0;
}

/* Checks a blob and makes a view of it. All pointers of *out are into `buf`, `strings` and
 * `streams`, which must outlive it. `buf` is 8-aligned and has `size` bytes, of which the blob may
 * use fewer. For a blob without streams, pass its string table (a NUL at both ends, checked by the
 * caller); out->streams = streams, which the caller fills. A blob with streams fills streams[0 ..
 * n_sites * TW_ENGINE_COUNT) itself and uses its own strings. Checks sizes, offsets, alignment and
 * the order of streams; ids inside records are checked by the verifier. Returns 0, or TRUNCATED,
 * FORMAT, RANGE, NOMEM (max_streams too small) with *what set to a static line. */
static inline int tw_progblob_open(const void *buf, size_t size, const char *strings,
                                   uint32_t strings_bytes, struct tw_program *out,
                                   struct tw_stream *streams, uint32_t max_streams,
                                   const char **what) {
    const uint8_t *bytes = (const uint8_t *)buf;
    const struct tw_progblob_header *h = (const struct tw_progblob_header *)buf;
    memset(out, 0, sizeof *out);
    if ((uintptr_t)buf % 8 != 0) {
        return tw_progblob_refuse(what, TW_E_FORMAT, "program blob is not 8-aligned");
    }
    int rc = tw_progblob_check_header(h, size, what);
    if (rc == 0 && h->with_streams) {
        strings = (const char *)(bytes + h->table[TW_PB_STRINGS].offset);
        strings_bytes = h->table[TW_PB_STRINGS].count;
        if (strings_bytes == 0 || strings[0] != 0 || strings[strings_bytes - 1] != 0) {
            return tw_progblob_refuse(what, TW_E_FORMAT, "string table is empty or not terminated");
        }
        rc = tw_progblob_check_streams(h, bytes, streams, max_streams, what);
    }
    if (rc != 0) {
        return rc;
    }
    out->name = h->name;
    out->strings = strings;
    out->strings_bytes = strings_bytes;
    out->rows = h->rows;
    out->n_sites = h->n_sites;
    out->mesh_width = h->mesh_width;
    out->mesh_height = h->mesh_height;
    out->n_chips = h->n_chips;
    memcpy(out->sram_bytes, h->sram_bytes, sizeof out->sram_bytes);
    out->streams = streams;
#define TW_X(id, field, n, type)         \
    out->n = h->table[TW_PB_##id].count; \
    out->field = (const type *)(const void *)(bytes + h->table[TW_PB_##id].offset);
    TW_PROGBLOB_TABLES(TW_X)
#undef TW_X
    return 0;
}

#ifdef __cplusplus
}
#endif
#endif
