/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary frequencies (rope.h), in double precision.
 */
#include "compiler/arch/rope.h"

#include <math.h>
#include <stdbool.h>

#define PI 3.14159265358979323846
/* Contexts are compared with the original one rounded up to this many positions, as llama.cpp
 * does. */
#define CTX_STEP 256u

/* The dimension that makes `turns` turns in the original context. */
static double yarn_dim(const struct tw_hparams *h, double turns) {
    return h->rope_dims * log(h->rope_original_ctx / (turns * 2.0 * PI)) /
           (2.0 * log((double)h->rope_theta));
}

/* YaRN (Peng and others, 2023, section 3.2): dimensions that turn often are kept, those that turn
 * seldom are divided by the factor, with a ramp between. */
static double yarn(const struct tw_hparams *h, uint32_t i, double freq) {
    double low = fmax(0.0, floor(yarn_dim(h, (double)h->rope_beta_fast))),
           high = fmin(h->rope_dims - 1.0, ceil(yarn_dim(h, (double)h->rope_beta_slow)));
    double ramp = fmin(1.0, fmax(0.0, (i - low) / fmax(0.001, high - low)));
    return freq * (1.0 - ramp) + freq / (double)h->rope_factor * ramp;
}

static double scaled(const struct tw_hparams *h, uint32_t i, double freq) {
    switch (h->rope_scaling) {
    case TW_ROPE_SCALING_LINEAR:
        return freq / (double)h->rope_factor;
    case TW_ROPE_SCALING_YARN:
        return yarn(h, i, freq);
    case TW_ROPE_SCALING_NONE:
        break;
    }
    return freq;
}

void tw_rope_frequencies(const struct tw_hparams *h, enum tw_layer_rope kind, uint32_t n_ctx,
                         float *out) {
    bool window = kind == TW_LAYER_ROPE_WINDOW;
    double theta = (double)(window ? h->window_rope_theta : h->rope_theta);
    uint64_t made = ((uint64_t)n_ctx + CTX_STEP - 1) / CTX_STEP * CTX_STEP;
    const float *factors = h->rope_long_factors && made > h->rope_original_ctx
                               ? h->rope_long_factors
                               : h->rope_freq_factors;
    for (uint32_t i = 0; i < h->rope_dims / 2; i++) {
        double freq = pow(theta, -2.0 * i / h->rope_dims);
        if (!window) {
            freq = scaled(h, i, factors ? freq / (double)factors[i] : freq);
        }
        out[i] = (float)freq;
    }
}

float tw_rope_magnitude(const struct tw_hparams *h, enum tw_layer_rope kind) {
    return kind == TW_LAYER_ROPE_MODEL && h->rope_magnitude > 0.0f ? h->rope_magnitude : 1.0f;
}
