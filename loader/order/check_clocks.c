/* SPDX-License-Identifier: Apache-2.0
 *
 * What each engine knows of the others: vector clocks whose cost follows what was learned, not the
 * number of engines. A clock is a base, a vector that many clocks share (since a rendezvous all
 * engines share one), and the few entries that are higher. Numbers are absolute: op k of stream s
 * in the current iteration is k + c->offset[s], and a repeated body moves the offsets instead of
 * all clocks (rule 29 keeps the numbers below 2^31). A stream's own entry is its place and is not
 * stored.
 *
 * A base of which somebody else holds a reference never changes. Bases remember a few others that
 * they are known to dominate, so that joining clocks of different ages compares no vectors.
 */
#include "loader/order/check_internal.h"

#include <stdlib.h>

/* Max. entries of a clock before they are folded into its base: 1/32 of the engines, but at least
 * MIN_ENTRIES and at most MAX_ENTRIES. */
#define MIN_ENTRIES 16u
#define MAX_ENTRIES 512u
/* How many other bases, equal or lower in every number, a base remembers. */
#define REMEMBERED 8u
#define SPARE 8u /* bases that are kept for the next copy */
/* Sizes of two caches: of joins of two bases, and of what a base lacks of a demand. */
#define JOINED 64u
#define LACKS 16u
struct tw_ck_base {
    uint64_t id; /* of this content */
    uint32_t refs, n_below;
    uint64_t below[REMEMBERED]; /* a ring of ids */
    int32_t over[];             /* by slot */
};
struct entry {
    uint32_t slot;
    int32_t over;
};
struct tw_ck_clock {
    uint32_t refs, n, cap;
    struct tw_ck_base *base; /* NULL: nothing is known */
    struct entry items[];    /* by slot; higher than the base */
};
struct joined {
    uint64_t a, b;
    struct tw_ck_base *base;
};
/* What a base lacks of a demand; more than max_entries + 1 are only counted. */
struct lack {
    uint64_t base, demand;
    uint32_t n;
    struct entry *items;
};
struct tw_ck_clocks {
    uint32_t n, max_entries; /* slots: streams that have ops */
    uint64_t last_id;
    struct tw_ck_clock **of; /* by slot */
    struct tw_ck_base *spare[SPARE];
    uint32_t n_spare;
    struct joined joined[JOINED];
    struct lack lacks[LACKS];
};

/* ---- budgets ---- */

/* A unit of work is an entry, or 16 numbers of a base. Compiled programs use about 20 for each
 * op. */
static int spend(struct tw_checker *c, uint64_t units) {
    return tw_ck_spend(c, TW_CK_CLOCK_WORK, units);
}

static int no_memory(struct tw_checker *c) {
    return tw_fail(c->err, TW_E_NOMEM, "out of memory to check the order of %s: %u engines",
                   c->p->name, c->clocks ? c->clocks->n : c->n_streams);
}

/* ---- bases ---- */

static size_t base_bytes(const struct tw_ck_clocks *k) {
    return sizeof(struct tw_ck_base) + k->n * sizeof(int32_t);
}

static void drop_base(struct tw_checker *c, struct tw_ck_base *b) {
    if (b && --b->refs == 0) { /* the next copy is likely to come soon */
        struct tw_ck_clocks *k = c->clocks;
        if (k->n_spare < SPARE) {
            k->spare[k->n_spare++] = b;
            return;
        }
        c->spent[TW_CK_CLOCK_BYTES] -= base_bytes(k);
        free(b);
    }
}

/* Both are held, so if they are the same it is held twice. */
static void drop_two_bases(struct tw_checker *c, struct tw_ck_base *a, struct tw_ck_base *b) {
    TW_ASSERT(!a || a != b || a->refs > 1);
    drop_base(c, a);
    drop_base(c, b);
}

static struct tw_ck_base *hold_base(struct tw_ck_base *b) {
    if (b) {
        b->refs++;
    }
    return b;
}

static void remember_below(struct tw_ck_base *b, uint64_t id) {
    b->below[b->n_below++ % REMEMBERED] = id;
}

