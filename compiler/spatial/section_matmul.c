/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine code of matrix products: LOAD fills pages of weights, MATH multiplies them. Logits
 * leave page by page through STORE, and with them a list of the best.
 */
#include "compiler/spatial/section_call.h"
#include "loader/base/assert.h"

/* ---- the best of the logits ---- */

static uint32_t list_bytes(const struct site_call *x) {
    return x->b->graph->top_k * (uint32_t)sizeof(struct tw_top);
}

/* Returns whether the last page of this call has columns beyond those of the value. */
static bool is_padded(const struct site_call *x) {
    const struct tw_storage *out = storage(x, x->c->out);
    return out->first_col + out->cols > value_of(x, x->op->out)->cols;
}

/* Lists the best logits of a page that MATH has just computed. The first page's list is the site's;
 * those of the others are merged into it. */
static void choose_page(const struct site_call *x, uint64_t first, uint64_t step, uint32_t n) {
    uint32_t k = x->b->graph->top_k, page = buffer(x, x->c->page_choice), bytes = list_bytes(x),
             list = buffer(x, x->c->choice), cols = n * TW_PANEL_ROWS;
    uint64_t from = storage(x, x->c->out)->first_col + first * TW_PANEL_ROWS;
    uint64_t left = value_of(x, x->op->out)->cols - from;
    if (step == 0 && cols > left) {
        cols = (uint32_t)left;
    }
    tw_builder_topk(x->u, x->site, MATH, x->math, tw_in_buffer(buffer(x, x->c->out), at(0)), n * 64,
                    tw_in_buffer(first ? page : list, at(0)), bytes, cols, k,
                    at_inner(from, step * TW_PANEL_ROWS), x->rows);
    if (first) {
        tw_builder_topk_merge(x->u, x->site, MATH, x->math, tw_in_buffer(list, at(0)), bytes,
                              tw_in_buffer(page, at(0)), bytes, tw_in_buffer(list, at(0)), bytes, k,
                              x->rows);
    }
}

/* The site's list leaves, after its logits. */
static void send_choice(const struct site_call *x, int engine) {
    uint32_t list = buffer(x, x->c->choice), bytes = list_bytes(x);
    if (engine == MATH) {
        tw_builder_push(x->u, x->site, MATH, x->math, list, 1);
    } else if (engine == STORE) {
        uint32_t tensor = tw_section_choice(x->b, x->c->parts);
        tw_builder_wait(x->u, x->site, STORE, x->store, list, 1);
        tw_builder_write(x->u, x->site, STORE, x->store, tw_in_buffer(list, at(0)), bytes,
                         tw_in_tensor(tensor, at(0), at((uint64_t)x->c->part * bytes)), bytes,
                         bytes, x->rows);
        tw_builder_pop(x->u, x->site, STORE, x->store, list, 1);
    }
}

/* ---- matrix product ---- */

/* Scales and caps a page of results, in place. */
static void finish_page(const struct site_call *x, uint32_t n) {
    struct tw_buffer_at page = tw_in_buffer(buffer(x, x->c->out), at(0));
    uint32_t cols = n * TW_PANEL_ROWS, stride = n * 64;
    TW_ASSERT(storage(x, x->c->out)->kind == TW_ST_STREAM ||
              (x->op->scale == 0.0f && x->op->cap == 0.0f));
    if (x->op->scale != 0.0f && x->op->scale != 1.0f) {
        tw_builder_scale(x->u, x->site, MATH, x->math, page, stride, page, stride, cols,
                         x->op->scale, x->rows);
    }
    if (x->op->cap != 0.0f) {
        tw_builder_soft_cap(x->u, x->site, MATH, x->math, page, stride, page, stride, cols,
                            x->op->cap, x->rows);
    }
}

/* Emits one engine's half of a product of `n` panels, which pass through one weight page. The first
 * panel, of the weights and of the output, is `first` plus `step` per iteration of the loop around
 * it. */
