/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool of pages (state_pool.h).
 */
#include "driver/device/state_pool.h"

#include "loader/base/assert.h"
#include "tilewright/opcode.h"
#include "tilewright/range.h"

#include <stdio.h>
#include <stdlib.h>

TW_STATIC_ASSERT(TW_PAGE_POSITIONS == TW_KV_BLOCK, "positions of a page");

/* ---- which tensors are paged ---- */

enum { PAGED = 1, PLAIN = 2 };

static bool is_table(const struct tw_program *p, uint32_t tensor, const char *name) {
    return strcmp(tw_program_string(p, p->tensors[tensor].name), name) == 0;
}

static bool has_table(const struct tw_bundle *b, const char *name) {
    for (uint32_t i = 0; i < b->n_programs; i++) {
        for (uint32_t t = 0; t < b->programs[i].n_tensors; t++) {
            if (is_table(&b->programs[i], t, name)) {
                return true;
            }
        }
    }
    return false;
}

static void note_op(struct tw_state_pool *pool, const struct tw_program *p, const struct tw_op *op,
                    uint8_t *how) {
    for (uint32_t k = 0; k < op->n_operands; k++) {
        const struct tw_operand *o = &op->operand[k];
        if ((o->kind == TW_KIND_TENSOR_READ || o->kind == TW_KIND_TENSOR_WRITE) &&
            o->id < p->n_tensors) {
            how[o->id] |= o->paged && is_table(p, o->table, pool->table) ? PAGED : PLAIN;
        }
    }
    if (op->code == TW_OP_ATTN_WINDOW) { /* a window of INT32_MAX is none */
        uint32_t window = op->operand[TW_ATTN_WINDOW_window].id;
        pool->window = window < INT32_MAX && window > pool->window ? window : pool->window;
    }
}

/* Notes for each tensor of a program whether ops use it through the page table, or otherwise. */
static void note_uses(struct tw_state_pool *pool, const struct tw_program *p, uint8_t *how) {
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        if (p->buffers[i].tensor < p->n_tensors) {
            how[p->buffers[i].tensor] |= PLAIN;
        }
    }
    for (uint32_t i = 0; i < p->n_sites * TW_ENGINE_COUNT; i++) {
        const struct tw_stream *s = &p->streams[i];
        struct tw_op op;
        for (uint32_t at = 0; at < s->n_words && tw_op_decode(s->words, s->n_words, at, &op);
             at += op.n_words) {
            note_op(pool, p, &op, how);
        }
    }
}

/* The positions that may be fed are in the trip that limits them. */
static void note_context(struct tw_state_pool *pool, const struct tw_program *p) {
    for (uint32_t i = 0; i < p->n_trips; i++) {
        if (strcmp(tw_program_string(p, p->trips[i].name), "pos.window") == 0) {
            uint32_t n = p->trips[i].max + 1;
            pool->window_ctx = pool->window_ctx && pool->window_ctx < n ? pool->window_ctx : n;
        }
    }
}

static bool same_pages(const struct tw_pool_tensor *x, const struct tw_tensor *t) {
    return x->page_bytes == tw_tensor_page_bytes(t) && x->instances == t->bind_count;
}

/* Adds a State tensor, or finds it among those of earlier programs. */
static int add_tensor(struct tw_state_pool *pool, const struct tw_bundle *b,
                      const struct tw_program *p, const struct tw_tensor *t, uint8_t uses,
                      tw_error *err) {
    uint32_t at = 0;
    while (at < pool->n_tensors && pool->tensors[at].bind_first != t->bind_first) {
        at++;
    }
    struct tw_pool_tensor *x = &pool->tensors[at];
    if (at == pool->n_tensors) {
        *x = (struct tw_pool_tensor){.name = tw_program_string(p, t->name),
                                     .bind_first = t->bind_first,
                                     .instances = t->bind_count,
                                     .page_bytes = tw_tensor_page_bytes(t)};
        pool->n_tensors++;
    }
    x->uses |= uses;
    return same_pages(x, t)
               ? 0
               : tw_fail(err, TW_E_FORMAT,
                         "%s: program %s: state \"%s\" has %u x pages of %llu bytes, in another "
                         "program %u x %llu",
                         b->path, p->name, tw_program_string(p, t->name), t->bind_count,
                         (unsigned long long)tw_tensor_page_bytes(t), x->instances,
                         (unsigned long long)x->page_bytes);
}

