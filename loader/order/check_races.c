/* SPDX-License-Identifier: Apache-2.0
 *
 * Conflicts between engines (rule 24). The accesses of an object are kept in lanes, one for each
 * engine and kind: reads, writes, multicasts. All buffers of a set of siblings share a log, so that
 * a multicast is one access however many sites it reaches: an engine's other accesses are to the
 * buffer of its own site. A new access is compared with the lanes whose columns it touches. If
 * these are many, one test comes first: whether the engine knows that the accesses of all lanes are
 * over.
 */
#include "loader/order/check_internal.h"

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

/* ---- comparing ---- */

/* Returns how many ops of a stream are certain to be over when the current op runs, as an absolute
 * number. */
static int32_t over_of(const struct tw_checker *c, uint32_t stream) {
    int32_t known = tw_ck_known(c, c->stream, stream);
    uint32_t inner = c->streams[stream].inner_from; /* TW_NONE: no such loop */
    return (inner < INT32_MAX && (int32_t)inner < known ? (int32_t)inner : known) +
           c->offset[stream];
}

static bool groups_meet(const struct tw_group *a, const struct tw_group *b) {
    return a->x0 < b->x1 && b->x0 < a->x1 && a->y0 < b->y1 && b->y0 < a->y1 &&
           a->chip < b->chip + b->chips && b->chip < a->chip + a->chips;
}

/* Returns true if a group of an access, other than TW_NONE, has the site. */
static bool reaches(const struct tw_checker *c, uint32_t group, uint32_t site) {
    return group & TW_CK_TO_SITE ? (group & ~TW_CK_TO_SITE) == site
                                 : tw_group_holds(c->p, &c->p->groups[group], site);
}

/* Returns true if a buffer, or tensor, is touched by both: `a` of a lane, and the current one. */
static bool meet(const struct tw_checker *c, const struct tw_ck_access *a, uint32_t stream,
                 const struct tw_ck_access *now) {
    if (a->group == TW_NONE) {
        return now->group == TW_NONE || reaches(c, now->group, tw_ck_site(c, stream));
    }
    if (now->group == TW_NONE) {
        return reaches(c, a->group, tw_ck_site(c, c->stream));
    }
    if (now->group & TW_CK_TO_SITE) {
        return reaches(c, a->group, now->group & ~TW_CK_TO_SITE);
    }
    return a->group & TW_CK_TO_SITE
               ? reaches(c, now->group, a->group & ~TW_CK_TO_SITE)
               : groups_meet(&c->p->groups[a->group], &c->p->groups[now->group]);
}

static int report_race(struct tw_checker *c, uint32_t stream, const struct tw_ck_access *a,
                       const struct tw_ck_access *now, const char *name) {
    bool earlier = a->over - 1 - c->offset[stream] != (int32_t)a->at;
    return tw_ck_fail(c, TW_ORDER_race_free,
                      "%s %s bytes [%llu, %llu) while site %u %s op %u%s may still %s [%llu, %llu)",
                      now->write ? "writes" : "reads", name, (unsigned long long)now->rect.lo,
                      (unsigned long long)tw_ck_rect_end(&now->rect), tw_ck_site(c, stream),
                      tw_engine_name(c->p->streams[stream].engine), a->at,
                      earlier ? " of an earlier iteration" : "", a->write ? "write" : "read",
                      (unsigned long long)a->rect.lo, (unsigned long long)tw_ck_rect_end(&a->rect));
}

/* Returns true if two accesses, of which one writes, are in different pages because they use
 * different columns of page tables: the device refuses a step in which elements of two columns name
 * the same page of a tensor and a write uses one of them. */
static bool in_other_pages(const struct tw_ck_access *a, const struct tw_ck_access *b) {
    return a->table != TW_NONE && b->table != TW_NONE &&
           (a->table != b->table || a->last < b->first || b->last < a->first);
}

