/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading status pages: every file in the two folders that has the name of a page is read (not
 * mapped: another user could truncate it, which would kill this process), checked and reported. A
 * page is stale when nobody holds its lock, or its process has ended.
 */
#include "driver/status/status_page.h"

#include "loader/base/assert.h"
#include "loader/base/clock.h"
#include "loader/base/private_path.h"
#include "loader/base/sized.h"
#include "loader/base/text_filter.h"
#include "tilewright/tilewright.h"
#include "tilewright/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 1000u    /* attempts to read a slot between two publications */
#define RATE_AGE_S 4.0 /* without a step running, a rate expires this long after the last token */
#define SHARED_PREFIX "tilewright-"

/* ---- names and processes ---- */

/* The shared folder also has the lock files of these devices (driver/transport/holder.h). */
static bool folder_of(bool shared, bool make, char folder[TW_RUNTIME_FOLDER]) {
    const char *other = getenv("TW_LOCK_FOLDER");
    if (!shared) {
        return tw_runtime_folder(make, folder, NULL) == 0;
    }
    snprintf(folder, TW_RUNTIME_FOLDER, "%s",
             other && *other && strlen(other) < 90 ? other : TW_STATUS_SHARED_FOLDER);
    return true;
}

bool tw_status_path(bool shared, uint32_t pid, uint32_t number, char path[128]) {
    char folder[TW_RUNTIME_FOLDER];
    if (!folder_of(shared, true, folder)) {
        return false;
    }
    snprintf(path, 128, "%.90s/%s%u-%u.status", folder, shared ? SHARED_PREFIX : "", pid, number);
    return true;
}

/* PID-N.status, followed by .new while it is being created; in the shared folder after the
 * prefix. */
static bool is_page_name(const char *name, bool shared, uint32_t *pid, bool *draft) {
    unsigned number;
    int end = 0;
    if (shared && strncmp(name, SHARED_PREFIX, strlen(SHARED_PREFIX)) != 0) {
        return false;
    }
    name += shared ? strlen(SHARED_PREFIX) : 0;
    if (strspn(name, "0123456789-") >= 24 ||
        sscanf(name, "%u-%u.status%n", pid, &number, &end) != 2 || end == 0) {
        return false;
    }
    *draft = strcmp(name + end, ".new") == 0;
    return *draft || name[end] == 0;
}

/* The process's name is in parentheses and may contain anything, so fields are counted after the
 * last closing one. */
static bool parse_start(char *text, uint64_t *start) {
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    *start = at ? strtoull(at, NULL, 10) : 0;
    return at != NULL;
}

bool tw_status_process(uint32_t pid, uint64_t *start, uint64_t *name_space) {
    char path[40], text[1024];
    struct stat st;
    snprintf(path, sizeof path, pid ? "/proc/%u/stat" : "/proc/self/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) {
        close(fd);
    }
    text[n > 0 ? n : 0] = 0;
    *name_space = stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
    return parse_start(text, start);
}

/* Returns whether the owner has ended, as far as its process is visible. For one in another
 * namespace only the lock shows it. */
static bool has_ended(const struct tw_status_owner *o) {
    uint64_t start, own_start, name_space;
    if (!tw_status_process(0, &own_start, &name_space) || !o->pid_start ||
        o->pid_namespace != name_space) {
        return false;
    }
    if (tw_status_process(o->pid, &start, &name_space)) {
        return start != o->pid_start;
    }
    return kill((pid_t)o->pid, 0) != 0 && errno == ESRCH; /* else /proc hides it */
}

/* ---- files ---- */

static bool read_at(int fd, void *out, size_t n, size_t at) {
    return pread(fd, out, n, (off_t)at) == (ssize_t)n;
}

/* Returns whether the page belongs to the user of the process it names, as far as that is visible:
 * in the shared folder anybody can create a page about any process. */