static int add_tensors(struct tw_state_pool *pool, const struct tw_bundle *b,
                       const struct tw_program *p, tw_error *err) {
    uint8_t *uses = calloc(p->n_tensors + 1u, 1);
    int code = uses ? 0 : tw_fail(err, TW_E_NOMEM, "%s: out of memory", b->path);
    if (!code) {
        note_uses(pool, p, uses);
        note_context(pool, p);
    }
    for (uint32_t i = 0; i < p->n_tensors && !code; i++) {
        if (p->tensors[i].role == TW_ROLE_STATE) {
            const struct tw_tensor *t = &p->tensors[i];
            bool positions = tw_tensor_pages(t) > 0 && t->rows / tw_tensor_pages(t) == TW_KV_BLOCK;
            code = add_tensor(pool, b, p, t, positions ? uses[i] : PLAIN, err);
        }
    }
    free(uses);
    return code;
}

/* Keeps the tensors that are always used through the table. */
static void keep_paged(struct tw_state_pool *pool) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < pool->n_tensors; i++) {
        if (pool->tensors[i].uses == PAGED) {
            pool->tensors[n++] = pool->tensors[i];
            pool->page_bytes += pool->tensors[i].page_bytes * pool->tensors[i].instances;
        }
    }
    pool->n_tensors = n;
}

int tw_state_pool_find(struct tw_state_pool *pool, const char *table, struct tw_device *device,
                       const struct tw_bundle *b, tw_error *err) {
    size_t n = 0;
    for (uint32_t i = 0; i < b->n_programs; i++) {
        n += b->programs[i].n_tensors;
    }
    *pool = (struct tw_state_pool){
        .device = device, .table = table, .tensors = calloc(n + 1, sizeof *pool->tensors)};
    if (!pool->tensors) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory", b->path);
    }
    pthread_mutex_init(&pool->lock, NULL);
    int code = 0;
    bool paged = has_table(b, table); /* else the programs need not be read */
    for (uint32_t i = 0; paged && i < b->n_programs && !code; i++) {
        code = add_tensors(pool, b, &b->programs[i], err);
    }
    keep_paged(pool);
    return code;
}

/* ---- memory ---- */

/* Under the lock, after a change. */
static void show(struct tw_state_pool *pool) {
    const struct tw_status_pages now = {.all = pool->n_pages,
                                        .used = pool->n_pages - pool->n_free,
                                        .shared = pool->n_shared,
                                        .cached = pool->n_cached};
    if (memcmp(&now, &pool->shown, sizeof now) != 0) {
        tw_status_pages(&pool->device->status, &pool->shown, &now);
        pool->shown = now;
    }
}

int tw_state_pool_open(struct tw_state_pool *pool, uint32_t n_pages, tw_error *err) {
    if (pool->n_tensors == 0) {
        return 0;
    }
    pool->uses = calloc(n_pages, sizeof *pool->uses);
    pool->free_page = malloc(n_pages * sizeof *pool->free_page);
    if (!pool->uses || !pool->free_page) {
        return tw_fail(err, TW_E_NOMEM, "state: no memory for the list of %u pages", n_pages);
    }
    pool->n_pages = pool->n_free = n_pages;
    for (uint32_t i = 0; i < n_pages; i++) {
        pool->free_page[i] = n_pages - 1 - i; /* page 0 is taken first */
    }
    show(pool);
    for (uint32_t i = 0; i < pool->n_tensors; i++) {
        struct tw_pool_tensor *t = &pool->tensors[i];
        uint64_t bytes;
        bool fits = tw_mul_u64(t->page_bytes, n_pages, &bytes) &&
                    tw_align_u64(bytes, TW_WIRE_BIND_ALIGN, &t->stride) &&
                    tw_mul_u64(t->stride, t->instances, &bytes);
        if (!fits) {
            return tw_fail(err, TW_E_NOMEM, "state: %u pages of %llu bytes exceed 64 bits", n_pages,
                           (unsigned long long)pool->page_bytes);
        }
        int code = tw_device_alloc(pool->device, bytes, 64, true, &t->address, err);
        if (code) {
            tw_error_append(err, "; state of %llu positions takes %llu bytes",
                            (unsigned long long)n_pages * TW_KV_BLOCK,
                            (unsigned long long)(pool->page_bytes * n_pages));
            return code;
        }
    }
    return 0;
}

