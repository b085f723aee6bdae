/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree of prefixes (prefix_tree.h). Its lock is taken before that of a pool, never after it.
 */
#include "driver/device/prefix_tree.h"

#include "loader/base/assert.h"

#include <stdlib.h>

#define MAX_BUCKETS 65536u
/* Siblings that are searched for one that begins like the tokens: a bound on the time. */
#define MAX_SEARCHED 4096u

struct node {
    struct node *parent, *child, *next; /* next: of the same parent; of roots, the next root */
    struct node *same;                  /* of the same bucket, if it is a whole page; or spare */
    uint64_t used;
    uint32_t slot, n; /* tokens of the page; 0: a root */
    uint32_t page[TW_PREFIX_KINDS];
    uint8_t key[TW_HASH_BYTES];
    uint32_t token[TW_KV_BLOCK];
};

struct tw_prefix_tree {
    pthread_mutex_t lock;
    struct tw_state_pool *pool[TW_PREFIX_KINDS];
    struct tw_pool_holder holder[TW_PREFIX_KINDS];
    struct node *roots, *spare;
    struct node **bucket;
    uint32_t n_buckets;
    uint64_t clock;
};

static bool has_pool(const struct tw_prefix_tree *t, uint32_t kind) {
    return t->pool[kind]->n_tensors > 0;
}

/* ---- nodes ---- */

static uint32_t bucket_of(const struct tw_prefix_tree *t, const uint8_t *key) {
    uint32_t at;
    memcpy(&at, key, sizeof at);
    return at & (t->n_buckets - 1);
}

static void key_of(const uint8_t *parent, const uint32_t *tokens, uint8_t key[TW_HASH_BYTES]) {
    struct tw_hash h;
    tw_hash_init(&h);
    tw_hash_update(&h, parent, TW_HASH_BYTES);
    tw_hash_update(&h, tokens, TW_KV_BLOCK * sizeof *tokens);
    tw_hash_final(&h, key);
}

static struct node *find_root(const struct tw_prefix_tree *t, const uint8_t *key) {
    struct node *n = t->roots;
    while (n && memcmp(n->key, key, TW_HASH_BYTES) != 0) {
        n = n->next;
    }
    return n;
}

/* The child that is this whole page, or NULL. */
static struct node *find_page(const struct tw_prefix_tree *t, const struct node *parent,
                              const uint8_t *key, const uint32_t *tokens) {
    struct node *n = t->bucket[bucket_of(t, key)];
    while (n && (n->parent != parent || memcmp(n->key, key, TW_HASH_BYTES) != 0 ||
                 memcmp(n->token, tokens, sizeof n->token) != 0)) {
        n = n->same;
    }
    return n;
}

static uint32_t common(const struct node *n, const uint32_t *tokens, uint32_t max) {
    uint32_t same = 0;
    while (same < max && same < n->n && n->token[same] == tokens[same]) {
        same++;
    }
    return same;
}

/* The child that has the most of the tokens; *n: how many. NULL: none has the first one. */
static struct node *find_beginning(const struct node *parent, const uint32_t *tokens, uint32_t max,
                                   uint32_t *n) {
    struct node *best = NULL;
    uint32_t searched = 0;
    *n = 0;
    for (struct node *c = parent->child; c && searched++ < MAX_SEARCHED; c = c->next) {
        uint32_t same = common(c, tokens, max);
        if (same > *n) {
            best = c;
            *n = same;
        }
    }
    return best;
}

static struct node *new_node(struct tw_prefix_tree *t) {
    struct node *n = t->spare;
    if (n) {
        t->spare = n->same;
    } else {
        n = malloc(sizeof *n);
    }
    if (n) {
        memset(n, 0, sizeof *n);
        n->page[TW_PREFIX_ALL] = n->page[TW_PREFIX_WINDOW] = TW_NONE;
    }
    return n;
}

static void unlink_from(struct node **list, const struct node *n) {
    while (*list != n) {
        list = &(*list)->next;
    }
    *list = n->next;
}

static void drop_page(struct tw_prefix_tree *t, struct node *n, uint32_t kind) {
    if (n->page[kind] != TW_NONE) {
        tw_state_pool_drop(t->pool[kind], &t->holder[kind], &n->page[kind], 1);
        n->page[kind] = TW_NONE;
    }
}