static bool is_own_page(const struct stat *st, uint32_t pid) {
    char path[40];
    struct stat process;
    snprintf(path, sizeof path, "/proc/%u", pid);
    return stat(path, &process) != 0 || process.st_uid == st->st_uid;
}

static bool read_owner(int fd, struct tw_status_owner *o) {
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == TW_STATUS_FILE_BYTES &&
           read_at(fd, o, sizeof *o, 0) && o->magic == TW_STATUS_MAGIC && is_own_page(&st, o->pid);
}

static bool read_count(int fd, uint64_t *published) {
    return read_at(fd, published, sizeof *published, offsetof(struct tw_status_page, published));
}

/* Reads the current slot consistently. */
static bool read_now(int fd, struct tw_status_now *now) {
    for (unsigned i = 0; i < TRIES; i++) {
        uint64_t before, after;
        if (!read_count(fd, &before)) {
            return false;
        }
        size_t at = offsetof(struct tw_status_page, slot) + (before % 2) * sizeof *now;
        if (!read_at(fd, now, sizeof *now, at) || !read_count(fd, &after)) {
            return false;
        }
        if (before == after) {
            return true;
        }
    }
    return false;
}

static bool is_free(int fd) {
    return flock(fd, LOCK_SH | LOCK_NB) == 0; /* released when fd is closed */
}

/* Removes the file, unless its name belongs to another file by now. */
static void remove_page(int fd, const char *path) {
    struct stat a, b;
    if (fstat(fd, &a) == 0 && lstat(path, &b) == 0 && a.st_ino == b.st_ino &&
        a.st_dev == b.st_dev) {
        unlink(path); /* fails where it is another user's */
    }
}

/* Opens a page and reads its owner. Returns false if the file is not a page, has another version,
 * or is stale, in which case it is removed. */
static bool open_page(const char *path, int *fd, struct tw_status_owner *o) {
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0) {
        return false;
    }
    bool page = read_owner(*fd, o), same = o->version == TW_STATUS_VERSION;
    bool stale = page && (is_free(*fd) || (same && has_ended(o)));
    if (stale) {
        remove_page(*fd, path);
    }
    if (page && same && !stale) {
        return true;
    }
    close(*fd);
    return false;
}

static void remove_draft(const char *path, uint32_t pid) {
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH) {
        unlink(path);
    }
}

/* The names of pages in a folder, sorted. Their number, and that of the entries looked at, is
 * limited because anybody can create thousands in the shared folder. */
#define MAX_PAGES 256u
#define MAX_ENTRIES 4096u
#define NAME_BYTES 64u

struct names {
    uint32_t n;
    char name[MAX_PAGES][NAME_BYTES];
};

static int by_version(const void *a, const void *b) {
    return strverscmp(a, b);
}

static void read_names(const char *folder, bool shared, struct names *names) {
    uint32_t pid;
    bool draft;
    DIR *dir = opendir(folder);
    names->n = 0;
    for (uint32_t i = 0; dir && i < MAX_ENTRIES && names->n < MAX_PAGES; i++) {
        const struct dirent *e = readdir(dir);
        if (!e) {
            break;
        }
        if (strlen(e->d_name) < NAME_BYTES && is_page_name(e->d_name, shared, &pid, &draft)) {
            strcpy(names->name[names->n++], e->d_name);
        }
    }
    if (dir) {
        closedir(dir);
    }
    qsort(names->name, names->n, sizeof names->name[0], by_version);
}

/* Calls use() for each page of a folder until it returns false; removes stale pages. use NULL: only
 * removes. */
