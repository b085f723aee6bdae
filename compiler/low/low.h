/* SPDX-License-Identifier: Apache-2.0
 *
 * The LowProgram: how a planned region is carried out. It has storages (shards of values in SRAM),
 * kernel calls and sends, and each site's list of work. expand.c builds it from
 * a MidProgram without changing any decision; place.c assigns offsets. All memory belongs to the
 * graph's arena.
 */
#ifndef TW_COMPILER_LOW_LOW_H
#define TW_COMPILER_LOW_LOW_H

#include "compiler/mid/mid.h"

enum tw_storage_kind {
    /* one equal member on every site (siblings); written by calls or by an exchange */
    TW_ST_SET,
    TW_ST_SHARED, /* a set that exists across sections under its value's name */
    TW_ST_LOCAL,  /* on one site, used by its MATH engine only */
    TW_ST_OUT,    /* on one site, a FIFO of one page from MATH to STORE */
    /* on one site, a FIFO of the LOAD engine's pages (weights, vectors, cache blocks, gathered
     * rows) or of results */
    TW_ST_STREAM
};

/* Bytes on a site (SET, SHARED: on every site, at the same offset): columns [first_col, first_col +
 * cols) of a value, padded to whole panels; row r starts at r*stride. Live during steps [from, to]
 * of the region; storages that another engine or another site writes are live during the whole
 * region. */
struct tw_storage {
    const char *name;
    enum tw_storage_kind kind;
    enum tw_dtype dtype;
    uint32_t value; /* mid value; TW_NONE: none */
    uint32_t site;  /* LOCAL, OUT, STREAM; else TW_NONE */
    uint32_t first_col, cols, rows;
    uint32_t stride; /* bytes of a row */
    uint32_t pages;
    uint64_t page_bytes;
    uint32_t producer, consumer; /* OUT, STREAM: engines */
    uint32_t from, to;           /* steps, inclusive */
    /* assigned by placement, relative to the start of the region's private memory (SHARED:
     * unused) */
    uint64_t offset;
};

/* One kernel of one step on one site, over output columns [first_col, first_col + cols). */
struct tw_call {
    uint32_t step, site;
    uint32_t first_col, cols;
    uint32_t in[3];   /* storages; TW_NONE: a weight, a state, an input or none */
    uint32_t out;     /* storage; TW_NONE: none */
    uint32_t scratch; /* storage of attention's running state; else TW_NONE */
    /* A product of logits whose best are listed: FIFO to STORE of the list, and memory for the list
     * of one page; else TW_NONE. The `part`-th of `parts` lists. */
    uint32_t choice, page_choice, part, parts;
};

/* A part of a value, sent from `site` to the same columns of the set `dst` on every site. */
struct tw_send {
    uint32_t step, site;
    uint32_t src, dst; /* storages */
    /* FIFO to STORE into which MATH copies src first, if MATH reads src too; else TW_NONE */
    uint32_t staging;
    uint32_t first_col, cols;
};

enum tw_work_kind { TW_WORK_CALL, TW_WORK_SEND, TW_WORK_RECV, TW_WORK_CARRY };
/* One entry of a site's work list. */
struct tw_work {
    enum tw_work_kind kind;
    uint32_t step;
    uint32_t index; /* CALL: into calls; SEND: into sends; RECV, CARRY: the step */
};

/* FIFOs on one site that all calls of the region share: four that LOAD fills, and `results` from
 * MATH to STORE. TW_NONE where none is needed. */
struct tw_streams_of_site {
    uint32_t weights, vectors, cache, rows, results;
};

struct tw_low {
    const struct tw_mid *mid;
    const struct tw_mid_region *region;
    uint32_t n_sites, rows;
    uint64_t budget_bytes; /* private memory of a site */
    TW_VEC(struct tw_storage) storages;
    TW_VEC(struct tw_call) calls;
    TW_VEC(struct tw_send) sends;
    uint32_t *storage_of;               /* indexed [mid value * n_sites + site] */
    uint32_t *senders;                  /* by step: number of sends of an exchange */
    struct tw_streams_of_site *streams; /* by site */
    TW_VEC(struct tw_work) * work;      /* by site, in order */
    uint64_t used_bytes;                /* private memory of the fullest site; set by placement */
};

/* expand.c: fills *out for one region of the plan; `budget_bytes` is the private memory per site.
 * `mid` must outlive *out. Errors: INTERNAL. */
int tw_low_expand(const struct tw_mid *mid, uint32_t region, uint64_t budget_bytes,
                  struct tw_low *out, tw_error *err);
/* Returns how many segments of keys an attention state holds: 2 serve any number (ATTN_STEP), 1 a
 * context that has no more. */
uint32_t tw_low_segments(const struct tw_graph *g);
/* Returns whether a call with so many columns makes a part of the norms of whole rows: the sum over
 * the row first (in its scratch), then its columns. */
static inline int tw_low_norm_of_part(const struct tw_graph *g, const struct tw_gop *op,
                                      uint32_t cols) {
    return op->kind == TW_GOP_RMS_NORM && op->head_dim == 0 && cols < g->values.items[op->out].cols;
}
/* place.c: assigns offsets, first fit over live ranges. Errors: PLACEMENT, naming section, site and
 * bytes. */
int tw_low_place(struct tw_low *low, tw_error *err);
/* low_check.c: checks that calls and sends stay inside their storages (Errors: INTERNAL), and
 * prints the program (`dump --stage low`). */
int tw_low_check(const struct tw_low *low, tw_error *err);
void tw_low_print(const struct tw_low *low, FILE *out);

/* Returns how many panels of a matrix of that type and depth one page of the stream `weights`
 * holds; at least 1. */
uint32_t tw_low_page_panels(const struct tw_low *low, enum tw_dtype dtype, uint32_t k);

/* Returns the byte offset of column `col` in a row of a storage. */
static inline uint64_t tw_storage_col(const struct tw_storage *s, uint32_t col) {
    return (uint64_t)(col - s->first_col) / tw_dtype_block_elems(s->dtype) *
           tw_dtype_block_bytes(s->dtype);
}

#endif
