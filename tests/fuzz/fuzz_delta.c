/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the reader of deltas, and what it makes of an accepted one. The first byte says whether
 * the hash is computed anew before, as by someone who knows the format.
 */
#include "loader/base/hash.h"
#include "loader/delta/delta.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The base is as long as the delta says; its bytes are their places. */
static int read_base(void *ctx, uint64_t at, void *to, uint64_t n) {
    const struct tw_delta *d = ctx;
    if (n > d->header.base_bytes || at > d->header.base_bytes - n) {
        abort();
    }
    for (uint64_t i = 0; i < n; i++) {
        ((uint8_t *)to)[i] = (uint8_t)(at + i);
    }
    return 0;
}

static uint64_t made;

static volatile unsigned sink;

static int write_target(void *ctx, const void *bytes, uint64_t n) {
    const uint8_t *b = bytes;
    (void)ctx;
    sink += b[0] ^ b[n - 1];
    made += n;
    return 0;
}

static void seal(uint8_t *bytes, size_t size) {
    struct tw_delta_header h;
    struct tw_hash records;
    memcpy(&h, bytes, sizeof h);
    tw_hash_init(&records);
    tw_hash_update(&records, bytes + sizeof h, size - sizeof h);
    tw_delta_seal(&h, &records);
    memcpy(bytes, &h, sizeof h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_delta d;
    struct tw_delta_info info;
    tw_error err = {0};
    uint8_t *bytes = size ? malloc(size) : NULL;
    if (!bytes) {
        return 0;
    }
    memcpy(bytes, data + 1, --size);
    if (data[0] & 1 && size >= sizeof d.header) {
        seal(bytes, size);
    }
    if (tw_delta_parse("fuzz", bytes, size, &d, &err) == 0) {
        tw_delta_describe(&d, &info);
        made = 0;
        if (d.header.target_bytes <= MOST_BYTES &&
            (tw_delta_run(&d, read_base, write_target, &d) != 0 || made != d.header.target_bytes)) {
            abort();
        }
    }
    free(bytes);
    return 0;
}
