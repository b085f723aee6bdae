/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a fuzzer's input in small steps; past its end there are zeros.
 */
#ifndef TW_TESTS_SUPPORT_FUZZ_INPUT_H
#define TW_TESTS_SUPPORT_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct fuzz_input {
    const uint8_t *data;
    size_t size, at;
};

static inline bool fuzz_more(const struct fuzz_input *in) {
    return in->at < in->size;
}

static inline uint32_t fuzz_u8(struct fuzz_input *in) {
    return fuzz_more(in) ? in->data[in->at++] : 0;
}

static inline uint32_t fuzz_u16(struct fuzz_input *in) {
    uint32_t low = fuzz_u8(in);
    return low | fuzz_u8(in) << 8;
}

static inline uint32_t fuzz_u32(struct fuzz_input *in) {
    uint32_t low = fuzz_u16(in);
    return low | fuzz_u16(in) << 16;
}

/* Reads at most n bytes and fills the rest of `to` with zeros. Returns how many were read. */
static inline size_t fuzz_bytes(struct fuzz_input *in, void *to, size_t n) {
    size_t left = in->size - in->at < n ? in->size - in->at : n;
    memset(to, 0, n);
    if (left) {
        memcpy(to, in->data + in->at, left);
    }
    in->at += left;
    return left;
}

#endif
