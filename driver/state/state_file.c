/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a saved state (state_file.h). Everything is read by system calls into private memory and
 * checked there, never through a mapping: who changes the file meanwhile changes nothing that was
 * checked.
 */
#include "driver/state/state_internal.h"
#include "loader/base/hash.h"
#include "loader/base/private_path.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct tw_saved *tw_saved_new(const char *path, int fd, const void *memory, uint64_t size) {
    char shortened[TW_SHORT_PATH_BYTES];
    struct tw_saved *f = calloc(1, sizeof *f);
    if (f) {
        snprintf(f->name, sizeof f->name, "%s", tw_short_path(path, shortened));
        f->fd = fd;
        f->memory = memory;
        f->size = size;
    }
    return f;
}

void tw_saved_close(struct tw_saved *f) {
    if (f) {
        if (f->fd >= 0) {
            close(f->fd); /* and releases the lock */
        }
        free(f->cells);
        free(f->tokens);
        free(f->tails);
        free(f);
    }
}

const struct tw_saved_commit *tw_saved_commit_of(const struct tw_saved *f) {
    return &f->commit;
}

const uint32_t *tw_saved_tokens(const struct tw_saved *f, uint32_t *n) {
    *n = f->commit.n_tokens;
    return f->tokens;
}

/* ---- bytes ---- */

static int fail_cut(const struct tw_saved *f, uint64_t at, tw_error *err) {
    return tw_fail(err, TW_E_TRUNCATED, "%s: ends at byte %" PRIu64 ", in the middle of a state",
                   f->name, at);
}

void tw_saved_skip(struct iovec *parts, uint32_t n_parts, uint32_t *first, uint64_t n) {
    while (n && *first < n_parts) {
        struct iovec *p = &parts[*first];
        uint64_t took = n < p->iov_len ? n : p->iov_len;
        p->iov_base = (uint8_t *)p->iov_base + took;
        p->iov_len -= took;
        n -= took;
        *first += p->iov_len == 0;
    }
}

static void copy_parts(const uint8_t *from, const struct iovec *parts, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        memcpy(parts[i].iov_base, from, parts[i].iov_len);
        from += parts[i].iov_len;
    }
}

int tw_saved_read_parts(const struct tw_saved *f, uint64_t at, struct iovec *parts, uint32_t n,
                        tw_error *err) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += parts[i].iov_len;
    }
    if (at > f->size || bytes > f->size - at) {
        return fail_cut(f, f->size, err);
    }
    if (f->fd < 0) {
        copy_parts(f->memory + at, parts, n);
        return 0;
    }
    for (uint32_t first = 0; first < n;) {
        ssize_t got = preadv(f->fd, parts + first, (int)(n - first), (off_t)at);
        if (got < 0 && errno != EINTR) {
            return tw_fail(err, TW_E_IO, "%s: cannot read at byte %" PRIu64 ": %s", f->name, at,
                           strerror(errno));
        }
        if (got == 0) {
            return fail_cut(f, at, err);
        }
        at += got > 0 ? (uint64_t)got : 0;
        tw_saved_skip(parts, n, &first, got > 0 ? (uint64_t)got : 0);
    }
    return 0;
}

static int read_at(const struct tw_saved *f, uint64_t at, void *to, uint64_t n, tw_error *err) {
    struct iovec part = {to, (size_t)n};
    return n ? tw_saved_read_parts(f, at, &part, 1, err) : 0;
}

static int damaged(const struct tw_saved *f, const char *what, tw_error *err) {
    return tw_fail(err, TW_E_HASH, "%s: %s: damaged, its hash is another", f->name, what);
}

/* ---- commits ---- */

void tw_saved_hash_commit(const struct tw_saved_commit *commit, uint8_t hash[TW_SAVED_HASH_BYTES]) {
    tw_hash_bytes(commit, offsetof(struct tw_saved_commit, hash), hash);
}

enum form { NOT_OURS, OTHER_VERSION, DAMAGED, WHOLE }; /* the worst first */

