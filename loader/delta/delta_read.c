/* SPDX-License-Identifier: Apache-2.0
 *
 * A delta in memory: header, records, what they make (tilewright/delta.h).
 */
#include "loader/delta/delta.h"

#include "loader/base/hash.h"
#include "tilewright/range.h"

#include <string.h>

#define NUMBER_BYTES 10 /* 64 bits, 7 in each */
#define PIECE_BYTES 65536u

/* Reads a number from [*at, end). Returns false if it is cut off or has more than 64 bits. */
static bool read_number(const uint8_t **at, const uint8_t *end, uint64_t *out) {
    *out = 0;
    for (unsigned i = 0; i < NUMBER_BYTES && *at < end; i++) {
        uint8_t byte = *(*at)++;
        if (i == NUMBER_BYTES - 1 && byte > 1) {
            return false;
        }
        *out |= (uint64_t)(byte & 127) << (7 * i);
        if (!(byte & 128)) {
            return true;
        }
    }
    return false;
}

/* Reads a number of a record that was checked. */
static uint64_t checked_number(const uint8_t **at) {
    uint64_t n;
    read_number(at, *at + NUMBER_BYTES, &n);
    return n;
}

/* Reads the changes of a patch, as far as they must be known to find its end. */
static bool skip_changes(const uint8_t **at, const uint8_t *end, const struct tw_delta_record *r) {
    uint64_t place = 0, gap;
    for (uint64_t i = 0; i < r->n; i++) {
        if (!read_number(at, end, &gap) || *at == end || *(*at)++ == 0 ||
            !tw_add_u64(place, gap, &place) || place >= r->bytes) {
            return false;
        }
        place++;
    }
    return true;
}

static bool read_record(const struct tw_delta *d, const uint8_t **at, struct tw_delta_record *r) {
    const uint8_t *end = d->bytes + d->size;
    uint8_t kind = *(*at)++;
    if (kind > TW_DELTA_PATCH || !read_number(at, end, &r->bytes) || r->bytes == 0) {
        return false;
    }
    r->kind = (enum tw_delta_kind)kind;
    if (r->kind == TW_DELTA_DATA) {
        r->data = *at;
        bool inside = r->bytes <= (uint64_t)(end - *at);
        *at += inside ? r->bytes : 0;
        return inside;
    }
    if (!read_number(at, end, &r->at) || !tw_range_ok(r->at, r->bytes, d->header.base_bytes)) {
        return false;
    }
    if (r->kind == TW_DELTA_COPY) {
        return true;
    }
    bool counted = read_number(at, end, &r->n);
    r->data = *at;
    return counted && skip_changes(at, end, r);
}

/* Reads the record at *position, which is 0 first, and moves it on; r->bytes is 0 after the last
 * one. Does not fail once all records were checked. Errors: FORMAT. */
static int next_record(const struct tw_delta *d, uint64_t *position, struct tw_delta_record *r,
                       tw_error *err) {
    const uint8_t *start = d->bytes + sizeof d->header, *at = start + *position;
    *r = (struct tw_delta_record){.kind = TW_DELTA_COPY};
    if (*position == d->header.record_bytes) {
        return 0;
    }
    if (!read_record(d, &at, r)) {
        return tw_fail(err, TW_E_FORMAT, "%s: the record at byte %llu is malformed", d->name,
                       (unsigned long long)(*position + sizeof d->header));
    }
    *position = (uint64_t)(at - start);
    return 0;
}

void tw_delta_seal(struct tw_delta_header *h, struct tw_hash *records) {
    memset(h->hash, 0, sizeof h->hash);
    tw_hash_update(records, h, sizeof *h);
    tw_hash_final(records, h->hash);
}

static int check_hash(const struct tw_delta *d, tw_error *err) {
    struct tw_delta_header h = d->header;
    struct tw_hash records;
    tw_hash_init(&records);
    tw_hash_update(&records, d->bytes + sizeof h, d->size - sizeof h);
    tw_delta_seal(&h, &records);
    return memcmp(h.hash, d->header.hash, sizeof h.hash) == 0
               ? 0
               : tw_fail(err, TW_E_HASH, "%s: the delta is damaged: its hash is another", d->name);
}