/* Removes a node without children; its memory stays, since a step may be what wants its page. */
static void remove_leaf(struct tw_prefix_tree *t, struct node *n) {
    struct node *parent = n->parent;
    TW_ASSERT(!n->child);
    unlink_from(parent ? &parent->child : &t->roots, n);
    if (n->n == TW_KV_BLOCK) {
        struct node **at = &t->bucket[bucket_of(t, n->key)];
        while (*at != n) {
            at = &(*at)->same;
        }
        *at = n->same;
    }
    drop_page(t, n, TW_PREFIX_ALL);
    drop_page(t, n, TW_PREFIX_WINDOW);
    n->same = t->spare;
    t->spare = n;
    if (parent && !parent->parent && !parent->child) {
        remove_leaf(t, parent); /* a root that has nothing */
    }
}

/* The nodes in some order, a parent before its children. */
static struct node *after(struct node *n) {
    if (n->child) {
        return n->child;
    }
    while (n && !n->next) {
        n = n->parent;
    }
    return n ? n->next : NULL;
}

static void touch(struct tw_prefix_tree *t, struct node *n) {
    for (t->clock++; n; n = n->parent) {
        n->used = t->clock;
    }
}

/* ---- giving pages back ---- */

/* Whether `a` is worth less than `b`; of what only the cache holds, else of nothing. */
static bool is_worth_less(const struct tw_prefix_tree *t, const struct node *a,
                          const struct node *b) {
    uint64_t tokens_a = (uint64_t)a->slot * TW_KV_BLOCK + a->n;
    uint64_t tokens_b = (uint64_t)b->slot * TW_KV_BLOCK + b->n;
    return tokens_a * (t->clock - b->used + 1) < tokens_b * (t->clock - a->used + 1);
}

/* What is to be given back of a pool: of all positions leaves; of windows any page. A page that a
 * session holds too does not become free, so it is given back only if there is no other: what it
 * stands in the way of can then follow. */
static struct node *worst(const struct tw_prefix_tree *t, uint32_t kind, bool leaves) {
    struct node *worst[2] = {NULL, NULL};
    for (struct node *n = t->roots; n; n = after(n)) {
        if (n->n == 0 || (leaves && n->child) || n->page[kind] == TW_NONE) {
            continue;
        }
        struct node **at = &worst[tw_state_pool_is_shared(t->pool[kind], n->page[kind])];
        *at = !*at || is_worth_less(t, n, *at) ? n : *at;
    }
    return worst[0] ? worst[0] : worst[1];
}

static bool reclaim(void *ctx, struct tw_state_pool *pool) {
    struct tw_prefix_tree *t = ctx;
    uint32_t kind = pool == t->pool[TW_PREFIX_ALL] ? TW_PREFIX_ALL : TW_PREFIX_WINDOW;
    bool leaves = kind == TW_PREFIX_ALL || !has_pool(t, TW_PREFIX_ALL);
    pthread_mutex_lock(&t->lock);
    struct node *n = worst(t, kind, leaves);
    if (n && leaves) {
        remove_leaf(t, n);
    } else if (n) {
        drop_page(t, n, kind);
    }
    pthread_mutex_unlock(&t->lock);
    return n != NULL;
}

/* ---- taking ---- */

/* Finds how far the sequence goes in the tree; *last: its last node. */
static uint32_t walk(const struct tw_prefix_tree *t, const struct tw_prefix_sequence *s,
                     struct node **last) {
    struct node *n = find_root(t, s->root), *next = n;
    uint32_t at = 0, more = 0;
    uint8_t key[TW_HASH_BYTES];
    while (next && s->n - at >= TW_KV_BLOCK) {
        key_of(n->key, s->tokens + at, key);
        next = find_page(t, n, key, s->tokens + at);
        n = next ? next : n;
        at += next ? TW_KV_BLOCK : 0;
    }
    uint32_t left = s->n - at < TW_KV_BLOCK ? s->n - at : TW_KV_BLOCK;
    next = n && left ? find_beginning(n, s->tokens + at, left, &more) : NULL;
    *last = next ? next : n;
    return at + (next ? more : 0);
}

