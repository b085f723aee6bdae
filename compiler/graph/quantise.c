/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference roundings of three formats (quantise.h). A block whose largest magnitude is so
 * small that its inverse overflows has a scale that is 0 as a half: its quants are those of zeros.
 */
#include "compiler/graph/quantise.h"

#include "tilewright/quants.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 32 };

static void put_half(float f, uint8_t *out) {
    uint16_t half = tw_f32_to_f16(f);
    memcpy(out, &half, sizeof half);
}

/* Returns the first of the values of largest magnitude, with its sign. */
static float extreme(const float *x) {
    float best = 0;
    for (int i = 0; i < BLOCK; i++) {
        best = fabsf(x[i]) > fabsf(best) ? x[i] : best;
    }
    return best;
}

static float inverse(float d) {
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    return isfinite(inverse) ? inverse : 0.0f;
}

/* d = largest / 127; quants to nearest, halves away from zero. */
static void q8_0(const float *x, uint8_t *out) {
    float d = fabsf(extreme(x)) / 127.0f, id = inverse(d);
    put_half(d, out);
    for (int i = 0; i < BLOCK; i++) {
        out[2 + i] = (uint8_t)(int8_t)roundf(x[i] * id);
    }
}

/* d = the extreme value / -8, so that it is exactly representable; quants to nearest, of 0..15. */
static void q4_0(const float *x, uint8_t *out) {
    float d = extreme(x) / -8.0f, id = inverse(d);
    put_half(d, out);
    for (int i = 0; i < BLOCK / 2; i++) {
        int low = (int)(x[i] * id + 8.5f), high = (int)(x[i + BLOCK / 2] * id + 8.5f);
        out[2 + i] = (uint8_t)((low < 15 ? low : 15) | (high < 15 ? high : 15) << 4);
    }
}

void tw_quantise_row(enum tw_dtype to, const float *x, uint32_t n, uint8_t *out) {
    uint32_t step = tw_dtype_block_elems(to), bytes = tw_dtype_block_bytes(to);
    for (uint32_t i = 0; i < n; i += step, out += bytes) {
        if (to == TW_DT_Q8_0) {
            q8_0(x + i, out);
        } else if (to == TW_DT_Q4_0) {
            q4_0(x + i, out);
        } else {
            put_half(x[i], out);
        }
    }
}
