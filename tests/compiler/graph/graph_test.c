/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the ComputeGraph: the checker on graphs broken in one place each, the printer, and the
 * frequencies that arch/ computes for a Llama graph. All start from the shipped model.
 */
#include "compiler/arch/arch.h"
#include "tests/support/model_fixture.h"
#include "tests/support/test.h"

#include <math.h>

#define SHIPPED "tests/data/fairytale-1.7m-Q8_0.gguf"
#define EXPECTED "tests/golden/graph-fairytale.txt"

static int set_up(void **state) {
    tw_error err = {0};
    struct model_fixture *f = calloc(1, sizeof *f);
    *state = f;
    return f ? model_fixture_open(SHIPPED, 0, f, &err) : -1;
}

static int tear_down(void **state) {
    model_fixture_finish(*state);
    free(*state);
    return 0;
}

static struct tw_gop *op_of(struct tw_graph *g, enum tw_gop_kind kind, const char *name) {
    for (uint32_t i = 0; i < g->ops.n; i++) {
        if (g->ops.items[i].kind == kind && !strcmp(g->ops.items[i].name, name)) {
            return &g->ops.items[i];
        }
    }
    fail_msg("no operation %s", name);
    return NULL;
}

static struct tw_gvalue *value_of(struct tw_graph *g, const char *name) {
    for (uint32_t i = 0; i < g->values.n; i++) {
        if (!strcmp(g->values.items[i].name, name)) {
            return &g->values.items[i];
        }
    }
    fail_msg("no value %s", name);
    return NULL;
}

static tw_gvalue_id id_of(struct tw_graph *g, const char *name) {
    return (tw_gvalue_id)(value_of(g, name) - g->values.items);
}

/* Checks that the graph is refused with exactly this message. */
static void expect_refused(const struct tw_graph *g, const char *message) {
    tw_error err = {0};
    assert_int_equal(tw_graph_check(g, &err), TW_E_INTERNAL);
    assert_string_equal(err.message, message);
}

/* ---- the checker ---- */

static void a_llama_graph_passes_the_checker(void **state) {
    struct model_fixture *f = *state;
    tw_error err = {0};
    assert_int_equal(tw_graph_check(&f->graph, &err), 0);
}

static void an_input_that_is_not_a_value_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    op_of(g, TW_GOP_ADD, "attn_residual")->in[1] = g->values.n;
    expect_refused(g, "graph: layer.attn_residual (add): an input does not name a value");
    op_of(g, TW_GOP_ADD, "attn_residual")->in[1] = TW_NONE;
    expect_refused(g, "graph: layer.attn_residual (add): an input does not name a value");
}

static void an_input_that_is_defined_later_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    op_of(g, TW_GOP_ADD, "attn_residual")->in[1] = id_of(g, "ffn_down");
    expect_refused(g, "graph: layer.attn_residual (add): an input is used before it is defined");
}

static void an_operation_that_reads_its_own_output_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    struct tw_gop *op = op_of(g, TW_GOP_ADD, "attn_residual");
    op->in[0] = op->out;
    expect_refused(g, "graph: layer.attn_residual (add): an input is used before it is defined");
}

static void a_value_of_another_region_is_refused_unless_shared(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    tw_error err = {0};
    op_of(g, TW_GOP_LAST_ROW, "last")->in[0] = id_of(g, "ffn_down");
    expect_refused(g, "graph: head.last (last_row): an input of another region is not shared");
    value_of(g, "ffn_down")->shared = 1;
    assert_int_equal(tw_graph_check(g, &err), 0);
}

static void weights_for_the_wrong_number_of_layers_are_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    value_of(g, "ffn_up.weight")->instances = 7;
    expect_refused(
        g, "graph: layer.ffn_up (matmul): a sequence's length differs from the region's repeat");
}

static void states_for_the_wrong_number_of_layers_are_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    value_of(g, "attn.value")->instances = 9;
    expect_refused(
        g,
        "graph: layer.append_v (kv_append): a sequence's length differs from the region's repeat");
}

static void a_value_defined_twice_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    op_of(g, TW_GOP_MATMUL, "ffn_up")->out = id_of(g, "ffn_gate");
    expect_refused(g, "graph: layer.ffn_up (matmul): its output is defined twice");
}

static void a_gather_into_a_different_width_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    value_of(g, "x")->cols = 127;
    expect_refused(g, "graph: embed.token_embd (gather): table and output differ in width");
}

