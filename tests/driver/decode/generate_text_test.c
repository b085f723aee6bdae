/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a text ends, and what happens to a character that tw_generate() could not finish. The test
 * chooses the tokens, by changing the logits that are read from the device.
 */
#include "driver/session/session.h"
#include "tests/support/bundle_fixture.h"
#include "tests/support/model_bundle.h"
#include "tests/support/test.h"
#include "tilewright/compile.h"

#include <unistd.h>

#define REPLACEMENT "\xEF\xBF\xBD"

/* ---- a device whose logits favour the tokens that the test chooses ---- */

static const uint32_t *wanted; /* ids to be chosen, one for each row of logits */
static struct tw_transport_ops real, forced;
static uint32_t n_vocab;

static int receive(struct tw_transport *t, uint8_t *header, const void **payload, uint32_t *bytes,
                   tw_error *err) {
    int code = real.receive(t, header, payload, bytes, err);
    if (!code && header[5] == TW_WIRE_READ && *bytes == n_vocab * sizeof(float)) {
        ((float *)(uintptr_t)*payload)[*wanted++] = 1e30f;
    }
    return code;
}

static void open_forced(struct rig *r) {
    struct tw_decoder_info info = {.size = sizeof info};
    memset(r, 0, sizeof *r);
    assert_int_equal(tw_device_open("emu", NULL, &r->device, &r->err), 0);
    real = forced = *r->device->transport->ops;
    forced.map = NULL; /* so that logits are read by a request */
    forced.adopt = NULL;
    forced.receive = receive;
    r->device->transport->ops = &forced;
    assert_int_equal(tw_decoder_open(model_bundle("host"), 0, &r->decoder, &r->err), 0);
    assert_int_equal(tw_decoder_get_info(r->decoder, &info, &r->err), 0);
    n_vocab = info.n_vocab;
    assert_int_equal(tw_deploy(r->device, r->decoder, &r->deployment, &r->err), 0);
    assert_int_equal(tw_session_create(r->deployment, NULL, &r->session, &r->err), 0);
}

/* The token of a byte. */
static uint32_t byte_id(const struct rig *r, unsigned byte) {
    const struct tw_vocab *v = &r->decoder->vocab;
    char piece[8];
    snprintf(piece, sizeof piece, "<0x%02X>", byte);
    for (uint32_t i = 0; i < v->header.n_tokens; i++) {
        if (v->offsets[i + 1] - v->offsets[i] == 6 &&
            memcmp(v->bytes + v->offsets[i], piece, 6) == 0) {
            return i;
        }
    }
    fail_msg("no token %s", piece);
    return 0;
}

/* ---- text ---- */

struct heard {
    char text[256];
    size_t n;
};

static int on_text(void *ctx, const char *text, size_t n) {
    struct heard *h = ctx;
    memcpy(h->text + h->n, text, n);
    h->n += n;
    h->text[h->n] = 0;
    return 0;
}

/* Generates `n` of the wanted tokens after the prompt. Returns the text, in static storage. */
static const char *text_of(struct rig *r, const uint32_t *prompt, size_t n_prompt,
                           const uint32_t *ids, uint32_t n) {
    static struct heard h;
    const struct tw_generate_options o = {
        .size = sizeof o, .n_predict = n, .on_text = on_text, .ctx = &h};
    memset(&h, 0, sizeof h);
    wanted = ids;
    assert_int_equal(tw_generate(r->session, prompt, n_prompt, &o, NULL, &r->err), 0);
    return h.text;
}

static void a_character_continues_in_the_next_call(void **state) {
    (void)state;
    struct rig r;
    open_forced(&r);
    const uint32_t bos = 1, e[] = {byte_id(&r, 0xC3), byte_id(&r, 0xA9)};
    assert_string_equal(text_of(&r, &bos, 1, &e[0], 1), "");
    assert_string_equal(text_of(&r, &e[0], 1, &e[1], 1), "\xC3\xA9");
    /* four bytes, one in each call */
    const uint32_t smile[] = {byte_id(&r, 0xF0), byte_id(&r, 0x9F), byte_id(&r, 0x98),
                              byte_id(&r, 0x80)};
    assert_string_equal(text_of(&r, &e[1], 1, &smile[0], 1), "");
    assert_string_equal(text_of(&r, &smile[0], 1, &smile[1], 1), "");
    assert_string_equal(text_of(&r, &smile[1], 1, &smile[2], 1), "");
    assert_string_equal(text_of(&r, &smile[2], 1, &smile[3], 1), "\xF0\x9F\x98\x80");
    rig_close(&r);
}

