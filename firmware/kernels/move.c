/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels that move data without computing, shared by every table: strided row copies, the
 * embedding lookup, the writes into the key and value caches and the merge of lists.
 */
#include "firmware/kernels/internal.h"
#include "tilewright/quants.h"

#include <string.h>

static void copy_rows(void *to, size_t to_stride, const void *from, size_t from_stride,
                      size_t bytes, uint32_t rows) {
    if (to_stride == bytes && from_stride == bytes) {
        memcpy(to, from, bytes * rows);
        return;
    }
    for (uint32_t r = 0; r < rows; r++) {
        memcpy((char *)to + to_stride * r, (const char *)from + from_stride * r, bytes);
    }
}

void tw_move_read(const struct tw_kargs *a) {
    const struct tw_args_read v = tw_args_read(a);
    copy_rows(v.destination, v.destination_stride, v.source, v.source_stride, v.row_bytes, v.rows);
}

void tw_move_write(const struct tw_kargs *a) {
    const struct tw_args_write v = tw_args_write(a);
    copy_rows(v.destination, v.destination_stride, v.source, v.source_stride, v.row_bytes, v.rows);
}

void tw_move_mcast(const struct tw_kargs *a) {
    const struct tw_args_mcast v = tw_args_mcast(a);
    copy_rows(v.destination, v.destination_stride, v.source, v.source_stride, v.row_bytes, v.rows);
}

void tw_move_send(const struct tw_kargs *a) {
    const struct tw_args_send v = tw_args_send(a);
    copy_rows(v.destination, v.destination_stride, v.source, v.source_stride, v.row_bytes, v.rows);
}

void tw_move_dram_copy(const struct tw_kargs *a) {
    const struct tw_args_dram_copy v = tw_args_dram_copy(a);
    copy_rows(v.destination, v.destination_stride, v.source, v.source_stride, v.row_bytes, v.rows);
}

void tw_move_copy(const struct tw_kargs *a) {
    const struct tw_args_copy v = tw_args_copy(a);
    copy_rows(v.y, v.y_stride, v.x, v.x_stride, v.row_bytes, v.rows);
}

void tw_move_last_row(const struct tw_kargs *a) {
    const struct tw_args_last_row v = tw_args_last_row(a);
    if (v.rows > 0) {
        memcpy(v.y, tw_const_row(v.x, v.x_stride, v.rows - 1), v.row_bytes);
    }
}

void tw_move_topk_merge(const struct tw_kargs *a) {
    const struct tw_args_topk_merge v = tw_args_topk_merge(a);
    for (uint32_t r = 0; r < v.rows; r++) {
        tw_top_merge((const void *)tw_const_row(v.x, v.x_stride, r),
                     (const void *)tw_const_row(v.y, v.y_stride, r), v.k,
                     (void *)tw_row(v.z, v.z_stride, r));
    }
}

/* Writes n floats to a cache, `step` elements apart: as they are, or to f16, nearest even. */
static void write_elements(unsigned dtype, void *to, size_t step, const float *from, uint32_t n) {
    if (dtype == TW_DT_F16) {
        uint16_t *halves = to;
        for (uint32_t i = 0; i < n; i++) {
            halves[i * step] = tw_f32_to_f16(from[i]);
        }
        return;
    }
    if (step == 1) {
        memcpy(to, from, n * sizeof *from);
        return;
    }
    float *floats = to;
    for (uint32_t i = 0; i < n; i++) {
        floats[i * step] = from[i];
    }
}

