/* SPDX-License-Identifier: Apache-2.0
 *
 * The step budget (rule 29): how many ops one step executes at most, loops multiplied out. One pass
 * over each stream with a stack of open loops; sums and products saturate.
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
