/* SPDX-License-Identifier: Apache-2.0
 *
 * A sorted list of free ranges. Allocations are few and long-lived, so the first that fits is taken
 * and lists are searched from the front.
 */
#include "driver/transport/pcie/iova.h"

#include "loader/base/assert.h"
#include "loader/base/grow.h"
#include "tilewright/range.h"

#include <stdlib.h>
#include <string.h>

/* Returns whether the ranges are whole pages in ascending order that neither overlap nor touch. */
static bool is_consistent(const struct tw_iova *a) {
    bool consistent = a->n <= a->room && tw_is_pow2_u64(a->page);
    for (size_t i = 0; i < a->n && consistent; i++) {
        const struct tw_iova_range *r = &a->free[i];
        consistent = r->first <= r->last && r->first % a->page == 0 &&
                     (r->last + 1) % a->page == 0 &&
                     (i == 0 || (r->first > 0 && r[-1].last < r->first - 1));
    }
    return consistent;
}

uint64_t tw_iova_page(uint64_t iommu_sizes, uint64_t host_page) {
    uint64_t lowest = iommu_sizes & (~iommu_sizes + 1);
    return lowest > host_page ? lowest : host_page;
}

/* Makes room for n entries, the maximum that freeing everything can produce. */
static int make_room(struct tw_iova *a, size_t n) {
    return tw_grow(&a->free, &a->room, n, sizeof *a->free) ? 0 : TW_E_NOMEM;
}

/* Adds a range and merges it with those it touches; there must be room for an entry. */
static void add(struct tw_iova *a, struct tw_iova_range r) {
    size_t i = 0, end;
    TW_ASSERT(r.first <= r.last && a->n < a->room);
    while (i < a->n && r.first > 0 && a->free[i].last < r.first - 1) {
        i++;
    }
    for (end = i; end < a->n && (r.last == UINT64_MAX || a->free[end].first <= r.last + 1); end++) {
        r.first = a->free[end].first < r.first ? a->free[end].first : r.first;
        r.last = a->free[end].last > r.last ? a->free[end].last : r.last;
    }
    TW_ASSERT(i <= end && end <= a->n);
    memmove(&a->free[i + 1], &a->free[end], (a->n - end) * sizeof r);
    a->free[i] = r;
    a->n = a->n - (end - i) + 1;
    TW_ASSERT(is_consistent(a));
}

/* Reduces a range to whole pages that the device can address, without address 0. Returns
 * false if nothing is left. */
static bool trim(const struct tw_iova *a, uint64_t limit, struct tw_iova_range *r) {
    uint64_t first = r->first < a->page ? a->page : r->first,
             last = r->last < limit ? r->last : limit;
    if (!tw_align_u64(first, a->page, &first) || last < first || last - first < a->page - 1) {
        return false;
    }
    r->first = first;
    r->last = first + (last - first - (a->page - 1)) / a->page * a->page + a->page - 1;
    TW_ASSERT(r->first >= a->page && r->first <= r->last && r->last <= limit);
    return true;
}

int tw_iova_init(struct tw_iova *a, const struct tw_iova_range *ranges, size_t n, uint32_t bits,
                 uint64_t page, tw_error *err) {
    uint64_t limit = bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
    *a = (struct tw_iova){.page = page};
    if (make_room(a, n + 1)) {
        return tw_fail(err, TW_E_NOMEM, "DMA addresses: out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        struct tw_iova_range r = ranges[i];
        if (r.first <= r.last && trim(a, limit, &r)) {
            add(a, r);
        }
    }
    if (a->n == 0) {
        tw_iova_finish(a);
        return tw_fail(err, TW_E_NOMEM,
                       "DMA addresses: none is both below 2^%u, the device's limit, and in one of "
                       "the %zu ranges of the IOMMU, which begin at %#llx",
                       bits, n, n ? (unsigned long long)ranges[0].first : 0ull);
    }
    return 0;
}

void tw_iova_finish(struct tw_iova *a) {
    free(a->free);
    *a = (struct tw_iova){0};
}

int tw_iova_alloc(struct tw_iova *a, uint64_t bytes, uint64_t *address, tw_error *err) {
    uint64_t size, largest = 0;
    TW_ASSERT(is_consistent(a));
    if (bytes == 0 || !tw_align_u64(bytes, a->page, &size)) {
        return tw_fail(err, TW_E_NOMEM, "DMA addresses: cannot map %llu bytes",
                       (unsigned long long)bytes);
    }
    if (make_room(a, a->n + a->live + 2)) {
        return tw_fail(err, TW_E_NOMEM, "DMA addresses: out of memory");
    }
    for (size_t i = 0; i < a->n; i++) {
        struct tw_iova_range *r = &a->free[i];
        if (r->last - r->first >= size - 1) {
            TW_ASSERT(size > 0 && size % a->page == 0 && r->first > 0);
            *address = r->first;
            if (r->last - r->first == size - 1) {
                memmove(r, r + 1, (--a->n - i) * sizeof *r);
            } else {
                r->first += size;
            }
            a->live++;
            TW_ASSERT(is_consistent(a));
            return 0;
        }
        largest = r->last - r->first > largest ? r->last - r->first : largest;
    }
    return tw_fail(err, TW_E_NOMEM,
                   "DMA addresses: need %llu bytes, the largest free range has %llu",
                   (unsigned long long)size, a->n ? (unsigned long long)largest + 1 : 0ull);
}

void tw_iova_free(struct tw_iova *a, uint64_t address, uint64_t bytes) {
    uint64_t size;
    if (bytes && tw_align_u64(bytes, a->page, &size)) {
        TW_ASSERT(a->live > 0 && address % a->page == 0);
        add(a, (struct tw_iova_range){address, address + size - 1});
        a->live--;
    }
}
