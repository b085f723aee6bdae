/* SPDX-License-Identifier: Apache-2.0
 *
 * The bundle's hash: BLAKE2b-256 through libsodium, in one pass or streaming.
 */
#ifndef TW_LOADER_BASE_HASH_H
#define TW_LOADER_BASE_HASH_H

#include "tilewright/bundle.h"

#include <sodium/crypto_generichash.h>
#include <stdbool.h>
#include <stdint.h>

struct tw_hash {
    crypto_generichash_state state;
};

/* Hash in parts: init, any number of updates, final. None fails. */
void tw_hash_init(struct tw_hash *h);
void tw_hash_update(struct tw_hash *h, const void *bytes, uint64_t size);
void tw_hash_final(struct tw_hash *h, uint8_t out[TW_HASH_BYTES]);

/* Hashes `size` bytes. */
void tw_hash_bytes(const void *bytes, uint64_t size, uint8_t out[TW_HASH_BYTES]);

/* Computes the content hash of a bundle whose metadata (tilewright/bundle.h) is meta[0 ..
 * meta_bytes): of these bytes, with the note's field content_hash taken as zero. meta_bytes must
 * include the note. */
void tw_hash_content(const uint8_t *meta, uint64_t meta_bytes, uint8_t out[TW_HASH_BYTES]);

#endif
