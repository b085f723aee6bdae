/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory map (rule 26): which buffers of a site share bytes, and whether they may. Sorted by
 * place and section, so that it is nearly linear however many sections use the same bytes one after
 * the other.
 *
 * Why an activation may share bytes while it is not alive: it is alive from the first section that
 * names it to the last. Every engine has left a section before one enters the next (rule 23), the
 * last one closes the step, and a loop stays in one section. So whatever else is written there is
 * written before or after all of its life in this step, never within. A read is covered by writes
 * of the same step (rule 25 begins the first step with nothing written), hence by writes of the
 * same life: a program that would read in the next step what another buffer has overwritten reads
 * in the first one what nobody has written.
 */
#include "loader/base/assert.h"
#include "loader/order/buffer_lifetimes.h"
#include "loader/order/check_internal.h"

#include <stdlib.h>

#define MAX_OVERLAPS 64u  /* max. buffers with which one buffer shares bytes */
#define BY_OTHERS 0x80u   /* bit in buffer_users: engines of other sites */
#define SET_REACHED 0x40u /* the same in the first buffer of a set: by any multicast */

static const char *name_of(const struct tw_checker *c, uint32_t buffer) {
    return tw_program_string(c->p, c->p->buffers[buffer].name);
}

struct placed {
    uint32_t id, site, section; /* section: TW_NONE for an activation */
    bool activation;
    /* for a private buffer only its section, which is checked when the ops are executed */
    struct tw_life life;
    uint64_t lo, hi; /* class_base() of its memory class added, so that classes are apart */
};

/* An SRAM has less than 2^40 bytes: offsets of different memory classes never meet. */
#define CLASS_SHIFT 40

static uint64_t class_base(const struct tw_buffer *b) {
    return (uint64_t)b->mem_class << CLASS_SHIFT;
}

static unsigned long long offset_of(uint64_t place) {
    return place & (((uint64_t)1 << CLASS_SHIFT) - 1);
}

