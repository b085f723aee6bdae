/* SPDX-License-Identifier: Apache-2.0
 * The memory map (rule 26): which buffers of a site share bytes, and whether they may. Sorted by place and section, so that it is nearly
 * linear however many sections use the same bytes one after the other. */
#include "loader/check_internal.h"

#include <stdlib.h>

#define MAX_OVERLAPS 64u /* buffers that one buffer may share bytes with */
#define BY_OTHERS 0x80u  /* a user of a buffer: engines of other sites */

static const char *name_of(const struct tw_checker *c, uint32_t buffer) {
    return tw_program_string(c->p, c->p->buffers[buffer].name);
}

struct placed {
    uint32_t id, site, span; /* of an activation: TW_NONE */
    uint64_t lo, hi;
};

static int by_place(const void *a, const void *b) {
    const struct placed *x = a, *y = b;
    if (x->site != y->site) {
        return x->site < y->site ? -1 : 1;
    }
    if (x->lo != y->lo) {
        return x->lo < y->lo ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static int by_section(const void *a, const void *b) {
    const struct placed *x = a, *y = b;
    return x->span != y->span ? (x->span < y->span ? -1 : 1) : by_place(a, b);
}

static int may_share(struct tw_checker *c, uint32_t a, uint32_t b) {
    const struct tw_buffer *x = &c->p->buffers[a], *y = &c->p->buffers[b];
    uint8_t users = c->buffer_users[a] | c->buffer_users[b];
    bool one_engine = (users & (users - 1)) == 0 && !(users & BY_OTHERS);
    tw_ck_count(c, TW_ORDER_memory_apart);
    if (x->tensor == TW_NONE && y->tensor == TW_NONE && (c->buffer_span[a] != c->buffer_span[b] || one_engine)) {
        return 0;
    }
    c->stream = TW_NONE;
    return tw_ck_fail(c, TW_ORDER_memory_apart,
                      "buffers %u (%s) [%llu, %llu) and %u (%s) [%llu, %llu) of site %u share bytes, and more than one "
                      "engine uses them",
                      a, name_of(c, a), (unsigned long long)x->offset,
                      (unsigned long long)(x->offset + x->pages * x->page_bytes), b, name_of(c, b),
                      (unsigned long long)y->offset, (unsigned long long)(y->offset + y->pages * y->page_bytes),
                      x->site);
}

static int add_overlap(struct tw_checker *c, uint32_t a, uint32_t b, uint32_t *n) {
    int rc = may_share(c, a, b);
    uint32_t pair[2] = {a, b};
    for (int i = 0; i < 2 && rc == 0; i++) {
        uint32_t of = pair[i], with = pair[1 - i];
        if (n[of] == MAX_OVERLAPS - 1) {
            c->stream = TW_NONE;
            return tw_ck_fail(c, TW_ORDER_memory_apart, "buffer %u (%s) shares bytes with more than %u others", of,
                              name_of(c, of), MAX_OVERLAPS - 1);
        }
        c->overlaps[c->overlap_first[of] + n[of]++] = with;
    }
    return rc;
}

/* Activations share bytes with nothing. Of all that begins before a buffer the one that ends last tells. */
static int check_activations(struct tw_checker *c, const struct placed *placed, uint32_t n) {
    const struct placed *last = NULL, *last_activation = NULL;
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        const struct placed *p = &placed[i];
        tw_ck_count(c, TW_ORDER_memory_apart);
        last = last && last->site == p->site ? last : NULL;
        last_activation = last_activation && last_activation->site == p->site ? last_activation : NULL;
        const struct placed *other = p->span == TW_NONE ? last : last_activation;
        rc = other && p->lo < other->hi ? may_share(c, other->id, p->id) : 0;
        last = !last || p->hi > last->hi ? p : last;
        if (p->span == TW_NONE) {
            last_activation = !last_activation || p->hi > last_activation->hi ? p : last_activation;
        }
    }
    return rc;
}

/* Sections may share bytes with each other, so only buffers of one section are compared one by one. */
static int find_overlaps(struct tw_checker *c, struct placed *placed, uint32_t *n) {
    const struct tw_program *p = c->p;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const struct tw_buffer *b = &p->buffers[i];
        uint32_t span = b->tensor == TW_NONE ? c->buffer_span[i] : TW_NONE;
        placed[i] = (struct placed){i, b->site, span, b->offset, b->offset + b->pages * b->page_bytes};
        c->overlap_first[i] = i * MAX_OVERLAPS;
        for (uint32_t k = 0; k < MAX_OVERLAPS; k++) {
            c->overlaps[i * MAX_OVERLAPS + k] = TW_NONE;
        }
    }
    qsort(placed, p->n_buffers, sizeof *placed, by_place);
    int rc = check_activations(c, placed, p->n_buffers);
    if (rc) {
        return rc;
    }
    qsort(placed, p->n_buffers, sizeof *placed, by_section);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        for (uint32_t k = i + 1; k < p->n_buffers && placed[k].span == placed[i].span &&
                                 placed[k].site == placed[i].site && placed[k].lo < placed[i].hi;
             k++) {
            rc = add_overlap(c, placed[i].id, placed[k].id, n);
            if (rc) {
                return rc;
            }
        }
    }
    return 0;
}

/* Which engines name each buffer; multicasts name all siblings. */
static void find_users(struct tw_checker *c) {
    for (uint32_t s = 0; s < c->n_streams; s++) {
        const struct tw_stream *stream = &c->p->streams[s];
        for (uint32_t at = 0; at < stream->n_words && tw_op_decode(stream->words, stream->n_words, at, &c->op);
             at += c->op.n_words) {
            for (uint32_t i = 0; i < c->op.n_operands; i++) {
                const struct tw_operand *o = &c->op.operand[i];
                if (strchr("RWMF", o->kind)) {
                    c->buffer_users[o->id] |= (uint8_t)(1u << stream->engine);
                }
                if (c->op.code == TW_OP_MCAST && o->kind == 'W') {
                    for (uint32_t k = 0; k < c->p->n_sites; k++) {
                        c->buffer_users[c->p->buffers[o->id].sibling_base + k] |= BY_OTHERS;
                    }
                }
            }
        }
    }
}

int tw_ck_overlap_init(struct tw_checker *c) {
    const struct tw_program *p = c->p;
    size_t n = (size_t)p->n_buffers + 1;
    c->overlap_first = calloc(n, sizeof *c->overlap_first);
    c->overlaps = calloc(n * MAX_OVERLAPS, sizeof *c->overlaps);
    c->buffer_users = calloc(n, 1);
    struct placed *placed = calloc(n, sizeof *placed);
    uint32_t *count = calloc(n, sizeof *count);
    int rc;
    if (!c->overlap_first || !c->overlaps || !c->buffer_users || !placed || !count) {
        rc = tw_fail(c->err, TW_E_NOMEM, "no memory to check the order of %s: %u buffers", p->name, p->n_buffers);
    } else {
        find_users(c);
        rc = find_overlaps(c, placed, count);
    }
    free(placed);
    free(count);
    return rc;
}
