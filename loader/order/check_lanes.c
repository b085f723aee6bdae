/* SPDX-License-Identifier: Apache-2.0
 *
 * The lanes of a log (check_races.c): found by stream through a hash table, by the columns that
 * they touch through an order. All of their memory is taken from one arena, which a rendezvous
 * empties.
 */
#include "loader/order/check_internal.h"

#include <stdlib.h>

#define MERGE_WINDOW 8u /* a new access may be merged with one of the last 8 of its lane */

/* ---- memory ---- */

enum { BLOCK_BYTES = 1 << 16, ALIGNMENT = 16 };

static struct tw_ck_block *add_block(struct tw_checker *c, size_t bytes) {
    size_t size = sizeof(struct tw_ck_block) + ALIGNMENT + bytes;
    size = size < BLOCK_BYTES ? BLOCK_BYTES : size;
    c->make_error = tw_ck_spend(c, TW_CK_LOG_BYTES, size);
    if (c->make_error) {
        return NULL;
    }
    struct tw_ck_block *b = malloc(size);
    if (!b) {
        c->make_error = tw_fail(c->err, TW_E_NOMEM, "out of memory to check %s: %zu bytes of logs",
                                c->p->name, size);
        return NULL;
    }
    b->bytes = size;
    b->next = c->logs.now ? c->logs.now->next : c->logs.first;
    if (c->logs.now) {
        c->logs.now->next = b;
    } else {
        c->logs.first = b;
    }
    return b;
}

void *tw_ck_alloc(struct tw_checker *c, size_t bytes) {
    struct tw_ck_arena *a = &c->logs;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!a->now || bytes > a->now->bytes - a->used) {
        struct tw_ck_block *next = a->now ? a->now->next : a->first;
        size_t begin = (sizeof *next + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        if (!next || bytes > next->bytes - begin) {
            next = add_block(c, bytes);
        }
        if (!next) {
            return NULL;
        }
        a->now = next;
        a->used = begin;
    }
    void *p = (char *)a->now + a->used;
    a->used += bytes;
    TW_ASSERT(a->used <= a->now->bytes);
    return memset(p, 0, bytes);
}

void tw_ck_alloc_reset(struct tw_checker *c) {
    c->logs.now = NULL;
    c->logs.used = 0;
}

void tw_ck_alloc_finish(struct tw_checker *c) {
    while (c->logs.first) {
        struct tw_ck_block *b = c->logs.first;
        c->logs.first = b->next;
        free(b);
    }
}

/* Makes room for item n of an array of logs. The first item gets exactly its room: many lanes never
 * have another one. */
static int make_room(struct tw_checker *c, void *items, size_t *cap, size_t n, size_t item_bytes) {
    if (n < *cap) {
        return 0;
    }
    size_t more = n ? 2 * n + 2 : 1;
    void *old, *fresh = tw_ck_alloc(c, more * item_bytes);
    if (!fresh) {
        return c->make_error;
    }
    memcpy(&old, items, sizeof old); /* `items` may be the address of a pointer of any type */
    if (*cap) {
        memcpy(fresh, old, *cap * item_bytes);
    }
    memcpy(items, &fresh, sizeof fresh);
    *cap = more;
    return 0;
}

/* The columns of a rectangle, in rows of `stride` bytes or in bytes. */
struct tw_ck_place tw_ck_columns(const struct tw_ck_rect *r, uint64_t stride) {
    uint64_t lo = stride ? r->lo % stride : r->lo;
    return (struct tw_ck_place){lo, stride ? lo + r->row_bytes : tw_ck_rect_end(r), TW_NONE};
}

/* ---- lanes by stream ---- */

/* Returns the stream's place in the table of lanes, which has room. */
static uint32_t *table_place(const struct tw_ck_lanes *l, uint32_t stream) {
    size_t at = (stream * (size_t)0x9E3779B1u) & (l->n_table - 1);
    while (l->table[at] != TW_NONE && l->items[l->table[at]].stream != stream) {
        at = (at + 1) & (l->n_table - 1);
    }
    return &l->table[at];
}

struct tw_ck_lane *tw_ck_find_lane(const struct tw_ck_lanes *l, uint32_t stream) {
    if (l->n_table) {
        uint32_t lane = *table_place(l, stream);
        return lane == TW_NONE ? NULL : &l->items[lane];
    }
    for (size_t i = 0; i < l->n; i++) {
        if (l->items[i].stream == stream) {
            return &l->items[i];
        }
    }
    return NULL;
}

