/* SPDX-License-Identifier: Apache-2.0
 *
 * A PCIe device and its host in one process.
 */
#include "tests/support/pcie_bed.h"

#include "loader/base/event.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void die(const char *what, const tw_error *err) {
    fprintf(stderr, "pcie bed: %s: %s\n", what, err ? err->message : "");
    abort();
}

static uint8_t *pages(size_t bytes) {
    uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        die("no memory", NULL);
    }
    return p;
}

void pcie_bed_init(struct pcie_bed *b) {
    memset(b, 0, sizeof *b);
    b->bar2 = pages(PCIE_BED_BAR2);
    b->mailbox_bytes = tw_pcie_mailbox_bytes(TW_PCIE_SLOTS, TW_PCIE_SLOT_BYTES);
    b->mailbox = pages(b->mailbox_bytes);
    b->doorbell = tw_event_create();
    b->interrupt = tw_event_create();
    b->request = tw_event_create();
    b->mapped = true;
}

void pcie_bed_finish(struct pcie_bed *b) {
    munmap(b->bar2, PCIE_BED_BAR2);
    munmap(b->mailbox, b->mailbox_bytes);
    close(b->doorbell);
    close(b->interrupt);
    close(b->request);
}

struct tw_pcie_registers *pcie_bed_registers(struct pcie_bed *b) {
    return (struct tw_pcie_registers *)(void *)b->bar2;
}

/* ---- the device's side ---- */

/* A page at a time, as an IOMMU has it. */
static uint8_t *reach(void *ctx, uint64_t address, uint64_t *bytes, bool write) {
    struct pcie_bed *b = ctx;
    uint64_t at = address - (uintptr_t)b->mailbox;
    if (!b->mapped || (write && b->read_only) || at >= b->mailbox_bytes) {
        return NULL;
    }
    uint64_t left = b->mailbox_bytes - at, page = 4096 - address % 4096;
    *bytes = page < left ? page : left;
    return b->mailbox + at;
}

static void interrupt(void *ctx) {
    struct pcie_bed *b = ctx;
    atomic_fetch_add(&b->interrupts, 1);
    tw_event_signal(b->interrupt);
}

struct tw_pcie_device_options pcie_bed_options(struct pcie_bed *b) {
    return (struct tw_pcie_device_options){.access = {.bar2 = b->bar2,
                                                      .bar2_bytes = PCIE_BED_BAR2,
                                                      .doorbell = b->doorbell,
                                                      .reach = reach,
                                                      .interrupt = interrupt,
                                                      .ctx = b},
                                           .firmware_version = 0x000100,
                                           .dma_bits = 64};
}

static void *serve(void *arg) {
    tw_device_server_run(((struct pcie_bed *)arg)->socket, NULL);
    return NULL;
}

static void progress(void *ctx, struct tw_link_progress *p, uint32_t *generation) {
    tw_device_server_progress(ctx, p, generation);
}

void pcie_bed_serve(struct pcie_bed *b, const char *faults) {
    tw_error err = {0};
    struct tw_device_server_options o = {
        .emu = {.n_threads = 1, .memory_bytes = 256u << 20}, .faults = faults, .seed = 1};
    if (tw_device_server_create(&o, &b->socket, &err)) {
        die("no emulator", &err);
    }
    struct tw_pcie_device_options p = pcie_bed_options(b);
    p.progress = progress;
    p.ctx = b->socket;
    struct tw_medium *line =
        tw_pcie_device_create(&p, &b->medium, &err) ? NULL : tw_medium_create(b->medium);
    if (!line || tw_device_server_add_medium(b->socket, line, &err) ||
        pthread_create(&b->thread, NULL, serve, b)) {
        die("no device", &err);
    }
}

void pcie_bed_end(struct pcie_bed *b) {
    tw_device_server_stop(b->socket);
    pthread_join(b->thread, NULL);
    tw_device_server_destroy(b->socket);
}

/* ---- the host's side ---- */

static void ring(void *ctx) {
    struct pcie_bed *b = ctx;
    atomic_fetch_add(&b->rings, 1);
    if (!b->deaf) {
        tw_event_signal(b->doorbell);
    }
}

struct tw_pcie_side pcie_bed_side(struct pcie_bed *b, bool window, bool poll) {
    return (struct tw_pcie_side){.name = "pcie:bed",
                                 .bar2 = b->bar2,
                                 .bar2_bytes = PCIE_BED_BAR2,
                                 .mailbox = window ? NULL : b->mailbox,
                                 .mailbox_address = (uintptr_t)b->mailbox,
                                 .ring = ring,
                                 .interrupt = poll ? -1 : b->interrupt,
                                 .request = b->request,
                                 .ctx = b};
}

static const struct tw_transport_ops ops = {.name = "pcie-bed",
                                            .submit = tw_link_submit,
                                            .receive = tw_link_receive,
                                            .stuck = tw_link_is_stuck,
                                            .close = tw_link_close};

static int hello(tw_device *d, tw_error *err) {
    struct tw_wire_hello q = {.protocol_min = 1,
                              .protocol_max = 1,
                              .abi_major = TW_MACHINE_ABI_MAJOR,
                              .abi_minor = TW_MACHINE_ABI_MINOR};
    struct tw_device_call call = {.opcode = TW_WIRE_HELLO,
                                  .payload = &q,
                                  .bytes = sizeof q,
                                  .out = &d->identity,
                                  .out_bytes = sizeof d->identity};
    memset(&d->limits, 0xFF, sizeof d->limits); /* as of a device that does not say */
    return tw_device_call(d, &call, err);
}

int device_over_pipe(const char *name, struct tw_pipe *pipe, uint32_t deadline_ms, tw_device **out,
                     tw_error *err) {
    struct tw_link *link;
    int code = tw_link_open(name, pipe, deadline_ms, &link, err);
    if (code) {
        return code;
    }
    link->base.ops = &ops;
    tw_device *d = calloc(1, sizeof *d);
    if (!d) {
        die("no memory", NULL);
    }
    d->transport = &link->base;
    pthread_mutex_init(&d->lock, NULL);
    snprintf(d->selector, sizeof d->selector, "%s", name);
    code = hello(d, err);
    if (code) {
        tw_device_close(d);
        return code;
    }
    *out = d;
    return 0;
}

int pcie_bed_open(struct pcie_bed *b, bool window, bool poll, uint32_t deadline_ms, tw_device **out,
                  tw_error *err) {
    struct tw_pcie_side side = pcie_bed_side(b, window, poll);
    struct tw_pipe *pipe;
    b->mapped = true;
    int code = tw_pcie_pipe_create(&side, &pipe, err);
    return code ? code : device_over_pipe("pcie:bed", pipe, deadline_ms, out, err);
}

void pcie_bed_kill_host(struct pcie_bed *b, tw_device *device) {
    struct tw_link *link = (struct tw_link *)device->transport;
    b->mapped = false;
    link->wiring.pipe->ops->hang_up(link->wiring.pipe);
    tw_device_close(device);
}
