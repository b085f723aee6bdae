/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's side of tilewright/pcie.h as a medium (firmware/link/medium.h). How the host's
 * memory is reached and how it is interrupted is the business of an access seam: QEMU's guest
 * (ivshmem.h, vtd.h), a test's own memory, or the endpoint controller of a board. Whatever the host
 * writes is checked; what makes no sense lets the mailbox go and is told in the `fault` register.
 */
#ifndef TW_FIRMWARE_PCIE_PCIE_DEVICE_H
#define TW_FIRMWARE_PCIE_PCIE_DEVICE_H

#include "firmware/link/pipe.h"
#include "tilewright/error.h"
#include "tilewright/pcie.h"

/* Register `alive` and `progress` are renewed so often while the device is started. */
#define TW_PCIE_STATUS_MS 20u

struct tw_pcie_access {
    uint8_t *bar2; /* shared with the host, 4096-byte aligned: registers, then the window */
    uint64_t bar2_bytes;
    int doorbell; /* eventfd; the host's bell, and the device rings it itself to be looked at */
    /* Host memory at a DMA address: *bytes of it are there in one piece (at least 1). NULL: the
     * device may not read (or write) there. What it gives is valid until the next call of reach,
     * renew or close; they are called one at a time. */
    uint8_t *(*reach)(void *ctx, uint64_t address, uint64_t *bytes, bool write);
    /* A host has started: forget what is known of it. 0, or a code for the `fault` register. Or
     * NULL. */
    int (*renew)(void *ctx);
    void (*interrupt)(void *ctx); /* MSI-X vector 0 */
    void (*close)(void *ctx);     /* or NULL */
    void *ctx;
};

struct tw_pcie_device_options {
    struct tw_pcie_access access;
    uint32_t firmware_version;
    uint32_t dma_bits;  /* it reaches host addresses below 2^dma_bits; 12 .. 64 */
    const char *reason; /* why the device is in recovery; NULL: it runs */
    /* What a PING would be answered and the generation of the present open
     * (tw_device_server_progress). Called without locks from a thread of the device. Or NULL. */
    void (*progress)(void *ctx, struct tw_link_progress *progress, uint32_t *generation);
    void *ctx;
};

/* Fills the registers and waits for a host. The pipe's close() ends the device: `magic` becomes 0,
 * access.close is called. Errors: USAGE (BAR2 is too small, dma_bits), NOMEM, INTERNAL (no thread);
 * access.close is called then. */
int tw_pcie_device_create(const struct tw_pcie_device_options *options, struct tw_pipe **out,
                          tw_error *err);

#endif
