/* SPDX-License-Identifier: Apache-2.0
 *
 * The built command against golden ids and against itself: for real models, `tilewright run` gives
 * the ids that llama.cpp gave, the same bits of logits on every target, mode, number of threads,
 * chunk and instruction set, and for float weights the logits of the reference evaluator.
 *
 * One run on target host (the base) is compared with the results of other programs; all others with
 * the base, byte by byte. Needs $TW_BIN.
 */
#include "firmware/kernels/kernels.h"
#include "tests/support/command_run.h"
#include "tests/support/golden.h"
#include "tests/support/model_fixture.h"
#include "tests/support/test.h"

#include <math.h>

#define BASE_TOKENS 72u
#define FED_TOKENS 64u /* number of the base's ids that are put into the prompt */

/* `error`: how far two correct computations may differ in a logit, and so in which of two nearly
 * equal ones is the larger. With quantised weights they agree to the last digits until one
 * activation is rounded to a different 8-bit value, and differ by the noise of 8-bit activations
 * from then on. `first` is the limit for the logits after the prompt, which most prompts must
 * meet. */
struct subject {
    const char *model, *golden; /* below TW_SHARED if `shared` */
    const char *suffix;
    bool shared;
    bool floats; /* weights that the reference evaluator computes with as the machine does */
    double first, error;
};

static const struct subject fairytale = {.model = "tests/data/fairytale-1.7m-Q8_0.gguf",
                                         .golden = "tests/data/fairytale-1.7m.golden.json",
                                         .suffix = "llamacpp_q8_0",
                                         .first = 0.005,
                                         .error = 0.08};
static const struct subject stories_bin = {.model = "data/models/stories260K.bin",
                                           .golden = "data/models/golden/stories260K.json",
                                           .shared = true,
                                           .floats = true,
                                           .first = 2e-4,
                                           .error = 2e-4};
static const struct subject stories_gguf = {.model = "data/models/stories260K.gguf",
                                            .golden = "data/models/golden/stories260K.json",
                                            .shared = true,
                                            .floats = true,
                                            .first = 2e-4,
                                            .error = 2e-4};
/* llama.cpp rounds the activations to F16. */
static const struct subject tinystories_f16 = {
    .model = "data/models/tinystories656K/TinyStories-656K.f16.gguf",
    .golden = "data/models/golden/TinyStories-656K.f16.json",
    .shared = true,
    .floats = true,
    .first = 0.02,
    .error = 0.02};
static const struct subject tinystories_q8_0 = {
    .model = "data/models/tinystories656K/TinyStories-656K-Q8_0.gguf",
    .golden = "data/models/golden/TinyStories-656K-Q8_0.json",
    .shared = true,
    .first = 0.005,
    .error = 0.25};
static const struct subject tinystories_q4_0 = {
    .model = "data/models/tinystories656K/derived/ts656k-Q4_0.gguf",
    .golden = "data/models/golden/ts656k-Q4_0.json",
    .shared = true,
    .first = 0.005,
    .error = 0.25};

/* Rows of 128 are no whole super-blocks, so its matrices are Q5_0 and Q8_0, mixed. */
static const struct subject tinystories_q4_k_m = {
    .model = "data/models/tinystories656K/derived/ts656k-Q4_K_M.gguf",
    .golden = "data/models/golden/ts656k-Q4_K_M.json",
    .shared = true,
    .first = 0.005,
    .error = 0.25};

/* ---- one subject, opened ---- */

struct opened {
    const struct subject *subject;
    char path[4096];
    struct model_fixture fixture;
    struct golden golden;
    struct command_output base; /* of the first prompt */
};

static void run_model(const struct opened *o, struct command_run run, struct command_output *out) {
    tw_error err = {0};
    run.model = o->path;
    if (command_run(&run, o->fixture.model.h.n_vocab, out, &err)) {
        fail_msg("%s", err.message);
    }
}

/* The run that the others are compared with: 72 tokens after the first prompt. */
static struct command_run base_run(const struct opened *o) {
    const struct golden_run *first = &o->golden.runs[0];
    return (struct command_run){.model = o->path,
                                .ids = first->prompt_ids,
                                .n_ids = first->n_prompt,
                                .n = BASE_TOKENS,
                                .target = "host",
                                .mode = "fast",
                                .threads = 1};
}

static const char *path_of(const struct subject *s, const char *rest) {
    return s->shared ? golden_shared(rest) : rest;
}

