/* SPDX-License-Identifier: Apache-2.0
 *
 * Invalid answers to greedy runs: they end the session with a reason, and nothing outside them is
 * read.
 */
#include "driver/session/session.h"
#include "tests/support/model_bundle.h"
#include "tests/support/model_fixture.h"
#include "tests/support/test.h"

#define N_VOCAB 1024u

/* Puts false content into a device's answers to greedy runs. */
static struct tw_wire_tokens false_tokens;
static uint32_t false_id;
static int (*honest)(struct tw_transport *t, uint8_t *header, const void **payload, uint32_t *bytes,
                     tw_error *err);

static int receive_false(struct tw_transport *t, uint8_t *header, const void **payload,
                         uint32_t *bytes, tw_error *err) {
    static uint64_t changed[64];
    int code = honest(t, header, payload, bytes, err);
    if (!code && header[TW_WIRE_AT_opcode] == TW_WIRE_RUN && *bytes >= sizeof false_tokens &&
        *bytes <= sizeof changed) {
        memcpy(changed, *payload, *bytes);
        memcpy(changed, &false_tokens, sizeof false_tokens);
        memcpy((uint8_t *)changed + sizeof false_tokens, &false_id, sizeof false_id);
        *payload = changed;
    }
    return code;
}

static void run_false(struct tw_wire_tokens what, uint32_t id, uint32_t position, int code,
                      const char *text) {
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    struct tw_transport_ops faulty = *r.device->transport->ops;
    honest = faulty.receive;
    faulty.receive = receive_false;
    const struct tw_transport_ops *before = r.device->transport->ops;
    struct tw_greedy_options o = {.size = sizeof o, .n = 4};
    uint32_t ids[4], n;
    enum tw_stop_reason reason;
    false_tokens = what;
    false_id = id;
    assert_int_equal(tw_session_own_pages(r.session, 0, position, &r.err), 0);
    r.session->position = position;
    r.device->transport->ops = &faulty;
    assert_int_equal(tw_session_run_greedy(r.session, 1, &o, ids, &n, &reason, &r.err), code);
    r.device->transport->ops = before;
    if (!strstr(r.err.message, text)) {
        fail_msg("'%s' does not contain '%s'", r.err.message, text);
    }
    rig_close(&r);
}

static void invalid_answers_are_refused(void **state) {
    (void)state;
    const char *text = "is invalid";
    run_false((struct tw_wire_tokens){.n_tokens = 5, .ended = TW_WIRE_ENDED_COUNT}, 1, 0,
              TW_E_PROTOCOL, text);
    run_false((struct tw_wire_tokens){.n_tokens = 0, .ended = TW_WIRE_ENDED_COUNT}, 1, 0,
              TW_E_PROTOCOL, text);
    run_false((struct tw_wire_tokens){.n_tokens = 0, .ended = 77}, 1, 0, TW_E_PROTOCOL, text);
    run_false((struct tw_wire_tokens){.n_tokens = 1, .ended = TW_WIRE_ENDED_STOP}, N_VOCAB, 0,
              TW_E_PROTOCOL, text);
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    uint32_t last = r.session->n_ctx - 1;
    rig_close(&r);
    run_false((struct tw_wire_tokens){.n_tokens = 2, .ended = TW_WIRE_ENDED_LIMIT}, 1, last,
              TW_E_PROTOCOL, text);
    struct tw_wire_tokens fault = {.ended = TW_WIRE_ENDED_FAULT}; /* whose text does not end */
    memset(fault.failure.what, 'x', sizeof fault.failure.what);
    run_false(fault, UINT32_MAX, 0, TW_E_FAULT, "xxx at site 0");
}

static int cleanup(void **state) {
    (void)state;
    model_bundle_cleanup();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(invalid_answers_are_refused)};
    return cmocka_run_group_tests(tests, NULL, cleanup);
}
