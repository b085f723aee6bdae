/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement in SRAM (compiler/spatial/residency.h). Activations are coloured like storages in
 * low/place.c: each gets the lowest offset that is free of those live at the same time, larger ones
 * first. A phase's private memory is stacked site by site.
 */
#include "compiler/spatial/residency.h"

#include "loader/base/assert.h"

#include <stdlib.h>
#include <string.h>

static uint64_t round64(uint64_t n) {
    return (n + 63) / 64 * 64;
}

/* ---- activations ---- */

/* A Param is live in all programs, other tensors in a part of one. */
static bool is_param(const struct tw_unified_tensor *t) {
    return t->record.role == TW_ROLE_PARAM;
}

static bool overlap_in_time(const struct tw_composition *c, const struct tw_unified_tensor *a,
                            const struct tw_unified_tensor *b) {
    return !c->colour || is_param(a) || is_param(b) || (a->from <= b->to && b->from <= a->to);
}

/* ---- sites ---- */

static bool has_site(const struct tw_residency *r, uint32_t tensor, uint32_t site) {
    return r->sites[tensor] && r->sites[tensor][site / 64] >> site % 64 & 1;
}

static uint64_t *top_of(const struct tw_residency *r, uint32_t site, uint32_t mem_class) {
    TW_ASSERT(site < r->n_sites && mem_class < TW_MEM_CLASSES);
    return &r->top[(size_t)site * TW_MEM_CLASSES + mem_class];
}

static void add_site(struct tw_residency *r, struct tw_cmem *mem, uint32_t tensor, uint32_t site) {
    TW_ASSERT(site < r->n_sites);
    if (!r->sites[tensor]) {
        r->sites[tensor] = tw_cmem_alloc(mem, (r->n_sites / 64 + 1) * sizeof **r->sites);
    }
    r->sites[tensor][site / 64] |= (uint64_t)1 << site % 64;
}

static bool overlap_in_space(const struct tw_residency *r, uint32_t a, uint32_t b) {
    TW_ASSERT(r->sites[a] && r->sites[b]);
    bool overlap = false;
    if (r->mem_class[a] != r->mem_class[b]) {
        return false;
    }
    for (uint32_t i = 0; i <= r->n_sites / 64 && !overlap; i++) {
        overlap = (r->sites[a][i] & r->sites[b][i]) != 0;
    }
    return overlap;
}

/* ---- placement ---- */

struct placed {
    uint64_t bytes;
    uint32_t tensor;
    uint32_t rank; /* of a Param: its position in the graph; of all others TW_NONE */
    uint32_t order;
};

/* Params have the same offsets in every program, so they come before all others, in order of the
 * graph. */
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

static bool is_free(const struct tw_composition *c, const struct tw_unified *n,
                    const struct tw_residency *r, const struct placed *done, uint32_t n_done,
                    uint32_t tensor, uint64_t at) {
    for (uint32_t i = 0; i < n_done; i++) {
        uint32_t other = done[i].tensor;
        TW_ASSERT(r->offset[other] != UINT64_MAX && r->bytes[other] > 0);
        if (at < r->offset[other] + r->bytes[other] && r->offset[other] < at + r->bytes[tensor] &&
            overlap_in_time(c, &n->tensors.items[tensor], &n->tensors.items[other]) &&
            overlap_in_space(r, tensor, other)) {
            return false;
        }
    }
    return true;
}

static uint64_t lowest_free(const struct tw_composition *c, const struct tw_unified *n,
                            const struct tw_residency *r, const struct placed *done,
                            uint32_t n_done, uint32_t tensor) {
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i <= n_done; i++) { /* candidates: 0 and the end of each */
        uint64_t at = i == n_done ? 0 : r->offset[done[i].tensor] + r->bytes[done[i].tensor];
        if (at < best && is_free(c, n, r, done, n_done, tensor, at)) {
            best = at;
        }
    }
    TW_ASSERT(best != UINT64_MAX && best % 64 == 0); /* after the last one there is always room */
    return best;
}

/* Returns the lowest offset above everything placed so far in the tensor's class on its sites. */
static uint64_t top_of_sites(const struct tw_residency *r, uint32_t tensor) {
    uint64_t at = 0;
    for (uint32_t site = 0; site < r->n_sites; site++) {
        uint64_t top = *top_of(r, site, r->mem_class[tensor]);
        at = has_site(r, tensor, site) && top > at ? top : at;
    }
    return at;
}

