/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices that describe their target: how the driver uses the description, and implausible ones.
 */
#include "firmware/serve/device_server.h"
#include "loader/target/target_open.h"
#include "tests/support/bundle_fixture.h"
#include "tests/support/model_bundle.h"
#include "tests/support/test.h"
#include "tilewright/compile.h"

#include <pthread.h>

struct served {
    struct tw_device_server *server;
    pthread_t thread;
    char *folder, selector[128];
};

static void *run(void *arg) {
    tw_device_server_run(arg, NULL);
    return NULL;
}

/* Serves a device with `target` in its identity and that `description` (may be NULL). */
static void serve(struct served *s, const char *target, const char *description) {
    char path[100];
    tw_error err = {0};
    s->folder = bundle_fixture_folder();
    snprintf(path, sizeof path, "%s/d.sock", s->folder);
    snprintf(s->selector, sizeof s->selector, "socket:%s", path);
    const struct tw_device_server_options o = {
        .path = path, .emu = {.target = target, .description = description, .n_threads = 1}};
    assert_int_equal(tw_device_server_create(&o, &s->server, &err), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, run, s->server), 0);
}

static void end(struct served *s) {
    tw_device_server_stop(s->server);
    pthread_join(s->thread, NULL);
    tw_device_server_destroy(s->server);
    bundle_fixture_remove(s->folder);
}

static void text_of(const char *name, char text[TW_TARGET_TEXT_BYTES]) {
    struct tw_target t;
    assert_int_equal(tw_target_open(name, 0, &t, NULL), 0);
    assert_int_equal(tw_target_print(&t, text, TW_TARGET_TEXT_BYTES, NULL), 0);
}

static void a_description_can_be_compiled_for(void **state) {
    (void)state;
    char text[TW_TARGET_TEXT_BYTES];
    struct served s;
    struct tw_target_info a = {.size = sizeof a}, b = {.size = sizeof b};
    tw_device *device;
    tw_error err = {0};
    text_of("quad2x2", text);
    serve(&s, "quad2x2", text);
    assert_int_equal(tw_device_open(s.selector, NULL, &device, &err), 0);
    assert_string_equal(tw_device_target(device), text);
    assert_int_equal(tw_target_get_info(tw_device_target(device), 0, &a, &err), 0);
    assert_int_equal(tw_target_get_info("quad2x2", 0, &b, &err), 0);
    assert_memory_equal(&a, &b, sizeof a);
    tw_device_close(device);
    end(&s);
}

static void deploy(const struct served *s, const char *target, int expected) {
    tw_device *device;
    tw_decoder *decoder;
    tw_deployment *deployment = NULL;
    tw_error err = {0};
    assert_int_equal(tw_device_open(s->selector, NULL, &device, &err), 0);
    assert_int_equal(tw_decoder_open(model_bundle(target), 0, &decoder, &err), 0);
    assert_int_equal(tw_deploy(device, decoder, &deployment, &err), expected);
    tw_deployment_destroy(deployment);
    tw_decoder_close(decoder);
    tw_device_close(device);
}

/* Compares hashes for a device with a description, names for an older device without one. */
static void a_bundle_runs_where_the_target_matches(void **state) {
    (void)state;
    char text[TW_TARGET_TEXT_BYTES];
    struct served s;
    text_of("sim4x4", text);
    serve(&s, "sim4x4", text);
    deploy(&s, "sim4x4", 0);
    deploy(&s, "quad2x2", TW_E_TARGET);
    end(&s);
    char *sync = strstr(text, "\"sync_cycles\":50");
    assert_non_null(sync);
    sync[strlen("\"sync_cycles\":")] = '6';
    serve(&s, "sim4x4", text);
    deploy(&s, "sim4x4", TW_E_TARGET);
    end(&s);
    serve(&s, "sim4x4", NULL);
    deploy(&s, "sim4x4", 0);
    deploy(&s, "quad2x2", TW_E_TARGET);
    end(&s);
    serve(&s, "", NULL);
    deploy(&s, "sim4x4", 0);
    deploy(&s, "quad2x2", 0);
    end(&s);
}

static void implausible_descriptions_are_refused(void **state) {
    (void)state;
    static const char *const parts[] = {"not JSON", "expected a JSON object", "of target sim4x4"};
    char text[TW_TARGET_TEXT_BYTES];
    text_of("sim4x4", text);
    const char *const bad[] = {"{\"name\":\"quad2x2\"", "[1]", text};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct served s;
        tw_device *device;
        tw_error err = {0};
        serve(&s, "quad2x2", bad[i]);
        int code = tw_device_open(s.selector, NULL, &device, &err);
        if (code != TW_E_PROTOCOL || !strstr(err.message, "its description") ||
            !strstr(err.message, parts[i])) {
            fail_msg("%d \"%s\"", code, err.message);
        }
        end(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_description_can_be_compiled_for),
        cmocka_unit_test(a_bundle_runs_where_the_target_matches),
        cmocka_unit_test(implausible_descriptions_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_bundle_cleanup();
    return failed;
}
