/* SPDX-License-Identifier: Apache-2.0
 *
 * From model file to logits: models of random shapes, compiled for every target and run strictly
 * and fast, in chunks of any size, give the same bits everywhere, and the reference evaluator's
 * numbers.
 */
#include "tests/compiler/compile_kit.h"
#include "tests/support/model_fixture.h"
#include "tilewright/tilewright.h"

#include <math.h>

#define N_MODELS 8u
#define MAX_TOKENS 90u

static const struct {
    const char *target, *device;
} machines[] = {{"host", "emu"},
                {"sim4x4", "emu:sim4x4"},
                {"grid8x8", "emu:grid8x8"},
                {"sim4x4x2", "emu:sim4x4x2"},
                {"quad2x2", "emu:quad2x2"}};
#define N_MACHINES (sizeof machines / sizeof *machines)

struct run {
    struct random_shape shape;
    uint32_t n_tokens;
    uint32_t tokens[MAX_TOKENS];
    float *first; /* logits of the first run, n_vocab */
};

#define must(call, err)                                                                 \
    do {                                                                                \
        if ((call) != 0) {                                                              \
            fail_msg("%s: %s: %s", random_shape_text(&r->shape), #call, (err).message); \
        }                                                                               \
    } while (0)

static void compare(struct run *r, const float *logits, const char *machine,
                    const struct tw_session_options *o) {
    size_t bytes = r->shape.n_vocab * sizeof *logits;
    if (!r->first) {
        r->first = malloc(bytes);
        assert_non_null(r->first);
        memcpy(r->first, logits, bytes);
    } else if (memcmp(r->first, logits, bytes) != 0) {
        fail_msg("%s: other bits on %s, mode %d, chunk %u, %u tokens", random_shape_text(&r->shape),
                 machine, (int)o->mode, o->chunk, r->n_tokens);
    }
}

static void feed(struct run *r, const char *bundle, const char *machine,
                 const struct tw_session_options *o) {
    tw_device *device;
    tw_decoder *decoder;
    tw_deployment *deployment;
    tw_session *session;
    tw_error err = {0};
    must(tw_device_open(machine, NULL, &device, &err), err);
    must(tw_decoder_open(bundle, 0, &decoder, &err), err);
    must(tw_deploy(device, decoder, &deployment, &err), err);
    must(tw_session_create(deployment, o, &session, &err), err);
    must(tw_session_feed(session, r->tokens, r->n_tokens, &err), err);
    compare(r, tw_session_logits(session), machine, o);
    tw_session_destroy(session);
    tw_deployment_destroy(deployment);
    tw_decoder_close(decoder);
    tw_device_close(device);
}

/* Differences in rounding only: with 8-bit activations there is more, so quantised models are
 * compared among themselves. */
static void compare_with_reference(const struct compile_world *w, struct run *r) {
    struct model_fixture f;
    tw_error err = {0};
    const float *logits = NULL;
    float largest = 0, apart = 0;
    must(model_fixture_open(w->model, r->n_tokens, &f, &err), err);
    for (uint32_t i = 0; i < r->n_tokens; i++) {
        must(tw_reference_step(f.reference, r->tokens[i], &logits, &err), err);
    }
    for (uint32_t i = 0; i < r->shape.n_vocab; i++) {
        largest = fmaxf(largest, fabsf(logits[i]));
        apart = fmaxf(apart, fabsf(logits[i] - r->first[i]));
        assert_true(r->first[i] == r->first[i]); /* no NaN */
    }
    assert_true(largest > 0);
    if (apart > 1e-4f * largest) {
        fail_msg("%s: %g from the reference, whose largest logit is %g",
                 random_shape_text(&r->shape), (double)apart, (double)largest);
    }
    model_fixture_finish(&f);
}

static void make_run(struct compile_world *w, uint64_t seed, struct run *r) {
    uint64_t s = seed;
    *r = (struct run){.shape = random_shape_of(seed)};
    /* a norm over one element keeps its sign only */
    r->shape.dim = r->shape.dim == 1 ? 24 : r->shape.dim;
    r->shape.n_vocab += 2;
    r->shape.n_ctx = r->shape.n_ctx < 3 ? MAX_TOKENS : r->shape.n_ctx;
    r->n_tokens = 1 + random_below(&s, r->shape.n_ctx < MAX_TOKENS ? r->shape.n_ctx : MAX_TOKENS);
    for (uint32_t i = 0; i < r->n_tokens; i++) {
        r->tokens[i] = random_below(&s, r->shape.n_vocab);
    }
    assert_true(save_model(w, r->shape));
}

static void
every_machine_mode_and_chunk_gives_the_same_bits_and_the_references_numbers(void **state) {
    struct compile_world *w = *state;
    uint32_t exact = 0;
    for (uint64_t seed = 0; seed < N_MODELS; seed++) {
        struct run r;
        uint64_t s = seed;
        make_run(w, seed, &r);
        for (uint32_t i = 0; i < N_MACHINES; i++) {
            w->options.target = machines[i].target;
            w->options.host_sites = 1 + (uint32_t)seed % 5;
            must_compile(w, w->model, w->out);
            for (uint32_t k = 0; k < 2; k++) {
                struct tw_session_options o = {.size = sizeof o,
                                               .mode = k ? TW_MODE_FAST : TW_MODE_STRICT,
                                               .random_schedule = seed % 2,
                                               .seed = seed,
                                               .n_threads = 1 + (uint32_t)seed % 2};
                o.chunk = (i + k) % 3 == 2 ? 0 : 1 + random_below(&s, r.n_tokens);
                o.chunk = o.chunk > w->report.prefill_rows ? w->report.prefill_rows : o.chunk;
                feed(&r, w->out, machines[i].device, &o);
            }
        }
        if (tw_dtype_block_elems(r.shape.dtype) == 1 && !r.shape.mixed) {
            compare_with_reference(w, &r);
            exact++;
        }
        free(r.first);
    }
    assert_true(exact >= 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            every_machine_mode_and_chunk_gives_the_same_bits_and_the_references_numbers,
            compile_setup, compile_teardown),
    };
    return cmocka_run_group_tests_name("random models", tests, NULL, NULL);
}
