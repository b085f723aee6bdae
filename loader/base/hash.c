/* SPDX-License-Identifier: Apache-2.0
 *
 * The bundle's hash (loader/base/hash.h): a thin layer over libsodium's generic hash.
 */
#include "loader/base/hash.h"

#include <sodium/core.h>

void tw_hash_init(struct tw_hash *h) {
    /* Picks the fastest implementation; cheap and thread-safe when repeated, and the hash works
     * where it fails. */
    int picked = sodium_init();
    (void)picked;
    crypto_generichash_init(&h->state, NULL, 0, TW_HASH_BYTES);
}

void tw_hash_update(struct tw_hash *h, const void *bytes, uint64_t size) {
    if (size != 0) {
        crypto_generichash_update(&h->state, (const unsigned char *)bytes, size);
    }
}

static void hash_zeros(struct tw_hash *h, uint64_t size) {
    static const uint8_t zeros[4096];
    while (size != 0) {
        uint64_t n = size < sizeof zeros ? size : sizeof zeros;
        tw_hash_update(h, zeros, n);
        size -= n;
    }
}

void tw_hash_final(struct tw_hash *h, uint8_t out[TW_HASH_BYTES]) {
    crypto_generichash_final(&h->state, out, TW_HASH_BYTES);
}

void tw_hash_bytes(const void *bytes, uint64_t size, uint8_t out[TW_HASH_BYTES]) {
    struct tw_hash h;
    tw_hash_init(&h);
    tw_hash_update(&h, bytes, size);
    tw_hash_final(&h, out);
}

void tw_hash_content(const uint8_t *meta, uint64_t meta_bytes, uint8_t out[TW_HASH_BYTES]) {
    const uint64_t field = TW_HEADER_OFFSET + offsetof(struct tw_bundle_note, content_hash);
    struct tw_hash h;
    tw_hash_init(&h);
    tw_hash_update(&h, meta, field);
    hash_zeros(&h, TW_HASH_BYTES);
    tw_hash_update(&h, meta + field + TW_HASH_BYTES, meta_bytes - field - TW_HASH_BYTES);
    tw_hash_final(&h, out);
}
