/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a delta of two bundles. Each part of the new file, a tensor or a section, is compared with
 * the part of that name in the old one, block by block: what is equal is copied, what differs here
 * and there is patched, and what is new is looked for among all blocks of the old file before it is
 * stored.
 */
#include "loader/base/hash.h"
#include "loader/base/new_file.h"
#include "loader/base/sized.h"
#include "loader/delta/delta.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES 4096u
#define NOWHERE UINT64_MAX
#define BUFFER_BYTES 65536u

struct maker {
    const struct tw_bundle *base, *target;
    struct tw_new_file *file;
    tw_error *err;
    int code; /* the first error; nothing is written after it */
    struct tw_hash hash;
    uint64_t written; /* bytes of records, those in the buffer included */
    uint8_t buffer[BUFFER_BYTES];
    size_t used;
    struct tw_delta_record open; /* not written yet, as it may grow */
    uint64_t open_at;            /* of the target */
    /* The blocks of the base by a hash of their bytes: number + 1, 0 for none; made when first
     * needed. */
    uint32_t *index;
    uint64_t index_mask;
};

/* ---- records out ---- */

static void flush_buffer(struct maker *m) {
    tw_hash_update(&m->hash, m->buffer, m->used);
    m->code = m->code ? m->code : tw_new_file_append(m->file, m->buffer, m->used, m->err);
    m->used = 0;
}

static void put_byte(struct maker *m, uint8_t byte) {
    if (m->used == sizeof m->buffer) {
        flush_buffer(m);
    }
    m->buffer[m->used++] = byte;
    m->written++;
}

static void put_number(struct maker *m, uint64_t n) {
    for (; n >= 128; n >>= 7) {
        put_byte(m, (uint8_t)(n | 128));
    }
    put_byte(m, (uint8_t)n);
}

static void put_bytes(struct maker *m, const uint8_t *bytes, uint64_t n) {
    flush_buffer(m);
    tw_hash_update(&m->hash, bytes, n);
    m->code = m->code ? m->code : tw_new_file_append(m->file, bytes, n, m->err);
    m->written += n;
}

static void put_changes(struct maker *m, const struct tw_delta_record *r) {
    const uint8_t *from = tw_bundle_bytes(m->base) + r->at,
                  *to = tw_bundle_bytes(m->target) + m->open_at;
    uint64_t last = 0;
    put_number(m, r->n);
    for (uint64_t i = 0; i < r->bytes; i++) {
        if (from[i] != to[i]) {
            put_number(m, i - last);
            put_byte(m, from[i] ^ to[i]);
            last = i + 1;
        }
    }
}

static void close_record(struct maker *m) {
    const struct tw_delta_record *r = &m->open;
    if (!r->bytes) {
        return;
    }
    put_byte(m, (uint8_t)r->kind);
    put_number(m, r->bytes);
    if (r->kind == TW_DELTA_DATA) {
        put_bytes(m, tw_bundle_bytes(m->target) + m->open_at, r->bytes);
    } else {
        put_number(m, r->at);
        if (r->kind == TW_DELTA_PATCH) {
            put_changes(m, r);
        }
    }
    m->open.bytes = 0;
}

/* Adds a block of the target, which follows the one before, to the open record or to a new one. */
static void add(struct maker *m, uint64_t target, const struct tw_delta_record *block) {
    struct tw_delta_record *r = &m->open;
    bool joins = r->bytes && r->kind == block->kind &&
                 (r->kind == TW_DELTA_DATA || r->at + r->bytes == block->at);
    if (!joins) {
        close_record(m);
        *r = *block;
        m->open_at = target;
        return;
    }
    r->bytes += block->bytes;
    r->n += block->n;
}

/* ---- blocks ---- */

static uint64_t mix(const uint8_t *block) {
    uint64_t h = 0, word;
    for (size_t i = 0; i < BLOCK_BYTES; i += sizeof word) {
        memcpy(&word, block + i, sizeof word);
        h = (h ^ word) * 0x9E3779B97F4A7C15u; /* 2^64 / the golden ratio: spreads the bits */
        h ^= h >> 29;
    }
    return h;
}