static int by_life(const void *a, const void *b) {
    const struct placed *x = a, *y = b;
    if (x->site != y->site) {
        return x->site < y->site ? -1 : 1;
    }
    if (x->life.first != y->life.first) {
        return x->life.first < y->life.first ? -1 : 1;
    }
    if (x->activation != y->activation) {
        return x->activation ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static int by_section(const void *a, const void *b) {
    const struct placed *x = a, *y = b;
    if (x->section != y->section) {
        return x->section < y->section ? -1 : 1;
    }
    if (x->site != y->site) {
        return x->site < y->site ? -1 : 1;
    }
    if (x->lo != y->lo) {
        return x->lo < y->lo ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Checks two private buffers of one section that share bytes. */
static int may_share(struct tw_checker *c, uint32_t a, uint32_t b) {
    const struct tw_buffer *x = &c->p->buffers[a], *y = &c->p->buffers[b];
    uint8_t users = c->buffer_users[a] | c->buffer_users[b];
    bool one_engine = !(users & BY_OTHERS) && (users & (users - 1)) == 0;
    tw_ck_count(c, TW_ORDER_memory_apart);
    if (one_engine) {
        return 0;
    }
    c->stream = TW_NONE;
    return tw_ck_fail(c, TW_ORDER_memory_apart,
                      "buffers %u (%s) [%llu, %llu) and %u (%s) [%llu, %llu) of site %u share "
                      "bytes, and more than one "
                      "engine uses them",
                      a, name_of(c, a), (unsigned long long)x->offset,
                      (unsigned long long)(x->offset + x->pages * x->page_bytes), b, name_of(c, b),
                      (unsigned long long)y->offset,
                      (unsigned long long)(y->offset + y->pages * y->page_bytes), x->site);
}

/* The pairs of private buffers that share bytes. First they are counted, then there is room for
 * them. */
struct pairs {
    uint32_t *n; /* by buffer */
    bool fill;
};

static int add_overlap(struct tw_checker *c, uint32_t a, uint32_t b, struct pairs *pairs) {
    int rc = pairs->fill ? 0 : may_share(c, a, b);
    uint32_t pair[2] = {a, b};
    for (int i = 0; i < 2 && rc == 0; i++) {
        uint32_t of = pair[i], with = pair[1 - i];
        if (pairs->n[of] == MAX_OVERLAPS - 1) {
            c->stream = TW_NONE;
            return tw_ck_fail(c, TW_ORDER_memory_apart,
                              "buffer %u (%s) shares bytes with more than %u others", of,
                              name_of(c, of), MAX_OVERLAPS - 1);
        }
        TW_ASSERT(of < c->p->n_buffers);
        if (pairs->fill) {
            c->overlaps[c->overlap_first[of] + pairs->n[of]] = with;
        }
        pairs->n[of]++;
    }
    return rc;
}

static int refuse_alive(struct tw_checker *c, const struct placed *a, const struct placed *b) {
    c->stream = TW_NONE;
    return tw_ck_fail(c, TW_ORDER_memory_apart,
                      "activation %u (%s) [%llu, %llu) and buffer %u (%s) [%llu, %llu) of site %u "
                      "share bytes and are "
                      "named in sections %u to %u and %u to %u",
                      a->id, name_of(c, a->id), offset_of(a->lo), offset_of(a->hi), b->id,
                      name_of(c, b->id), offset_of(b->lo), offset_of(b->hi), a->site, a->life.first,
                      a->life.last, b->life.first, b->life.last);
}

/* The live activations of a site, by offset; no two of them share bytes. */
struct alive {
    const struct placed **items;
    uint32_t n;
};

static void remove_dead(struct alive *alive, const struct placed *now) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < alive->n; i++) {
        const struct placed *p = alive->items[i];
        if (p->site == now->site && p->life.last >= now->life.first) {
            alive->items[kept++] = p;
        }
    }
    alive->n = kept;
}

static uint32_t first_ending_after(const struct alive *alive, uint64_t lo) {
    uint32_t from = 0, to = alive->n;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (alive->items[middle]->hi > lo) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    return from;
}

/* Walks section by section, activations first: no named buffer may overlap a live activation. */
static int check_activations(struct tw_checker *c, const struct placed *placed, uint32_t n,
                             struct alive *alive) {
    for (uint32_t i = 0; i < n; i++) {
        const struct placed *p = &placed[i];
        tw_ck_count(c, TW_ORDER_memory_apart);
        if (p->life.first == TW_NONE) {
            continue; /* no op touches it */
        }
        if (i == 0 || p[-1].site != p->site || p[-1].life.first != p->life.first) {
            remove_dead(alive, p);
        }
        uint32_t at = first_ending_after(alive, p->lo);
        if (at < alive->n && alive->items[at]->lo < p->hi) {
            return refuse_alive(c, alive->items[at], p);
        }
        if (p->activation) {
            TW_ASSERT(alive->n < c->p->n_buffers && at <= alive->n);
            memmove(&alive->items[at + 1], &alive->items[at],
                    (alive->n - at) * sizeof alive->items[0]);
            alive->items[at] = p;
            alive->n++;
        }
    }
    return 0;
}

/* Private buffers of different sections may share bytes, so only those of one section are compared
 * one by one. */
static int check_privates(struct tw_checker *c, const struct placed *placed, uint32_t n,
                          struct pairs *pairs) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = i + 1; k < n && placed[k].section == placed[i].section &&
                                 placed[k].site == placed[i].site && placed[k].lo < placed[i].hi;
             k++) {
            int rc = add_overlap(c, placed[i].id, placed[k].id, pairs);
            if (rc) {
                return rc;
            }
        }
    }
    return 0;
}

/* Makes room for the counted pairs, each list ended by TW_NONE. */
static int make_overlaps(struct tw_checker *c, uint32_t *count) {
    size_t n = 0;
    for (uint32_t i = 0; i < c->p->n_buffers; i++) {
        c->overlap_first[i] = (uint32_t)n; /* at most MAX_OVERLAPS for each of 2^26 buffers */
        n += count[i] + 1;
        count[i] = 0;
    }
    c->overlaps = malloc((n + 1) * sizeof *c->overlaps);
    if (!c->overlaps) {
        return tw_fail(c->err, TW_E_NOMEM, "out of memory to check the order of %s: %u buffers",
                       c->p->name, c->p->n_buffers);
    }
    memset(c->overlaps, 0xFF, (n + 1) * sizeof *c->overlaps); /* TW_NONE */
    return 0;
}

