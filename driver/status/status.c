/* SPDX-License-Identifier: Apache-2.0
 *
 * Publishing: the numbers are kept in this process and copied word by word into the slot that
 * readers do not look at, which then becomes the current one.
 */
#include "driver/status/status.h"

#include "loader/base/clock.h"
#include "loader/base/file_limit.h"
#include "loader/base/lock.h"
#include "loader/base/private_path.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define XFS_MAGIC 0x58465342
#define WINDOW_NS UINT64_C(2000000000) /* the rate is that of the last two to four seconds */

/* ---- publishing ---- */

static void publish(struct tw_status *s) {
    if (!s->page) {
        return;
    }
    uint64_t word[TW_STATUS_WORDS];
    size_t n = s->old_texts ? TW_STATUS_WORDS : TW_STATUS_NUMBER_WORDS;
    s->old_texts -= s->old_texts > 0;
    memcpy(word, &s->now, n * sizeof word[0]);
    _Atomic uint64_t *slot = s->page->slot[(s->published + 1) % 2];
    /* Each with release order: a reader that sees a word of this slot change also sees that the
     * slot is no longer the current one. */
    for (size_t i = 0; i < n; i++) {
        atomic_store_explicit(&slot[i], word[i], memory_order_release);
    }
    atomic_store_explicit(&s->page->published, ++s->published, memory_order_release);
}

static void restart_rate(struct tw_status *s, uint64_t now) {
    for (size_t i = 0; i < 2; i++) {
        s->mark[i].ns = now;
        s->mark[i].tokens = s->now.tokens;
    }
}

/* ---- the file ---- */

/* Returns whether a write to a mapped page of the file is certain to succeed; one that fails kills
 * the process. It may fail on a copy-on-write file system whose disk is full, and on a network
 * file system. */
static bool is_safe(int fd) {
    struct statfs fs;
    if (fstatfs(fd, &fs)) {
        return false;
    }
    switch ((unsigned long)fs.f_type) {
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
    case EXT4_SUPER_MAGIC:
    case XFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
        return true;
    default: /* any other number */
        return false;
    }
}

static bool fill_file(int fd, const struct tw_status_owner *owner) {
    uint8_t bytes[TW_STATUS_FILE_BYTES] = {0};
    memcpy(bytes, owner, sizeof *owner);
    return is_safe(fd) && fchmod(fd, 0644) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
           write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes;
}

