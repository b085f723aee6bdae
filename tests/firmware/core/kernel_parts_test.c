/* SPDX-License-Identifier: Apache-2.0
 *
 * A MATMUL that is large enough to be run in parts: the same bits as in one call, in both modes,
 * and a cancel between two parts ends it.
 */
#include "firmware/core/kernel_parts.h"

#include "firmware/core/plan/plan.h"
#include "tests/support/machine_run.h"
#include "tests/support/test.h"

enum { ROWS = 40, K = 512, PANELS = 60, COLS = PANELS * 16 };

struct product {
    struct pb *m;
    uint32_t x, w, out;
    struct tw_cancel cancel;
    uint32_t looks, cancel_at; /* 0: never */
};

static bool asked(void *ctx) {
    struct product *p = ctx;
    return ++p->looks >= p->cancel_at && p->cancel_at;
}

static void load(struct pb *m, uint32_t tensor, uint32_t fifo) {
    uint32_t bytes = (uint32_t)m->tensors[tensor].bytes;
    mb_op(m, 0, L, RESERVE, F_(fifo), I_(1));
    mb_op(m, 0, L, READ, T_(tensor, mb_at(0), mb_at(0)), W_(fifo, mb_at(0)), I_(1), I_(bytes),
          I_(bytes), I_(bytes));
    mb_op(m, 0, L, PUSH, F_(fifo), I_(1));
    mb_op(m, 0, M, WAIT, F_(fifo), I_(1));
}

static void product_create(struct product *p) {
    memset(p, 0, sizeof *p);
    struct pb *m = p->m = mb_create(1, 1);
    m->p.sram_bytes[0] = 16 << 20;
    p->x = mb_tensor(m, TW_ROLE_PARAM, TW_INIT_BLOB, ROWS, K, 1);
    p->w = mb_tensor_bytes(m, TW_ROLE_PARAM, TW_INIT_BLOB, COLS, K, TW_PACK_PANEL16,
                           PANELS * tw_panel_bytes(TW_DT_F32, K), 1);
    p->out = mb_tensor(m, TW_ROLE_OUTPUT, TW_INIT_NONE, ROWS, COLS, 1);
    mb_fill(m, p->x);
    mb_fill(m, p->w);
    uint32_t x = pb_fifo(m, 0, TW_ENGINE_LOAD, TW_ENGINE_MATH, 1, m->tensors[p->x].bytes),
             w = pb_fifo(m, 0, TW_ENGINE_LOAD, TW_ENGINE_MATH, 1, m->tensors[p->w].bytes),
             y = pb_fifo(m, 0, TW_ENGINE_MATH, TW_ENGINE_STORE, 1, m->tensors[p->out].bytes);
    load(m, p->x, x);
    load(m, p->w, w);
    mb_op(m, 0, M, RESERVE, F_(y), I_(1));
    mb_op(m, 0, M, MATMUL, R_(x, mb_at(0)), I_(K * 4), R_(w, mb_at(0)), I_(K * 64), I_(TW_DT_F32),
          I_(K), I_(PANELS), mb_region('M', y, mb_at(0)), I_(COLS * 4), I_(0), X_(TW_NONE, ROWS));
    mb_op(m, 0, M, PUSH, F_(y), I_(1));
    mb_op(m, 0, M, POP, F_(x), I_(1));
    mb_op(m, 0, M, POP, F_(w), I_(1));
    mb_op(m, 0, S, WAIT, F_(y), I_(1));
    mb_op(m, 0, S, WRITE, R_(y, mb_at(0)), I_(COLS * 4), U_(p->out, mb_at(0), mb_at(0)),
          I_(COLS * 4), I_(COLS * 4), X_(TW_NONE, ROWS));
    mb_op(m, 0, S, POP, F_(y), I_(1));
    mb_freeze(m);
    p->cancel.interrupt.is_requested = asked;
    p->cancel.interrupt.ctx = p;
    m->config.cancel = &p->cancel;
}

/* One step in either mode; a plan that was cut is INTERRUPTED. */
static int step(struct product *p, bool fast) {
    struct tw_strict *s = NULL;
    struct tw_plan *plan = NULL;
    struct tw_fault f;
    void *memory;
    uint32_t cancel_at = p->cancel_at;
    mb_rewind(p->m);
    p->cancel_at = 0;
    assert_int_equal(fast ? mb_plan(p->m, 1, &memory, &plan, &f) : mb_strict(p->m, &memory, &s, &f),
                     0);
    p->looks = 0;
    p->cancel_at = cancel_at;
    int rc = 0;
    if (fast) {
        assert_int_equal(tw_plan_begin(plan, &f), 0);
        tw_plan_run(plan, 0, NULL, NULL);
        rc = tw_plan_was_cut(plan) ? TW_E_INTERRUPTED : 0;
    } else {
        rc = tw_strict_step(s, TW_SCHED_CANONICAL, 0, &f);
    }
    free(memory);
    return rc;
}

static void one_call(struct product *p, float *y) {
    struct tw_kargs k = {.rows = ROWS, .x_dtype = TW_DT_F32};
    k.p[TW_MATMUL_REGION_x] = mb_data(p->m, p->x, 0);
    k.p[TW_MATMUL_REGION_w] = mb_data(p->m, p->w, 0);
    k.p[TW_MATMUL_REGION_y] = y;
    k.i[TW_MATMUL_IMM_x_stride] = K * 4;
    k.i[TW_MATMUL_IMM_w_stride] = K * 64;
    k.i[TW_MATMUL_IMM_dtype] = TW_DT_F32;
    k.i[TW_MATMUL_IMM_k] = K;
    k.i[TW_MATMUL_IMM_panels] = PANELS;
    k.i[TW_MATMUL_IMM_y_stride] = COLS * 4;
    assert_true(tw_call_work(TW_OP_MATMUL, &k) > TW_PART_WORK);
    assert_true(tw_part_panels(&k) < PANELS && PANELS % tw_part_panels(&k) != 0);
    p->m->config.kernels->fn[TW_OP_MATMUL](&k);
}

static void parts_give_the_bits_of_one_call(void **state) {
    static float y[ROWS][COLS];
    struct product p;
    (void)state;
    product_create(&p);
    for (int isa = 0; isa < TW_ISA_COUNT; isa++) {
        p.m->config.kernels = tw_kernel_table((enum tw_isa)isa);
        if (!p.m->config.kernels) {
            continue;
        }
        one_call(&p, &y[0][0]);
        for (int fast = 0; fast < 2; fast++) {
            assert_int_equal(step(&p, fast), 0);
            assert_memory_equal(mb_data(p.m, p.out, 0), y, sizeof y);
        }
    }
    pb_free(p.m);
}

/* A cancel at each look of a step in turn; one look is between two parts. */
static void a_cancel_between_two_parts_ends_the_step(void **state) {
    struct product p;
    (void)state;
    product_create(&p);
    for (int fast = 0; fast < 2; fast++) {
        p.cancel_at = 0;
        assert_int_equal(step(&p, fast), 0);
        uint32_t looks = p.looks, between = 0;
        for (p.cancel_at = 1; p.cancel_at <= looks; p.cancel_at++) {
            assert_int_equal(step(&p, fast), TW_E_INTERRUPTED);
            assert_int_equal(p.looks, p.cancel_at);
            const float *y = mb_data(p.m, p.out, 0);
            between += y[0] == 0.0f; /* nothing was stored */
        }
        assert_true(between > 0);
    }
    pb_free(p.m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_give_the_bits_of_one_call),
        cmocka_unit_test(a_cancel_between_two_parts_ends_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
