/* SPDX-License-Identifier: Apache-2.0
 *
 * The packed bytes of a weight, any part of them on demand: whole panels are packed where they go,
 * a panel that a part cuts is packed aside once.
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
    const struct tw_fill_source *cut; /* whose panel `cut_panel` is in `panel` */
    uint64_t cut_panel;
    uint8_t *panel;
    uint64_t panel_size;
    float *row;
    uint64_t row_size;
    uint8_t *rows; /* of a file, as they are in it */
    uint64_t rows_size;
};

/* Writes bytes [offset, offset + size) of the source's packed form. Errors: RANGE (a weight is not
 * finite), TRUNCATED and IO (the model's file, which has been checked, no longer has it). */
int tw_fill(struct tw_filler *f, const struct tw_fill_source *source, uint64_t offset,
            uint64_t size, uint8_t *dst, tw_error *err);

#endif
