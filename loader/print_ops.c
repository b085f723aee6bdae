/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints op streams. Operands are printed by the letters of ops.def; the table below only gives short labels to an op's
 * immediates, and an op without an entry is still printed in full. */
#include "loader/print_internal.h"
#include "tilewright/opcode.h"

#include <string.h>

/* One label per immediate, in order; "dtype" prints the type's name. */
static const char *labels_of(uint32_t code) {
    static const char *const table[TW_OP_LIMIT] = {
        [TW_OP_READ] = "n b s s",
        [TW_OP_GATHER] = "s cols",
        [TW_OP_WRITE] = "s s b",
        [TW_OP_KEY_WRITE] = "s first heads head_dim",
        [TW_OP_VALUE_WRITE] = "s first heads head_dim",
        [TW_OP_MCAST] = "s s b",
        [TW_OP_RMS_NORM] = "s s cols",
        [TW_OP_QUANT] = "s s cols",
        [TW_OP_MATMUL] = "s dtype k panels s reload",
        [TW_OP_ROPE_TABLE] = "s half",
        [TW_OP_ROPE] = "s s heads head_dim rotated mode",
        [TW_OP_ATTN_INIT] = "heads head_dim",
        [TW_OP_ATTN_STEP] = "s heads first of head_dim",
        [TW_OP_ATTN_DONE] = "s heads head_dim",
        [TW_OP_ADD] = "s s s cols",
        [TW_OP_SILU_MUL] = "s s s cols",
        [TW_OP_COPY] = "s s b",
        [TW_OP_LAST_ROW] = "s b",
    };
    return code < TW_OP_LIMIT && table[code] ? table[code] : "";
}

/* "+64+v1*256"; a zero base is left out before terms. */
static void print_affine(struct tw_printer *p, const struct tw_affine *a, const char *lead) {
    tw_print_text(p, "%s", lead);
    if (a->base != 0 || a->n_terms == 0) {
        tw_print_text(p, "+%llu", (unsigned long long)a->base);
    }
    for (uint32_t i = 0; i < a->n_terms; i++) {
        bool falls = a->term[i].step >> 63 != 0;
        tw_print_text(p, "%cv%u*%llu", falls ? '-' : '+', a->term[i].var,
                      (unsigned long long)(falls ? 0 - a->term[i].step : a->term[i].step));
    }
}

static void print_buffer_name(struct tw_printer *p, uint32_t id) {
    const struct tw_program *g = p->program;
    tw_print_name(p, id < g->n_buffers ? g->buffers[id].name : TW_NONE, 'b', id);
}

static void print_region(struct tw_printer *p, const struct tw_operand *o) {
    const struct tw_program *g = p->program;
    if (o->kind == 'T' || o->kind == 'U') {
        tw_print_name(p, o->id < g->n_tensors ? g->tensors[o->id].name : TW_NONE, 't', o->id);
        tw_print_text(p, "[");
        print_affine(p, &o->instance, "instance ");
        tw_print_text(p, ", ");
        print_affine(p, &o->offset, "");
    } else {
        print_buffer_name(p, o->id);
        tw_print_text(p, "[");
        print_affine(p, &o->offset, "");
    }
    tw_print_text(p, "]");
}

static void print_count(struct tw_printer *p, const struct tw_operand *o) {
    const struct tw_program *g = p->program;
    if (o->id == TW_NONE) {
        tw_print_text(p, "%u", o->max);
        return;
    }
    tw_print_name(p, o->id < g->n_trips ? g->trips[o->id].name : TW_NONE, 'n', o->id);
    tw_print_text(p, "(%u)", o->max);
}

static void print_immediate(struct tw_printer *p, uint32_t value, const char **labels) {
    size_t n = strcspn(*labels, " ");
    if (n == 5 && memcmp(*labels, "dtype", 5) == 0) {
        tw_print_text(p, "%s", tw_dtype_name(value));
    } else if (n > 0) {
        tw_print_text(p, "%.*s=%u", (int)n, *labels, value);
    } else {
        tw_print_text(p, "%u", value);
    }
    *labels += n + ((*labels)[n] == ' ');
}

