/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of sessions through the public API, on the shipped model: however tokens are fed, the
 * logits have the same bits; and what a session refuses, it refuses before anything has changed.
 */
#include "driver/session/session.h"
#include "tests/support/model_bundle.h"
#include "tests/support/test.h"

#include <unistd.h>

/* "Once upon a time there was a" and some more, by the model's tokenizer; any ids would do. */
static const uint32_t tokens[] = {1,   403, 407, 261, 378, 300, 301, 260, 500, 77, 13, 999,
                                  3,   4,   812, 45,  6,   7,   8,   9,   10,  11, 12, 301,
                                  301, 2,   55,  600, 34,  35,  36,  37,  38,  39, 40, 41};
#define N_TOKENS (sizeof tokens / sizeof tokens[0])

static const struct tw_session_options *options(struct tw_session_options o) {
    static struct tw_session_options kept;
    kept = o;
    kept.size = sizeof kept;
    return &kept;
}

/* Returns the logits after all tokens, fed in the given way; the caller frees them. */
static float *logits_of(const char *target, uint32_t n_threads, const struct tw_session_options *o,
                        uint32_t *n_vocab) {
    struct rig r;
    rig_open(&r, target, n_threads, o);
    assert_int_equal(tw_session_feed(r.session, tokens, N_TOKENS, &r.err), 0);
    struct tw_session_info info = {.size = sizeof info};
    tw_session_get_info(r.session, &info, NULL);
    assert_int_equal(info.position, N_TOKENS);
    float *copy = malloc(info.n_vocab * sizeof *copy);
    memcpy(copy, tw_session_logits(r.session), info.n_vocab * sizeof *copy);
    *n_vocab = info.n_vocab;
    rig_close(&r);
    return copy;
}

static const float *reference(uint32_t *n_vocab) {
    static float *logits;
    static uint32_t n;
    if (!logits) {
        logits = logits_of("host", 1, options((struct tw_session_options){.chunk = 1}), &n);
        float lo = logits[0], hi = logits[0];
        for (uint32_t i = 0; i < n; i++) {
            lo = logits[i] < lo ? logits[i] : lo;
            hi = logits[i] > hi ? logits[i] : hi;
        }
        assert_true(hi - lo > 1.0f); /* the logits are not all alike */
    }
    *n_vocab = n;
    return logits;
}

static void check_same(const char *target, uint32_t n_threads, struct tw_session_options o) {
    uint32_t n, m;
    const float *expected = reference(&n);
    float *got = logits_of(target, n_threads, options(o), &m);
    assert_int_equal(n, m);
    assert_memory_equal(got, expected, n * sizeof *got);
    free(got);
}

static void any_chunk_size_gives_the_same_bits(void **state) {
    (void)state;
    for (uint32_t chunk = 2; chunk <= 36; chunk += chunk < 8 ? 1 : 7) {
        check_same("host", 1, (struct tw_session_options){.chunk = chunk});
    }
    check_same("host", 1, (struct tw_session_options){0});
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    check_same("host", 2, (struct tw_session_options){0});
    check_same("host", 2, (struct tw_session_options){.chunk = 1});
    check_same("host", 4, (struct tw_session_options){.chunk = 5});
}

static void strict_mode_gives_the_same_bits_under_any_schedule(void **state) {
    (void)state;
    check_same("host", 1, (struct tw_session_options){.mode = TW_MODE_STRICT});
    check_same(
        "host", 1,
        (struct tw_session_options){.mode = TW_MODE_STRICT, .random_schedule = 1, .seed = 7});
}

static void another_target_gives_the_same_bits(void **state) {
    (void)state;
    check_same("sim4x4", 1, (struct tw_session_options){.chunk = 1});
    check_same("sim4x4", 1, (struct tw_session_options){0});
    check_same("sim4x4", 2, (struct tw_session_options){0});
    check_same("sim4x4x2", 1, (struct tw_session_options){.chunk = 1});
    check_same("sim4x4x2", 2, (struct tw_session_options){0});
    check_same("quad2x2", 2, (struct tw_session_options){0});
    check_same(
        "quad2x2", 1,
        (struct tw_session_options){.mode = TW_MODE_STRICT, .random_schedule = 1, .seed = 11});
}

