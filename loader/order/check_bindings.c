/* SPDX-License-Identifier: Apache-2.0
 *
 * Binding rows (rule 28): the order is proved for tensors, so two tensors of which one is ever
 * written must not overlap. This file compares the rows that a program's tensors claim;
 * loader/bundle/bindings.c compares the bytes that a bundle's rows name, and a device that loads
 * the program compares addresses.
 */
#include "loader/order/check_internal.h"

#include <stdlib.h>

struct claim {
    uint32_t first, end, tensor;
};

static int by_first(const void *a, const void *b) {
    const struct claim *x = a, *y = b;
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

static bool is_param(const struct tw_program *p, uint32_t tensor) {
    return p->tensors[tensor].role == TW_ROLE_PARAM;
}

/* Compares each claim with two earlier ones: of the Params, the one that ends last, and the same of
 * the other tensors. A claim that overlaps any earlier one overlaps one of these. */
static int compare_claims(struct tw_checker *c, const struct claim *claims, uint32_t n) {
    const struct claim *reach[2] = {NULL, NULL}; /* [is_param] */
    for (uint32_t i = 0; i < n; i++) {
        const struct claim *now = &claims[i];
        bool param = is_param(c->p, now->tensor);
        tw_ck_count(c, TW_ORDER_bindings_apart);
        for (int kind = 0; kind < 2; kind++) {
            const struct claim *a = reach[kind];
            if (a && now->first < a->end && !(param && kind)) {
                return tw_ck_fail(
                    c, TW_ORDER_bindings_apart,
                    "tensors %u (%s) and %u (%s) share binding row %u and one of them is written",
                    a->tensor, tw_program_string(c->p, c->p->tensors[a->tensor].name), now->tensor,
                    tw_program_string(c->p, c->p->tensors[now->tensor].name), now->first);
            }
        }
        if (!reach[param] || reach[param]->end < now->end) {
            reach[param] = now;
        }
    }
    return 0;
}

int tw_ck_bindings(struct tw_checker *c) {
    const struct tw_program *p = c->p;
    struct claim *claims = calloc((size_t)p->n_tensors + 1, sizeof *claims);
    if (!claims) {
        return tw_fail(c->err, TW_E_NOMEM, "out of memory to check the bindings of %s: %u tensors",
                       p->name, p->n_tensors);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct tw_tensor *t = &p->tensors[i];
        if (t->bind_count != 0) { /* the verifier checked that the sum does not overflow */
            claims[n++] = (struct claim){t->bind_first, t->bind_first + t->bind_count, i};
        }
    }
    qsort(claims, n, sizeof *claims, by_first);
    int rc = compare_claims(c, claims, n);
    free(claims);
    return rc;
}
