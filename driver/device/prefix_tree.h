/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix cache of a deployment: pages of sequences that sessions left, as a tree. A node is a
 * page's tokens after those of its parent. It is found by a 256-bit hash over all tokens up to it,
 * and by these tokens themselves: the hash only says where to look. The tree holds pages as a
 * session does, and gives them back when the pool needs them, least value first: the number of
 * tokens up to a page, divided by how long ago it was used, counted in uses of the tree.
 *
 * A state that is read through windows has pages of its own (TW_PREFIX_WINDOW), which a node has or
 * has not. A sequence can only be taken up where the tree has those that the next step sees.
 *
 * All functions but create and destroy may be called by any thread.
 */
#ifndef TW_DRIVER_DEVICE_PREFIX_TREE_H
#define TW_DRIVER_DEVICE_PREFIX_TREE_H

#include "driver/device/state_pool.h"
#include "loader/base/hash.h"

struct tw_prefix_tree;

enum { TW_PREFIX_ALL = 0, TW_PREFIX_WINDOW = 1, TW_PREFIX_KINDS = 2 };

/* A sequence's tokens, and its pages in each pool: `n_pages` of them from slot `first` on. */
struct tw_prefix_sequence {
    const uint8_t *root; /* TW_HASH_BYTES: what its tokens stand for, and whose they are */
    const uint32_t *tokens;
    uint32_t n;
    struct {
        uint32_t *page, n_pages, first;
    } of[TW_PREFIX_KINDS];
};

/* Makes an empty tree, and has the pools ask it for pages. The pools outlive it. Errors: NOMEM. */
int tw_prefix_tree_create(struct tw_state_pool *all, struct tw_state_pool *window,
                          struct tw_prefix_tree **out, tw_error *err);
/* Gives back all pages. NULL is legal. */
void tw_prefix_tree_destroy(struct tw_prefix_tree *t);

/* Finds the longest beginning of the sequence, of more than `from` tokens and at most s->n, and
 * shares its pages with `holder`, one for each pool. s->of: where the page numbers go; as many as a
 * session can have. Returns how many tokens; 0: none, and nothing has changed. */
uint32_t tw_prefix_tree_take(struct tw_prefix_tree *t, struct tw_prefix_sequence *s, uint32_t from,
                             struct tw_pool_holder *const holder[TW_PREFIX_KINDS]);
/* Adds the sequence, whose pages the caller holds, as far as the tree does not have it. The last
 * page may have fewer tokens than a page has positions; the caller must not write to it any more
 * without taking a copy, which is what sharing it means. Without memory it adds less. */
void tw_prefix_tree_add(struct tw_prefix_tree *t, const struct tw_prefix_sequence *s);

#endif