/* Whether the tree has the pages of the windows that a step from position n on sees. */
static bool has_window(const struct tw_prefix_tree *t, const struct node *last, uint32_t n) {
    uint32_t first = tw_state_pool_window_slot(t->pool[TW_PREFIX_WINDOW], n);
    for (; last->n && last->slot >= first; last = last->parent) {
        if (last->page[TW_PREFIX_WINDOW] == TW_NONE) {
            return false;
        }
    }
    return true;
}

static void take_pages(struct tw_prefix_tree *t, const struct node *last, uint32_t kind,
                       uint32_t first, struct tw_prefix_sequence *s,
                       struct tw_pool_holder *holder) {
    uint32_t n = last->slot + 1 - first;
    s->of[kind].first = first;
    s->of[kind].n_pages = n;
    for (; last->n && last->slot >= first; last = last->parent) {
        s->of[kind].page[last->slot - first] = last->page[kind];
    }
    tw_state_pool_share(t->pool[kind], holder, s->of[kind].page, n);
}

uint32_t tw_prefix_tree_take(struct tw_prefix_tree *t, struct tw_prefix_sequence *s, uint32_t from,
                             struct tw_pool_holder *const holder[TW_PREFIX_KINDS]) {
    struct node *last;
    pthread_mutex_lock(&t->lock);
    uint32_t n = walk(t, s, &last);
    bool windows = has_pool(t, TW_PREFIX_WINDOW);
    while (windows && n > from && !has_window(t, last, n)) {
        n = last->slot * TW_KV_BLOCK;
        last = last->parent;
    }
    n = n > from ? n : 0;
    if (n) {
        touch(t, last);
    }
    if (n && has_pool(t, TW_PREFIX_ALL)) {
        take_pages(t, last, TW_PREFIX_ALL, 0, s, holder[TW_PREFIX_ALL]);
    }
    if (n && windows) {
        uint32_t first = tw_state_pool_window_slot(t->pool[TW_PREFIX_WINDOW], n);
        take_pages(t, last, TW_PREFIX_WINDOW, first, s, holder[TW_PREFIX_WINDOW]);
    }
    pthread_mutex_unlock(&t->lock);
    return n;
}

/* ---- adding ---- */

static struct node *add_root(struct tw_prefix_tree *t, const uint8_t *key) {
    struct node *n = new_node(t);
    if (n) {
        memcpy(n->key, key, TW_HASH_BYTES);
        n->next = t->roots;
        t->roots = n;
    }
    return n;
}

/* Shares the pages of the slot that the sequence has and the node has not. */
static void add_pages(struct tw_prefix_tree *t, const struct tw_prefix_sequence *s,
                      struct node *n) {
    for (uint32_t kind = 0; kind < TW_PREFIX_KINDS; kind++) {
        uint32_t at = n->slot - s->of[kind].first;
        if (n->page[kind] == TW_NONE && n->slot >= s->of[kind].first && at < s->of[kind].n_pages) {
            n->page[kind] = s->of[kind].page[at];
            tw_state_pool_share(t->pool[kind], &t->holder[kind], &n->page[kind], 1);
        }
    }
}

static bool has_page(const struct tw_prefix_sequence *s, uint32_t slot) {
    for (uint32_t kind = 0; kind < TW_PREFIX_KINDS; kind++) {
        if (slot >= s->of[kind].first && slot - s->of[kind].first < s->of[kind].n_pages) {
            return true;
        }
    }
    return false;
}

/* Removes pages of fewer tokens that the new one has, too. */
static void remove_beginnings(struct tw_prefix_tree *t, const struct node *parent,
                              const struct node *added) {
    for (struct node *c = parent->child, *next; c; c = next) {
        next = c->next;
        if (c != added && c->n < added->n && common(c, added->token, c->n) == c->n) {
            remove_leaf(t, c);
        }
    }
}

