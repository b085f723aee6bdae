/* SPDX-License-Identifier: Apache-2.0
 *
 * Expansion: every step of the plan becomes calls on its owners and sends of its exchanges, over
 * storages. The order of the steps is the order of each site's work list.
 */
#include "compiler/low/low.h"
#include "loader/base/assert.h"

/* A weight page takes at most this part of a site's private memory, and never more than PAGE_CAP
 * bytes. */
#define PAGE_SHARE 8u
#define PAGE_CAP ((uint64_t)256 << 10)

static const struct tw_gvalue *gvalue(const struct tw_low *low, tw_mvalue_id v) {
    return &low->mid->graph->values.items[low->region->values.items[v].value];
}

static const struct tw_gop *gop_of(const struct tw_low *low, const struct tw_mstep *s) {
    return s->gop == TW_NONE ? NULL : &low->mid->graph->ops.items[s->gop];
}

uint32_t tw_low_page_panels(const struct tw_low *low, enum tw_dtype dtype, uint32_t k) {
    uint64_t cap =
        low->budget_bytes / PAGE_SHARE < PAGE_CAP ? low->budget_bytes / PAGE_SHARE : PAGE_CAP;
    TW_ASSERT(tw_panel_bytes(dtype, k) > 0);
    uint64_t panels = cap / tw_panel_bytes(dtype, k);
    return panels ? (uint32_t)panels : 1;
}

/* Any number of segments pass through a state of two: the sum of the earlier ones, and the last. */
uint32_t tw_low_segments(const struct tw_graph *g) {
    return g->n_ctx > TW_KEY_SEGMENT ? 2 : 1;
}

/* The readers of a value, as far as its storage is concerned. */
struct uses {
    /* number of readers on MATH and on STORE, and the last step that reads */
    uint32_t math, store, last;
};

static struct uses uses_of(const struct tw_low *low, tw_mvalue_id v) {
    struct uses u = {0, 0, 0};
    for (uint32_t i = 0; i < low->region->steps.n; i++) {
        const struct tw_mstep *s = &low->region->steps.items[i];
        const struct tw_gop *op = gop_of(low, s);
        for (uint32_t k = 0; k < 3; k++) {
            if (s->in[k] != v) {
                continue;
            }
            int stores = op ? op->kind == TW_GOP_KV_APPEND || op->kind == TW_GOP_OUTPUT : !s->carry;
            *(stores ? &u.store : &u.math) += 1;
            u.last = i;
        }
    }
    return u;
}

static uint32_t pad(uint32_t n, uint32_t to) {
    return (n + to - 1) / to * to;
}

static uint32_t new_storage(struct tw_low *low, const char *name, enum tw_storage_kind kind,
                            enum tw_dtype dtype, uint32_t site) {
    struct tw_storage *s = TW_VEC_PUSH(low->mid->graph->mem, low->storages);
    s->name = name;
    s->kind = kind;
    s->dtype = dtype;
    s->value = TW_NONE;
    s->site = site;
    s->pages = 1;
    s->to = low->region->steps.n;
    return low->storages.n - 1;
}

/* Sets a storage's shape: columns of a value, widened to whole panels (f32) or blocks. */
static void shape_storage(struct tw_low *low, uint32_t id, tw_mvalue_id v, uint32_t first,
                          uint32_t cols) {
    struct tw_storage *s = &low->storages.items[id];
    uint32_t align =
        tw_dtype_is_activation(s->dtype) ? tw_dtype_block_elems(s->dtype) : TW_PANEL_ROWS;
    s->value = v;
    s->first_col = first / align * align;
    s->cols = pad(first + cols, align) - s->first_col;
    s->rows = gvalue(low, v)->token_rows ? low->rows : 1;
    s->stride = pad((uint32_t)tw_row_bytes(s->dtype, s->cols), 64);
    s->page_bytes = (uint64_t)s->stride * s->rows;
}

/* Makes the storage of a value that step `step` computes: a set if the value is whole on every
 * site, else one shard per owner, a FIFO to STORE if only STORE reads it and local memory of MATH
 * otherwise. The target of an exchange is written by other sites, so it is live throughout. */
