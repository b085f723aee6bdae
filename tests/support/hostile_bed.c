/* SPDX-License-Identifier: Apache-2.0
 *
 * A device served by a child process, and connections to it over each medium (hostile_bed.h).
 */
#include "tests/support/hostile_bed.h"

#include "driver/transport/pcie/pcie_host_pipe.h"
#include "firmware/pcie/ivshmem.h"
#include "loader/base/clock.h"
#include "loader/base/event.h"
#include "tests/support/socket_device.h"
#include "tilewright/emulate.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const hostile_medium_name[HOSTILE_MEDIA] = {"socket", "usbredir", "ivshmem"};

static void die(const char *what, const char *why) {
    fprintf(stderr, "hostile bed: %s: %s\n", what, why);
    abort();
}

/* ---- the server ---- */

/* Defined by the leak sanitizer; NULL without it. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static volatile sig_atomic_t stop;
static unsigned n_ready;

static void on_term(int signal_number) {
    (void)signal_number;
    stop = 1;
}

static void report_ready(void *ctx, const char *endpoint) {
    (void)endpoint;
    if (++n_ready == HOSTILE_MEDIA && write(*(const int *)ctx, "r", 1) != 1) {
        _exit(1);
    }
}

static void serve(const struct hostile_bed *b, int ready) {
    struct sigaction a = {.sa_flags = 0};
    a.sa_handler = on_term;
    sigaction(SIGTERM, &a, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "test-emulator");
    struct tw_emulate_options o = {.size = sizeof o,
                                   .path = b->path[HOSTILE_SOCKET],
                                   .usbredir = b->path[HOSTILE_USBREDIR],
                                   .ivshmem = b->path[HOSTILE_IVSHMEM],
                                   .guest_ram = b->ram,
                                   .n_threads = 2,
                                   .memory_bytes = 64u << 20,
                                   .ready = report_ready,
                                   .ctx = &ready};
    tw_error err = {0};
    int code = tw_emulate(&o, &stop, &err);
    if (code) {
        fprintf(stderr, "hostile bed: the server ended: %s\n", err.message);
    }
    bool leaks = __lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check();
    _exit(code ? 1 : leaks ? 23 : 0);
}

static void make_ram(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, HOSTILE_RAM)) {
        die(path, strerror(errno));
    }
    close(fd);
}

void hostile_bed_start(struct hostile_bed *b) {
    const char *folder = getenv("XDG_RUNTIME_DIR");
    int fd[2];
    char byte;
    memset(b, 0, sizeof *b);
    for (int m = 0; m < HOSTILE_MEDIA; m++) {
        snprintf(b->path[m], sizeof b->path[m], "%.80s/%s", folder, hostile_medium_name[m]);
    }
    snprintf(b->ram, sizeof b->ram, "%.80s/ram", folder);
    make_ram(b->ram);
    if (pipe2(fd, O_CLOEXEC)) {
        die("no pipe", strerror(errno));
    }
    b->pid = fork();
    if (b->pid == 0) {
        close(fd[0]);
        serve(b, fd[1]);
    }
    close(fd[1]);
    if (b->pid < 0 || read(fd[0], &byte, 1) != 1) {
        die("the server did not start", strerror(errno));
    }
    close(fd[0]);
}

bool hostile_bed_lives(const struct hostile_bed *b) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)b->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

int hostile_bed_end(struct hostile_bed *b) {
    kill(b->pid, SIGTERM);
    int status = child_wait(b->pid);
    unlink(b->ram);
    return status;
}

/* ---- sockets ---- */

static int connect_to(const char *path, int type) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof a)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool open_socket(const struct hostile_bed *b, struct hostile_line *l) {
    int fd = connect_to(b->path[HOSTILE_SOCKET], SOCK_SEQPACKET);
    if (fd >= 0) {
        fcntl(fd, F_SETFL, O_NONBLOCK);
        l->pipe = tw_pipe_socket(fd);
    }
    return l->pipe != NULL;
}

/* ---- usbredir ---- */

/* One QEMU at a time: the server closes a connection that comes too early. */
static bool connect_usb(const struct hostile_bed *b, struct hostile_line *l) {
    if (!peer_connect(&l->peer, b->path[HOSTILE_USBREDIR])) {
        return false;
    }
    l->has_peer = true;
    for (uint64_t end = tw_clock_ms() + 5000; !l->peer.connected && !l->peer.gone;) {
        peer_turn(&l->peer, 50);
        if (tw_clock_ms() > end) {
            break;
        }
    }
    return l->peer.connected && !l->peer.gone;
}