static int open_subject(void **state, const struct subject *s) {
    tw_error err = {0};
    struct opened *o = calloc(1, sizeof *o);
    *state = o;
    const char *why = command_absent();
    if (!o || why) {
        fprintf(stderr, "skipped: %s\n", why ? why : "no memory");
        return 0;
    }
    const char *path = path_of(s, s->model);
    if (!path) {
        return 0;
    }
    snprintf(o->path, sizeof o->path, "%s", path);
    command_folder();
    path = path_of(s, s->golden);
    if (!path || golden_load(path, s->suffix, &o->golden, &err) ||
        model_fixture_open(o->path, 512, &o->fixture, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return -1;
    }
    o->subject = s;
    run_model(o, base_run(o), &o->base);
    return 0;
}

static int close_subject(void **state) {
    struct opened *o = *state;
    command_output_finish(&o->base);
    if (o->subject) {
        golden_finish(&o->golden);
        model_fixture_finish(&o->fixture);
    }
    free(o);
    return 0;
}

static struct opened *opened_or_skip(void **state) {
    struct opened *o = *state;
    if (!o || !o->subject) {
        skip();
    }
    return o;
}

/* ---- against golden ids ---- */

static const float *row(const struct command_output *out, uint32_t i) {
    return out->logits + (size_t)i * out->n_vocab;
}

/* The largest difference from a golden logit of this step. */
static double logit_difference(const struct golden_run *run, uint32_t step, const float *logits) {
    double worst = 0;
    for (uint32_t i = 0; i < run->n_logits; i++) {
        if (run->logits[i].step == step) {
            worst = fmax(worst, fabs((double)logits[run->logits[i].id] - run->logits[i].logit));
        }
    }
    return worst;
}

static void compare_step(const struct opened *o, const struct golden_run *run, uint32_t step,
                         uint32_t id, const float *logits) {
    uint32_t best = best_token(logits, o->fixture.model.h.n_vocab);
    double gap = (double)logits[best] - (double)logits[run->ids[step]];
    if (id != best) {
        fail_msg("prompt \"%s\", step %u: chose token %u, the best is %u", run->prompt, step, id,
                 best);
    }
    if (!(gap <= o->subject->error)) {
        fail_msg("prompt \"%s\", step %u: token %u exceeds golden %u by %f", run->prompt, step,
                 best, run->ids[step], gap);
    }
    if (!(logit_difference(run, step, logits) <= o->subject->error)) {
        fail_msg("prompt \"%s\", step %u: a logit differs by %f from the golden one", run->prompt,
                 step, logit_difference(run, step, logits));
    }
}

/* Follows a golden run to its end; returns the difference of its first logits. Where the two best
 * logits differ by less than the error, the ids may differ, too: then the next command starts from
 * the golden ids so far, so that every step is compared. */
static double follow(const struct opened *o, const struct golden_run *run) {
    uint32_t *ids = malloc((size_t)(run->n_prompt + run->n_ids) * sizeof *ids);
    double first = 0;
    assert_non_null(ids);
    memcpy(ids, run->prompt_ids, run->n_prompt * sizeof *ids);
    memcpy(ids + run->n_prompt, run->ids, run->n_ids * sizeof *ids);
    for (uint32_t done = 0; done < run->n_ids;) {
        struct command_run command = base_run(o);
        struct command_output out;
        command.ids = ids;
        command.n_ids = run->n_prompt + done;
        command.n = run->n_ids - done;
        run_model(o, command, &out);
        first = done ? first : logit_difference(run, 0, row(&out, 0));
        for (uint32_t i = 0; i < out.n; i++) {
            compare_step(o, run, done, out.ids[i], row(&out, i));
            if (out.ids[i] != run->ids[done++]) {
                break;
            }
        }
        command_output_finish(&out);
    }
    free(ids);
    return first;
}

static void it_gives_the_golden_ids(void **state) {
    struct opened *o = opened_or_skip(state);
    uint32_t n_near = 0;
    for (uint32_t i = 0; i < o->golden.n_runs; i++) {
        n_near += follow(o, &o->golden.runs[i]) <= o->subject->first;
    }
    if (2 * n_near <= o->golden.n_runs) {
        fail_msg("the first logits of only %u of %u prompts are near the golden ones", n_near,
                 o->golden.n_runs);
    }
}

/* ---- against the reference ---- */

static void compare_rows(const struct opened *o, uint32_t step, const float *actual,
                         const float *expected) {
    float largest = 0;
    uint32_t n = o->fixture.model.h.n_vocab;
    for (uint32_t i = 0; i < n; i++) {
        largest = fmaxf(largest, fabsf(expected[i]));
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!(fabsf(actual[i] - expected[i]) <= 1e-4f * largest)) {
            fail_msg("step %u, token %u: logit %.7g, reference %.7g", step, i, (double)actual[i],
                     (double)expected[i]);
        }
    }
}

