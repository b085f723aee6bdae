/* SPDX-License-Identifier: Apache-2.0
 *
 * Rule 28, by bytes. Every instance of a tensor that is not a Param is an interval of a writable
 * segment (Params have segments of their own, which nothing writes). The intervals are sorted by
 * place; two that overlap must be the same instance, used by two programs.
 */
#include "loader/bundle/bindings.h"

#include "loader/base/hash.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct place {
    uint64_t offset, bytes;
    uint32_t segment, program, tensor, instance;
};

static int compare_u64(uint64_t a, uint64_t b) {
    return a < b ? -1 : a > b;
}

static int by_place(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    int c = compare_u64(x->segment, y->segment);
    c = c ? c : compare_u64(x->offset, y->offset);
    c = c ? c : compare_u64(x->program, y->program);
    c = c ? c : compare_u64(x->tensor, y->tensor);
    return c ? c : compare_u64(x->instance, y->instance);
}

static uint64_t count_places(const struct tw_bundle *b) {
    uint64_t n = 0;
    for (uint32_t p = 0; p < b->n_programs; p++) {
        for (uint32_t t = 0; t < b->programs[p].n_tensors; t++) {
            const struct tw_tensor *tensor = &b->programs[p].tensors[t];
            n += tensor->role == TW_ROLE_PARAM ? 0 : tensor->bind_count;
        }
    }
    return n;
}

static void list_places(const struct tw_bundle *b, struct place *out) {
    for (uint32_t p = 0; p < b->n_programs; p++) {
        for (uint32_t t = 0; t < b->programs[p].n_tensors; t++) {
            const struct tw_tensor *tensor = &b->programs[p].tensors[t];
            for (uint32_t i = 0; tensor->role != TW_ROLE_PARAM && i < tensor->bind_count; i++) {
                const struct tw_bind_target *row = &b->bind[tensor->bind_first + i];
                *out++ = (struct place){row->offset, tensor->bytes, row->segment, p, t, i};
            }
        }
    }
}

static const struct tw_tensor *tensor_of(const struct tw_bundle *b, const struct place *p) {
    return &b->programs[p->program].tensors[p->tensor];
}

static const char *name_of(const struct tw_bundle *b, const struct place *p) {
    return tw_program_string(&b->programs[p->program], tensor_of(b, p)->name);
}

/* Returns true if both tensors are one State: what one program leaves in it the other reads. */
static bool same_state(const struct tw_tensor *a, const struct tw_tensor *b) {
    return a->dtype == b->dtype && a->packing == b->packing && a->rows == b->rows &&
           a->cols == b->cols && a->head_dim == b->head_dim && a->bytes == b->bytes &&
           a->init == b->init;
}

static bool same_instance(const struct tw_bundle *b, const struct place *x, const struct place *y) {
    const struct tw_tensor *s = tensor_of(b, x), *t = tensor_of(b, y);
    return x->program != y->program && x->offset == y->offset && x->instance == y->instance &&
           s->role == t->role && strcmp(name_of(b, x), name_of(b, y)) == 0 &&
           (s->role != TW_ROLE_STATE || same_state(s, t));
}

static int refuse(const struct tw_bundle *b, const struct place *x, const struct place *y,
                  tw_error *err) {
    return tw_fail(err, TW_E_VERIFY,
                   "rule 28 bindings_apart: program %s tensor %u (%.80s) instance %u overlaps "
                   "program %s tensor %u (%.80s) instance %u: bytes [%llu, %llu) and [%llu, %llu) "
                   "of segment %u",
                   b->programs[y->program].name, y->tensor, name_of(b, y), y->instance,
                   b->programs[x->program].name, x->tensor, name_of(b, x), x->instance,
                   (unsigned long long)y->offset, (unsigned long long)(y->offset + y->bytes),
                   (unsigned long long)x->offset, (unsigned long long)(x->offset + x->bytes),
                   y->segment);
}

/* offset + bytes lies inside the segment, as checked with the symbols. Of intervals that begin at
 * one place each is compared with the previous one, which names the same instance or has ended the
 * search; any other must begin where all before it have ended. */
static int compare_places(const struct tw_bundle *b, const struct place *list, uint64_t n,
                          tw_error *err) {
    const struct place *furthest = NULL;
    for (uint64_t i = 0; i < n; i++) {
        const struct place *now = &list[i], *before = i ? &list[i - 1] : NULL;
        bool together = before && before->segment == now->segment && before->offset == now->offset;
        if (together && !same_instance(b, before, now)) {
            return refuse(b, before, now, err);
        }
        if (!together && furthest && furthest->segment == now->segment &&
            now->offset < furthest->offset + furthest->bytes) {
            return refuse(b, furthest, now, err);
        }
        if (!furthest || furthest->segment != now->segment ||
            furthest->offset + furthest->bytes < now->offset + now->bytes) {
            furthest = now;
        }
    }
    return 0;
}

int tw_bundle_check_bindings(const struct tw_bundle *bundle, struct tw_verify_report *report,
                             tw_error *err) {
    uint64_t n = count_places(bundle); /* bounded by the loader in relation to the number of rows */
    struct place *list = n < SIZE_MAX / sizeof *list ? calloc(n + 1, sizeof *list) : NULL;
    if (!list) {
        return tw_fail(err, TW_E_NOMEM, "out of memory to check %llu bindings",
                       (unsigned long long)n);
    }
    list_places(bundle, list);
    qsort(list, n, sizeof *list, by_place);
    int rc = compare_places(bundle, list, n, err);
    free(list);
    if (report) {
        report->checked[TW_ORDER_bindings_apart] += n;
        report->failed_rule = rc == TW_E_VERIFY ? TW_ORDER_bindings_apart : report->failed_rule;
    }
    return rc;
}

void tw_bindings_hash(const struct tw_bind_target *rows, uint64_t n, uint8_t out[TW_HASH_BYTES]) {
    struct tw_hash h;
    tw_hash_init(&h);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t place[3] = {rows[i].segment, rows[i].offset, rows[i].size};
        tw_hash_update(&h, place, sizeof place);
    }
    tw_hash_final(&h, out);
}