static void a_character_that_does_not_continue_is_replaced(void **state) {
    (void)state;
    struct rig r;
    open_forced(&r);
    const uint32_t bos = 1, eos = 2, e[] = {byte_id(&r, 0xC3), byte_id(&r, 'x'), byte_id(&r, 0xA9)};
    const uint32_t other[] = {e[0], 403}, end[] = {e[0], eos};
    assert_string_equal(text_of(&r, &bos, 1, &e[0], 1), "");
    assert_string_equal(text_of(&r, &e[0], 1, &e[1], 1), REPLACEMENT "x"); /* another byte */
    assert_string_equal(text_of(&r, &e[1], 1, &e[0], 1), "");
    assert_string_equal(text_of(&r, other, 2, &e[1], 1), REPLACEMENT "x"); /* another prompt */
    assert_string_equal(text_of(&r, &e[1], 1, &e[0], 1), "");
    assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
    assert_string_equal(text_of(&r, &e[0], 1, &e[2], 1), REPLACEMENT); /* elsewhere: that of 0xA9 */
    assert_string_equal(text_of(&r, &bos, 1, end, 5), REPLACEMENT);    /* the text is over */
    assert_string_equal(text_of(&r, &eos, 1, &e[1], 1), "x");
    rig_close(&r);
}

/* As in a chat, whose next prompt has what could be heard of the answer. */
static void a_rewound_character_leaves_nothing(void **state) {
    (void)state;
    struct rig r;
    open_forced(&r);
    const uint32_t bos = 1, e = byte_id(&r, 0xC3), x = byte_id(&r, 'x');
    assert_string_equal(text_of(&r, &bos, 1, &e, 1), "");
    assert_int_equal(tw_session_rewind(r.session, tw_session_position(r.session), &r.err), 0);
    assert_string_equal(text_of(&r, &x, 1, &x, 1), "x");
    rig_close(&r);
}

static int on_text_once(void *ctx, const char *text, size_t n) {
    (void)on_text(ctx, text, n);
    return 1;
}

/* The stop text is "xy", so the second x is held back when the first one stops. */
static void on_text_is_not_called_after_it_stopped(void **state) {
    (void)state;
    struct rig r;
    open_forced(&r);
    const uint32_t bos = 1, x = byte_id(&r, 'x'), ids[] = {x, x, x, x};
    const char *const stops[] = {"xy"};
    struct heard h = {.n = 0};
    const struct tw_generate_options o = {.size = sizeof o,
                                          .n_predict = 4,
                                          .on_text = on_text_once,
                                          .ctx = &h,
                                          .n_stop_texts = 1,
                                          .stop_texts = stops};
    struct tw_generate_result result = {.size = sizeof result};
    wanted = ids;
    assert_int_equal(tw_generate(r.session, &bos, 1, &o, &result, &r.err), 0);
    assert_int_equal(result.reason, TW_STOP_CALLBACK);
    assert_string_equal(h.text, "x");
    rig_close(&r);
}

/* ---- ids ---- */

struct ids {
    uint32_t id[64], n;
};

static int on_token(void *ctx, uint32_t id, const float *logits) {
    struct ids *h = ctx;
    (void)logits;
    h->id[h->n++] = id;
    return 0;
}

/* ---- stop texts ---- */

/* Generates at most n wanted tokens, stopping at these texts. */
static const char *text_until(struct rig *r, const uint32_t *ids, uint32_t n,
                              const char *const *stops, uint32_t n_stops,
                              enum tw_stop_reason expected) {
    static struct heard h;
    const uint32_t bos = 1;
    struct tw_generate_result result = {.size = sizeof result};
    const struct tw_generate_options o = {.size = sizeof o,
                                          .n_predict = n,
                                          .on_text = on_text,
                                          .ctx = &h,
                                          .n_stop_texts = n_stops,
                                          .stop_texts = stops};
    memset(&h, 0, sizeof h);
    wanted = ids;
    assert_int_equal(tw_session_rewind(r->session, 0, &r->err), 0);
    assert_int_equal(tw_generate(r->session, &bos, 1, &o, &result, &r->err), 0);
    assert_int_equal(result.reason, expected);
    return h.text;
}