/* Creates a copy of a base, which may be NULL, that only the caller holds. */
static int copy_base(struct tw_checker *c, const struct tw_ck_base *from, struct tw_ck_base **out) {
    struct tw_ck_clocks *k = c->clocks;
    int rc = spend(c, k->n / 16 + 1);
    if (rc) {
        return rc;
    }
    struct tw_ck_base *b = k->n_spare ? k->spare[--k->n_spare] : NULL;
    if (!b) {
        rc = tw_ck_spend(c, TW_CK_CLOCK_BYTES, base_bytes(k));
        b = rc ? NULL : malloc(base_bytes(k));
    }
    if (!b) {
        return rc ? rc : no_memory(c);
    }
    if (from) {
        memcpy(b, from, base_bytes(k));
        remember_below(b, from->id);
    } else {
        memset(b, 0, base_bytes(k));
    }
    b->refs = 1;
    b->id = ++k->last_id;
    *out = b;
    return 0;
}

static bool remembers(const struct tw_ck_base *high, uint64_t low) {
    for (uint32_t i = 0; i < REMEMBERED && i < high->n_below; i++) {
        if (high->below[i] == low) {
            return true;
        }
    }
    return false;
}

/* Compares two bases; the higher one remembers the result. */
static int compare_bases(struct tw_checker *c, struct tw_ck_base *a, struct tw_ck_base *b,
                         bool *a_below, bool *b_below) {
    *a_below = a == b || remembers(b, a->id);
    *b_below = a == b || remembers(a, b->id);
    if (*a_below || *b_below) {
        return 0;
    }
    int32_t higher = 0, lower = 0;
    for (uint32_t i = 0; i < c->clocks->n; i++) {
        higher |= a->over[i] > b->over[i];
        lower |= a->over[i] < b->over[i];
    }
    *a_below = !higher;
    *b_below = !lower;
    if (!higher) {
        remember_below(b, a->id);
    } else if (!lower) {
        remember_below(a, b->id);
    }
    return spend(c, c->clocks->n / 16 + 1);
}

/* Finds the higher one of two bases, or makes a join of both; the caller holds the result. */
static int join_bases(struct tw_checker *c, struct tw_ck_base *a, struct tw_ck_base *b,
                      struct tw_ck_base **out) {
    bool a_below, b_below;
    if (!a || !b) { /* none is below any */
        *out = hold_base(a ? a : b);
        return 0;
    }
    uint64_t low = a->id < b->id ? a->id : b->id, high = a->id < b->id ? b->id : a->id;
    struct joined *at = &c->clocks->joined[(low * 31 + high) % JOINED];
    if (at->base && at->a == low && at->b == high) {
        *out = hold_base(at->base);
        return 0;
    }
    int rc = compare_bases(c, a, b, &a_below, &b_below);
    if (rc || a_below || b_below) {
        *out = rc ? NULL : hold_base(a_below ? b : a);
        return rc;
    }
    rc = copy_base(c, a, out);
    if (rc) {
        return rc;
    }
    for (uint32_t i = 0; i < c->clocks->n; i++) {
        int32_t over = b->over[i];
        (*out)->over[i] = (*out)->over[i] < over ? over : (*out)->over[i];
    }
    remember_below(*out, b->id);
    drop_base(c, at->base);
    *at = (struct joined){low, high, hold_base(*out)};
    return 0;
}

/* ---- clocks ---- */

static struct tw_ck_clock *hold(struct tw_ck_clock *clock) {
    if (clock) {
        clock->refs++;
    }
    return clock;
}

static void drop(struct tw_checker *c, struct tw_ck_clock *clock) {
    if (clock && --clock->refs == 0) {
        drop_base(c, clock->base);
        free(clock);
    }
}

/* Makes *clock writable: replaces it by a copy if others hold it too, and makes room for `room`
 * more entries. */