static void raise_top(const struct tw_residency *r, uint32_t tensor) {
    uint64_t end = r->offset[tensor] + r->bytes[tensor];
    TW_ASSERT(end >= r->offset[tensor]);
    for (uint32_t site = 0; site < r->n_sites; site++) {
        uint64_t *top = top_of(r, site, r->mem_class[tensor]);
        *top = has_site(r, tensor, site) && end > *top ? end : *top;
    }
}

/* Places all tensors of the list. Without colouring they are placed in order of first use, so that
 * adding a section moves nothing that was there before it. */
static void place(const struct tw_composition *c, const struct tw_unified *n,
                  struct tw_residency *r, struct placed *list, uint32_t n_list) {
    uint32_t private_class = c->sections[0]->target->class_of[TW_HOLDS_PRIVATE];
    qsort(list, n_list, sizeof *list, c->colour ? larger_first : params_first);
    for (uint32_t i = 0; i < n_list; i++) {
        uint32_t tensor = list[i].tensor;
        r->offset[tensor] =
            c->colour ? lowest_free(c, n, r, list, i, tensor) : top_of_sites(r, tensor);
        TW_ASSERT(r->offset[tensor] % 64 == 0 && r->bytes[tensor] % 64 == 0);
        raise_top(r, tensor);
        uint64_t end = r->offset[tensor] + r->bytes[tensor];
        r->shared = r->mem_class[tensor] == private_class && end > r->shared ? end : r->shared;
    }
}

void tw_residency_plan(const struct tw_composition *c, const struct tw_unified *n,
                       struct tw_residency *out) {
    struct tw_cmem *mem = c->sections[0]->mem;
    struct placed *list = tw_cmem_alloc(mem, (n->tensors.n + 1) * sizeof *list);
    uint32_t n_list = 0;
    *out = (struct tw_residency){
        .n_sites = c->sections[0]->n_sites,
        .offset = tw_cmem_alloc(mem, (n->tensors.n + 1) * sizeof *out->offset),
        .bytes = tw_cmem_alloc(mem, (n->tensors.n + 1) * sizeof *out->bytes),
        .sites = tw_cmem_alloc(mem, (n->tensors.n + 1) * sizeof *out->sites),
        .mem_class = tw_cmem_alloc(mem, (n->tensors.n + 1) * sizeof *out->mem_class),
        .top =
            tw_cmem_alloc(mem, (c->sections[0]->n_sites + 1) * TW_MEM_CLASSES * sizeof *out->top)};
    for (uint32_t i = 0; i < n->tensors.n; i++) {
        out->offset[i] = UINT64_MAX;
    }
    for (uint32_t s = 0; s < c->n; s++) {
        for (uint32_t i = 0; i < c->sections[s]->buffers.n; i++) {
            const struct tw_buffer *b = &c->sections[s]->buffers.items[i];
            uint32_t tensor = b->tensor == TW_NONE ? TW_NONE : n->map[s][b->tensor];
            TW_ASSERT(tensor == TW_NONE || tensor < n->tensors.n);
            if (tensor != TW_NONE) {
                add_site(out, mem, tensor, b->site);
            }
            if (tensor != TW_NONE && out->bytes[tensor] == 0) {
                out->bytes[tensor] = round64(b->pages * b->page_bytes);
                out->mem_class[tensor] = b->mem_class;
                const struct tw_unified_tensor *t = &n->tensors.items[tensor];
                list[n_list] = (struct placed){out->bytes[tensor], tensor,
                                               is_param(t) ? t->value : TW_NONE, n_list};
                n_list++;
                TW_ASSERT(n_list <= n->tensors.n);
            }
        }
    }
    place(c, n, out, list, n_list);
}

/* ---- phases ---- */

/* Sets top[site] to the end of the activations that the phase must not overwrite. */
static void find_floors(const struct tw_composition *c, const struct tw_unified *n,
                        const struct tw_residency *r, uint32_t phase) {
    struct tw_unified_tensor here = {.record.role = TW_ROLE_ACTIVATION, .from = phase, .to = phase};
    memset(r->top, 0, (size_t)r->n_sites * TW_MEM_CLASSES * sizeof *r->top);
    for (uint32_t i = 0; i < n->tensors.n; i++) {
        if (r->bytes[i] && overlap_in_time(c, &n->tensors.items[i], &here)) {
            raise_top(r, i);
        }
    }
}

