/* SPDX-License-Identifier: Apache-2.0
 *
 * Architectures. Each is a file that sets the switches of a decoder's description (struct
 * tw_hparams) from the model's keys; decoder.c makes the graph of a description. To add one, write
 * the file and name it in TW_ARCHS.
 */
#ifndef TW_COMPILER_ARCH_ARCH_H
#define TW_COMPILER_ARCH_ARCH_H

#include "compiler/arch/source.h"
#include "compiler/graph/graph.h"

/* X(function, name in general.architecture) */
#define TW_ARCHS(X)                   \
    X(llama, "llama")                 \
    X(qwen2, "qwen2")                 \
    X(qwen3, "qwen3")                 \
    X(gemma2, "gemma2")               \
    X(gemma3, "gemma3")               \
    X(phi3, "phi3")                   \
    X(granite, "granite")             \
    X(smollm3, "smollm3")             \
    X(olmo2, "olmo2")                 \
    X(exaone4, "exaone4")             \
    X(mistral3, "mistral3")           \
    X(stablelm, "stablelm")           \
    X(starcoder2, "starcoder2")       \
    X(ernie4_5, "ernie4_5")           \
    X(hunyuan_dense, "hunyuan-dense") \
    X(command_r, "command-r")         \
    X(cohere2, "cohere2")

/* Each sets the switches of s->h and s->layers. Errors: as tw_arch_uint, UNSUPPORTED. */
#define TW_X(function, name) int tw_arch_##function(struct tw_arch_source *s);
TW_ARCHS(TW_X)
#undef TW_X

/* Returns the listed architecture's own copy of a name of `length` bytes, or NULL. */
const char *tw_arch_find(const char *name, uint64_t length);

/* Fails with UNSUPPORTED, says what kind of model the named one is if that is known, and which are
 * supported. */
int tw_arch_refuse(const char *path, const char *name, uint64_t length, tw_error *err);

/* Describes a model: calls the file of s->arch, which tw_arch_find has found, and then refuses keys
 * that it has not read. Errors: as tw_arch_uint, UNSUPPORTED. */
int tw_arch_describe(struct tw_arch_source *s);

/* Builds and checks the graph of a model; `g` must be zeroed except for `mem`, n_ctx and what the
 * caller chooses. The graph points into `model`, which must outlive it. Errors: UNSUPPORTED
 * (architecture, head dimension), INTERNAL. */
int tw_arch_build(const struct tw_model *model, struct tw_graph *g, tw_error *err);

/* decoder.c: the same without the check. */
int tw_decoder_build(const struct tw_model *model, struct tw_graph *g, tw_error *err);

#endif
