/* SPDX-License-Identifier: Apache-2.0
 *
 * Overflow-safe size arithmetic: every size, count and offset from outside passes through it. All
 * functions return false instead of wrapping.
 */
#ifndef TILEWRIGHT_RANGE_H
#define TILEWRIGHT_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Stores a + b in *out; returns false if it does not fit 64 bits (*out is then unspecified). */
static inline bool tw_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    *out = a + b;
    return *out >= a;
}

/* Stores a * b in *out; returns false if it does not fit 64 bits (*out is then unspecified). */
static inline bool tw_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    if (a != 0 && b > UINT64_MAX / a) {
        return false;
    }
    *out = a * b;
    return true;
}

/* Returns true if [offset, offset + size) is inside [0, limit). */
static inline bool tw_range_ok(uint64_t offset, uint64_t size, uint64_t limit) {
    return size <= limit && offset <= limit - size;
}

/* Stores `value` rounded up to a multiple of `align` (a power of two) in *out; returns false on
 * overflow. */
static inline bool tw_align_u64(uint64_t value, uint64_t align, uint64_t *out) {
    if (!tw_add_u64(value, align - 1, out)) {
        return false;
    }
    *out &= ~(align - 1);
    return true;
}

static inline bool tw_is_pow2_u64(uint64_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

#ifdef __cplusplus
}
#endif
#endif
