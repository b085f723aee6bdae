/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts of several segments of keys, large heads, and f16 caches: models that are made here, run
 * by the built command, against the reference evaluator, whose attention is one softmax in double;
 * and against themselves, bit by bit, on every target, mode, chunk and instruction set. Needs
 * $TW_BIN.
 */
#include "firmware/kernels/kernels.h"
#include "tests/support/command_run.h"
#include "tests/support/model_fixture.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"

#include <math.h>
#include <unistd.h>

enum { GENERATED = 6, MAX_IDS = 1400 };

static const struct random_shape long_shape = {.dim = 64,
                                               .hidden = 96,
                                               .n_layers = 2,
                                               .n_heads = 4,
                                               .n_kv_heads = 2,
                                               .head_dim = 16,
                                               .n_vocab = 96,
                                               .n_ctx = MAX_IDS,
                                               .seed = 11};

struct subject {
    char path[600];
    uint32_t n_vocab, n_ids, ids[MAX_IDS];
};

static void make(struct subject *s, const struct random_shape *shape, uint32_t n_ids) {
    struct random_model m;
    uint64_t seed = shape->seed + 1;
    const char *why = command_absent();
    if (why) {
        printf("skipped: %s\n", why);
        skip();
    }
    snprintf(s->path, sizeof s->path, "%s/model.gguf", command_folder());
    assert_true(random_model_init(&m, shape));
    assert_true(random_model_save(&m, s->path));
    random_model_finish(&m);
    s->n_vocab = shape->n_vocab;
    s->n_ids = n_ids;
    for (uint32_t i = 0; i < n_ids; i++) {
        s->ids[i] = random_below(&seed, shape->n_vocab);
    }
}

static struct command_output run(const struct subject *s, struct command_run how) {
    struct command_output out;
    tw_error err = {0};
    how.model = s->path;
    how.ids = s->ids;
    how.n_ids = s->n_ids;
    how.n = GENERATED;
    how.target = how.target ? how.target : "host";
    if (command_run(&how, s->n_vocab, &out, &err)) {
        fail_msg("%s", err.message);
    }
    return out;
}

/* Returns the largest difference of a logit from the evaluator's, for the ids that were chosen. */
static double difference_from_reference(const struct subject *s, const struct command_output *o) {
    struct model_fixture f;
    const float *logits = NULL;
    tw_error err = {0};
    double worst = 0;
    if (model_fixture_open(s->path, s->n_ids + GENERATED, &f, &err)) {
        fail_msg("%s", err.message);
    }
    for (uint32_t i = 0; i < s->n_ids + GENERATED - 1; i++) {
        uint32_t id = i < s->n_ids ? s->ids[i] : o->ids[i - s->n_ids];
        assert_int_equal(tw_reference_step(f.reference, id, &logits, &err), 0);
        for (uint32_t v = 0; i + 1 >= s->n_ids && v < s->n_vocab; v++) {
            float found = o->logits[(size_t)(i + 1 - s->n_ids) * s->n_vocab + v];
            worst = fmax(worst, fabs((double)found - (double)logits[v]));
        }
    }
    model_fixture_finish(&f);
    return worst;
}

static double difference(const struct command_output *a, const struct command_output *b) {
    double worst = 0;
    for (uint32_t i = 0; i < a->n_vocab; i++) { /* of the first token: the same context */
        worst = fmax(worst, fabs((double)a->logits[i] - (double)b->logits[i]));
    }
    return worst;
}

static void assert_same(const struct subject *s, const struct command_output *base,
                        struct command_run how) {
    struct command_output o = run(s, how);
    if (memcmp(o.logits, base->logits, (size_t)GENERATED * s->n_vocab * sizeof(float)) != 0) {
        fail_msg("%u ids: the logits of target %s, mode %s, isa %s, chunk %u, %u sites differ",
                 s->n_ids, how.target ? how.target : "host", how.mode ? how.mode : "fast",
                 how.isa ? how.isa : "best", how.chunk, how.sites);
    }
    command_output_finish(&o);
}

