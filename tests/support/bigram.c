/* SPDX-License-Identifier: Apache-2.0
 *
 * The table look-up as a program of the tile machine (bigram.h).
 */
#include "tests/support/bigram.h"

#include "tilewright/op_schema.h"
#include "tilewright/progblob.h"

#include <stdlib.h>

static const char strings[] = "\0ids\0rows\0table\0logits\0row\0out\0step\0lookup";
enum {
    S_IDS = 1,
    S_ROWS = 5,
    S_TABLE = 10,
    S_LOGITS = 16,
    S_ROW = 23,
    S_OUT = 27,
    S_STEP = 31,
    S_LOOKUP = 36
};
enum { ROW_BYTES = BIGRAM_COLS * 4, TENSOR_IDS = 0, TENSOR_TABLE = 2, TENSOR_LOGITS = 3 };

static void put(struct bigram *b, uint32_t engine, struct tw_op op) {
    uint32_t at = b->streams[engine].n_words;
    op.stage = engine;
    b->streams[engine].n_words += tw_op_encode(&op, b->words[engine] + at);
}

static struct tw_buffer_at page(uint32_t buffer) {
    return tw_in_buffer(buffer, tw_affine_const(0));
}

static struct tw_tensor_at whole(uint32_t tensor) {
    return tw_in_tensor(tensor, tw_affine_const(0), tw_affine_const(0));
}

static void make_streams(struct bigram *b) {
    const uint32_t row = 0, out = 1; /* buffers */
    const struct tw_count rows = tw_count_of(0, BIGRAM_ROWS);
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        b->streams[e] = (struct tw_stream){0, e, b->words[e], 0};
    }
    put(b, TW_ENGINE_LOAD, tw_make_reserve(0, row, 1));
    put(b, TW_ENGINE_LOAD,
        tw_make_gather(0, whole(TENSOR_TABLE), whole(TENSOR_IDS), page(row), ROW_BYTES, BIGRAM_COLS,
                       rows));
    put(b, TW_ENGINE_LOAD, tw_make_push(0, row, 1));
    put(b, TW_ENGINE_MATH, tw_make_wait(0, row, 1));
    put(b, TW_ENGINE_MATH, tw_make_reserve(0, out, 1));
    put(b, TW_ENGINE_MATH, tw_make_last_row(0, page(row), ROW_BYTES, page(out), ROW_BYTES, rows));
    put(b, TW_ENGINE_MATH, tw_make_push(0, out, 1));
    put(b, TW_ENGINE_MATH, tw_make_pop(0, row, 1));
    put(b, TW_ENGINE_STORE, tw_make_wait(0, out, 1));
    put(b, TW_ENGINE_STORE,
        tw_make_write(0, page(out), ROW_BYTES, whole(TENSOR_LOGITS), ROW_BYTES, ROW_BYTES,
                      tw_count_const(1)));
    put(b, TW_ENGINE_STORE, tw_make_pop(0, out, 1));
}

static void make_tables(struct bigram *b) {
    const struct tw_tensor tensors[4] = {
        {S_IDS, 1, BIGRAM_ROWS, TW_DT_I32, TW_PACK_ROW, TW_ROLE_INPUT, TW_INIT_NONE, BIGRAM_IDS, 1,
         0, 0, BIGRAM_ROWS * 4},
        {S_ROWS, 1, 1, TW_DT_I32, TW_PACK_ROW, TW_ROLE_INPUT, TW_INIT_NONE, BIGRAM_VALID, 1, 0, 0,
         4},
        {S_TABLE, BIGRAM_VOCAB, BIGRAM_COLS, TW_DT_F32, TW_PACK_ROW, TW_ROLE_PARAM, TW_INIT_NONE,
         BIGRAM_TABLE, 1, 0, 0, BIGRAM_VOCAB * ROW_BYTES},
        {S_LOGITS, 1, BIGRAM_COLS, TW_DT_F32, TW_PACK_ROW, TW_ROLE_OUTPUT, TW_INIT_NONE,
         BIGRAM_LOGITS, 1, 0, 0, ROW_BYTES},
    };
    memcpy(b->tensors, tensors, sizeof tensors);
    for (uint32_t i = 0; i < 2; i++) {
        b->buffers[i] = (struct tw_buffer){.name = i ? S_OUT : S_ROW,
                                           .kind = TW_BUF_FIFO,
                                           .dtype = TW_DT_F32,
                                           .producer = (uint8_t)i,
                                           .consumer = (uint8_t)(i + 1),
                                           .pages = 1,
                                           .page_bytes = i ? ROW_BYTES : BIGRAM_ROWS * ROW_BYTES,
                                           .offset = i ? BIGRAM_ROWS * ROW_BYTES : 0,
                                           .sibling_base = TW_NONE,
                                           .tensor = TW_NONE};
    }
    b->trip = (struct tw_trip){.name = S_ROWS, .input = 1, .div = 1, .max = BIGRAM_ROWS};
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        b->stages[e] = (struct tw_stage){
            .kind = TW_STAGE_COMPUTE, .engine = e, .origin = S_LOOKUP, .n_cols = BIGRAM_COLS};
    }
    b->span = (struct tw_section){.name = S_STEP,
                                  .repeat = 1,
                                  .n_buffers = 2,
                                  .n_stages = TW_ENGINE_COUNT,
                                  .local = TW_NONE,
                                  .gather = TW_NONE,
                                  .release = TW_NONE};
}

void bigram_init(struct bigram *b) {
    memset(b, 0, sizeof *b);
    make_tables(b);
    make_streams(b);
    b->program = (struct tw_program){.name = "bigram",
                                     .strings = strings,
                                     .strings_bytes = sizeof strings,
                                     .rows = BIGRAM_ROWS,
                                     .n_sites = 1,
                                     .mesh_width = 1,
                                     .mesh_height = 1,
                                     .n_chips = 1,
                                     .sram_bytes = {4096},
                                     .n_tensors = 4,
                                     .n_buffers = 2,
                                     .n_trips = 1,
                                     .n_stages = TW_ENGINE_COUNT,
                                     .n_sections = 1,
                                     .tensors = b->tensors,
                                     .buffers = b->buffers,
                                     .trips = &b->trip,
                                     .stages = b->stages,
                                     .sections = &b->span,
                                     .streams = b->streams};
    for (uint32_t r = 0; r < BIGRAM_VOCAB; r++) {
        for (uint32_t c = 0; c < BIGRAM_COLS; c++) {
            b->table[r][c] = (float)(r * 100 + c);
        }
    }
}

uint8_t *bigram_blob(const struct bigram *b, uint32_t *bytes) {
    *bytes = tw_progblob_bytes(&b->program, true);
    uint8_t *blob = *bytes ? malloc(*bytes) : NULL;
    if (blob) {
        tw_progblob_write(&b->program, true, blob);
    }
    return blob;
}