static enum form form_of(const struct tw_saved_commit *c) {
    uint8_t hash[TW_SAVED_HASH_BYTES];
    if (memcmp(c->magic, TW_SAVED_MAGIC, TW_SAVED_MAGIC_BYTES) != 0) {
        return NOT_OURS;
    }
    if (c->version != TW_SAVED_VERSION) {
        return OTHER_VERSION;
    }
    tw_saved_hash_commit(c, hash);
    return memcmp(hash, c->hash, sizeof hash) == 0 ? WHOLE : DAMAGED;
}

bool tw_saved_may_replace(int fd) {
    struct tw_saved_commit c[TW_SAVED_COMMITS];
    memset(c, 0, sizeof c);
    ssize_t n = pread(fd, c, sizeof c, 0);
    return n == 0 || (n > 0 && (form_of(&c[0]) != NOT_OURS || form_of(&c[1]) != NOT_OURS));
}

static int no_commit(const struct tw_saved *f, const struct tw_saved_commit *c, enum form a,
                     enum form b, tw_error *err) {
    if (a == NOT_OURS && b == NOT_OURS) {
        return tw_fail(err, TW_E_FORMAT, "%s: is not a saved state", f->name);
    }
    if (a == OTHER_VERSION || b == OTHER_VERSION) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "%s: is a saved state of version %u, and this program reads version %u: use "
                       "the program that saved it",
                       f->name, c[a == OTHER_VERSION ? 0 : 1].version, TW_SAVED_VERSION);
    }
    return damaged(f, "both commits", err);
}

/* The newest of the whole ones. */
static int choose_commit(struct tw_saved *f, const struct tw_saved_commit *c, tw_error *err) {
    enum form a = form_of(&c[0]), b = form_of(&c[1]);
    bool is_same = memcmp(&c[0], &c[1], sizeof c[0]) == 0;
    if (a != WHOLE && b != WHOLE) {
        return no_commit(f, c, a, b, err);
    }
    if (a == WHOLE && b == WHOLE && !is_same && c[0].sequence == c[1].sequence) {
        return damaged(f, "commits of one save that differ", err);
    }
    f->is_healed = is_same;
    f->commit = c[b != WHOLE || (a == WHOLE && c[0].sequence > c[1].sequence) ? 0 : 1];
    return 0;
}

static int read_commit(struct tw_saved *f, tw_error *err) {
    struct tw_saved_commit c[TW_SAVED_COMMITS];
    uint64_t n = f->size < sizeof c ? f->size : sizeof c;
    if (n == 0) {
        return tw_fail(err, TW_E_TRUNCATED, "%s: the file is empty", f->name);
    }
    memset(c, 0, sizeof c);
    int code = read_at(f, 0, c, n, err);
    if (code) {
        return code;
    }
    if (n < sizeof c && form_of(&c[0]) != NOT_OURS) {
        return fail_cut(f, n, err);
    }
    return choose_commit(f, c, err);
}

/* ---- the schema, and the sizes ---- */

static int read_schema(struct tw_saved *f, tw_error *err) {
    uint8_t hash[TW_SAVED_HASH_BYTES];
    uint32_t n = f->commit.schema_bytes;
    if (n < TW_SAVED_SCHEMA_HEAD || n > sizeof f->schema) {
        return tw_fail(err, TW_E_RANGE, "%s: the schema has %u bytes, expected %u to %zu", f->name,
                       n, TW_SAVED_SCHEMA_HEAD, sizeof f->schema);
    }
    int code = read_at(f, TW_SAVED_SCHEMA_OFFSET, &f->schema, n, err);
    if (code) {
        return code;
    }
    tw_hash_bytes(&f->schema, n, hash);
    if (memcmp(hash, f->commit.schema_hash, sizeof hash) != 0) {
        return damaged(f, "the schema", err);
    }
    code = tw_saved_sizes_of(&f->schema, &f->sizes, err);
    if (code) {
        tw_error_prefix(err, f->name);
        return code;
    }
    return f->sizes.schema_bytes == n
               ? 0
               : tw_fail(err, TW_E_FORMAT, "%s: the schema has %u bytes, and its tensors take %u",
                         f->name, n, f->sizes.schema_bytes);
}

