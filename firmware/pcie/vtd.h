/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates DMA addresses as Intel's IOMMU (VT-d, legacy mode) does, by the root, context and page
 * tables in the memory of a QEMU guest. The guest can write anything to the tables, so every read
 * is checked to lie in the mapped memory, and a walk ends after five levels. One thread at a time.
 */
#ifndef TW_FIRMWARE_PCIE_VTD_H
#define TW_FIRMWARE_PCIE_VTD_H

#include "tilewright/error.h"

#include <stdbool.h>
#include <stdint.h>

struct tw_vtd {
    uint8_t *ram;       /* the guest's RAM, mapped from physical address 0 on */
    uint64_t ram_bytes; /* a multiple of 4096 */
    bool on;            /* false: addresses are physical */
    uint64_t root;      /* register RTADDR */
    uint16_t requester; /* bus << 8 | device << 3 | function */
};

/* Returns the memory at a DMA address; *bytes of it, to the end of its page, are contiguous. NULL:
 * the tables do not allow the requester to read (or write) there, or there is no memory. */
uint8_t *tw_vtd_translate(const struct tw_vtd *v, uint64_t address, uint64_t *bytes, bool write);

/* Sets `on` and `root` from the registers of the IOMMU at its usual address, which it reads through
 * QEMU's monitor (HMP) at a UNIX socket. Waits at most two seconds. Errors: IO. */
int tw_vtd_read_registers(struct tw_vtd *v, const char *monitor, tw_error *err);

#endif
