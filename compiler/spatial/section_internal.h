/* SPDX-License-Identifier: Apache-2.0
 *
 * What section.c, section_ops.c and section_matmul.c share: the builder of one section.
 */
#ifndef TW_COMPILER_SPATIAL_SECTION_INTERNAL_H
#define TW_COMPILER_SPATIAL_SECTION_INTERNAL_H

#include "compiler/spatial/section.h"

/* The state of building one section. Arrays are indexed as shown. */
struct tw_section_builder {
    const struct tw_low *low;
    const struct tw_graph *graph;
    const struct tw_section_config *config;
    struct tw_builder *u;
    uint32_t *buffer_of;        /* storage -> first buffer */
    TW_VEC(uint32_t) pinned;    /* tensor -> 1 + the first buffer that pins it; 0: none does */
    uint32_t *exchange_sem;     /* step -> semaphore */
    uint32_t *cache_sem;        /* step of an attention -> semaphore that the cache writes raise */
    TW_VEC(uint32_t) attention; /* attention calls of the region */
    uint32_t *cache_writes;     /* [step * sites + site] -> appends that the attention waits for */
    uint32_t next_loop, step_loop; /* of a batch: that of row r is step_loop + r */
};

/* Return ids in the section; tensors are created at the first request. The buffer is the one of a
 * storage on a site. */
uint32_t tw_section_tensor(struct tw_section_builder *b, tw_gvalue_id value);
uint32_t tw_section_logits(struct tw_section_builder *b);
/* The Output of so many lists of the best logits, one after the other. */
uint32_t tw_section_choice(struct tw_section_builder *b, uint32_t lists);
uint32_t tw_section_buffer(const struct tw_section_builder *b, uint32_t storage, uint32_t site);
/* Returns the buffer that pins a resident Param on a site; creates the whole set at the first
 * request. */
uint32_t tw_section_resident(struct tw_section_builder *b, tw_gvalue_id value, uint32_t site);
/* Appends a stage to the section's records. A stage's origin is "SECTION.origin". */
uint32_t tw_section_stage(struct tw_section_builder *b, enum tw_stage_kind kind, uint32_t site,
                          enum tw_engine engine, const char *origin, uint32_t first_col,
                          uint32_t n_cols, uint32_t k);

/* Returns true if the attention call reads heads of the cache that the append writes. */
int tw_section_reads_heads(const struct tw_section_builder *b, const struct tw_call *attention,
                           const struct tw_call *append);

/* Emits the code of one entry of a site's work list. Errors: INTERNAL. */
int tw_section_emit_work(struct tw_section_builder *b, uint32_t site, const struct tw_work *work,
                         tw_error *err);

#endif