static int find_overlaps(struct tw_checker *c, struct placed *placed,
                         const struct tw_life *lifetimes, struct alive *alive, uint32_t *count) {
    const struct tw_program *p = c->p;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const struct tw_buffer *b = &p->buffers[i];
        bool activation = b->tensor != TW_NONE;
        uint32_t section = activation ? TW_NONE : c->buffer_section[i];
        placed[i] = (struct placed){i,
                                    b->site,
                                    section,
                                    activation,
                                    lifetimes[i],
                                    class_base(b) + b->offset,
                                    class_base(b) + b->offset + b->pages * b->page_bytes};
    }
    qsort(placed, p->n_buffers, sizeof *placed, by_life);
    int rc = check_activations(c, placed, p->n_buffers, alive);
    if (rc) {
        return rc;
    }
    qsort(placed, p->n_buffers, sizeof *placed, by_section);
    uint32_t n = p->n_buffers;
    while (n && placed[n - 1].activation) { /* their section sorts last */
        n--;
    }
    struct pairs pairs = {count, false};
    rc = check_privates(c, placed, n, &pairs);
    rc = rc ? rc : make_overlaps(c, count);
    pairs.fill = true;
    return rc ? rc : check_privates(c, placed, n, &pairs);
}

/* Finds the engines that name each buffer; a multicast names all buffers of the set, and what is
 * sent or multicast is used by others. */
static void find_users(struct tw_checker *c) {
    for (uint32_t s = 0; s < c->n_streams; s++) {
        const struct tw_stream *stream = &c->p->streams[s];
        for (uint32_t at = 0;
             at < stream->n_words && tw_op_decode(stream->words, stream->n_words, at, &c->op);
             at += c->op.n_words) {
            for (uint32_t i = 0; i < c->op.n_operands; i++) {
                const struct tw_operand *o = &c->op.operand[i];
                if (strchr("RWMF", o->kind)) {
                    c->buffer_users[o->id] |= (uint8_t)(1u << stream->engine);
                }
                if (o->kind == 'D' && c->op.code == TW_OP_MCAST) {
                    c->buffer_users[c->p->buffers[o->id].sibling_base] |= SET_REACHED;
                } else if (o->kind == 'D') {
                    c->buffer_users[o->id] |= BY_OTHERS;
                }
            }
        }
    }
    for (uint32_t i = 0; i < c->p->n_buffers; i++) {
        uint32_t set = c->p->buffers[i].sibling_base;
        if (set != TW_NONE && c->buffer_users[set] & SET_REACHED) {
            c->buffer_users[i] |= BY_OTHERS;
        }
    }
}

int tw_ck_overlap_init(struct tw_checker *c) {
    const struct tw_program *p = c->p;
    size_t n = (size_t)p->n_buffers + 1;
    c->overlap_first = calloc(n, sizeof *c->overlap_first);
    c->buffer_users = calloc(n, 1);
    struct placed *placed = calloc(n, sizeof *placed);
    struct tw_life *lifetimes = calloc(n, sizeof *lifetimes);
    struct alive alive = {calloc(n, sizeof *alive.items), 0};
    uint32_t *count = calloc(n, sizeof *count);
    int rc;
    if (!c->overlap_first || !c->buffer_users || !placed || !lifetimes || !alive.items || !count) {
        rc = tw_fail(c->err, TW_E_NOMEM, "out of memory to check the order of %s: %u buffers",
                     p->name, p->n_buffers);
    } else {
        find_users(c);
        tw_buffer_lifetimes(p, lifetimes);
        rc = find_overlaps(c, placed, lifetimes, &alive, count);
    }
    free(placed);
    free(lifetimes);
    free(alive.items);
    free(count);
    return rc;
}
