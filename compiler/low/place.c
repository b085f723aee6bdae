/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement: every storage gets the lowest offset that is free of storages live at the same time.
 * Sets come first, since they take the same offset on every site; then each site's own storages.
 * Larger ones first, ties by number.
 */
#include "compiler/low/low.h"

#include <stdlib.h>

struct item {
    uint64_t bytes, offset;
    uint32_t storage, from, to;
};

static uint64_t storage_bytes(const struct tw_storage *s) {
    return (s->pages * s->page_bytes + 63) / 64 * 64;
}

static int larger_first(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->storage < y->storage ? -1 : x->storage > y->storage;
}

/* The lowest offset at which `it` meets none of placed[0..n) that lives with it: try 0 and the end
 * of each. */
static uint64_t first_fit(const struct item *placed, uint32_t n, const struct item *it) {
    uint64_t best = UINT64_MAX;
    for (uint32_t c = 0; c <= n; c++) {
        uint64_t at = c == n ? 0 : placed[c].offset + placed[c].bytes;
        int free_here = at < best;
        for (uint32_t i = 0; i < n && free_here; i++) {
            int together = placed[i].from <= it->to && it->from <= placed[i].to;
            free_here = !together || at + it->bytes <= placed[i].offset ||
                        placed[i].offset + placed[i].bytes <= at;
        }
        if (free_here) {
            best = at;
        }
    }
    return best;
}

/* Storages by the site whose memory they take, in order of number: first those of all sites (sets),
 * then each site's, then those that compose places. */
struct groups {
    uint32_t *first; /* by group, and one more */
    uint32_t *storage;
};

static uint32_t group_of(const struct tw_low *low, const struct tw_storage *s) {
    return s->kind == TW_ST_SET ? 0 : s->kind == TW_ST_SHARED ? 1 + low->n_sites : 1 + s->site;
}

static struct groups group_storages(const struct tw_low *low) {
    struct tw_cmem *mem = low->mid->graph->mem;
    uint32_t n = low->n_sites + 2, *end = tw_cmem_alloc(mem, n * sizeof *end);
    struct groups g = {tw_cmem_alloc(mem, (n + 1) * sizeof *g.first),
                       tw_cmem_alloc(mem, (low->storages.n + 1) * sizeof *g.storage)};
    for (uint32_t i = 0; i < low->storages.n; i++) {
        g.first[group_of(low, &low->storages.items[i]) + 1]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        end[i] = g.first[i];
        g.first[i + 1] += g.first[i];
    }
    for (uint32_t i = 0; i < low->storages.n; i++) {
        g.storage[end[group_of(low, &low->storages.items[i])]++] = i;
    }
    return g;
}

/* Places the storages of one group behind the n already placed; returns the new count. */
static uint32_t place_group(struct tw_low *low, const struct groups *g, uint32_t group,
                            struct item *items, uint32_t n) {
    uint32_t first = n;
    for (uint32_t i = g->first[group]; i < g->first[group + 1]; i++) {
        const struct tw_storage *s = &low->storages.items[g->storage[i]];
        items[n++] = (struct item){storage_bytes(s), 0, g->storage[i], s->from, s->to};
    }
    qsort(items + first, n - first, sizeof *items, larger_first);
    for (uint32_t i = first; i < n; i++) {
        items[i].offset = first_fit(items, i, &items[i]);
        low->storages.items[items[i].storage].offset = items[i].offset;
        uint64_t end = items[i].offset + items[i].bytes;
        low->used_bytes = end > low->used_bytes ? end : low->used_bytes;
    }
    return n;
}

int tw_low_place(struct tw_low *low, tw_error *err) {
    struct item *items = tw_cmem_alloc(low->mid->graph->mem, (low->storages.n + 1) * sizeof *items);
    struct groups groups = group_storages(low);
    low->used_bytes = 0;
    uint32_t sets = place_group(low, &groups, 0, items, 0);
    for (uint32_t s = 0; s < low->n_sites; s++) {
        place_group(low, &groups, 1 + s, items, sets);
        if (low->used_bytes > low->budget_bytes) {
            return tw_fail(err, TW_E_PLACEMENT,
                           "section %s for %u rows needs %llu bytes of SRAM on site %u of target "
                           "%s, which has %llu left for it",
                           low->mid->graph->regions.items[low->region->region].name, low->rows,
                           (unsigned long long)low->used_bytes, s, low->mid->target->name,
                           (unsigned long long)low->budget_bytes);
        }
    }
    return 0;
}
