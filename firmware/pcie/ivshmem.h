/* SPDX-License-Identifier: Apache-2.0
 *
 * The PCIe device in a QEMU guest: the server of an ivshmem-doorbell device and its only other
 * peer. BAR2 is memory that is shared with QEMU, doorbells and interrupts are eventfds, and DMA
 * accesses the file that holds the guest's RAM, through the guest's IOMMU tables.
 */
#ifndef TW_FIRMWARE_PCIE_IVSHMEM_H
#define TW_FIRMWARE_PCIE_IVSHMEM_H

#include "firmware/pcie/pcie_device.h"

#define TW_IVSHMEM_BAR2 (64u << 20)

struct tw_ivshmem_options {
    const char *path; /* of the socket for -chardev socket,path=...; a stale one is replaced */
    /* file of -object memory-backend-file,share=on, at most 2 GiB; NULL: no DMA, only the window */
    const char *ram;
    /* UNIX socket of the HMP monitor; NULL: there is no IOMMU, addresses are physical */
    const char *monitor;
    uint16_t requester; /* bus << 8 | device << 3 | function of the ivshmem device */
};

/* Opens only the access functions; out->close closes them. One QEMU at a time may connect; when it
 * ends, the next may. Errors: as tw_ivshmem_create. */
int tw_ivshmem_open(const struct tw_ivshmem_options *options, struct tw_pcie_access *out,
                    tw_error *err);
/* Creates the PCIe device over these functions and returns the pipe for tw_medium_create, which the
 * caller closes. access and dma_bits of `device` are set here. Errors: DEVICE_BUSY (names the
 * process that serves this path), USAGE (path too long), IO, NOMEM, INTERNAL (no thread). */
int tw_ivshmem_create(const struct tw_ivshmem_options *options,
                      const struct tw_pcie_device_options *device, struct tw_pipe **pipe,
                      tw_error *err);

#endif