static int own(struct tw_checker *c, struct tw_ck_clock **clock, uint32_t room) {
    struct tw_ck_clock *old = *clock, *fresh;
    uint32_t n = old ? old->n : 0, cap = n + room;
    if (old && old->refs == 1 && cap <= old->cap) {
        return 0;
    }
    cap = cap + cap / 2 + 2;
    size_t bytes = sizeof *fresh + cap * sizeof fresh->items[0];
    bool sole = old && old->refs == 1;
    fresh = sole ? realloc(old, bytes) : malloc(bytes);
    if (!fresh) {
        return no_memory(c);
    }
    if (!sole) {
        *fresh = (struct tw_ck_clock){.refs = 1, .n = n};
        if (old) {
            fresh->base = hold_base(old->base);
            memcpy(fresh->items, old->items, n * sizeof fresh->items[0]);
            old->refs--;
        }
    }
    fresh->cap = cap;
    *clock = fresh;
    return sole ? 0 : spend(c, n + 1);
}

/* Returns the index of the first entry whose slot is `slot` or higher. */
static uint32_t place(const struct tw_ck_clock *clock, uint32_t slot) {
    uint32_t from = 0, to = clock->n;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (clock->items[middle].slot < slot) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

static int32_t base_over(const struct tw_ck_base *b, uint32_t slot) {
    return b ? b->over[slot] : 0;
}

static int32_t over(const struct tw_ck_clock *clock, uint32_t slot) {
    if (!clock) {
        return 0;
    }
    uint32_t at = place(clock, slot);
    return at < clock->n && clock->items[at].slot == slot ? clock->items[at].over
                                                          : base_over(clock->base, slot);
}

/* Moves the entries into a base that nobody else holds. */
static int fold(struct tw_checker *c, struct tw_ck_clock *clock) {
    struct tw_ck_base *b = clock->base;
    if (!b || b->refs > 1) {
        int rc = copy_base(c, clock->base, &b);
        if (rc) {
            return rc;
        }
        drop_base(c, clock->base);
        clock->base = b;
    }
    for (uint32_t i = 0; i < clock->n; i++) {
        b->over[clock->items[i].slot] = clock->items[i].over;
    }
    b->id = ++c->clocks->last_id;
    clock->n = 0;
    return spend(c, 1);
}

/* Raises an entry; *clock is owned and has room. */
static int raise(struct tw_checker *c, struct tw_ck_clock *clock, struct entry e) {
    uint32_t at = place(clock, e.slot);
    if (at < clock->n && clock->items[at].slot == e.slot) {
        clock->items[at].over = clock->items[at].over < e.over ? e.over : clock->items[at].over;
        return 0;
    }
    if (base_over(clock->base, e.slot) >= e.over) {
        return 0;
    }
    TW_ASSERT(clock->n < clock->cap);
    memmove(&clock->items[at + 1], &clock->items[at], (clock->n - at) * sizeof e);
    clock->items[at] = e;
    clock->n++;
    return clock->n > c->clocks->max_entries ? fold(c, clock) : 0;
}

static void remove_below_base(struct tw_ck_clock *clock) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < clock->n; i++) {
        if (clock->items[i].over > base_over(clock->base, clock->items[i].slot)) {
            clock->items[kept++] = clock->items[i];
        }
    }
    clock->n = kept;
}

/* Joins `from` into *into, except the entry of slot `except`. */
static int join(struct tw_checker *c, struct tw_ck_clock **into, const struct tw_ck_clock *from,
                uint32_t except) {
    struct tw_ck_base *base = NULL;
    int rc = own(c, into, from->n + 1);
    if (rc) {
        return rc;
    }
    struct tw_ck_clock *to = *into;
    if (to->base != from->base) {
        rc = join_bases(c, to->base, from->base, &base);
        if (rc) {
            return rc;
        }
        bool moved = base != to->base;
        TW_ASSERT(moved || !base || base->refs > 1); /* else it is held twice */
        drop_base(c, to->base);
        to->base = base;
        if (moved) {
            remove_below_base(to);
        }
    }
    rc = spend(c, from->n + 1u);
    for (uint32_t i = 0; i < from->n && rc == 0; i++) {
        if (from->items[i].slot != except) {
            rc = raise(c, to, from->items[i]);
        }
    }
    return rc;
}

