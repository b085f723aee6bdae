/* SPDX-License-Identifier: Apache-2.0
 *
 * A target with several memory classes: a model is compiled for it, Params, activations and private
 * memory each go where the target says, and the bits are those of a target with one class.
 */
#include "tests/support/bundle_fixture.h"
#include "tests/support/model_bundle.h"
#include "tests/support/test.h"
#include "tilewright/compile.h"

#include <stdlib.h>

#define SITES                                                                            \
    "\"chips\":1,\"width\":2,\"height\":2,\"banks\":2,\"clock_hz\":1e9,"                 \
    "\"dram_bytes_per_cycle\":64,\"site_load_bytes_per_cycle\":16,\"fma_per_cycle\":64," \
    "\"int8_mac_per_cycle\":256,\"vector_per_cycle\":16,\"link_bytes_per_cycle\":32,"    \
    "\"sync_cycles\":50,\"call_cycles\":20"

static const char params_apart[] =
    "{\"name\":\"apart\",\"sram_bytes\":1048576," SITES
    ",\"sram_classes\":[{\"name\":\"interleaved\",\"bytes\":262144,\"holds\":[\"params\"]}]}";
static const char all_apart[] =
    "{\"name\":\"three\",\"sram_bytes\":1048576," SITES
    ",\"sram_classes\":[{\"name\":\"a\",\"bytes\":524288,\"holds\":[\"activations\",\"state\"]},"
    "{\"name\":\"b\",\"bytes\":131072,\"holds\":[\"params\"]}]}";
static const char private_apart[] =
    "{\"name\":\"private\",\"sram_bytes\":524288," SITES
    ",\"sram_classes\":[{\"name\":\"work\",\"bytes\":1048576,\"holds\":[\"private\"]}]}";

static char *folder;
static char path[4200];

static void compile(const char *target) {
    tw_error err = {0};
    struct tw_compile_options o = {.size = sizeof o, .prefill_rows = 32, .target = target};
    snprintf(path, sizeof path, "%s/x.twb", folder);
    if (tw_compile_file(SHIPPED_MODEL, path, &o, NULL, &err)) {
        fail_msg("%s", err.message);
    }
}

/* Which classes hold what, as bits. */
struct places {
    unsigned params, activations, private_memory;
};

static bool add_place(void *ctx, const struct tw_map_info *b) {
    struct places *p = ctx;
    unsigned bit = 1u << b->mem_class;
    if (!b->tensor) {
        p->private_memory |= bit;
    } else if (b->pages > 1 || strstr(b->name, "norm") || strstr(b->name, "freq")) {
        p->params |= bit;
    } else {
        p->activations |= bit;
    }
    return true;
}

static struct places places_of(tw_decoder *decoder) {
    struct places p = {0, 0, 0};
    for (uint32_t program = 0; program < 2; program++) {
        for (uint32_t site = 0; site < 4; site++) {
            assert_int_equal(tw_decoder_map(decoder, program, site, add_place, &p, NULL), 0);
        }
    }
    return p;
}

/* The logits after a prompt and some single tokens, of all steps one after the other. */
static void run(tw_decoder *decoder, uint32_t mode, float *logits, uint32_t *n_vocab) {
    static const uint32_t prompt[] = {1, 403, 407, 261, 378};
    tw_error err = {0};
    tw_device *device = NULL;
    tw_deployment *deployment = NULL;
    tw_session *session = NULL;
    struct tw_session_info info = {.size = sizeof info};
    const struct tw_session_options o = {.size = sizeof o, .mode = mode};
    if (tw_device_open("emu", NULL, &device, &err) ||
        tw_deploy(device, decoder, &deployment, &err) ||
        tw_session_create(deployment, &o, &session, &err) ||
        tw_session_get_info(session, &info, &err)) {
        fail_msg("%s", err.message);
    }
    *n_vocab = info.n_vocab;
    for (uint32_t i = 0; i < 4; i++) {
        if (tw_session_feed(session, i ? &prompt[i] : prompt, i ? 1 : 5, &err)) {
            fail_msg("%s", err.message);
        }
        memcpy(logits + (size_t)i * info.n_vocab, tw_session_logits(session),
               info.n_vocab * sizeof *logits);
    }
    tw_session_destroy(session);
    tw_deployment_destroy(deployment);
    tw_device_close(device);
}