static void print_operand(struct tw_printer *p, const struct tw_op *op, uint32_t i, const char **labels) {
    const struct tw_program *g = p->program;
    const struct tw_operand *o = &op->operand[i];
    switch (o->kind) {
    case 'R':
    case 'T':
    case 'W':
    case 'U':
    case 'M':
        tw_print_text(p, o->kind == 'R' || o->kind == 'T' || i == 0 ? "" : "-> ");
        print_region(p, o);
        break;
    case 'F':
        print_buffer_name(p, o->id);
        break;
    case 'S':
        tw_print_name(p, o->id < g->n_semaphores ? g->semaphores[o->id].name : TW_NONE, 's', o->id);
        break;
    case 'G':
        tw_print_text(p, "group=%u", o->id);
        break;
    case 'C':
        tw_print_text(p, "site=%u", o->id);
        break;
    case 'X':
        tw_print_text(p, "%s=", i + 1 < op->n_operands && op->operand[i + 1].kind == 'X' ? "pos" : "rows");
        print_count(p, o);
        break;
    case 'A':
        print_affine(p, &o->offset, op->code == TW_OP_SEM_WAIT ? ">= " : "at=");
        break;
    case 'E':
        tw_print_text(p, "%.9g", (double)tw_operand_float(o));
        break;
    case 'V':
        tw_print_text(p, "v%u", o->id);
        break;
    default:
        print_immediate(p, o->id, labels);
        break;
    }
}

static void print_origin(struct tw_printer *p, uint32_t stage) {
    const struct tw_program *g = p->program;
    if (stage != TW_NONE) {
        tw_print_text(p, "  ; ");
        tw_print_name(p, stage < g->n_stages ? g->stages[stage].origin : TW_NONE, 'o', stage);
    }
}

static void print_op(struct tw_printer *p, const struct tw_op *op, unsigned depth) {
    const char *labels = labels_of(op->code);
    tw_print_text(p, "%*s", (int)(4 + 4 * depth), "");
    if (op->code == TW_OP_LOOP) {
        tw_print_text(p, "loop v%u < ", op->operand[0].id);
        print_count(p, &op->operand[1]);
        if (op->operand[2].id != TW_NONE) {
            tw_print_text(p, " id=%u", op->operand[2].id);
        }
        tw_print_text(p, " {");
    } else if (op->code == TW_OP_END) {
        tw_print_text(p, "}");
    } else {
        tw_print_text(p, "%s", tw_op_info(op->code).name);
        for (uint32_t i = 0; i < op->n_operands; i++) {
            tw_print_text(p, " ");
            print_operand(p, op, i, &labels);
        }
        print_origin(p, op->stage);
    }
    tw_print_end(p);
}

static void print_stream(struct tw_printer *p, const struct tw_stream *s) {
    struct tw_op op;
    unsigned depth = 0;
    tw_print_text(p, "site %u %s: %u words", s->site, tw_engine_name(s->engine), s->n_words);
    tw_print_end(p);
    for (uint32_t at = 0; at < s->n_words && p->rc == 0; at += op.n_words) {
        if (!tw_op_decode(s->words, s->n_words, at, &op)) {
            tw_print_text(p, "    word %u: 0x%08x does not begin an op", at, s->words[at]);
            tw_print_end(p);
            return;
        }
        depth -= op.code == TW_OP_END && depth > 0;
        print_op(p, &op, depth < 32 ? depth : 32);
        depth += op.code == TW_OP_LOOP;
    }
}

void tw_print_streams(struct tw_printer *p) {
    for (uint64_t i = 0; i < (uint64_t)p->program->n_sites * TW_ENGINE_COUNT && p->rc == 0; i++) {
        if (p->program->streams[i].n_words > 0) {
            print_stream(p, &p->program->streams[i]);
        }
    }
}
