/* SPDX-License-Identifier: Apache-2.0
 *
 * A PCI function opened by this process through Linux's VFIO (container, group, device): mapped
 * BARs, memory for DMA, and eventfds for MSI-X vector 0 and for the kernel's request to release the
 * device. Errors name the command that fixes them. One thread at a time, except tw_vfio_write32().
 */
#ifndef TW_DRIVER_TRANSPORT_PCIE_VFIO_H
#define TW_DRIVER_TRANSPORT_PCIE_VFIO_H

#include "driver/transport/pcie/iova.h"
#include "driver/transport/pcie/vfio_probe.h"

#define TW_VFIO_BARS 6u

struct tw_vfio {
    char name[96]; /* "pcie:0000:00:02.0"; begins every error */
    int container, group, device;
    uint64_t iommu_sizes;
    struct tw_iova_range *ranges; /* what the IOMMU translates */
    size_t n_ranges;
    struct tw_iova iova; /* after tw_vfio_set_dma_bits */
    struct {
        uint64_t bytes, offset; /* size, and offset in the device's file; bytes 0: none */
        bool mappable;
        uint8_t *mapped; /* or NULL */
    } bar[TW_VFIO_BARS];
    bool can_reset;
    int interrupt, request; /* eventfds; -1: there is none */
};

/* Opens a function that tw_vfio_probe() finds ready, and enables memory access and DMA. `name`
 * begins error messages. Errors: NO_DEVICE (the obstacle, with its remedy), DEVICE_BUSY (another
 * process has the group open), IO, NOMEM. */
int tw_vfio_open(struct tw_vfio *v, const char *name, const char *bdf, tw_error *err);
/* Unmaps and closes everything; legal after a failed open. */
void tw_vfio_close(struct tw_vfio *v);

/* Maps a BAR and sets bar[index].mapped. Errors: IO. */
int tw_vfio_map_bar(struct tw_vfio *v, uint32_t index, tw_error *err);
/* Writes a 32-bit word to a BAR, mapped or not. Any thread. */
void tw_vfio_write32(struct tw_vfio *v, uint32_t index, uint64_t offset, uint32_t value);

/* Sets the range of DMA addresses to those below 2^bits that the IOMMU translates. Call it before
 * tw_vfio_share(). Errors: PROTOCOL (bits out of range), NOMEM (no such address). */
int tw_vfio_set_dma_bits(struct tw_vfio *v, uint32_t bits, tw_error *err);
/* Allocates zeroed memory that the device can read and write at DMA address *address. The caller's:
 * tw_vfio_unshare(). Errors: NOMEM (memory, addresses, or the memlock limit, with have and
 * need). */
int tw_vfio_share(struct tw_vfio *v, uint64_t bytes, uint8_t **memory, uint64_t *address,
                  tw_error *err);
/* Frees memory of tw_vfio_share(). */
void tw_vfio_unshare(struct tw_vfio *v, uint64_t bytes, uint8_t *memory, uint64_t address);

/* Creates the eventfds `interrupt` and `request`, if device and kernel support them. Errors: IO. */
int tw_vfio_listen(struct tw_vfio *v, tw_error *err);
/* Resets the function (VFIO_DEVICE_RESET). Returns false if that failed or is not supported. */
bool tw_vfio_reset(struct tw_vfio *v);

#endif