static void a_device_without_shared_memory_gives_the_same_bits(void **state) {
    (void)state;
    uint32_t n;
    const float *expected = reference(&n);
    struct rig r = {0};
    assert_int_equal(tw_device_open("emu", NULL, &r.device, &r.err), 0);
    struct tw_transport_ops distant = *r.device->transport->ops;
    distant.map = NULL;
    distant.adopt = NULL;
    r.device->transport->ops = &distant;
    r.device->identity.max_payload = 10000; /* several messages for each transfer */
    assert_int_equal(tw_decoder_open(model_bundle("host"), 0, &r.decoder, &r.err), 0);
    assert_int_equal(tw_deploy(r.device, r.decoder, &r.deployment, &r.err), 0);
    assert_int_equal(tw_session_create(r.deployment, NULL, &r.session, &r.err), 0);
    assert_int_equal(tw_session_feed(r.session, tokens, N_TOKENS, &r.err), 0);
    assert_memory_equal(tw_session_logits(r.session), expected, n * sizeof *expected);
    rig_close(&r);
}

static void sessions_on_one_deployment_do_not_disturb_each_other(void **state) {
    (void)state;
    uint32_t n;
    const float *expected = reference(&n);
    struct rig r;
    tw_session *other;
    rig_open(&r, "host", 1, NULL);
    assert_int_equal(tw_session_create(r.deployment, NULL, &other, &r.err), 0);
    for (size_t i = 0; i < N_TOKENS; i++) {
        uint32_t foreign = (uint32_t)(N_TOKENS - i);
        assert_int_equal(tw_session_feed(r.session, &tokens[i], 1, &r.err), 0);
        assert_int_equal(tw_session_feed(other, &foreign, 1, &r.err), 0);
    }
    assert_memory_equal(tw_session_logits(r.session), expected, n * sizeof *expected);
    tw_session_destroy(other);
    rig_close(&r);
}

/* Why each session has pages of its own: the positions of one sequence are those of the other. */
static void two_sequences_in_one_state_would(void **state) {
    (void)state;
    uint32_t n;
    const float *expected = reference(&n);
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        uint32_t foreign = (uint32_t)N_TOKENS - i;
        assert_int_equal(tw_session_feed(r.session, &foreign, 1, &r.err), 0);
        if (i + 1 == N_TOKENS) { /* the last step is the sequence's own */
            assert_int_equal(tw_session_rewind(r.session, i, &r.err), 0);
            assert_int_equal(tw_session_feed(r.session, &tokens[i], 1, &r.err), 0);
        }
    }
    assert_memory_not_equal(tw_session_logits(r.session), expected, n * sizeof *expected);
    rig_close(&r);
}

static void rewinding_and_feeding_again_gives_the_same_bits(void **state) {
    (void)state;
    uint32_t n;
    const float *expected = reference(&n);
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    const uint32_t wrong[] = {5, 6, 7, 8, 9};
    assert_null(tw_session_logits(r.session));
    assert_int_equal(tw_session_feed(r.session, tokens, 20, &r.err), 0);
    assert_int_equal(tw_session_feed(r.session, wrong, 5, &r.err), 0);
    assert_int_equal(tw_session_rewind(r.session, 26, &r.err), TW_E_USAGE);
    assert_int_equal(tw_session_rewind(r.session, 20, &r.err), 0);
    assert_null(tw_session_logits(r.session));
    assert_int_equal(tw_session_position(r.session), 20);
    assert_int_equal(tw_session_feed(r.session, tokens + 20, N_TOKENS - 20, &r.err), 0);
    assert_memory_equal(tw_session_logits(r.session), expected, n * sizeof *expected);
    rig_close(&r);
}

static void a_full_context_is_refused_and_changes_nothing(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "host", 1, options((struct tw_session_options){.n_ctx = 20}));
    assert_int_equal(tw_session_feed(r.session, tokens, 18, &r.err), 0);
    assert_int_equal(tw_session_feed(r.session, tokens, 3, &r.err), TW_E_CONTEXT_FULL);
    assert_non_null(strstr(r.err.message, "18 of 20"));
    assert_non_null(strstr(r.err.message, "-c"));
    assert_int_equal(tw_session_position(r.session), 18);
    assert_int_equal(tw_session_feed(r.session, tokens, 2, &r.err), 0);
    assert_int_equal(tw_session_feed(r.session, tokens, 1, &r.err), TW_E_CONTEXT_FULL);
    assert_int_equal(tw_session_feed(r.session, tokens, SIZE_MAX / 8, &r.err) < 0, 1);
    rig_close(&r);
}

