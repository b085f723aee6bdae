/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the reference evaluator against ids, logits and losses that other programs (llama.cpp,
 * torch) computed. The golden ids are fed whatever the evaluator would choose, so that every
 * recorded step is compared.
 */
#include "compiler/arch/arch.h"
#include "driver/tokenizer/tokenizer.h"
#include "loader/bundle/vocab_open.h"
#include "tests/support/golden.h"
#include "tests/support/model_fixture.h"
#include "tests/support/test.h"

#include <math.h>
#include <sys/resource.h>

#define SHIPPED "tests/data/fairytale-1.7m-Q8_0.gguf"
#define SHIPPED_GOLDEN "tests/data/fairytale-1.7m.golden.json"
#define CONTEXT 512u

/* ---- comparison ---- */

/* How far two correct computations may differ: in a logit, and hence in the difference between the
 * two largest ones. `runs`: how many of the file's runs to compare (0: all), where another test has
 * compared them all. */
struct tolerance {
    double logit, gap;
    uint32_t runs;
};

/* Float weights: both sides compute in fp32. (The golden files have five digits.) */
static const struct tolerance exact = {.logit = 2e-4, .gap = 1e-4};
static const struct tolerance exact_few_runs = {.logit = 2e-4, .gap = 1e-4, .runs = 3};

static const float *feed(struct model_fixture *f, uint32_t token) {
    const float *logits = NULL;
    tw_error err = {0};
    if (tw_reference_step(f->reference, token, &logits, &err)) {
        fail_msg("%s", err.message);
    }
    return logits;
}

static const float *feed_all(struct model_fixture *f, const uint32_t *ids, uint32_t n) {
    const float *logits = NULL;
    for (uint32_t i = 0; i < n; i++) {
        logits = feed(f, ids[i]);
    }
    return logits;
}

static void compare_logits(const struct golden_run *run, uint32_t step, const float *logits,
                           double tolerance) {
    for (uint32_t i = 0; i < run->n_logits; i++) {
        const struct golden_logit *g = &run->logits[i];
        if (g->step == step && !(fabs((double)logits[g->id] - g->logit) <= tolerance)) {
            fail_msg("prompt \"%s\", step %u, token %u: logit %.6f, golden %.6f", run->prompt, step,
                     g->id, (double)logits[g->id], g->logit);
        }
    }
}

static void compare_run(struct model_fixture *f, const struct golden_run *run,
                        struct tolerance tolerance) {
    tw_error err = {0};
    assert_int_equal(model_fixture_restart(f, &err), 0);
    const float *logits = feed_all(f, run->prompt_ids, run->n_prompt);
    uint32_t steps = TEST_ASAN && run->n_ids > 30 ? 30 : run->n_ids; /* a sanitized one is slow */
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t best = best_token(logits, f->model.h.n_vocab);
        double gap = (double)logits[best] - (double)logits[run->ids[step]];
        if (!(gap <= tolerance.gap)) {
            fail_msg("prompt \"%s\", step %u: token %u is ahead of golden %u by %f", run->prompt,
                     step, best, run->ids[step], gap);
        }
        compare_logits(run, step, logits, tolerance.logit);
        if (step + 1 < steps) {
            logits = feed(f, run->ids[step]);
        }
    }
}

static void open_model(const char *path, struct model_fixture *f) {
    tw_error err = {0};
    if (model_fixture_open(path, CONTEXT, f, &err)) {
        fail_msg("%s", err.message);
    }
}

static void open_golden(const char *path, const char *suffix, struct golden *g) {
    tw_error err = {0};
    if (golden_load(path, suffix, g, &err)) {
        fail_msg("%s", err.message);
    }
}

static void compare_file(const char *model, const char *golden, const char *suffix,
                         struct tolerance tolerance) {
    struct model_fixture f;
    struct golden g;
    open_model(model, &f);
    open_golden(golden, suffix, &g);
    for (uint32_t i = 0; i < g.n_runs && (i < tolerance.runs || !tolerance.runs); i++) {
        compare_run(&f, &g.runs[i], tolerance);
    }
    golden_finish(&g);
    model_fixture_finish(&f);
}

