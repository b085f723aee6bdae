/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels that move data without computing, shared by every table: strided row copies, the
 * embedding lookup and the writes into the key and value caches.
 */
#include "firmware/kernels/internal.h"
#include "tilewright/numerics.h"

#include <string.h>

static void copy_rows(char *to, size_t to_stride, const char *from, size_t from_stride,
                      size_t bytes, uint32_t rows) {
    if (to_stride == bytes && from_stride == bytes) {
        memcpy(to, from, bytes * rows);
        return;
    }
    for (uint32_t r = 0; r < rows; r++) {
        memcpy(to + to_stride * r, from + from_stride * r, bytes);
    }
}

void tw_move_read(const struct tw_kargs *a) {
    copy_rows((char *)a->p[1], a->i[3], (const char *)a->p[0], a->i[2], a->i[1], a->i[0]);
}

void tw_move_write(const struct tw_kargs *a) {
    copy_rows((char *)a->p[1], a->i[1], (const char *)a->p[0], a->i[0], a->i[2], a->rows);
}

void tw_move_mcast(const struct tw_kargs *a) {
    tw_move_write(a);
}

void tw_move_copy(const struct tw_kargs *a) {
    tw_move_write(a);
}

void tw_move_last_row(const struct tw_kargs *a) {
    if (a->rows > 0) {
        memcpy(a->p[1], tw_const_row(a->p[0], a->i[0], a->rows - 1), a->i[1]);
    }
}

/* The cache is [head][position/16][head_dim][16 positions]. */
void tw_move_key_write(const struct tw_kargs *a) {
    uint32_t first = a->i[1], heads = a->i[2], head_dim = a->i[3];
    size_t head_floats = (size_t)a->tensor->rows * head_dim;
    for (uint32_t h = 0; h < heads; h++) {
        float *head = (float *)a->p[1] + (first + (size_t)h) * head_floats;
        for (uint32_t r = 0; r < a->rows; r++) {
            const float *from = tw_const_row(a->p[0], a->i[0], r) + (size_t)h * head_dim;
            size_t position = (size_t)a->pos + r;
            float *to = head + position / 16 * 16 * head_dim + position % 16;
            for (uint32_t d = 0; d < head_dim; d++) {
                to[(size_t)d * 16] = from[d];
            }
        }
    }
}

/* The cache is [head][position][head_dim]. */
void tw_move_value_write(const struct tw_kargs *a) {
    uint32_t first = a->i[1], heads = a->i[2], head_dim = a->i[3];
    size_t head_floats = (size_t)a->tensor->rows * head_dim;
    for (uint32_t h = 0; h < heads; h++) {
        float *to =
            (float *)a->p[1] + (first + (size_t)h) * head_floats + (size_t)a->pos * head_dim;
        const float *from = (const float *)a->p[0] + (size_t)h * head_dim;
        copy_rows((char *)to, head_dim * sizeof(float), (const char *)from, a->i[0],
                  head_dim * sizeof(float), a->rows);
    }
}

/* ---- gather ---- */

/* Built-in copies: freestanding code would otherwise call a function for two bytes. */
static uint16_t load_u16(const uint8_t *p) {
    uint16_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

static float load_float(unsigned dtype, const uint8_t *p) {
    float f;
    if (dtype == TW_DT_F32) {
        __builtin_memcpy(&f, p, sizeof f);
        return f;
    }
    return dtype == TW_DT_F16 ? tw_f16_to_f32(load_u16(p)) : tw_bf16_to_f32(load_u16(p));
}

/* Decodes one element every `step` bytes: a row of a ROW table, or a lane of a panel. */
static void decode_floats(unsigned dtype, const uint8_t *from, size_t step, uint32_t cols,
                          float *out) {
    for (uint32_t c = 0; c < cols; c++) {
        out[c] = load_float(dtype, from + step * c);
    }
}

static void decode_row_block(unsigned dtype, const uint8_t *block, float *out) {
    float d = tw_f16_to_f32(load_u16(block));
    const uint8_t *q = block + 2;
    for (uint32_t i = 0; i < 32; i++) {
        int v = dtype == TW_DT_Q8_0 ? (int8_t)q[i] : (i < 16 ? q[i] & 15 : q[i - 16] >> 4) - 8;
        out[i] = d * (float)v;
    }
}

/* Decodes a block of one row of a panel; `quants` and `scale` point to the row's lane. */
static void decode_lane_block(unsigned dtype, const uint8_t *quants, const uint8_t *scale,
                              float *out) {
    float d = tw_f16_to_f32(load_u16(scale));
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t j = dtype == TW_DT_Q8_0 ? i : i % 16;
        uint8_t byte = quants[j / 4 * 64 + j % 4];
        int v = dtype == TW_DT_Q8_0 ? byte - 128 : (i < 16 ? byte & 15 : byte >> 4) - 8;
        out[i] = d * (float)v;
    }
}

static void decode_row(unsigned dtype, const uint8_t *row, uint32_t cols, float *out) {
    if (tw_dtype_block_elems(dtype) == 1) {
        decode_floats(dtype, row, tw_dtype_block_bytes(dtype), cols, out);
        return;
    }
    for (uint32_t c = 0; c < cols; c += 32, row += tw_dtype_block_bytes(dtype)) {
        decode_row_block(dtype, row, out + c);
    }
}

static void decode_lane(unsigned dtype, const uint8_t *panel, uint32_t lane, uint32_t k,
                        uint32_t cols, float *out) {
    if (tw_dtype_block_elems(dtype) == 1) {
        size_t bytes = tw_dtype_block_bytes(dtype);
        decode_floats(dtype, panel + lane * bytes, TW_PANEL_ROWS * bytes, cols, out);
        return;
    }
    const uint8_t *quants = panel + lane * 4,
                  *scale = panel + tw_panel_scales_offset(dtype, k) + lane * 2;
    size_t step = dtype == TW_DT_Q8_0 ? 512 : 256;
    for (uint32_t c = 0; c < cols; c += 32, quants += step, scale += 32) {
        decode_lane_block(dtype, quants, scale, out + c);
    }
}

void tw_move_gather(const struct tw_kargs *a) {
    const struct tw_tensor *t = a->tensor;
    const uint8_t *table = (const uint8_t *)a->p[0];
    const int32_t *ids = (const int32_t *)a->p[1];
    for (uint32_t r = 0; r < a->rows; r++) {
        uint32_t id = (uint32_t)ids[r];
        float *out = tw_row(a->p[2], a->i[0], r);
        if (t->packing == TW_PACK_PANEL16) {
            const uint8_t *panel = table + tw_panel_bytes(t->dtype, t->cols) * (id / TW_PANEL_ROWS);
            decode_lane(t->dtype, panel, id % TW_PANEL_ROWS, t->cols, a->i[1], out);
        } else {
            decode_row(t->dtype, table + tw_row_bytes(t->dtype, t->cols) * id, a->i[1], out);
        }
    }
}