static void the_whole_context_can_be_used(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    struct tw_session_info info = {.size = sizeof info};
    tw_session_get_info(r.session, &info, NULL);
    for (uint32_t at = 0; at < info.n_ctx;) {
        uint32_t n = info.n_ctx - at < N_TOKENS ? info.n_ctx - at : (uint32_t)N_TOKENS;
        assert_int_equal(tw_session_feed(r.session, tokens, n, &r.err), 0);
        at += n;
    }
    assert_int_equal(tw_session_position(r.session), info.n_ctx);
    assert_int_equal(tw_session_feed(r.session, tokens, 1, &r.err), TW_E_CONTEXT_FULL);
    rig_close(&r);
}

static void ids_outside_of_the_vocabulary_are_refused(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    const uint32_t bad[] = {1, 2, 1024}, worse[] = {UINT32_MAX};
    assert_int_equal(tw_session_feed(r.session, bad, 3, &r.err), TW_E_RANGE);
    assert_non_null(strstr(r.err.message, "1024"));
    assert_int_equal(tw_session_feed(r.session, worse, 1, &r.err), TW_E_RANGE);
    assert_int_equal(tw_session_feed(r.session, bad, 0, &r.err), TW_E_USAGE);
    assert_int_equal(tw_session_position(r.session), 0);
    rig_close(&r);
}

/* The device repeats the driver's checks: here the driver's are bypassed. */
static void a_fault_names_the_op_and_ends_the_session(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    r.session->n_vocab = 1u << 30;
    const uint32_t id = 1025;
    assert_int_equal(tw_session_feed(r.session, &id, 1, &r.err), TW_E_FAULT);
    assert_non_null(strstr(r.err.message, "IdOutOfRange"));
    assert_non_null(strstr(r.err.message, "decode"));
    r.session->n_vocab = 1024;
    assert_int_equal(tw_session_feed(r.session, tokens, 1, &r.err), TW_E_FAULT);
    rig_close(&r);
    rig_open(&r, "host", 1, options((struct tw_session_options){.mode = TW_MODE_STRICT}));
    r.session->n_vocab = 1u << 30;
    assert_int_equal(tw_session_feed(r.session, &id, 1, &r.err), TW_E_FAULT);
    assert_non_null(strstr(r.err.message, "gather"));
    assert_non_null(strstr(r.err.message, "section embed"));
    rig_close(&r);
}

static void options_out_of_range_are_refused(void **state) {
    (void)state;
    struct rig r;
    tw_session *s = NULL;
    rig_open(&r, "host", 1, NULL);
    assert_int_equal(tw_session_create(r.deployment,
                                       options((struct tw_session_options){.n_ctx = 1u << 20}), &s,
                                       &r.err),
                     TW_E_USAGE);
    assert_non_null(strstr(r.err.message, "512"));
    assert_int_equal(tw_session_create(
                         r.deployment,
                         options((struct tw_session_options){.mode = (enum tw_mode)7}), &s, &r.err),
                     TW_E_USAGE);
    assert_null(s);
    rig_close(&r);
}

/* No memory is taken for logits that the note merely claims, nor a page for positions. */
static void a_note_that_claims_too_much_is_refused(void **state) {
    (void)state;
    static const uint32_t lies[][2] = {/* tokens, positions */ {UINT32_MAX, 512},
                                       {0, 512},
                                       {1000, 0},
                                       {1000, UINT32_MAX},
                                       {1000, (1u << 24) + 1}};
    struct rig r;
    tw_deployment *d = NULL;
    rig_open(&r, "host", 1, NULL);
    const struct tw_bundle_note *note = r.decoder->bundle.note;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct tw_bundle_note lie = *note;
        lie.n_vocab = lies[i][0];
        lie.n_ctx = lies[i][1];
        r.decoder->bundle.note = &lie;
        assert_int_equal(tw_deploy(r.device, r.decoder, &d, &r.err), TW_E_FORMAT);
        assert_non_null(strstr(r.err.message, "expected 1 to 16777216 tokens"));
    }
    r.decoder->bundle.note = note;
    assert_null(d);
    rig_close(&r);
}