/* Both paths are relative to the shared data. */
static void compare_shared(const char *model, const char *golden, const char *suffix,
                           struct tolerance tolerance) {
    char model_path[4096];
    const char *path = golden_shared(model);
    if (!path) {
        skip();
    }
    snprintf(model_path, sizeof model_path, "%s", path);
    path = golden_shared(golden);
    if (!path) {
        skip();
    }
    compare_file(model_path, path, suffix, tolerance);
}

/* ---- golden files ---- */

/* llama.cpp quantises the activations too; the reference does not. */
static void the_shipped_model_follows_llama_cpp_within_its_quantised_activations(void **state) {
    (void)state;
    compare_file(SHIPPED, SHIPPED_GOLDEN, "llamacpp_q8_0",
                 (struct tolerance){.logit = 0.15, .gap = 0.06});
}

static void a_tied_llama2c_checkpoint_gives_the_golden_ids_and_logits(void **state) {
    (void)state;
    compare_shared("data/models/stories260K.bin", "data/models/golden/stories260K.json", NULL,
                   exact);
}

static void its_gguf_with_a_separate_output_matrix_gives_them_too(void **state) {
    (void)state;
    compare_shared("data/models/stories260K.gguf", "data/models/golden/stories260K.json", NULL,
                   exact);
}

static void the_fp32_fairy_tale_model_gives_the_ids_and_logits_of_torch(void **state) {
    (void)state;
    compare_shared("data/fairytale/fairytale-1.7m-F32.gguf", "data/fairytale/golden.json",
                   "torch_f32", exact);
}

static void the_fp32_fairy_tale_model_gives_the_ids_and_logits_of_llama_cpp(void **state) {
    (void)state;
    compare_shared("data/fairytale/fairytale-1.7m-F32.gguf", "data/fairytale/golden.json",
                   "llamacpp_f32", exact_few_runs);
}

/* llama.cpp rounds the activations to the weights' type, so the tolerance is that type's. */
static void f16_weights_follow_llama_cpp_within_its_f16_activations(void **state) {
    (void)state;
    struct tolerance half = {.logit = 0.02, .gap = 0.01, .runs = 3};
    compare_shared("data/models/tinystories656K/TinyStories-656K.f16.gguf",
                   "data/models/golden/TinyStories-656K.f16.json", NULL, half);
    compare_shared("data/fairytale/fairytale-1.7m-F16.gguf", "data/fairytale/golden.json",
                   "llamacpp_f16", half);
}

static void bf16_weights_follow_llama_cpp_within_its_bf16_activations(void **state) {
    (void)state;
    compare_shared("data/models/tinystories656K/derived/ts656k-BF16.gguf",
                   "data/models/golden/ts656k-BF16.json", NULL,
                   (struct tolerance){.logit = 0.12, .gap = 0.06, .runs = 2});
}

static void q8_0_weights_follow_llama_cpp_within_its_quantised_activations(void **state) {
    (void)state;
    compare_shared("data/models/tinystories656K/TinyStories-656K-Q8_0.gguf",
                   "data/models/golden/TinyStories-656K-Q8_0.json", NULL,
                   (struct tolerance){.logit = 0.4, .gap = 0.2});
}

static void q4_0_weights_follow_llama_cpp_within_its_quantised_activations(void **state) {
    (void)state;
    compare_shared("data/models/tinystories656K/derived/ts656k-Q4_0.gguf",
                   "data/models/golden/ts656k-Q4_0.json", NULL,
                   (struct tolerance){.logit = 0.4, .gap = 0.2});
}

/* ---- the loss of a text ---- */

static double log_sum_exp(const float *x, uint32_t n) {
    double max = (double)x[best_token(x, n)], sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)x[i] - max);
    }
    return max + log(sum);
}

/* Returns the mean of -log p(token) over all tokens after the first (BOS). */
static double mean_nll(struct model_fixture *f, const struct tw_token_list *tokens) {
    double sum = 0;
    for (size_t i = 0; i + 1 < tokens->n; i++) {
        const float *logits = feed(f, tokens->ids[i]);
        sum += log_sum_exp(logits, f->model.h.n_vocab) - (double)logits[tokens->ids[i + 1]];
    }
    return sum / (double)(tokens->n - 1);
}

