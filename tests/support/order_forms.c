/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts of the forms that a program uses (order_forms.h): one walk over its ops, one over its
 * records.
 */
#include "tests/support/order_forms.h"

#include "tilewright/op_schema.h"

#include <stdio.h>
#include <string.h>

_Static_assert(TW_OP_ATTN_WINDOW < 64, "ops fit their part of the table");

struct walk {
    const struct tw_program *p;
    uint32_t *counts;
    uint32_t depth; /* of loops */
    const struct tw_stream *stream;
};

const char *order_form_name(uint32_t form) {
    static const char *const plain[] = {
#define TW_X(id, name) name,
        ORDER_FORMS(TW_X)
#undef TW_X
    };
    static char text[64];
    if (form < ORDER_FORM_OPS) {
        return plain[form];
    }
    if (form < ORDER_FORM_WEIGHTS) {
        uint32_t engine = (form - ORDER_FORM_OPS) % TW_ENGINE_COUNT;
        struct tw_op_info info = tw_op_info((form - ORDER_FORM_OPS) / TW_ENGINE_COUNT);
        if (!info.name || !strchr(info.engines, "LMS"[engine])) {
            return NULL;
        }
        snprintf(text, sizeof text, "%s on %s", info.name, tw_engine_name(engine));
        return text;
    }
    uint32_t dtype = form - ORDER_FORM_WEIGHTS;
    if (!(TW_WEIGHT_DTYPES >> dtype & 1u)) {
        return NULL;
    }
    snprintf(text, sizeof text, "product with %s weights", tw_dtype_name(dtype));
    return text;
}

static void add(struct walk *w, enum order_form form, bool is) {
    w->counts[form] += is;
}

static bool moves(const struct tw_affine *a) {
    return a->n_terms > 0;
}

/* ---- ops ---- */

static void count_trip(struct walk *w, const struct tw_op *op, const struct tw_operand *o,
                       bool position) {
    if (o->id >= w->p->n_trips) {
        return;
    }
    const struct tw_trip *t = &w->p->trips[o->id];
    add(w, ORDER_FORM_TRIP_LOOP, op->code == TW_OP_LOOP);
    add(w, ORDER_FORM_TRIP_POSITION, position);
    add(w, ORDER_FORM_TRIP_ROWS, op->code != TW_OP_LOOP && !position);
    add(w, ORDER_FORM_TRIP_ELEMENT, t->element > 0);
    add(w, ORDER_FORM_TRIP_NEGATIVE, t->add < 0);
    add(w, ORDER_FORM_TRIP_ADD, t->add > 0);
    add(w, ORDER_FORM_TRIP_DIV, t->div > 1);
    add(w, ORDER_FORM_TRIP_CLAMP, t->clamp);
    add(w, ORDER_FORM_TRIP_EXACT, !t->clamp);
}

static void count_tensor(struct walk *w, const struct tw_op *op, const struct tw_operand *o) {
    bool from = o->kind == TW_KIND_TENSOR_READ;
    add(w, ORDER_FORM_INSTANCE_OF_LOOP, moves(&o->instance));
    if (!o->paged) {
        return;
    }
    add(w, ORDER_FORM_ELEMENT_OF_LOOP, moves(&o->element));
    add(w, ORDER_FORM_PAGED_READ, op->code == TW_OP_READ);
    add(w, ORDER_FORM_PAGED_WRITE, op->code == TW_OP_WRITE);
    add(w, ORDER_FORM_PAGED_KEYS, op->code == TW_OP_KEY_WRITE);
    add(w, ORDER_FORM_PAGED_VALUES, op->code == TW_OP_VALUE_WRITE);
    add(w, ORDER_FORM_PAGED_FROM, op->code == TW_OP_DRAM_COPY && from);
    add(w, ORDER_FORM_PAGED_TO, op->code == TW_OP_DRAM_COPY && !from);
}

static void count_buffer(struct walk *w, const struct tw_operand *o) {
    if (o->id >= w->p->n_buffers) {
        return;
    }
    const struct tw_buffer *b = &w->p->buffers[o->id];
    const struct tw_tensor *t = tw_buffer_pinned(w->p, b);
    bool param = t && t->role == TW_ROLE_PARAM;
    add(w, ORDER_FORM_CLASS_1, b->mem_class == 1);
    add(w, ORDER_FORM_CLASS_2, b->mem_class == 2);
    add(w, ORDER_FORM_PARAM_WHOLE, param && b->window_rows == 0);
    add(w, ORDER_FORM_PARAM_WINDOW, param && b->window_rows > 0);
    add(w, ORDER_FORM_STATE_WINDOW, t && !param && b->window_rows > 0);
    add(w, ORDER_FORM_STATE_WRITTEN, t && !param && o->kind != TW_KIND_READ);
}

static void count_matmul(struct walk *w, const struct tw_op *op) {
    const struct tw_operand *o = op->operand;
    uint32_t dtype = o[TW_MATMUL_dtype].id;
    w->counts[ORDER_FORM_WEIGHTS + dtype % TW_DT_COUNT]++;
    add(w, ORDER_FORM_MATMUL_ADD, o[TW_MATMUL_reload].id);
    add(w, ORDER_FORM_MATMUL_PANELS, o[TW_MATMUL_panels].id > 1);
    add(w, ORDER_FORM_MATMUL_STRIDE,
        o[TW_MATMUL_panels].id > 1 &&
            o[TW_MATMUL_w_stride].id > tw_panel_bytes(dtype, o[TW_MATMUL_k].id));
}

