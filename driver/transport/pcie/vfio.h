/* SPDX-License-Identifier: Apache-2.0
 *
 * A PCI function in the hands of this process, by Linux's VFIO (container, group, device): BARs
 * mapped, memory for DMA, MSI-X vector 0 and the kernel's request to give the device back as
 * eventfds. Errors tell the command that mends them.
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
    struct tw_iova_range *offer; /* what the IOMMU translates */
    size_t n_offer;
    struct tw_iova iova; /* after tw_vfio_set_reach */
    struct {
        uint64_t bytes, offset; /* of it in the device's file; bytes 0: there is none */
        bool mappable;
        uint8_t *mapped; /* or NULL */
    } bar[TW_VFIO_BARS];
    bool can_reset;
    int interrupt, request; /* eventfds; -1: there is none */
};

/* Takes the function that tw_vfio_probe finds ready, and turns memory access and DMA on. Errors:
 * NO_DEVICE (what stands in the way, with its remedy), DEVICE_BUSY (another process has the group),
 * IO, NOMEM. */
int tw_vfio_open(struct tw_vfio *v, const char *name, const char *bdf, tw_error *err);
/* Gives everything back; legal after a failed open. */
void tw_vfio_close(struct tw_vfio *v);

/* bar[index].mapped. Errors: IO. */
int tw_vfio_map_bar(struct tw_vfio *v, uint32_t index, tw_error *err);
/* A 32-bit word into a BAR, mapped or not. */
void tw_vfio_poke(struct tw_vfio *v, uint32_t index, uint64_t offset, uint32_t value);

/* The device reaches DMA addresses below 2^bits. Before tw_vfio_share. Errors: NOMEM (nothing in
 * both). */
int tw_vfio_set_reach(struct tw_vfio *v, uint32_t bits, tw_error *err);
/* Zeroed memory that the device can read and write at *address. Errors: NOMEM (memory, addresses,
 * or the memlock limit: have and need). */
int tw_vfio_share(struct tw_vfio *v, uint64_t bytes, uint8_t **memory, uint64_t *address,
                  tw_error *err);
void tw_vfio_unshare(struct tw_vfio *v, uint64_t bytes, uint8_t *memory, uint64_t address);

/* Makes `interrupt` and `request` where the device and the kernel have them. Errors: IO. */
int tw_vfio_listen(struct tw_vfio *v, tw_error *err);
/* VFIO_DEVICE_RESET. */
bool tw_vfio_reset(struct tw_vfio *v);

#endif