/* Adds the last lane to the table; as long as there are few lanes, there is no table. */
static int enter_lane(struct tw_checker *c, struct tw_ck_lanes *l) {
    if (l->n <= TW_CK_FEW_LANES) {
        return 0;
    }
    size_t first = l->n - 1;
    if (2 * l->n > l->n_table) {
        size_t n = l->n_table ? 2 * l->n_table : 4 * TW_CK_FEW_LANES;
        l->n_table = 0;
        l->table = tw_ck_alloc(c, n * sizeof *l->table);
        if (!l->table) {
            return c->make_error;
        }
        memset(l->table, 0xFF, n * sizeof *l->table); /* TW_NONE */
        l->n_table = n;
        first = 0;
    }
    for (size_t i = first; i < l->n; i++) {
        *table_place(l, l->items[i].stream) = (uint32_t)i;
    }
    return 0;
}

/* ---- lanes by columns ---- */

/* Returns the first place in the order that begins at or after `lo`. */
size_t tw_ck_find_place(const struct tw_ck_lanes *l, uint64_t lo) {
    size_t from = 0, to = l->n_order;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (l->order[middle].lo < lo) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

static int by_lo(const void *a, const void *b) {
    const struct tw_ck_place *x = a, *y = b;
    if (x->lo != y->lo) {
        return x->lo < y->lo ? -1 : 1;
    }
    return x->lane < y->lane ? -1 : x->lane > y->lane;
}

static int sort_lanes(struct tw_checker *c, struct tw_ck_lanes *l) {
    int rc = make_room(c, &l->order, &l->cap_order, l->n, sizeof *l->order);
    for (size_t i = 0; i < l->n && rc == 0; i++) {
        l->order[i] = (struct tw_ck_place){l->items[i].lo, l->items[i].hi, (uint32_t)i};
    }
    if (rc) {
        return rc;
    }
    qsort(l->order, l->n, sizeof *l->order, by_lo);
    l->n_order = l->n;
    l->n_odd = 0;
    l->longest = 0;
    for (size_t i = 0; i < l->n; i++) {
        uint64_t length = l->order[i].hi - l->order[i].lo;
        l->items[l->order[i].lane].place = (uint32_t)i;
        l->longest = l->longest < length ? length : l->longest;
    }
    return tw_ck_spend(c, TW_CK_COMPARISONS, l->n / 2);
}

/* Puts a lane whose columns have changed where it will be found. */
static int place_lane(struct tw_checker *c, struct tw_ck_lanes *l, uint32_t index) {
    struct tw_ck_lane *lane = &l->items[index];
    uint64_t length = lane->hi - lane->lo;
    bool last = l->n_order == 0 || lane->lo >= l->order[l->n_order - 1].lo;
    if (lane->place != TW_NONE && l->order[lane->place].lo == lane->lo) {
        l->order[lane->place].hi = lane->hi;
    } else if (lane->place == TW_NONE && last) {
        int rc = make_room(c, &l->order, &l->cap_order, l->n_order, sizeof *l->order);
        if (rc) {
            return rc;
        }
        lane->place = (uint32_t)l->n_order;
        l->order[l->n_order++] = (struct tw_ck_place){lane->lo, lane->hi, index};
    } else {
        int rc = make_room(c, &l->odd, &l->cap_odd, l->n_odd, sizeof *l->odd);
        if (rc) {
            return rc;
        }
        l->odd[l->n_odd++] = index;
        return l->n_odd > TW_CK_FEW_LANES + l->n / 8 ? sort_lanes(c, l) : 0;
    }
    l->longest = l->longest < length ? length : l->longest;
    return 0;
}

/* Computes the columns of all lanes, their order, and the demand that they are over. Needed when
 * the lanes become many, or when the unit of columns changes. */
static int index_lanes(struct tw_checker *c, struct tw_ck_lanes *l) {
    int rc = make_room(c, &l->slots, &l->cap_slots, l->n, sizeof *l->slots);
    rc = rc ? rc : make_room(c, &l->over, &l->cap_over, l->n, sizeof *l->over);
    for (size_t i = 0; i < l->n && rc == 0; i++) {
        struct tw_ck_lane *lane = &l->items[i];
        lane->lo = UINT64_MAX;
        lane->hi = 0;
        for (size_t k = 0; k < lane->n; k++) {
            struct tw_ck_place p = tw_ck_columns(&lane->items[k].rect, l->stride);
            lane->lo = lane->lo < p.lo ? lane->lo : p.lo;
            lane->hi = lane->hi > p.hi ? lane->hi : p.hi;
        }
        l->slots[i] = c->slot[lane->stream];
        l->over[i] = lane->items[lane->n - 1].over;
    }
    l->demand = 0;
    return rc ? rc : sort_lanes(c, l);
}

/* Counts columns in bytes from now on, if an access has rows of another length, or none. */
int tw_ck_fit_columns(struct tw_checker *c, struct tw_ck_lanes *l, const struct tw_ck_rect *r) {
    if (!l->stride || (r->stride == l->stride && tw_ck_in_columns(r))) {
        return 0;
    }
    l->stride = 0;
    return l->n > TW_CK_FEW_LANES ? index_lanes(c, l) : 0;
}

/* ---- adding ---- */

/* Merges an access with an earlier one of the same lane if the two are one run of bytes; the later
 * op then represents both. */
static bool merge_access(struct tw_ck_lane *lane, const struct tw_ck_access *now) {
    for (size_t i = lane->n; i > 0 && lane->n - i < MERGE_WINDOW; i--) {
        struct tw_ck_access a = lane->items[i - 1];
        bool alike = a.group == now->group && a.instance == now->instance &&
                     a.constant == now->constant && a.rect.stride == now->rect.stride &&
                     a.rect.trip == now->rect.trip && a.rect.max == now->rect.max &&
                     a.table == now->table && a.first == now->first && a.last == now->last;
        uint64_t end = a.rect.lo + a.rect.row_bytes, now_end = now->rect.lo + now->rect.row_bytes;
        if (alike && a.rect.lo <= now_end && now->rect.lo <= end) {
            a.rect.lo = a.rect.lo < now->rect.lo ? a.rect.lo : now->rect.lo;
            a.rect.row_bytes = (end > now_end ? end : now_end) - a.rect.lo;
            a.over = now->over;
            a.at = now->at;
            memmove(&lane->items[i - 1], &lane->items[i], (lane->n - i) * sizeof a);
            lane->items[lane->n - 1] = a;
            return true;
        }
    }
    return false;
}

static int add_lane(struct tw_checker *c, struct tw_ck_lanes *l, struct tw_ck_lane **out) {
    int rc = make_room(c, &l->items, &l->cap, l->n, sizeof *l->items);
    if (rc) {
        return rc;
    }
    TW_ASSERT(l->items);
    *out = &l->items[l->n++];
    **out = (struct tw_ck_lane){.stream = c->stream, .place = TW_NONE, .lo = UINT64_MAX};
    return enter_lane(c, l);
}

static int push_access(struct tw_checker *c, struct tw_ck_lane *lane,
                       const struct tw_ck_access *now) {
    int rc = make_room(c, &lane->items, &lane->cap, lane->n, sizeof *lane->items);
    if (rc == 0) {
        lane->items[lane->n++] = *now;
    }
    return rc;
}

/* Updates the index after an access was added to a lane. */
static int record_access(struct tw_checker *c, struct tw_ck_lanes *l, struct tw_ck_lane *lane) {
    const struct tw_ck_access *now = &lane->items[lane->n - 1];
    size_t index = (size_t)(lane - l->items);
    int rc = make_room(c, &l->slots, &l->cap_slots, index, sizeof *l->slots);
    rc = rc ? rc : make_room(c, &l->over, &l->cap_over, index, sizeof *l->over);
    if (rc) {
        return rc;
    }
    l->slots[index] = c->slot[c->stream];
    l->over[index] = now->over;
    l->demand = 0;
    struct tw_ck_place p = tw_ck_columns(&now->rect, l->stride);
    if (lane->lo <= p.lo && p.hi <= lane->hi) {
        return 0;
    }
    lane->lo = lane->lo < p.lo ? lane->lo : p.lo;
    lane->hi = lane->hi > p.hi ? lane->hi : p.hi;
    return place_lane(c, l, (uint32_t)index);
}

int tw_ck_add_access(struct tw_checker *c, struct tw_ck_lanes *l, const struct tw_ck_access *now) {
    struct tw_ck_lane *lane = tw_ck_find_lane(l, c->stream);
    bool indexed = l->n > TW_CK_FEW_LANES;
    if (l->n == 0) {
        l->stride = tw_ck_in_columns(&now->rect) ? now->rect.stride : 0;
    }
    int rc = lane ? 0 : add_lane(c, l, &lane);
    if (rc == 0 && !merge_access(lane, now)) {
        rc = push_access(c, lane, now);
    }
    rc = rc ? rc : tw_ck_fit_columns(c, l, &lane->items[lane->n - 1].rect);
    if (rc || l->n <= TW_CK_FEW_LANES) {
        return rc;
    }
    return indexed ? record_access(c, l, lane) : index_lanes(c, l);
}
