/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the compiler's entry share: one compilation and the steps that more than one
 * entry point takes (pipeline.c compiles, dump.c prints a stage, cache_key.c names a compilation,
 * memory.c bounds what one takes).
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

#define DEFAULT_CTX 2048u
#define MAX_CTX (1u << 20)
#define MAX_PREFILL_ROWS 128u
#define MAX_FINALISTS 4u

/* One planned program with every stage it went through. */
struct planned {
    struct tw_mid mid;
    struct tw_low *lows;          /* by region */
    struct tw_builder **sections; /* by region */
    struct tw_builder *program;
    struct tw_certificate certificate;
};

struct compilation {
    struct tw_compile_options options;
    struct tw_cmem mem;
    struct tw_model model;
    struct tw_target target;
    struct tw_graph graph;
    struct tw_strpool strings;
    uint32_t n_ctx, prefill_rows;
    struct planned decode, prefill;
};

/* Begins a compilation: copies the caller's options, as many of them as its `size` says, fills in
 * defaults, and checks them. `function` is the entry's name, for messages. Errors: USAGE; finish is
 * legal even then. */
int tw_pipeline_begin(struct compilation *c, const char *function,
                      const struct tw_compile_options *o, tw_error *err);

/* Import and arch: everything before a target matters. Errors: those of the importers, USAGE,
 * UNSUPPORTED, RANGE, NOMEM. */
int tw_pipeline_frontend(struct compilation *c, const char *path, tw_error *err);
/* Plans both programs of a compilation that the frontend has filled. Errors: PLACEMENT, VERIFY. */
int tw_pipeline_plan(struct compilation *c, tw_error *err);
/* Releases the model and all memory; also after a failure. */
void tw_pipeline_finish(struct compilation *c);

/* Refuses a model whose planning could exceed the arena. Errors: NOMEM. */
int tw_pipeline_check_memory(const struct compilation *c, const char *path, tw_error *err);

#endif
