/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the lines of a stream: ops by their operands' kinds and texts in ops.def (so a new op
 * needs nothing here), raw words, and the stage that ops belong to.
 */
#include "loader/text/parse_internal.h"

#include <stdio.h>

static int append(struct tw_parser *p, const uint32_t *words, uint32_t n) {
    struct tw_parse_array *a = &p->owner->words;
    if (!tw_parse_reserve(a, a->n + n, sizeof *words)) {
        return tw_parse_nomem(p);
    }
    memcpy((uint32_t *)a->items + a->n, words, n * sizeof *words);
    a->n += n;
    struct tw_stream *streams = p->owner->table[TW_TEXT_STREAM].items;
    streams[p->next_stream - 1].n_words += n;
    return 0;
}

/* ---- operands ---- */

static int parse_term(struct tw_parser *p, struct tw_affine *a, bool falls) {
    uint64_t var = 0, step = 0;
    size_t start = p->at;
    if (a->n_terms == TW_MAX_TERMS) {
        return tw_parse_fail(p, TW_E_RANGE, start, "more than %u terms", TW_MAX_TERMS);
    }
    int rc = tw_parse_mark(p, "v");
    rc = rc ? rc : tw_parse_number(p, "the variable", TW_MAX_VARS - 1, &var);
    rc = rc ? rc : tw_parse_mark(p, "*");
    rc = rc ? rc : tw_parse_number(p, "the step", (UINT64_C(1) << 63) - !falls, &step);
    a->term[a->n_terms].var = (uint32_t)var;
    a->term[a->n_terms].step = falls ? 0 - step : step;
    a->n_terms++;
    return rc;
}

static int parse_affine(struct tw_parser *p, struct tw_affine *a) {
    int rc = 0;
    a->base = 0;
    a->n_terms = 0;
    if (tw_parse_is_digit(tw_parse_peek(p))) {
        rc = tw_parse_number(p, "the number", UINT64_MAX, &a->base);
    } else if (tw_parse_peek(p) == 'v') {
        rc = parse_term(p, a, false);
    } else if (tw_parse_peek(p) != '-') {
        return tw_parse_expected(p, "a constant, terms, or both, as in 64+v1*256");
    }
    while (rc == 0 && (tw_parse_peek(p) == '+' || tw_parse_peek(p) == '-')) {
        bool falls = tw_parse_peek(p) == '-';
        p->at++;
        rc = parse_term(p, a, falls);
    }
    return rc;
}

static int parse_region(struct tw_parser *p, struct tw_operand *o) {
    bool in_tensor = o->kind == 'T' || o->kind == 'U';
    int rc = tw_parse_reference(p, in_tensor ? TW_TEXT_TENSORS : TW_TEXT_BUFFERS, &o->id);
    rc = rc ? rc : tw_parse_mark(p, "[");
    if (in_tensor) {
        rc = rc ? rc : parse_affine(p, &o->instance);
        rc = rc ? rc : tw_parse_mark(p, ",");
        rc = rc ? rc : tw_parse_gap(p);
    }
    rc = rc ? rc : parse_affine(p, &o->offset);
    if (rc == 0 && in_tensor && tw_parse_accept(p, ",")) {
        o->paged = true;
        rc = tw_parse_gap(p);
        size_t start = p->at;
        rc = rc ? rc : tw_parse_reference(p, TW_TEXT_TENSORS, &o->table);
        if (rc == 0 && o->table == TW_NONE) { /* encoded, it would mean that there is no table */
            rc = tw_parse_fail(p, TW_E_FORMAT, start,
                               "found @%u, which is no id, expected a page table, name@id",
                               o->table);
        }
        rc = rc ? rc : tw_parse_mark(p, "[");
        rc = rc ? rc : parse_affine(p, &o->element);
        rc = rc ? rc : tw_parse_mark(p, "]");
    }
    return rc ? rc : tw_parse_mark(p, "]");
}

static int parse_count(struct tw_parser *p, struct tw_operand *o) {
    o->id = TW_NONE;
    if (tw_parse_is_digit(tw_parse_peek(p))) {
        return tw_parse_u32(p, "the count", &o->max);
    }
    int rc = tw_parse_reference(p, TW_TEXT_TRIPS, &o->id);
    rc = rc ? rc : tw_parse_mark(p, "(");
    rc = rc ? rc : tw_parse_u32(p, "the maximum count", &o->max);
    return rc ? rc : tw_parse_mark(p, ")");
}

static bool dtype_name(struct tw_parser *p, uint32_t *value) {
    size_t n = tw_parse_word(p);
    for (uint32_t i = 0; i < TW_DT_COUNT; i++) {
        if (tw_parse_word_is(p, n, tw_dtype_name(i))) {
            p->at += n;
            *value = i;
            return true;
        }
    }
    return false;
}

static int parse_variable(struct tw_parser *p, uint32_t *var) {
    size_t start = p->at;
    uint64_t value = 0;
    int rc = tw_parse_mark(p, "v");
    rc = rc ? rc : tw_parse_number(p, "the variable", TW_MAX_VARS - 1, &value);
    *var = (uint32_t)value;
    return rc || value != 0 ? rc
                            : tw_parse_fail(p, TW_E_RANGE, start, "found v0, expected v1 to v%u",
                                            TW_MAX_VARS - 1);
}