static void encode_file(const struct tw_model *model, const char *path, struct tw_token_list *out) {
    static char text[65536];
    struct tw_vocab vocab;
    struct tw_tokenizer *tokenizer = NULL;
    tw_error err = {0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text, file);
    fclose(file);
    assert_int_equal(tw_vocab_open(model->vocab, model->vocab_bytes, &vocab, &err), 0);
    assert_int_equal(tw_tokenizer_create(&vocab, &tokenizer, &err), 0);
    assert_int_equal(tw_tokenizer_encode(tokenizer, text, n, 0, out, &err), 0);
    tw_tokenizer_destroy(tokenizer);
}

static void expect_nll(const char *model, const char *golden, double tolerance) {
    char text[4096], model_path[4096];
    const char *path = golden_shared("data/models/nll.txt");
    if (!path) {
        skip();
    }
    snprintf(text, sizeof text, "%s", path);
    snprintf(model_path, sizeof model_path, "%s/%s", getenv("TW_SHARED"), model);
    struct model_fixture f;
    struct golden g;
    struct tw_token_list tokens = {.n = 0};
    open_model(model_path, &f);
    open_golden(golden_shared(golden), NULL, &g);
    encode_file(&f.model, text, &tokens);
    assert_int_equal(tokens.n - 1, g.nll_tokens);
    double nll = mean_nll(&f, &tokens);
    if (!(fabs(nll - g.mean_nll) <= tolerance)) {
        fail_msg("%s: mean nll %.6f, golden %.6f", model, nll, g.mean_nll);
    }
    tw_token_list_finish(&tokens);
    golden_finish(&g);
    model_fixture_finish(&f);
}

static void the_loss_of_a_text_matches_the_golden_one(void **state) {
    (void)state;
    expect_nll("data/models/stories260K.bin", "data/models/golden/stories260K.json", 1e-5);
    if (TEST_ASAN) {
        return; /* a sanitized evaluator is slow, and the same for each */
    }
    expect_nll("data/models/stories260K.gguf", "data/models/golden/stories260K.json", 1e-5);
    expect_nll("data/models/tinystories656K/TinyStories-656K.f16.gguf",
               "data/models/golden/TinyStories-656K.f16.json", 1e-3);
}

/* ---- one model in two forms ---- */

/* The shipped model and a changed copy of it, for the tests below. */
struct twins {
    struct model_fixture plain, changed;
    struct tw_model_tensor tensors[128];
    uint8_t *copies[64];
    size_t n_copies;
};

static void twins_open(struct twins *t) {
    *t = (struct twins){.n_copies = 0};
    open_model(SHIPPED, &t->plain);
    open_model(SHIPPED, &t->changed);
    struct tw_model *m = &t->changed.model;
    assert_true(m->n_tensors + 1 < 128);
    memcpy(t->tensors, m->tensors, m->n_tensors * sizeof t->tensors[0]);
    m->tensors = t->tensors;
}

/* Builds the changed copy's graph and evaluator after the change. */
static void twins_build(struct twins *t) {
    tw_error err = {0};
    tw_reference_destroy(t->changed.reference); /* while its graph still exists */
    t->changed.reference = NULL;
    t->changed.graph = (struct tw_graph){.mem = &t->changed.mem};
    assert_int_equal(tw_arch_build(&t->changed.model, &t->changed.graph, &err), 0);
    assert_int_equal(tw_reference_create(&t->changed.graph, CONTEXT, &t->changed.reference, &err),
                     0);
}

static uint8_t *twins_copy(struct twins *t, struct tw_model_tensor *tensor) {
    uint8_t *copy = malloc(tensor->bytes);
    assert_non_null(copy);
    assert_true(t->n_copies < 64);
    t->copies[t->n_copies++] = copy;
    memcpy(copy, tensor->data, tensor->bytes);
    tensor->data = copy;
    return copy;
}

static void twins_finish(struct twins *t) {
    model_fixture_finish(&t->plain);
    model_fixture_finish(&t->changed);
    for (size_t i = 0; i < t->n_copies; i++) {
        free(t->copies[i]);
    }
}

