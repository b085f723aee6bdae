/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks what a program is bound to. The loader's proof of order assumes that tensors do not
 * overlap, so on the device, too, what a program writes must be memory that it may write, and must
 * not overlap anything else that its binding rows name. This is the loader's rule 28, by address.
 * And each tensor must begin where kernels may read it, as a bundle's symbols do.
 */
#include "firmware/core/server/server.h"
#include "loader/base/assert.h"
#include "tilewright/range.h"

/* One instance of a tensor. */
struct place {
    uint64_t address, end;
    uint32_t tensor;
    bool writable; /* the host or the program writes it: not a Param */
};

static void swap(struct place *a, struct place *b) {
    struct place t = *a;
    *a = *b;
    *b = t;
}

static void sink(struct place *list, uint64_t at, uint64_t n) {
    for (uint64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && list[child].address < list[child + 1].address) {
            child++;
        }
        if (list[at].address >= list[child].address) {
            return;
        }
        swap(&list[at], &list[child]);
    }
}

/* Sorts by address with heapsort: no memory, no recursion, O(n log n) for every input. */
static void sort(struct place *list, uint64_t n) {
    for (uint64_t i = n / 2; i-- > 0;) {
        sink(list, i, n);
    }
    for (uint64_t i = n; i-- > 1;) {
        swap(&list[0], &list[i]);
        sink(list, 0, i);
    }
}

static bool is_writable(const struct tw_tensor *t) {
    return t->role != TW_ROLE_PARAM;
}

/* Counts the instances of all tensors. Few tensors share binding rows, so a program that claims
 * many times more instances than there are rows is refused before they are walked. And the users of
 * one allocation, which are counted by instance, must fit 32 bits for all programs together. */
static int count_places(struct tw_server *server, const struct tw_server_program *p, uint64_t *n) {
    const uint64_t max = UINT32_MAX / TW_SERVER_PROGRAMS / 2;
    uint64_t limit = 16 * (p->n_bind + p->program.n_tensors);
    limit = limit < max ? limit : max;
    *n = 0;
    for (uint32_t i = 0; i < p->program.n_tensors; i++) {
        const struct tw_tensor *t = &p->program.tensors[i];
        if (!tw_range_ok(t->bind_first, t->bind_count, p->n_bind)) {
            return tw_server_refuse(server, TW_E_RANGE,
                                    "a tensor names binding rows that do not exist", t->bind_count,
                                    p->n_bind);
        }
        *n += t->bind_count;
    }
    return *n <= limit ? 0
                       : tw_server_refuse(server, TW_E_RANGE, "too many tensors share binding rows",
                                          *n, limit);
}

static int list_places(struct tw_server *server, const struct tw_server_program *p,
                       struct place *list) {
    const uint64_t *rows = server->port.map(server->port.ctx, p->bind);
    for (uint32_t i = 0; i < p->program.n_tensors; i++) {
        const struct tw_tensor *t = &p->program.tensors[i];
        for (uint32_t k = 0; k < t->bind_count; k++) {
            uint64_t address = rows[t->bind_first + k];
            const struct tw_server_allocation *a = tw_server_find(server, address, t->bytes);
            if (!a) {
                return tw_server_refuse(server, TW_E_RANGE, "tensor outside allocated memory",
                                        address, t->bytes);
            }
            if (is_writable(t) && (a->adopted || a->frozen || a->kept)) {
                return tw_server_refuse(server, TW_E_RANGE,
                                        "rule 28 bindings_apart: a program would write memory that "
                                        "is read-only",
                                        address, t->bytes);
            }
            *list++ = (struct place){address, address + t->bytes, i, is_writable(t)};
        }
    }
    return 0;
}

/* Compares each place with the writable and the read-only one before it that reach furthest: if it
 * overlaps any earlier place, it overlaps one of these. */
static int compare_places(struct tw_server *server, const struct place *list, uint64_t n) {
    uint64_t reach[2] = {0, 0}; /* [writable] */
    for (uint64_t i = 0; i < n; i++) {
        const struct place *now = &list[i];
        if (now->address < reach[true] || (now->writable && now->address < reach[false])) {
            return tw_server_refuse(server, TW_E_RANGE,
                                    "rule 28 bindings_apart: two tensors share memory and one of "
                                    "them is written",
                                    now->address, now->tensor);
        }
        if (reach[now->writable] < now->end) {
            reach[now->writable] = now->end;
        }
    }
    return 0;
}

/* Kernels rely on it: vector loads of weights, which may be used in place, are aligned. */
static int check_aligned(struct tw_server *server, const struct place *list, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        if (list[i].address % TW_WIRE_BIND_ALIGN != 0) {
            return tw_server_refuse(server, TW_E_RANGE,
                                    "a tensor's address is not a multiple of 64", list[i].address,
                                    TW_WIRE_BIND_ALIGN);
        }
    }
    return 0;
}

int tw_server_check_bindings(struct tw_server *server, const struct tw_server_program *p) {
    uint64_t n, bytes;
    int code = count_places(server, p, &n);
    if (code || n == 0) {
        return code;
    }
    uint64_t scratch =
        tw_mul_u64(n, sizeof(struct place), &bytes) ? tw_server_own_alloc(server, bytes) : 0;
    if (!scratch) {
        return tw_server_refuse(server, TW_E_NOMEM, "out of memory to check the program's bindings",
                                0, n);
    }
    struct place *list = server->port.map(server->port.ctx, scratch);
    code = list_places(server, p, list);
    if (!code) {
        sort(list, n);
        code = compare_places(server, list, n);
        code = code ? code : check_aligned(server, list, n);
    }
    tw_server_own_free(server, scratch, bytes);
    return code;
}

void tw_server_use_tensors(struct tw_server *server, const struct tw_server_program *p,
                           uint32_t add) {
    const uint64_t *rows = server->port.map(server->port.ctx, p->bind);
    TW_ASSERT(rows); /* LOAD has checked it */
    for (uint32_t i = 0; i < p->program.n_tensors; i++) {
        const struct tw_tensor *t = &p->program.tensors[i];
        for (uint32_t k = 0; k < t->bind_count; k++) {
            struct tw_server_allocation *a = tw_server_find(server, rows[t->bind_first + k], 1);
            /* LOAD found the allocation, and one with users cannot be freed */
            TW_ASSERT(a && (add == 1 || a->users > 0));
            a->users += add; /* -1 modulo 2^32 subtracts */
            a->writers += is_writable(t) ? add : 0;
            TW_ASSERT(a->writers <= a->users);
        }
    }
}