/* Accesses are in the order of their ops, so those that may still be under way are the last. */
static int compare_lane(struct tw_checker *c, const struct tw_ck_lane *lane,
                        const struct tw_ck_access *now, const char *name) {
    if (lane->stream == c->stream) { /* program order */
        return 0;
    }
    int32_t over = over_of(c, lane->stream);
    size_t i = lane->n;
    for (; i > 0 && lane->items[i - 1].over > over; i--) {
        const struct tw_ck_access *a = &lane->items[i - 1];
        bool other = (a->constant && now->constant && a->instance != now->instance) ||
                     in_other_pages(a, now);
        if (!other && overlap(&a->rect, &now->rect) && meet(c, a, lane->stream, now)) {
            return report_race(c, lane->stream, a, now, name);
        }
    }
    tw_ck_count(c, TW_ORDER_race_free);
    return tw_ck_spend(c, TW_CK_COMPARISONS, lane->n - i + 1);
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
static int compare_members(struct tw_checker *c, struct tw_ck_lanes *l,
                           const struct tw_ck_access *now, const char *name) {
    const struct tw_ck_frame *f = inner_loop(c);
    int rc = 0;
    for (uint32_t i = 0; f && i < f->n && rc == 0; i++) {
        uint32_t stream = c->members[f->first + i];
        struct tw_ck_lane *lane = stream == c->stream ? NULL : tw_ck_find_lane(l, stream);
        rc = lane ? compare_lane(c, lane, now, name) : 0;
    }
    return rc;
}

static int compare_lanes(struct tw_checker *c, struct tw_ck_lanes *l,
                         const struct tw_ck_access *now, const char *name) {
    int rc = 0;
    if (l->n <= TW_CK_FEW_LANES) {
        for (size_t i = 0; i < l->n && rc == 0; i++) {
            rc = compare_lane(c, &l->items[i], now, name);
        }
        return rc;
    }
    rc = tw_ck_fit_columns(c, l, &now->rect);
    if (rc) {
        return rc;
    }
    struct tw_ck_place p = tw_ck_columns(&now->rect, l->stride);
    size_t first = tw_ck_find_place(l, p.lo > l->longest ? p.lo - l->longest : 0),
           end = tw_ck_find_place(l, p.hi), touched = end - first + l->n_odd;
    if (touched > TW_CK_FEW_LANES) {
        bool over = false;
        rc = all_over(c, l, &over);
        if (rc || over) {
            return rc ? rc : compare_members(c, l, now, name);
        }
    }
    for (size_t i = first; i < end && rc == 0; i++) {
        if (l->order[i].hi > p.lo) {
            rc = compare_lane(c, &l->items[l->order[i].lane], now, name);
        }
    }
    for (size_t i = 0; i < l->n_odd && rc == 0; i++) {
        rc = compare_lane(c, &l->items[l->odd[i]], now, name);
    }
    return rc ? rc : tw_ck_spend(c, TW_CK_COMPARISONS, touched / 4);
}

/* Compares with the engines of the current one's site. */
static int compare_site(struct tw_checker *c, const struct tw_ck_lanes *l,
                        const struct tw_ck_access *now, const char *name) {
    uint32_t first = tw_ck_site(c, c->stream) * TW_ENGINE_COUNT;
    int rc = 0;
    for (uint32_t e = 0; e < TW_ENGINE_COUNT && l->n && rc == 0; e++) {
        const struct tw_ck_lane *lane =
            first + e == c->stream ? NULL : tw_ck_find_lane(l, first + e);
        rc = lane ? compare_lane(c, lane, now, name) : 0;
    }
    return rc;
}

static int compare_log(struct tw_checker *c, struct tw_ck_log *log, const struct tw_ck_access *now,
                       const char *name) {
    bool site = log->by_site && now->group == TW_NONE;
    int rc = compare_lanes(c, &log->by[TW_CK_MULTICASTS], now, name);
    rc = rc     ? rc
         : site ? compare_site(c, &log->by[TW_CK_WRITES], now, name)
                : compare_lanes(c, &log->by[TW_CK_WRITES], now, name);
    if (rc || !now->write) {
        return rc;
    }
    return site ? compare_site(c, &log->by[TW_CK_READS], now, name)
                : compare_lanes(c, &log->by[TW_CK_READS], now, name);
}

/* ---- logs ---- */

static int make_log(struct tw_checker *c, struct tw_ck_log **log, bool by_site) {
    int rc = tw_ck_grow(c, &c->used_logs, &c->cap_used_logs, c->n_used_logs, sizeof *c->used_logs);
    if (rc) {
        return rc;
    }
    *log = tw_ck_alloc(c, sizeof **log);
    if (!*log) {
        return c->make_error;
    }
    (*log)->by_site = by_site;
    c->used_logs[c->n_used_logs++] = log;
    return 0;
}

int tw_ck_log_access(struct tw_checker *c, struct tw_ck_log **log, bool by_site,
                     const struct tw_ck_access *now, const char *name) {
    const struct tw_operand *rows = tw_op_rows(&c->op);
    c->accesses++;
    if (rows && rows->max == 0) {
        return 0; /* it never has any */
    }
    int rc = *log ? compare_log(c, *log, now, name) : 0;
    if (rc) {
        return rc;
    }
    for (uint32_t d = 0; d < c->depth; d++) {
        if (c->frames[d].pass && !c->frames[d].flags) {
            return 0; /* the first pass has logged it for all iterations */
        }
    }
    rc = *log ? 0 : make_log(c, log, by_site);
    return rc ? rc
              : tw_ck_add_access(c,
                                 &(*log)->by[now->group != TW_NONE ? TW_CK_MULTICASTS
                                             : now->write          ? TW_CK_WRITES
                                                                   : TW_CK_READS],
                                 now);
}

void tw_ck_memory_forget(struct tw_checker *c) {
    for (size_t i = 0; i < c->n_used_logs; i++) {
        *c->used_logs[i] = NULL;
    }
    c->n_used_logs = 0;
    tw_ck_alloc_reset(c);
}