static void a_stop_text_ends_the_text_before_it(void **state) {
    (void)state;
    struct rig r;
    open_forced(&r);
    const uint32_t x = byte_id(&r, 'x'), y = byte_id(&r, 'y'), e1 = byte_id(&r, 0xC3),
                   e2 = byte_id(&r, 0xA9), eos = 2;
    const uint32_t ids[] = {x, e1, e2, y, x, y, y, x};
    const char *const across[] = {"q", "\xC3\xA9yx"}, *const late[] = {"yyx"};
    const char *const begun[] = {"yxyyxz", "xx"};
    assert_string_equal(text_until(&r, ids, 8, across, 2, TW_STOP_TEXT), "x");
    assert_string_equal(text_until(&r, ids, 8, late, 1, TW_STOP_TEXT), "x\xC3\xA9yx");
    /* what was held back appears if the text ends otherwise: by count, by its own end */
    assert_string_equal(text_until(&r, ids, 8, begun, 2, TW_STOP_COUNT), "x\xC3\xA9yxyyx");
    const uint32_t ended[] = {x, y, x, eos};
    assert_string_equal(text_until(&r, ended, 8, begun, 2, TW_STOP_END), "xyx");
    rig_close(&r);
}

/* The device generates several tokens at a time: those after the stop text are not fed. */
static void a_stop_text_ends_what_the_device_generates(void **state) {
    (void)state;
    struct rig r;
    const uint32_t prompt[] = {1, 403, 407, 261, 378};
    const char *stop;
    struct heard all = {.n = 0}, h = {.n = 0};
    struct tw_generate_options o = {.size = sizeof o,
                                    .n_predict = 40,
                                    .on_text = on_text,
                                    .flags = TW_GENERATE_NO_LOGITS,
                                    .ctx = &all};
    struct tw_generate_result result = {.size = sizeof result};
    rig_open(&r, "host", 1, NULL);
    assert_int_equal(tw_generate(r.session, prompt, 5, &o, &result, &r.err), 0);
    assert_true(all.n > 40);
    char middle[6] = {0};
    memcpy(middle, all.text + 30, 5);
    stop = middle;
    size_t at = (size_t)(strstr(all.text, middle) - all.text);
    o.ctx = &h;
    o.n_stop_texts = 1;
    o.stop_texts = &stop;
    assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
    assert_int_equal(tw_generate(r.session, prompt, 5, &o, &result, &r.err), 0);
    assert_int_equal(result.reason, TW_STOP_TEXT);
    assert_int_equal(h.n, at);
    assert_memory_equal(h.text, all.text, at);
    /* every token but the last one is fed */
    assert_int_equal(tw_session_position(r.session), 5 + result.n_generated - 1);
    rig_close(&r);
}

/* ---- penalties ---- */

/* A presence penalty that no logit survives: greedy text without a token twice, which is chosen on
 * the host although the logits are not wanted. */
static void penalised_text_repeats_nothing(void **state) {
    (void)state;
    struct rig r;
    const uint32_t prompt[] = {1, 403, 407, 261, 378}, history[] = {11, 12};
    struct ids h = {.n = 0};
    const struct tw_generate_options o = {.size = sizeof o,
                                          .n_predict = 30,
                                          .flags = TW_GENERATE_NO_LOGITS | TW_GENERATE_IGNORE_EOS,
                                          .on_token = on_token,
                                          .ctx = &h,
                                          .presence_penalty = 1e6f,
                                          .repeat_last_n = UINT32_MAX,
                                          .n_history = 2,
                                          .history = history};
    rig_open(&r, "host", 1, NULL);
    assert_int_equal(tw_generate(r.session, prompt, 5, &o, NULL, &r.err), 0);
    assert_int_equal(h.n, 30);
    for (uint32_t i = 0; i < h.n; i++) {
        for (uint32_t j = 0; j < 5; j++) {
            assert_int_not_equal(h.id[i], prompt[j]);
        }
        for (uint32_t j = 0; j < i; j++) {
            assert_int_not_equal(h.id[i], h.id[j]);
        }
    }
    rig_close(&r);
}

/* ---- ends ---- */

/* Saves the shipped model with one more key, and a second one as padding, so that the rest of the
 * file stays aligned. */
