/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport to an emulator in another process. Selectors: "socket:NAME" for NAME.sock in the
 * runtime folder, "socket:PATH" for a path with a slash. PATH.use is locked while the device is
 * open: the kernel releases the lock when its holder dies, and the file names the holder even while
 * the device does not answer.
 */
#include "driver/transport/link/link_client.h"
#include "loader/base/clock.h"
#include "loader/base/lock.h"
#include "loader/base/private_path.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define QUERY_MS 500

/* Connects, and tries again after a signal until `end`. */
static int connect_until(int fd, const struct sockaddr_un *a, uint64_t end) {
    int code;
    do {
        code = connect(fd, (const struct sockaddr *)a, sizeof *a);
    } while (code && errno == EINTR && tw_clock_ms() < end);
    return code;
}

/* Connects, and waits at most `ms` if the device does not accept connections. */
static int connect_path(const char *path, int ms) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int bytes = 1 << 20;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        struct timeval timeout = {ms / 1000, ms % 1000 * 1000};
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    }
    if (fd >= 0 && connect_until(fd, &a, tw_clock_ms() + (uint64_t)ms)) {
        int e = errno;
        close(fd);
        errno = e;
        fd = -1;
    }
    return fd;
}

/* ---- discovery ---- */

static void set_state(struct tw_transport_info *info, const char *state, const char *detail) {
    snprintf(info->state, sizeof info->state, "%s", state);
    snprintf(info->detail, sizeof info->detail, "%.159s", detail);
}

static void query_state(struct tw_transport_info *info, const char *path) {
    struct tw_link_opened o;
    int fd = connect_path(path, QUERY_MS);
    if (fd < 0) {
        int e = errno;
        set_state(info,
                  e == ECONNREFUSED ? "gone"
                  : e == EACCES     ? "no permission"
                                    : "unusable",
                  e == ECONNREFUSED ? "no process serves it any more; run: tilewright emulate"
                                    : strerror(e));
        return;
    }
    if (!tw_peer_is_trusted(fd)) {
        close(fd);
        set_state(info, "unusable", "another user's process serves it");
        return;
    }
    struct tw_pipe *pipe = tw_pipe_socket(fd);
    if (!pipe || !tw_link_query(pipe, QUERY_MS, &o)) {
        set_state(info, "silent", "its process does not answer");
    } else {
        memcpy(info->target, o.target, sizeof info->target);
        snprintf(info->state, sizeof info->state, "%s",
                 o.status == TW_E_DEVICE_BUSY ? "busy" : "ready");
        int n = snprintf(info->detail, sizeof info->detail, "%s in another process%s%s", o.device,
                         o.faults[0] ? ", with fault plan " : "", o.faults);
        if (o.status == TW_E_DEVICE_BUSY) {
            char stopped[64];
            tw_lock_note_stopped(o.holder_pid, stopped);
            snprintf(info->detail + n, sizeof info->detail - (size_t)n,
                     "; process %u (%s) is using it%s", o.holder_pid, o.holder, stopped);
        }
    }
    if (pipe) {
        pipe->ops->close(pipe);
    }
}

