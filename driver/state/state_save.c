/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving (state_file.h): appends to the state that is there, or makes a new file without a name and
 * puts it in the old one's place.
 */
#include "driver/state/state_internal.h"
#include "driver/state/state_write.h"
#include "loader/base/clock.h"
#include "loader/base/file_limit.h"
#include "loader/base/hash.h"
#include "loader/base/private_path.h"
#include "loader/base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_WAIT_MS 2000u
#define LOCK_TRY_MS 5
#define OPEN_TRIES 16

struct save {
    const char *path;
    char name[TW_SHORT_PATH_BYTES];
    const struct tw_saved_schema *schema;
    struct tw_saved_sizes sizes;
    const uint32_t *tokens;
    uint32_t n, n_slots;
    struct tw_saved *old; /* the state at the path, open for appending; NULL: none */
    int old_fd;           /* of `old`, or of a file that is replaced; -1 */
    uint8_t *tails;
    struct tw_saved_writer w;
    struct tw_saved_result result;
};

int tw_saved_lock(int fd, bool write, bool wait, const char *name, tw_error *err) {
    const struct timespec pause = {.tv_nsec = LOCK_TRY_MS * 1000000L};
    uint64_t end = tw_clock_ms() + (wait ? LOCK_WAIT_MS : 0);
    while (flock(fd, (write ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return 0; /* a file system without locks */
        }
        if (tw_clock_ms() >= end) {
            return tw_fail(err, TW_E_IO,
                           "%.200s: is being %s by another process or session; try "
                           "again when that is done",
                           name, write ? "read or written" : "written");
        }
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* ---- what is common ---- */

static int check_tokens(const struct save *s, tw_error *err) {
    if (s->n == 0 || s->n > TW_SAVED_MAX_TOKENS ||
        s->n_slots * s->sizes.tail_bytes > TW_SAVED_MAX_TAILS) {
        return tw_fail(err, s->n ? TW_E_RANGE : TW_E_USAGE,
                       "%s: cannot save a sequence of %u tokens, expected 1 to %u", s->name, s->n,
                       TW_SAVED_MAX_TOKENS);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->tokens[i] >= s->schema->n_vocab) {
            return tw_fail(err, TW_E_USAGE, "%s: position %u: token %u, expected one below %u",
                           s->name, i, s->tokens[i], s->schema->n_vocab);
        }
    }
    return 0;
}

static int begin(struct save *s, const char *path, const struct tw_saved_source *source,
                 tw_error *err) {
    char shortened[TW_SHORT_PATH_BYTES];
    s->path = path;
    s->old_fd = -1;
    s->w.fd = -1;
    snprintf(s->name, sizeof s->name, "%s", tw_short_path(path, shortened));
    int code = tw_saved_sizes_of(s->schema, &s->sizes, err);
    if (code) {
        return tw_fail(err, TW_E_USAGE, "%s: cannot save a state of such a program", s->name);
    }
    s->n_slots = tw_saved_slots(s->schema, s->n);
    code = check_tokens(s, err);
    code = code ? code
                : tw_saved_writer_begin(&s->w, s->name, s->schema, &s->sizes, s->tokens, s->n,
                                        source, err);
    s->tails = code ? NULL : malloc(s->n_slots * s->sizes.tail_bytes);
    return code || s->tails ? code : tw_fail(err, TW_E_NOMEM, "%s: out of memory", s->name);
}

static void end(struct save *s) {
    tw_saved_writer_end(&s->w);
    free(s->tails);
    tw_saved_close(s->old);
    if (!s->old && s->old_fd >= 0) {
        close(s->old_fd);
    }
}

static uint64_t file_bytes(const struct save *s, uint32_t n_cells) {
    return s->sizes.first_cell + n_cells * s->sizes.cell_bytes;
}

static void make_commit(const struct save *s, uint32_t n_cells, uint32_t free_cell,
                        struct tw_saved_commit *c) {
    memset(c, 0, sizeof *c);
    memcpy(c->magic, TW_SAVED_MAGIC, TW_SAVED_MAGIC_BYTES);
    c->version = TW_SAVED_VERSION;
    c->schema_bytes = s->sizes.schema_bytes;
    c->sequence = (s->old ? s->old->commit.sequence : 0) + 1;
    c->saved_ns = tw_clock_real_ns();
    c->cell_bytes = s->sizes.cell_bytes;
    c->file_bytes = file_bytes(s, n_cells);
    c->n_tokens = s->n;
    c->n_cells = n_cells;
    c->free_cell = free_cell;
    tw_hash_bytes(s->schema, s->sizes.schema_bytes, c->schema_hash);
    tw_hash_bytes(s->tails, s->n_slots * s->sizes.tail_bytes, c->tails_hash);
    tw_saved_hash_commit(c, c->hash);
}

static int write_now(struct save *s, uint64_t at, const void *bytes, uint64_t n, tw_error *err) {
    int code = tw_saved_add(&s->w, at, bytes, n, err);
    return code ? code : tw_saved_flush(&s->w, err);
}

/* The growth of a file is asked for at once, so a full disk is noticed before anything is written.
 * A file system that cannot do that is written to anyway. */
static int reserve(const struct save *s, int fd, uint64_t from, uint64_t to, tw_error *err) {
    if (!tw_file_size_allowed(to)) {
        return tw_fail(err, TW_E_NOSPACE,
                       "%s: needs %" PRIu64 " bytes, more than this process may write to a file "
                       "(ulimit -f)",
                       s->name, to);
    }
    if (to > from && fallocate(fd, 0, (off_t)from, (off_t)(to - from)) != 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
        int why = errno;
        return tw_fail(err, TW_E_NOSPACE, "%s: needs %" PRIu64 " bytes more: %s", s->name,
                       to - from, strerror(why));
    }
    return 0;
}

/* ---- a new file ---- */

static int write_new(struct save *s, tw_error *err) {
    struct tw_saved_commit commits[TW_SAVED_COMMITS];
    int code = tw_saved_add(&s->w, TW_SAVED_SCHEMA_OFFSET, s->schema, s->sizes.schema_bytes, err);
    for (uint32_t slot = 0; slot < s->n_slots && !code; slot++) {
        code = tw_saved_add_slot(&s->w, slot, slot, s->tails + slot * s->sizes.tail_bytes, err);
    }
    code = code ? code : tw_saved_flush(&s->w, err);
    if (code) {
        return code;
    }
    make_commit(s, s->n_slots, TW_SAVED_NO_CELL, &commits[0]);
    commits[1] = commits[0];
    s->result.n_slots = s->n_slots;
    s->result.file_bytes = commits[0].file_bytes;
    return write_now(s, 0, commits, sizeof commits, err);
}

/* The folder of a path, which the caller frees; NULL: out of memory. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == path ? strdup("/")
           : slash       ? strndup(path, (size_t)(slash - path))
                         : strdup(".");
}

/* A file without a name vanishes with its process. Where there are none, it has the temporary one.
 * Returns whether it has a name in *named. */
static int create(const struct save *s, const char *temporary, int *fd, bool *named,
                  tw_error *err) {
    char *folder = folder_of(s->path);
    if (!folder) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory", s->name);
    }
    *named = false;
    *fd = access("/proc/self/fd", X_OK) == 0 ? open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)
                                             : -1;
    free(folder);
    if (*fd >= 0) {
        return 0;
    }
    *named = true;
    unlink(temporary); /* of a process that died with this number */
    return tw_private_file_create(temporary, fd, err);
}

