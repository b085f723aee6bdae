/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder is read anew each time: other processes may change it at any time.
 */
#include "tools/cache_folder.h"

#include "loader/base/private_path.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS (2 * CACHE_KEY_DIGITS)
#define ENDING ".twb"
#define UNFINISHED_S 3600 /* an unfinished file older than this belongs to a process that died */

/* ---- the folder ---- */

/* Creates the directory and its parents. Returns 0 or errno. */
static int make_directories(char *path) {
    for (char *p = path + 1; *p; p++) {
        if (*p == '/') {
            *p = 0;
            int failed = mkdir(path, 0755) && errno != EEXIST;
            *p = '/';
            if (failed) {
                return errno;
            }
        }
    }
    return mkdir(path, 0700) && errno != EEXIST ? errno : 0;
}

int cache_folder(char folder[CACHE_PATH_BYTES], bool make) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (xdg && xdg[0] == '/') { /* the XDG specification says to ignore relative paths */
        n = snprintf(folder, CACHE_PATH_BYTES, "%s/tilewright", xdg);
    } else if (home && home[0]) {
        n = snprintf(folder, CACHE_PATH_BYTES, "%s/.cache/tilewright", home);
    }
    if (n < 0 || (size_t)n >= CACHE_PATH_BYTES - CACHE_NAME_BYTES) {
        folder[0] = 0;
        return ENOENT;
    }
    int e = make ? make_directories(folder) : 0;
    tw_error err = {0};
    if (!e && tw_private_folder(folder, false, &err) && errno != ENOENT) {
        ui_note("%s", err.message); /* what is in it could be anybody's */
        return EPERM;
    }
    return e ? e : access(folder, W_OK | X_OK) ? errno : 0;
}

/* ---- names ---- */

/* The digits of an entry's name, or NULL. */
static const char *digits_of(const char *name) {
    size_t n = strlen(name), ending = strlen(ENDING);
    if (n < DIGITS + ending + 1 || strcmp(name + n - ending, ENDING) != 0) {
        return NULL;
    }
    const char *digits = name + n - ending - DIGITS;
    return digits[-1] == '-' && strspn(digits, "0123456789abcdef") == DIGITS ? digits : NULL;
}

bool cache_is_whole(const struct cache_entry *e, const struct tw_decoder_info *info) {
    const char *digits = digits_of(e->name);
    char content[CACHE_KEY_DIGITS + 1];
    text_hex(info->content_hash, CACHE_KEY_DIGITS / 2, content);
    return digits && strncmp(digits + CACHE_KEY_DIGITS, content, CACHE_KEY_DIGITS) == 0;
}

/* Copies text, replacing characters that are not portable in file names or need quotes in a
 * shell. */
static void put_word(char *out, size_t room, const char *text) {
    size_t n = 0;
    for (; text[n] && n + 1 < room; n++) {
        bool plain = (text[n] >= '0' && text[n] <= '9') || (text[n] >= 'a' && text[n] <= 'z') ||
                     (text[n] >= 'A' && text[n] <= 'Z') || (n > 0 && strchr("._+-", text[n]));
        out[n] = plain ? text[n] : '_';
    }
    out[n] = 0;
}

void cache_name(char name[CACHE_NAME_BYTES], const struct tw_decoder_info *info, const char *model,
                const char *key) {
    char word[49], target[49], content[CACHE_KEY_DIGITS + 1];
    const char *slash = strrchr(model, '/');
    put_word(word, sizeof word, info->model[0] ? info->model : slash ? slash + 1 : model);
    put_word(target, sizeof target, info->target);
    text_hex(info->content_hash, CACHE_KEY_DIGITS / 2, content);
    snprintf(name, CACHE_NAME_BYTES, "%s-%s-%.32s%s" ENDING, word, target, key, content);
}

/* ---- entries ---- */

static bool is_unfinished(const char *name) {
    return strncmp(name, "new-", 4) == 0 || strstr(name, ENDING ".tmp-") != NULL;
}

static bool read_entry(int folder, const char *name, struct cache_entry *e) {
    struct stat st;
    size_t n = strlen(name);
    bool bundle = n >= strlen(ENDING) && strcmp(name + n - strlen(ENDING), ENDING) == 0;
    if (n >= sizeof e->name || (!bundle && !is_unfinished(name)) ||
        fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW)) {
        return false;
    }
    memcpy(e->name, name, n + 1);
    e->is_file = S_ISREG(st.st_mode);
    e->bytes = (uint64_t)st.st_size;
    e->used = st.st_atim;
    return !is_unfinished(name) || time(NULL) - st.st_mtim.tv_sec > UNFINISHED_S;
}

void cache_each(const char *folder, bool (*use)(void *ctx, const struct cache_entry *e),
                void *ctx) {
    DIR *d = opendir(folder);
    struct cache_entry e;
    bool more = true;
    for (const struct dirent *f; d && more && (f = readdir(d));) {
        more = !read_entry(dirfd(d), f->d_name, &e) || use(ctx, &e);
    }
    if (d) {
        closedir(d);
    }
}

struct search {
    const char *key;
    struct cache_entry *out;
    bool found;
};

static bool match(void *ctx, const struct cache_entry *e) {
    struct search *s = ctx;
    const char *digits = digits_of(e->name);
    s->found = e->is_file && digits && strncmp(digits, s->key, CACHE_KEY_DIGITS) == 0;
    if (s->found) {
        *s->out = *e;
    }
    return !s->found;
}

bool cache_find(const char *folder, const char *key, struct cache_entry *out) {
    struct search s = {.key = key, .out = out};
    cache_each(folder, match, &s);
    return s.found;
}

void cache_touch(const char *path) {
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    (void)utimensat(AT_FDCWD, path, times, 0);
}
