/* SPDX-License-Identifier: Apache-2.0
 *
 * Params and State that stay in SRAM are shared by all programs of a bundle: each finds there what
 * another has left, so all must keep the same ones at the same places. Each program's list is
 * sorted by place, and the lists are compared.
 */
#include "loader/bundle/shared_params.h"

#include "loader/verify/verify.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int by_place(const void *a, const void *b) {
    const struct tw_buffer *x = *(const struct tw_buffer *const *)a,
                           *y = *(const struct tw_buffer *const *)b;
    if (x->site != y->site) {
        return x->site < y->site ? -1 : 1;
    }
    if (x->mem_class != y->mem_class) {
        return x->mem_class < y->mem_class ? -1 : 1;
    }
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static uint32_t list_pinned(const struct tw_program *p, const struct tw_buffer **list) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        if (tw_buffer_pinned(p, &p->buffers[i])) {
            list[n++] = &p->buffers[i];
        }
    }
    qsort(list, n, sizeof *list, by_place);
    return n;
}

static bool same(const struct tw_program *p, const struct tw_buffer *a, const struct tw_program *q,
                 const struct tw_buffer *b) {
    return by_place(&a, &b) == 0 && a->pages == b->pages && a->page_bytes == b->page_bytes &&
           a->window_first == b->window_first && a->window_stride == b->window_stride &&
           a->window_rows == b->window_rows && a->window_row_bytes == b->window_row_bytes &&
           strcmp(tw_program_string(p, p->tensors[a->tensor].name),
                  tw_program_string(q, q->tensors[b->tensor].name)) == 0;
}

static int compare(const struct tw_program *p, const struct tw_program *q,
                   const struct tw_buffer **list, tw_error *err) {
    const struct tw_buffer **other = list + p->n_buffers;
    uint32_t n = list_pinned(p, list), m = list_pinned(q, other), i = 0;
    while (i < n && i < m && same(p, list[i], q, other[i])) {
        i++;
    }
    if (i == n && i == m) {
        return 0;
    }
    const struct tw_program *owner = i < n ? p : q;
    const struct tw_buffer *b = i < n ? list[i] : other[i];
    return tw_fail(
        err, TW_E_VERIFY,
        "rule 26 memory_apart: program %s keeps %s %s at offset %llu of site %u; program %s "
        "keeps another one there, or another part of it",
        owner->name, tw_buffer_param(owner, b) ? "param" : "state",
        tw_program_string(owner, owner->tensors[b->tensor].name), (unsigned long long)b->offset,
        b->site, owner == p ? q->name : p->name);
}

int tw_same_pinned(const struct tw_program *programs, uint32_t n, tw_error *err) {
    uint64_t max = 0;
    int rc = 0;
    for (uint32_t i = 0; i < n; i++) {
        max = programs[i].n_buffers > max ? programs[i].n_buffers : max;
    }
    const struct tw_buffer **list = calloc(2 * max + 1, sizeof *list);
    if (!list) {
        return tw_fail(err, TW_E_NOMEM,
                       "out of memory to compare what stays in SRAM, of %u programs", n);
    }
    for (uint32_t i = 1; i < n && rc == 0; i++) {
        rc = compare(&programs[0], &programs[i], list, err);
    }
    free(list);
    return rc;
}