static void matmul_page(const struct site_call *x, uint64_t first, uint64_t step, uint32_t n,
                        int engine) {
    const struct tw_gvalue *w = value(x, 1);
    const struct tw_storage *out = storage(x, x->c->out), *in = storage(x, x->c->in[0]);
    uint32_t weights = x->b->low->streams[x->site].weights, base = out->first_col / TW_PANEL_ROWS;
    uint64_t panel = tw_panel_bytes(w->dtype, w->cols);
    int results = out->kind == TW_ST_STREAM;
    if (engine == LOAD) {
        load_page(x, weights, 1, at_inner((base + first) * panel, step * panel), n * panel);
    } else if (engine == MATH) {
        tw_builder_wait(x->u, x->site, MATH, x->math, buffer(x, weights), 1);
        if (results) {
            tw_builder_reserve(x->u, x->site, MATH, x->math, buffer(x, x->c->out), 1);
        }
        tw_builder_matmul(
            x->u, x->site, MATH, x->math, tw_in_buffer(buffer(x, x->c->in[0]), at(0)), in->stride,
            tw_in_buffer(buffer(x, weights), at(0)), (uint32_t)panel, w->dtype, w->cols, n,
            tw_in_buffer(buffer(x, x->c->out), results ? at(0) : at_inner(first * 64, step * 64)),
            results ? n * 64 : out->stride, 0, x->rows);
        tw_builder_pop(x->u, x->site, MATH, x->math, buffer(x, weights), 1);
        finish_page(x, n);
        if (x->c->choice != TW_NONE) {
            choose_page(x, first, step, n);
        }
        if (results) {
            tw_builder_push(x->u, x->site, MATH, x->math, buffer(x, x->c->out), 1);
        }
    } else if (results) {
        uint32_t out_buffer = buffer(x, x->c->out), logits = tw_section_logits(x->b);
        const struct tw_tensor *t = &x->u->tensors.items[logits];
        tw_builder_wait(x->u, x->site, STORE, x->store, out_buffer, 1);
        tw_builder_write(x->u, x->site, STORE, x->store, tw_in_buffer(out_buffer, at(0)), n * 64,
                         tw_in_tensor(logits, at(0), at_inner((base + first) * 64, step * 64)),
                         t->rows > 1 ? t->cols * 4 : n * 64, n * 64, x->rows);
        tw_builder_pop(x->u, x->site, STORE, x->store, out_buffer, 1);
    }
}

/* A product's pages: `single` ones before the loop, `looped` ones in it, then `rest` panels. */
struct pages {
    uint32_t panels, single, looped, rest;
};

/* The lists of the best need the first page apart, and one whose last columns are none. */
static struct pages split_pages(const struct site_call *x) {
    const struct tw_gvalue *w = value(x, 1);
    uint32_t all = storage(x, x->c->out)->cols / TW_PANEL_ROWS,
             page = tw_low_page_panels(x->b->low, w->dtype, w->cols);
    struct pages p = {page, 0, all / page, all % page};
    if (x->c->choice != TW_NONE && p.rest == 0 && is_padded(x)) {
        p.looped--;
        p.rest = page;
    }
    if (x->c->choice != TW_NONE && p.looped) {
        p.looped--;
        p.single = 1;
    }
    return p;
}

static void matmul_pages(const struct site_call *x, const struct pages *p, int engine) {
    uint32_t stage = engine == LOAD ? x->load : engine == MATH ? x->math : x->store;
    uint64_t first = (uint64_t)p->single * p->panels;
    if (p->single) {
        matmul_page(x, 0, 0, p->panels, engine);
    }
    if (p->looped > 1) {
        emit_loop(x, (enum tw_engine)engine, stage, p->looped);
    }
    if (p->looped > 0) {
        matmul_page(x, first, p->looped > 1 ? p->panels : 0, p->panels, engine);
    }
    if (p->looped > 1) {
        emit_end(x, (enum tw_engine)engine, stage);
    }
    if (p->rest) {
        matmul_page(x, first + (uint64_t)p->looped * p->panels, 0, p->rest, engine);
    }
}

void tw_section_matmul(struct site_call *x) {
    struct pages pages = split_pages(x);
    int engines = 2;
    add_load_stage(x);
    if (storage(x, x->c->out)->kind == TW_ST_STREAM) {
        engines = 3;
        x->store = tw_section_stage(x->b, TW_STAGE_STORE, x->site, STORE, x->op->name,
                                    x->c->first_col, x->c->cols, 0);
    }
    bool lists = x->c->choice != TW_NONE;
    if (lists) {
        tw_builder_reserve(x->u, x->site, MATH, x->math, buffer(x, x->c->choice), 1);
    }
    for (int e = 0; e < engines; e++) {
        matmul_pages(x, &pages, e);
        if (lists) {
            send_choice(x, e);
        }
    }
}