/* Returns the largest difference between their logits over some tokens. */
static double twins_difference(struct twins *t) {
    static const uint32_t tokens[] = {1, 403, 407, 261, 378, 432, 383, 286, 261, 376};
    double worst = 0;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        const float *a = feed(&t->plain, tokens[i]), *b = feed(&t->changed, tokens[i]);
        for (uint32_t k = 0; k < t->plain.model.h.n_vocab; k++) {
            worst = fmax(worst, fabs((double)a[k] - (double)b[k]));
        }
    }
    return worst;
}

/* Moves rows 2i and 2i+1 of each head to rows i and i + half. */
static void permute_to_halves(struct twins *t, struct tw_model_tensor *tensor) {
    const uint8_t *from = tensor->data;
    uint8_t *to = twins_copy(t, tensor);
    uint32_t dim = t->plain.model.h.head_dim;
    size_t row_bytes = tw_row_bytes(tensor->dtype, tensor->cols);
    for (uint32_t row = 0; row < tensor->rows; row++) {
        uint32_t within = row % dim;
        uint32_t target = row - within + within / 2 + (within % 2 ? dim / 2 : 0);
        memcpy(to + target * row_bytes, from + row * row_bytes, row_bytes);
    }
}

static void both_rotary_pairings_give_the_same_logits_for_rows_in_their_order(void **state) {
    (void)state;
    struct twins t;
    twins_open(&t);
    assert_int_equal(t.plain.model.h.rope_pairing, TW_ROPE_INTERLEAVED);
    for (uint32_t i = 0; i < t.changed.model.n_tensors; i++) {
        if (strstr(t.tensors[i].name, "attn_q.") || strstr(t.tensors[i].name, "attn_k.")) {
            permute_to_halves(&t, &t.tensors[i]);
        }
    }
    assert_int_equal(t.n_copies, 2 * t.plain.model.h.n_layers);
    t.changed.model.h.rope_pairing = TW_ROPE_HALVES;
    twins_build(&t);
    assert_true(twins_difference(&t) < 1e-4);
    twins_finish(&t);
}

static void rows_in_the_other_pairings_order_give_different_logits(void **state) {
    (void)state;
    struct twins t;
    twins_open(&t);
    t.changed.model.h.rope_pairing = TW_ROPE_HALVES;
    twins_build(&t);
    assert_true(twins_difference(&t) > 0.1);
    twins_finish(&t);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct tw_model_tensor *)a)->name,
                  ((const struct tw_model_tensor *)b)->name);
}

static void untie(struct twins *t, const uint8_t *data) {
    struct tw_model *m = &t->changed.model;
    struct tw_model_tensor output = *tw_model_find(m, "token_embd.weight");
    output.name = "output.weight";
    output.data = data;
    t->tensors[m->n_tensors++] = output;
    qsort(t->tensors, m->n_tensors, sizeof t->tensors[0], by_name);
    m->tied = false;
    twins_build(t);
}

static void a_separate_output_matrix_equal_to_the_embedding_changes_no_bit(void **state) {
    (void)state;
    struct twins t;
    twins_open(&t);
    assert_true(t.plain.model.tied);
    untie(&t, tw_model_find(&t.plain.model, "token_embd.weight")->data);
    assert_true(twins_difference(&t) == 0);
    twins_finish(&t);
}

static void a_separate_output_matrix_is_used_only_for_the_output(void **state) {
    (void)state;
    struct twins t;
    twins_open(&t);
    /* The embedding without its first row: logit k is then the plain model's logit k + 1. */
    const struct tw_model_tensor *embedding = tw_model_find(&t.plain.model, "token_embd.weight");
    size_t row_bytes = tw_row_bytes(embedding->dtype, embedding->cols);
    struct tw_model_tensor shifted = *embedding;
    uint8_t *copy = twins_copy(&t, &shifted);
    memmove(copy, copy + row_bytes, embedding->bytes - row_bytes);
    untie(&t, copy);
    for (uint32_t token = 300; token < 310; token++) {
        const float *a = feed(&t.plain, token), *b = feed(&t.changed, token);
        assert_memory_equal(a + 1, b, (t.plain.model.h.n_vocab - 1) * sizeof *a);
    }
    twins_finish(&t);
}

/* ---- errors ---- */

