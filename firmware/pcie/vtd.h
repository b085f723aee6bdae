/* SPDX-License-Identifier: Apache-2.0
 *
 * Intel's IOMMU (VT-d, legacy mode) read as a device's DMA would meet it: root, context and page
 * tables in the memory of a QEMU guest. The tables are the guest's and may hold anything: every
 * read stays inside of the mapped memory, and a walk ends after five levels.
 */
#ifndef TW_FIRMWARE_PCIE_VTD_H
#define TW_FIRMWARE_PCIE_VTD_H

#include "tilewright/error.h"

#include <stdbool.h>
#include <stdint.h>

struct tw_vtd {
    uint8_t *ram;       /* the guest's, from physical address 0 on */
    uint64_t ram_bytes; /* a multiple of 4096 */
    bool on;            /* false: addresses are physical */
    uint64_t root;      /* register RTADDR */
    uint16_t requester; /* bus << 8 | device << 3 | function */
};

/* The memory at a DMA address, *bytes of it in one piece (to the end of its page). NULL: the tables
 * do not let the requester read (or write) there, or there is no memory. */
uint8_t *tw_vtd_reach(const struct tw_vtd *v, uint64_t address, uint64_t *bytes, bool write);

/* Fills `on` and `root` from the registers of the IOMMU at its usual place, asked of QEMU's monitor
 * (HMP) at a UNIX socket; waits at most two seconds. Errors: IO. */
int tw_vtd_ask(struct tw_vtd *v, const char *monitor, tw_error *err);

#endif
