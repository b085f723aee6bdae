/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocates DMA addresses that the IOMMU translates and the device can form. Any other address
 * would access the wrong memory, so all DMA addresses come from here. One thread at a time.
 */
#ifndef TW_DRIVER_TRANSPORT_PCIE_IOVA_H
#define TW_DRIVER_TRANSPORT_PCIE_IOVA_H

#include "tilewright/error.h"

#include <stdint.h>

/* first .. last, inclusive. */
struct tw_iova_range {
    uint64_t first, last;
};

struct tw_iova {
    uint64_t page;              /* bytes; every address and size is a multiple */
    struct tw_iova_range *free; /* ascending, neither overlapping nor adjacent */
    size_t n, room, live;       /* live: allocations that have not been freed */
};

/* Returns the page size of mappings in bytes: the larger of the smallest page that the IOMMU maps
 * (iommu_sizes: one bit per size; 0: unknown) and the host's. So no page of either holds both
 * shared memory and memory that the device must not access. */
uint64_t tw_iova_page(uint64_t iommu_sizes, uint64_t host_page);

/* Initialises the allocator with the ranges that the IOMMU translates and that are below 2^bits (12
 * to 64), the device's limit. Address 0 is never allocated. Errors: NOMEM (memory; or no address is
 * in both, with the two limits). */
int tw_iova_init(struct tw_iova *a, const struct tw_iova_range *ranges, size_t n, uint32_t bits,
                 uint64_t page, tw_error *err);
/* Frees the allocator's memory. */
void tw_iova_finish(struct tw_iova *a);

/* Allocates the lowest free range of that size, rounded up to pages. Errors: NOMEM (names the
 * largest free range). */
int tw_iova_alloc(struct tw_iova *a, uint64_t bytes, uint64_t *address, tw_error *err);
/* Frees a range; both numbers must be those of the allocation. */
void tw_iova_free(struct tw_iova *a, uint64_t address, uint64_t bytes);

#endif
