/* SPDX-License-Identifier: Apache-2.0
 *
 * The compile arena: one private mapping, bumped.
 */
#include "compiler/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RESERVED_BYTES ((size_t)4 << 30)

int tw_cmem_init(struct tw_cmem *m, tw_error *err) {
    /* Under an address-space limit take what can be had, down to 64 MiB. */
    for (size_t size = RESERVED_BYTES; size >= (size_t)64 << 20; size /= 2) {
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p != MAP_FAILED) {
            *m = (struct tw_cmem){.base = p, .size = size};
            return 0;
        }
    }
    return tw_fail(err, TW_E_NOMEM,
                   "compiler: cannot reserve 64 MiB of addresses; raise the limit (ulimit -v)");
}

void tw_cmem_finish(struct tw_cmem *m) {
    if (m && m->base) {
        munmap(m->base, m->size);
        m->base = NULL;
    }
}

void *tw_cmem_alloc(struct tw_cmem *m, size_t bytes) {
    size_t need = (bytes + 15) & ~(size_t)15;
    if (need > m->size - m->used) {
        /* counts are bounded by the importers and target limits: reaching this is our own
         * mistake */
        abort();
    }
    void *p = m->base + m->used;
    m->used += need;
    return p; /* fresh anonymous pages are zero, and so is what was given back */
}

void tw_cmem_release(struct tw_cmem *m, size_t used) {
    memset(m->base + used, 0, m->used - used);
    m->used = used;
}

char *tw_cmem_printf(struct tw_cmem *m, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *copy = tw_cmem_alloc(m, strlen(text) + 1);
    strcpy(copy, text);
    return copy;
}

void *tw_vec_grow(struct tw_cmem *m, void *items, uint32_t n, uint32_t *cap, size_t item_bytes) {
    *cap = *cap ? *cap * 2 : 16;
    void *fresh = tw_cmem_alloc(m, *cap * item_bytes);
    if (n) {
        memcpy(fresh, items, n * item_bytes);
    }
    return fresh;
}