static void a_bundle_for_another_target_is_refused(void **state) {
    (void)state;
    tw_error err = {0};
    tw_device *device;
    tw_decoder *decoder;
    tw_deployment *d = NULL;
    assert_int_equal(tw_device_open("emu:grid8x8", NULL, &device, &err), 0);
    assert_int_equal(tw_decoder_open(model_bundle("sim4x4"), 0, &decoder, &err), 0);
    assert_int_equal(tw_deploy(device, decoder, &d, &err), TW_E_TARGET);
    assert_non_null(strstr(err.message, "sim4x4"));
    assert_non_null(strstr(err.message, "grid8x8"));
    assert_null(d);
    tw_decoder_close(decoder);
    tw_device_close(device);
}

static void a_bundle_that_spans_chips_needs_a_device_with_links(void **state) {
    (void)state;
    tw_error err = {0};
    tw_device *device;
    tw_decoder *decoder;
    tw_deployment *d = NULL;
    assert_int_equal(tw_device_open("emu:quad2x2", NULL, &device, &err), 0);
    assert_int_equal(tw_decoder_open(model_bundle("quad2x2"), 0, &decoder, &err), 0);
    uint32_t can = device->identity.capabilities;
    device->identity.capabilities &= ~(uint32_t)TW_WIRE_CAN_LINK;
    assert_int_equal(tw_deploy(device, decoder, &d, &err), TW_E_UNSUPPORTED);
    assert_non_null(
        strstr(err.message,
               "program decode spans 4 chips, but device emu:quad2x2 has no chip-to-chip links"));
    assert_null(d);
    device->identity.capabilities = can;
    assert_int_equal(tw_deploy(device, decoder, &d, &err), 0);
    tw_deployment_destroy(d);
    tw_decoder_close(decoder);
    tw_device_close(device);
}

static void an_unverified_bundle_is_not_deployed(void **state) {
    (void)state;
    tw_error err = {0};
    tw_device *device;
    tw_decoder *decoder;
    tw_deployment *d = NULL;
    assert_int_equal(tw_device_open(NULL, NULL, &device, &err), 0);
    assert_int_equal(tw_decoder_open(model_bundle("host"), TW_DECODER_NO_RULES, &decoder, &err), 0);
    assert_int_equal(tw_deploy(device, decoder, &d, &err), TW_E_VERIFY);
    tw_decoder_close(decoder);
    tw_device_close(device);
}

static void an_unknown_device_is_refused_with_a_list_of_devices(void **state) {
    (void)state;
    static const char *const bad[] = {"usb",
                                      "emu:nothing",
                                      "17",
                                      "",
                                      "emulator",
                                      "null:1",
                                      "99999999999999999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tw_error err = {0};
        tw_device *device = NULL;
        assert_int_equal(tw_device_open(bad[i], NULL, &device, &err), TW_E_NO_DEVICE);
        assert_null(device);
        assert_true(err.message[0] != 0);
    }
}

static void a_small_device_reports_have_and_need_and_stays_usable(void **state) {
    (void)state;
    tw_error err = {0};
    tw_device *device;
    tw_decoder *decoder;
    struct tw_device_options o = {.size = sizeof o, .n_threads = 1};
    int codes[2] = {0, 0};
    assert_int_equal(tw_decoder_open(model_bundle("host"), 0, &decoder, &err), 0);
    /* From far too little up to enough: each step of creating a session runs out once. */
    for (o.memory_bytes = 4096; o.memory_bytes < UINT64_C(1) << 26;
         o.memory_bytes += o.memory_bytes / 4) {
        tw_session *s = NULL;
        tw_deployment *d = NULL;
        assert_int_equal(tw_device_open("emu", &o, &device, &err), 0);
        int code = tw_deploy(device, decoder, &d, &err);
        code = code ? code : tw_session_create(d, NULL, &s, &err);
        assert_true(code == 0 || code == TW_E_NOMEM);
        codes[code != 0]++;
        tw_session_destroy(s);
        tw_deployment_destroy(d);
        struct tw_wire_counters counters;
        struct tw_device_call call = {
            .opcode = TW_WIRE_COUNTERS, .out = &counters, .out_bytes = sizeof counters};
        assert_int_equal(tw_device_call(device, &call, &err), 0);
        assert_int_equal(counters.memory_used, 0);
        assert_int_equal(counters.allocations, 0);
        tw_device_close(device);
    }
    assert_true(codes[0] > 0 && codes[1] > 0);
    tw_decoder_close(decoder);
}