static int parse_value(struct tw_parser *p, struct tw_operand *o) {
    switch (o->kind) {
    case 'R':
    case 'T':
    case 'W':
    case 'U':
    case 'M':
    case 'D':
        return parse_region(p, o);
    case 'F':
        return tw_parse_reference(p, TW_TEXT_BUFFERS, &o->id);
    case 'S':
        return tw_parse_reference(p, TW_TEXT_SEMAPHORES, &o->id);
    case 'X':
        return parse_count(p, o);
    case 'A':
        return parse_affine(p, &o->offset);
    case 'E':
        return tw_parse_float(p, &o->id);
    case 'V':
        return parse_variable(p, &o->id);
    default: /* G C I */
        return tw_parse_u32(p, "a number", &o->id);
    }
}

static int parse_operand(struct tw_parser *p, struct tw_operand *o,
                         const struct tw_operand_info *info) {
    size_t n = strlen(info->text);
    char mark[32];
    int rc = tw_parse_gap(p);
    if (rc == 0 && tw_demand_names_dtype(info->demand) && dtype_name(p, &o->id)) {
        return 0; /* a type by name has no text in front */
    }
    if (rc == 0 && n > 0) {
        bool gap = info->text[n - 1] == ' ';
        snprintf(mark, sizeof mark, "%.*s", (int)(n - gap), info->text);
        rc = tw_parse_mark(p, mark);
        rc = rc || !gap ? rc : tw_parse_gap(p);
    }
    return rc ? rc : parse_value(p, o);
}

/* ---- ops ---- */

/* Parses "loop v1 < count id=7 {" after its name. */
static int parse_loop(struct tw_parser *p, struct tw_op *op) {
    int rc = tw_parse_gap(p);
    rc = rc ? rc : parse_variable(p, &op->operand[TW_LOOP_var].id);
    rc = rc ? rc : tw_parse_gap(p);
    rc = rc ? rc : tw_parse_mark(p, "<");
    rc = rc ? rc : tw_parse_gap(p);
    rc = rc ? rc : parse_count(p, &op->operand[TW_LOOP_times]);
    rc = rc ? rc : tw_parse_gap(p);
    op->operand[TW_LOOP_id].id = TW_NONE;
    if (rc == 0 && tw_parse_accept(p, "id=")) {
        rc = tw_parse_u32(p, "the loop id", &op->operand[TW_LOOP_id].id);
        rc = rc ? rc : tw_parse_gap(p);
    }
    return rc ? rc : tw_parse_mark(p, "{");
}

static int parse_op(struct tw_parser *p, uint32_t code) {
    struct tw_op op;
    uint32_t words[TW_MAX_OP_WORDS];
    const struct tw_operand_info *info = tw_op_operands(code);
    int rc = 0;
    memset(&op, 0, sizeof op);
    op.code = code;
    op.stage = p->stage;
    for (; info[op.n_operands].name; op.n_operands++) {
        op.operand[op.n_operands].kind = info[op.n_operands].kind;
    }
    if (code == TW_OP_LOOP) {
        rc = parse_loop(p, &op);
    }
    for (uint32_t i = 0; i < op.n_operands && rc == 0 && code != TW_OP_LOOP; i++) {
        rc = parse_operand(p, &op.operand[i], &info[i]);
    }
    rc = rc ? rc : tw_parse_end_of_line(p);
    if (rc) {
        return rc;
    }
    uint32_t n = tw_op_encode(&op, words);
    return append(p, words, n);
}

static int parse_words(struct tw_parser *p) {
    int rc = tw_parse_gap(p);
    if (rc == 0 && tw_parse_line_ends(p)) {
        return tw_parse_expected(p, "words of the form 0x00000000");
    }
    while (rc == 0 && !tw_parse_line_ends(p)) {
        uint32_t word;
        rc = tw_parse_hex32(p, &word);
        rc = rc ? rc : append(p, &word, 1);
        rc = rc ? rc : tw_parse_gap(p);
    }
    return rc;
}

static int parse_stage(struct tw_parser *p) {
    p->stage = TW_NONE;
    int rc = tw_parse_accept(p, "-") ? 0 : tw_parse_u32(p, "a stage or '-'", &p->stage);
    return rc ? rc : tw_parse_end_of_line(p);
}

int tw_parse_stream_line(struct tw_parser *p) {
    if (tw_parse_accept(p, "}")) {
        return parse_op(p, TW_OP_END);
    }
    if (tw_parse_accept(p, "stage=")) {
        return parse_stage(p);
    }
    size_t n = tw_parse_word(p);
    if (tw_parse_word_is(p, n, "words")) {
        p->at += n;
        return parse_words(p);
    }
    for (uint32_t code = 1; code < TW_OP_LIMIT && n > 0; code++) {
        if (p->op_name[code] && code != TW_OP_END && tw_parse_word_is(p, n, p->op_name[code])) {
            p->at += n;
            return parse_op(p, code);
        }
    }
    return tw_parse_expected(p, "an op, '}', 'words', 'stage=', 'stream' or 'program'");
}
