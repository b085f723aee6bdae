/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds a section from a LowProgram: records first (buffers, tensors, semaphores), then each
 * site's work list in order, every item by the emitter of its operation in section_ops.c.
 */
#include "compiler/low/pin_params.h"
#include "compiler/spatial/section_internal.h"

static struct tw_tensor weight_tensor(const struct tw_gvalue *v) {
    struct tw_tensor t = {.rows = v->rows,
                          .cols = v->cols,
                          .dtype = (uint8_t)v->dtype,
                          .packing = (uint8_t)v->packing,
                          .role = TW_ROLE_PARAM,
                          .bind_count = v->instances};
    t.bytes = v->packing == TW_PACK_PANEL16 ? tw_panels(v->rows) * tw_panel_bytes(v->dtype, v->cols)
                                            : tw_row_bytes(v->dtype, v->cols);
    return t;
}

static struct tw_tensor state_tensor(const struct tw_gvalue *v, uint32_t positions) {
    struct tw_tensor t = {.rows = positions,
                          .cols = v->cols,
                          .dtype = (uint8_t)v->dtype,
                          .packing = (uint8_t)v->packing,
                          .role = TW_ROLE_STATE,
                          .init = TW_INIT_ZERO,
                          .bind_count = v->instances,
                          .head_dim = v->head_dim};
    t.bytes = positions * tw_row_bytes(v->dtype, v->cols);
    return t;
}

uint32_t tw_section_tensor(struct tw_section_builder *b, tw_gvalue_id value) {
    const struct tw_gvalue *v = &b->graph->values.items[value];
    uint32_t id = tw_builder_tensor(b->u, v->name);
    if (id != TW_NONE) {
        return id;
    }
    struct tw_tensor t = {0};
    switch (v->kind) {
    case TW_GV_WEIGHT:
        t = weight_tensor(v);
        break;
    case TW_GV_STATE:
        t = state_tensor(v, v->window && b->config->window_positions ? b->config->window_positions
                            : b->config->kv_pages ? b->config->kv_pages * TW_KV_BLOCK
                                                  : b->config->n_positions);
        break;
    case TW_GV_INPUT: {
        uint32_t rows = v->token_rows ? b->low->rows : 1;
        t = (struct tw_tensor){.rows = rows,
                               .cols = 1,
                               .dtype = TW_DT_I32,
                               .role = TW_ROLE_INPUT,
                               .bind_count = 1,
                               .bytes = (uint64_t)rows * 4};
        break;
    }
    case TW_GV_ACTIVATION:
        t = (struct tw_tensor){.rows = b->low->rows,
                               .cols = v->cols,
                               .dtype = (uint8_t)v->dtype,
                               .role = TW_ROLE_ACTIVATION};
        t.bytes = (uint64_t)b->low->rows * tw_row_bytes(v->dtype, v->cols);
        break;
    }
    return tw_builder_add_tensor(b->u, v->name, &t, value);
}

uint32_t tw_section_logits(struct tw_section_builder *b) {
    const struct tw_gvalue *v = &b->graph->values.items[b->graph->logits];
    const char *name = v->token_rows && !b->config->batch ? "scores" : "logits";
    uint32_t id = tw_builder_tensor(b->u, name), rows = v->token_rows ? b->low->rows : 1;
    if (id != TW_NONE) {
        return id;
    }
    uint32_t cols = (uint32_t)tw_panels(v->cols) * TW_PANEL_ROWS;
    struct tw_tensor t = {.rows = rows,
                          .cols = cols,
                          .dtype = TW_DT_F32,
                          .role = TW_ROLE_OUTPUT,
                          .bind_count = 1,
                          .bytes = (uint64_t)rows * cols * 4};
    return tw_builder_add_tensor(b->u, name, &t, b->graph->logits);
}

uint32_t tw_section_choice(struct tw_section_builder *b, uint32_t lists) {
    static const char name[] = "choice";
    uint32_t id = tw_builder_tensor(b->u, name),
             cols = b->graph->top_k * (uint32_t)sizeof(struct tw_top);
    if (id != TW_NONE) {
        return id;
    }
    struct tw_tensor t = {.rows = lists,
                          .cols = cols,
                          .dtype = TW_DT_U8,
                          .role = TW_ROLE_OUTPUT,
                          .bind_count = 1,
                          .bytes = (uint64_t)lists * cols};
    return tw_builder_add_tensor(b->u, name, &t, TW_NONE);
}

