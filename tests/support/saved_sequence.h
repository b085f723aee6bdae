/* SPDX-License-Identifier: Apache-2.0
 *
 * A sequence to save, for tests of saved states: a schema, tokens, and pages whose every byte
 * follows from the tokens up to the page's last position, so that what comes back can be compared
 * without a device.
 */
#ifndef TW_TESTS_SUPPORT_SAVED_SEQUENCE_H
#define TW_TESTS_SUPPORT_SAVED_SEQUENCE_H

#include "driver/state/state_file.h"

#include <stdbool.h>

#define SAVED_SEQUENCE_MAX 4096u

struct saved_sequence {
    struct tw_saved_schema schema;
    struct tw_saved_sizes sizes;
    uint32_t tokens[SAVED_SEQUENCE_MAX], n;
    uint32_t pages_read;
    const uint8_t *in_place; /* or NULL: pages are copied into the scratch */
    uint32_t fail_at;        /* not 0: reading that page fails */
};

/* A schema of keys and values in f16 of that many layers, page_bytes a page of 64 positions. */
void saved_sequence_init(struct saved_sequence *s, uint32_t layers, uint32_t page_bytes);
/* Sets tokens [from, n), by `seed`. */
void saved_sequence_feed(struct saved_sequence *s, uint32_t from, uint32_t n, uint32_t seed);
struct tw_saved_source saved_sequence_source(struct saved_sequence *s);
/* The bytes of a page; `to` has room for them. */
void saved_sequence_page(const struct saved_sequence *s, uint32_t slot, uint32_t tensor,
                         uint32_t instance, uint8_t *to);
/* True if the open state holds exactly the sequence: tokens, and every page once. */
bool saved_sequence_equal(const struct saved_sequence *s, tw_saved *file);
/* True if the state at the path opens, and holds it. */
bool saved_sequence_is_at(const struct saved_sequence *s, const char *path);

#endif
