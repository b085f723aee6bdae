/* SPDX-License-Identifier: Apache-2.0
 *
 * Budgets. Of a step (rule 29): how many ops it executes at most, loops multiplied out; one pass
 * over each stream with a stack of open loops, sums and products saturate. Of the check itself: so
 * that its work and memory are in proportion to the program, each resource may cost a constant, and
 * so much for each op, access or byte of the streams. Compiled programs stay far below (`make
 * bench-order`).
 */
#include "loader/order/check_internal.h"

static uint64_t saturating_add(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t saturating_mul(uint64_t a, uint64_t b) {
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

static uint64_t stream_ops(const struct tw_stream *s) {
    uint64_t times[TW_CK_MAX_DEPTH + 1] = {1}, sum = 0;
    uint32_t depth = 0;
    struct tw_op op;
    for (uint32_t at = 0; at < s->n_words; at += op.n_words) {
        if (!tw_op_decode(s->words, s->n_words, at, &op)) {
            return UINT64_MAX; /* the verifier refuses it */
        }
        sum = saturating_add(sum, times[depth]);
        if (op.code == TW_OP_LOOP && depth < TW_CK_MAX_DEPTH) {
            times[depth + 1] = saturating_mul(times[depth], op.operand[TW_LOOP_times].max);
            depth++;
        } else if (op.code == TW_OP_END && depth > 0) {
            depth--;
        }
    }
    return sum;
}

uint64_t tw_program_step_ops(const struct tw_program *p) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_sites * TW_ENGINE_COUNT; i++) {
        sum = saturating_add(sum, stream_ops(&p->streams[i]));
    }
    return sum;
}

int tw_ck_budget(struct tw_checker *c) {
    uint64_t ops = tw_program_step_ops(c->p);
    tw_ck_count(c, TW_ORDER_step_budget);
    if (ops > TW_MAX_STEP_OPS) {
        return tw_ck_fail(c, TW_ORDER_step_budget,
                          "a step executes up to %llu ops; the maximum is %llu",
                          (unsigned long long)ops, (unsigned long long)TW_MAX_STEP_OPS);
    }
    if (c->cert->step_ops != TW_STEP_OPS_UNSTATED && c->cert->step_ops != ops) {
        return tw_ck_fail(c, TW_ORDER_step_budget,
                          "the certificate states %llu ops per step; the program has %llu",
                          (unsigned long long)c->cert->step_ops, (unsigned long long)ops);
    }
    return 0;
}

/* ---- the check itself ---- */

enum measure { ACCESS, EXECUTED_OP, STREAM_BYTE };

/* Rule: the one that cannot be decided then. */
static const struct {
    const char *unit;
    enum measure measure;
    uint32_t per;
    uint64_t free;
    enum tw_order_rule rule;
} budgets[TW_CK_RESOURCES] = {
    [TW_CK_COMPARISONS] = {"comparisons of accesses", ACCESS, 4096, 1 << 26, TW_ORDER_race_free},
    [TW_CK_CLOCK_WORK] = {"numbers of what engines know of each other", EXECUTED_OP, 256, 1 << 28,
                          TW_ORDER_race_free},
    [TW_CK_CLOCK_BYTES] = {"bytes for what engines know of each other", STREAM_BYTE, 64, 1 << 24,
                           TW_ORDER_race_free},
    [TW_CK_LOG_BYTES] = {"bytes for accesses", STREAM_BYTE, 64, 1 << 24, TW_ORDER_race_free},
    [TW_CK_SPAN_BYTES] = {"bytes for what is written", STREAM_BYTE, 64, 1 << 24, TW_ORDER_defined},
    [TW_CK_TABLE_BYTES] = {"bytes for FIFO pages and semaphore words", STREAM_BYTE, 64, 1 << 24,
                           TW_ORDER_certificate},
};

int tw_ck_spend(struct tw_checker *c, enum tw_ck_resource r, uint64_t amount) {
    static const char *const measures[] = {"access", "op", "byte of the streams"};
    c->spent[r] += amount;
    if (c->spent[r] <= budgets[r].free) {
        return 0;
    }
    uint64_t n = budgets[r].measure == ACCESS        ? c->accesses
                 : budgets[r].measure == EXECUTED_OP ? c->executed
                                                     : c->bytes_of_streams;
    uint64_t max = budgets[r].free + budgets[r].per * n;
    if (c->spent[r] <= max) {
        return 0;
    }
    return tw_ck_fail(c, budgets[r].rule,
                      "checking takes more than %llu %s (%llu, and %u for each %s so far); use "
                      "fewer engines at once, or more sections",
                      (unsigned long long)max, budgets[r].unit, (unsigned long long)budgets[r].free,
                      budgets[r].per, measures[budgets[r].measure]);
}