static int give_name(const struct save *s, int fd, const char *temporary, tw_error *err) {
    char own[40];
    snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
    int failed = linkat(AT_FDCWD, own, AT_FDCWD, temporary, AT_SYMLINK_FOLLOW);
    if (failed && errno == EEXIST) { /* of a process that died with this number */
        unlink(temporary);
        failed = linkat(AT_FDCWD, own, AT_FDCWD, temporary, AT_SYMLINK_FOLLOW);
    }
    return failed ? tw_saved_fail_write(s->name, "create", errno, err) : 0;
}

/* Writes the name to the disk, too, where the file system can do that for a folder. */
static void sync_folder(const struct save *s) {
    char *folder = folder_of(s->path);
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)s->w.calls.sync(fd);
        close(fd);
    }
    free(folder);
}

static int fill_new(struct save *s, const char *temporary, bool *named, tw_error *err) {
    int code = reserve(s, s->w.fd, 0, file_bytes(s, s->n_slots), err);
    code = code ? code : write_new(s, err);
    code = code ? code : tw_saved_sync(&s->w, err);
    if (!code && !*named) {
        code = give_name(s, s->w.fd, temporary, err);
        *named = !code;
    }
    if (!code && s->w.calls.replace(temporary, s->path) != 0) {
        code = tw_saved_fail_write(s->name, "replace", errno, err);
    }
    return code;
}