void tw_state_pool_close(struct tw_state_pool *pool, bool on_device) {
    if (!pool->tensors) {
        return;
    }
    for (uint32_t i = 0; i < pool->n_tensors && on_device; i++) {
        tw_device_free(pool->device, pool->tensors[i].address);
    }
    const struct tw_status_pages none = {0};
    tw_status_pages(&pool->device->status, &pool->shown, &none);
    pthread_mutex_destroy(&pool->lock);
    free(pool->uses);
    free(pool->free_page);
    free(pool->tensors);
    memset(pool, 0, sizeof *pool);
}

/* ---- programs ---- */

static const struct tw_pool_tensor *find_tensor(const struct tw_state_pool *pool,
                                                uint32_t bind_first) {
    for (uint32_t i = 0; i < pool->n_tensors; i++) {
        if (pool->tensors[i].bind_first == bind_first) {
            return &pool->tensors[i];
        }
    }
    return NULL;
}

void tw_state_pool_resize(const struct tw_state_pool *pool, struct tw_tensor *tensors, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        struct tw_tensor *t = &tensors[i];
        const struct tw_pool_tensor *x =
            t->role == TW_ROLE_STATE ? find_tensor(pool, t->bind_first) : NULL;
        if (x) {
            t->rows = pool->n_pages * TW_KV_BLOCK;
            t->bytes = x->page_bytes * pool->n_pages;
        }
    }
}

bool tw_state_pool_has_row(const struct tw_state_pool *pool, uint64_t row) {
    for (uint32_t i = 0; i < pool->n_tensors; i++) {
        const struct tw_pool_tensor *t = &pool->tensors[i];
        if (row >= t->bind_first && row - t->bind_first < t->instances) {
            return true;
        }
    }
    return false;
}

void tw_state_pool_bind(const struct tw_state_pool *pool, uint64_t *rows) {
    for (uint32_t i = 0; i < pool->n_tensors; i++) {
        const struct tw_pool_tensor *t = &pool->tensors[i];
        for (uint32_t k = 0; k < t->instances; k++) {
            rows[t->bind_first + k] = t->address + k * t->stride;
        }
    }
}

/* ---- pages ---- */

static void count(struct tw_state_pool *pool, struct tw_pool_holder *holder, uint32_t more,
                  uint32_t less) {
    holder->pages += more - less;
    if (holder->is_cache) {
        pool->n_cached += more - less;
    }
    show(pool);
}

void tw_state_pool_join(struct tw_state_pool *pool, struct tw_pool_holder *holder) {
    if (pool->n_tensors == 0) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    holder->number = holder->is_cache ? 0 : ++pool->n_holders_ever;
    holder->next = pool->holders;
    pool->holders = holder;
    pthread_mutex_unlock(&pool->lock);
}

void tw_state_pool_leave(struct tw_state_pool *pool, struct tw_pool_holder *holder) {
    if (pool->n_tensors == 0) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    struct tw_pool_holder **at = &pool->holders;
    while (*at && *at != holder) {
        at = &(*at)->next;
    }
    if (*at) {
        *at = holder->next;
    }
    pthread_mutex_unlock(&pool->lock);
}

/* "session 2 holds 30, session 1 holds 20": the three that hold the most, under the lock. */
static void list_holders(const struct tw_state_pool *pool, char *text, size_t size) {
    const struct tw_pool_holder *listed[3] = {NULL, NULL, NULL};
    size_t n = 0;
    for (uint32_t i = 0; i < 3; i++) {
        for (const struct tw_pool_holder *h = pool->holders; h; h = h->next) {
            bool done = h == listed[0] || h == listed[1];
            if (!done && h->pages && (!listed[i] || h->pages > listed[i]->pages)) {
                listed[i] = h;
            }
        }
        if (listed[i] && n < size) {
            const char *comma = i ? ", " : "";
            n += (size_t)(listed[i]->is_cache
                              ? snprintf(text + n, size - n, "%sthe prefix cache holds %u", comma,
                                         listed[i]->pages)
                              : snprintf(text + n, size - n, "%ssession %u holds %u", comma,
                                         listed[i]->number, listed[i]->pages));
        }
    }
}

