/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of layers (layers.h): each layer gets a signature, and equal ones are looked for at equal
 * distances.
 */
#include "compiler/arch/layers.h"

#include "compiler/import/decoder_parts.h"

#include <string.h>

#define MAX_PERIOD 16u

struct signature {
    struct tw_layer layer;
    uint8_t dtype[TW_PART_COUNT], bias[TW_PART_COUNT];
};

static const struct tw_model_tensor *find(const struct tw_model *m, enum tw_part part,
                                          uint32_t layer, const char *kind) {
    char name[TW_PART_NAME_BYTES];
    return tw_model_find(m, tw_part_name(part, layer, kind, name));
}

/* Vectors are stored as F32, whatever their type. */
static void sign(const struct tw_model *m, uint32_t layer, struct signature *out) {
    memset(out, 0, sizeof *out);
    out->layer = tw_layer_of(&m->h, layer);
    for (int i = TW_PART_ATTN_NORM; i < TW_PART_COUNT; i++) {
        const struct tw_model_tensor *t = find(m, (enum tw_part)i, layer, "weight");
        out->dtype[i] = t && t->rows > 1 ? (uint8_t)tw_model_type(t) : UINT8_MAX;
        out->bias[i] = find(m, (enum tw_part)i, layer, "bias") != NULL;
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
    for (uint32_t i = 0; i < n; i++) {
        sign(model, i, &s[i]);
    }
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