static void count_send(struct walk *w, const struct tw_op *op) {
    const struct tw_operand *o = op->operand;
    uint32_t chip = w->p->mesh_width * w->p->mesh_height,
             site = w->p->buffers[o[TW_SEND_destination].id].site;
    add(w, ORDER_FORM_SEND_LOOP, w->depth > 0);
    add(w, ORDER_FORM_SEND_CHIP, site / chip != w->stream->site / chip);
    add(w, ORDER_FORM_SEND_PART,
        o[TW_SEND_source].offset.base != o[TW_SEND_destination].offset.base);
}

static void count_attention(struct walk *w, const struct tw_op *op) {
    const struct tw_operand *o = op->operand;
    add(w, ORDER_FORM_STEP_F32, o[TW_ATTN_STEP_dtype].id == TW_DT_F32);
    add(w, ORDER_FORM_STEP_F16, o[TW_ATTN_STEP_dtype].id == TW_DT_F16);
    add(w, ORDER_FORM_SEGMENTS, o[TW_ATTN_STEP_segments].id > 1);
    add(w, ORDER_FORM_LATER_SEGMENT, o[TW_ATTN_STEP_segment].id > 0);
}

static void count_special(struct walk *w, const struct tw_op *op) {
    const struct tw_operand *o = op->operand;
    switch (op->code) {
    case TW_OP_SEM_WAIT:
        for (uint32_t i = 0; i < o[TW_SEM_WAIT_threshold].offset.n_terms; i++) {
            if (o[TW_SEM_WAIT_threshold].offset.term[i].var && w->depth) {
                add(w, ORDER_FORM_FLAG_LOOP, true);
                break;
            }
        }
        add(w, ORDER_FORM_CREDIT, w->p->semaphores[o[TW_SEM_WAIT_semaphore].id].initial > 0);
        break;
    case TW_OP_MATMUL:
        count_matmul(w, op);
        break;
    case TW_OP_MCAST:
        add(w, ORDER_FORM_MCAST_OTHERS,
            !tw_group_holds(w->p, &w->p->groups[o[TW_MCAST_group].id], w->stream->site));
        break;
    case TW_OP_SEND:
        count_send(w, op);
        break;
    case TW_OP_ATTN_STEP:
    case TW_OP_ATTN_WINDOW: /* which begins alike */
        count_attention(w, op);
        break;
    case TW_OP_TOPK:
        add(w, ORDER_FORM_TOPK_BASE, o[TW_TOPK_base].offset.base > 0);
        add(w, ORDER_FORM_TOPK_BASE_OF_LOOP, moves(&o[TW_TOPK_base].offset));
        break;
    case TW_OP_TOPK_MERGE:
        add(w, ORDER_FORM_IN_PLACE,
            o[TW_TOPK_MERGE_x].id == o[TW_TOPK_MERGE_z].id &&
                o[TW_TOPK_MERGE_x].offset.base == o[TW_TOPK_MERGE_z].offset.base);
        break;
    case TW_OP_GATHER:
        add(w, ORDER_FORM_GATHER_PANELS,
            w->p->tensors[o[TW_GATHER_table].id].packing == TW_PACK_PANEL16 &&
                w->p->tensors[o[TW_GATHER_table].id].dtype != TW_DT_F32);
        break;
    default:
        break;
    }
}

static void count_op(struct walk *w, const struct tw_op *op) {
    const struct tw_operand_info *info = tw_op_operands(op->code);
    w->counts[ORDER_FORM_OPS + op->code * TW_ENGINE_COUNT + w->stream->engine]++;
    for (uint32_t i = 0; i < op->n_operands; i++) {
        const struct tw_operand *o = &op->operand[i];
        if (o->kind == TW_KIND_COUNT) {
            count_trip(w, op, o, info[i].demand == TW_DEMAND_POSITION);
        } else if (o->kind == TW_KIND_TENSOR_READ || o->kind == TW_KIND_TENSOR_WRITE) {
            count_tensor(w, op, o);
        } else if (tw_letter_in("RWMD", o->kind)) {
            count_buffer(w, o);
        }
    }
    count_special(w, op);
}

void order_forms_count(const struct tw_program *p, uint32_t counts[ORDER_N_FORMS]) {
    struct walk w = {.p = p, .counts = counts};
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        struct tw_op op;
        w.stream = &p->streams[s];
        w.depth = 0;
        for (uint32_t at = 0; tw_op_decode(w.stream->words, w.stream->n_words, at, &op);
             at += op.n_words) {
            count_op(&w, &op);
            w.depth += op.code == TW_OP_LOOP;
            w.depth -= op.code == TW_OP_END;
        }
    }
    add(&w, ORDER_FORM_CHIPS, p->n_chips > 1);
    add(&w, ORDER_FORM_SECTIONS, p->n_sections > 1);
    for (uint32_t i = 0; i < p->n_sections; i++) {
        add(&w, ORDER_FORM_REPEAT, p->sections[i].repeat > 1);
    }
}
