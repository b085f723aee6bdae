/* SPDX-License-Identifier: Apache-2.0
 * Activations are coloured like storages in low/place.c: the lowest offset that is free of those that live at the same time, larger ones
 * first. A phase's private memory is stacked site by site. */
#include "compiler/spatial/residency.h"

#include <stdlib.h>

static uint64_t round64(uint64_t n) {
    return (n + 63) / 64 * 64;
}

/* ---- activations ---- */

/* A Param lives in all programs, the others in a part of one. */
static bool is_param(const struct tw_unified_tensor *t) {
    return t->record.role == TW_ROLE_PARAM;
}

static bool together(const struct tw_composition *c, const struct tw_unified_tensor *a,
                     const struct tw_unified_tensor *b) {
    return !c->colour || is_param(a) || is_param(b) || (a->from <= b->to && b->from <= a->to);
}

struct placed {
    uint64_t bytes;
    uint32_t tensor;
    uint32_t rank; /* of a Param: its place in the graph; of all others TW_NONE */
    uint32_t order;
};

/* Params have the same places in every program, so no other comes before them and the graph tells their order. */
static int params_first(const void *a, const void *b) {
    const struct placed *x = a, *y = b;
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return x->order < y->order ? -1 : x->order > y->order;
}

static int larger_first(const void *a, const void *b) {
    const struct placed *x = a, *y = b;
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

static bool is_free(const struct tw_composition *c, const struct tw_unified *n, const struct tw_residency *r,
                    const struct placed *done, uint32_t n_done, uint32_t tensor, uint64_t at) {
    for (uint32_t i = 0; i < n_done; i++) {
        uint32_t other = done[i].tensor;
        if (together(c, &n->tensors.items[tensor], &n->tensors.items[other]) &&
            at < r->offset[other] + r->bytes[other] && r->offset[other] < at + r->bytes[tensor]) {
            return false;
        }
    }
    return true;
}

static uint64_t lowest_free(const struct tw_composition *c, const struct tw_unified *n, const struct tw_residency *r,
                            const struct placed *done, uint32_t n_done, uint32_t tensor) {
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i <= n_done; i++) { /* 0 and the end of each */
        uint64_t at = i == n_done ? 0 : r->offset[done[i].tensor] + r->bytes[done[i].tensor];
        if (at < best && is_free(c, n, r, done, n_done, tensor, at)) {
            best = at;
        }
    }
    return best;
}

/* Without sharing, in order of first use: then adding a section moves nothing that was there before it. */
static void place(const struct tw_composition *c, const struct tw_unified *n, struct tw_residency *r,
                  struct placed *list, uint32_t n_list) {
    qsort(list, n_list, sizeof *list, c->colour ? larger_first : params_first);
    for (uint32_t i = 0; i < n_list; i++) {
        uint32_t tensor = list[i].tensor;
        r->offset[tensor] = c->colour ? lowest_free(c, n, r, list, i, tensor) : r->shared;
        uint64_t end = r->offset[tensor] + r->bytes[tensor];
        r->shared = end > r->shared ? end : r->shared;
    }
}

void tw_residency_plan(const struct tw_composition *c, const struct tw_unified *n, struct tw_residency *out) {
    struct tw_cmem *mem = c->sections[0]->mem;
    struct placed *list = tw_cmem_alloc(mem, (n->tensors.n + 1) * sizeof *list);
    uint32_t n_list = 0;
    *out = (struct tw_residency){.offset = tw_cmem_alloc(mem, (n->tensors.n + 1) * sizeof *out->offset),
                                 .bytes = tw_cmem_alloc(mem, (n->tensors.n + 1) * sizeof *out->bytes),
                                 .top = tw_cmem_alloc(mem, (c->sections[0]->n_sites + 1) * sizeof *out->top)};
    for (uint32_t i = 0; i < n->tensors.n; i++) {
        out->offset[i] = UINT64_MAX;
    }
    for (uint32_t s = 0; s < c->n; s++) {
        for (uint32_t i = 0; i < c->sections[s]->buffers.n; i++) {
            const struct tw_buffer *b = &c->sections[s]->buffers.items[i];
            uint32_t tensor = b->tensor == TW_NONE ? TW_NONE : n->map[s][b->tensor];
            if (tensor != TW_NONE && out->bytes[tensor] == 0) {
                out->bytes[tensor] = round64(b->pages * b->page_bytes);
                const struct tw_unified_tensor *t = &n->tensors.items[tensor];
                list[n_list] = (struct placed){out->bytes[tensor], tensor, is_param(t) ? t->value : TW_NONE, n_list};
                n_list++;
            }
        }
    }
    place(c, n, out, list, n_list);
}