static bool open_usb(const struct hostile_bed *b, struct hostile_line *l) {
    if (!connect_usb(b, l) || peer_configure(&l->peer, 1) != 0) {
        return false;
    }
    l->pipe = peer_pipe(&l->peer, 66560);
    return true;
}

/* ---- ivshmem ---- */

/* Receives the next number, and the descriptor sent with it, or -1. */
static bool receive_number(int fd, int64_t *value, int *passed) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec io = {value, sizeof *value};
    struct msghdr m = {.msg_iov = &io,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    *passed = -1;
    if (poll(&p, 1, 5000) != 1 || recvmsg(fd, &m, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *value) {
        return false;
    }
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_type == SCM_RIGHTS) {
        memcpy(passed, CMSG_DATA(c), sizeof *passed);
    }
    return true;
}

static uint8_t *map_fd(int fd, size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

static bool connect_ivshmem(const struct hostile_bed *b, struct hostile_line *l) {
    int64_t value;
    int none, memory = -1, ram = open(b->ram, O_RDWR | O_CLOEXEC);
    l->qemu = connect_to(b->path[HOSTILE_IVSHMEM], SOCK_STREAM);
    if (ram >= 0) {
        l->ram = map_fd(ram, HOSTILE_RAM);
    }
    bool ok = l->qemu >= 0 && receive_number(l->qemu, &value, &none) &&
              receive_number(l->qemu, &value, &none) && receive_number(l->qemu, &value, &memory) &&
              receive_number(l->qemu, &value, &l->doorbell) &&
              receive_number(l->qemu, &value, &l->interrupt);
    if (memory >= 0) {
        l->bar2 = map_fd(memory, TW_IVSHMEM_BAR2);
    }
    return ok && l->bar2 && l->ram;
}

static void ring(void *ctx) {
    tw_event_signal(((struct hostile_line *)ctx)->doorbell);
}

static bool open_ivshmem(const struct hostile_bed *b, bool window, struct hostile_line *l) {
    tw_error err = {0};
    if (!connect_ivshmem(b, l)) {
        return false;
    }
    struct tw_pcie_side side = {.name = "pcie:hostile",
                                .bar2 = l->bar2,
                                .bar2_bytes = TW_IVSHMEM_BAR2,
                                .mailbox = window ? NULL : l->ram,
                                .mailbox_address = 0,
                                .ring = ring,
                                .interrupt = l->interrupt,
                                .request = -1,
                                .ctx = l};
    return tw_pcie_pipe_create(&side, &l->pipe, &err) == 0;
}

/* ---- connections ---- */

static bool try_once(const struct hostile_bed *b, enum hostile_medium medium, bool with_pipe,
                     bool window, struct hostile_line *l) {
    memset(l, 0, sizeof *l);
    l->medium = medium;
    l->qemu = l->doorbell = l->interrupt = -1;
    switch (medium) {
    case HOSTILE_SOCKET:
        return open_socket(b, l);
    case HOSTILE_USBREDIR:
        return with_pipe ? open_usb(b, l) : connect_usb(b, l);
    case HOSTILE_IVSHMEM:
        return with_pipe ? open_ivshmem(b, window, l) : connect_ivshmem(b, l);
    case HOSTILE_MEDIA:
        break;
    }
    return false;
}

static bool connect_within(const struct hostile_bed *b, enum hostile_medium medium, bool with_pipe,
                           bool window, struct hostile_line *l) {
    uint64_t end = tw_clock_ms() + 60000;
    while (!try_once(b, medium, with_pipe, window, l)) {
        hostile_line_close(l);
        if (tw_clock_ms() > end || !hostile_bed_lives(b)) {
            return false;
        }
        usleep(2000);
    }
    return true;
}

bool hostile_line_open(const struct hostile_bed *b, enum hostile_medium medium, bool window,
                       struct hostile_line *out) {
    return connect_within(b, medium, true, window, out);
}

bool hostile_line_connect(const struct hostile_bed *b, enum hostile_medium medium,
                          struct hostile_line *out) {
    return connect_within(b, medium, false, false, out);
}

void hostile_line_close(struct hostile_line *l) {
    if (l->has_peer) {
        peer_close(&l->peer);
    }
    int fds[] = {l->qemu, l->doorbell, l->interrupt};
    for (int i = 0; l->medium == HOSTILE_IVSHMEM && i < 3; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    if (l->bar2) {
        munmap(l->bar2, TW_IVSHMEM_BAR2);
    }
    if (l->ram) {
        munmap(l->ram, HOSTILE_RAM);
    }
    l->has_peer = false;
    l->bar2 = l->ram = NULL;
    l->qemu = l->doorbell = l->interrupt = -1;
}