static void a_rotary_table_of_the_wrong_width_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    value_of(g, "rope")->cols = 16;
    expect_refused(
        g, "graph: embed.rope (rope_table): the output is not twice as wide as the frequencies");
}

static void a_norm_with_a_weight_of_the_wrong_width_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    value_of(g, "ffn_norm.weight")->cols = 64;
    expect_refused(g, "graph: layer.ffn_norm (rms_norm): widths differ");
}

static void a_product_of_mismatched_dimensions_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    struct tw_gvalue *w = value_of(g, "ffn_down.weight");
    w->cols = 416;
    expect_refused(g, "graph: layer.ffn_down (matmul): inner or outer dimensions do not match");
    w->cols = 384;
    w->rows = 129;
    expect_refused(g, "graph: layer.ffn_down (matmul): inner or outer dimensions do not match");
}

static void quantised_weights_take_float_activations(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    op_of(g, TW_GOP_MATMUL, "ffn_gate")->in[0] = id_of(g, "ffn_norm");
    assert_int_equal(tw_graph_check(g, NULL), 0);
}

static void activations_in_blocks_of_another_size_are_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    value_of(g, "ffn_norm_q8")->dtype = TW_DT_Q8K;
    expect_refused(
        g, "graph: layer.ffn_gate (matmul): the activation's type does not match the weight's");
}

static void quantised_activations_with_float_weights_are_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    value_of(g, "ffn_gate.weight")->dtype = TW_DT_F16;
    expect_refused(
        g, "graph: layer.ffn_gate (matmul): the activation's type does not match the weight's");
}

static void a_sum_of_different_widths_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    op_of(g, TW_GOP_ADD, "attn_residual")->in[0] = id_of(g, "attn_k");
    expect_refused(g, "graph: layer.attn_residual (add): widths differ");
}

static void a_gate_of_the_wrong_width_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    op_of(g, TW_GOP_SILU_MUL, "ffn_act")->in[0] = id_of(g, "attn_output");
    expect_refused(g, "graph: layer.ffn_act (silu_mul): widths differ");
}

static void rotated_heads_that_do_not_fill_the_row_are_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    struct tw_gop *op = op_of(g, TW_GOP_ROPE, "rope_q");
    op->n_heads = 3;
    expect_refused(g, "graph: layer.rope_q (rope): heads do not match the widths");
    op->n_heads = 4;
    op->rope_dims = op->head_dim + 2;
    expect_refused(g, "graph: layer.rope_q (rope): heads do not match the widths");
}

static void attention_heads_that_do_not_fit_output_state_or_groups_are_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    static const char message[] =
        "graph: layer.attention (attention): heads do not match the state";
    struct tw_gop *op = op_of(g, TW_GOP_ATTENTION, "attention");
    op->n_heads = 2;
    expect_refused(g, message);
    op->n_heads = 4;
    op->n_kv_heads = 4;
    expect_refused(g, message);
    op->n_kv_heads = 3;
    expect_refused(g, message);
}

static void an_input_of_the_wrong_kind_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    op_of(g, TW_GOP_MATMUL, "ffn_up")->in[1] = id_of(g, "attn_output");
    expect_refused(g, "graph: layer.ffn_up (matmul): an input has the wrong kind");
}

static void an_output_that_is_not_an_activation_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    struct tw_gop *op = op_of(g, TW_GOP_ADD, "attn_residual");
    op->out = g->values.n;
    expect_refused(g, "graph: layer.attn_residual (add): its output is not an activation");
    op->out = id_of(g, "ffn_norm.weight");
    expect_refused(g, "graph: layer.attn_residual (add): its output is not an activation");
    op->out = TW_NONE;
    expect_refused(g, "graph: layer.attn_residual (add): it has no output");
}

static void an_output_of_an_operation_without_output_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    op_of(g, TW_GOP_KV_APPEND, "append_k")->out = id_of(g, "ffn_down");
    expect_refused(g, "graph: layer.append_k (kv_append): it has an output");
}

static void rows_that_do_not_fit_the_state_are_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    op_of(g, TW_GOP_KV_APPEND, "append_v")->in[0] = id_of(g, "attn_norm");
    expect_refused(g, "graph: layer.append_v (kv_append): row and state differ in width");
}

