/* SPDX-License-Identifier: Apache-2.0
 *
 * DMA addresses: which of them are free, inside what both the IOMMU translates and the device can
 * form. An address that only one side knows ends in the wrong memory, so none is ever taken from
 * anywhere else.
 */
#ifndef TW_DRIVER_TRANSPORT_PCIE_IOVA_H
#define TW_DRIVER_TRANSPORT_PCIE_IOVA_H

#include "tilewright/error.h"

#include <stdint.h>

/* first .. last, both inside. */
struct tw_iova_range {
    uint64_t first, last;
};

struct tw_iova {
    uint64_t page;              /* bytes; every address and size is a multiple */
    struct tw_iova_range *free; /* ascending, apart from each other */
    size_t n, room, live;       /* live: allocations that have not been freed */
};

/* The pages a mapping consists of: what the IOMMU maps (a bit a size; 0: not told) and what the
 * host has (bytes). No page of either is ever shared with memory that the device may not see. */
uint64_t tw_iova_page(uint64_t iommu_sizes, uint64_t host_page);

/* `ranges` is what the IOMMU offers, holes left out; the device reaches addresses below 2^bits (12
 * to 64). Address 0 is never given. Errors: NOMEM (memory; or nothing is left inside both, and then
 * it tells both). */
int tw_iova_init(struct tw_iova *a, const struct tw_iova_range *ranges, size_t n, uint32_t bits,
                 uint64_t page, tw_error *err);
void tw_iova_finish(struct tw_iova *a);

/* The lowest free range of that size, rounded up to pages. Errors: NOMEM (tells the largest that is
 * left). */
int tw_iova_alloc(struct tw_iova *a, uint64_t bytes, uint64_t *address, tw_error *err);
/* Exactly what alloc gave. */
void tw_iova_free(struct tw_iova *a, uint64_t address, uint64_t bytes);

#endif
