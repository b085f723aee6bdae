/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of layers (layers.h): each layer gets a signature, and equal ones are looked for at equal
 * distances.
 */
#include "compiler/arch/layers.h"

#include "compiler/import/decoder_parts.h"
#include "loader/base/assert.h"

#include <string.h>

#define MAX_PERIOD 16u

struct signature {
    struct tw_layer layer;
    uint8_t dtype[TW_PART_COUNT], bias[TW_PART_COUNT];
};

/* Vectors are stored as F32, whatever their type. */
static void sign(const struct tw_model *m, struct signature *out) {
    for (uint32_t i = 0; i < m->h.n_layers; i++) {
        memset(&out[i], 0, sizeof out[i]);
        memset(out[i].dtype, UINT8_MAX, sizeof out[i].dtype);
        out[i].layer = tw_layer_of(&m->h, i);
    }
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const struct tw_model_tensor *t = &m->tensors[i];
        if (!tw_part_is_per_layer((enum tw_part)t->part)) {
            continue;
        }
        TW_ASSERT(t->part < TW_PART_COUNT && t->layer < m->h.n_layers);
        if (t->bias) {
            out[t->layer].bias[t->part] = 1;
        } else if (t->rows > 1) {
            out[t->layer].dtype[t->part] = (uint8_t)tw_model_type(t);
        }
    }
}

/* Returns how often the body repeats. */
static uint32_t repeats(const struct signature *s, uint32_t first, uint32_t period, uint32_t n) {
    uint32_t end = first + period;
    while (end < n && memcmp(&s[end], &s[end - period], sizeof *s) == 0) {
        end++;
    }
    return (end - first) / period;
}

void tw_layer_groups(const struct tw_model *model, struct tw_cmem *mem,
                     struct tw_layer_groups *out) {
    uint32_t n = model->h.n_layers;
    struct signature *s = tw_cmem_alloc(mem, n * sizeof *s);
    sign(model, s);
    for (uint32_t first = 0; first < n;) {
        struct tw_layer_group best = {first, 1, repeats(s, first, 1, n)};
        for (uint32_t period = 2; period <= MAX_PERIOD && first + 2 * period <= n; period++) {
            uint32_t repeat = repeats(s, first, period, n);
            if (period * (repeat - 1) > best.period * (best.repeat - 1)) {
                best.period = period;
                best.repeat = repeat;
            }
        }
        *TW_VEC_PUSH(mem, out->v) = best;
        first += best.period * best.repeat;
    }
}
