/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a bundle of another and a delta: checks both, writes the result to a file without a name,
 * compares its hash, then gives it its name.
 */
#include "loader/base/file_limit.h"
#include "loader/base/hash.h"
#include "loader/base/new_file.h"
#include "loader/base/sized.h"
#include "loader/delta/delta.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A delta read from a file: a private copy, so that what was checked is what is used. */
static int open_delta(const char *path, struct tw_file_map *map, struct tw_delta *d,
                      tw_error *err) {
    int code = tw_file_map_open(path, map, err);
    code = code ? code : tw_file_map_own(map, map->size, err);
    return code ? code : tw_delta_parse(path, map->bytes, map->size, d, err);
}

int tw_delta_get_info(const char *path, struct tw_delta_info *info, tw_error *err) {
    struct tw_file_map map = {.size = 0};
    struct tw_delta d;
    int code = TW_NEED_2(err, path, info);
    code = code ? code : tw_sized_check(__func__, info, err);
    code = code ? code : open_delta(path, &map, &d, err);
    if (code == 0) {
        struct tw_delta_info own;
        tw_delta_describe(&d, &own);
        tw_sized_write(info, &own, sizeof own);
    }
    tw_file_map_close(&map);
    return code;
}

static const char *hash_text(const uint8_t hash[TW_HASH_BYTES], char text[17]) {
    for (size_t i = 0; i < 8; i++) {
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
    }
    return text;
}

static int check_base(const struct tw_bundle *base, const struct tw_delta *d, tw_error *err) {
    char has[17], wants[17], a[TW_SHORT_PATH_BYTES];
    if (memcmp(base->note->content_hash, d->header.base_hash, TW_HASH_BYTES) != 0) {
        return tw_fail(err, TW_E_UNSUPPORTED, "%s: is bundle %s..., but the delta is for %s...",
                       tw_short_path(base->path, a), hash_text(base->note->content_hash, has),
                       hash_text(d->header.base_hash, wants));
    }
    return tw_bundle_size(base) == d->header.base_bytes
               ? 0
               : tw_fail(err, TW_E_FORMAT, "%s: has %llu bytes, but the delta is for one of %llu",
                         base->path, (unsigned long long)tw_bundle_size(base),
                         (unsigned long long)d->header.base_bytes);
}

/* ---- the result ---- */

struct result {
    const struct tw_bundle *base;
    struct tw_new_file *file;
    struct tw_hash hash;
    tw_error *err;
};

static int read_base(void *ctx, uint64_t at, void *to, uint64_t n) {
    struct result *r = ctx;
    return tw_file_map_read(&tw_owner(r->base)->map, at, to, n, r->err);
}

static int write_result(void *ctx, const void *bytes, uint64_t n) {
    struct result *r = ctx;
    tw_hash_update(&r->hash, bytes, n);
    return tw_new_file_append(r->file, bytes, n, r->err);
}

/* Reserves the room first, so that a full disk is found before anything is written. */
static int reserve(const struct tw_new_file *f, uint64_t bytes, tw_error *err) {
    int number = bytes <= INT64_MAX && tw_file_size_allowed(bytes) ? 0 : EFBIG;
    number = number || bytes == 0 ? number : posix_fallocate(f->fd, 0, (off_t)bytes);
    return number && number != EINVAL && number != EOPNOTSUPP ? tw_fail_write(f->path, number, err)
                                                              : 0;
}

/* What is made is a bundle, and the one that the delta names. */
static int check_result(const struct tw_delta *d, const struct tw_new_file *file, tw_error *err) {
    struct tw_bundle made;
    int code = tw_bundle_open(file->name, TW_BUNDLE_NO_RULES, &made, err);
    if (code) {
        return code == TW_E_NOMEM || code == TW_E_IO
                   ? code
                   : tw_fail(err, TW_E_FORMAT, "%s: what it makes is no bundle", d->name);
    }
    if (memcmp(made.note->content_hash, d->header.target_hash, TW_HASH_BYTES) != 0) {
        char has[17], wants[17];
        code = tw_fail(err, TW_E_HASH, "%s: makes bundle %s..., but states %s...", d->name,
                       hash_text(made.note->content_hash, has),
                       hash_text(d->header.target_hash, wants));
    }
    tw_bundle_close(&made);
    return code;
}

static int make_result(const struct tw_bundle *base, const struct tw_delta *d,
                       struct tw_new_file *file, tw_error *err) {
    struct result r = {.base = base, .file = file, .err = err};
    uint8_t found[TW_HASH_BYTES];
    int code = reserve(file, d->header.target_bytes, err);
    tw_hash_init(&r.hash);
    code = code ? code : tw_delta_run(d, read_base, write_result, &r);
    if (code) {
        return code;
    }
    tw_hash_final(&r.hash, found);
    if (memcmp(found, d->header.file_hash, sizeof found) != 0) {
        return tw_fail(err, TW_E_HASH,
                       "%s: the result is not what the delta describes: weights of the base are "
                       "damaged, or the delta is wrong",
                       base->path);
    }
    return check_result(d, file, err);
}

static int apply(const struct tw_bundle *base, const struct tw_delta *d, const char *path,
                 tw_error *err) {
    struct tw_new_file file;
    int code = check_base(base, d, err);
    code = code ? code : tw_new_file_open(path, &file, err);
    return code ? code : tw_new_file_end(&file, make_result(base, d, &file, err), err);
}

int tw_delta_apply(const char *base_path, const char *delta, const char *path,
                   struct tw_delta_info *info, tw_error *err) {
    struct tw_bundle base = {.path = NULL};
    struct tw_file_map map = {.size = 0};
    struct tw_delta d;
    int code = TW_NEED_3(err, base_path, delta, path);
    code = code || !info ? code : tw_sized_check(__func__, info, err);
    code = code ? code : open_delta(delta, &map, &d, err);
    code = code ? code : tw_bundle_open(base_path, TW_BUNDLE_NO_RULES, &base, err);
    code = code ? code : apply(&base, &d, path, err);
    if (code == 0 && info) {
        struct tw_delta_info own;
        tw_delta_describe(&d, &own);
        tw_sized_write(info, &own, sizeof own);
    }
    tw_bundle_close(&base);
    tw_file_map_close(&map);
    return code;
}