static void make_storage(struct tw_low *low, uint32_t step, tw_mvalue_id v, int from_exchange) {
    const struct tw_gvalue *g = gvalue(low, v);
    struct tw_layout layout = low->region->values.items[v].layout;
    struct uses u = uses_of(low, v);
    if (layout.parts == 0) {
        uint32_t id =
            new_storage(low, g->name, g->shared ? TW_ST_SHARED : TW_ST_SET, g->dtype, TW_NONE);
        shape_storage(low, id, v, 0, g->cols);
        if (!from_exchange && !g->shared) {
            low->storages.items[id].from = step;
            low->storages.items[id].to = u.last > step ? u.last : step;
        }
        for (uint32_t s = 0; s < low->n_sites; s++) {
            low->storage_of[v * low->n_sites + s] = id;
        }
        return;
    }
    for (uint32_t p = 0; p < layout.parts; p++) {
        uint32_t first, cols, site = tw_layout_site(layout, p, low->n_sites);
        tw_layout_window(layout, g->cols, p, &first, &cols);
        if (cols == 0) {
            continue;
        }
        uint32_t id =
            new_storage(low, g->name, u.store && !u.math ? TW_ST_OUT : TW_ST_LOCAL, g->dtype, site);
        shape_storage(low, id, v, first, cols);
        struct tw_storage *st = &low->storages.items[id];
        st->producer = TW_ENGINE_MATH;
        st->consumer = TW_ENGINE_STORE;
        if (st->kind == TW_ST_LOCAL) {
            st->from = step;
            st->to = u.last > step ? u.last : step;
        }
        low->storage_of[v * low->n_sites + site] = id;
    }
}

/* Rotation works in place: its output shares its input's storage, which is then live for as long as
 * the output, and feeds STORE if the output does. */
static void share_storage(struct tw_low *low, tw_mvalue_id in, tw_mvalue_id out) {
    struct uses u = uses_of(low, out);
    for (uint32_t s = 0; s < low->n_sites; s++) {
        uint32_t id = low->storage_of[in * low->n_sites + s];
        low->storage_of[out * low->n_sites + s] = id;
        if (id == TW_NONE) {
            continue;
        }
        struct tw_storage *st = &low->storages.items[id];
        if (u.store) {
            st->kind = TW_ST_OUT;
            st->from = 0;
            st->to = low->region->steps.n;
        } else if (st->to < u.last) {
            st->to = u.last;
        }
    }
}

static void add_work(struct tw_low *low, uint32_t site, enum tw_work_kind kind, uint32_t step,
                     uint32_t index) {
    struct tw_work *w = TW_VEC_PUSH(low->mid->graph->mem, low->work[site]);
    *w = (struct tw_work){kind, step, index};
}

/* Creates or widens a FIFO that LOAD fills for MATH; it is large enough for every call of the
 * site. */
static void grow_stream(struct tw_low *low, uint32_t *stream, const char *name, enum tw_dtype dtype,
                        uint32_t site, uint32_t pages, uint64_t page_bytes) {
    if (*stream == TW_NONE) {
        *stream = new_storage(low, name, TW_ST_STREAM, dtype, site);
    }
    struct tw_storage *s = &low->storages.items[*stream];
    page_bytes = (page_bytes + 63) / 64 * 64;
    s->pages = pages;
    s->page_bytes = s->page_bytes > page_bytes ? s->page_bytes : page_bytes;
    s->producer = TW_ENGINE_LOAD;
    s->consumer = TW_ENGINE_MATH;
}

/* Adds the LOAD streams that a call needs on its site. */
static void add_streams(struct tw_low *low, const struct tw_gop *op, const struct tw_call *c) {
    const struct tw_gvalue *values = low->mid->graph->values.items;
    struct tw_streams_of_site *st = &low->streams[c->site];
    switch (op->kind) {
    case TW_GOP_MATMUL: {
        const struct tw_gvalue *w = &values[op->in[1]];
        uint64_t panels = tw_panels(c->first_col % TW_PANEL_ROWS + c->cols),
                 max_panels = tw_low_page_panels(low, w->dtype, w->cols);
        uint64_t page = panels < max_panels ? panels : max_panels;
        grow_stream(low, &st->weights, "weights", TW_DT_U8, c->site, 2,
                    page * tw_panel_bytes(w->dtype, w->cols));
        break;
    }
    case TW_GOP_RMS_NORM:
    case TW_GOP_LAYER_NORM:
    case TW_GOP_ROPE_TABLE:
    case TW_GOP_BIAS:
    case TW_GOP_POS_SCALE:
        if (!values[op->in[1]].resident) {
            grow_stream(low, &st->vectors, "vectors", TW_DT_F32, c->site, 2,
                        (uint64_t)values[op->in[1]].cols * 4);
        }
        break;
    case TW_GOP_ATTENTION:
        grow_stream(low, &st->cache, "cache", values[op->in[1]].dtype, c->site, 4,
                    TW_KV_BLOCK * tw_row_bytes(values[op->in[1]].dtype, op->head_dim));
        break;
    case TW_GOP_GATHER:
        grow_stream(low, &st->rows, "rows", TW_DT_F32, c->site, 1,
                    low->storages.items[c->out].page_bytes);
        break;
    case TW_GOP_QUANT:
    case TW_GOP_ROPE:
    case TW_GOP_KV_APPEND:
    case TW_GOP_ADD:
    case TW_GOP_SILU_MUL:
    case TW_GOP_GELU_MUL:
    case TW_GOP_GELU:
    case TW_GOP_SCALE:
    case TW_GOP_LAST_ROW:
    case TW_GOP_OUTPUT:
    case TW_GOP_COUNT:
        break;
    }
}

