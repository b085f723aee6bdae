/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix cache on disk (prefix_files.h). The folder is read anew each time: other processes
 * change it.
 */
#include "driver/session/prefix_files.h"

#include "driver/state/state_file.h"
#include "loader/base/hash.h"
#include "loader/base/private_path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENDING ".twprefix"
#define ROOT_DIGITS 32u
#define NAME_DIGITS (ROOT_DIGITS + 1u + ROOT_DIGITS)
#define NAME_BYTES (NAME_DIGITS + sizeof ENDING)
/* Files that are opened to look for a beginning: a bound on the time. */
#define MAX_OPENED 512u
#define UNFINISHED_S 3600 /* a temporary file older than this is of a process that died */

/* ---- names ---- */

static void hex(const uint8_t *bytes, char *text) {
    for (uint32_t i = 0; i < ROOT_DIGITS / 2; i++) {
        snprintf(text + (size_t)2 * i, 3, "%02x", bytes[i]);
    }
}

static void make_name(const struct tw_session *s, char name[NAME_BYTES]) {
    uint8_t hash[TW_HASH_BYTES];
    tw_hash_bytes(s->ids, s->position * sizeof *s->ids, hash);
    hex(s->prefix_root, name);
    name[ROOT_DIGITS] = '-';
    hex(hash, name + ROOT_DIGITS + 1);
    memcpy(name + NAME_DIGITS, ENDING, sizeof ENDING);
}

/* Returns the file's path, which the caller frees; NULL: out of memory. */
static char *path_of(const struct tw_session *s, const char *name) {
    size_t room = strlen(s->deployment->prefix_folder) + strlen(name) + 2;
    char *path = malloc(room);
    if (path) {
        snprintf(path, room, "%s/%s", s->deployment->prefix_folder, name);
    }
    return path;
}

static bool is_ours(const char *name) {
    return strspn(name, "0123456789abcdef") == ROOT_DIGITS && name[ROOT_DIGITS] == '-' &&
           strspn(name + ROOT_DIGITS + 1, "0123456789abcdef") == ROOT_DIGITS &&
           strncmp(name + NAME_DIGITS, ENDING, sizeof ENDING - 1) == 0;
}

/* ---- the folder ---- */

/* Calls use() with the name of each file of the cache, finished or not, until it returns false. */
static void each(const struct tw_session *s, bool (*use)(void *ctx, const char *name), void *ctx) {
    bool safe = !tw_private_folder(s->deployment->prefix_folder, false, NULL);
    DIR *d = safe ? opendir(s->deployment->prefix_folder) : NULL;
    bool more = true;
    for (const struct dirent *f; d && more && (f = readdir(d));) {
        more = !is_ours(f->d_name) || use(ctx, f->d_name);
    }
    if (d) {
        closedir(d);
    }
}

/* ---- finding ---- */

struct search {
    const struct tw_session *s;
    char root[ROOT_DIGITS + 1];
    uint32_t n;    /* tokens that are looked for */
    bool whole;    /* only files all of whose tokens are the sequence's, or that have all of it */
    uint32_t best; /* tokens in common with the best one so far */
    uint32_t opened;
    char name[NAME_BYTES]; /* of the best one; "": none */
};

static bool is_damage(int code) {
    return code == TW_E_HASH || code == TW_E_TRUNCATED || code == TW_E_FORMAT || code == TW_E_RANGE;
}

static uint32_t common(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b) {
    uint32_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) {
        n++;
    }
    return n;
}

static void compare(struct search *x, const char *name, const struct tw_saved *file) {
    uint32_t n;
    const uint32_t *ids = tw_saved_tokens(file, &n);
    uint32_t same = common(ids, n, x->s->ids, x->n);
    if (same > x->best && (!x->whole || same == n || same == x->n)) {
        x->best = same;
        memcpy(x->name, name, NAME_BYTES);
    }
}

static bool look(void *ctx, const char *name) {
    struct search *x = ctx;
    struct tw_saved *file;
    tw_error err = {0};
    if (strlen(name) + 1 != NAME_BYTES || strncmp(name, x->root, ROOT_DIGITS) != 0) {
        return true;
    }
    char *path = path_of(x->s, name);
    int code = path ? tw_session_open_prefix(x->s, path, &file, &err) : TW_E_NOMEM;
    if (!code) {
        compare(x, name, file);
        tw_saved_close(file);
    } else if (path && is_damage(code)) {
        unlink(path);
    }
    free(path);
    return code != TW_E_NOMEM && ++x->opened < MAX_OPENED;
}

static void find(struct search *x) {
    hex(x->s->prefix_root, x->root);
    each(x->s, look, x);
}

static bool has_folder(const struct tw_session *s) {
    /* Windows are not saved, so that all tokens would be fed again. */
    return s->deployment->prefix_folder && s->executor->shared && !s->window.room;
}