static void save_model_with(const char *path, const char *key, uint32_t value) {
    size_t n, at = 24;
    uint8_t *file = bundle_fixture_read(SHIPPED_MODEL, &n);
    uint8_t *out = calloc(1, n + 256);
    assert_non_null(file);
    memcpy(out, file, at);
    const uint64_t lengths[] = {strlen(key), 8}, n_keys = (uint64_t)file[16] + 2;
    assert_true(n_keys < 256);
    out[16] = (uint8_t)n_keys;
    const uint32_t u32 = 4, string = 8;
    memcpy(out + at, &lengths[0], 8);
    memcpy(out + at + 8, key, lengths[0]);
    at += 8 + lengths[0];
    memcpy(out + at, &u32, 4);
    memcpy(out + at + 4, &value, 4);
    at += 8;
    memcpy(out + at, &lengths[1], 8);
    memcpy(out + at + 8, "test.pad", 8);
    memcpy(out + at + 16, &string, 4);
    at += 20;
    const uint64_t fill = (31 - (at + 8 - 24 + 31) % 32) % 32;
    memcpy(out + at, &fill, 8);
    memset(out + at + 8, '.', fill);
    at += 8 + fill;
    assert_int_equal((at - 24) % 32, 0);
    memcpy(out + at, file + 24, n - 24);
    assert_int_equal(bundle_fixture_save(path, out, at + n - 24), 0);
    free(out);
    free(file);
}

static void open_bundle(struct rig *r, const char *path) {
    memset(r, 0, sizeof *r);
    assert_int_equal(tw_device_open("emu", NULL, &r->device, &r->err), 0);
    assert_int_equal(tw_decoder_open(path, 0, &r->decoder, &r->err), 0);
    assert_int_equal(tw_deploy(r->device, r->decoder, &r->deployment, &r->err), 0);
    assert_int_equal(tw_session_create(r->deployment, NULL, &r->session, &r->err), 0);
}

static struct ids generate(struct rig *r, unsigned flags, enum tw_stop_reason expected) {
    const uint32_t prompt[] = {1, 403, 407, 261, 378};
    struct ids h = {.n = 0};
    const struct tw_generate_options o = {
        .size = sizeof o, .n_predict = 40, .flags = flags, .on_token = on_token, .ctx = &h};
    struct tw_generate_result result = {.size = sizeof result};
    assert_int_equal(tw_session_rewind(r->session, 0, &r->err), 0);
    assert_int_equal(tw_generate(r->session, prompt, 5, &o, &result, &r->err), 0);
    assert_int_equal(result.reason, expected);
    return h;
}

/* Generates with a model whose end of turn is a token that occurs, chosen on the host and on the
 * device. */
static void check_end_key(const char *key) {
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    struct ids all = generate(&r, 0, TW_STOP_COUNT);
    rig_close(&r);
    uint32_t at = 12, first = 0;
    while (all.id[first] != all.id[at]) {
        first++;
    }
    char *folder = bundle_fixture_folder(), model[256], bundle[256];
    snprintf(model, sizeof model, "%s/m.gguf", folder);
    snprintf(bundle, sizeof bundle, "%s/m.twb", folder);
    save_model_with(model, key, all.id[at]);
    const struct tw_compile_options o = {.size = sizeof o, .host_sites = 2, .prefill_rows = 32};
    tw_error err = {0};
    if (tw_compile_file(model, bundle, &o, NULL, &err)) {
        fail_msg("%s", err.message);
    }
    open_bundle(&r, bundle);
    struct tw_decoder_info info = {.size = sizeof info};
    assert_int_equal(tw_decoder_get_info(r.decoder, &info, &r.err), 0);
    assert_int_equal(info.n_ends, 2);
    assert_int_equal(info.end[0], info.eos);
    assert_int_equal(info.end[1], all.id[at]);
    struct ids h = generate(&r, 0, TW_STOP_END);
    assert_int_equal(h.n, first);
    assert_memory_equal(h.id, all.id, first * sizeof h.id[0]);
    h = generate(&r, TW_GENERATE_NO_LOGITS, TW_STOP_END);
    assert_int_equal(h.n, first);
    h = generate(&r, TW_GENERATE_IGNORE_EOS | TW_GENERATE_NO_LOGITS, TW_STOP_COUNT);
    assert_memory_equal(h.id, all.id, h.n * sizeof h.id[0]);
    rig_close(&r);
    bundle_fixture_remove(folder);
}

static void the_end_of_a_turn_or_message_ends_the_text(void **state) {
    (void)state;
    check_end_key("tokenizer.ggml.eot_token_id");
    check_end_key("tokenizer.ggml.eom_token_id");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_character_continues_in_the_next_call),
        cmocka_unit_test(a_character_that_does_not_continue_is_replaced),
        cmocka_unit_test(a_rewound_character_leaves_nothing),
        cmocka_unit_test(on_text_is_not_called_after_it_stopped),
        cmocka_unit_test(a_stop_text_ends_the_text_before_it),
        cmocka_unit_test(a_stop_text_ends_what_the_device_generates),
        cmocka_unit_test(penalised_text_repeats_nothing),
        cmocka_unit_test(the_end_of_a_turn_or_message_ends_the_text),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_bundle_cleanup();
    return failed;
}