static void attention_without_key_heads_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    op_of(g, TW_GOP_ATTENTION, "attention")->n_kv_heads = 0;
    expect_refused(g, "graph: layer.attention (attention): heads do not match the state");
}

static void a_last_row_of_a_different_width_is_refused(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    value_of(g, "last")->cols = 64;
    expect_refused(g, "graph: head.last (last_row): widths differ");
}

static void a_carried_value_must_be_an_earlier_one_of_the_same_width(void **state) {
    struct tw_graph *g = &((struct model_fixture *)*state)->graph;
    struct tw_gregion *layer = &g->regions.items[1];
    tw_gvalue_id in = layer->carry_in, out = layer->carry_out;
    layer->carry_in = g->values.n;
    expect_refused(g, "graph: region layer: a carried value does not name a value");
    layer->carry_in = id_of(g, "ffn_up");
    expect_refused(g, "graph: region layer: carry_in is not a shared value of an earlier region");
    layer->carry_in = in;
    layer->carry_out = in;
    expect_refused(g, "graph: region layer: carry_out is not a value of this region");
    layer->carry_out = id_of(g, "ffn_up");
    expect_refused(g, "graph: region layer: carry_in and carry_out differ in width");
    layer->carry_out = out;
}

/* ---- the printer ---- */

static void the_shipped_models_graph_prints_as_expected(void **state) {
    struct model_fixture *f = *state;
    char *text = NULL, expected[16384];
    size_t n = 0;
    FILE *out = open_memstream(&text, &n), *file = fopen(EXPECTED, "rb");
    assert_non_null(out);
    assert_non_null(file);
    tw_graph_print(&f->graph, out);
    fclose(out);
    expected[fread(expected, 1, sizeof expected - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, expected);
    free(text);
}

/* ---- rotary frequencies ---- */

/* The numbers below were computed in double by a Python program written from the formulas of the
 * papers and model cards. */

static void expect_frequencies(struct model_fixture *f, const struct tw_hparams *h,
                               const float *expected, uint32_t n) {
    tw_error err = {0};
    f->model.h = *h;
    f->graph = (struct tw_graph){.mem = &f->mem};
    assert_int_equal(tw_arch_build(&f->model, &f->graph, &err), 0);
    const struct tw_gvalue *v = value_of(&f->graph, "rope.freq");
    assert_int_equal(v->cols, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!(fabsf(v->constant[i] - expected[i]) <= 2e-7f * expected[i])) {
            fail_msg("frequency %u is %.9g, expected %.9g", i, (double)v->constant[i],
                     (double)expected[i]);
        }
    }
}

static void unscaled_frequencies_are_powers_of_theta(void **state) {
    struct model_fixture *f = *state;
    static const float expected[16] = {1,
                                       0.562341332f,
                                       0.316227764f,
                                       0.177827939f,
                                       0.100000001f,
                                       0.0562341325f,
                                       0.0316227749f,
                                       0.0177827943f,
                                       0.00999999978f,
                                       0.00562341325f,
                                       0.00316227763f,
                                       0.00177827943f,
                                       0.00100000005f,
                                       0.000562341302f,
                                       0.000316227757f,
                                       0.00017782794f};
    struct tw_hparams h = f->model.h;
    expect_frequencies(f, &h, expected, 16);
}

static void frequencies_of_partly_rotated_heads_count_the_rotated_dimensions(void **state) {
    struct model_fixture *f = *state;
    static const float expected[8] = {1,
                                      0.316227764f,
                                      0.100000001f,
                                      0.0316227749f,
                                      0.00999999978f,
                                      0.00316227763f,
                                      0.00100000005f,
                                      0.000316227757f};
    struct tw_hparams h = f->model.h;
    h.rope_dims = 16;
    expect_frequencies(f, &h, expected, 8);
}

static void linear_scaling_divides_all_frequencies(void **state) {
    struct model_fixture *f = *state;
    static const float expected[16] = {
        0.25f,           0.140585333f,    0.079056941f,    0.0444569848f,
        0.0250000004f,   0.0140585331f,   0.00790569372f,  0.00444569858f,
        0.00249999994f,  0.00140585331f,  0.000790569407f, 0.000444569858f,
        0.000250000012f, 0.000140585325f, 7.90569393e-05f, 4.44569851e-05f};
    struct tw_hparams h = f->model.h;
    h.rope_scaling = TW_ROPE_SCALING_LINEAR;
    h.rope_factor = 4;
    expect_frequencies(f, &h, expected, 16);
}