/* KEY_WRITE and VALUE_WRITE, which have the same operands and differ in the tensor's packing. */
static void write_cache(const struct tw_kargs *a) {
    const struct tw_args_key_write v = tw_args_key_write(a);
    const struct tw_tensor *t = a->tensor;
    const int32_t *pages = a->p[TW_KEY_WRITE_REGION_COUNT];
    size_t page_bytes = (size_t)tw_tensor_page_bytes(t),
           head_bytes = (size_t)tw_cache_head_bytes(t), bytes = tw_dtype_block_bytes(t->dtype);
    for (uint32_t r = 0; r < v.rows; r++) {
        const float *from = tw_const_row(v.source, v.source_stride, r);
        uint32_t position = v.pos + r, block = position / TW_KV_BLOCK, next;
        size_t page = pages ? (size_t)pages[block] : block;
        char *to = (char *)v.cache + page * page_bytes + v.first * head_bytes +
                   tw_cache_element(t, position % TW_KV_BLOCK, &next) * bytes;
        for (uint32_t h = 0; h < v.heads; h++) {
            write_elements(t->dtype, to + h * head_bytes, next, from + (size_t)h * v.head_dim,
                           v.head_dim);
        }
    }
}

void tw_move_key_write(const struct tw_kargs *a) {
    write_cache(a);
}

void tw_move_value_write(const struct tw_kargs *a) {
    write_cache(a);
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

static void decode_row(unsigned dtype, const uint8_t *row, uint32_t cols, float *out) {
    uint32_t elems = tw_dtype_block_elems(dtype), bytes = tw_dtype_block_bytes(dtype);
    if (elems == 1) {
        decode_floats(dtype, row, bytes, cols, out);
        return;
    }
    for (uint32_t c = 0; c < cols; c += elems, row += bytes) {
        struct tw_block b;
        tw_block_of_file(dtype, row, &b);
        tw_block_floats(&b, elems, out + c);
    }
}

/* Decodes a lane of a panel with blocks. */
TW_INLINE void decode_blocks(const unsigned dtype, const uint8_t *panel, uint32_t lane, uint32_t k,
                             uint32_t cols, float *out) {
    uint32_t elems = tw_dtype_block_elems(dtype);
    for (uint32_t c = 0; c < cols; c += elems) {
        uint32_t from = c / TW_SUM_SEGMENT * TW_SUM_SEGMENT,
                 segment = k - from < TW_SUM_SEGMENT ? k - from : TW_SUM_SEGMENT;
        struct tw_block b;
        tw_block_of_panel(dtype, panel + tw_panel_offset(dtype, from), segment, (c - from) / elems,
                          lane, &b);
        tw_block_floats(&b, elems, out + c);
    }
}

/* Flattened: most of a block's parts are known where its type is. */
TW_FLATTEN
static void decode_lane(unsigned dtype, const uint8_t *panel, uint32_t lane, uint32_t k,
                        uint32_t cols, float *out) {
    uint32_t bytes = tw_dtype_block_bytes(dtype);
    if (tw_dtype_block_elems(dtype) == 1) {
        decode_floats(dtype, panel + (size_t)lane * bytes, (size_t)TW_PANEL_ROWS * bytes, cols,
                      out);
    } else if (dtype == TW_DT_Q8_0) {
        decode_blocks(TW_DT_Q8_0, panel, lane, k, cols, out);
    } else if (dtype == TW_DT_Q4_0) {
        decode_blocks(TW_DT_Q4_0, panel, lane, k, cols, out);
    } else {
        decode_blocks(dtype, panel, lane, k, cols, out);
    }
}

void tw_move_gather(const struct tw_kargs *a) {
    const struct tw_args_gather v = tw_args_gather(a);
    const struct tw_tensor *t = a->tensor;
    const uint8_t *table = (const uint8_t *)v.table;
    const int32_t *ids = (const int32_t *)v.ids;
    for (uint32_t r = 0; r < v.rows; r++) {
        uint32_t id = (uint32_t)ids[r];
        float *out = tw_row(v.y, v.y_stride, r);
        if (t->packing == TW_PACK_PANEL16) {
            const uint8_t *panel = table + tw_panel_bytes(t->dtype, t->cols) * (id / TW_PANEL_ROWS);
            decode_lane(t->dtype, panel, id % TW_PANEL_ROWS, t->cols, v.cols, out);
        } else {
            decode_row(t->dtype, table + tw_row_bytes(t->dtype, t->cols) * id, v.cols, out);
        }
    }
}
