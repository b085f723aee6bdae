/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiler's stages one by one, as pipeline.c runs them, for tests that check what is between
 * two stages.
 */
#ifndef TW_TESTS_SUPPORT_PIPELINE_H
#define TW_TESTS_SUPPORT_PIPELINE_H

#include "compiler/arch/arch.h"
#include "compiler/spatial/compose.h"
#include "compiler/spatial/section.h"
#include "tests/support/random_model.h"

struct pipeline {
    struct tw_cmem mem;
    struct tw_strpool strings;
    struct tw_graph graph;
    struct tw_target target;
    struct tw_section_config config; /* batch: for programs decode.N */
    bool all_logits;                 /* for programs score.N */
};

/* Every stage of one program; arrays by region. */
struct pipeline_program {
    uint32_t rows;
    struct tw_graph graph; /* of the pipeline, with the logits of all rows in a batch */
    struct tw_mid mid;
    struct tw_low *lows;
    struct tw_builder **sections;
    struct tw_builder program;
};

/* Opens the target and builds the model's graph. */
int pipeline_init(struct pipeline *p, const struct tw_model *model, const char *target,
                  uint32_t host_sites, tw_error *err);
void pipeline_finish(struct pipeline *p);

/* Returns the SRAM that the values that cross regions leave for the sections' own memory; 0 if they
 * alone are too large. */
uint64_t pipeline_budget(const struct pipeline *p, uint32_t rows);

/* Expands and places one region. */
int pipeline_low(const struct tw_mid *mid, uint32_t region, uint64_t budget, struct tw_low *out,
                 tw_error *err);

/* Runs mid, low, sections and composition, without verification. Errors: those of the stages. */
int pipeline_program(struct pipeline *p, uint32_t rows, uint32_t rank, struct pipeline_program *out,
                     tw_error *err);

#endif