static void assert_same_everywhere(const struct subject *s, const struct command_output *base,
                                   const char *kv) {
    static const struct command_run ways[] = {
        {.target = "sim4x4"}, {.target = "grid8x8"}, {.sites = 1},      {.sites = 3},
        {.chunk = 1},         {.chunk = 7},          {.mode = "strict"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct command_run how = ways[i];
        how.kv = kv;
        assert_same(s, base, how);
    }
    for (uint32_t isa = 0; isa < TW_ISA_COUNT; isa++) {
        if (tw_kernel_table((enum tw_isa)isa)) {
            assert_same(s, base,
                        (struct command_run){.isa = tw_isa_name((enum tw_isa)isa), .kv = kv});
        }
    }
}

static void contexts_of_several_segments_are_those_of_the_reference(void **state) {
    static const uint32_t lengths[] = {509, 700, 1300};
    static struct subject s;
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        make(&s, &long_shape, lengths[i]);
        struct command_output f32 = run(&s, (struct command_run){.kv = "f32"}),
                              f16 = run(&s, (struct command_run){.kv = "f16"});
        double error = difference_from_reference(&s, &f32), half = difference(&f32, &f16);
        printf("%u ids: logits differ from the reference by %.2e; with an f16 cache, from those "
               "with f32 by %.2e\n",
               lengths[i], error, half);
        assert_true(error < 1e-5);
        assert_true(half > 0 && half < 5e-3);
        if (lengths[i] == 1300) {
            assert_same_everywhere(&s, &f32, NULL); /* f32 is the default */
            assert_same_everywhere(&s, &f16, "f16");
        }
        command_output_finish(&f32);
        command_output_finish(&f16);
    }
}

static struct random_shape with_heads_of(uint32_t head_dim) {
    struct random_shape shape = long_shape;
    shape.head_dim = head_dim;
    shape.n_heads = 2;
    shape.n_kv_heads = 1;
    shape.n_ctx = 96;
    return shape;
}

static void heads_of_up_to_512_are_those_of_the_reference(void **state) {
    static const uint32_t dims[] = {256, 258, 320, 512};
    static struct subject s;
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        struct random_shape shape = with_heads_of(dims[i]);
        make(&s, &shape, 75);
        struct command_output o = run(&s, (struct command_run){.threads = 1});
        double error = difference_from_reference(&s, &o);
        printf("heads of %u: logits differ from the reference by %.2e\n", dims[i], error);
        assert_true(error < 1e-5);
        assert_same(&s, &o, (struct command_run){.target = "grid8x8"});
        assert_same(&s, &o, (struct command_run){.isa = "scalar", .chunk = 3});
        assert_same(&s, &o, (struct command_run){.mode = "strict"});
        command_output_finish(&o);
    }
}

static void larger_heads_are_refused(void **state) {
    static struct subject s;
    struct random_shape shape = with_heads_of(514);
    struct command_output o;
    tw_error err = {0};
    (void)state;
    make(&s, &shape, 3);
    struct command_run how = {.model = s.path, .ids = s.ids, .n_ids = 3, .n = 1};
    assert_int_not_equal(command_run(&how, s.n_vocab, &o, &err), 0);
    assert_non_null(strstr(err.message, "exit status 4"));
    assert_non_null(strstr(err.message, "head dimension 514 is not supported; supported: even "
                                        "numbers up to 512"));
}

static int tear_down(void **state) {
    char path[600];
    (void)state;
    snprintf(path, sizeof path, "%s/model.gguf", command_folder());
    unlink(path);
    command_folder_remove();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts_of_several_segments_are_those_of_the_reference),
        cmocka_unit_test(heads_of_up_to_512_are_those_of_the_reference),
        cmocka_unit_test(larger_heads_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