static struct node *add_node(struct tw_prefix_tree *t, const struct tw_prefix_sequence *s,
                             struct node *parent, uint32_t slot, uint32_t n, const uint8_t *key) {
    struct node *added = has_page(s, slot) ? new_node(t) : NULL;
    if (!added) {
        return NULL;
    }
    added->parent = parent;
    added->slot = slot;
    added->n = n;
    memcpy(added->token, s->tokens + (size_t)slot * TW_KV_BLOCK, n * sizeof *added->token);
    added->next = parent->child;
    parent->child = added;
    if (n == TW_KV_BLOCK) {
        struct node **bucket = &t->bucket[bucket_of(t, key)];
        memcpy(added->key, key, TW_HASH_BYTES);
        added->same = *bucket;
        *bucket = added;
    }
    add_pages(t, s, added);
    remove_beginnings(t, parent, added);
    return added;
}

/* The node of a slot, found or added; NULL: neither. */
static struct node *add_slot(struct tw_prefix_tree *t, const struct tw_prefix_sequence *s,
                             struct node *parent, uint32_t slot) {
    const uint32_t *tokens = s->tokens + (size_t)slot * TW_KV_BLOCK;
    uint32_t left = s->n - slot * TW_KV_BLOCK, same;
    uint8_t key[TW_HASH_BYTES] = {0};
    struct node *n;
    if (left >= TW_KV_BLOCK) {
        key_of(parent->key, tokens, key);
        n = find_page(t, parent, key, tokens);
    } else {
        n = find_beginning(parent, tokens, left, &same);
        n = n && same == left ? n : NULL;
    }
    if (!n) {
        return add_node(t, s, parent, slot, left < TW_KV_BLOCK ? left : TW_KV_BLOCK, key);
    }
    if (left >= TW_KV_BLOCK || n->n == left) {
        add_pages(t, s, n);
    }
    return n;
}

void tw_prefix_tree_add(struct tw_prefix_tree *t, const struct tw_prefix_sequence *s) {
    pthread_mutex_lock(&t->lock);
    struct node *n = s->n ? find_root(t, s->root) : NULL, *last = NULL;
    n = n || !s->n ? n : add_root(t, s->root);
    for (uint32_t slot = 0; n && slot * TW_KV_BLOCK < s->n; slot++) {
        last = n;
        n = add_slot(t, s, n, slot);
    }
    last = n ? n : last;
    if (last) {
        touch(t, last);
        if (!last->parent && !last->child) {
            remove_leaf(t, last); /* a root to which nothing could be added */
        }
    }
    pthread_mutex_unlock(&t->lock);
}

/* ---- the whole ---- */

int tw_prefix_tree_create(struct tw_state_pool *all, struct tw_state_pool *window,
                          struct tw_prefix_tree **out, tw_error *err) {
    struct tw_prefix_tree *t = calloc(1, sizeof *t);
    uint32_t n = 64;
    while (n < MAX_BUCKETS && n < all->n_pages) {
        n *= 2;
    }
    struct node **bucket = calloc(n, sizeof *bucket);
    if (!t || !bucket) {
        free(t);
        free(bucket);
        return tw_fail(err, TW_E_NOMEM, "prefix cache: out of memory");
    }
    *t = (struct tw_prefix_tree){.pool = {all, window},
                                 .holder = {{.is_cache = true}, {.is_cache = true}},
                                 .bucket = bucket,
                                 .n_buckets = n};
    pthread_mutex_init(&t->lock, NULL);
    for (uint32_t kind = 0; kind < TW_PREFIX_KINDS; kind++) {
        tw_state_pool_join(t->pool[kind], &t->holder[kind]);
        t->pool[kind]->reclaim = reclaim;
        t->pool[kind]->reclaim_ctx = t;
    }
    *out = t;
    return 0;
}

void tw_prefix_tree_destroy(struct tw_prefix_tree *t) {
    if (!t) {
        return;
    }
    while (t->roots) {
        struct node *n = t->roots;
        while (n->child) {
            n = n->child;
        }
        remove_leaf(t, n);
    }
    while (t->spare) {
        struct node *n = t->spare;
        t->spare = n->same;
        free(n);
    }
    for (uint32_t kind = 0; kind < TW_PREFIX_KINDS; kind++) {
        t->pool[kind]->reclaim = NULL;
        tw_state_pool_leave(t->pool[kind], &t->holder[kind]);
    }
    pthread_mutex_destroy(&t->lock);
    free(t->bucket);
    free(t);
}
