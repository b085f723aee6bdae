/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints op streams. Operands are printed by their kinds and texts in ops.def, so a new op needs no
 * code here. A change of the ops' stage is printed as a line of its own. */
#include "loader/text/print_internal.h"

/* Prints "64+v1*256"; a zero base is left out in front of terms. */
static void print_affine(struct tw_printer *p, const struct tw_affine *a) {
    bool plus = a->base != 0 || a->n_terms == 0;
    if (plus) {
        tw_print_text(p, "%llu", (unsigned long long)a->base);
    }
    for (uint32_t i = 0; i < a->n_terms; i++) {
        bool falls = a->term[i].step >> 63 != 0;
        tw_print_text(p, "%sv%u*%llu",
                      falls  ? "-"
                      : plus ? "+"
                             : "",
                      a->term[i].var,
                      (unsigned long long)(falls ? 0 - a->term[i].step : a->term[i].step));
        plus = true;
    }
}

static void print_region(struct tw_printer *p, const struct tw_operand *o) {
    bool in_tensor = o->kind == 'T' || o->kind == 'U';
    tw_print_reference(p, in_tensor ? TW_TEXT_TENSORS : TW_TEXT_BUFFERS, o->id);
    tw_print_text(p, "[");
    if (in_tensor) {
        print_affine(p, &o->instance);
        tw_print_text(p, ", ");
    }
    print_affine(p, &o->offset);
    if (in_tensor && o->paged) {
        tw_print_text(p, ", ");
        tw_print_reference(p, TW_TEXT_TENSORS, o->table);
        tw_print_text(p, "[");
        print_affine(p, &o->element);
        tw_print_text(p, "]");
    }
    tw_print_text(p, "]");
}

static void print_count(struct tw_printer *p, const struct tw_operand *o) {
    if (o->id == TW_NONE) {
        tw_print_text(p, "%u", o->max);
        return;
    }
    tw_print_reference(p, TW_TEXT_TRIPS, o->id);
    tw_print_text(p, "(%u)", o->max);
}

static void print_float(struct tw_printer *p, uint32_t bits) {
    char text[32];
    tw_text_float(bits, text);
    tw_print_text(p, "%s", text);
}

static void print_operand(struct tw_printer *p, const struct tw_operand *o,
                          const struct tw_operand_info *info) {
    if (tw_demand_names_dtype(info->demand) &&
        o->id < TW_DT_COUNT) { /* a type by name has no text in front */
        tw_print_text(p, " %s", tw_dtype_name(o->id));
        return;
    }
    tw_print_text(p, " %s", info->text);
    switch (o->kind) {
    case 'R':
    case 'T':
    case 'W':
    case 'U':
    case 'M':
    case 'D':
        print_region(p, o);
        break;
    case 'F':
        tw_print_reference(p, TW_TEXT_BUFFERS, o->id);
        break;
    case 'S':
        tw_print_reference(p, TW_TEXT_SEMAPHORES, o->id);
        break;
    case 'X':
        print_count(p, o);
        break;
    case 'A':
        print_affine(p, &o->offset);
        break;
    case 'E':
        print_float(p, o->id);
        break;
    case 'V':
        tw_print_text(p, "v%u", o->id);
        break;
    default: /* G C I */
        tw_print_text(p, "%u", o->id);
        break;
    }
}

static void print_loop(struct tw_printer *p, const struct tw_op *op) {
    tw_print_text(p, "loop v%u < ", op->operand[TW_LOOP_var].id);
    print_count(p, &op->operand[TW_LOOP_times]);
    if (op->operand[TW_LOOP_id].id != TW_NONE) {
        tw_print_text(p, " id=%u", op->operand[TW_LOOP_id].id);
    }
    tw_print_text(p, " {");
}

static void print_op(struct tw_printer *p, const struct tw_op *op) {
    const struct tw_operand_info *info = tw_op_operands(op->code);
    if (op->code == TW_OP_LOOP) {
        print_loop(p, op);
    } else if (op->code == TW_OP_END) {
        tw_print_text(p, "}");
    } else {
        tw_print_text(p, "%s", tw_op_info(op->code).name);
        for (uint32_t i = 0; i < op->n_operands; i++) {
            print_operand(p, &op->operand[i], &info[i]);
        }
    }
    tw_print_end(p);
}

/* Prints the stage of the following ops, with its origin as a comment. */
static void print_stage(struct tw_printer *p, uint32_t stage) {
    const struct tw_program *g = p->program;
    if (stage == TW_NONE) {
        tw_print_text(p, "stage=-");
    } else {
        tw_print_text(p, "stage=%u", stage);
        if (stage < g->n_stages && g->stages[stage].origin < g->strings_bytes) {
            tw_print_text(p, "  ; ");
            tw_print_name(p, g->stages[stage].origin);
        }
    }
    tw_print_end(p);
}

static void indent(struct tw_printer *p, unsigned depth) {
    tw_print_text(p, "%*s", (int)(4 + 4 * (depth < 32 ? depth : 32)), "");
}

static void print_words(struct tw_printer *p, const struct tw_stream *s, uint32_t at) {
    enum { IN_LINE = 8 };
    while (at < s->n_words && p->rc == 0) {
        tw_print_text(p, "    words");
        for (uint32_t i = 0; i < IN_LINE && at < s->n_words; i++, at++) {
            tw_print_text(p, " 0x%08x", s->words[at]);
        }
        tw_print_end(p);
    }
}

static void print_stream(struct tw_printer *p, const struct tw_stream *s) {
    struct tw_op op;
    unsigned depth = 0;
    uint32_t stage = TW_NONE;
    for (uint32_t at = 0; at < s->n_words && p->rc == 0; at += op.n_words) {
        if (!tw_op_decode(s->words, s->n_words, at, &op)) {
            print_words(p, s, at);
            return;
        }
        depth -= op.code == TW_OP_END && depth > 0;
        if (op.stage != stage) {
            stage = op.stage;
            indent(p, depth);
            print_stage(p, stage);
        }
        indent(p, depth);
        print_op(p, &op);
        depth += op.code == TW_OP_LOOP;
    }
}

void tw_print_streams(struct tw_printer *p) {
    const struct tw_program *g = p->program;
    for (uint64_t i = 0; i < (uint64_t)g->n_sites * TW_ENGINE_COUNT && p->rc == 0; i++) {
        const struct tw_stream *s = &g->streams[i];
        if (s->n_words > 0 || s->site != i / TW_ENGINE_COUNT || s->engine != i % TW_ENGINE_COUNT) {
            tw_print_record(p, TW_TEXT_STREAM, (uint32_t)i, s);
            print_stream(p, s);
        }
    }
}
