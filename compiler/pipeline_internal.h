/* SPDX-License-Identifier: Apache-2.0
 *
 * What the compiler's entry points share: the state of one compilation and the steps that several
 * of them take (pipeline.c compiles, dump.c prints a stage, cache_key.c computes the cache key,
 * memory.c bounds the memory needed).
 */
#ifndef TW_COMPILER_PIPELINE_INTERNAL_H
#define TW_COMPILER_PIPELINE_INTERNAL_H

#include "compiler/graph/graph.h"
#include "compiler/import/model.h"
#include "compiler/low/low.h"
#include "compiler/mid/mid.h"
#include "compiler/spatial/certify.h"
#include "compiler/spatial/program_builder.h"
#include "loader/target/target_open.h"
#include "tilewright/compile.h"

#include <stdbool.h>

#define MAX_CTX (1u << 20)
#define MAX_PREFILL_ROWS 128u
#define MAX_SCORE_ROWS 32u /* each has room for its logits in every session */
#define MAX_BATCH_ROWS 16u
#define MAX_BATCHES 4u /* of 2, 4, 8 and 16 rows */
#define MAX_PROGRAMS (3u + MAX_BATCHES)
#define MAX_FINALISTS 4u

/* One planned program with all its stages. */
struct planned {
    const struct tw_graph *graph;
    bool batch; /* each row is of a sequence of its own */
    struct tw_mid mid;
    struct tw_low *lows;          /* by region */
    struct tw_builder **sections; /* by region */
    struct tw_builder *program;
    struct tw_certificate certificate;
};

/* One compilation. The model, the graph and everything planned are allocated in `mem` or mapped,
 * and owned by the compilation until tw_pipeline_finish(). */
struct compilation {
    struct tw_compile_options options;
    struct tw_cmem mem;
    struct tw_model model;
    struct tw_target target;
    struct tw_graph graph, all_rows; /* all_rows: of the programs "score" and "decode.N" */
    struct tw_strpool strings;
    bool convert; /* weights, to `quant` */
    enum tw_dtype quant;
    uint32_t n_ctx, prefill_rows, score_rows, batch_rows;
    struct planned decode, prefill, score, batch[MAX_BATCHES];
    uint32_t n_batches;
};

/* Fills `list` with the programs of a compilation, in the order of the bundle; returns how many
 * there are. */
static inline uint32_t tw_pipeline_programs(struct compilation *c,
                                            struct planned *list[MAX_PROGRAMS]) {
    list[0] = &c->decode;
    list[1] = &c->prefill;
    list[2] = &c->score;
    uint32_t n = c->options.all_logits ? 3 : 2;
    for (uint32_t i = 0; i < c->n_batches; i++) {
        list[n++] = &c->batch[i];
    }
    return n;
}

/* Begins a compilation: initialises *c, copies the caller's options, as many bytes of them as their
 * `size` says (`o` may be NULL), fills in defaults and checks them. `function` is the name of the
 * entry point, for messages. tw_pipeline_finish() may be called even after a failure. Errors:
 * USAGE. */
int tw_pipeline_begin(struct compilation *c, const char *function,
                      const struct tw_compile_options *o, tw_error *err);

/* Opens target, arena and model and builds the graph: all passes before planning. Errors: those of
 * the importers and tw_target_open(), USAGE, UNSUPPORTED, RANGE, NOMEM. */
int tw_pipeline_frontend(struct compilation *c, const char *path, tw_error *err);
/* Plans the programs of a compilation that tw_pipeline_frontend() has filled. Errors: PLACEMENT,
 * VERIFY, INTERNAL. */
int tw_pipeline_plan(struct compilation *c, tw_error *err);
/* Releases the model and all memory. To be called after a failure, too. */
void tw_pipeline_finish(struct compilation *c);

/* Refuses a model whose planning could exceed the arena. Errors: NOMEM; the message names
 * `path`. */
int tw_pipeline_check_memory(struct compilation *c, const char *path, tw_error *err);

#endif
