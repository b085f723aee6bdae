/* SPDX-License-Identifier: Apache-2.0
 *
 * Packs any part of a weight on demand: whole panels are packed in place, a panel that is only
 * partly inside the requested range is packed once into a buffer.
 */
#ifndef TW_COMPILER_EMIT_FILL_H
#define TW_COMPILER_EMIT_FILL_H

#include "compiler/graph/graph.h"

struct tw_fill_source {
    const struct tw_gvalue *value;
    uint32_t instance;
};

struct tw_filler {
    struct tw_cmem *mem;
    const struct tw_fill_source *partial; /* source whose panel `partial_panel` is in `panel` */
    uint64_t partial_panel;
    uint8_t *panel;
    uint64_t panel_size;
    float *row;
    uint64_t row_size;
    uint8_t *rows; /* rows read from a file, unconverted */
    uint64_t rows_size;
    uint8_t *converted; /* the same in the type that they are compiled as */
    uint64_t converted_size;
};

/* Writes bytes [offset, offset + size) of the source's packed form. Errors: RANGE (a weight is not
 * finite), TRUNCATED and IO (the model's file changed after it was checked). */
int tw_fill(struct tw_filler *f, const struct tw_fill_source *source, uint64_t offset,
            uint64_t size, uint8_t *dst, tw_error *err);

#endif