static void a_token_outside_the_vocabulary_is_refused_and_changes_nothing(void **state) {
    (void)state;
    struct twins t;
    const float *logits = NULL;
    tw_error err = {0};
    twins_open(&t);
    uint32_t n = t.plain.model.h.n_vocab;
    assert_int_equal(tw_reference_n_vocab(t.plain.reference), n);
    feed(&t.plain, 1);
    feed(&t.changed, 1);
    assert_int_equal(tw_reference_step(t.changed.reference, n, &logits, &err), TW_E_RANGE);
    assert_string_equal(err.message, "token 1024: the vocabulary has 1024 tokens");
    assert_int_equal(tw_reference_step(t.changed.reference, UINT32_MAX, &logits, &err), TW_E_RANGE);
    assert_memory_equal(feed(&t.plain, n - 1), feed(&t.changed, n - 1), n * sizeof(float));
    twins_finish(&t);
}

static void a_full_context_is_refused_and_can_be_used_to_its_last_position(void **state) {
    (void)state;
    struct model_fixture f;
    const float *logits = NULL;
    tw_error err = {0};
    assert_int_equal(model_fixture_open(SHIPPED, 3, &f, &err), 0);
    for (uint32_t i = 0; i < 3; i++) {
        feed(&f, 1);
    }
    assert_int_equal(tw_reference_step(f.reference, 1, &logits, &err), TW_E_CONTEXT_FULL);
    assert_string_equal(err.message, "position 3: the context has 3 positions");
    model_fixture_finish(&f);
}

static void a_context_of_zero_positions_is_refused(void **state) {
    (void)state;
    struct model_fixture f;
    struct tw_reference *r = NULL;
    tw_error err = {0};
    open_model(SHIPPED, &f);
    assert_int_equal(tw_reference_create(&f.graph, 0, &r, &err), TW_E_USAGE);
    assert_null(r);
    model_fixture_finish(&f);
}

static void a_context_that_exceeds_memory_is_refused(void **state) {
    (void)state;
    struct model_fixture f;
    struct tw_reference *r = NULL;
    struct rlimit before, tight;
    tw_error err = {0};
    if (TEST_ASAN) {
        skip(); /* the sanitizer needs the address space */
    }
    open_model(SHIPPED, &f);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    tight = before;
    tight.rlim_cur = (rlim_t)1 << 30;
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    int rc = tw_reference_create(&f.graph, UINT32_MAX, &r, &err);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(rc, TW_E_NOMEM);
    assert_null(r);
    model_fixture_finish(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shipped_model_follows_llama_cpp_within_its_quantised_activations),
        cmocka_unit_test(a_tied_llama2c_checkpoint_gives_the_golden_ids_and_logits),
        cmocka_unit_test(its_gguf_with_a_separate_output_matrix_gives_them_too),
        cmocka_unit_test(the_fp32_fairy_tale_model_gives_the_ids_and_logits_of_torch),
        cmocka_unit_test(the_fp32_fairy_tale_model_gives_the_ids_and_logits_of_llama_cpp),
        cmocka_unit_test(f16_weights_follow_llama_cpp_within_its_f16_activations),
        cmocka_unit_test(bf16_weights_follow_llama_cpp_within_its_bf16_activations),
        cmocka_unit_test(q8_0_weights_follow_llama_cpp_within_its_quantised_activations),
        cmocka_unit_test(q4_0_weights_follow_llama_cpp_within_its_quantised_activations),
        cmocka_unit_test(the_loss_of_a_text_matches_the_golden_one),
        cmocka_unit_test(both_rotary_pairings_give_the_same_logits_for_rows_in_their_order),
        cmocka_unit_test(rows_in_the_other_pairings_order_give_different_logits),
        cmocka_unit_test(a_separate_output_matrix_equal_to_the_embedding_changes_no_bit),
        cmocka_unit_test(a_separate_output_matrix_is_used_only_for_the_output),
        cmocka_unit_test(a_token_outside_the_vocabulary_is_refused_and_changes_nothing),
        cmocka_unit_test(a_full_context_is_refused_and_can_be_used_to_its_last_position),
        cmocka_unit_test(a_context_of_zero_positions_is_refused),
        cmocka_unit_test(a_context_that_exceeds_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