static void its_logits_are_those_of_the_reference(void **state) {
    struct opened *o = opened_or_skip(state);
    const struct golden_run *run = &o->golden.runs[0];
    const float *logits = NULL;
    tw_error err = {0};
    if (!o->subject->floats) {
        skip(); /* the machine quantises the activations, the reference does not */
    }
    for (uint32_t i = 0; i < run->n_prompt; i++) {
        assert_int_equal(tw_reference_step(o->fixture.reference, run->prompt_ids[i], &logits, &err),
                         0);
    }
    for (uint32_t i = 0; i < o->base.n; i++) {
        compare_rows(o, i, row(&o->base, i), logits);
        assert_int_equal(tw_reference_step(o->fixture.reference, o->base.ids[i], &logits, &err), 0);
    }
}

/* ---- against itself ---- */

/* The run gives the base's ids and logits from step `first` on, bit by bit. */
static void expect_base(const struct opened *o, struct command_run run, uint32_t first) {
    struct command_output out;
    run_model(o, run, &out);
    for (uint32_t i = 0; i < out.n; i++) {
        if (out.ids[i] != o->base.ids[first + i]) {
            fail_msg("%s: step %u gives token %u, host gave %u", command_text(&run), i, out.ids[i],
                     o->base.ids[first + i]);
        }
        if (memcmp(row(&out, i), row(&o->base, first + i), out.n_vocab * sizeof(float))) {
            fail_msg("%s: the logits of step %u have other bits than host's", command_text(&run),
                     i);
        }
    }
    command_output_finish(&out);
}

static void all_targets_modes_and_threads_give_the_same_bits(void **state) {
    struct opened *o = opened_or_skip(state);
    static const struct {
        const char *target, *mode;
        uint32_t threads, n;
    } cases[] = {
        {"host", "fast", 2, BASE_TOKENS},     {"host", "strict", 1, BASE_TOKENS},
        {"host", "strict", 2, BASE_TOKENS},   {"sim4x4", "fast", 1, BASE_TOKENS},
        {"sim4x4", "fast", 2, BASE_TOKENS},   {"sim4x4", "strict", 1, BASE_TOKENS},
        {"sim4x4", "strict", 2, 16},          {"grid8x8", "fast", 1, BASE_TOKENS},
        {"grid8x8", "fast", 2, BASE_TOKENS},  {"grid8x8", "strict", 1, BASE_TOKENS},
        {"grid8x8", "strict", 2, 16},         {"sim4x4x2", "fast", 1, BASE_TOKENS},
        {"sim4x4x2", "fast", 2, BASE_TOKENS}, {"sim4x4x2", "strict", 1, BASE_TOKENS},
        {"sim4x4x2", "strict", 2, 16},        {"quad2x2", "fast", 1, BASE_TOKENS},
        {"quad2x2", "fast", 2, BASE_TOKENS},  {"quad2x2", "strict", 1, BASE_TOKENS},
        {"quad2x2", "strict", 2, 16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct command_run run = base_run(o);
        run.target = cases[i].target;
        run.mode = cases[i].mode;
        run.threads = cases[i].threads;
        run.n = cases[i].n;
        expect_base(o, run, 0);
    }
}

static void all_numbers_of_sites_give_the_same_bits(void **state) {
    struct opened *o = opened_or_skip(state);
    for (uint32_t sites = 1; sites <= 5; sites += 2) {
        struct command_run run = base_run(o);
        run.sites = sites;
        run.n = 16;
        expect_base(o, run, 0);
    }
}

static void all_instruction_sets_give_the_same_bits(void **state) {
    struct opened *o = opened_or_skip(state);
    for (int isa = 0; isa < TW_ISA_COUNT; isa++) {
        if (!tw_kernel_table((enum tw_isa)isa)) {
            fprintf(stderr, "skipped: this processor has no %s\n", tw_isa_name((enum tw_isa)isa));
            continue;
        }
        struct command_run run = base_run(o);
        run.isa = tw_isa_name((enum tw_isa)isa);
        run.n = 64;
        expect_base(o, run, 0);
        run.mode = "strict";
        run.n = 4;
        expect_base(o, run, 0);
    }
}

/* The first 64 tokens that the base generated one by one become part of the prompt. */
static void chunks_of_any_size_give_the_bits_of_single_tokens(void **state) {
    struct opened *o = opened_or_skip(state);
    static const struct {
        const char *target, *mode;
        uint32_t chunk, rows;
    } cases[] = {
        {"host", "fast", 1, 0},    {"host", "fast", 3, 0},     {"host", "fast", 7, 0},
        {"host", "fast", 32, 0},   {"host", "fast", 64, 0},    {"host", "fast", 0, 0},
        {"host", "fast", 0, 5},    {"host", "strict", 7, 0},   {"sim4x4", "fast", 7, 0},
        {"sim4x4", "fast", 32, 0}, {"sim4x4", "strict", 0, 0}, {"grid8x8", "fast", 1, 0},
        {"grid8x8", "fast", 0, 0}, {"sim4x4x2", "fast", 7, 0}, {"sim4x4x2", "strict", 0, 0},
        {"quad2x2", "fast", 0, 0},
    };
    uint32_t ids[1024];
    struct command_run run = base_run(o);
    assert_true(run.n_ids + FED_TOKENS <= 1024);
    memcpy(ids, run.ids, run.n_ids * sizeof *ids);
    memcpy(ids + run.n_ids, o->base.ids, FED_TOKENS * sizeof *ids);
    run.ids = ids;
    run.n_ids += FED_TOKENS;
    run.n = 4;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run.target = cases[i].target;
        run.mode = cases[i].mode;
        run.chunk = cases[i].chunk;
        run.rows = cases[i].rows;
        expect_base(o, run, FED_TOKENS);
    }
}

