/* SPDX-License-Identifier: Apache-2.0
 *
 * Every kernel of every instruction set of this processor gives the scalar kernel's bits.
 */
#include "tests/support/kernel_cases.h"
#include "tests/support/test.h"

enum { SEED = 20240611 };

/* ---- the tables ---- */

static void every_table_has_its_name_all_data_ops_and_no_control_op(void **state) {
    (void)state;
    for (int isa = 0; isa < TW_ISA_COUNT; isa++) {
        const struct tw_kernel_table *t = tw_kernel_table((enum tw_isa)isa);
        if (t) {
            assert_string_equal(t->name, tw_isa_name((enum tw_isa)isa));
        }
        for (uint32_t op = 0; t && op < TW_OP_LIMIT; op++) {
            bool data = tw_op_info(op).name &&
                        ((op >= TW_OP_READ && op <= TW_OP_MCAST) || op >= TW_OP_SEND);
            if (data != (t->fn[op] != NULL)) {
                fail_msg("%s: op %u", t->name, op);
            }
        }
    }
    assert_non_null(tw_kernel_table(TW_ISA_SCALAR));
    assert_null(tw_kernel_table(TW_ISA_COUNT));
}

static void the_best_table_is_the_last_one_the_processor_supports(void **state) {
    (void)state;
    const struct tw_kernel_table *best = NULL;
    for (int isa = 0; isa < TW_ISA_COUNT; isa++) {
        const struct tw_kernel_table *t = tw_kernel_table((enum tw_isa)isa);
        best = t ? t : best;
    }
    assert_ptr_equal(tw_kernel_table_best(), best);
    print_message("best: %s\n", best->name);
}

/* A chunk of rows gives the same bits as its rows one by one. */
static void matmul_does_not_depend_on_the_chunk(void **state) {
    (void)state;
    struct fixture_random r = {SEED + 5};
    enum { ROWS = 23, PANELS = 3, COLS = 16 * PANELS };
    for (unsigned dtype = 0; dtype < TW_DT_COUNT; dtype++) {
        const uint32_t k = tw_dtype_block_elems(dtype) == 256 ? 768 : 576;
        unsigned x_dtype = tw_dtype_activation(dtype);
        if (tw_panel_bytes(dtype, k) == 0) {
            continue;
        }
        char *x = fixture_activations(&r, x_dtype, ROWS, k);
        uint32_t stride = (uint32_t)tw_row_bytes(x_dtype, k);
        uint8_t *w = fixture_panels(&r, dtype, k, PANELS);
        float chunk[ROWS][COLS], single[ROWS][COLS];
        struct tw_kargs a = {
            .p = {x, w, chunk},
            .i = {stride, (uint32_t)tw_panel_bytes(dtype, k), dtype, k, PANELS, COLS * 4, 0},
            .rows = ROWS};
        a.x_dtype = x_dtype;
        tw_kernel_table_best()->fn[TW_OP_MATMUL](&a);
        a.rows = 1;
        for (uint32_t row = 0; row < ROWS; row++) {
            a.p[0] = x + (size_t)stride * row;
            a.p[2] = single[row];
            tw_kernel_table_best()->fn[TW_OP_MATMUL](&a);
        }
        assert_memory_equal(chunk, single, sizeof chunk);
        free(w);
        free(x);
    }
}

/* ---- the cases ---- */

static void same_bits(uint32_t op, const struct tw_kargs *args, unsigned out, size_t bytes,
                      enum fixture_kind kind, const char *what) {
    char message[FIXTURE_MESSAGE];
    if (fixture_differs(op, args, out, bytes, kind, what, message)) {
        fail_msg("%s", message);
    }
}

static void run_case(void **state) {
    const struct kernel_case *c = *state;
    c->run(same_bits);
}

int main(void) {
    struct CMUnitTest tests[3 + KERNEL_CASES] = {
        cmocka_unit_test(every_table_has_its_name_all_data_ops_and_no_control_op),
        cmocka_unit_test(the_best_table_is_the_last_one_the_processor_supports),
        cmocka_unit_test(matmul_does_not_depend_on_the_chunk),
    };
    for (uint32_t i = 0; i < KERNEL_CASES; i++) {
        tests[3 + i] = (struct CMUnitTest){.name = kernel_cases[i].name,
                                           .test_func = run_case,
                                           .initial_state = (void *)(uintptr_t)&kernel_cases[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