static struct tw_status_page *map_file(int fd) {
    void *p = mmap(NULL, TW_STATUS_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Creates the page's file. It gets its final name once it is complete and locked, so that a reader
 * never sees an incomplete one. */
static bool make_file(struct tw_status *s, const struct tw_status_owner *owner) {
    char draft[sizeof s->path + 4];
    if (!tw_file_size_allowed(TW_STATUS_FILE_BYTES)) {
        return false; /* the write would end the process */
    }
    snprintf(draft, sizeof draft, "%s.new", s->path);
    s->fd = open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (s->fd < 0) {
        return false;
    }
    s->page = fill_file(s->fd, owner) ? map_file(s->fd) : NULL;
    if (s->page && rename(draft, s->path) == 0) {
        return true;
    }
    if (s->page) {
        munmap(s->page, TW_STATUS_FILE_BYTES);
        s->page = NULL;
    }
    unlink(draft);
    close(s->fd);
    return false;
}

static bool may_be_shared(const char *selector) {
    return strncmp(selector, "usb", 3) == 0 || strncmp(selector, "pcie", 4) == 0;
}

static void describe_owner(struct tw_status_owner *o, const char *selector,
                           const struct tw_wire_identity *identity) {
    *o = (struct tw_status_owner){.magic = TW_STATUS_MAGIC,
                                  .version = TW_STATUS_VERSION,
                                  .pid = (uint32_t)getpid(),
                                  .opened_ns = tw_clock_coarse_ns()};
    tw_status_process(0, &o->pid_start, &o->pid_namespace);
    tw_lock_own_name(o->program);
    snprintf(o->device, sizeof o->device, "%s", selector);
    memcpy(o->target, identity->target, sizeof o->target);
    memcpy(o->machine, identity->device, sizeof o->machine);
}

void tw_status_init(struct tw_status *s) {
    *s = (struct tw_status){.now = {.progress_ns = tw_clock_coarse_ns()}};
    pthread_mutex_init(&s->lock, NULL);
    restart_rate(s, s->now.progress_ns);
}

void tw_status_publish(struct tw_status *s, const char *selector,
                       const struct tw_wire_identity *identity) {
    static _Atomic uint32_t last_number;
    struct tw_status_owner *owner = &s->owner;
    uint32_t number = atomic_fetch_add(&last_number, 1) + 1;
    bool made = false;
    tw_status_sweep();
    describe_owner(owner, selector, identity);
    if (may_be_shared(selector)) {
        made = tw_status_path(true, owner->pid, number, s->path) && make_file(s, owner);
    }
    if (!made && tw_status_path(false, owner->pid, number, s->path)) {
        make_file(s, owner);
    }
    pthread_mutex_lock(&s->lock);
    publish(s);
    pthread_mutex_unlock(&s->lock);
}

void tw_status_get(struct tw_status *s, struct tw_status_info *info) {
    pthread_mutex_lock(&s->lock);
    tw_status_describe(&s->owner, &s->now, info);
    pthread_mutex_unlock(&s->lock);
}

void tw_status_finish(struct tw_status *s) {
    if (s->page) {
        unlink(s->path);
        munmap(s->page, TW_STATUS_FILE_BYTES);
        close(s->fd);
        s->page = NULL;
    }
    pthread_mutex_destroy(&s->lock);
}

/* ---- events ---- */

void tw_status_set_bundle(struct tw_status *s, const char *path) {
    const char *name = strrchr(path, '/');
    pthread_mutex_lock(&s->lock);
    snprintf(s->now.bundle, sizeof s->now.bundle, "%s", name ? name + 1 : path);
    s->old_texts = 2;
    publish(s);
    pthread_mutex_unlock(&s->lock);
}

void tw_status_begin(struct tw_status *s, enum tw_wire_opcode opcode, uint32_t bytes) {
    pthread_mutex_lock(&s->lock);
    uint64_t now = tw_clock_coarse_ns();
    if (now - s->now.progress_ns > WINDOW_NS && s->unanswered == 0) {
        restart_rate(s, now); /* a pause between two texts does not lower the rate */
    }
    /* a request sent after a step waits for the step as well */
    if (opcode == TW_WIRE_RUN || s->unanswered == 0) {
        s->now.state = opcode == TW_WIRE_RUN ? TW_STATUS_RUNNING : TW_STATUS_WAITING;
        s->now.doing = opcode;
    }
    s->unanswered++;
    s->now.sent_bytes += TW_WIRE_HEADER_BYTES + bytes;
    s->now.progress_ns = now;
    publish(s);
    pthread_mutex_unlock(&s->lock);
}

void tw_status_end(struct tw_status *s, uint32_t bytes, const struct tw_transport_count *count) {
    pthread_mutex_lock(&s->lock);
    if (--s->unanswered == 0) {
        s->now.state = TW_STATUS_IDLE;
        s->now.doing = 0;
    }
    s->now.received_bytes += TW_WIRE_HEADER_BYTES + bytes;
    s->now.resent = count->resent;
    s->now.damaged = count->damaged;
    s->now.progress_ns = tw_clock_coarse_ns();
    publish(s);
    pthread_mutex_unlock(&s->lock);
}

void tw_status_fail(struct tw_status *s, bool lost, const char *message) {
    pthread_mutex_lock(&s->lock);
    if (s->now.state != TW_STATUS_LOST) { /* later errors only repeat the cause */
        s->now.state = lost ? TW_STATUS_LOST : s->now.state;
        snprintf(s->now.error, sizeof s->now.error, "%.*s", (int)sizeof s->now.error - 1, message);
        s->old_texts = 2;
        publish(s);
    }
    pthread_mutex_unlock(&s->lock);
}

void tw_status_progress(void *status) {
    struct tw_status *s = status;
    pthread_mutex_lock(&s->lock);
    s->now.progress_ns = tw_clock_coarse_ns();
    publish(s);
    pthread_mutex_unlock(&s->lock);
}

static void count_rate(struct tw_status *s, uint64_t now) {
    s->now.token_ns = now;
    s->now.rate_tokens = s->now.tokens - s->mark[0].tokens;
    s->now.rate_ns = now - s->mark[0].ns;
    if (now - s->mark[1].ns >= WINDOW_NS) {
        s->mark[0] = s->mark[1];
        s->mark[1].ns = now;
        s->mark[1].tokens = s->now.tokens;
    }
}

void tw_status_step(struct tw_status *s, const struct tw_status_step *step) {
    pthread_mutex_lock(&s->lock);
    if (step->prompt) {
        s->now.prompt_tokens += step->tokens;
        restart_rate(s, tw_clock_coarse_ns());
    } else {
        s->now.tokens += step->tokens;
        count_rate(s, tw_clock_coarse_ns());
    }
    s->now.steps += step->steps;
    s->now.position = step->position;
    s->now.n_ctx = step->n_ctx;
    publish(s);
    pthread_mutex_unlock(&s->lock);
}

void tw_status_pages(struct tw_status *s, const struct tw_status_pages *before,
                     const struct tw_status_pages *now) {
    pthread_mutex_lock(&s->lock);
    s->now.pages += now->all - before->all; /* modulo 2^32: the sums are right */
    s->now.pages_used += now->used - before->used;
    s->now.pages_shared += now->shared - before->shared;
    s->now.pages_cached += now->cached - before->cached;
    publish(s);
    pthread_mutex_unlock(&s->lock);
}
