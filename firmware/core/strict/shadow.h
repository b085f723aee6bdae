/* SPDX-License-Identifier: Apache-2.0
 *
 * Definedness, one bit per 4-byte word: a write marks every word that it touches as defined, and
 * every word that a read touches must be defined. Offsets and sizes are in bytes.
 */
#ifndef TW_FIRMWARE_CORE_STRICT_SHADOW_H
#define TW_FIRMWARE_CORE_STRICT_SHADOW_H

#include "tilewright/footprint.h"

/* Returns how many 64-bit words of shadow `bytes` bytes of memory need. */
static inline uint64_t tw_shadow_words(uint64_t bytes) {
    return bytes / 256 + 1;
}

/* Returns the bits of shadow word w that lie inside the bit range [first, last]. */
static inline uint64_t tw_shadow_mask(uint64_t w, uint64_t first, uint64_t last) {
    uint64_t mask = ~(uint64_t)0;
    if (w == first / 64) {
        mask &= ~(uint64_t)0 << first % 64;
    }
    if (w == last / 64) {
        mask &= ~(uint64_t)0 >> (63 - last % 64);
    }
    return mask;
}

/* Marks a range as defined or undefined. */
static inline void tw_shadow_mark(uint64_t *bits, uint64_t offset, uint64_t bytes, bool defined) {
    if (bytes == 0) {
        return;
    }
    uint64_t first = offset / 4, last = (offset + bytes - 1) / 4;
    for (uint64_t w = first / 64; w <= last / 64; w++) {
        uint64_t mask = tw_shadow_mask(w, first, last);
        bits[w] = defined ? bits[w] | mask : bits[w] & ~mask;
    }
}

/* Returns true if the whole range is defined. */
static inline bool tw_shadow_defined(const uint64_t *bits, uint64_t offset, uint64_t bytes) {
    if (bytes == 0) {
        return true;
    }
    uint64_t first = offset / 4, last = (offset + bytes - 1) / 4;
    for (uint64_t w = first / 64; w <= last / 64; w++) {
        uint64_t mask = tw_shadow_mask(w, first, last);
        if ((bits[w] & mask) != mask) {
            return false;
        }
    }
    return true;
}

/* Returns true if any word of the range is marked. */
static inline bool tw_shadow_any(const uint64_t *bits, uint64_t offset, uint64_t bytes) {
    if (bytes == 0) {
        return false;
    }
    uint64_t first = offset / 4, last = (offset + bytes - 1) / 4;
    for (uint64_t w = first / 64; w <= last / 64; w++) {
        if ((bits[w] & tw_shadow_mask(w, first, last)) != 0) {
            return true;
        }
    }
    return false;
}

#endif