static void frequency_factors_divide_each_frequency(void **state) {
    struct model_fixture *f = *state;
    static const float factors[16] = {1, 1.5f, 2, 2.5f, 3, 3.5f, 4, 4.5f,
                                      5, 5.5f, 6, 6.5f, 7, 7.5f, 8, 8.5f};
    static const float expected[16] = {1,
                                       0.374894232f,
                                       0.158113882f,
                                       0.0711311772f,
                                       0.0333333351f,
                                       0.0160668958f,
                                       0.00790569372f,
                                       0.00395173207f,
                                       0.00200000009f,
                                       0.00102243875f,
                                       0.000527046272f,
                                       0.000273581449f,
                                       0.000142857141f,
                                       7.49788451e-05f,
                                       3.95284696e-05f,
                                       2.09209338e-05f};
    struct tw_hparams h = f->model.h;
    h.rope_freq_factors = factors;
    expect_frequencies(f, &h, expected, 16);
}

/* ---- refusals of arch/ ---- */

static void an_unknown_architecture_is_refused_by_name(void **state) {
    struct model_fixture *f = *state;
    struct tw_graph g = {.mem = &f->mem};
    tw_error err = {0};
    f->model.arch = "mamba";
    assert_int_equal(tw_arch_build(&f->model, &g, &err), TW_E_UNSUPPORTED);
    assert_non_null(strstr(err.message,
                           SHIPPED ": architecture \"mamba\" is not supported yet (it "
                                   "has recurrent layers); supported: llama, qwen2, "));
}

static void an_odd_or_huge_head_dimension_is_refused(void **state) {
    struct model_fixture *f = *state;
    struct tw_graph g = {.mem = &f->mem};
    tw_error err = {0};
    f->model.h.head_dim = 33;
    assert_int_equal(tw_arch_build(&f->model, &g, &err), TW_E_UNSUPPORTED);
    assert_string_equal(err.message, SHIPPED
                        ": head dimension 33 is not supported; supported: even numbers up to 512");
    f->model.h.head_dim = 514;
    assert_int_equal(tw_arch_build(&f->model, &g, &err), TW_E_UNSUPPORTED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_llama_graph_passes_the_checker),
        TEST(an_input_that_is_not_a_value_is_refused),
        TEST(an_input_that_is_defined_later_is_refused),
        TEST(an_operation_that_reads_its_own_output_is_refused),
        TEST(a_value_of_another_region_is_refused_unless_shared),
        TEST(weights_for_the_wrong_number_of_layers_are_refused),
        TEST(states_for_the_wrong_number_of_layers_are_refused),
        TEST(a_value_defined_twice_is_refused),
        TEST(a_gather_into_a_different_width_is_refused),
        TEST(a_rotary_table_of_the_wrong_width_is_refused),
        TEST(a_norm_with_a_weight_of_the_wrong_width_is_refused),
        TEST(a_product_of_mismatched_dimensions_is_refused),
        TEST(quantised_weights_take_float_activations),
        TEST(activations_in_blocks_of_another_size_are_refused),
        TEST(quantised_activations_with_float_weights_are_refused),
        TEST(a_sum_of_different_widths_is_refused),
        TEST(a_gate_of_the_wrong_width_is_refused),
        TEST(rotated_heads_that_do_not_fill_the_row_are_refused),
        TEST(attention_heads_that_do_not_fit_output_state_or_groups_are_refused),
        TEST(an_input_of_the_wrong_kind_is_refused),
        TEST(an_output_that_is_not_an_activation_is_refused),
        TEST(an_output_of_an_operation_without_output_is_refused),
        TEST(rows_that_do_not_fit_the_state_are_refused),
        TEST(attention_without_key_heads_is_refused),
        TEST(a_last_row_of_a_different_width_is_refused),
        TEST(a_carried_value_must_be_an_earlier_one_of_the_same_width),
        TEST(the_shipped_models_graph_prints_as_expected),
        TEST(unscaled_frequencies_are_powers_of_theta),
        TEST(frequencies_of_partly_rotated_heads_count_the_rotated_dimensions),
        TEST(linear_scaling_divides_all_frequencies),
        TEST(frequency_factors_divide_each_frequency),
        TEST(an_unknown_architecture_is_refused_by_name),
        TEST(an_odd_or_huge_head_dimension_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
