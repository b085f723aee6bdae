/* SPDX-License-Identifier: Apache-2.0
 *
 * Architectures: hyperparameters to ComputeGraph. To add one: write a build function and name it in
 * arch.c's table.
 */
#ifndef TW_COMPILER_ARCH_ARCH_H
#define TW_COMPILER_ARCH_ARCH_H

#include "compiler/graph/graph.h"

/* Builds and checks the graph of a model; `g` is zeroed but for mem. Errors: UNSUPPORTED
 * (architecture), MISSING, SHAPE. */
int tw_arch_build(const struct tw_model *model, struct tw_graph *g, tw_error *err);

int tw_arch_llama(const struct tw_model *model, struct tw_graph *g, tw_error *err);

#endif