/* Stores the bytes of a section's private memory on each of its sites, counted from its base. */
static void extents(const struct tw_builder *s, uint64_t *bytes) {
    for (uint32_t site = 0; site < s->n_sites; site++) {
        bytes[site] = 0;
    }
    for (uint32_t i = 0; i < s->buffers.n; i++) {
        const struct tw_buffer *b = &s->buffers.items[i];
        uint64_t end = round64(b->offset + b->pages * b->page_bytes);
        TW_ASSERT(b->site < s->n_sites);
        if (b->tensor == TW_NONE && end > bytes[b->site]) {
            bytes[b->site] = end;
        }
    }
}

static int overflow(const struct tw_composition *c, uint32_t first, uint32_t n, uint64_t floor,
                    uint64_t end, uint32_t site, tw_error *err) {
    const struct tw_target *t = c->sections[0]->target;
    uint32_t k = t->class_of[TW_HOLDS_PRIVATE];
    unsigned long long private = end - floor, have = t->class_bytes[k], shared = floor;
    if (n == 1) {
        return tw_refuse(err, TW_REFUSE_residency_overflow,
                         "program %s: section %s needs %llu bytes of SRAM and activations need "
                         "%llu, but a site of target %s has %llu",
                         c->name, c->sections[first]->name, private, shared, t->name, have);
    }
    return tw_refuse(
        err, TW_REFUSE_phase_overflow,
        "program %s: the %u sections from %s on run at the same time and need %llu bytes of memory "
        "class %u on site %u, and activations need %llu, but a site of target %s has %llu",
        c->name, n, c->sections[first]->name, private, k, site, shared, t->name, have);
}

/* Checks what is live in a phase in the memory classes besides that of private memory. */
static int check_other_classes(const struct tw_composition *c, const struct tw_residency *r,
                               tw_error *err) {
    const struct tw_target *t = c->sections[0]->target;
    for (uint32_t site = 0; site < r->n_sites; site++) {
        for (uint32_t k = 0; k < TW_MEM_CLASSES; k++) {
            unsigned long long end = *top_of(r, site, k), have = t->class_bytes[k];
            if (k != t->class_of[TW_HOLDS_PRIVATE] && end > have) {
                return tw_refuse(err, TW_REFUSE_residency_overflow,
                                 "program %s needs %llu bytes of memory class %u (%s) on site %u, "
                                 "but a site of target %s has %llu",
                                 c->name, end, k, t->class_name[k], site, t->name, have);
            }
        }
    }
    return 0;
}

/* Stacks one more section on top of what is on its sites and returns its base. */
static uint64_t stack(const struct tw_builder *s, const struct tw_residency *r, uint64_t *bytes) {
    uint32_t k = s->target->class_of[TW_HOLDS_PRIVATE];
    uint64_t base = 0;
    extents(s, bytes);
    for (uint32_t site = 0; site < r->n_sites; site++) {
        base = bytes[site] && *top_of(r, site, k) > base ? *top_of(r, site, k) : base;
    }
    for (uint32_t site = 0; site < r->n_sites; site++) {
        *top_of(r, site, k) = bytes[site] ? base + bytes[site] : *top_of(r, site, k);
    }
    return base;
}

int tw_residency_phase(const struct tw_composition *c, const struct tw_unified *u,
                       const struct tw_residency *r, uint32_t first, uint32_t n, uint64_t *bases,
                       uint64_t *private_bytes, tw_error *err) {
    const struct tw_target *t = c->sections[first]->target;
    struct tw_cmem *mem = c->sections[first]->mem;
    uint64_t *bytes = tw_cmem_alloc(mem, (r->n_sites + 1) * sizeof *bytes);
    uint64_t *floor = tw_cmem_alloc(mem, (r->n_sites + 1) * sizeof *floor);
    uint32_t fullest = 0, k = t->class_of[TW_HOLDS_PRIVATE];
    find_floors(c, u, r, tw_phase_of(c, first));
    int rc = check_other_classes(c, r, err);
    if (rc) {
        return rc;
    }
    for (uint32_t site = 0; site < r->n_sites; site++) {
        floor[site] = *top_of(r, site, k);
    }
    for (uint32_t i = 0; i < n; i++) {
        bases[i] = stack(c->sections[first + i], r, bytes);
    }
    *private_bytes = 0;
    for (uint32_t site = 0; site < r->n_sites; site++) {
        uint64_t top = *top_of(r, site, k);
        TW_ASSERT(top >= floor[site]);
        *private_bytes = top - floor[site] > *private_bytes ? top - floor[site] : *private_bytes;
        fullest = top > *top_of(r, fullest, k) ? site : fullest;
    }
    uint64_t end = *top_of(r, fullest, k);
    return end > t->class_bytes[k] ? overflow(c, first, n, floor[fullest], end, fullest, err) : 0;
}
