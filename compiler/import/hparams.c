/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules between hyperparameters (hparams.h), each with its own message.
 */
#include "compiler/import/hparams.h"

#include <math.h>

static int check_heads(const char *path, const struct tw_hparam_names *names,
                       const struct tw_hparams *h, tw_error *err) {
    for (uint32_t i = 0; i < (h->layers ? h->n_layers : 1); i++) {
        const struct tw_layer l = tw_layer_of(h, i);
        if (l.n_kv_heads > l.n_heads || l.n_heads % l.n_kv_heads != 0) {
            return tw_fail(err, TW_E_RANGE, "%s: %s is %u, expected a divisor of %s, which is %u",
                           path, names->kv_heads, l.n_kv_heads, names->heads, l.n_heads);
        }
    }
    if (h->head_dim == 0 && h->dim % h->n_heads != 0) {
        return tw_fail(err, TW_E_RANGE, "%s: %s is %u, expected a multiple of %s, which is %u",
                       path, names->dim, h->dim, names->heads, h->n_heads);
    }
    return 0;
}

int tw_hparams_check_sizes(const char *path, const struct tw_hparam_names *names,
                           struct tw_hparams *h, tw_error *err) {
    int rc = check_heads(path, names, h, err);
    if (rc) {
        return rc;
    }
    if (h->head_dim == 0) {
        h->head_dim = h->dim / h->n_heads;
    }
    if ((uint64_t)h->n_heads * h->head_dim > TW_MAX_ATTN_DIM) {
        return tw_fail(
            err, TW_E_RANGE,
            "%s: %u heads (%s) of %u elements (%s) are too many, expected a product of at most %u",
            path, h->n_heads, names->heads, h->head_dim, names->head_dim, TW_MAX_ATTN_DIM);
    }
    if (h->rope_dims == 0) {
        h->rope_dims = h->head_dim;
    }
    if (h->rope_dims % 2 != 0 || h->rope_dims > h->head_dim) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: %s is %u, expected an even number up to the head size, %u", path,
                       names->rope_dims, h->rope_dims, h->head_dim);
    }
    return 0;
}

int tw_hparams_check_numbers(const char *path, const struct tw_hparam_names *names,
                             const struct tw_hparams *h, tw_error *err) {
    if (!isfinite(h->norm_eps) || h->norm_eps < 0.0f) {
        return tw_fail(err, TW_E_RANGE, "%s: %s is %g, expected a finite number of at least 0",
                       path, names->eps, (double)h->norm_eps);
    }
    if (!isfinite(h->rope_theta) || h->rope_theta <= 0.0f) {
        return tw_fail(err, TW_E_RANGE, "%s: %s is %g, expected a finite number above 0", path,
                       names->theta, (double)h->rope_theta);
    }
    return 0;
}
