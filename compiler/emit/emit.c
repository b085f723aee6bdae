/* SPDX-License-Identifier: Apache-2.0
 *
 * Symbols, binding rows and the packing of weights. Programs of a bundle share Params and State by
 * name: the first program that names a tensor creates its symbols, later ones find them.
 */
#include "compiler/emit/emit.h"

#include "compiler/emit/fill.h"
#include "compiler/graph/identity.h"
#include "loader/base/assert.h"
#include "loader/base/text_filter.h"
#include "tilewright/tilewright.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct binder {
    const struct tw_emit_input *in;
    struct tw_cmem *mem;
    TW_VEC(struct tw_emit_symbol) symbols;
    TW_VEC(uint32_t) rows; /* binding row -> symbol */
    struct known {
        uint32_t name, first_row;
    } * known; /* tensors already bound, by name */
    uint32_t n_known;
    uint64_t bank_bytes[TW_MAX_BANKS];
    struct tw_emit_totals *totals;
};

/* Picks the bank that holds the fewest bytes so far; ties go to the lowest. */
static uint32_t pick_bank(struct binder *b, uint64_t bytes) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < b->in->target->n_chips * b->in->target->n_banks; i++) {
        best = b->bank_bytes[i] < b->bank_bytes[best] ? i : best;
    }
    b->bank_bytes[best] += bytes;
    return best;
}

static const char *symbol_name(struct binder *b, const char *tensor, uint32_t instance,
                               uint32_t n) {
    return n > 1 ? tw_cmem_printf(b->mem, "blk.%u.%s", instance, tensor) : tensor;
}

static void add_symbols(struct binder *b, const struct tw_builder *u, uint32_t tensor) {
    const struct tw_tensor *t = &u->tensors.items[tensor];
    const char *name = tw_cmem_printf(b->mem, "%s", u->strings->bytes.items + t->name);
    for (uint32_t i = 0; i < t->bind_count; i++) {
        struct tw_emit_symbol *s = TW_VEC_PUSH(b->mem, b->symbols);
        *s = (struct tw_emit_symbol){.name = symbol_name(b, name, i, t->bind_count),
                                     .role = t->role,
                                     .dtype = t->dtype,
                                     .bytes = t->bytes};
        if (t->role == TW_ROLE_PARAM) {
            struct tw_fill_source *source = tw_cmem_alloc(b->mem, sizeof *source);
            *source = (struct tw_fill_source){
                &b->in->graph->values.items[u->tensor_value.items[tensor]], i};
            s->source = source;
            s->bank = pick_bank(b, t->bytes);
            b->totals->param_bytes += t->bytes;
        } else if (t->role == TW_ROLE_STATE) {
            b->totals->state_bytes += t->bytes;
        }
        *TW_VEC_PUSH(b->mem, b->rows) = b->symbols.n - 1;
    }
}

static void bind_tensor(struct binder *b, struct tw_builder *u, uint32_t tensor) {
    struct tw_tensor *t = &u->tensors.items[tensor];
    if (t->role == TW_ROLE_ACTIVATION) {
        return;
    }
    for (uint32_t i = 0; i < b->n_known; i++) {
        if (b->known[i].name == t->name) {
            t->bind_first = b->known[i].first_row;
            TW_ASSERT(b->rows.items && b->symbols.items && t->bind_first < b->rows.n);
            /* Inputs have room for the rows of the widest program. */
            struct tw_emit_symbol *s = &b->symbols.items[b->rows.items[t->bind_first]];
            s->bytes = s->bytes < t->bytes ? t->bytes : s->bytes;
            return;
        }
    }
    b->known[b->n_known++] = (struct known){t->name, b->rows.n};
    t->bind_first = b->rows.n;
    add_symbols(b, u, tensor);
}

static uint64_t count_params(const struct tw_model *m) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        n += (uint64_t)m->tensors[i].rows * m->tensors[i].cols;
    }
    return n;
}

struct tw_emit_spec tw_emit_bind(const struct tw_emit_input *in, struct tw_emit_totals *totals) {
    struct binder b = {.in = in, .mem = in->graph->mem, .totals = totals};
    uint32_t n = 0;
    for (uint32_t p = 0; p < in->n_programs; p++) {
        n += in->programs[p]->tensors.n;
    }
    b.known = tw_cmem_alloc(b.mem, (n + 1) * sizeof *b.known);
    *totals = (struct tw_emit_totals){.n_params = count_params(in->graph->model)};
    for (uint32_t p = 0; p < in->n_programs; p++) {
        for (uint32_t i = 0; i < in->programs[p]->tensors.n; i++) {
            bind_tensor(&b, in->programs[p], i);
        }
    }
    return (struct tw_emit_spec){.n_symbols = b.symbols.n,
                                 .symbols = b.symbols.items,
                                 .n_bind_rows = b.rows.n,
                                 .bind_symbol = b.rows.items};
}

