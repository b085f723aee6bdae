/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a deployment's sequences, in pages: a page holds TW_KV_BLOCK positions of every
 * paged State tensor, in all its instances. Pages are counted, so that sequences can share them. A
 * tensor is paged if every op of every program of the bundle reaches it through one page table.
 */
#ifndef TW_DRIVER_DEVICE_STATE_POOL_H
#define TW_DRIVER_DEVICE_STATE_POOL_H

#include "driver/device/device.h"
#include "loader/bundle/loader.h"

/* Maximum number of pages of a pool: 2^30 positions. */
#define TW_MAX_STATE_PAGES (1u << 24)
/* The Inputs that are a sequence's page tables: of states that keep all positions, and of those
 * that are read through windows and keep the last ones, counted from an origin. */
#define TW_PAGE_TABLE "pages"
#define TW_WINDOW_TABLE "pages.window"

/* Returns how many pages hold that many positions. */
static inline uint64_t tw_state_pages(uint64_t positions) {
    return positions / TW_KV_BLOCK + (positions % TW_KV_BLOCK != 0);
}

/* A State tensor in the pool. Page p of instance i is at address + i * stride + p * page_bytes. */
struct tw_pool_tensor {
    const char *name; /* of the bundle */
    uint32_t bind_first, instances;
    uint64_t page_bytes, stride, address;
    uint8_t uses; /* how ops reach it (state_pool.c) */
};

/* Someone who holds pages: a sequence, or the prefix cache. The functions below count `pages`. */
struct tw_pool_holder {
    struct tw_pool_holder *next;
    uint32_t number, pages;
    bool is_cache;
};

struct tw_state_pool {
    struct tw_device *device;
    pthread_mutex_t lock; /* of what follows but the tensors */
    uint32_t n_pages, n_free;
    uint32_t *uses, *free_page;   /* n_pages: holders of a page; the pages without any */
    uint32_t n_shared, n_cached;  /* pages with two or more holders; that a cache holds */
    struct tw_status_pages shown; /* on the status page */
    /* Or NULL. Called without the lock when pages are wanted and too few are free: gives back one
     * page, or what is in the way of that; false: there is nothing to give back. */
    bool (*reclaim)(void *ctx, struct tw_state_pool *pool);
    void *reclaim_ctx;
    struct tw_pool_holder *holders;
    uint32_t n_holders_ever;
    uint32_t n_tensors;
    struct tw_pool_tensor *tensors;
    uint64_t page_bytes; /* of all tensors and instances together */
    const char *table;   /* the Input through which ops reach the tensors */
    /* Of states that are read through windows: the positions that a query sees, at most, and those
     * that may be fed, counted from the origin. */
    uint32_t window, window_ctx;
};

/* Finds the tensors of a bundle that are paged through that table; a pool without any has n_tensors
 * 0 and is legal everywhere. Takes no memory of the device. Errors: NOMEM, FORMAT (the programs
 * disagree about a tensor). */
int tw_state_pool_find(struct tw_state_pool *pool, const char *table, struct tw_device *device,
                       const struct tw_bundle *bundle, tw_error *err);
/* Allocates n_pages pages. Errors: NOMEM (have, need), those of tw_device_call(). */
int tw_state_pool_open(struct tw_state_pool *pool, uint32_t n_pages, tw_error *err);
/* Frees everything, the device's memory only if `on_device`. Legal for one that is zero. */
void tw_state_pool_close(struct tw_state_pool *pool, bool on_device);

/* Gives paged tensors, `n` of any program's, as many pages as the pool has. Nothing that is proved
 * of a program depends on their number. */
void tw_state_pool_resize(const struct tw_state_pool *pool, struct tw_tensor *tensors, uint32_t n);
/* Returns whether a binding row is one of a paged tensor. */
bool tw_state_pool_has_row(const struct tw_state_pool *pool, uint64_t row);
/* Points the binding rows of the paged tensors at the pool. */
void tw_state_pool_bind(const struct tw_state_pool *pool, uint64_t *rows);

/* Returns the slot with which a window begins that a step from `position` on sees: the origin is a
 * multiple of TW_KEY_SEGMENT. */
static inline uint32_t tw_state_pool_window_slot(const struct tw_state_pool *pool,
                                                 uint32_t position) {
    uint32_t first = position >= pool->window ? position - pool->window + 1 : 0;
    return first / TW_KEY_SEGMENT * (TW_KEY_SEGMENT / TW_KV_BLOCK);
}

/* The functions below may be called by any thread. */
void tw_state_pool_join(struct tw_state_pool *pool, struct tw_pool_holder *holder);
void tw_state_pool_leave(struct tw_state_pool *pool, struct tw_pool_holder *holder);
/* Takes n free pages, all or none; makes those free that only the cache holds, if it must. Errors:
 * NOMEM (says who holds how many). */
int tw_state_pool_take(struct tw_state_pool *pool, struct tw_pool_holder *holder, uint32_t *pages,
                       uint32_t n, tw_error *err);
/* Adds `holder` to those of pages that someone holds. */
void tw_state_pool_share(struct tw_state_pool *pool, struct tw_pool_holder *holder,
                         const uint32_t *pages, uint32_t n);
void tw_state_pool_drop(struct tw_state_pool *pool, struct tw_pool_holder *holder,
                        const uint32_t *pages, uint32_t n);
/* Returns whether others hold a page that the caller holds. */
bool tw_state_pool_is_shared(struct tw_state_pool *pool, uint32_t page);
/* Copies a page on the device. Errors: those of tw_device_call(). */
int tw_state_pool_copy(struct tw_state_pool *pool, uint32_t from, uint32_t to, tw_error *err);

#endif
