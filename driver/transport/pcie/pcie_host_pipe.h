/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's side of tilewright/pcie.h as a pipe, over memory that vfio.h has mapped, or that a
 * test provides. Everything the device writes is checked; invalid values end the pipe.
 */
#ifndef TW_DRIVER_TRANSPORT_PCIE_PCIE_HOST_PIPE_H
#define TW_DRIVER_TRANSPORT_PCIE_PCIE_HOST_PIPE_H

#include "firmware/link/pipe.h"
#include "tilewright/error.h"
#include "tilewright/pcie.h"

#define TW_PCIE_SLOTS 16u
#define TW_PCIE_SLOT_BYTES (17u * 4096u) /* the smallest there is */
TW_STATIC_ASSERT(TW_PCIE_SLOT_BYTES >= TW_LINK_HEADER_BYTES + TW_PCIE_CHUNK, "pcie slot");

struct tw_pcie_side {
    const char *name; /* "pcie:0000:00:02.0"; begins every error; copied */
    uint8_t *bar2;    /* mapped; 4096-byte aligned */
    uint64_t bar2_bytes;
    /* tw_pcie_mailbox_bytes(TW_PCIE_SLOTS, TW_PCIE_SLOT_BYTES) of host memory; NULL: in the
     * window */
    uint8_t *mailbox;
    uint64_t mailbox_address; /* its DMA address */
    void (*ring)(void *ctx);  /* the doorbell */
    /* eventfd of MSI-X vector 0; -1: there is none, poll */
    int interrupt;
    int request;              /* eventfd: the kernel reclaims the device; -1: none */
    bool (*reset)(void *ctx); /* the device's hardware reset; NULL: it has none */
    void (*close)(void *ctx); /* unmaps everything; or NULL */
    void *ctx;
};

/* Checks that it is a Tilewright device and starts it. The pipe owns side->ctx from then on and
 * calls side->close at its end, also on error. Errors: NO_DEVICE (not a Tilewright device),
 * VERSION, FAULT (in recovery, with its reason; it cannot access the mailbox), PROTOCOL,
 * DEVICE_LOST (no answer), NOMEM. */
int tw_pcie_pipe_create(const struct tw_pcie_side *side, struct tw_pipe **out, tw_error *err);

#endif
