/* SPDX-License-Identifier: Apache-2.0
 *
 * The image of a model from which decode_cross decodes on the firmware alone: one stream of
 * little-endian records, in the order below, each part 8-aligned. Written by image_dump on the
 * build machine; decode_cross reads it from standard input on another one.
 *
 *   struct cross_image
 *   struct cross_segment  [n_segments]
 *   struct cross_bind     [n_bind]
 *   the decode program's blob
 *   a greedy RUN request of one token, whose addresses are numbers of binding rows
 *   the bytes of each segment that has content, in order
 */
#ifndef TW_TESTS_CROSS_IMAGE_H
#define TW_TESTS_CROSS_IMAGE_H

#include "tilewright/machine.h"

#include <stdio.h>

#define CROSS_MAGIC 0x31495754u /* "TWI1" */
#define CROSS_TOKENS 4u
#define CROSS_FIRST_TOKEN 1u

struct cross_image {
    uint32_t magic, n_segments, n_bind, blob_bytes, request_bytes, n_vocab;
};
enum cross_kind { CROSS_CONTENT = 0, CROSS_STATE = 1, CROSS_SCRATCH = 2 };
struct cross_segment {
    uint64_t bytes;
    uint32_t kind, reserved;
};
struct cross_bind {
    uint64_t offset;
    uint32_t segment, reserved;
};

/* FNV-1a; begins with CROSS_HASH. */
#define CROSS_HASH UINT64_C(0xCBF29CE484222325)
static inline uint64_t cross_hash(uint64_t hash, const void *bytes, size_t n) {
    const uint8_t *b = (const uint8_t *)bytes;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ b[i]) * UINT64_C(0x100000001B3);
    }
    return hash;
}

/* The line that is compared between machines: the tokens, the last step's logits, the state that
 * the run leaves. */
static inline void cross_print(const uint32_t *ids, uint64_t logits, uint64_t state) {
    printf("same decode");
    for (uint32_t i = 0; i < CROSS_TOKENS; i++) {
        printf(" %u", ids[i]);
    }
    printf(" %016llx %016llx\n", (unsigned long long)logits, (unsigned long long)state);
}

#endif