int tw_ck_clock_publish(struct tw_checker *c, struct tw_ck_clock **clock) {
    uint32_t slot = c->slot[c->stream];
    struct tw_ck_clock *known = c->clocks->of[slot];
    int rc;
    if (*clock && known) {
        rc = join(c, clock, known, TW_NONE);
    } else {
        if (known) {
            *clock = hold(known);
        }
        rc = own(c, clock, 1);
    }
    struct entry self = {slot, (int32_t)c->streams[c->stream].at + 1 + c->offset[c->stream]};
    rc = rc ? rc : own(c, clock, 1);
    rc = rc ? rc : raise(c, *clock, self);
    /* a base that is not shared takes the entries at once: many engines publish into such
     * a clock */
    bool alone = rc == 0 && (*clock)->base && (*clock)->base->refs == 1;
    return alone && (*clock)->n ? fold(c, *clock) : rc;
}

/* A clock with many entries, published by many engines, is likely to be learned by many: one base
 * for all of them instead of one each. */
int tw_ck_clock_learn(struct tw_checker *c, struct tw_ck_clock *clock) {
    uint32_t slot = c->slot[c->stream];
    int rc = clock && clock->n > c->clocks->max_entries / 4 ? fold(c, clock) : 0;
    return rc || !clock ? rc : join(c, &c->clocks->of[slot], clock, slot);
}

struct tw_ck_clock *tw_ck_clock_hold(struct tw_ck_clock *clock) {
    return hold(clock);
}

void tw_ck_clock_drop(struct tw_checker *c, struct tw_ck_clock **clock) {
    drop(c, *clock);
    *clock = NULL;
}

int32_t tw_ck_known(const struct tw_checker *c, uint32_t stream, uint32_t of) {
    TW_ASSERT(stream < c->n_streams && of < c->n_streams);
    if (stream == of) {
        return (int32_t)c->streams[of].at;
    }
    if (c->slot[of] == TW_NONE) {
        return 0;
    }
    return over(c->clocks->of[c->slot[stream]], c->slot[of]) - c->offset[of];
}

/* ---- loops ---- */

struct tw_ck_clock *tw_ck_clock_of(const struct tw_checker *c, uint32_t stream) {
    return c->clocks->of[c->slot[stream]];
}

void tw_ck_clock_restore(struct tw_checker *c, uint32_t stream, struct tw_ck_clock *saved) {
    drop(c, c->clocks->of[c->slot[stream]]);
    c->clocks->of[c->slot[stream]] = saved;
}

/* What others may know of a member when the body begins again. */
static int32_t begin_of(const struct tw_checker *c, uint32_t stream) {
    return (int32_t)c->streams[stream].open_from[c->depth - 1] + c->offset[stream];
}

/* Stores in *out the base without what it says of the members' iteration; the caller holds it. */
static int lower_base(struct tw_checker *c, const struct tw_ck_frame *f, struct tw_ck_base *b,
                      struct tw_ck_base **out) {
    *out = hold_base(b);
    for (uint32_t k = 0; k < f->n && b; k++) {
        uint32_t t = c->members[f->first + k], slot = c->slot[t];
        if ((*out)->over[slot] <= begin_of(c, t)) {
            continue;
        }
        if (*out == b) {
            int rc = copy_base(c, b, out);
            TW_ASSERT(b->refs > 1); /* the caller holds it, too */
            drop_base(c, b);
            if (rc) {
                *out = NULL;
                return rc;
            }
            (*out)->n_below = 0;
        }
        (*out)->over[slot] = begin_of(c, t);
    }
    return spend(c, b ? f->n / 8 + 1 : 0);
}