/* The context of both of the writer's callbacks. */
struct write_context {
    const struct tw_emit_input *in;
    struct tw_filler filler;
};

static int fill(void *ctx, const struct tw_emit_symbol *symbol, uint64_t offset, uint64_t size,
                uint8_t *dst, tw_error *err) {
    struct write_context *w = ctx;
    char shown[TW_SHORT_PATH_BYTES];
    int rc = tw_fill(&w->filler, symbol->source, offset, size, dst, err);
    if (rc) {
        tw_error_prefix(err, tw_short_path(w->in->graph->model->path, shown));
    }
    return rc;
}

static void progress(void *ctx, uint64_t done, uint64_t total) {
    const struct write_context *w = ctx;
    if (w->in->progress) {
        w->in->progress(w->in->ctx, "writing weights", done, total);
    }
}

/* Returns the lowest minor version of the machine that has all ops of the programs, whose streams
 * the compiler has just made. */
static uint32_t min_abi_minor(const struct tw_program *programs, uint32_t n) {
    uint32_t minor = 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < programs[i].n_sites * TW_ENGINE_COUNT; k++) {
            const struct tw_stream *s = &programs[i].streams[k];
            struct tw_op op;
            for (uint32_t at = 0; at < s->n_words && tw_op_decode(s->words, s->n_words, at, &op);
                 at += op.n_words) {
                uint32_t own = tw_op_abi_minor(&op, programs[i].buffers);
                minor = own > minor ? own : minor;
            }
        }
    }
    return minor;
}

static void set_note(struct tw_bundle_note *note, const struct tw_emit_input *in,
                     const struct tw_program *programs) {
    const struct tw_model *m = in->graph->model;
    note->bundle_major = TW_BUNDLE_MAJOR;
    note->bundle_minor = TW_BUNDLE_MINOR;
    note->abi_major = TW_MACHINE_ABI_MAJOR;
    note->abi_min_minor = (uint16_t)min_abi_minor(programs, in->n_programs);
    note->n_programs = in->n_programs;
    note->n_vocab = m->h.n_vocab;
    note->n_ctx = in->n_ctx;
    note->n_layers = m->h.n_layers;
    /* one address space: a site can read the banks of any chip */
    note->n_banks = in->target->n_chips * in->target->n_banks;
    note->n_params = count_params(m);
    memcpy(note->target_hash, in->target->hash, sizeof note->target_hash);
    snprintf(note->target, sizeof note->target, "%s", in->target->name);
    tw_text_copy(note->model, sizeof note->model, m->name, strlen(m->name));
    snprintf(note->arch, sizeof note->arch, "%s", m->arch);
    tw_text_copy(note->license, sizeof note->license, m->license, strlen(m->license));
    snprintf(note->tool, sizeof note->tool, "tilewright %s", TW_VERSION);
}

/* Returns one line per graph operation, by which the origin of a stage can be looked up; the caller
 * frees it. */
static char *origin_text(const struct tw_graph *g) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) {
        return NULL;
    }
    for (uint32_t i = 0; i < g->ops.n; i++) {
        const struct tw_gop *op = &g->ops.items[i];
        fprintf(f, "%s.%s %s", g->regions.items[op->region].name, op->name, tw_gop_name(op->kind));
        for (uint32_t k = 0; k < tw_gop_inputs(op->kind); k++) {
            fprintf(f, " %s", g->values.items[op->in[k]].name);
        }
        fprintf(f, "\n");
    }
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

int tw_emit_bundle(const struct tw_emit_input *in, const struct tw_emit_spec *bound,
                   const char *path, tw_error *err) {
    struct tw_program *programs = tw_cmem_alloc(in->graph->mem, in->n_programs * sizeof *programs);
    for (uint32_t p = 0; p < in->n_programs; p++) {
        programs[p] = tw_builder_program(in->programs[p]);
    }
    char *origin = origin_text(in->graph);
    if (!origin) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for the origin table", path);
    }
    struct tw_emit_spec spec = *bound; /* what is added is valid during this call only */
    struct write_context w = {.in = in, .filler = {.mem = in->graph->mem}};
    set_note(&spec.note, in, programs);
    spec.n_programs = in->n_programs;
    spec.programs = programs;
    spec.vocab = in->graph->model->vocab;
    spec.vocab_bytes = in->graph->model->vocab_bytes;
    spec.chat = in->graph->model->chat;
    spec.certificate = tw_certificate_pack(in->graph->mem, programs, in->certificates,
                                           in->n_programs, &spec.certificate_bytes);
    spec.plan = in->plan;
    spec.origin = origin;
    spec.fill = fill;
    spec.progress = progress;
    spec.ctx = &w;
    uint8_t identity[TW_HASH_BYTES];
    int rc = tw_graph_identity(in->graph, identity, err);
    spec.identity = identity;
    rc = rc ? rc : tw_bundle_write(path, &spec, err);
    free(origin);
    return rc;
}
