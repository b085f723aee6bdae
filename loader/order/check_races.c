/* SPDX-License-Identifier: Apache-2.0
 *
 * Conflicts between engines (rule 24). The accesses of an object are kept in lanes, one for each
 * engine that reads and one for each that writes. A new access is compared with the lanes whose
 * columns it touches. If these are many, one test comes first: whether the engine knows that the
 * accesses of all lanes are over.
 */
#include "loader/order/check_internal.h"

#include "loader/base/grow.h"

#include <stdlib.h>

#define MERGE_WINDOW 8u /* a new access may be merged with one of the last 8 of its lane */
#define FEW_LANES 8u    /* up to this many lanes are compared one by one, without an index */

/* ---- rectangles ---- */

uint64_t tw_ck_rect_end(const struct tw_ck_rect *r) {
    return r->lo + (r->max ? (uint64_t)(r->max - 1) * r->stride : 0) + r->row_bytes;
}

bool tw_ck_in_columns(const struct tw_ck_rect *r) {
    return r->stride && r->lo % r->stride + r->row_bytes <= r->stride;
}

static bool overlap(const struct tw_ck_rect *a, const struct tw_ck_rect *b) {
    if (a->lo >= tw_ck_rect_end(b) || b->lo >= tw_ck_rect_end(a)) {
        return false;
    }
    if (a->stride != b->stride || !tw_ck_in_columns(a) || !tw_ck_in_columns(b)) {
        return true;
    }
    TW_ASSERT(a->stride > 0); /* else they are not in columns */
    uint64_t x = a->lo % a->stride, y = b->lo % b->stride;
    return x < y + b->row_bytes && y < x + a->row_bytes;
}

/* The columns of a rectangle, in rows of `stride` bytes or in bytes. */
static struct tw_ck_place columns(const struct tw_ck_rect *r, uint64_t stride) {
    uint64_t lo = stride ? r->lo % stride : r->lo;
    return (struct tw_ck_place){lo, stride ? lo + r->row_bytes : tw_ck_rect_end(r), TW_NONE};
}

/* ---- comparing ---- */

/* Counts comparisons with concurrent accesses of other engines. Compiled programs stay far below
 * this many for each access; others are refused, so that checking stays linear. */
#define COMPARISONS_PER_ACCESS 4096u
#define COMPARISONS_FREE (UINT64_C(1) << 26)

int tw_ck_compared(struct tw_checker *c, uint64_t comparisons) {
    c->comparisons += comparisons;
    if (c->comparisons <= COMPARISONS_FREE ||
        c->comparisons / COMPARISONS_PER_ACCESS <= c->accesses) {
        return 0;
    }
    return tw_ck_fail(c, TW_ORDER_race_free,
                      "too many concurrent accesses to check: %llu comparisons for %llu accesses",
                      (unsigned long long)c->comparisons, (unsigned long long)c->accesses);
}

/* Budget for logs and written spans: this many bytes, and this many for each byte of the streams.
 * One multicast leaves an access on each site that it reaches. */
#define LOG_BYTES_FREE (UINT64_C(1) << 27)
#define LOG_BYTES_PER_BYTE 256u

int tw_ck_logged(struct tw_checker *c, uint64_t lane_bytes, uint64_t span_bytes) {
    uint64_t max = LOG_BYTES_FREE + c->words_of_streams * sizeof(uint32_t) * LOG_BYTES_PER_BYTE;
    c->lane_bytes += lane_bytes;
    c->span_bytes += span_bytes;
    if (c->lane_bytes + c->span_bytes <= max) {
        return 0;
    }
    return tw_ck_fail(c, TW_ORDER_race_free,
                      "too many accesses to check: %llu bytes of logs, the maximum is %llu",
                      (unsigned long long)(c->lane_bytes + c->span_bytes), (unsigned long long)max);
}

/* Returns the first op of a stream that may still run when the current op does. */
static uint32_t first_unordered(const struct tw_checker *c, uint32_t stream) {
    int32_t known = tw_ck_known(c, c->stream, stream);
    uint32_t limit = known > 0 ? (uint32_t)known : 0;
    uint32_t inner = c->streams[stream].inner_from;
    return inner < limit ? inner : limit; /* TW_NONE: no such loop */
}