/* NAME.sock */
static bool socket_name(const char *file, char name[64]) {
    size_t n = strlen(file);
    if (n < 6 || n - 5 >= 64 || strcmp(file + n - 5, ".sock") != 0) {
        return false;
    }
    memcpy(name, file, n - 5);
    name[n - 5] = 0;
    return true;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void discover(bool (*found)(void *ctx, const struct tw_transport_info *info), void *ctx) {
    char folder[TW_RUNTIME_FOLDER], name[64], path[TW_SOCKET_PATH];
    struct dirent **entry = NULL;
    tw_error err = {0};
    if (tw_runtime_folder(false, folder, &err)) {
        if (errno != ENOENT) { /* the folder exists, but cannot be trusted */
            struct tw_transport_info info = {.selector = "socket"};
            set_state(&info, "unusable", err.message);
            found(ctx, &info);
        }
        return;
    }
    int n = scandir(folder, &entry, NULL, by_name);
    bool more = true;
    for (int i = 0; i < n; i++) {
        if (more && socket_name(entry[i]->d_name, name) &&
            tw_runtime_socket(name, false, path, NULL) == 0) {
            struct tw_transport_info info = {.selector = ""};
            snprintf(info.selector, sizeof info.selector, "socket:%s", name);
            query_state(&info, path);
            more = found(ctx, &info);
        }
        free(entry[i]);
    }
    free(entry);
}

/* ---- opening ---- */

struct use {
    int lock;            /* -1: none */
    uint32_t server_pid; /* who serves the socket */
    char path[116];
};

static void end_use(void *owner) {
    struct use *u = owner;
    tw_lock_release(u->path, u->lock);
    free(u);
}

/* Takes the lock file. If none can be created (in another user's folder), the device itself decides
 * who may open it. */
static int begin_use(const char *name, const char *path, struct use **out, tw_error *err) {
    struct use *u = calloc(1, sizeof *u);
    if (!u) {
        return tw_fail(err, TW_E_NOMEM, "device %s: out of memory", name);
    }
    char what[140];
    tw_error e = {0};
    u->lock = -1;
    snprintf(u->path, sizeof u->path, "%s.use", path);
    snprintf(what, sizeof what, "device %s", name);
    if (tw_lock_take(u->path, what, &u->lock, &e) == TW_E_DEVICE_BUSY) {
        free(u);
        return tw_fail(err, TW_E_DEVICE_BUSY, "%s", e.message);
    }
    *out = u;
    return 0;
}

static int refuse(const char *name, const char *path, int e, tw_error *err) {
    const char *why = e == ENOENT         ? "no such socket"
                      : e == ECONNREFUSED ? "no process serves it"
                      : e == EAGAIN       ? "its process does not answer"
                                          : strerror(e);
    return tw_fail(err, TW_E_NO_DEVICE,
                   "device %s: %s: %s; start one with: tilewright emulate --listen %s", name, path,
                   why, path);
}

/* Refuses a device that a process of another user (except root) serves, as it would see every
 * prompt and could return any answer. */
static int check_peer(const char *name, int fd, struct use *use, tw_error *err) {
    uint32_t uid = 0;
    if (!tw_peer(fd, &use->server_pid, &uid) || tw_peer_is_trusted(fd)) {
        return 0;
    }
    return tw_fail(err, TW_E_NO_DEVICE,
                   "device %s: process %u of user %u serves it, expected one of this user or root",
                   name, use->server_pid, uid);
}

/* Adds to the message if the device does not answer because its process is stopped. Returns the
 * code. */
static int explain_silence(const struct use *u, int code, tw_error *err) {
    char stopped[64] = "";
    if (code == TW_E_DEVICE_LOST && err && u->server_pid) {
        tw_lock_note_stopped(u->server_pid, stopped);
    }
    if (stopped[0]) {
        tw_error_append(err, "; process %u serves it%s", u->server_pid, stopped);
    }
    return code;
}

static int connect_and_open(const char *name, const char *path, uint32_t deadline_ms,
                            struct tw_link **out, tw_error *err) {
    struct use *use = NULL;
    if (access(path, F_OK)) { /* do not create a lock file next to no socket */
        return refuse(name, path, errno, err);
    }
    int code = begin_use(name, path, &use, err);
    if (code) {
        return code;
    }
    uint32_t ms = deadline_ms ? deadline_ms : TW_LINK_DEADLINE_MS;
    int fd = connect_path(path,
                          /* after taking the lock, so that hosts it refuses do not reach it */
                          (int)(ms < INT32_MAX ? ms : INT32_MAX));
    if (fd < 0) {
        code = refuse(name, path, errno, err);
        end_use(use);
        return code;
    }
    code = check_peer(name, fd, use, err);
    if (code) {
        close(fd);
        end_use(use);
        return code;
    }
    code = tw_link_open(name, tw_pipe_socket(fd), deadline_ms, out, err);
    if (code) {
        explain_silence(use, code, err);
        end_use(use);
        return code;
    }
    (*out)->wiring.closed = end_use;
    (*out)->wiring.owner = use;
    return 0;
}

static int open_socket(const char *rest, const struct tw_transport_options *options,
                       struct tw_transport **out, tw_error *err) {
    char name[128], path[108];
    struct tw_link *link;
    if (!*rest) {
        return tw_fail(err, TW_E_NO_DEVICE,
                       "device socket: no name; use socket:NAME or socket:PATH");
    }
    if (tw_runtime_socket(rest, false, path, err)) {
        return TW_E_NO_DEVICE;
    }
    snprintf(name, sizeof name, "socket:%s", rest);
    int code = connect_and_open(name, path, options->deadline_ms, &link, err);
    if (code) {
        return code;
    }
    link->base.ops = &tw_transport_socket;
    *out = &link->base;
    return 0;
}

static int submit(struct tw_transport *t, const uint8_t *header, const void *payload,
                  uint32_t payload_bytes, tw_error *err) {
    int code = tw_link_submit(t, header, payload, payload_bytes, err);
    return code ? explain_silence(((struct tw_link *)t)->wiring.owner, code, err) : 0;
}

static int receive(struct tw_transport *t, uint8_t *header, const void **payload,
                   uint32_t *payload_bytes, tw_error *err) {
    int code = tw_link_receive(t, header, payload, payload_bytes, err);
    return code ? explain_silence(((struct tw_link *)t)->wiring.owner, code, err) : 0;
}

const struct tw_transport_ops tw_transport_socket = {
    .name = "socket",
    .discover = discover,
    .open = open_socket,
    .submit = submit,
    .receive = receive,
    .stuck = tw_link_is_stuck,
    .close = tw_link_close,
};
