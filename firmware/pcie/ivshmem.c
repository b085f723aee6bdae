/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread waits for QEMU, sends it the memory and the eventfds (docs/specs/ivshmem-spec.txt of
 * QEMU), and detects when it ends: from then on no guest memory is accessed. The RAM file is opened
 * when a guest's driver starts the device, because QEMU creates it after it has connected.
 */
#include "firmware/pcie/ivshmem.h"

#include "firmware/pcie/vtd.h"
#include "loader/base/event.h"
#include "loader/base/file_limit.h"
#include "loader/base/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* above it, offsets in QEMU's file differ from guest addresses */
#define RAM_MAX (UINT64_C(2) << 30)
#define DMA_BITS 48 /* what four levels of tables translate */
#define GUEST_ID 0
#define OUR_ID 1

struct ivshmem {
    struct tw_listen listen;
    char *ram_path, *monitor; /* or NULL */
    int wake;
    int memory, doorbell, interrupt;
    uint8_t *bar2;
    struct tw_vtd vtd; /* used by the caller of reach and renew */
    _Atomic bool connected;
    bool running;
    pthread_t thread;
};

/* ---- guest memory ---- */

static void unmap_ram(struct ivshmem *v) {
    if (v->vtd.ram) {
        munmap(v->vtd.ram, v->vtd.ram_bytes);
    }
    v->vtd.ram = NULL;
    v->vtd.ram_bytes = 0;
}

static int map_ram(struct ivshmem *v) {
    struct stat st;
    int fd = open(v->ram_path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return TW_E_IO;
    }
    bool fits = fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size % 4096 == 0 &&
                (uint64_t)st.st_size <= RAM_MAX;
    void *p = fits ? mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                   : MAP_FAILED;
    close(fd);
    if (p == MAP_FAILED) {
        return TW_E_IO;
    }
    v->vtd.ram = p;
    v->vtd.ram_bytes = (uint64_t)st.st_size;
    return 0;
}

/* Maps the guest's RAM again: a driver has started, perhaps in another guest. */
static int renew(void *ctx) {
    struct ivshmem *v = ctx;
    unmap_ram(v);
    if (!v->ram_path || !atomic_load(&v->connected)) {
        return 0;
    }
    int code = map_ram(v);
    return code || !v->monitor ? code : tw_vtd_read_registers(&v->vtd, v->monitor, NULL);
}

static uint8_t *reach(void *ctx, uint64_t address, uint64_t *bytes, bool write) {
    const struct ivshmem *v = ctx;
    return v->vtd.ram && atomic_load(&v->connected)
               ? tw_vtd_translate(&v->vtd, address, bytes, write)
               : NULL;
}

static void interrupt(void *ctx) {
    tw_event_signal(((struct ivshmem *)ctx)->interrupt);
}

/* ---- QEMU ---- */

/* Sends QEMU a number and a descriptor (-1: none). */
static bool send_to_qemu(int to, int64_t value, int fd) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)((uint64_t)value >> 8 * i);
    }
    struct iovec io = {bytes, sizeof bytes};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    return sendmsg(to, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof bytes;
}

/* Sends the protocol version, QEMU's peer number and the memory; then, a message each, the vectors:
 * ours, which it rings, and its own. */
static bool send_setup(struct ivshmem *v, int qemu) {
    tw_event_clear(v->interrupt); /* clears a ring meant for an earlier guest */
    return send_to_qemu(qemu, 0, -1) && send_to_qemu(qemu, GUEST_ID, -1) &&
           send_to_qemu(qemu, -1, v->memory) && send_to_qemu(qemu, OUR_ID, v->doorbell) &&
           send_to_qemu(qemu, GUEST_ID, v->interrupt);
}