/* first_cell and the cells' bytes are below 2^48 and the number of cells below 2^25, which could
 * overflow 64 bits: so it divides. */
static int check_sizes(struct tw_saved *f, tw_error *err) {
    const struct tw_saved_commit *c = &f->commit;
    const struct tw_saved_sizes *s = &f->sizes;
    if (c->n_tokens == 0 || c->n_tokens > TW_SAVED_MAX_TOKENS) {
        return tw_fail(err, TW_E_RANGE, "%s: has %u tokens, expected 1 to %u", f->name, c->n_tokens,
                       TW_SAVED_MAX_TOKENS);
    }
    f->n_slots = tw_saved_slots(&f->schema, c->n_tokens);
    bool has_free = c->free_cell != TW_SAVED_NO_CELL;
    if (c->n_cells != f->n_slots + has_free || (has_free && c->free_cell >= c->n_cells) ||
        c->cell_bytes != s->cell_bytes || c->file_bytes < s->first_cell ||
        (c->file_bytes - s->first_cell) % s->cell_bytes != 0 ||
        (c->file_bytes - s->first_cell) / s->cell_bytes != c->n_cells) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: %u tokens in %u cells of %" PRIu64 " bytes, %" PRIu64
                       " bytes in all: these do not agree with the schema",
                       f->name, c->n_tokens, c->n_cells, c->cell_bytes, c->file_bytes);
    }
    if (f->size < c->file_bytes) {
        return tw_fail(err, TW_E_TRUNCATED, "%s: has %" PRIu64 " bytes, expected %" PRIu64, f->name,
                       f->size, c->file_bytes);
    }
    return f->n_slots * s->tail_bytes <= TW_SAVED_MAX_TAILS
               ? 0
               : tw_fail(err, TW_E_RANGE, "%s: its index of %" PRIu64 " bytes exceeds %u", f->name,
                         f->n_slots * s->tail_bytes, TW_SAVED_MAX_TAILS);
}

/* ---- the index ---- */

static uint32_t token_at(const struct tw_saved *f, const uint8_t *tail, uint32_t i) {
    uint32_t id = 0;
    memcpy(&id, tail + sizeof(struct tw_saved_tail) + (size_t)i * f->sizes.token_bytes,
           f->sizes.token_bytes);
    return id;
}

static int read_tail(struct tw_saved *f, uint32_t cell, uint8_t *buffer, tw_error *err) {
    const struct tw_saved_sizes *s = &f->sizes;
    struct tw_saved_tail t;
    int code = read_at(f, s->first_cell + cell * s->cell_bytes + s->pages_bytes, buffer,
                       s->tail_bytes, err);
    if (code) {
        return code;
    }
    memcpy(&t, buffer, sizeof t);
    if (t.slot >= f->n_slots || f->cells[t.slot] != TW_SAVED_NO_CELL) {
        return tw_fail(err, TW_E_FORMAT, "%s: cell %u: has slot %u, which %s", f->name, cell,
                       t.slot, t.slot < f->n_slots ? "another cell has" : "is none of this state");
    }
    f->cells[t.slot] = cell;
    memcpy(f->tails + t.slot * s->tail_bytes, buffer, s->tail_bytes);
    return 0;
}

static int read_tokens(struct tw_saved *f, tw_error *err) {
    uint32_t positions = f->schema.page_positions;
    for (uint32_t slot = 0; slot < f->n_slots; slot++) {
        const uint8_t *tail = f->tails + slot * f->sizes.tail_bytes;
        uint32_t left = f->commit.n_tokens - slot * positions;
        struct tw_saved_tail t;
        memcpy(&t, tail, sizeof t);
        if (t.n_tokens != (left < positions ? left : positions)) {
            return tw_fail(err, TW_E_FORMAT, "%s: slot %u: has %u tokens of %u", f->name, slot,
                           t.n_tokens, left < positions ? left : positions);
        }
        for (uint32_t i = 0; i < positions; i++) {
            uint32_t id = token_at(f, tail, i);
            if (i < t.n_tokens ? id >= f->schema.n_vocab : id != 0) {
                return tw_fail(err, TW_E_RANGE, "%s: position %u: token %u, expected one below %u",
                               f->name, slot * positions + i, id, f->schema.n_vocab);
            }
            f->tokens[slot * positions + i] = id;
        }
    }
    return 0;
}