/* Other threads of the process may be saving to the same path. */
static char *temporary_path(const char *path) {
    char *of_process = tw_temporary_path(path);
    size_t room = of_process ? strlen(of_process) + 12 : 0;
    char *own = room ? malloc(room) : NULL;
    if (own) {
        snprintf(own, room, "%s-%d", of_process, (int)gettid());
    }
    free(of_process);
    return own;
}

static int save_new(struct save *s, tw_error *err) {
    char *temporary = temporary_path(s->path);
    bool named = false;
    int code = temporary ? create(s, temporary, &s->w.fd, &named, err)
                         : tw_fail(err, TW_E_NOMEM, "%s: out of memory", s->name);
    if (!code) {
        code = fill_new(s, temporary, &named, err);
        close(s->w.fd);
        if (code && named) {
            unlink(temporary);
        }
    }
    if (!code) {
        sync_folder(s);
    }
    free(temporary);
    return code;
}

/* ---- appending ---- */

/* Writes both commits if the last save ended between them: cells that the older one needs are about
 * to be written. */
static int heal(struct save *s, tw_error *err) {
    struct tw_saved_commit both[TW_SAVED_COMMITS] = {s->old->commit, s->old->commit};
    if (s->old->is_healed) {
        return 0;
    }
    int code = write_now(s, 0, both, sizeof both, err);
    return code ? code : tw_saved_sync(&s->w, err);
}

/* The slots from `first` on: into the free cell, then behind the last one. */
static int append_slots(struct save *s, uint32_t first, tw_error *err) {
    const struct tw_saved_commit *old = &s->old->commit;
    uint32_t cell = old->free_cell, next = old->n_cells;
    int code = 0;
    for (uint32_t slot = first; slot < s->n_slots && !code; slot++) {
        cell = cell != TW_SAVED_NO_CELL ? cell : next++;
        code = tw_saved_add_slot(&s->w, slot, cell, s->tails + slot * s->sizes.tail_bytes, err);
        cell = TW_SAVED_NO_CELL;
    }
    code = code ? code : tw_saved_flush(&s->w, err);
    return code ? code : tw_saved_sync(&s->w, err);
}

/* The second commit need not reach the disk: the next save does not begin before it has. */
static int commit_appended(struct save *s, const struct tw_saved_commit *c, tw_error *err) {
    int code = write_now(s, 0, c, sizeof *c, err);
    code = code ? code : tw_saved_sync(&s->w, err);
    return code ? code : write_now(s, sizeof *c, c, sizeof *c, err);
}

static int append_from(struct save *s, uint32_t first, tw_error *err) {
    const struct tw_saved_commit *old = &s->old->commit;
    struct tw_saved_commit c;
    bool is_partial = old->n_tokens % s->schema->page_positions != 0;
    uint32_t free_cell = is_partial ? s->old->cells[first] : TW_SAVED_NO_CELL;
    uint64_t bytes = file_bytes(s, s->n_slots + is_partial);
    memcpy(s->tails, s->old->tails, first * s->sizes.tail_bytes);
    int code = reserve(s, s->w.fd, s->old->size, bytes, err);
    code = code ? code : append_slots(s, first, err);
    if (code) {
        int cut = ftruncate(s->w.fd, (off_t)old->file_bytes); /* what is behind it is not needed */
        (void)cut;
        return code;
    }
    make_commit(s, s->n_slots + is_partial, free_cell, &c);
    s->result.n_slots = s->n_slots - first;
    return commit_appended(s, &c, err);
}

/* What a save that was killed left behind the last cell. */
static int trim(struct save *s, tw_error *err) {
    struct tw_saved *old = s->old;
    if (old->size > old->commit.file_bytes && ftruncate(s->w.fd, (off_t)old->commit.file_bytes)) {
        return tw_saved_fail_write(s->name, "truncate", errno, err);
    }
    old->size = old->commit.file_bytes;
    return 0;
}