/* QEMU never sends anything, so the socket is readable only at its end. */
static bool has_ended(int qemu) {
    char byte;
    ssize_t n = recv(qemu, &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* Ends the device's use by a guest whose QEMU has exited. The device notices that a mailbox in
 * guest memory is no longer mapped; one in the window still is, so this writes what the guest's
 * driver would have written to end it: a start without a mailbox. */
static void end_host(struct ivshmem *v) {
    struct tw_pcie_registers *r = (void *)v->bar2;
    uint32_t start = tw_pcie_load(&r->start) + 1;
    atomic_store(&v->connected, false);
    tw_pcie_store(&r->mailbox_kind, TW_PCIE_NONE);
    tw_pcie_store(&r->start, start ? start : 1);
    tw_event_signal(v->doorbell);
}

static int accept_qemu(struct ivshmem *v, int qemu) {
    int fd = tw_listen_accept(&v->listen, 0);
    if (fd < 0 || qemu >= 0 || !send_setup(v, fd)) {
        if (fd >= 0) {
            close(fd); /* another QEMU is connected, or this one has gone again */
        }
        return qemu;
    }
    atomic_store(&v->connected, true);
    return fd;
}

static void *serve(void *arg) {
    struct ivshmem *v = arg;
    int qemu = -1;
    struct pollfd p[] = {
        {.fd = v->wake, .events = POLLIN}, {.fd = v->listen.fd, .events = POLLIN}, {.fd = -1}};
    while (!(p[0].revents & POLLIN)) {
        p[2] = (struct pollfd){.fd = qemu, .events = POLLIN};
        if (poll(p, 3, -1) < 0) {
            continue; /* a signal */
        }
        if (p[2].revents && has_ended(qemu)) {
            end_host(v);
            close(qemu);
            qemu = -1;
        }
        if (p[1].revents) {
            qemu = accept_qemu(v, qemu);
        }
    }
    if (qemu >= 0) {
        close(qemu);
    }
    return NULL;
}

/* ---- creation and end ---- */

static void close_fd(int fd) {
    if (fd >= 0) {
        close(fd);
    }
}

static void destroy(void *ctx) {
    struct ivshmem *v = ctx;
    if (v->running) {
        tw_event_signal(v->wake);
        pthread_join(v->thread, NULL);
    }
    tw_listen_end(&v->listen);
    unmap_ram(v);
    if (v->bar2) {
        munmap(v->bar2, TW_IVSHMEM_BAR2);
    }
    const int fds[] = {v->wake, v->memory, v->doorbell, v->interrupt};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        close_fd(fds[i]);
    }
    free(v->ram_path);
    free(v->monitor);
    free(v);
}

/* Creates BAR2 and the eventfds. The memory is sealed: QEMU must not shrink it under us. */
static int make_memory(struct ivshmem *v, const char *path, tw_error *err) {
    v->memory = memfd_create("tilewright-bar2", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (!tw_file_size_allowed(TW_IVSHMEM_BAR2)) {
        return tw_fail(
            err, TW_E_NOMEM,
            "ivshmem %s: cannot create BAR2: the file size limit (ulimit -f) is below its 64 MiB",
            path);
    }
    if (v->memory < 0 || ftruncate(v->memory, TW_IVSHMEM_BAR2) ||
        fcntl(v->memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        return tw_fail(err, TW_E_NOMEM, "ivshmem %s: cannot create BAR2: %s", path,
                       strerror(errno));
    }
    void *p = mmap(NULL, TW_IVSHMEM_BAR2, PROT_READ | PROT_WRITE, MAP_SHARED, v->memory, 0);
    if (p == MAP_FAILED) {
        return tw_fail(err, TW_E_NOMEM, "ivshmem %s: cannot map BAR2: %s", path, strerror(errno));
    }
    v->bar2 = p;
    v->doorbell = tw_event_create();
    v->interrupt = tw_event_create();
    v->wake = tw_event_create();
    return v->doorbell < 0 || v->interrupt < 0 || v->wake < 0
               ? tw_fail(err, TW_E_IO, "ivshmem %s: cannot create an eventfd: %s", path,
                         strerror(errno))
               : 0;
}

static int copy_options(struct ivshmem *v, const struct tw_ivshmem_options *o, tw_error *err) {
    v->ram_path = o->ram ? strdup(o->ram) : NULL;
    v->monitor = o->monitor ? strdup(o->monitor) : NULL;
    v->vtd.requester = o->requester;
    bool failed = (o->ram && !v->ram_path) || (o->monitor && !v->monitor);
    return failed ? tw_fail(err, TW_E_NOMEM, "ivshmem %s: out of memory", o->path) : 0;
}

static int start(struct ivshmem *v, const struct tw_ivshmem_options *o, tw_error *err) {
    int code = copy_options(v, o, err);
    code = code ? code : make_memory(v, o->path, err);
    code = code ? code : tw_listen_begin(&v->listen, "ivshmem", o->path, SOCK_STREAM, err);
    if (!code && pthread_create(&v->thread, NULL, serve, v)) {
        code = tw_fail(err, TW_E_INTERNAL, "ivshmem %s: cannot create a thread", o->path);
    }
    v->running = !code;
    return code;
}

int tw_ivshmem_open(const struct tw_ivshmem_options *o, struct tw_pcie_access *out, tw_error *err) {
    struct ivshmem *v = calloc(1, sizeof *v);
    if (!v) {
        return tw_fail(err, TW_E_NOMEM, "ivshmem %s: out of memory", o->path);
    }
    v->listen.fd = v->listen.lock = v->wake = v->memory = v->doorbell = v->interrupt = -1;
    int code = start(v, o, err);
    if (code) {
        destroy(v);
        return code;
    }
    *out = (struct tw_pcie_access){.bar2 = v->bar2,
                                   .bar2_bytes = TW_IVSHMEM_BAR2,
                                   .doorbell = v->doorbell,
                                   .reach = reach,
                                   .renew = renew,
                                   .interrupt = interrupt,
                                   .close = destroy,
                                   .ctx = v};
    return 0;
}

int tw_ivshmem_create(const struct tw_ivshmem_options *o,
                      const struct tw_pcie_device_options *device, struct tw_pipe **pipe,
                      tw_error *err) {
    struct tw_pcie_device_options d = *device;
    d.dma_bits = DMA_BITS;
    int code = tw_ivshmem_open(o, &d.access, err);
    return code ? code : tw_pcie_device_create(&d, pipe, err);
}