int tw_ck_clocks_lower(struct tw_checker *c, const struct tw_ck_frame *f) {
    struct tw_ck_base *seen = NULL, *lower = NULL;
    int rc = 0;
    for (uint32_t i = 0; i < f->n && rc == 0; i++) {
        struct tw_ck_clock **clock = &c->clocks->of[c->slot[c->members[f->first + i]]];
        if (!*clock) {
            continue;
        }
        rc = own(c, clock, 0);
        if (rc) {
            break;
        }
        struct tw_ck_clock *k = *clock;
        if (k->base && k->base != seen) {
            drop_two_bases(c, seen, lower);
            lower = NULL;
            seen = hold_base(k->base);
            rc = lower_base(c, f, seen, &lower);
        }
        if (rc == 0 && k->base) {
            TW_ASSERT(k->base->refs > 1); /* held as `seen` */
            drop_base(c, k->base);
            k->base = hold_base(lower);
        }
        for (uint32_t e = 0; e < k->n && rc == 0; e++) {
            uint32_t t = c->stream_of[k->items[e].slot];
            if (c->frame_of[t] == c->depth && k->items[e].over > begin_of(c, t)) {
                k->items[e].over = begin_of(c, t);
            }
        }
        remove_below_base(k);
    }
    drop_two_bases(c, seen, lower);
    return rc;
}

struct tw_ck_clock **tw_ck_clock_place(struct tw_checker *c, uint32_t stream) {
    return &c->clocks->of[c->slot[stream]];
}

/* Returns what others knew of a member where the loop began. */
static int32_t first_begin(const struct tw_checker *c, uint32_t stream) {
    const struct tw_ck_stream *s = &c->streams[stream];
    int32_t body = (int32_t)(s->at - s->open_from[c->depth - 1]);
    return begin_of(c, stream) - body * (int32_t)c->frames[c->depth - 1].pass;
}

/* Lowers one number of a clock; *clock is not shared. */
static int lower(struct tw_checker *c, struct tw_ck_clock *clock, uint32_t slot, int32_t value) {
    struct tw_ck_base *b = clock->base;
    if (base_over(b, slot) > value) {
        int rc = b->refs > 1 ? copy_base(c, b, &clock->base) : 0;
        if (rc) {
            return rc;
        }
        if (clock->base != b) {
            drop_base(c, b);
        }
        clock->base->over[slot] = value;
        clock->base->n_below = 0;
        clock->base->id = ++c->clocks->last_id;
    }
    uint32_t at = place(clock, slot);
    if (at < clock->n && clock->items[at].slot == slot) {
        clock->items[at].over = value;
    }
    return 0;
}

/* Checks one member's number. */
static int settle_number(struct tw_checker *c, struct tw_ck_clock **now,
                         const struct tw_ck_clock *before, uint32_t stream, bool *settled) {
    const struct tw_ck_stream *s = &c->streams[stream];
    uint32_t slot = c->slot[stream];
    int32_t body = (int32_t)(s->at - s->open_from[c->depth - 1]), old = over(before, slot),
            fresh = over(*now, slot), begin = first_begin(c, stream);
    if (old <= begin || fresh >= old + body) {
        return 0;
    }
    *settled = false;
    int rc = own(c, now, 0);
    return rc ? rc : lower(c, *now, slot, begin);
}

/* Finds whether a base says nothing of the members' ops in the loop; remembers the last one of
 * which that is true. */
static int is_outside(struct tw_checker *c, struct tw_ck_frame *f, const struct tw_ck_base *b,
                      bool *outside) {
    *outside = !b || b->id == f->outside;
    if (*outside) {
        return 0;
    }
    bool any = false;
    for (uint32_t i = 0; i < f->n && !any; i++) {
        uint32_t stream = c->members[f->first + i];
        any = b->over[c->slot[stream]] > first_begin(c, stream);
    }
    *outside = !any;
    f->outside = any ? f->outside : b->id;
    return spend(c, f->n / 4 + 1);
}

int tw_ck_clock_settle(struct tw_checker *c, struct tw_ck_clock **now,
                       const struct tw_ck_clock *before, bool *settled) {
    struct tw_ck_frame *f = &c->frames[c->depth - 1];
    int rc = 0;
    if (!before) { /* nothing was known: the same, or more now */
        return 0;
    }
    if (!*now) { /* a loop in the body is closed now, and has dropped it */
        *settled = false;
        return 0;
    }
    bool few = false;
    if (before->base == (*now)->base) {
        rc = is_outside(c, f, before->base, &few);
    }
    if (few) { /* only entries can be about the loop */
        for (uint32_t i = 0; i < before->n && rc == 0; i++) {
            uint32_t stream = c->stream_of[before->items[i].slot];
            rc = c->frame_of[stream] == c->depth ? settle_number(c, now, before, stream, settled)
                                                 : 0;
        }
        return rc ? rc : spend(c, before->n + 1u);
    }
    for (uint32_t i = 0; i < f->n && rc == 0; i++) {
        rc = settle_number(c, now, before, c->members[f->first + i], settled);
    }
    return rc ? rc : spend(c, f->n);
}