static void check_target(const char *target, struct places expected) {
    enum { ROOM = 4 * 65536 };
    float *base = calloc(ROOM, sizeof *base), *got = calloc(ROOM, sizeof *got);
    tw_decoder *decoder[2];
    tw_error err = {0};
    uint32_t n_vocab = 0;
    compile(target);
    if (tw_decoder_open(path, 0, &decoder[0], &err) ||
        tw_decoder_open(model_bundle("host"), 0, &decoder[1], &err)) {
        fail_msg("%s", err.message);
    }
    struct places p = places_of(decoder[0]);
    assert_int_equal(p.params, expected.params);
    assert_int_equal(p.activations, expected.activations);
    assert_int_equal(p.private_memory, expected.private_memory);
    run(decoder[1], TW_MODE_FAST, base, &n_vocab);
    run(decoder[0], TW_MODE_FAST, got, &n_vocab);
    assert_true(n_vocab > 0 && n_vocab <= 65536);
    assert_memory_equal(base, got, (size_t)4 * n_vocab * sizeof *got);
    run(decoder[0], TW_MODE_STRICT, got, &n_vocab);
    assert_memory_equal(base, got, (size_t)4 * n_vocab * sizeof *got);
    tw_decoder_close(decoder[0]);
    tw_decoder_close(decoder[1]);
    free(base);
    free(got);
}

static void a_model_runs_on_a_target_of_two_classes(void **state) {
    (void)state;
    check_target(params_apart, (struct places){2, 1, 1});
    check_target(private_apart, (struct places){1, 1, 2});
}

static void and_on_one_of_three(void **state) {
    (void)state;
    check_target(all_apart, (struct places){4, 2, 1});
}

/* The activations do not fit the class that the target gives to them. */
static void a_class_that_is_too_small_is_named(void **state) {
    (void)state;
    tw_error err = {0};
    static const char small[] =
        "{\"name\":\"small\",\"sram_bytes\":1048576," SITES
        ",\"sram_classes\":[{\"name\":\"tiny\",\"bytes\":64,\"holds\":[\"activations\"]}]}";
    struct tw_compile_options o = {.size = sizeof o, .target = small};
    snprintf(path, sizeof path, "%s/x.twb", folder);
    assert_int_equal(tw_compile_file(SHIPPED_MODEL, path, &o, NULL, &err), TW_E_PLACEMENT);
    assert_non_null(strstr(err.message, "memory class 1 (tiny)"));
    assert_non_null(strstr(err.message, "has 64"));
}

/* The planner cannot place caches in SRAM yet; a target without DRAM is refused by name. */
static void a_target_with_its_state_in_sram_is_refused(void **state) {
    (void)state;
    tw_error err = {0};
    static const char no_dram[] =
        "{\"name\":\"bsp\",\"sram_bytes\":1048576," SITES ",\"state\":\"sram\"}";
    struct tw_compile_options o = {.size = sizeof o, .target = no_dram};
    snprintf(path, sizeof path, "%s/x.twb", folder);
    assert_int_equal(tw_compile_file(SHIPPED_MODEL, path, &o, NULL, &err), TW_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "target bsp keeps State in SRAM (key \"state\")"));
}

static int end(void **state) {
    (void)state;
    model_bundle_cleanup();
    bundle_fixture_remove(folder);
    return 0;
}

static int start(void **state) {
    (void)state;
    folder = bundle_fixture_folder();
    return 0;
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_runs_on_a_target_of_two_classes),
        cmocka_unit_test(and_on_one_of_three),
        cmocka_unit_test(a_class_that_is_too_small_is_named),
        cmocka_unit_test(a_target_with_its_state_in_sram_is_refused),
    };
    return cmocka_run_group_tests_name("memory classes", tests, start, end);
}
