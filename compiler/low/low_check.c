/* SPDX-License-Identifier: Apache-2.0
 *
 * The LowProgram's checker and printer: calls and sends stay inside the storages they name, on the
 * sites that own them.
 */
#include "compiler/low/low.h"

static const char *region_name(const struct tw_low *low) {
    return low->mid->graph->regions.items[low->region->region].name;
}

static int window_ok(const struct tw_low *low, uint32_t storage, uint32_t site, uint32_t first,
                     uint32_t cols) {
    if (storage >= low->storages.n) {
        return 0;
    }
    const struct tw_storage *s = &low->storages.items[storage];
    int here = s->kind == TW_ST_SET || s->kind == TW_ST_SHARED || s->site == site;
    return here && cols > 0 && first >= s->first_col &&
           (uint64_t)first + cols <= (uint64_t)s->first_col + s->cols;
}

/* Returns 1 if input k of the operation is read in the columns of the call alone; 0: in all of its
 * columns. */
static int by_columns(const struct tw_gop *op, uint32_t k) {
    switch (op->kind) {
    case TW_GOP_QUANT:
    case TW_GOP_ADD:
    case TW_GOP_BIAS:
    case TW_GOP_SILU_MUL:
    case TW_GOP_GELU_MUL:
    case TW_GOP_GELU:
    case TW_GOP_SCALE:
    case TW_GOP_POS_SCALE:
    case TW_GOP_LAST_ROW:
    case TW_GOP_OUTPUT:
        return 1;
    case TW_GOP_ROPE:
    case TW_GOP_KV_APPEND:
    case TW_GOP_ATTENTION:
        return k == 0;
    case TW_GOP_RMS_NORM:
    case TW_GOP_LAYER_NORM:
        return op->head_dim > 0;
    case TW_GOP_GATHER:
    case TW_GOP_ROPE_TABLE:
    case TW_GOP_MATMUL:
    case TW_GOP_COUNT:
        return 0;
    }
    return 0;
}

/* Returns 1 if the storage of input k holds, on the call's site, every column that the call
 * reads. */
static int reads_inside(const struct tw_low *low, const struct tw_call *c, uint32_t k) {
    const struct tw_mstep *step = &low->region->steps.items[c->step];
    const struct tw_graph *g = low->mid->graph;
    const struct tw_gop *op = &g->ops.items[step->gop];
    int part = by_columns(op, k);
    uint32_t cols = g->values.items[op->in[k]].cols;
    return window_ok(low, c->in[k], c->site, part ? c->first_col : 0, part ? c->cols : cols);
}

static int check_call(const struct tw_low *low, uint32_t i, tw_error *err) {
    const struct tw_call *c = &low->calls.items[i];
    if (c->cols == 0) {
        return tw_fail(err, TW_E_INTERNAL, "low: %s call %u has no columns", region_name(low), i);
    }
    if (c->out != TW_NONE && !window_ok(low, c->out, c->site, c->first_col, c->cols)) {
        return tw_fail(err, TW_E_INTERNAL, "low: %s call %u writes outside its storage",
                       region_name(low), i);
    }
    for (uint32_t k = 0; k < 3; k++) {
        if (c->in[k] != TW_NONE && !reads_inside(low, c, k)) {
            return tw_fail(err, TW_E_INTERNAL,
                           "low: %s call %u reads columns that its input %u does not hold on site "
                           "%u",
                           region_name(low), i, k, c->site);
        }
    }
    return 0;
}

int tw_low_check(const struct tw_low *low, tw_error *err) {
    for (uint32_t i = 0; i < low->calls.n; i++) {
        int rc = check_call(low, i, err);
        if (rc) {
            return rc;
        }
    }
    for (uint32_t i = 0; i < low->sends.n; i++) {
        const struct tw_send *s = &low->sends.items[i];
        if (!window_ok(low, s->src, s->site, s->first_col, s->cols) ||
            !window_ok(low, s->dst, s->site, s->first_col, s->cols)) {
            return tw_fail(err, TW_E_INTERNAL, "low: %s send %u is outside its storages",
                           region_name(low), i);
        }
    }
    return 0;
}

static void print_storage(const struct tw_low *low, uint32_t i, FILE *out) {
    static const char *const kinds[] = {"set", "shared", "local", "out", "stream"};
    const struct tw_storage *s = &low->storages.items[i];
    fprintf(out, "storage %u %s: %s %s cols [%u, %u) rows %u", i, s->name, kinds[s->kind],
            tw_dtype_name(s->dtype), s->first_col, s->first_col + s->cols, s->rows);
    if (s->site != TW_NONE) {
        fprintf(out, " site %u", s->site);
    }
    fprintf(out, " pages %u x %llu at %llu steps [%u, %u]\n", s->pages,
            (unsigned long long)s->page_bytes, (unsigned long long)s->offset, s->from, s->to);
}

static void print_work(const struct tw_low *low, const struct tw_work *w, FILE *out) {
    const struct tw_mstep *step = &low->region->steps.items[w->step];
    switch (w->kind) {
    case TW_WORK_CALL: {
        const struct tw_call *c = &low->calls.items[w->index];
        fprintf(out, "    call %s cols [%u, %u)", low->mid->graph->ops.items[step->gop].name,
                c->first_col, c->first_col + c->cols);
        for (uint32_t k = 0; k < 3; k++) {
            if (c->in[k] != TW_NONE) {
                fprintf(out, " s%u", c->in[k]);
            }
        }
        fprintf(out, c->out == TW_NONE ? "\n" : " -> s%u\n", c->out);
        break;
    }
    case TW_WORK_SEND: {
        const struct tw_send *s = &low->sends.items[w->index];
        fprintf(out, "    send s%u cols [%u, %u) -> s%u everywhere\n", s->src, s->first_col,
                s->first_col + s->cols, s->dst);
        break;
    }
    case TW_WORK_RECV:
        fprintf(out, "    recv step %u from %u sites\n", w->step, low->senders[w->step]);
        break;
    case TW_WORK_CARRY:
        fprintf(out, "    carry\n");
        break;
    }
}

void tw_low_print(const struct tw_low *low, FILE *out) {
    fprintf(out, "low %s rows %u sites %u private %llu of %llu bytes\n", region_name(low),
            low->rows, low->n_sites, (unsigned long long)low->used_bytes,
            (unsigned long long)low->budget_bytes);
    for (uint32_t i = 0; i < low->storages.n; i++) {
        print_storage(low, i, out);
    }
    for (uint32_t s = 0; s < low->n_sites; s++) {
        fprintf(out, "site %u {\n", s);
        for (uint32_t i = 0; i < low->work[s].n; i++) {
            print_work(low, &low->work[s].items[i], out);
        }
        fprintf(out, "}\n");
    }
}