static void add_buffer(struct tw_section_builder *b, const struct tw_storage *s, uint32_t site,
                       uint32_t sibling_base, uint32_t tensor) {
    struct tw_buffer *r = TW_VEC_PUSH(b->u->mem, b->u->buffers);
    int fifo = s->kind == TW_ST_OUT || s->kind == TW_ST_STREAM;
    int local = s->kind == TW_ST_LOCAL;
    *r = (struct tw_buffer){
        .name = tw_strpool_add(b->u->strings, s->name),
        .site = site,
        .kind = fifo    ? TW_BUF_FIFO
                : local ? TW_BUF_SCRATCH
                        : TW_BUF_RESIDENT,
        .dtype = (uint8_t)s->dtype,
        .mem_class =
            b->u->target->class_of[tensor == TW_NONE ? TW_HOLDS_PRIVATE : TW_HOLDS_ACTIVATIONS],
        .producer = (uint8_t)(fifo ? s->producer : TW_ENGINE_MATH),
        .consumer = (uint8_t)(fifo ? s->consumer : TW_ENGINE_MATH),
        .pages = s->pages,
        .page_bytes = s->page_bytes,
        .offset = s->offset,
        .sibling_base = sibling_base,
        .tensor = tensor,
    };
}

/* Shared sets get provisional offsets; composition lays them out for the whole program. */
static void make_buffers(struct tw_section_builder *b) {
    const struct tw_low *low = b->low;
    b->buffer_of = tw_cmem_alloc(b->u->mem, (low->storages.n + 1) * sizeof *b->buffer_of);
    for (uint32_t i = 0; i < low->storages.n; i++) {
        const struct tw_storage *s = &low->storages.items[i];
        b->buffer_of[i] = b->u->buffers.n;
        if (s->kind == TW_ST_SET || s->kind == TW_ST_SHARED) {
            uint32_t tensor = s->kind == TW_ST_SHARED
                                  ? tw_section_tensor(b, low->region->values.items[s->value].value)
                                  : TW_NONE;
            for (uint32_t site = 0; site < low->n_sites; site++) {
                add_buffer(b, s, site, b->buffer_of[i], tensor);
            }
        } else {
            add_buffer(b, s, s->site, TW_NONE, TW_NONE);
        }
    }
}

uint32_t tw_section_resident(struct tw_section_builder *b, tw_gvalue_id value, uint32_t site) {
    const struct tw_gvalue *v = &b->graph->values.items[value];
    uint32_t tensor = tw_section_tensor(b, value), base = b->u->buffers.n;
    while (b->pinned.n <= tensor) {
        *TW_VEC_PUSH(b->u->mem, b->pinned) = 0;
    }
    if (b->pinned.items[tensor]) {
        return b->pinned.items[tensor] - 1 + site;
    }
    b->pinned.items[tensor] = base + 1;
    for (uint32_t s = 0; s < b->low->n_sites; s++) {
        *TW_VEC_PUSH(b->u->mem, b->u->buffers) =
            (struct tw_buffer){.name = tw_strpool_add(b->u->strings, v->name),
                               .site = s,
                               .kind = TW_BUF_RESIDENT,
                               .dtype = (uint8_t)v->dtype,
                               .mem_class = b->u->target->class_of[TW_HOLDS_PARAMS],
                               .producer = TW_ENGINE_MATH,
                               .consumer = TW_ENGINE_MATH,
                               .pages = v->instances,
                               .page_bytes = tw_pinned_stride(v),
                               .sibling_base = base,
                               .tensor = tensor};
    }
    return base + site;
}

uint32_t tw_section_buffer(const struct tw_section_builder *b, uint32_t storage, uint32_t site) {
    enum tw_storage_kind kind = b->low->storages.items[storage].kind;
    return b->buffer_of[storage] + (kind == TW_ST_SET || kind == TW_ST_SHARED ? site : 0);
}

uint32_t tw_section_stage(struct tw_section_builder *b, enum tw_stage_kind kind, uint32_t site,
                          enum tw_engine engine, const char *origin, uint32_t first_col,
                          uint32_t n_cols, uint32_t k) {
    struct tw_stage *s = TW_VEC_PUSH(b->u->mem, b->u->stages);
    const char *name = tw_cmem_printf(b->u->mem, "%s.%s", b->u->name, origin);
    *s = (struct tw_stage){kind,      site,   engine, 0, tw_strpool_add(b->u->strings, name),
                           first_col, n_cols, k};
    return b->u->stages.n - 1;
}

static const struct tw_gop *call_op(const struct tw_section_builder *b, const struct tw_call *c) {
    return &b->graph->ops.items[b->low->region->steps.items[c->step].gop];
}

int tw_section_reads_heads(const struct tw_section_builder *b, const struct tw_call *attention,
                           const struct tw_call *append) {
    const struct tw_gop *op = call_op(b, attention), *write = call_op(b, append);
    uint32_t group = op->n_heads / op->n_kv_heads, hd = op->head_dim;
    uint32_t first = attention->first_col / hd / group,
             last = ((attention->first_col + attention->cols) / hd - 1) / group;
    uint32_t write_first = append->first_col / hd,
             write_last = (append->first_col + append->cols) / hd - 1;
    return (op->in[1] == write->in[1] || op->in[2] == write->in[1]) && first <= write_last &&
           write_first <= last;
}