/* ---- phases ---- */

/* Below it lie the activations that the phase must leave alone. */
static uint64_t floor_of(const struct tw_composition *c, const struct tw_unified *n, const struct tw_residency *r,
                         uint32_t phase) {
    struct tw_unified_tensor here = {.record.role = TW_ROLE_ACTIVATION, .from = phase, .to = phase};
    uint64_t end = 0;
    for (uint32_t i = 0; i < n->tensors.n; i++) {
        if (r->bytes[i] && together(c, &n->tensors.items[i], &here) && r->offset[i] + r->bytes[i] > end) {
            end = r->offset[i] + r->bytes[i];
        }
    }
    return end;
}

/* Bytes of a section's private memory on each of its sites, from its base on. */
static void extents(const struct tw_unit *s, uint64_t *bytes) {
    for (uint32_t site = 0; site < s->n_sites; site++) {
        bytes[site] = 0;
    }
    for (uint32_t i = 0; i < s->buffers.n; i++) {
        const struct tw_buffer *b = &s->buffers.items[i];
        uint64_t end = round64(b->offset + b->pages * b->page_bytes);
        if (b->tensor == TW_NONE && end > bytes[b->site]) {
            bytes[b->site] = end;
        }
    }
}

static int overflow(const struct tw_composition *c, uint32_t first, uint32_t n, uint64_t floor, uint64_t end,
                    uint32_t site, tw_error *err) {
    const struct tw_target *t = c->sections[0]->target;
    unsigned long long private = end - floor, have = t->sram_bytes, shared = floor;
    if (n == 1) {
        return tw_refuse(err, TW_REFUSE_residency_overflow,
                         "program %s: section %s needs %llu bytes of SRAM and activations %llu; a site of target %s "
                         "has %llu",
                         c->name, c->sections[first]->name, private, shared, t->name, have);
    }
    return tw_refuse(err, TW_REFUSE_phase_overflow,
                     "program %s: the %u sections from %s on run at once and need %llu bytes of memory class 0 on site "
                     "%u, activations %llu; a site of target %s has %llu",
                     c->name, n, c->sections[first]->name, private, site, shared, t->name, have);
}

int tw_residency_phase(const struct tw_composition *c, const struct tw_unified *u, const struct tw_residency *r,
                       uint32_t first, uint32_t n, uint64_t *bases, uint64_t *private_bytes, tw_error *err) {
    const struct tw_unit *one = c->sections[first];
    uint64_t *bytes = tw_cmem_alloc(one->mem, (one->n_sites + 1) * sizeof *bytes);
    uint64_t floor = floor_of(c, u, r, tw_phase_of(c, first)), end = floor;
    uint32_t fullest = 0;
    for (uint32_t site = 0; site < one->n_sites; site++) {
        r->top[site] = floor;
    }
    for (uint32_t k = 0; k < n; k++) {
        extents(c->sections[first + k], bytes);
        bases[k] = floor;
        for (uint32_t site = 0; site < one->n_sites; site++) {
            bases[k] = bytes[site] && r->top[site] > bases[k] ? r->top[site] : bases[k];
        }
        for (uint32_t site = 0; site < one->n_sites; site++) {
            r->top[site] = bytes[site] ? bases[k] + bytes[site] : r->top[site];
            fullest = r->top[site] > end ? site : fullest;
            end = r->top[site] > end ? r->top[site] : end;
        }
    }
    *private_bytes = end - floor;
    return end > one->target->sram_bytes ? overflow(c, first, n, floor, end, fullest, err) : 0;
}