static int append(struct save *s, tw_error *err) {
    uint32_t had = s->old->commit.n_tokens;
    s->w.fd = s->old_fd;
    s->result.appended = true;
    int code = fchmod(s->w.fd, 0600) == 0 /* a copy may have another mode */
                   ? heal(s, err)
                   : tw_saved_fail_write(s->name, "make private", errno, err);
    code = code ? code : trim(s, err);
    if (!code && had != s->n) {
        code = append_from(s, had / s->schema->page_positions, err);
    }
    s->result.file_bytes = had == s->n
                               ? s->old->commit.file_bytes
                               : file_bytes(s, s->n_slots + (had % s->schema->page_positions != 0));
    return code;
}

/* ---- what is there ---- */

static bool is_begin(const struct save *s) {
    const struct tw_saved *old = s->old;
    return old->commit.n_tokens <= s->n &&
           memcmp(old->tokens, s->tokens, old->commit.n_tokens * sizeof *s->tokens) == 0;
}

/* A state that cannot be continued is not an error: it is replaced. */
static int read_old(struct save *s, tw_error *err) {
    struct stat st;
    tw_error why = {0};
    if (fstat(s->old_fd, &st) != 0) {
        return tw_fail(err, TW_E_IO, "%s: cannot stat: %s", s->name, strerror(errno));
    }
    struct tw_saved *old = tw_saved_new(s->path, s->old_fd, NULL, (uint64_t)st.st_size);
    if (!old) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory", s->name);
    }
    s->old = old;
    int code = tw_saved_load(old, s->schema, TW_SAVED_INDEX, &why);
    if (code == TW_E_NOMEM || code == TW_E_IO) {
        return tw_fail(err, code, "%s", why.message);
    }
    if (code || !is_begin(s)) {
        old->fd = -1; /* the lock stays until the file is replaced */
        tw_saved_close(old);
        s->old = NULL;
    }
    return 0;
}

/* True if the path still leads to the open file, which another save may have replaced. */
static bool is_current(const struct save *s) {
    struct stat a, b;
    return fstat(s->old_fd, &a) == 0 && lstat(s->path, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

/* Opens and locks the file at the path, if there is one. */
static int open_old(struct save *s, tw_error *err) {
    int code = 0;
    for (int i = 0; i < OPEN_TRIES && !code; i++) {
        tw_error why = {0};
        code = tw_private_file_update(s->path, &s->old_fd, &why);
        if (code) {
            s->old_fd = -1;
            return errno == ENOENT ? 0 : tw_fail(err, code, "%s", why.message);
        }
        code = tw_saved_lock(s->old_fd, true, true, s->name, err);
        if (code || is_current(s)) {
            return code;
        }
        close(s->old_fd);
        s->old_fd = -1;
    }
    return tw_fail(err, TW_E_IO, "%s: other processes keep replacing it", s->name);
}

static int save(struct save *s, tw_error *err) {
    int code = open_old(s, err);
    if (code || s->old_fd < 0) {
        return code ? code : save_new(s, err);
    }
    if (!tw_saved_may_replace(s->old_fd)) {
        return tw_fail(err, TW_E_USAGE,
                       "%s: is there and is not a saved state; remove it, or choose another name",
                       s->name);
    }
    code = read_old(s, err);
    return code ? code : s->old ? append(s, err) : save_new(s, err);
}

int tw_saved_write(const char *path, const struct tw_saved_schema *schema, const uint32_t *tokens,
                   uint32_t n, const struct tw_saved_source *source,
                   const struct tw_saved_calls *calls, struct tw_saved_result *result,
                   tw_error *err) {
    tw_error own = {0};
    struct save s = {.schema = schema, .tokens = tokens, .n = n};
    err = err ? err : &own;
    s.w.calls = calls ? *calls : s.w.calls;
    int code = begin(&s, path, source, err);
    code = code ? code : save(&s, err);
    end(&s);
    if (!code) {
        s.result.written_bytes = s.w.written;
        *result = s.result;
    }
    return code;
}

int tw_saved_write_memory(const struct tw_saved_schema *schema, const uint32_t *tokens, uint32_t n,
                          const struct tw_saved_source *source, void *bytes, uint64_t capacity,
                          uint64_t *size, tw_error *err) {
    tw_error own = {0};
    struct save s = {.schema = schema, .tokens = tokens, .n = n};
    err = err ? err : &own;
    int code = begin(&s, "saved state", source, err);
    uint64_t need = code ? 0 : file_bytes(&s, s.n_slots);
    s.w.memory = bytes;
    code = code || need > capacity ? code : write_new(&s, err);
    end(&s);
    if (!code) {
        *size = need;
    }
    return code;
}
