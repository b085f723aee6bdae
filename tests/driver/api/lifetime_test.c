/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects closed in any order, devices that are reset while something is deployed on them, and the
 * messages when a device's limit is reached.
 */
#include "driver/device/device.h"
#include "tests/support/model_bundle.h"
#include "tests/support/test.h"

static const uint32_t ids[] = {1, 403, 407};

/* Closes the device and the deployment first; the session works until it is destroyed. */
static void a_device_closed_first_is_released_with_its_last_session(void **state) {
    (void)state;
    struct rig r;
    tw_session *other;
    rig_open(&r, "host", 1, NULL);
    assert_int_equal(tw_session_create(r.deployment, NULL, &other, &r.err), 0);
    tw_device_close(r.device);
    tw_decoder_close(r.decoder);
    assert_int_equal(tw_session_feed(r.session, ids, 3, &r.err), 0);
    tw_deployment_destroy(r.deployment);
    assert_int_equal(tw_session_feed(other, ids, 3, &r.err), 0);
    tw_session_destroy(r.session);
    assert_int_equal(tw_session_feed(other, ids, 1, &r.err), 0);
    assert_non_null(tw_session_logits(other));
    tw_session_destroy(other);
}

static void a_device_that_is_closed_with_a_deployment_alone_is_released(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    tw_session_destroy(r.session);
    tw_device_close(r.device);
    tw_deployment_destroy(r.deployment);
    tw_decoder_close(r.decoder);
}

/* ---- resets ---- */

#define SAYS(call, code, text)                                      \
    do {                                                            \
        memset(&r.err, 0, sizeof r.err);                            \
        int code_ = (call);                                         \
        if (code_ != (code) || !strstr(r.err.message, text)) {      \
            fail_msg("%s: %d \"%s\"", #call, code_, r.err.message); \
        }                                                           \
    } while (0)

static void after_a_reset_sessions_fail_and_leave_the_device_alone(void **state) {
    (void)state;
    struct rig r;
    struct tw_greedy_options o = {.size = sizeof o, .n = 1};
    struct tw_generate_options g = {.size = sizeof g, .n_predict = 1};
    enum tw_stop_reason reason;
    tw_session *other;
    uint32_t token, n;
    rig_open(&r, "host", 1, NULL);
    assert_int_equal(tw_session_feed(r.session, ids, 3, &r.err), 0);
    assert_int_equal(tw_device_reset(r.device, &r.err), 0);
    SAYS(tw_session_feed(r.session, ids, 1, &r.err), TW_E_USAGE, "the device was reset");
    SAYS(tw_generate(r.session, ids, 1, &g, NULL, &r.err), TW_E_USAGE, "the device was reset");
    SAYS(tw_session_run_greedy(r.session, 1, &o, &token, &n, &reason, &r.err), TW_E_USAGE,
         "the device was reset");
    SAYS(tw_session_create(r.deployment, NULL, &other, &r.err), TW_E_USAGE, "the device was reset");
    assert_null(tw_session_logits(r.session)); /* they were in the device's memory */
    tw_session_interrupt(r.session);
    rig_close(&r);
}

/* The new session has the numbers and addresses that the old one had. */
static void destroying_after_a_reset_frees_nothing_newer(void **state) {
    (void)state;
    struct rig r;
    tw_deployment *fresh;
    tw_session *session;
    rig_open(&r, "host", 1, NULL);
    assert_int_equal(tw_device_reset(r.device, &r.err), 0);
    assert_int_equal(tw_deploy(r.device, r.decoder, &fresh, &r.err), 0);
    assert_int_equal(tw_session_create(fresh, NULL, &session, &r.err), 0);
    tw_session_destroy(r.session);
    tw_deployment_destroy(r.deployment);
    assert_int_equal(tw_session_feed(session, ids, 3, &r.err), 0);
    r.session = session;
    r.deployment = fresh;
    rig_close(&r);
}

/* ---- limits ---- */

static void a_full_program_table_says_how_many_are_in_use(void **state) {
    (void)state;
    struct rig r;
    tw_session *more[40];
    uint32_t n = 0;
    int code = 0;
    rig_open(&r, "host", 1, NULL);
    /* Those of one mode and number of threads share their programs. */
    struct tw_session_options o = {.size = sizeof o};
    while (n < 40 && !code) {
        o.n_threads = n + 1;
        code = tw_session_create(r.deployment, &o, &more[n], &r.err);
        n += code == 0;
    }
    assert_int_equal(n, 15); /* and the rig's own: 16 of two programs each */
    assert_int_equal(code, TW_E_NOMEM);
    assert_non_null(
        strstr(r.err.message, "program table full (32 of 32 in use; destroy a session"));
    assert_null(strstr(r.err.message, "have"));
    tw_session_destroy(more[0]);
    o.n_threads = 1;
    assert_int_equal(tw_session_create(r.deployment, &o, &more[0], &r.err), 0);
    while (n) {
        tw_session_destroy(more[--n]);
    }
    rig_close(&r);
}

/* Numbers that carry no information are left out. */
static void a_refusal_without_numbers_has_none(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    struct tw_device_call call = {.opcode = TW_WIRE_UNLOAD, .address = 0};
    for (uint32_t i = 0; i < 2; i++) {
        call.address = i;
        assert_int_equal(tw_device_call(r.device, &call, &r.err), 0);
    }
    call.address = 0;
    assert_int_equal(tw_device_call(r.device, &call, &r.err), TW_E_RANGE);
    assert_non_null(strstr(r.err.message, "no such program"));
    assert_null(strstr(r.err.message, "have 0"));
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_closed_first_is_released_with_its_last_session),
        cmocka_unit_test(a_device_that_is_closed_with_a_deployment_alone_is_released),
        cmocka_unit_test(after_a_reset_sessions_fail_and_leave_the_device_alone),
        cmocka_unit_test(destroying_after_a_reset_frees_nothing_newer),
        cmocka_unit_test(a_full_program_table_says_how_many_are_in_use),
        cmocka_unit_test(a_refusal_without_numbers_has_none),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_bundle_cleanup();
    return failed;
}
