/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of any shape, made in memory without a file: for tests of the stages after the importers.
 * The same shape and seed give the same bytes.
 */
#ifndef TW_TESTS_SUPPORT_RANDOM_MODEL_H
#define TW_TESTS_SUPPORT_RANDOM_MODEL_H

#include "compiler/import/decoder_parts.h"

struct random_shape {
    uint32_t dim, hidden, n_layers, n_heads, n_kv_heads, head_dim, n_vocab, n_ctx;
    uint32_t rope_dims; /* 0: head_dim */
    /* of the matrices; F32 is used instead of a quantised type if a row is not a whole number of
     * blocks */
    enum tw_dtype dtype;
    bool tied, halves; /* halves: rotary pairs (i, i + half) */
    bool mixed;        /* the layers' matrices are not all of one type */
    /* no data: tensors of any size cost nothing, and a saved file has holes that read as zeros */
    bool hollow;
    uint64_t seed; /* of the data */
    /* The switches of the description; zeros are a llama. Of windows: every layer but those whose
     * number is 1 less than a multiple of `period` has one. */
    struct tw_hparams switches;
    uint32_t window, period;
    bool biases, no_rope;       /* no_rope: layers without a window do not rotate */
    bool factors, long_factors; /* divisors of the rotary frequencies; for long contexts others */
    /* of layers with an odd number; odd_heads 0, odd_hidden 0 or above hidden: as of others */
    uint32_t odd_heads, odd_kv_heads, odd_hidden;
};

struct random_model {
    struct tw_model model;
    struct tw_model_tensor *tensors;
    char (*names)[TW_PART_NAME_BYTES];
    struct tw_layer *layers;
    float *factors; /* two sets */
    uint8_t *data;
};

/* Return the next number of a random sequence, and one in 0..n-1. */
uint64_t random_next(uint64_t *state);
uint32_t random_below(uint64_t *state, uint32_t n);

/* Returns a small shape with odd sizes more often than in practice; every seed gives a valid
 * one. */
struct random_shape random_shape_of(uint64_t seed);
/* The same with the description's switches drawn at random. Such models cannot be saved. */
struct random_shape random_decoder_of(uint64_t seed);
/* Returns a shape as text for messages, in static storage. */
const char *random_shape_text(const struct random_shape *shape);

/* Returns false if out of memory. random_model_finish frees it. */
bool random_model_init(struct random_model *m, const struct random_shape *shape);
void random_model_finish(struct random_model *m);

/* Writes the model as a GGUF file (without a tokenizer). Returns false, with errno set, if it
 * cannot be written. */
bool random_model_save(const struct random_model *m, const char *path);

#endif