static void many_sessions_in_sequence_leak_nothing(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "host", 2, NULL);
    for (int i = 0; i < 50; i++) {
        tw_session_destroy(r.session);
        r.session = NULL;
        assert_int_equal(tw_session_create(r.deployment, NULL, &r.session, &r.err), 0);
        assert_int_equal(tw_session_feed(r.session, tokens, 3, &r.err), 0);
    }
    rig_close(&r);
}

static void a_bundle_is_described(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "sim4x4", 1, NULL);
    struct tw_decoder_info info = {.size = sizeof info};
    tw_decoder_get_info(r.decoder, &info, NULL);
    assert_string_equal(info.target, "sim4x4");
    assert_int_equal(info.n_vocab, 1024);
    assert_int_equal(info.n_layers, 8);
    assert_int_equal(info.n_params, 1706112);
    assert_int_equal(info.has_tokenizer, 1);
    assert_int_equal(info.bos, 1);
    /* All Q8_0 matrices once (34 bytes for 32 weights) and the norms; panels and padding add
     * little. */
    assert_in_range(info.bytes_per_token, 1700000, 2300000);
    struct tw_program_info p = {.size = sizeof p};
    assert_true(tw_decoder_get_program(r.decoder, 0, &p, NULL) == 0);
    assert_int_equal(p.n_sites, 16);
    assert_true(p.sram_used > 0 && p.sram_used <= p.sram_bytes);
    assert_false(tw_decoder_get_program(r.decoder, info.n_programs, &p, NULL) == 0);
    struct tw_rules_info rules = {.size = sizeof rules};
    assert_int_equal(tw_decoder_verify(r.decoder, &rules, &r.err), 0);
    assert_true(rules.n_rules >= 16);
    for (uint32_t i = 1; i <= rules.n_rules; i++) {
        assert_non_null(tw_rule_name(i));
    }
    assert_null(tw_rule_name(0));
    assert_null(tw_rule_name(rules.n_rules + 1));
    /* A caller that knows a shorter structure gets no byte more. */
    struct tw_decoder_info small;
    memset(&small, 0x55, sizeof small);
    small.size = 16;
    tw_decoder_get_info(r.decoder, &small, NULL);
    assert_int_equal(((const uint8_t *)&small)[16], 0x55);
    assert_int_equal(small.size, 16);
    rig_close(&r);
}

static int cleanup(void **state) {
    (void)state;
    model_bundle_cleanup();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_chunk_size_gives_the_same_bits),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(strict_mode_gives_the_same_bits_under_any_schedule),
        cmocka_unit_test(another_target_gives_the_same_bits),
        cmocka_unit_test(a_device_without_shared_memory_gives_the_same_bits),
        cmocka_unit_test(sessions_on_one_deployment_do_not_disturb_each_other),
        cmocka_unit_test(two_sequences_in_one_state_would),
        cmocka_unit_test(rewinding_and_feeding_again_gives_the_same_bits),
        cmocka_unit_test(a_full_context_is_refused_and_changes_nothing),
        cmocka_unit_test(the_whole_context_can_be_used),
        cmocka_unit_test(ids_outside_of_the_vocabulary_are_refused),
        cmocka_unit_test(a_fault_names_the_op_and_ends_the_session),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(a_note_that_claims_too_much_is_refused),
        cmocka_unit_test(a_bundle_for_another_target_is_refused),
        cmocka_unit_test(a_bundle_that_spans_chips_needs_a_device_with_links),
        cmocka_unit_test(an_unverified_bundle_is_not_deployed),
        cmocka_unit_test(an_unknown_device_is_refused_with_a_list_of_devices),
        cmocka_unit_test(a_small_device_reports_have_and_need_and_stays_usable),
        cmocka_unit_test(many_sessions_in_sequence_leak_nothing),
        cmocka_unit_test(a_bundle_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, cleanup);
}
