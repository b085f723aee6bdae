/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's side of tilewright/pcie.h as a medium (firmware/link/medium.h). struct
 * tw_pcie_access hides how the host's memory is accessed and how the host is interrupted: a guest
 * in QEMU (ivshmem.h, vtd.h), a test's own memory, or the endpoint controller of a board.
 * Everything that the host writes is checked; if it is invalid, the mailbox is released and the
 * `fault` register says why.
 */
#ifndef TW_FIRMWARE_PCIE_PCIE_DEVICE_H
#define TW_FIRMWARE_PCIE_PCIE_DEVICE_H

#include "firmware/link/pipe.h"
#include "tilewright/error.h"
#include "tilewright/pcie.h"

/* Period in ms at which the registers `alive` and `progress` are updated while a host has
 * started. */
#define TW_PCIE_STATUS_MS 20u

/* Access to the host. `reach` and `renew` are called one at a time. */
struct tw_pcie_access {
    uint8_t *bar2; /* shared with the host, 4096-byte aligned: registers, then the window */
    uint64_t bar2_bytes;
    int doorbell; /* eventfd, rung by the host; the device also rings it to make take() run */
    /* Returns the host's memory at a DMA address; *bytes (at least 1) of it are contiguous. NULL:
     * the device may not read (or write) there. Valid until the next call of reach, renew or
     * close. */
    uint8_t *(*reach)(void *ctx, uint64_t address, uint64_t *bytes, bool write);
    /* Discards what is known of the host's memory: a host has started. Returns 0, or a code for the
     * `fault` register. May be NULL. */
    int (*renew)(void *ctx);
    void (*interrupt)(void *ctx); /* MSI-X vector 0 */
    void (*close)(void *ctx);     /* or NULL */
    void *ctx;
};

struct tw_pcie_device_options {
    struct tw_pcie_access access;
    uint32_t firmware_version;
    uint32_t dma_bits;  /* DMA reaches host addresses below 2^dma_bits; 12 .. 64 */
    const char *reason; /* why the device is in recovery; NULL: it is not */
    /* Returns what a PING would be answered and the generation of the current open (as
     * tw_device_server_progress). Called without locks from the status thread. May be NULL. */
    void (*progress)(void *ctx, struct tw_link_progress *progress, uint32_t *generation);
    void *ctx;
};

/* Creates the device: fills in the registers and waits for a host. The returned pipe is for
 * tw_medium_create. Its close() ends the device: it sets `magic` to 0 and calls access.close.
 * Errors: USAGE (BAR2 is too small; dma_bits), NOMEM, INTERNAL (no thread); access.close is called
 * then. */
int tw_pcie_device_create(const struct tw_pcie_device_options *options, struct tw_pipe **out,
                          tw_error *err);

#endif