/* Gives a call memory of its own on its site, rows of `floats` floats. */
static void add_scratch(struct tw_low *low, struct tw_call *c, const char *name, uint32_t floats) {
    c->scratch = new_storage(low, name, TW_ST_LOCAL, TW_DT_F32, c->site);
    struct tw_storage *st = &low->storages.items[c->scratch];
    st->rows = low->rows;
    st->cols = floats;
    st->stride = floats * 4;
    st->page_bytes = ((uint64_t)st->stride * st->rows + 63) / 64 * 64;
    st->from = st->to = c->step;
}

static void add_call(struct tw_low *low, uint32_t step, uint32_t site, uint32_t first,
                     uint32_t cols) {
    const struct tw_mstep *s = &low->region->steps.items[step];
    const struct tw_gop *op = gop_of(low, s);
    struct tw_call *c = TW_VEC_PUSH(low->mid->graph->mem, low->calls);
    uint32_t index = low->calls.n - 1;
    *c = (struct tw_call){.step = step,
                          .site = site,
                          .first_col = first,
                          .cols = cols,
                          .out = TW_NONE,
                          .scratch = TW_NONE,
                          .choice = TW_NONE,
                          .page_choice = TW_NONE};
    for (uint32_t k = 0; k < 3; k++) {
        c->in[k] = s->in[k] == TW_NONE ? TW_NONE : low->storage_of[s->in[k] * low->n_sites + site];
    }
    if (s->out != TW_NONE) {
        c->out = low->storage_of[s->out * low->n_sites + site];
    }
    if (op->kind == TW_GOP_ATTENTION) {
        add_scratch(low, c, "attention.state",
                    tw_low_segments(low->mid->graph) * (cols / op->head_dim) * (op->head_dim + 2));
    } else if (tw_low_norm_of_part(low->mid->graph, op, cols)) {
        add_scratch(low, c, "norm.sum", 1);
    }
    add_streams(low, op, &low->calls.items[index]);
    add_work(low, site, TW_WORK_CALL, step, index);
}

static void expand_compute(struct tw_low *low, uint32_t step) {
    const struct tw_mstep *s = &low->region->steps.items[step];
    const struct tw_gop *op = gop_of(low, s);
    if (s->out != TW_NONE) {
        if (op->kind == TW_GOP_ROPE) {
            share_storage(low, s->in[0], s->out);
        } else {
            make_storage(low, step, s->out, 0);
        }
    }
    uint32_t cols = low->mid->graph->values.items[op->out == TW_NONE ? op->in[0] : op->out].cols;
    for (uint32_t p = 0; p < (s->owners.parts ? s->owners.parts : low->n_sites); p++) {
        uint32_t first, n;
        tw_layout_window(s->owners, cols, p, &first, &n);
        if (n) {
            add_call(low, step, s->owners.parts ? tw_layout_site(s->owners, p, low->n_sites) : p,
                     first, n);
        }
    }
}

/* Returns the FIFO to STORE into which MATH copies a part before it is sent; TW_NONE if the source
 * is such a FIFO itself, because MATH does not read it. */
static uint32_t staging_of(struct tw_low *low, uint32_t src) {
    const struct tw_storage from = low->storages.items[src];
    if (from.kind == TW_ST_OUT) {
        return TW_NONE;
    }
    uint32_t id = new_storage(low, from.name, TW_ST_OUT, from.dtype, from.site);
    struct tw_storage *to = &low->storages.items[id];
    *to = from;
    to->kind = TW_ST_OUT;
    to->from = 0;
    to->to = low->region->steps.n;
    return id;
}

static void expand_copy(struct tw_low *low, uint32_t step) {
    const struct tw_mstep *s = &low->region->steps.items[step];
    if (s->carry) {
        for (uint32_t site = 0; site < low->n_sites; site++) {
            add_work(low, site, TW_WORK_CARRY, step, step);
        }
        return;
    }
    make_storage(low, step, s->out, 1);
    for (uint32_t p = 0; p < s->owners.parts; p++) {
        uint32_t first, n, site = tw_layout_site(s->owners, p, low->n_sites);
        tw_layout_window(s->owners, gvalue(low, s->in[0])->cols, p, &first, &n);
        if (n == 0) {
            continue;
        }
        uint32_t src = low->storage_of[s->in[0] * low->n_sites + site],
                 dst = low->storage_of[s->out * low->n_sites + site];
        uint32_t staging = staging_of(low, src);
        struct tw_send *send = TW_VEC_PUSH(low->mid->graph->mem, low->sends);
        *send = (struct tw_send){step, site, src, dst, staging, first, n};
        low->senders[step]++;
        add_work(low, site, TW_WORK_SEND, step, low->sends.n - 1);
    }
    for (uint32_t site = 0; site < low->n_sites; site++) {
        add_work(low, site, TW_WORK_RECV, step, step);
    }
}