/* Returns the index's place of a block: that of an equal one, or a free one. */
static uint64_t index_place(const struct maker *m, const uint8_t *block) {
    const uint8_t *base = tw_bundle_bytes(m->base);
    uint64_t at = mix(block) & m->index_mask;
    while (m->index[at] &&
           memcmp(base + (uint64_t)(m->index[at] - 1) * BLOCK_BYTES, block, BLOCK_BYTES) != 0) {
        at = (at + 1) & m->index_mask;
    }
    return at;
}

static void make_index(struct maker *m) {
    uint64_t n = tw_bundle_size(m->base) / BLOCK_BYTES, room = 16;
    while (room < 2 * n) {
        room *= 2;
    }
    m->index = n < UINT32_MAX ? calloc(room, sizeof *m->index) : NULL;
    m->index_mask = room - 1;
    for (uint64_t i = 0; m->index && i < n; i++) {
        uint64_t at = index_place(m, tw_bundle_bytes(m->base) + i * BLOCK_BYTES);
        m->index[at] = m->index[at] ? m->index[at] : (uint32_t)i + 1;
    }
}

/* Returns where the base has the block, or NOWHERE. */
static uint64_t find_block(struct maker *m, const uint8_t *block) {
    if (!m->index) {
        make_index(m);
    }
    uint32_t number = m->index ? m->index[index_place(m, block)] : 0;
    return number ? (uint64_t)(number - 1) * BLOCK_BYTES : NOWHERE;
}

/* Describes the target's n bytes at `at`, at most a block, which may correspond to those at
 * `base`. */
static struct tw_delta_record describe(struct maker *m, uint64_t at, uint64_t n, uint64_t base) {
    const uint8_t *bytes = tw_bundle_bytes(m->target) + at;
    struct tw_delta_record r = {.kind = TW_DELTA_DATA, .bytes = n};
    uint64_t chunks, found;
    if (base != NOWHERE) {
        r.n = tw_delta_count(tw_bundle_bytes(m->base) + base, bytes, n, &chunks);
        r.at = base;
        r.kind = r.n == 0 ? TW_DELTA_COPY : TW_DELTA_PATCH;
        if (r.n == 0 || r.n < n / 4) { /* a change takes 2 bytes or 3 */
            return r;
        }
    }
    found = n == BLOCK_BYTES ? find_block(m, bytes) : NOWHERE;
    return (struct tw_delta_record){.kind = found == NOWHERE ? TW_DELTA_DATA : TW_DELTA_COPY,
                                    .bytes = n,
                                    .at = found == NOWHERE ? 0 : found};
}

/* Adds the target's bytes [from, to), which may correspond to the base's [base, base_end). */
static void add_range(struct maker *m, uint64_t from, uint64_t to, uint64_t base,
                      uint64_t base_end) {
    while (from < to && !m->code) {
        uint64_t n = to - from < BLOCK_BYTES ? to - from : BLOCK_BYTES;
        bool known = base < base_end;
        if (known && base_end - base < n) {
            n = base_end - base; /* the old part is shorter: what follows is new */
        }
        struct tw_delta_record block = describe(m, from, n, known ? base : NOWHERE);
        add(m, from, &block);
        from += n;
        base += known ? n : 0;
    }
}

/* Adds the whole target, part by part. What is between two parts (headers, padding) corresponds to
 * what follows the first one in the base. */
