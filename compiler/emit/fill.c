/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing on demand (compiler/emit/fill.h). A source whose type differs from that of its sequence
 * (mixed layers) is converted to F32 rows first; one that is to be converted
 * to another type (tw_model_convert), to that before anything else.
 */
#include "compiler/emit/fill.h"

#include "compiler/emit/finite.h"
#include "compiler/emit/pack.h"
#include "compiler/graph/dequant.h"
#include "compiler/graph/quantise.h"
#include "loader/base/assert.h"

#include <string.h>

/* Returns scratch memory from the compile arena, reused between calls and only grown. */
static void *scratch(struct tw_filler *f, uint8_t **buffer, uint64_t *size, uint64_t need) {
    if (*size < need) {
        uint8_t *p = tw_cmem_alloc(f->mem, need + 64);
        *buffer = p + (64 - (uintptr_t)p % 64) % 64;
        *size = need;
    }
    return *buffer;
}

/* Sets *out to rows [first, first + rows) of a tensor, in memory. */
static int fetch(struct tw_filler *f, const struct tw_model_tensor *t, uint32_t first,
                 uint32_t rows, struct tw_model_tensor *out, tw_error *err) {
    uint64_t row_bytes = tw_row_bytes(t->dtype, t->cols);
    *out = *t;
    out->rows = rows;
    out->bytes = rows * row_bytes;
    out->file = NULL;
    out->head_rows = 0;
    if (!t->file && !t->head_rows) {
        out->data = t->data + first * row_bytes;
        return 0;
    }
    uint8_t *to = scratch(f, &f->rows, &f->rows_size, out->bytes);
    out->data = to;
    return tw_model_read_rows(t, first, rows, to, err);
}

/* Returns room for n rows of a tensor as floats. */
static float *float_rows(struct tw_filler *f, const struct tw_model_tensor *t, uint32_t n) {
    uint64_t bytes = (uint64_t)n * t->cols * 4;
    if (f->row_size < bytes) {
        f->row = tw_cmem_alloc(f->mem, bytes);
        f->row_size = bytes;
    }
    return f->row;
}

static void pack_converted(struct tw_filler *f, const struct tw_model_tensor *t, uint8_t *dst) {
    uint64_t row_bytes = (uint64_t)t->cols * 4;
    float *rows = float_rows(f, t, TW_PANEL_ROWS);
    for (uint32_t r = 0; r < t->rows; r++) {
        tw_dequant_row(t, r, rows + (uint64_t)r * t->cols);
    }
    tw_pack_panel(TW_DT_F32, (const uint8_t *)rows, row_bytes, t->rows, t->cols, dst);
}

/* Replaces rows from `first` on, in memory, by the same in the type that they are compiled as. */
static int convert(struct tw_filler *f, struct tw_model_tensor *piece, uint32_t first,
                   tw_error *err) {
    uint64_t row_bytes = tw_row_bytes(piece->to, piece->cols);
    float *row = float_rows(f, piece, 1);
    uint8_t *to = scratch(f, &f->converted, &f->converted_size, piece->rows * row_bytes);
    for (uint32_t r = 0; r < piece->rows; r++) {
        tw_dequant_row(piece, r, row);
        tw_quantise_row(piece->to, row, piece->cols, to + r * row_bytes);
    }
    piece->dtype = piece->to;
    piece->converted = false;
    piece->data = to;
    piece->bytes = piece->rows * row_bytes;
    return tw_check_finite(piece, to, first, piece->rows, err);
}

static int pack(struct tw_filler *f, const struct tw_fill_source *source, uint64_t panel,
                uint8_t *dst, tw_error *err) {
    const struct tw_model_tensor *t = source->value->source[source->instance];
    uint32_t first = (uint32_t)panel * TW_PANEL_ROWS, left = t->rows - first;
    struct tw_model_tensor piece;
    int code = fetch(f, t, first, left < TW_PANEL_ROWS ? left : TW_PANEL_ROWS, &piece, err);
    code = code ? code : tw_check_finite(t, piece.data, first, piece.rows, err);
    if (code == 0 && t->converted) {
        code = convert(f, &piece, first, err);
    }
    if (code) {
        return code;
    }
    if (piece.dtype != source->value->dtype) {
        pack_converted(f, &piece, dst);
        return 0;
    }
    tw_pack_panel(piece.dtype, piece.data, tw_row_bytes(piece.dtype, t->cols), piece.rows, t->cols,
                  dst);
    return 0;
}

static int fill_vector(struct tw_filler *f, const struct tw_fill_source *source, uint64_t offset,
                       uint64_t size, uint8_t *dst, tw_error *err) {
    const float *data = source->value->constant;
    if (!data) {
        const struct tw_model_tensor *t = source->value->source[source->instance];
        struct tw_model_tensor piece;
        int code = fetch(f, t, 0, 1, &piece, err);
        code = code ? code : tw_check_finite(t, piece.data, 0, 1, err);
        if (code) {
            return code;
        }
        float *row = float_rows(f, t, 1);
        tw_dequant_row(&piece, 0, row);
        data = row;
    }
    memcpy(dst, (const uint8_t *)data + offset, size);
    return 0;
}

int tw_fill(struct tw_filler *f, const struct tw_fill_source *source, uint64_t offset,
            uint64_t size, uint8_t *dst, tw_error *err) {
    if (source->value->packing == TW_PACK_ROW) {
        return fill_vector(f, source, offset, size, dst, err);
    }
    uint64_t bytes = tw_panel_bytes(source->value->dtype, source->value->cols);
    int code = 0;
    TW_ASSERT(bytes > 0);
    while (size && !code) {
        uint64_t panel = offset / bytes, skip = offset % bytes,
                 n = bytes - skip < size ? bytes - skip : size;
        if (n == bytes && (uintptr_t)dst % 64 == 0) {
            code = pack(f, source, panel, dst, err);
        } else {
            uint8_t *whole = scratch(f, &f->panel, &f->panel_size, bytes);
            if (f->partial != source || f->partial_panel != panel) {
                code = pack(f, source, panel, whole, err);
                f->partial = code ? NULL : source;
                f->partial_panel = panel;
            }
            memcpy(dst, whole + skip, n);
        }
        offset += n;
        size -= n;
        dst += n;
    }
    return code;
}