static int report_race(struct tw_checker *c, uint32_t stream, bool write,
                       const struct tw_ck_access *a, const struct tw_ck_access *now,
                       const char *name) {
    return tw_ck_fail(c, TW_ORDER_race_free,
                      "%s %s bytes [%llu, %llu) while site %u %s op %u may still %s [%llu, %llu)",
                      now->write ? "writes" : "reads", name, (unsigned long long)now->rect.lo,
                      (unsigned long long)tw_ck_rect_end(&now->rect), tw_ck_site(c, stream),
                      tw_engine_name(c->p->streams[stream].engine), a->at, write ? "write" : "read",
                      (unsigned long long)a->rect.lo, (unsigned long long)tw_ck_rect_end(&a->rect));
}

/* Accesses are in the order of their ops, so those that may still be under way are the last. */
static int compare_lane(struct tw_checker *c, const struct tw_ck_lane *lane, bool write,
                        const struct tw_ck_access *now, const char *name) {
    if (lane->stream == c->stream) { /* program order */
        return 0;
    }
    uint32_t first = first_unordered(c, lane->stream);
    size_t i = lane->n;
    for (; i > 0 && lane->items[i - 1].at >= first; i--) {
        const struct tw_ck_access *a = &lane->items[i - 1];
        bool other = a->constant && now->constant && a->instance != now->instance;
        if (!other && overlap(&a->rect, &now->rect)) {
            return report_race(c, lane->stream, write, a, now, name);
        }
    }
    tw_ck_count(c, TW_ORDER_race_free);
    return tw_ck_compared(c, lane->n - i + 1);
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

static struct tw_ck_lane *find_lane(struct tw_ck_lanes *l, uint32_t stream) {
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
    if (l->n <= FEW_LANES) {
        return 0;
    }
    size_t first = l->n - 1;
    if (2 * l->n > l->n_table) {
        size_t n = l->n_table ? 2 * l->n_table : 4 * FEW_LANES;
        free(l->table);
        l->n_table = 0;
        l->table = malloc(n * sizeof *l->table);
        if (!l->table) {
            return tw_fail(c->err, TW_E_NOMEM, "out of memory to check %s: %zu lanes", c->p->name,
                           n);
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
static size_t find_place(const struct tw_ck_lanes *l, uint64_t lo) {
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
    int rc = tw_ck_grow(c, &l->order, &l->cap_order, l->n, sizeof *l->order);
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
    return tw_ck_compared(c, l->n / 2);
}

/* Puts a lane whose columns have changed where it will be found. */
static int place_lane(struct tw_checker *c, struct tw_ck_lanes *l, uint32_t index) {
    struct tw_ck_lane *lane = &l->items[index];
    uint64_t length = lane->hi - lane->lo;
    bool last = l->n_order == 0 || lane->lo >= l->order[l->n_order - 1].lo;
    if (lane->place != TW_NONE && l->order[lane->place].lo == lane->lo) {
        l->order[lane->place].hi = lane->hi;
    } else if (lane->place == TW_NONE && last) {
        int rc = tw_ck_grow(c, &l->order, &l->cap_order, l->n_order, sizeof *l->order);
        if (rc) {
            return rc;
        }
        lane->place = (uint32_t)l->n_order;
        l->order[l->n_order++] = (struct tw_ck_place){lane->lo, lane->hi, index};
    } else {
        int rc = tw_ck_grow(c, &l->odd, &l->cap_odd, l->n_odd, sizeof *l->odd);
        if (rc) {
            return rc;
        }
        l->odd[l->n_odd++] = index;
        return l->n_odd > FEW_LANES + l->n / 8 ? sort_lanes(c, l) : 0;
    }
    l->longest = l->longest < length ? length : l->longest;
    return 0;
}

/* Computes the columns of all lanes, their order, and the demand that they are over. Needed when
 * the lanes become many, or when the unit of columns changes. */
static int index_lanes(struct tw_checker *c, struct tw_ck_lanes *l) {
    int rc = tw_ck_grow(c, &l->slots, &l->cap_slots, l->n, sizeof *l->slots);
    rc = rc ? rc : tw_ck_grow(c, &l->over, &l->cap_over, l->n, sizeof *l->over);
    for (size_t i = 0; i < l->n && rc == 0; i++) {
        struct tw_ck_lane *lane = &l->items[i];
        lane->lo = UINT64_MAX;
        lane->hi = 0;
        for (size_t k = 0; k < lane->n; k++) {
            struct tw_ck_place p = columns(&lane->items[k].rect, l->stride);
            lane->lo = lane->lo < p.lo ? lane->lo : p.lo;
            lane->hi = lane->hi > p.hi ? lane->hi : p.hi;
        }
        l->slots[i] = c->slot[lane->stream];
        l->over[i] = (int32_t)lane->items[lane->n - 1].at + 1 + c->offset[lane->stream];
    }
    l->demand = 0;
    return rc ? rc : sort_lanes(c, l);
}

/* Counts columns in bytes from now on, if an access has rows of another length, or none. */
static int fit_columns(struct tw_checker *c, struct tw_ck_lanes *l, const struct tw_ck_rect *r) {
    if (!l->stride || (r->stride == l->stride && tw_ck_in_columns(r))) {
        return 0;
    }
    l->stride = 0;
    return l->n > FEW_LANES ? index_lanes(c, l) : 0;
}

/* ---- all lanes at once ---- */

/* Sets *over to whether the current stream knows that all accesses in the lanes are over. */
static int all_over(struct tw_checker *c, struct tw_ck_lanes *l, bool *over) {
    l->demand = l->demand ? l->demand : tw_ck_demand_id(c);
    struct tw_ck_demand d = {l->demand, (uint32_t)l->n, l->slots, l->over};
    return tw_ck_demand_met(c, c->stream, &d, over);
}

/* The outermost open loop without flags, or NULL. */
static const struct tw_ck_frame *inner_loop(const struct tw_checker *c) {
    uint32_t d = 0;
    while (d < c->depth && c->frames[d].flags) {
        d++;
    }
    return d < c->depth ? &c->frames[d] : NULL;
}

/* An engine that is in the same loop without flags counts as not having left it, whatever the
 * current one knows. */
static int compare_members(struct tw_checker *c, struct tw_ck_lanes *l, bool write,
                           const struct tw_ck_access *now, const char *name) {
    const struct tw_ck_frame *f = inner_loop(c);
    int rc = 0;
    for (uint32_t i = 0; f && i < f->n && rc == 0; i++) {
        uint32_t stream = c->members[f->first + i];
        struct tw_ck_lane *lane = stream == c->stream ? NULL : find_lane(l, stream);
        rc = lane ? compare_lane(c, lane, write, now, name) : 0;
    }
    return rc;
}

static int compare_lanes(struct tw_checker *c, struct tw_ck_lanes *l, bool write,
                         const struct tw_ck_access *now, const char *name) {
    int rc = 0;
    if (l->n <= FEW_LANES) {
        for (size_t i = 0; i < l->n && rc == 0; i++) {
            rc = compare_lane(c, &l->items[i], write, now, name);
        }
        return rc;
    }
    rc = fit_columns(c, l, &now->rect);
    if (rc) {
        return rc;
    }
    struct tw_ck_place p = columns(&now->rect, l->stride);
    size_t first = find_place(l, p.lo > l->longest ? p.lo - l->longest : 0),
           end = find_place(l, p.hi), touched = end - first + l->n_odd;
    if (touched > FEW_LANES) {
        bool over = false;
        rc = all_over(c, l, &over);
        if (rc || over) {
            return rc ? rc : compare_members(c, l, write, now, name);
        }
    }
    for (size_t i = first; i < end && rc == 0; i++) {
        if (l->order[i].hi > p.lo) {
            rc = compare_lane(c, &l->items[l->order[i].lane], write, now, name);
        }
    }
    for (size_t i = 0; i < l->n_odd && rc == 0; i++) {
        rc = compare_lane(c, &l->items[l->odd[i]], write, now, name);
    }
    return rc ? rc : tw_ck_compared(c, touched / 4);
}

/* ---- adding ---- */

/* Merges an access with an earlier one of the same lane if the two are one run of bytes; the later
 * op then represents both. */
static bool merge_access(struct tw_ck_lane *lane, const struct tw_ck_access *now) {
    for (size_t i = lane->n; i > 0 && lane->n - i < MERGE_WINDOW; i--) {
        struct tw_ck_access a = lane->items[i - 1];
        bool alike = a.instance == now->instance && a.constant == now->constant &&
                     a.rect.stride == now->rect.stride && a.rect.trip == now->rect.trip &&
                     a.rect.max == now->rect.max;
        uint64_t end = a.rect.lo + a.rect.row_bytes, now_end = now->rect.lo + now->rect.row_bytes;
        if (alike && a.rect.lo <= now_end && now->rect.lo <= end) {
            a.rect.lo = a.rect.lo < now->rect.lo ? a.rect.lo : now->rect.lo;
            a.rect.row_bytes = (end > now_end ? end : now_end) - a.rect.lo;
            a.at = now->at;
            memmove(&lane->items[i - 1], &lane->items[i], (lane->n - i) * sizeof a);
            lane->items[lane->n - 1] = a;
            return true;
        }
    }
    return false;
}

static int add_lane(struct tw_checker *c, struct tw_ck_lanes *l, struct tw_ck_lane **out) {
    int rc = tw_ck_logged(c, sizeof **out, 0);
    rc = rc ? rc : tw_ck_grow(c, &l->items, &l->cap, l->n, sizeof *l->items);
    if (rc) {
        return rc;
    }
    *out = &l->items[l->n++];
    **out = (struct tw_ck_lane){.stream = c->stream, .place = TW_NONE, .lo = UINT64_MAX};
    return enter_lane(c, l);
}

/* The first access gets exactly its room: many lanes never have another one, and a multicast makes
 * a lane on each site. */
static int push_access(struct tw_checker *c, struct tw_ck_lane *lane,
                       const struct tw_ck_access *now) {
    if (!lane->items) {
        lane->items = malloc(sizeof *lane->items);
        lane->cap = lane->items ? 1 : 0;
    }
    int rc = tw_ck_logged(c, sizeof *now, 0);
    rc = rc ? rc : tw_ck_grow(c, &lane->items, &lane->cap, lane->n, sizeof *lane->items);
    if (rc == 0) {
        lane->items[lane->n++] = *now;
    }
    return rc;
}

/* Updates the index after an access was added to a lane. */
static int record_access(struct tw_checker *c, struct tw_ck_lanes *l, struct tw_ck_lane *lane) {
    const struct tw_ck_access *now = &lane->items[lane->n - 1];
    size_t index = (size_t)(lane - l->items);
    int rc = tw_ck_grow(c, &l->slots, &l->cap_slots, index, sizeof *l->slots);
    rc = rc ? rc : tw_ck_grow(c, &l->over, &l->cap_over, index, sizeof *l->over);
    if (rc) {
        return rc;
    }
    l->slots[index] = c->slot[c->stream];
    l->over[index] = (int32_t)now->at + 1 + c->offset[c->stream];
    l->demand = 0;
    struct tw_ck_place p = columns(&now->rect, l->stride);
    if (lane->lo <= p.lo && p.hi <= lane->hi) {
        return 0;
    }
    lane->lo = lane->lo < p.lo ? lane->lo : p.lo;
    lane->hi = lane->hi > p.hi ? lane->hi : p.hi;
    return place_lane(c, l, (uint32_t)index);
}

static int add_access(struct tw_checker *c, struct tw_ck_lanes *l, const struct tw_ck_access *now) {
    struct tw_ck_lane *lane = find_lane(l, c->stream);
    bool indexed = l->n > FEW_LANES;
    if (l->n == 0) {
        l->stride = tw_ck_in_columns(&now->rect) ? now->rect.stride : 0;
    }
    int rc = lane ? 0 : add_lane(c, l, &lane);
    if (rc == 0 && !merge_access(lane, now)) {
        rc = push_access(c, lane, now);
    }
    rc = rc ? rc : fit_columns(c, l, &lane->items[lane->n - 1].rect);
    if (rc || l->n <= FEW_LANES) {
        return rc;
    }
    return indexed ? record_access(c, l, lane) : index_lanes(c, l);
}

int tw_ck_log_access(struct tw_checker *c, struct tw_ck_log *log, const struct tw_ck_access *now,
                     const char *name) {
    c->accesses++;
    int rc = compare_lanes(c, &log->by[1], true, now, name);
    if (rc == 0 && now->write) {
        rc = compare_lanes(c, &log->by[0], false, now, name);
    }
    if (rc) {
        return rc;
    }
    for (uint32_t d = 0; d < c->depth; d++) {
        if (c->frames[d].pass && !c->frames[d].flags) {
            return 0; /* the first pass has logged it for all iterations */
        }
    }
    if (log->by[0].n == 0 && log->by[1].n == 0) {
        rc = tw_ck_grow(c, &c->used_logs, &c->cap_used_logs, c->n_used_logs, sizeof *c->used_logs);
        if (rc) {
            return rc;
        }
        c->used_logs[c->n_used_logs++] = log;
    }
    return add_access(c, &log->by[now->write], now);
}

void tw_ck_log_free(struct tw_ck_log *log) {
    for (int write = 0; write < 2; write++) {
        struct tw_ck_lanes *l = &log->by[write];
        for (size_t i = 0; i < l->n; i++) {
            free(l->items[i].items);
        }
        free(l->items);
        free(l->order);
        free(l->odd);
        free(l->slots);
        free(l->over);
        free(l->table);
    }
    memset(log, 0, sizeof *log);
}

void tw_ck_memory_forget(struct tw_checker *c) {
    for (size_t i = 0; i < c->n_used_logs; i++) {
        tw_ck_log_free(c->used_logs[i]);
    }
    c->n_used_logs = 0;
    c->lane_bytes = 0;
}
