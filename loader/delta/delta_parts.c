/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranges of two bundles' files are of the same tensor or section.
 */
#include "loader/base/grow.h"
#include "loader/delta/delta.h"

#include <stdlib.h>
#include <string.h>

/* A part of one bundle alone. */
struct named {
    const char *name;
    const struct tw_symbol *symbol; /* NULL: a section */
    uint64_t at, bytes;
};

struct names {
    struct named *items;
    size_t n;
};

static int by_name(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    return !x->symbol != !y->symbol ? (x->symbol ? 1 : -1) : strcmp(x->name, y->name);
}

static int by_place(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : by_name(a, b);
}

static struct named of_symbol(const struct tw_bundle *b, const struct tw_symbol *s) {
    const uint8_t *bytes = b->segments[s->segment].bytes;
    uint64_t at = bytes ? (uint64_t)(bytes - tw_bundle_bytes(b)) + s->offset : TW_NOT_IN_FILE;
    return (struct named){s->name, s, at, s->size};
}

/* Lists sections, but not those that hold tensors, and tensors. */
static bool list_names(const struct tw_bundle *b, struct names *out) {
    const struct tw_elf *elf = &tw_owner(b)->elf;
    out->n = 0;
    out->items = calloc((size_t)elf->n_sections + b->n_symbols + 1, sizeof *out->items);
    for (uint32_t i = 1; out->items && i < elf->n_sections; i++) {
        const Elf64_Shdr *h = &elf->sections[i];
        if (h->sh_type != SHT_NOBITS && h->sh_size && !tw_elf_is_bank(elf, i)) {
            out->items[out->n++] = (struct named){elf->names[i], NULL, h->sh_offset, h->sh_size};
        }
    }
    for (uint32_t i = 0; out->items && i < b->n_symbols; i++) {
        out->items[out->n++] = of_symbol(b, &b->symbols[i]);
    }
    return out->items != NULL;
}

static int match(const struct names *old, const struct names *now, struct tw_delta_parts *parts) {
    bool *met = calloc(old->n + 1, sizeof *met);
    if (!met || !tw_grow(&parts->items, &parts->room, old->n + now->n + 1, sizeof *parts->items)) {
        free(met);
        return TW_E_NOMEM;
    }
    for (size_t i = 0; i < now->n; i++) {
        const struct named *x = &now->items[i];
        const struct named *y = bsearch(x, old->items, old->n, sizeof *x, by_name);
        struct tw_delta_part *p = &parts->items[parts->n++];
        *p = (struct tw_delta_part){
            .name = x->name, .symbol = x->symbol, .at = x->at, .bytes = x->bytes};
        if (y) {
            met[y - old->items] = true;
            p->old_symbol = y->symbol;
            p->old_at = y->at;
            p->old_bytes = y->bytes;
        }
    }
    for (size_t i = 0; i < old->n; i++) {
        const struct named *y = &old->items[i];
        if (!met[i]) {
            parts->items[parts->n++] = (struct tw_delta_part){.name = y->name,
                                                              .old_symbol = y->symbol,
                                                              .at = TW_NOT_IN_FILE,
                                                              .old_at = y->at,
                                                              .old_bytes = y->bytes};
        }
    }
    free(met);
    return 0;
}

int tw_delta_list_parts(const struct tw_bundle *old, const struct tw_bundle *now,
                        struct tw_delta_parts *parts, tw_error *err) {
    struct names a = {.n = 0}, b = {.n = 0};
    *parts = (struct tw_delta_parts){.n = 0};
    int code = list_names(old, &a) && list_names(now, &b) ? 0 : TW_E_NOMEM;
    if (code == 0) {
        qsort(a.items, a.n, sizeof *a.items, by_name);
        qsort(b.items, b.n, sizeof *b.items, by_place);
        code = match(&a, &b, parts);
    }
    free(a.items);
    free(b.items);
    return code ? tw_fail(err, code, "%s: out of memory for its list of tensors", now->path) : 0;
}

uint64_t tw_delta_count(const uint8_t *a, const uint8_t *b, uint64_t n, uint64_t *chunks) {
    uint64_t sum = 0;
    *chunks = 0;
    for (uint64_t at = 0; at < n; at += TW_CHUNK_BYTES) {
        uint64_t end = n - at < TW_CHUNK_BYTES ? n : at + TW_CHUNK_BYTES, before = sum;
        if (memcmp(a + at, b + at, end - at) == 0) {
            continue;
        }
        for (uint64_t i = at; i < end; i++) {
            sum += a[i] != b[i];
        }
        *chunks += sum > before;
    }
    return sum;
}