static void add_all(struct maker *m, const struct tw_delta_parts *parts) {
    const uint64_t base_bytes = tw_bundle_size(m->base);
    uint64_t done = 0, base_done = 0;
    for (size_t i = 0; i < parts->n && parts->items[i].at != TW_NOT_IN_FILE; i++) {
        const struct tw_delta_part *p = &parts->items[i];
        uint64_t end = p->at + p->bytes, skipped = p->at < done ? done - p->at : 0;
        bool known = p->old_bytes > skipped && p->old_at != TW_NOT_IN_FILE;
        if (end <= done) {
            continue; /* inside another one */
        }
        add_range(m, done, p->at, base_done, base_bytes);
        add_range(m, p->at + skipped, end, known ? p->old_at + skipped : NOWHERE,
                  known ? p->old_at + p->old_bytes : NOWHERE);
        base_done = known ? p->old_at + p->old_bytes : NOWHERE;
        done = end;
    }
    add_range(m, done, tw_bundle_size(m->target), base_done, base_bytes);
    close_record(m);
    flush_buffer(m);
}

/* ---- the file ---- */

static int write_header(struct maker *m) {
    struct tw_delta_header h = {.magic = TW_DELTA_MAGIC,
                                .version = TW_DELTA_VERSION,
                                .base_bytes = tw_bundle_size(m->base),
                                .target_bytes = tw_bundle_size(m->target),
                                .record_bytes = m->written};
    memcpy(h.base_hash, m->base->note->content_hash, sizeof h.base_hash);
    memcpy(h.target_hash, m->target->note->content_hash, sizeof h.target_hash);
    tw_hash_bytes(tw_bundle_bytes(m->target), tw_bundle_size(m->target), h.file_hash);
    tw_delta_seal(&h, &m->hash);
    return tw_new_file_write_at(m->file, 0, &h, sizeof h, m->err);
}

/* Reads the finished delta as those will who use it. */
static int check_result(const struct maker *m, struct tw_delta_info *info) {
    struct tw_file_map map = {.size = 0};
    struct tw_delta d;
    int code = tw_file_map_open(m->file->name, &map, m->err);
    code = code ? code : tw_delta_parse(m->file->path, map.bytes, map.size, &d, m->err);
    if (code == 0) {
        tw_delta_describe(&d, info);
    }
    tw_file_map_close(&map);
    return code;
}

static int write_delta(struct maker *m, const struct tw_delta_parts *parts,
                       struct tw_delta_info *info) {
    static const struct tw_delta_header room = {.version = 0};
    m->code = tw_new_file_append(m->file, &room, sizeof room, m->err);
    tw_hash_init(&m->hash);
    add_all(m, parts);
    int code = m->code ? m->code : write_header(m);
    code = code ? code : tw_bundle_intact(m->base, m->err);
    code = code ? code : tw_bundle_intact(m->target, m->err);
    return code ? code : check_result(m, info);
}

static int make(const struct tw_bundle *base, const struct tw_bundle *target, const char *path,
                struct tw_delta_info *info, tw_error *err) {
    struct tw_new_file file;
    struct tw_delta_parts parts;
    struct maker *m = calloc(1, sizeof *m);
    int code = m ? tw_delta_list_parts(base, target, &parts, err)
                 : tw_fail(err, TW_E_NOMEM, "%s: out of memory", path);
    if (code == 0) {
        code = tw_new_file_open(path, &file, err);
        if (code == 0) {
            *m = (struct maker){.base = base, .target = target, .file = &file, .err = err};
            code = tw_new_file_end(&file, write_delta(m, &parts, info), err);
        }
        free(parts.items);
    }
    free(m ? m->index : NULL);
    free(m);
    return code;
}

int tw_delta_make(const char *base_path, const char *target_path, const char *path,
                  struct tw_delta_info *info, tw_error *err) {
    struct tw_bundle base = {.path = NULL}, target = {.path = NULL};
    struct tw_delta_info own;
    int code = TW_NEED_3(err, base_path, target_path, path);
    code = code || !info ? code : tw_sized_check(__func__, info, err);
    code = code ? code : tw_bundle_open(base_path, TW_BUNDLE_NO_RULES, &base, err);
    code = code ? code : tw_bundle_open(target_path, TW_BUNDLE_NO_RULES, &target, err);
    code = code ? code : make(&base, &target, path, &own, err);
    if (code == 0 && info) {
        tw_sized_write(info, &own, sizeof own);
    }
    tw_bundle_close(&base);
    tw_bundle_close(&target);
    return code;
}
