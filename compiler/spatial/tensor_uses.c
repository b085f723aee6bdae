/* SPDX-License-Identifier: Apache-2.0
 *
 * One walk over all ops; the letter of an operand determines which table it names and whether that
 * entry is read or written.
 */
#include "compiler/spatial/tensor_uses.h"

#include "tilewright/footprint.h"

#include <string.h>

/* Calls `visit` for every op; stops at its first error. */
static int each_op(const struct tw_builder *u, int (*visit)(void *ctx, const struct tw_op *op),
                   void *ctx, tw_error *err) {
    struct tw_op op;
    for (uint32_t s = 0; s < u->n_sites * TW_ENGINE_COUNT; s++) {
        for (uint32_t at = 0; at < u->code[s].n; at += op.n_words) {
            if (!tw_op_decode(u->code[s].items, u->code[s].n, at, &op)) {
                return tw_fail(err, TW_E_INTERNAL,
                               "compose: section %s stream %u word %u does not decode", u->name, s,
                               at);
            }
            if (visit(ctx, &op)) {
                return tw_fail(
                    err, TW_E_INTERNAL,
                    "compose: section %s stream %u word %u (%s) names an entry outside its table",
                    u->name, s, at, tw_op_info(op.code).name);
            }
        }
    }
    return 0;
}

/* ---- tensors ---- */

struct uses_walk {
    const struct tw_builder *u;
    struct tw_use *uses;
};

static void record_use(struct tw_use *use, bool reads, bool writes, bool converts) {
    use->converts = converts && (use->converts || !(use->reads || use->writes));
    use->reads = use->reads || reads;
    use->writes = use->writes || writes;
}

static int visit_tensors(void *ctx, const struct tw_op *op) {
    struct uses_walk *w = ctx;
    for (uint32_t i = 0; i < op->n_operands; i++) {
        const struct tw_operand *o = &op->operand[i];
        bool dram = o->kind == 'T' || o->kind == 'U', sram = tw_letter_in("RWMD", o->kind);
        if (!dram && !sram) {
            continue;
        }
        if (o->id >= (dram ? w->u->tensors.n : w->u->buffers.n)) {
            return 1;
        }
        uint32_t tensor = dram ? o->id : w->u->buffers.items[o->id].tensor;
        if (tensor == TW_NONE) {
            continue;
        }
        if (tensor >= w->u->tensors.n) {
            return 1;
        }
        if (o->paged && o->table >= w->u->tensors.n) {
            return 1;
        }
        if (o->paged) {
            record_use(&w->uses[o->table], true, false, false);
        }
        record_use(&w->uses[tensor], tw_op_reads(op, o), tw_letter_in("UWMD", o->kind),
                   op->code == TW_OP_GATHER && i == TW_GATHER_table);
    }
    return 0;
}

int tw_builder_tensor_uses(const struct tw_builder *u, struct tw_use **uses, tw_error *err) {
    struct uses_walk w = {u, tw_cmem_alloc(u->mem, (u->tensors.n + 1) * sizeof **uses)};
    /* trips are latched from their Inputs, whether or not a loop names them */
    for (uint32_t i = 0; i < u->trips.n; i++) {
        if (u->trips.items[i].input >= u->tensors.n) {
            return tw_fail(err, TW_E_INTERNAL,
                           "compose: trip %u of section %s reads tensor %u, but there are %u", i,
                           u->name, u->trips.items[i].input, u->tensors.n);
        }
        record_use(&w.uses[u->trips.items[i].input], true, false, false);
    }
    *uses = w.uses;
    return each_op(u, visit_tensors, &w, err);
}

/* ---- loops ---- */

struct loop_ids {
    uint32_t first, last;
    bool any;
};

static int visit_loops(void *ctx, const struct tw_op *op) {
    struct loop_ids *l = ctx;
    if (op->code == TW_OP_LOOP && op->operand[TW_LOOP_id].id != TW_NONE) {
        uint32_t id = op->operand[TW_LOOP_id].id;
        l->first = !l->any || id < l->first ? id : l->first;
        l->last = !l->any || id > l->last ? id : l->last;
        l->any = true;
    }
    return 0;
}

bool tw_builder_loop_ids(const struct tw_builder *u, uint32_t *first, uint32_t *last) {
    struct loop_ids l = {0, 0, false};
    (void)each_op(u, visit_loops, &l, NULL); /* callers have decoded the code before */
    *first = l.first;
    *last = l.last;
    return l.any;
}
