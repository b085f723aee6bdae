/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest possible decoder: the logits are the row of a table that the last token selects. One
 * site, three engines, two FIFOs; built op by op, so that the device side can be tested without a
 * compiler against known results.
 */
#ifndef TW_TESTS_SUPPORT_BIGRAM_H
#define TW_TESTS_SUPPORT_BIGRAM_H

#include "tilewright/machine.h"

#define BIGRAM_VOCAB 8u
#define BIGRAM_COLS 16u
#define BIGRAM_ROWS 4u
/* Binding rows, in this order. */
enum bigram_bind {
    BIGRAM_IDS = 0,
    BIGRAM_VALID = 1,
    BIGRAM_TABLE = 2,
    BIGRAM_LOGITS = 3,
    BIGRAM_BINDS = 4
};

struct bigram {
    struct tw_program program;
    struct tw_tensor tensors[4];
    struct tw_buffer buffers[2];
    struct tw_trip trip;
    struct tw_stage stages[TW_ENGINE_COUNT];
    struct tw_section span;
    struct tw_stream streams[TW_ENGINE_COUNT];
    uint32_t words[TW_ENGINE_COUNT][256];
    float table[BIGRAM_VOCAB][BIGRAM_COLS];
};

void bigram_init(struct bigram *b);

/* The program's blob with streams; malloced, 8-aligned. */
uint8_t *bigram_blob(const struct bigram *b, uint32_t *bytes);

#endif