static bool each_page(bool shared, bool (*use)(void *ctx, int fd, const struct tw_status_owner *o),
                      void *ctx) {
    struct names names;
    char folder[TW_RUNTIME_FOLDER], path[TW_RUNTIME_FOLDER + NAME_BYTES];
    bool more = true, draft;
    if (!folder_of(shared, false, folder)) {
        return true;
    }
    read_names(folder, shared, &names);
    for (uint32_t i = 0; i < names.n && more; i++) {
        uint32_t pid;
        int fd;
        struct tw_status_owner o = {.magic = 0};
        snprintf(path, sizeof path, "%s/%s", folder, names.name[i]);
        bool is_page = is_page_name(names.name[i], shared, &pid, &draft);
        TW_ASSERT(is_page); /* read_names has filtered them */
        if (draft) {
            remove_draft(path, pid);
        } else if (open_page(path, &fd, &o)) {
            more = use ? use(ctx, fd, &o) : true;
            close(fd);
        }
    }
    return more;
}

/* Leaves the shared folder to tw_status_list(), which removes the stale pages it may remove there,
 * so that what others put there does not slow down opening a device. */
void tw_status_sweep(void) {
    each_page(false, NULL, NULL);
}

/* ---- reporting ---- */

/* Another process wrote the text, so it may not be terminated. */
#define COPY_TEXT(out, text) tw_text_copy(out, sizeof(out), text, sizeof(text))

static double seconds_since(uint64_t ns, uint64_t now) {
    return ns < now ? 1e-9 * (double)(now - ns) : 0;
}

void tw_status_describe(const struct tw_status_owner *o, const struct tw_status_now *n,
                        struct tw_status_info *info) {
    static const char *const state[] = {"idle", "running", "waiting", "lost"};
    uint64_t now = tw_clock_coarse_ns();
    bool busy = n->state == TW_STATUS_RUNNING;
    *info = (struct tw_status_info){.size = sizeof *info,
                                    .pid = o->pid,
                                    .position = n->position,
                                    .n_ctx = n->n_ctx,
                                    .tokens = n->tokens,
                                    .prompt_tokens = n->prompt_tokens,
                                    .steps = n->steps,
                                    .sent_bytes = n->sent_bytes,
                                    .received_bytes = n->received_bytes,
                                    .resent = n->resent,
                                    .damaged = n->damaged,
                                    .pages = n->pages,
                                    .pages_used = n->pages_used,
                                    .pages_shared = n->pages_shared,
                                    .pages_cached = n->pages_cached,
                                    .open_s = seconds_since(o->opened_ns, now),
                                    .progress_s = seconds_since(n->progress_ns, now)};
    COPY_TEXT(info->program, o->program);
    COPY_TEXT(info->device, o->device);
    COPY_TEXT(info->target, o->target);
    COPY_TEXT(info->bundle, n->bundle);
    COPY_TEXT(info->bundle_file, n->bundle);
    COPY_TEXT(info->error, n->error);
    snprintf(info->state, sizeof info->state, "%s",
             n->state <= TW_STATUS_LOST ? state[n->state] : "?");
    snprintf(info->doing, sizeof info->doing, "%s", n->doing ? tw_wire_opcode_name(n->doing) : "");
    if (n->rate_ns && (busy || seconds_since(n->token_ns, now) < RATE_AGE_S) &&
        n->state != TW_STATUS_LOST) {
        info->tokens_per_s = (double)n->rate_tokens * 1e9 / (double)n->rate_ns;
    }
}

struct lister {
    bool (*found)(void *ctx, const struct tw_status_info *info);
    void *ctx;
};

static bool pass_on(void *ctx, int fd, const struct tw_status_owner *o) {
    const struct lister *l = ctx;
    struct tw_status_now now;
    struct tw_status_info info;
    if (!read_now(fd, &now)) {
        return true;
    }
    tw_status_describe(o, &now, &info);
    return l->found(l->ctx, &info);
}

int tw_status_list(bool (*found)(void *ctx, const struct tw_status_info *info), void *ctx,
                   tw_error *err) {
    struct lister l = {found, ctx};
    int code = TW_NEED(err, found);
    if (!code && each_page(true, pass_on, &l)) {
        each_page(false, pass_on, &l);
    }
    return code;
}
