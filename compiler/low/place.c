/* SPDX-License-Identifier: Apache-2.0
 * Placement: every storage gets the lowest offset that is free of storages live at the same time. Sets come first, since they take
 * the same offset on every site; then each site's own storages. Larger ones first, ties by number. */
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

/* The lowest offset at which `it` meets none of placed[0..n) that lives with it: try 0 and the end of each. */
static uint64_t first_fit(const struct item *placed, uint32_t n, const struct item *it) {
    uint64_t best = UINT64_MAX;
    for (uint32_t c = 0; c <= n; c++) {
        uint64_t at = c == n ? 0 : placed[c].offset + placed[c].bytes;
        int free_here = at < best;
        for (uint32_t i = 0; i < n && free_here; i++) {
            int together = placed[i].from <= it->to && it->from <= placed[i].to;
            free_here = !together || at + it->bytes <= placed[i].offset || placed[i].offset + placed[i].bytes <= at;
        }
        if (free_here) {
            best = at;
        }
    }
    return best;
}

/* Places the storages of one site (TW_NONE: the sets) behind the n already placed; returns the new count. */
static uint32_t place_group(struct tw_low *low, uint32_t site, struct item *items, uint32_t n) {
    uint32_t first = n;
    for (uint32_t i = 0; i < low->storages.n; i++) {
        const struct tw_storage *s = &low->storages.items[i];
        int mine =
            site == TW_NONE ? s->kind == TW_ST_SET : s->kind != TW_ST_SET && s->kind != TW_ST_SHARED && s->site == site;
        if (mine) {
            items[n++] = (struct item){storage_bytes(s), 0, i, s->from, s->to};
        }
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
    low->used_bytes = 0;
    uint32_t sets = place_group(low, TW_NONE, items, 0);
    for (uint32_t s = 0; s < low->n_sites; s++) {
        place_group(low, s, items, sets);
        if (low->used_bytes > low->budget_bytes) {
            return tw_fail(
                err, TW_E_PLACEMENT,
                "section %s for %u rows needs %llu bytes of SRAM on site %u of target %s, which has %llu left for it",
                low->mid->graph->regions.items[low->region->region].name, low->rows,
                (unsigned long long)low->used_bytes, s, low->mid->target->name, (unsigned long long)low->budget_bytes);
        }
    }
    return 0;
}
