/* SPDX-License-Identifier: Apache-2.0
 *
 * A PCIe device and its host in one process: BAR2 is memory that both see, a DMA address is a
 * pointer's value, interrupts and doorbells are eventfds. Either side can be taken away.
 */
#ifndef TW_TESTS_SUPPORT_PCIE_BED_H
#define TW_TESTS_SUPPORT_PCIE_BED_H

#include "driver/device/device.h"
#include "driver/transport/link/link_client.h"
#include "driver/transport/pcie/pcie_host_pipe.h"
#include "firmware/pcie/pcie_device.h"
#include "firmware/serve/device_server.h"

#include <pthread.h>
#include <stdatomic.h>

#define PCIE_BED_BAR2 (8u << 20)

struct pcie_bed {
    uint8_t *bar2;    /* PCIE_BED_BAR2 */
    uint8_t *mailbox; /* the host's memory that the device can reach */
    uint64_t mailbox_bytes;
    int doorbell, interrupt, request;
    _Atomic bool mapped, read_only; /* the mailbox, for the device */
    _Atomic uint32_t interrupts, rings;
    bool deaf; /* doorbells are lost */

    struct tw_pipe *medium; /* the device's side */
    struct tw_device_server *socket;
    pthread_t thread;
};

/* Creates memory and descriptors, without a device. Aborts the test if it cannot. */
void pcie_bed_init(struct pcie_bed *b);
void pcie_bed_finish(struct pcie_bed *b);

/* Creates the device's side as a bare medium. */
struct tw_pcie_device_options pcie_bed_options(struct pcie_bed *b);
/* Serves a whole emulator with memory_bytes of memory on a thread of its own. */
void pcie_bed_serve(struct pcie_bed *b, const char *faults);
/* Stops serving. */
void pcie_bed_end(struct pcie_bed *b);

/* The host side's access to the device. poll: without interrupts. */
struct tw_pcie_side pcie_bed_side(struct pcie_bed *b, bool window, bool poll);
/* Opens a device over a link over the pipe, which it then owns, and sends HELLO; returns the
 * code. */
int device_over_pipe(const char *name, struct tw_pipe *pipe, uint32_t deadline_ms, tw_device **out,
                     tw_error *err);
/* The same over the bed's pipe. */
int pcie_bed_open(struct pcie_bed *b, bool window, bool poll, uint32_t deadline_ms, tw_device **out,
                  tw_error *err);
/* Simulates kill -9 of the host: nothing is sent, and its memory is unmapped. */
void pcie_bed_kill_host(struct pcie_bed *b, tw_device *device);

struct tw_pcie_registers *pcie_bed_registers(struct pcie_bed *b);

#endif
