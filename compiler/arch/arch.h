/* SPDX-License-Identifier: Apache-2.0
 *
 * Architectures: from hyperparameters to a ComputeGraph. To add one, write a build function and
 * name it in the table of arch.c.
 */
#ifndef TW_COMPILER_ARCH_ARCH_H
#define TW_COMPILER_ARCH_ARCH_H

#include "compiler/graph/graph.h"

/* Builds and checks the graph of a model, chosen by its architecture's name; `g` must be zeroed
 * except for `mem`. The graph points into `model`, which must outlive it. Errors: UNSUPPORTED
 * (architecture), INTERNAL. */
int tw_arch_build(const struct tw_model *model, struct tw_graph *g, tw_error *err);

/* Builds the graph of a Llama decoder. Errors: UNSUPPORTED (head dimension). */
int tw_arch_llama(const struct tw_model *model, struct tw_graph *g, tw_error *err);

#endif