/* ---- demands ---- */

uint64_t tw_ck_demand_id(struct tw_checker *c) {
    return ++c->clocks->last_id;
}

static void record_lack(struct lack *l, uint32_t max, const struct tw_ck_base *b, struct entry e) {
    if (base_over(b, e.slot) < e.over) {
        if (l->n < max) {
            l->items[l->n] = e;
        }
        l->n++;
    }
}

/* Finds what a base lacks of a demand, once for each pair. */
static int find_lack(struct tw_checker *c, const struct tw_ck_base *b, const struct tw_ck_demand *d,
                     const struct lack **out) {
    struct tw_ck_clocks *k = c->clocks;
    uint64_t id = b ? b->id : 0;
    struct lack *l = &k->lacks[(id * 31 + d->id) % LACKS];
    *out = l;
    if (l->items && l->base == id && l->demand == d->id) {
        return 0;
    }
    l->items = l->items ? l->items : malloc((k->max_entries + 1) * sizeof *l->items);
    if (!l->items) {
        return no_memory(c);
    }
    l->base = id;
    l->demand = d->id;
    l->n = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t slot = d->slots ? d->slots[i] : i;
        record_lack(l, k->max_entries + 1, b, (struct entry){slot, d->over[i]});
    }
    return spend(c, d->n / 16 + 1);
}

int tw_ck_demand_met(struct tw_checker *c, uint32_t stream, const struct tw_ck_demand *d,
                     bool *met) {
    uint32_t self = c->slot[stream];
    const struct tw_ck_clock *clock = c->clocks->of[self];
    const struct lack *l;
    int rc = find_lack(c, clock ? clock->base : NULL, d, &l);
    /* a clock has at most max_entries beside its base, and knows itself */
    *met = rc == 0 && l->n <= c->clocks->max_entries + 1;
    for (uint32_t i = 0; *met && i < l->n; i++) {
        *met = l->items[i].slot == self || over(clock, l->items[i].slot) >= l->items[i].over;
    }
    return rc ? rc : spend(c, *met ? l->n : 0);
}

/* ---- set-up ---- */

int tw_ck_clocks_init(struct tw_checker *c) {
    struct tw_ck_clocks *k = c->clocks = calloc(1, sizeof *k);
    if (!k) {
        return no_memory(c);
    }
    for (uint32_t s = 0; s < c->n_streams; s++) {
        c->slot[s] = c->streams[s].n_ops ? k->n : TW_NONE;
        if (c->streams[s].n_ops) {
            c->stream_of[k->n++] = s;
        }
    }
    k->max_entries = k->n / 32 < MIN_ENTRIES   ? MIN_ENTRIES
                     : k->n / 32 > MAX_ENTRIES ? MAX_ENTRIES
                                               : k->n / 32;
    k->of = calloc((size_t)k->n + 1, sizeof *k->of);
    return k->of ? 0 : no_memory(c);
}

void tw_ck_clocks_finish(struct tw_checker *c) {
    struct tw_ck_clocks *k = c->clocks;
    if (!k) {
        return;
    }
    for (uint32_t i = 0; i < k->n && k->of; i++) {
        drop(c, k->of[i]);
    }
    for (uint32_t i = 0; i < JOINED; i++) {
        drop_base(c, k->joined[i].base);
    }
    while (k->n_spare) {
        free(k->spare[--k->n_spare]);
    }
    for (uint32_t i = 0; i < LACKS; i++) {
        free(k->lacks[i].items);
    }
    free(k->of);
    free(k);
}