/* Without --logits the device feeds its own tokens back, several per request. */
static void the_device_chooses_the_same_ids_by_itself(void **state) {
    struct opened *o = opened_or_skip(state);
    static const struct {
        const char *target, *mode;
        uint32_t threads, n;
    } cases[] = {
        {"host", "fast", 1, BASE_TOKENS}, {"host", "fast", 2, BASE_TOKENS},
        {"host", "strict", 1, 20},        {"sim4x4", "fast", 2, BASE_TOKENS},
        {"sim4x4", "strict", 1, 20},      {"grid8x8", "fast", 2, 24},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct command_run run = base_run(o);
        struct command_output out;
        run.target = cases[i].target;
        run.mode = cases[i].mode;
        run.threads = cases[i].threads;
        run.n = cases[i].n;
        run.no_logits = true;
        run_model(o, run, &out);
        for (uint32_t k = 0; k < out.n; k++) {
            if (out.ids[k] != o->base.ids[k]) {
                fail_msg("%s: step %u gives token %u, the host chose %u", command_text(&run), k,
                         out.ids[k], o->base.ids[k]);
            }
        }
        command_output_finish(&out);
    }
}

/* ---- the table ---- */

#define OPEN(name)                           \
    static int open_##name(void **state) {   \
        return open_subject(state, &(name)); \
    }
OPEN(fairytale)
OPEN(stories_bin)
OPEN(stories_gguf)
OPEN(tinystories_f16)
OPEN(tinystories_q8_0)
OPEN(tinystories_q4_0)
OPEN(tinystories_q4_k_m)

#define CASES 7
static const struct {
    const char *name;
    void (*test)(void **state);
} cases_of_each[CASES] = {
    {"gives the golden ids", it_gives_the_golden_ids},
    {"has the logits of the reference", its_logits_are_those_of_the_reference},
    {"has the same bits on all targets, modes and threads",
     all_targets_modes_and_threads_give_the_same_bits},
    {"has the same bits on any number of sites", all_numbers_of_sites_give_the_same_bits},
    {"has the same bits in all instruction sets", all_instruction_sets_give_the_same_bits},
    {"has the same bits in chunks of any size as token by token",
     chunks_of_any_size_give_the_bits_of_single_tokens},
    {"has the same ids where the device chooses", the_device_chooses_the_same_ids_by_itself},
};

/* All cases with one model; the number that failed. */
static int run_subject(const char *subject, int (*open)(void **state)) {
    char names[CASES][128];
    struct CMUnitTest tests[CASES] = {{.name = NULL}};
    for (size_t i = 0; i < CASES; i++) {
        snprintf(names[i], sizeof names[i], "%s %s", subject, cases_of_each[i].name);
        tests[i].name = names[i];
        tests[i].test_func = cases_of_each[i].test;
    }
    return cmocka_run_group_tests_name(subject, tests, open, close_subject);
}

int main(void) {
    int failed = run_subject("fairytale-1.7m Q8_0", open_fairytale);
    if (!TEST_ASAN) { /* the command is not sanitized then, so a short run is enough */
        failed += run_subject("stories260K.bin", open_stories_bin);
        failed += run_subject("stories260K.gguf", open_stories_gguf);
        failed += run_subject("TinyStories-656K F16", open_tinystories_f16);
        failed += run_subject("TinyStories-656K Q8_0", open_tinystories_q8_0);
        failed += run_subject("TinyStories-656K Q4_0", open_tinystories_q4_0);
        failed += run_subject("TinyStories-656K Q4_K_M", open_tinystories_q4_k_m);
    }
    command_folder_remove();
    return failed;
}
