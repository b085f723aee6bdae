/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of mutations of what lives in SRAM (order_mutate_family.h): windows of Params and State
 * together with the pages that hold them, and memory classes together with places.
 */
#include "tests/support/order_mutate_family.h"

#include "tests/support/order_mutate_number.h"
#include "tests/support/random_model.h"

static struct tw_buffer *own_buffers(struct order_mutant *m) {
    struct tw_buffer *b = order_own(m, m->p.buffers, m->p.n_buffers * sizeof *b);
    m->p.buffers = b;
    return b;
}

/* A buffer that keeps a Param or State; else any. */
static uint32_t pinned_buffer(const struct tw_program *p, uint64_t *seed) {
    uint32_t n = 0;
    for (uint32_t tries = 0; tries < 64; tries++) {
        n = random_below(seed, p->n_buffers);
        if (tw_buffer_pinned(p, &p->buffers[n])) {
            break;
        }
    }
    return n;
}

static void move_window(struct tw_buffer *b, uint64_t *seed) {
    uint64_t unit = random_below(seed, 2) ? 4 : 64;
    switch (random_below(seed, 6)) {
    case 0:
        b->window_first += unit;
        break;
    case 1:
        b->window_first -= unit;
        break;
    case 2:
        b->window_rows += random_below(seed, 3) - 1;
        break;
    case 3:
        b->window_row_bytes += (uint32_t)unit;
        break;
    case 4:
        b->window_stride = order_tweak(b->window_stride, seed);
        break;
    default: /* the whole instance, or something of one that was whole */
        b->window_rows = b->window_rows ? 0 : 1;
        b->window_row_bytes = b->window_rows ? 64 : 0;
        b->window_first = b->window_stride = 0;
        break;
    }
}

bool order_family_windows(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    (void)x;
    struct tw_buffer *all = own_buffers(m);
    uint32_t n = pinned_buffer(&m->p, seed), other = pinned_buffer(&m->p, seed);
    struct tw_buffer *b = &all[n];
    switch (random_below(seed, 5)) {
    case 0: /* what another buffer holds: State in two places */
        b->tensor = all[other].tensor;
        b->window_first = all[other].window_first;
        break;
    case 1: /* another tensor, Param or State, with as many instances */
        b->tensor = random_below(seed, m->p.n_tensors);
        b->pages = m->p.tensors[b->tensor].bind_count ? m->p.tensors[b->tensor].bind_count : 1;
        break;
    default:
        move_window(b, seed);
        break;
    }
    if (random_below(seed, 3)) { /* the page as large as the window says */
        uint64_t bytes = (uint64_t)b->window_rows * b->window_row_bytes;
        b->page_bytes = bytes ? (bytes + 63) / 64 * 64 : b->page_bytes;
    }
    if (random_below(seed, 4) == 0) { /* members of a set agree */
        for (uint32_t i = 0; i < m->p.n_buffers; i++) {
            if (b->sibling_base != TW_NONE && all[i].sibling_base == b->sibling_base) {
                uint32_t site = all[i].site;
                all[i] = *b;
                all[i].site = site;
            }
        }
    }
    order_describe(m, " [buffer %u of %u: window %llu + %u x %u every %llu, %u x %llu]", n,
                   b->tensor, (unsigned long long)b->window_first, b->window_rows,
                   b->window_row_bytes, (unsigned long long)b->window_stride, b->pages,
                   (unsigned long long)b->page_bytes);
    return true;
}

/* A buffer, or all members of its set, in another memory class, at its place or at another's. */
bool order_family_classes(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    (void)x;
    struct tw_buffer *all = own_buffers(m);
    uint32_t n = random_below(seed, m->p.n_buffers), like = random_below(seed, m->p.n_buffers);
    struct tw_buffer to = all[n];
    to.mem_class = random_below(seed, 2) ? all[like].mem_class
                                         : (uint8_t)random_below(seed, TW_MEM_CLASSES + 1);
    to.offset = random_below(seed, 2) ? all[like].offset : to.offset;
    bool set = all[n].sibling_base != TW_NONE && random_below(seed, 4);
    for (uint32_t i = 0; i < m->p.n_buffers; i++) {
        if (i == n || (set && all[i].sibling_base == all[n].sibling_base)) {
            all[i].mem_class = to.mem_class;
            all[i].offset = to.offset;
        }
    }
    if (random_below(seed, 3)) { /* a class that has room */
        m->p.sram_bytes[to.mem_class % TW_MEM_CLASSES] = m->p.sram_bytes[0];
    }
    order_describe(m, " [buffer %u%s: class %u offset %llu]", n, set ? " and its set" : "",
                   to.mem_class, (unsigned long long)to.offset);
    return true;
}