/* ---- taking ---- */

static void mark_used(const char *path) {
    const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    (void)utimensat(AT_FDCWD, path, now, AT_SYMLINK_NOFOLLOW);
}

/* The file may have changed since it was found, and its pages have not been read: so the tokens are
 * compared again, and pages are checked as they are read, before they are the session's. */
static void take(struct tw_session *s, const struct search *x) {
    struct tw_saved *file = NULL;
    tw_error err = {0};
    uint32_t n;
    char *path = path_of(s, x->name);
    int code = path ? tw_session_open_prefix(s, path, &file, &err) : TW_E_NOMEM;
    if (!code) {
        const uint32_t *ids = tw_saved_tokens(file, &n);
        n = common(ids, n, s->ids, x->n);
        code = n > s->position ? tw_session_restore_prefix(s, file, n, &err) : 0;
    }
    /* A device may refuse what is in order: then only a wrong checksum is the file's fault. */
    bool damaged = file ? code == TW_E_HASH || code == TW_E_TRUNCATED : is_damage(code);
    tw_saved_close(file);
    if (path && damaged) {
        unlink(path);
    } else if (path && !code) {
        mark_used(path);
    }
    free(path);
}

void tw_prefix_files_take(struct tw_session *s, uint32_t n) {
    struct search x = {.s = s, .n = n, .best = s->position + TW_KV_BLOCK - 1};
    if (has_folder(s) && n > x.best) {
        find(&x);
        if (x.name[0]) {
            take(s, &x);
        }
    }
}

/* ---- the budget ---- */

struct sum {
    const struct tw_session *s;
    const char *kept; /* the name that stays */
    time_t now;
    uint64_t bytes;
    uint64_t worst_bytes, worst_age; /* of the file worth least */
    char worst[NAME_BYTES];
};

static void remove_old(const struct sum *x, const char *name, const struct stat *st) {
    char *path = x->now - st->st_mtim.tv_sec > UNFINISHED_S ? path_of(x->s, name) : NULL;
    if (path) {
        unlink(path);
    }
    free(path);
}

/* Value is bytes / age, compared without dividing. Sizes are below 2^48, ages below 2^15 years. */
static bool add_file(void *ctx, const char *name) {
    struct sum *x = ctx;
    struct stat st;
    char *path = path_of(x->s, name);
    bool is_file = path && lstat(path, &st) == 0 && S_ISREG(st.st_mode);
    free(path);
    if (!is_file) {
        return path != NULL;
    }
    if (strlen(name) + 1 != NAME_BYTES) { /* a save that is not finished */
        remove_old(x, name, &st);
        return true;
    }
    uint64_t bytes = (uint64_t)st.st_size;
    uint64_t age = x->now > st.st_mtim.tv_sec ? (uint64_t)(x->now - st.st_mtim.tv_sec) + 1 : 1;
    x->bytes += bytes;
    if (strcmp(name, x->kept) != 0 && (!x->worst[0] || (double)bytes * (double)x->worst_age <
                                                           (double)x->worst_bytes * (double)age)) {
        memcpy(x->worst, name, NAME_BYTES);
        x->worst_bytes = bytes;
        x->worst_age = age;
    }
    return true;
}

static void make_room(const struct tw_session *s, const char *kept) {
    for (;;) {
        struct sum x = {.s = s, .kept = kept, .now = time(NULL)};
        each(s, add_file, &x);
        char *path =
            x.bytes > s->deployment->prefix_bytes && x.worst[0] ? path_of(s, x.worst) : NULL;
        /* another process may have removed it, and others are still there */
        bool gone = path && (unlink(path) == 0 || errno == ENOENT);
        free(path);
        if (!gone) {
            return;
        }
    }
}

/* ---- keeping ---- */

int tw_prefix_files_keep(struct tw_session *s, uint64_t *written_bytes, tw_error *err) {
    struct search x = {.s = s, .n = s->position, .whole = true};
    *written_bytes = 0;
    if (!has_folder(s) || s->foreign || s->position < TW_KV_BLOCK ||
        tw_session_prefix_bytes(s, s->position) > s->deployment->prefix_bytes) {
        return 0;
    }
    int code = tw_private_folder(s->deployment->prefix_folder, true, err);
    if (code) {
        return code;
    }
    find(&x);
    if (!x.name[0]) {
        make_name(s, x.name);
    }
    char *path = path_of(s, x.name);
    if (!path) {
        return tw_fail(err, TW_E_NOMEM, "prefix cache: out of memory");
    }
    if (x.best < s->position) {
        code = tw_session_save_prefix(s, path, written_bytes, err);
    } else {
        mark_used(path);
    }
    free(path);
    make_room(s, x.name);
    return code;
}
