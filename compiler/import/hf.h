/* SPDX-License-Identifier: Apache-2.0
 *
 * Models in folders as Hugging Face's transformers writes them: config.json, model.safetensors or a
 * sharded one with its index, tokenizer.json. Config and tensors are rewritten as the keys and
 * tensors that a GGUF file of the same model has (as llama.cpp's converter makes it), so that all
 * that is checked, supported and computed is the same for both.
 *
 *     hf.c ─┬─ hf_config.c                 config.json -> keys   ─┬─> tw_gguf ─> tw_model
 *           └─ safetensors.c, hf_tensors.c  files -> tensors      ─┘
 */
#ifndef TW_COMPILER_IMPORT_HF_H
#define TW_COMPILER_IMPORT_HF_H

#include "compiler/import/gguf_build.h"
#include "compiler/import/model.h"
#include "compiler/import/model_files.h"
#include "compiler/import/safetensors.h"

/* An architecture: what differs between its form in transformers and in GGUF (hf_arch.c). */
struct tw_hf_arch {
    const char *model_type; /* of config.json, or of its text_config */
    const char *gguf;       /* general.architecture */
    const char *activation; /* hidden_act that the architecture computes */
    const char *epsilon;    /* member with the epsilon of the norms */
    const char
        *context;    /* member that, if it is there, replaces max_position_embeddings; or NULL */
    bool layer_norm; /* else RMSNorm */
    bool
        interleaved; /* GGUF has the rotary pairs of q and k side by side, transformers in halves */
    bool norm_offset; /* transformers stores the weights of norms less 1 */
    bool tied;        /* tie_word_embeddings, where config.json does not say it */
    /* what the architecture does with sliding_window: reads it as a key, or only if
     * use_sliding_window says so */
    enum { TW_HF_WINDOW_NONE, TW_HF_WINDOW_KEY, TW_HF_WINDOW_SWITCH } window;
    float rope_theta, partial; /* 0: 10000; all of a head */
    uint32_t head_dim;         /* 0: hidden_size / num_attention_heads */
    /* of the layers with a window: all but every nth; 0: no layer_types */
    uint32_t window_period;
    /* names within a layer that are not llama's: {transformers', GGUF's}, up to {NULL, NULL}; or
     * NULL */
    const char *const (*names)[2];
};

/* Returns the architecture of that model_type, or NULL. */
const struct tw_hf_arch *tw_hf_find_arch(const char *model_type);
/* Returns GGUF's name for a part of a layer, such as "self_attn.q_proj": "attn_q"; or NULL. */
const char *tw_hf_layer_name(const struct tw_hf_arch *arch, const char *name, size_t length);
/* Lists the model_types, separated by ", ". */
const char *tw_hf_arch_list(char *buffer, size_t size);

/* A model that is being imported. */
struct tw_hf {
    const struct tw_hf_arch *arch;
    struct tw_gguf_build build; /* its path is that of config.json */
    bool tied;
    bool wrapped; /* the model is the part for text of one that takes images */
    uint32_t n_layers, n_vocab, n_heads, n_kv_heads, head_dim, rope_dims;
    /* rope_dims / 2 divisors of llama3's scaling, or of long and short contexts; or NULL */
    float *rope_factors, *long_factors, *short_factors;
    bool attention_bias, mlp_bias, qk_norm;
    /* what was found: of layers, one entry for each; rows of the matrices, 0: not yet */
    bool *layers;
    uint64_t embedding, output;
};

/* Reads config.json: sets all of *hf but the tensors. Errors: FORMAT, RANGE, MISSING, UNSUPPORTED
 * (names what is not supported), NOMEM. */
int tw_hf_read_config(const char *path, const void *bytes, uint64_t size,
                      struct tw_import_memory *memory, struct tw_hf *hf, tw_error *err);

/* Adds the tensors of a file under their GGUF names. Errors: UNSUPPORTED (a tensor that is not part
 * of the architecture, a type), SHAPE, IO, TRUNCATED, NOMEM. */
int tw_hf_add_tensors(struct tw_hf *hf, const struct tw_safetensors *file, tw_error *err);
/* Completes the table after the last file. Errors: MISSING, SHAPE, FORMAT, NOMEM. */
int tw_hf_finish_tensors(struct tw_hf *hf, tw_error *err);

/* Imports the model in the folder at `path`. Errors: those above, and those of tw_model_open. */
int tw_import_hf(const char *path, struct tw_model_files *files, struct tw_model *out,
                 tw_error *err);

#endif
