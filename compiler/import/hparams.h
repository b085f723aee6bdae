/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits and rules of hyperparameters, for all file formats. The limits are far above any
 * model that fits one machine, and low enough that a product of two sizes and a layer count never
 * overflows 64 bits.
 */
#ifndef TW_COMPILER_IMPORT_HPARAMS_H
#define TW_COMPILER_IMPORT_HPARAMS_H

#include "compiler/import/model.h"
#include "loader/bundle/vocab_open.h"

#define TW_MAX_DIM (1u << 20)
#define TW_MAX_HIDDEN (1u << 22)
#define TW_MAX_LAYERS 4096u
#define TW_MAX_HEADS (1u << 16)
#define TW_MAX_HEAD_DIM (1u << 16)
#define TW_MAX_ATTN_DIM (1u << 22) /* heads * head_dim */
#define TW_MAX_CTX (1u << 24)

/* The names of the numbers in the file that they came from ("key llama.embedding_length"). */
struct tw_hparam_names {
    const char *dim, *heads, *kv_heads, *head_dim, *rope_dims, *eps, *theta;
};

/* Derives head_dim (if 0) and rope_dims (if 0) from the other sizes, which are within the limits
 * above, and checks that the sizes are consistent. Errors: RANGE. */
int tw_hparams_check_sizes(const char *path, const struct tw_hparam_names *names,
                           struct tw_hparams *h, tw_error *err);

/* Checks the epsilon and the rotary base. Errors: RANGE. */
int tw_hparams_check_numbers(const char *path, const struct tw_hparam_names *names,
                             const struct tw_hparams *h, tw_error *err);

#endif
