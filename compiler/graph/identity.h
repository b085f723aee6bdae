/* SPDX-License-Identifier: Apache-2.0
 *
 * What a decoder computes, as a hash: saved states and caches of prompts can be used wherever it is
 * equal.
 */
#ifndef TW_COMPILER_GRAPH_IDENTITY_H
#define TW_COMPILER_GRAPH_IDENTITY_H

#include "compiler/graph/graph.h"
#include "tilewright/bundle.h"

/* Hashes the operations with their attributes, the values, and every weight. Equal for all targets,
 * context lengths (unless they change a number that is computed: long factors of RoPE), types of
 * the caches and programs that are made of the graph, and for a model in another kind of file if
 * its weights are the same. Reads all weights. Errors: TRUNCATED and IO (the model's file has
 * changed). */
int tw_graph_identity(const struct tw_graph *graph, uint8_t identity[TW_HASH_BYTES], tw_error *err);

#endif