static int check_header(const struct tw_delta *d, tw_error *err) {
    const struct tw_delta_header *h = &d->header;
    if (memcmp(h->magic, TW_DELTA_MAGIC, sizeof h->magic) != 0) {
        return tw_fail(err, TW_E_FORMAT, "%s: not a delta of bundles", d->name);
    }
    if (h->version != TW_DELTA_VERSION) {
        return tw_fail(err, TW_E_UNSUPPORTED, "%s: a delta of version %u; this edition reads %u",
                       d->name, h->version, TW_DELTA_VERSION);
    }
    if (h->record_bytes != d->size - sizeof *h) {
        return tw_fail(err, h->record_bytes > d->size - sizeof *h ? TW_E_TRUNCATED : TW_E_FORMAT,
                       "%s: has %llu bytes after its header, which says %llu", d->name,
                       (unsigned long long)(d->size - sizeof *h),
                       (unsigned long long)h->record_bytes);
    }
    return h->reserved == 0
               ? check_hash(d, err)
               : tw_fail(err, TW_E_FORMAT, "%s: reserved is %u, expected 0", d->name, h->reserved);
}

int tw_delta_parse(const char *name, const uint8_t *bytes, uint64_t size, struct tw_delta *out,
                   tw_error *err) {
    struct tw_delta_record r;
    uint64_t position = 0, made = 0;
    *out = (struct tw_delta){.name = name, .bytes = bytes, .size = size};
    if (size < sizeof out->header) {
        return tw_fail(err, TW_E_TRUNCATED, "%s: %llu bytes are not a delta, which has %zu or more",
                       name, (unsigned long long)size, sizeof out->header);
    }
    memcpy(&out->header, bytes, sizeof out->header);
    int code = check_header(out, err);
    for (r.bytes = 1; code == 0 && r.bytes;) {
        code = next_record(out, &position, &r, err);
        if (code == 0 && !tw_add_u64(made, r.bytes, &made)) {
            code = tw_fail(err, TW_E_FORMAT, "%s: makes more than 2^64 bytes", name);
        }
    }
    return code || made == out->header.target_bytes
               ? code
               : tw_fail(err, TW_E_FORMAT, "%s: makes %llu bytes, and says %llu", name,
                         (unsigned long long)made, (unsigned long long)out->header.target_bytes);
}

void tw_delta_describe(const struct tw_delta *d, struct tw_delta_info *info) {
    const struct tw_delta_header *h = &d->header;
    struct tw_delta_record r;
    *info = (struct tw_delta_info){.size = sizeof *info,
                                   .base_bytes = h->base_bytes,
                                   .target_bytes = h->target_bytes,
                                   .delta_bytes = d->size};
    memcpy(info->base_hash, h->base_hash, sizeof info->base_hash);
    memcpy(info->target_hash, h->target_hash, sizeof info->target_hash);
    for (uint64_t position = 0; next_record(d, &position, &r, NULL) == 0 && r.bytes;) {
        *(r.kind == TW_DELTA_COPY   ? &info->copied_bytes
          : r.kind == TW_DELTA_DATA ? &info->stored_bytes
                                    : &info->patched_bytes) += r.bytes;
        info->changed_bytes += r.n;
    }
}

/* ---- what the records make ---- */

/* Where the next change of a patch is, counted from the record's beginning. */
struct changes {
    const uint8_t *next;
    uint64_t left, place;
};

static void find_change(struct changes *c, uint64_t from) {
    c->place = c->left ? from + checked_number(&c->next) : UINT64_MAX;
}

/* Applies the changes in the record's bytes [from, from + n). */
static void apply_changes(struct changes *c, uint8_t *piece, uint64_t from, uint64_t n) {
    while (c->place < from + n) {
        piece[c->place - from] ^= *c->next++;
        c->left--;
        find_change(c, c->place + 1);
    }
}

static int run_record(const struct tw_delta_record *r,
                      int (*read)(void *ctx, uint64_t at, void *to, uint64_t n),
                      int (*write)(void *ctx, const void *bytes, uint64_t n), void *ctx) {
    uint8_t piece[PIECE_BYTES];
    struct changes c = {.next = r->data, .left = r->n};
    int code = 0;
    if (r->kind == TW_DELTA_DATA) {
        return write(ctx, r->data, r->bytes);
    }
    find_change(&c, 0);
    for (uint64_t at = 0; at < r->bytes && code == 0; at += PIECE_BYTES) {
        uint64_t n = r->bytes - at < PIECE_BYTES ? r->bytes - at : PIECE_BYTES;
        code = read(ctx, r->at + at, piece, n);
        if (code == 0) {
            apply_changes(&c, piece, at, n);
            code = write(ctx, piece, n);
        }
    }
    return code;
}

int tw_delta_run(const struct tw_delta *d,
                 int (*read)(void *ctx, uint64_t at, void *to, uint64_t n),
                 int (*write)(void *ctx, const void *bytes, uint64_t n), void *ctx) {
    struct tw_delta_record r;
    int code = 0;
    for (uint64_t position = 0; code == 0; code = run_record(&r, read, write, ctx)) {
        code = next_record(d, &position, &r, NULL);
        if (code || !r.bytes) {
            break;
        }
    }
    return code;
}