/* Has something given back, outside the lock, which it leaves and takes again. */
static bool can_reclaim(struct tw_state_pool *pool) {
    if (!pool->reclaim) {
        return false;
    }
    pthread_mutex_unlock(&pool->lock);
    bool given = pool->reclaim(pool->reclaim_ctx, pool);
    pthread_mutex_lock(&pool->lock);
    return given;
}

int tw_state_pool_take(struct tw_state_pool *pool, struct tw_pool_holder *holder, uint32_t *pages,
                       uint32_t n, tw_error *err) {
    int code = 0;
    pthread_mutex_lock(&pool->lock);
    /* What cannot be had in any case leaves the cache as it is. */
    while (n > pool->n_free && n - pool->n_free <= pool->n_cached && can_reclaim(pool)) {
    }
    if (n > pool->n_free) {
        char who[120] = "nobody holds any";
        list_holders(pool, who, sizeof who);
        code = tw_fail(err, TW_E_NOMEM,
                       "out of state pages: have %u of %u, need %u (of %u positions each); %s; end "
                       "or rewind a session, or deploy with more positions",
                       pool->n_free, pool->n_pages, n, TW_KV_BLOCK, who);
    }
    for (uint32_t i = 0; i < n && !code; i++) {
        pages[i] = pool->free_page[--pool->n_free];
        TW_ASSERT(pool->uses[pages[i]] == 0);
        pool->uses[pages[i]] = 1;
    }
    count(pool, holder, code ? 0 : n, 0);
    pthread_mutex_unlock(&pool->lock);
    return code;
}

void tw_state_pool_share(struct tw_state_pool *pool, struct tw_pool_holder *holder,
                         const uint32_t *pages, uint32_t n) {
    pthread_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < n; i++) {
        TW_ASSERT(pool->uses[pages[i]] > 0);
        pool->n_shared += pool->uses[pages[i]]++ == 1;
    }
    count(pool, holder, n, 0);
    pthread_mutex_unlock(&pool->lock);
}

void tw_state_pool_drop(struct tw_state_pool *pool, struct tw_pool_holder *holder,
                        const uint32_t *pages, uint32_t n) {
    pthread_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < n; i++) {
        TW_ASSERT(pool->uses[pages[i]] > 0);
        pool->n_shared -= pool->uses[pages[i]] == 2;
        if (--pool->uses[pages[i]] == 0) {
            pool->free_page[pool->n_free++] = pages[i];
        }
    }
    count(pool, holder, 0, n);
    pthread_mutex_unlock(&pool->lock);
}

bool tw_state_pool_is_shared(struct tw_state_pool *pool, uint32_t page) {
    pthread_mutex_lock(&pool->lock);
    bool shared = pool->uses[page] > 1;
    pthread_mutex_unlock(&pool->lock);
    return shared;
}

/* ---- copies ---- */

/* By way of the host, for devices that cannot copy. */
static int copy_by_host(struct tw_state_pool *pool, const struct tw_pool_tensor *t, uint64_t from,
                        uint64_t to, tw_error *err) {
    void *bytes = malloc((size_t)t->page_bytes);
    int code = bytes ? 0 : tw_fail(err, TW_E_NOMEM, "state: no memory to copy a page");
    for (uint32_t i = 0; i < t->instances && !code; i++) {
        code = tw_device_read(pool->device, from + i * t->stride, bytes, t->page_bytes, err);
        code = code ? code
                    : tw_device_write(pool->device, to + i * t->stride, bytes, t->page_bytes, err);
    }
    free(bytes);
    return code;
}

int tw_state_pool_copy(struct tw_state_pool *pool, uint32_t from, uint32_t to, tw_error *err) {
    int code = 0;
    for (uint32_t i = 0; i < pool->n_tensors && !code; i++) {
        const struct tw_pool_tensor *t = &pool->tensors[i];
        struct tw_wire_copy q = {.from = t->address + from * t->page_bytes,
                                 .bytes = t->page_bytes,
                                 .stride = t->stride,
                                 .rows = t->instances};
        struct tw_device_call call = {.opcode = TW_WIRE_COPY,
                                      .address = t->address + to * t->page_bytes,
                                      .payload = &q,
                                      .bytes = sizeof q};
        code = pool->device->identity.capabilities & TW_WIRE_CAN_COPY
                   ? tw_device_call(pool->device, &call, err)
                   : copy_by_host(pool, t, q.from, call.address, err);
    }
    return code;
}
