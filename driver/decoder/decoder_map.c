/* SPDX-License-Identifier: Apache-2.0
 *
 * The SRAM map of a program's site: its buffers by memory class and address, with the sections that
 * touch them.
 */
#include "driver/decoder/decoder.h"

#include "loader/base/sized.h"
#include "loader/order/buffer_lifetimes.h"
#include "tilewright/machine.h"

#include <stdlib.h>
#include <string.h>

struct place {
    const struct tw_buffer *buffer;
    uint32_t id;
};

static int by_offset(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    if (x->buffer->mem_class != y->buffer->mem_class) {
        return x->buffer->mem_class < y->buffer->mem_class ? -1 : 1;
    }
    if (x->buffer->offset != y->buffer->offset) {
        return x->buffer->offset < y->buffer->offset ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static const char *section_name(const struct tw_program *p, uint32_t section) {
    return section < p->n_sections ? tw_program_string(p, p->sections[section].name) : NULL;
}

static struct tw_map_info describe(const struct tw_program *p, const struct place *at,
                                   const struct tw_life *life) {
    static const char *const kinds[] = {
        [TW_BUF_FIFO] = "fifo", [TW_BUF_RESIDENT] = "resident", [TW_BUF_SCRATCH] = "scratch"};
    const struct tw_buffer *b = at->buffer;
    return (struct tw_map_info){
        .size = sizeof(struct tw_map_info),
        .buffer = at->id,
        .mem_class = b->mem_class,
        .pages = b->pages,
        .offset = b->offset,
        .bytes = b->pages * b->page_bytes,
        .first_section = life->first,
        .last_section = life->last,
        .name = tw_program_string(p, b->name),
        .kind = b->kind <= TW_BUF_SCRATCH ? kinds[b->kind] : "?",
        .dtype = tw_dtype_name(b->dtype),
        .tensor =
            b->tensor < p->n_tensors ? tw_program_string(p, p->tensors[b->tensor].name) : NULL,
        .first_name = section_name(p, life->first),
        .last_name = section_name(p, life->last),
        .window_first = b->window_first,
        .window_stride = b->window_stride,
        .window_row_bytes = b->window_row_bytes,
        .window_rows = b->window_rows,
    };
}

int tw_decoder_map(const tw_decoder *decoder, uint32_t program, uint32_t site,
                   bool (*found)(void *ctx, const struct tw_map_info *info), void *ctx,
                   tw_error *err) {
    int rc = TW_NEED_2(err, decoder, found);
    if (rc) {
        return rc;
    }
    if (program >= decoder->bundle.n_programs) {
        return tw_fail(err, TW_E_USAGE, "%s: program %u does not exist; the bundle has %u programs",
                       decoder->bundle.path, program, decoder->bundle.n_programs);
    }
    const struct tw_program *p = &decoder->bundle.programs[program];
    if (site >= p->n_sites) {
        return tw_fail(err, TW_E_USAGE, "%s: program %s has sites 0 to %u, not %u",
                       decoder->bundle.path, p->name, p->n_sites - 1, site);
    }
    struct tw_life *lifetimes = calloc((size_t)p->n_buffers + 1, sizeof *lifetimes);
    struct place *places = calloc((size_t)p->n_buffers + 1, sizeof *places);
    uint32_t n = 0;
    rc = lifetimes && places ? 0
                             : tw_fail(err, TW_E_NOMEM, "%s: out of memory", decoder->bundle.path);
    if (rc == 0) {
        tw_buffer_lifetimes(p, lifetimes);
        for (uint32_t i = 0; i < p->n_buffers; i++) {
            if (p->buffers[i].site == site) {
                places[n++] = (struct place){&p->buffers[i], i};
            }
        }
        qsort(places, n, sizeof *places, by_offset);
        for (uint32_t i = 0; i < n; i++) {
            struct tw_map_info info = describe(p, &places[i], &lifetimes[places[i].id]);
            if (!found(ctx, &info)) {
                break;
            }
        }
    }
    free(lifetimes);
    free(places);
    return rc;
}
