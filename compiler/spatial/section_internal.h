/* SPDX-License-Identifier: Apache-2.0
 *
 * What section.c and section_ops.c share: the builder of one section.
 */
#ifndef TW_COMPILER_SPATIAL_SECTION_INTERNAL_H
#define TW_COMPILER_SPATIAL_SECTION_INTERNAL_H

#include "compiler/spatial/section.h"

struct tw_section_builder {
    const struct tw_low *low;
    const struct tw_graph *graph;
    const struct tw_section_config *config;
    struct tw_builder *u;
    uint32_t *buffer_of;        /* storage -> first buffer */
    TW_VEC(uint32_t) kept;      /* tensor -> 1 + the first buffer that keeps it, 0: none does */
    uint32_t *exchange_sem;     /* step -> semaphore */
    uint32_t *sender_stage;     /* step -> the first sender's stage */
    uint32_t cache_sem;         /* raised by cache writes, waited for by cache reads */
    TW_VEC(uint32_t) attention; /* calls */
    uint32_t *cache_writes;     /* site -> appends that its attention waits for */
    uint32_t next_loop, step_loop;
};

/* Ids in the section; records are made when first asked for. */
uint32_t tw_section_tensor(struct tw_section_builder *b, tw_gvalue_id value);
uint32_t tw_section_logits(struct tw_section_builder *b);
uint32_t tw_section_buffer(const struct tw_section_builder *b, uint32_t storage, uint32_t site);
/* The buffer that keeps a resident Param on a site. */
uint32_t tw_section_resident(struct tw_section_builder *b, tw_gvalue_id value, uint32_t site);
uint32_t tw_section_stage(struct tw_section_builder *b, enum tw_stage_kind kind, uint32_t site,
                          enum tw_engine engine, const char *origin, uint32_t first_col,
                          uint32_t n_cols, uint32_t k);
void tw_section_edge(struct tw_section_builder *b, uint32_t from, uint32_t to, uint32_t buffer,
                     enum tw_handshake handshake, uint32_t semaphore, uint32_t count);

/* Does the attention call read heads of the cache that the append writes. */
int tw_section_reads_heads(const struct tw_section_builder *b, const struct tw_call *attention,
                           const struct tw_call *append);

int tw_section_emit_work(struct tw_section_builder *b, uint32_t site, const struct tw_work *work,
                         tw_error *err);

#endif