/* Counts, for each attention on each site, the appends (by any site) of heads that it reads; the
 * site's word of the attention's semaphore counts the same. */
static void count_cache_writes(struct tw_section_builder *b) {
    const struct tw_low *low = b->low;
    b->cache_writes = tw_cmem_alloc(b->u->mem, (size_t)low->n_sites * low->region->steps.n *
                                                   sizeof *b->cache_writes);
    for (uint32_t i = 0; i < low->calls.n; i++) {
        if (call_op(b, &low->calls.items[i])->kind == TW_GOP_ATTENTION) {
            *TW_VEC_PUSH(b->u->mem, b->attention) = i;
        }
    }
    for (uint32_t i = 0; i < low->calls.n; i++) {
        const struct tw_call *append = &low->calls.items[i];
        for (uint32_t k = 0; k < b->attention.n && call_op(b, append)->kind == TW_GOP_KV_APPEND;
             k++) {
            const struct tw_call *attention = &low->calls.items[b->attention.items[k]];
            b->cache_writes[attention->step * low->n_sites + attention->site] +=
                (uint32_t)tw_section_reads_heads(b, attention, append);
        }
    }
}

/* "cache.valid", with the attention's name where the region has several. */
static const char *cache_sem_name(struct tw_section_builder *b, uint32_t step) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->low->region->steps.n; i++) {
        uint32_t gop = b->low->region->steps.items[i].gop;
        n += gop != TW_NONE && b->graph->ops.items[gop].kind == TW_GOP_ATTENTION;
    }
    const char *name = b->graph->ops.items[b->low->region->steps.items[step].gop].name;
    return n > 1 ? tw_cmem_printf(b->u->mem, "cache.valid.%s", name) : "cache.valid";
}

static void make_semaphores(struct tw_section_builder *b) {
    const struct tw_low *low = b->low;
    b->exchange_sem =
        tw_cmem_alloc(b->u->mem, (low->region->steps.n + 1) * sizeof *b->exchange_sem);
    b->cache_sem = tw_cmem_alloc(b->u->mem, (low->region->steps.n + 1) * sizeof *b->cache_sem);
    for (uint32_t i = 0; i < low->region->steps.n; i++) {
        const struct tw_mstep *s = &low->region->steps.items[i];
        if (s->prim == TW_PRIM_COPY && !s->carry) {
            const char *value =
                b->graph->values.items[low->region->values.items[s->out].value].name;
            b->exchange_sem[i] = tw_builder_semaphore(
                b->u, tw_cmem_printf(b->u->mem, "%s.valid", value), TW_SEM_VALID);
        } else if (s->gop != TW_NONE && b->graph->ops.items[s->gop].kind == TW_GOP_ATTENTION) {
            b->cache_sem[i] = tw_builder_semaphore(b->u, cache_sem_name(b, i), TW_SEM_VALID);
        }
    }
}

/* Emits a step's work items on all sites: first what is computed and sent, then (`receive`) what is
 * received, which refers to its sender's stage. */
static int emit_step(struct tw_section_builder *b, uint32_t step, uint32_t *at, int receive,
                     tw_error *err) {
    for (uint32_t site = 0; site < b->low->n_sites; site++) {
        for (; at[site] < b->low->work[site].n; at[site]++) {
            const struct tw_work *w = &b->low->work[site].items[at[site]];
            if (w->step != step || (w->kind == TW_WORK_RECV && !receive)) {
                break;
            }
            int rc = tw_section_emit_work(b, site, w, err);
            if (rc) {
                return rc;
            }
        }
    }
    return 0;
}

int tw_section_build(const struct tw_low *low, const struct tw_section_config *config,
                     struct tw_strpool *strings, struct tw_builder *out, tw_error *err) {
    const struct tw_gregion *region = &low->mid->graph->regions.items[low->region->region];
    struct tw_section_builder b = {
        .low = low, .graph = low->mid->graph, .config = config, .u = out};
    tw_builder_init(out, low->mid->graph->mem, strings, low->mid->target, region->name, low->rows);
    out->repeat = region->repeat;
    out->private_bytes = low->used_bytes;
    b.next_loop = config->index << 16;
    tw_builder_all_sites(out);
    make_buffers(&b);
    make_semaphores(&b);
    count_cache_writes(&b);
    /* Step by step over all sites, so that a step's loop ids and stages are adjacent. */
    uint32_t *at = tw_cmem_alloc(out->mem, low->n_sites * sizeof *at);
    for (uint32_t step = 0; step < low->region->steps.n; step++) {
        b.step_loop = b.next_loop;
        b.next_loop += config->batch ? low->rows : 1;
        int rc = emit_step(&b, step, at, 0, err);
        if (rc == 0) {
            rc = emit_step(&b, step, at, 1, err);
        }
        if (rc) {
            return rc;
        }
    }
    return 0;
}
