/* SPDX-License-Identifier: Apache-2.0
 *
 * Little-endian numbers at unaligned places of a file.
 */
#ifndef TW_COMPILER_IMPORT_BYTES_H
#define TW_COMPILER_IMPORT_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint32_t tw_load_u16(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}
static inline uint32_t tw_load_u32(const uint8_t *p) {
    return tw_load_u16(p) | tw_load_u16(p + 2) << 16;
}
static inline uint64_t tw_load_u64(const uint8_t *p) {
    return (uint64_t)tw_load_u32(p) | (uint64_t)tw_load_u32(p + 4) << 32;
}
static inline float tw_load_f32(const uint8_t *p) {
    uint32_t bits = tw_load_u32(p);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline double tw_load_f64(const uint8_t *p) {
    uint64_t bits = tw_load_u64(p);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