/* Values of earlier regions are sets that exist under their names. */
static void import_shared(struct tw_low *low) {
    for (uint32_t v = 0; v < low->region->values.n; v++) {
        const struct tw_gvalue *g = gvalue(low, v);
        if (g->shared && g->region != low->region->region) {
            uint32_t id = new_storage(low, g->name, TW_ST_SHARED, g->dtype, TW_NONE);
            shape_storage(low, id, v, 0, g->cols);
            for (uint32_t s = 0; s < low->n_sites; s++) {
                low->storage_of[v * low->n_sites + s] = id;
            }
        }
    }
}

/* Adds what a product needs to list the best of its logits, and counts the lists before it. */
static void list_choice(struct tw_low *low, struct tw_call *c) {
    uint64_t bytes = (uint64_t)low->mid->graph->top_k * sizeof(struct tw_top);
    c->choice = new_storage(low, "choice", TW_ST_STREAM, TW_DT_U8, c->site);
    c->page_choice = new_storage(low, "choice.page", TW_ST_LOCAL, TW_DT_U8, c->site);
    struct tw_storage *list = &low->storages.items[c->choice],
                      *page = &low->storages.items[c->page_choice];
    list->page_bytes = page->page_bytes = (bytes + 63) / 64 * 64;
    list->producer = TW_ENGINE_MATH;
    list->consumer = TW_ENGINE_STORE;
    page->from = page->to = c->step;
    for (uint32_t i = 0; i < low->calls.n; i++) {
        const struct tw_call *other = &low->calls.items[i];
        c->parts += other->step == c->step;
        c->part += other->step == c->step && other < c;
    }
}

/* Results that go to DRAM are streamed, as many columns at a time as a weight page produces,
 * instead of being collected first. */
static void result_streams(struct tw_low *low) {
    for (uint32_t i = 0; i < low->calls.n; i++) {
        struct tw_call *c = &low->calls.items[i];
        const struct tw_gop *op = gop_of(low, &low->region->steps.items[c->step]);
        if (op->kind == TW_GOP_MATMUL && c->out != TW_NONE && op->out == low->mid->graph->logits) {
            struct tw_storage *out = &low->storages.items[c->out];
            const struct tw_gvalue *w = &low->mid->graph->values.items[op->in[1]];
            uint64_t max_panels = tw_low_page_panels(low, w->dtype, w->cols),
                     panels = tw_panels(out->cols);
            out->kind = TW_ST_STREAM;
            out->pages = 2;
            /* out->rows: 1, or all rows of a step */
            out->page_bytes =
                (max_panels < panels ? max_panels : panels) * TW_PANEL_ROWS * 4 * out->rows;
            low->streams[c->site].results = c->out;
            if (low->mid->graph->top_k && !low->mid->graph->values.items[op->out].token_rows) {
                list_choice(low, c);
            }
        }
    }
}

int tw_low_expand(const struct tw_mid *mid, uint32_t region, uint64_t budget_bytes,
                  struct tw_low *out, tw_error *err) {
    struct tw_cmem *mem = mid->graph->mem;
    struct tw_low *low = out;
    *low = (struct tw_low){.mid = mid,
                           .region = &mid->regions[region],
                           .rows = mid->rows,
                           .budget_bytes = budget_bytes};
    low->n_sites = tw_target_sites(mid->target);
    size_t n = (size_t)low->region->values.n * low->n_sites;
    low->storage_of = tw_cmem_alloc(mem, n * sizeof *low->storage_of);
    for (size_t i = 0; i < n; i++) {
        low->storage_of[i] = TW_NONE;
    }
    low->senders = tw_cmem_alloc(mem, low->region->steps.n * sizeof *low->senders);
    low->work = tw_cmem_alloc(mem, low->n_sites * sizeof *low->work);
    low->streams = tw_cmem_alloc(mem, low->n_sites * sizeof *low->streams);
    for (uint32_t s = 0; s < low->n_sites; s++) {
        low->streams[s] = (struct tw_streams_of_site){TW_NONE, TW_NONE, TW_NONE, TW_NONE, TW_NONE};
    }
    import_shared(low);
    for (uint32_t i = 0; i < low->region->steps.n; i++) {
        if (low->region->steps.items[i].prim == TW_PRIM_COMPUTE) {
            expand_compute(low, i);
        } else {
            expand_copy(low, i);
        }
    }
    result_streams(low);
    return tw_low_check(low, err);
}