static int read_tails(struct tw_saved *f, tw_error *err) {
    uint8_t hash[TW_SAVED_HASH_BYTES], *buffer = malloc(f->sizes.tail_bytes);
    int code = buffer ? 0 : tw_fail(err, TW_E_NOMEM, "%s: out of memory", f->name);
    for (uint32_t cell = 0; cell < f->commit.n_cells && !code; cell++) {
        code = cell == f->commit.free_cell ? 0 : read_tail(f, cell, buffer, err);
    }
    free(buffer);
    if (code) {
        return code;
    }
    tw_hash_bytes(f->tails, f->n_slots * f->sizes.tail_bytes, hash);
    return memcmp(hash, f->commit.tails_hash, sizeof hash) == 0
               ? 0
               : damaged(f, "its tokens and checksums", err);
}

static int read_index(struct tw_saved *f, tw_error *err) {
    f->cells = malloc(f->n_slots * sizeof *f->cells);
    f->tokens = malloc((size_t)f->n_slots * f->schema.page_positions * sizeof *f->tokens);
    f->tails = malloc(f->n_slots * f->sizes.tail_bytes);
    if (!f->cells || !f->tokens || !f->tails) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory for %u tokens", f->name,
                       f->commit.n_tokens);
    }
    memset(f->cells, 0xFF, f->n_slots * sizeof *f->cells);
    int code = read_tails(f, err);
    return code ? code : read_tokens(f, err);
}

/* ---- opening ---- */

int tw_saved_load(struct tw_saved *f, const struct tw_saved_schema *expected,
                  enum tw_saved_depth depth, tw_error *err) {
    int code = read_commit(f, err);
    code = code ? code : read_schema(f, err);
    code = code || !expected ? code : tw_saved_schema_match(f->name, &f->schema, expected, err);
    code = code ? code : check_sizes(f, err);
    if (!code && depth >= TW_SAVED_INDEX) {
        code = read_index(f, err);
    }
    if (!code && depth >= TW_SAVED_WHOLE) {
        code = tw_saved_read_pages(f, NULL, err);
    }
    return code;
}

static int load_new(struct tw_saved *f, const struct tw_saved_schema *expected,
                    enum tw_saved_depth depth, struct tw_saved **out, tw_error *err) {
    int code = tw_saved_load(f, expected, depth, err);
    if (code) {
        tw_saved_close(f);
        return code;
    }
    *out = f;
    return 0;
}

int tw_saved_open(const char *path, const struct tw_saved_schema *expected,
                  enum tw_saved_depth depth, struct tw_saved **out, tw_error *err) {
    struct stat st;
    int fd, code = tw_private_file_open(path, &fd, err);
    if (code) {
        return code;
    }
    /* who looks through many does not wait for one */
    code = tw_saved_lock(fd, false, depth != TW_SAVED_INDEX, path, err);
    if (!code && fstat(fd, &st) != 0) {
        code = tw_fail(err, TW_E_IO, "%.200s: cannot stat: %s", path, strerror(errno));
    }
    struct tw_saved *f = code ? NULL : tw_saved_new(path, fd, NULL, (uint64_t)st.st_size);
    if (!f) {
        close(fd);
        return code ? code : tw_fail(err, TW_E_NOMEM, "%.200s: out of memory", path);
    }
    return load_new(f, expected, depth, out, err);
}

int tw_saved_open_memory(const void *bytes, uint64_t size, const struct tw_saved_schema *expected,
                         enum tw_saved_depth depth, struct tw_saved **out, tw_error *err) {
    struct tw_saved *f = tw_saved_new("saved state", -1, bytes, size);
    return f ? load_new(f, expected, depth, out, err)
             : tw_fail(err, TW_E_NOMEM, "saved state: out of memory");
}
