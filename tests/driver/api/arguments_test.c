/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls every function of the public API with each of its pointers NULL, and with undefined flags:
 * it returns USAGE with a message, or does what the header says for NULL. The list of functions is
 * compared with what the public headers declare.
 */
#include "tests/support/model_bundle.h"
#include "tests/support/test.h"
#include "tilewright/compile.h"
#include "tilewright/delta.h"
#include "tilewright/emulate.h"
#include "tilewright/program.h"
#include "tilewright/state.h"

#include <math.h>
#include <signal.h>

#define N_TABLE(t) (sizeof(t) / sizeof(t)[0])

/* An opened session and files for the entries that need them. */
static struct rig rig;
static tw_error err;
static const uint32_t ids[] = {1, 403, 407};
static struct tw_info_of_no_size { uint32_t size; } no_size;

/* Asserts that the call returns USAGE with a message that says why. */
#define REFUSED(call)                                                                    \
    do {                                                                                 \
        memset(&err, 0, sizeof err);                                                     \
        int code_ = (call);                                                              \
        if (code_ != TW_E_USAGE || err.code != TW_E_USAGE || strlen(err.message) < 10) { \
            fail_msg("%s: code %d \"%s\"", #call, code_, err.message);                   \
        }                                                                                \
    } while (0)

static bool no_device(void *ctx, const struct tw_device_info *info) {
    (void)ctx;
    (void)info;
    return false;
}

static bool no_change(void *ctx, enum tw_device_event event, const struct tw_device_info *info) {
    (void)ctx;
    (void)event;
    (void)info;
    return false;
}

static bool no_status(void *ctx, const struct tw_status_info *info) {
    (void)ctx;
    (void)info;
    return false;
}

static bool no_buffer(void *ctx, const struct tw_map_info *info) {
    (void)ctx;
    (void)info;
    return false;
}

/* ---- errors and versions ---- */

static void set_with(tw_error *e, const char *format, ...) {
    va_list args;
    va_start(args, format);
    tw_error_vset(e, TW_E_IO, format, args);
    va_end(args);
}

static void errors(void) {
    tw_error e = {0};
    assert_int_equal(tw_fail(NULL, TW_E_IO, "%s", "x"), TW_E_IO);
    tw_error_set(NULL, TW_E_IO, "%s", "x");
    set_with(NULL, "%s", "x");
    set_with(&e, NULL);
    assert_int_equal(e.code, TW_E_IO);
    assert_string_equal(e.message, tw_error_cause(TW_E_IO));
    tw_error_prefix(NULL, "x");
    tw_error_prefix(&e, NULL);
    tw_error_append(NULL, "%s", "x");
    assert_string_equal(e.message, tw_error_cause(TW_E_IO));
    assert_string_equal(tw_error_name(-1000), "UNKNOWN");
    assert_non_null(tw_error_remedy(-1000));
    assert_int_equal(tw_error_class_of(-1000), TW_CLASS_INTERNAL);
    assert_int_equal(tw_error_exit_status(-1000), TW_CLASS_INTERNAL);
}

static void versions(void) {
    assert_string_equal(tw_version(), TW_VERSION);
    assert_int_equal(tw_version_number(), TW_VERSION_NUMBER);
}

/* ---- devices ---- */

static void devices(void) {
    struct tw_device_info info = {.size = sizeof info};
    struct tw_device_options o = {.size = 0};
    tw_device *device;
    REFUSED(tw_device_list(NULL, NULL, &err));
    assert_int_equal(tw_device_list(no_device, NULL, NULL), 0);
    REFUSED(tw_device_watch(NULL, NULL, NULL, &err));
    assert_int_equal(tw_device_watch(no_change, NULL, NULL, NULL), 0);
    REFUSED(tw_device_open("emu", NULL, NULL, &err));
    REFUSED(tw_device_open("emu", &o, &device, &err));
    assert_int_equal(tw_device_open(NULL, NULL, &device, NULL), 0); /* "emu" */
    assert_int_equal(tw_device_reset(device, NULL), 0);
    assert_int_equal(tw_device_selftest(device, NULL, NULL, NULL), 0);
    tw_device_close(device);
    tw_device_close(NULL);
    REFUSED(tw_device_get_info(NULL, &info, &err));
    REFUSED(tw_device_get_info(rig.device, NULL, &err));
    REFUSED(tw_device_get_info(rig.device, (void *)&no_size, &err));
    assert_string_equal(tw_device_target(NULL), "");
    assert_string_equal(tw_device_recovered(NULL), "");
    REFUSED(tw_device_reset(NULL, &err));
    REFUSED(tw_device_selftest(NULL, NULL, NULL, &err));
}

static void statuses(void) {
    struct tw_status_info info = {.size = sizeof info};
    REFUSED(tw_device_get_status(NULL, &info, &err));
    REFUSED(tw_device_get_status(rig.device, NULL, &err));
    REFUSED(tw_device_get_status(rig.device, (void *)&no_size, &err));
    REFUSED(tw_status_list(NULL, NULL, &err));
    assert_int_equal(tw_status_list(no_status, NULL, NULL), 0);
}

static void emulation(void) {
    struct tw_emulate_options o = {.size = 0, .path = "x"};
    const char *text;
    REFUSED(tw_emulate(NULL, NULL, &err));
    REFUSED(tw_emulate(&o, NULL, &err));
    o.size = sizeof o.size; /* no endpoint */
    REFUSED(tw_emulate(&o, NULL, &err));
    assert_non_null(tw_fault_plan(0, NULL));
    assert_non_null(tw_fault_plan(0, &text));
    assert_null(tw_fault_plan(UINT32_MAX, NULL));
}

/* ---- decoders ---- */

static void decoders(void) {
    struct tw_decoder_info info = {.size = sizeof info};
    tw_decoder *decoder;
    REFUSED(tw_decoder_open(NULL, 0, &decoder, &err));
    REFUSED(tw_decoder_open(model_bundle("host"), 0, NULL, &err));
    REFUSED(tw_decoder_open(model_bundle("host"), 4, &decoder, &err));
    REFUSED(tw_decoder_open(model_bundle("host"), 1u << 31 | 1, &decoder, &err));
    tw_decoder_close(NULL);
    REFUSED(tw_decoder_get_info(NULL, &info, &err));
    REFUSED(tw_decoder_get_info(rig.decoder, NULL, &err));
    REFUSED(tw_decoder_get_info(rig.decoder, (void *)&no_size, &err));
}

static void tables(void) {
    struct tw_program_info p = {.size = sizeof p};
    struct tw_segment_info g = {.size = sizeof g};
    struct tw_symbol_info s = {.size = sizeof s};
    REFUSED(tw_decoder_get_program(NULL, 0, &p, &err));
    REFUSED(tw_decoder_get_program(rig.decoder, 0, NULL, &err));
    REFUSED(tw_decoder_get_program(rig.decoder, 0, (void *)&no_size, &err));
    REFUSED(tw_decoder_get_program(rig.decoder, UINT32_MAX, &p, &err));
    REFUSED(tw_decoder_get_segment(NULL, 0, &g, &err));
    REFUSED(tw_decoder_get_segment(rig.decoder, 0, NULL, &err));
    REFUSED(tw_decoder_get_segment(rig.decoder, 0, (void *)&no_size, &err));
    REFUSED(tw_decoder_get_segment(rig.decoder, UINT32_MAX, &g, &err));
    REFUSED(tw_decoder_get_symbol(NULL, 0, &s, &err));
    REFUSED(tw_decoder_get_symbol(rig.decoder, 0, NULL, &err));
    REFUSED(tw_decoder_get_symbol(rig.decoder, 0, (void *)&no_size, &err));
    REFUSED(tw_decoder_get_symbol(rig.decoder, UINT32_MAX, &s, &err));
}

static void views(void) {
    REFUSED(tw_decoder_map(NULL, 0, 0, no_buffer, NULL, &err));
    REFUSED(tw_decoder_map(rig.decoder, 0, 0, NULL, NULL, &err));
    REFUSED(tw_decoder_verify(NULL, NULL, &err));
    REFUSED(tw_decoder_verify(rig.decoder, (void *)&no_size, &err));
    assert_int_equal(tw_decoder_verify(rig.decoder, NULL, NULL), 0);
    REFUSED(tw_decoder_print(NULL, NULL, stdout, &err));
    REFUSED(tw_decoder_print(rig.decoder, NULL, NULL, &err));
    assert_null(tw_rule_name(0));
    assert_null(tw_rule_text(UINT32_MAX));
}

static void texts(void) {
    uint32_t id;
    char text[8];
    size_t n;
    REFUSED(tw_tokenize(NULL, "a", 1, 0, &id, 1, &n, &err));
    REFUSED(tw_tokenize(rig.decoder, NULL, 1, 0, &id, 1, &n, &err));
    REFUSED(tw_tokenize(rig.decoder, "a", 1, 0, NULL, 1, &n, &err));
    REFUSED(tw_tokenize(rig.decoder, "a", 1, 0, &id, 1, NULL, &err));
    REFUSED(tw_tokenize(rig.decoder, "a", 1, 4, &id, 1, &n, &err));
    assert_int_equal(tw_tokenize(rig.decoder, NULL, 0, 0, NULL, 0, &n, NULL), 0);
    struct tw_token_info token = {.size = sizeof token};
    REFUSED(tw_decoder_get_token(NULL, 1, &token, &err));
    REFUSED(tw_decoder_get_token(rig.decoder, 1, NULL, &err));
    REFUSED(tw_decoder_get_token(rig.decoder, 1, (void *)&no_size, &err));
    REFUSED(tw_detokenize(NULL, ids, 1, text, sizeof text, &n, &err));
    REFUSED(tw_detokenize(rig.decoder, NULL, 1, text, sizeof text, &n, &err));
    REFUSED(tw_detokenize(rig.decoder, ids, 1, NULL, 1, &n, &err));
    REFUSED(tw_detokenize(rig.decoder, ids, 1, text, sizeof text, NULL, &err));
    assert_int_equal(tw_detokenize(rig.decoder, NULL, 0, NULL, 0, &n, NULL), 0);
}

static void chats(void) {
    struct tw_chat_options o = {.size = 0};
    tw_chat *chat;
    char text[8];
    uint32_t id;
    size_t n;
    REFUSED(tw_chat_create(NULL, NULL, &chat, &err));
    REFUSED(tw_chat_create(rig.decoder, NULL, NULL, &err));
    REFUSED(tw_chat_create(rig.decoder, &o, &chat, &err));
    o = (struct tw_chat_options){.size = sizeof o, .template_text = "chatmI"};
    REFUSED(tw_chat_create(rig.decoder, &o, &chat, &err));
    assert_int_equal(tw_chat_create(rig.decoder, NULL, &chat, &err), TW_E_UNSUPPORTED);
    o.template_text = "chatml";
    assert_int_equal(tw_chat_create(rig.decoder, &o, &chat, NULL), 0);
    REFUSED(tw_chat_render(NULL, "{}", 2, text, sizeof text, &n, &err));
    REFUSED(tw_chat_render(chat, NULL, 2, text, sizeof text, &n, &err));
    REFUSED(tw_chat_render(chat, "{}", 2, NULL, sizeof text, &n, &err));
    REFUSED(tw_chat_render(chat, "{}", 2, text, sizeof text, NULL, &err));
    assert_int_equal(tw_chat_render(chat, "{}", 2, text, sizeof text, &n, NULL), TW_E_FORMAT);
    REFUSED(tw_chat_tokenize(NULL, "{}", 2, &id, 1, &n, &err));
    REFUSED(tw_chat_tokenize(chat, NULL, 2, &id, 1, &n, &err));
    REFUSED(tw_chat_tokenize(chat, "{}", 2, NULL, 1, &n, &err));
    REFUSED(tw_chat_tokenize(chat, "{}", 2, &id, 1, NULL, &err));
    tw_chat_destroy(chat);
    tw_chat_destroy(NULL);
    assert_string_equal(tw_chat_builtin_name(0), "chatml");
    assert_null(tw_chat_builtin_name(UINT32_MAX));
}

static void programs(void) {
    REFUSED(tw_program_file_verify(NULL, NULL, NULL, NULL, NULL, &err));
    REFUSED(tw_program_file_verify("x.tws", NULL, NULL, (void *)&no_size, NULL, &err));
    REFUSED(tw_program_file_print(NULL, NULL, stdout, &err));
    REFUSED(tw_program_file_print("x.tws", NULL, NULL, &err));
    REFUSED(tw_program_file_explore(NULL, 0, 0, NULL, NULL, &err));
}

/* ---- sessions ---- */

static void sessions(void) {
    struct tw_session_info info = {.size = sizeof info};
    struct tw_session_options o = {.size = 3};
    tw_deployment *deployment;
    tw_session *session;
    REFUSED(tw_deploy(NULL, rig.decoder, &deployment, &err));
    REFUSED(tw_deploy(rig.device, NULL, &deployment, &err));
    REFUSED(tw_deploy(rig.device, rig.decoder, NULL, &err));
    REFUSED(tw_deploy_with(NULL, rig.decoder, NULL, &deployment, &err));
    REFUSED(tw_deploy_with(rig.device, NULL, NULL, &deployment, &err));
    REFUSED(tw_deploy_with(rig.device, rig.decoder, NULL, NULL, &err));
    REFUSED(
        tw_deploy_with(rig.device, rig.decoder, &(struct tw_deploy_options){0}, &deployment, &err));
    tw_deployment_destroy(NULL);
    REFUSED(tw_session_create(NULL, NULL, &session, &err));
    REFUSED(tw_session_create(rig.deployment, &o, &session, &err));
    REFUSED(tw_session_create(rig.deployment, NULL, NULL, &err));
    REFUSED(tw_session_fork(NULL, &session, &err));
    REFUSED(tw_session_fork(rig.session, NULL, &err));
    tw_session_destroy(NULL);
    REFUSED(tw_session_get_info(NULL, &info, &err));
    REFUSED(tw_session_get_info(rig.session, NULL, &err));
    REFUSED(tw_session_get_info(rig.session, (void *)&no_size, &err));
}

static void steps(void) {
    REFUSED(tw_session_feed(NULL, ids, 1, &err));
    REFUSED(tw_session_feed(rig.session, NULL, 1, &err));
    REFUSED(tw_session_feed(rig.session, ids, 0, &err));
    float row[1];
    REFUSED(tw_session_score(NULL, ids, 1, row, &err));
    REFUSED(tw_session_score(rig.session, NULL, 1, row, &err));
    REFUSED(tw_session_score(rig.session, ids, 0, row, &err));
    REFUSED(tw_session_score(rig.session, ids, 1, NULL, &err));
    assert_null(tw_session_logits(NULL));
    assert_null(tw_session_logits(rig.session));
    assert_int_equal(tw_session_position(NULL), 0);
    REFUSED(tw_session_rewind(NULL, 0, &err));
    REFUSED(tw_session_rewind(rig.session, 1, &err));
    tw_session_interrupt(NULL);
}

static void states(void) {
    struct tw_session_saved saved = {.size = 0};
    struct tw_state_info info = {.size = 0}, good = {.size = sizeof good};
    char byte;
    size_t size;
    uint32_t id = 1;
    const char *path = "/tmp/tw-arguments.twstate"; /* is not created */
    REFUSED(tw_session_save(NULL, path, NULL, &err));
    REFUSED(tw_session_save(rig.session, NULL, NULL, &err));
    REFUSED(tw_session_save(rig.session, path, NULL, &err)); /* no tokens */
    REFUSED(tw_session_save_memory(NULL, &byte, 1, &size, &err));
    REFUSED(tw_session_save_memory(rig.session, &byte, 1, NULL, &err));
    REFUSED(tw_session_save_memory(rig.session, NULL, 1, &size, &err));
    REFUSED(tw_session_restore(NULL, path, NULL, &err));
    REFUSED(tw_session_restore(rig.session, NULL, NULL, &err));
    REFUSED(tw_session_restore_memory(NULL, &byte, 1, NULL, &err));
    REFUSED(tw_session_restore_memory(rig.session, NULL, 1, NULL, &err));
    assert_int_equal(tw_session_restore_memory(rig.session, &byte, 0, NULL, NULL), TW_E_TRUNCATED);
    assert_int_equal(tw_session_tokens(NULL, &id, 1), 0);
    REFUSED(tw_state_file_info(NULL, 0, &good, &err));
    REFUSED(tw_state_file_info(path, 0, NULL, &err));
    REFUSED(tw_state_file_info(path, 0, &info, &err));
    REFUSED(tw_state_file_info(path, 1u << 31, &good, &err));
    REFUSED(tw_state_file_remove(NULL, &err));
    assert_int_equal(tw_session_feed(rig.session, &id, 1, &err), 0);
    REFUSED(tw_session_save(rig.session, path, &saved, &err));
    assert_int_equal(tw_session_rewind(rig.session, 0, &err), 0);
}

static void prefixes(void) {
    uint32_t id = 1, n;
    REFUSED(tw_session_feed_prompt(NULL, &id, 1, &n, &err));
    REFUSED(tw_session_feed_prompt(rig.session, NULL, 1, &n, &err));
    REFUSED(tw_session_reuse_prefix(NULL, &id, 1, &n, &err));
    REFUSED(tw_session_reuse_prefix(rig.session, NULL, 1, &n, &err));
    REFUSED(tw_session_keep_prefix(NULL, NULL, &err));
    assert_int_equal(tw_session_rewind(rig.session, 0, &err), 0);
}

/* Each entry has its own result; the good one among them is fed. */
static void several_sessions(void) {
    uint32_t id = 1;
    struct tw_step_entry e[4] = {{.session = NULL, .ids = &id, .n = 1},
                                 {.session = rig.session, .ids = &id, .n = 1},
                                 {.session = rig.session, .ids = &id, .n = 1},
                                 {.session = rig.session, .ids = NULL, .n = 1}};
    REFUSED(tw_step(NULL, 1, &err));
    REFUSED(tw_step(e, 0, &err));
    REFUSED(tw_step(e, 4, &err));
    assert_int_equal(e[0].code, TW_E_USAGE);
    assert_int_equal(e[1].code, 0);
    assert_int_equal(e[2].code, TW_E_USAGE); /* the same session again */
    assert_int_equal(e[3].code, TW_E_USAGE);
    assert_int_equal(tw_session_position(rig.session), 1);
    e[1].flags = 1;
    REFUSED(tw_step(e + 1, 1, &err));
    e[1].flags = 0;
    e[1].n = 0;
    assert_int_equal(tw_step(e + 1, 1, &err), tw_session_feed(rig.session, &id, 0, NULL));
    assert_int_equal(tw_session_rewind(rig.session, 0, &err), 0);
}

static void deltas(void) {
    const char *none = "/nowhere";
    struct tw_delta_info info = {.size = 0}, good = {.size = sizeof good};
    struct tw_bundle_difference d = {.size = 0}, fine = {.size = sizeof fine};
    REFUSED(tw_delta_make(NULL, none, none, NULL, &err));
    REFUSED(tw_delta_make(none, NULL, none, NULL, &err));
    REFUSED(tw_delta_make(none, none, NULL, NULL, &err));
    REFUSED(tw_delta_make(none, none, none, &info, &err));
    REFUSED(tw_delta_apply(NULL, none, none, NULL, &err));
    REFUSED(tw_delta_apply(none, NULL, none, NULL, &err));
    REFUSED(tw_delta_apply(none, none, NULL, NULL, &err));
    REFUSED(tw_delta_apply(none, none, none, &info, &err));
    REFUSED(tw_delta_get_info(NULL, &good, &err));
    REFUSED(tw_delta_get_info(none, NULL, &err));
    REFUSED(tw_delta_get_info(none, &info, &err));
    REFUSED(tw_bundle_compare(NULL, none, NULL, NULL, &fine, &err));
    REFUSED(tw_bundle_compare(none, NULL, NULL, NULL, &fine, &err));
    REFUSED(tw_bundle_compare(none, none, NULL, NULL, NULL, &err));
    REFUSED(tw_bundle_compare(none, none, NULL, NULL, &d, &err));
}

static void greedy_runs(void) {
    struct tw_greedy_options o = {.size = sizeof o, .n = 1};
    enum tw_stop_reason reason;
    uint32_t token, n;
    REFUSED(tw_session_run_greedy(NULL, 1, &o, &token, &n, &reason, &err));
    REFUSED(tw_session_run_greedy(rig.session, 1, NULL, &token, &n, &reason, &err));
    REFUSED(tw_session_run_greedy(rig.session, 1, &o, NULL, &n, &reason, &err));
    REFUSED(tw_session_run_greedy(rig.session, 1, &o, &token, NULL, &reason, &err));
    REFUSED(tw_session_run_greedy(rig.session, 1, &o, &token, &n, NULL, &err));
    o.flags = 2;
    REFUSED(tw_session_run_greedy(rig.session, 1, &o, &token, &n, &reason, &err));
    o.size = 2;
    REFUSED(tw_session_run_greedy(rig.session, 1, &o, &token, &n, &reason, &err));
}

/* On a fresh session and on a rewound one. */
static void generation(void) {
    struct tw_generate_options o = {.size = sizeof o, .n_predict = 1};
    struct tw_generate_result no_room = {.size = 0};
    REFUSED(tw_generate(NULL, ids, 1, &o, NULL, &err));
    REFUSED(tw_generate(rig.session, NULL, 1, &o, NULL, &err));
    REFUSED(tw_generate(rig.session, ids, 0, &o, NULL, &err));
    REFUSED(tw_generate(rig.session, NULL, 0, NULL, NULL, &err));
    REFUSED(tw_generate(rig.session, ids, 1, &o, &no_room, &err));
    o.flags = 16;
    REFUSED(tw_generate(rig.session, ids, 1, &o, NULL, &err));
    o.flags = 0;
    assert_int_equal(tw_generate(rig.session, ids, 3, &o, NULL, NULL), 0);
    assert_int_equal(tw_session_rewind(rig.session, 0, NULL), 0);
    REFUSED(tw_generate(rig.session, ids, 0, &o, NULL, &err));
    o.size = 0;
    REFUSED(tw_generate(rig.session, ids, 1, &o, NULL, &err));
}

/* ---- the compiler ---- */

static void compilation(void) {
    char key[65];
    struct tw_compile_options o = {.size = 0};
    struct tw_compile_report no_room = {.size = 0};
    REFUSED(tw_compile_file(NULL, "/tmp/x.twb", NULL, NULL, &err));
    REFUSED(tw_compile_file(SHIPPED_MODEL, NULL, NULL, NULL, &err));
    REFUSED(tw_compile_file(SHIPPED_MODEL, "/tmp/x.twb", &o, NULL, &err));
    REFUSED(tw_compile_file(SHIPPED_MODEL, "/tmp/x.twb", NULL, &no_room, &err));
    REFUSED(tw_compile_key(NULL, NULL, key, &err));
    REFUSED(tw_compile_key(SHIPPED_MODEL, &o, key, &err));
    REFUSED(tw_compile_key(SHIPPED_MODEL, NULL, NULL, &err));
    REFUSED(tw_compile_dump(NULL, "mid", NULL, stdout, &err));
    REFUSED(tw_compile_dump(SHIPPED_MODEL, NULL, NULL, stdout, &err));
    REFUSED(tw_compile_dump(SHIPPED_MODEL, "mid", &o, stdout, &err));
    REFUSED(tw_compile_dump(SHIPPED_MODEL, "mid", NULL, NULL, &err));
    struct tw_model_info info = {.size = sizeof info}, no_info = {.size = 0};
    REFUSED(tw_model_get_info(NULL, NULL, &info, &err));
    REFUSED(tw_model_get_info(SHIPPED_MODEL, NULL, NULL, &err));
    REFUSED(tw_model_get_info(SHIPPED_MODEL, NULL, &no_info, &err));
}

/* Its only argument may be NULL; calling it twice is legal. */
static void file_guards(void) {
    struct sigaction before;
    assert_int_equal(sigaction(SIGBUS, NULL, &before), 0);
    assert_int_equal(tw_guard_files(NULL), 0);
    assert_int_equal(tw_guard_files(NULL), 0);
    sigaction(SIGBUS, &before, NULL);
}

static void targets(void) {
    struct tw_target_info info = {.size = sizeof info};
    REFUSED(tw_target_get_info(NULL, 0, &info, &err));
    REFUSED(tw_target_get_info("host", 0, NULL, &err));
    REFUSED(tw_target_get_info("host", 0, (void *)&no_size, &err));
    REFUSED(tw_target_get_info("nowhere", 0, &info, &err));
    for (uint32_t i = 0; tw_target_name(i); i++) {
        assert_int_equal(tw_target_get_info(tw_target_name(i), 2, &info, NULL), 0);
        assert_string_equal(info.name, tw_target_name(i));
    }
    assert_null(tw_target_name(UINT32_MAX));
}

static void certificates(void) {
    tw_certifier *certifier;
    const struct tw_program *program = (const void *)&no_size; /* not read */
    const uint32_t *words;
    uint32_t n;
    REFUSED(tw_certifier_create(NULL, &err));
    tw_certifier_destroy(NULL);
    assert_int_equal(tw_certifier_create(&certifier, NULL), 0);
    REFUSED(tw_certifier_prove(NULL, program, &words, &n, &err));
    REFUSED(tw_certifier_prove(certifier, NULL, &words, &n, &err));
    REFUSED(tw_certifier_prove(certifier, program, NULL, &n, &err));
    REFUSED(tw_certifier_prove(certifier, program, &words, NULL, &err));
    tw_certifier_destroy(certifier);
}

/* ---- the walk ---- */

static const struct group {
    void (*walk)(void);
    const char *entries; /* the functions that it calls */
} groups[] = {
    {errors, "tw_error_set tw_error_vset tw_error_prefix tw_error_append tw_error_name "
             "tw_error_cause tw_error_remedy "
             "tw_error_class_of tw_error_exit_status"},
    {versions, "tw_version tw_version_number"},
    {devices, "tw_device_list tw_device_watch tw_device_open tw_device_close tw_device_get_info "
              "tw_device_target tw_device_recovered tw_device_reset tw_device_selftest"},
    {statuses, "tw_device_get_status tw_status_list"},
    {emulation, "tw_emulate tw_fault_plan"},
    {decoders, "tw_decoder_open tw_decoder_close tw_decoder_get_info"},
    {tables, "tw_decoder_get_program tw_decoder_get_segment tw_decoder_get_symbol"},
    {views, "tw_decoder_map tw_decoder_verify tw_decoder_print tw_rule_name tw_rule_text"},
    {texts, "tw_tokenize tw_detokenize tw_decoder_get_token"},
    {chats, "tw_chat_create tw_chat_destroy tw_chat_render tw_chat_tokenize tw_chat_builtin_name"},
    {programs, "tw_program_file_verify tw_program_file_print tw_program_file_explore"},
    {sessions, "tw_deploy tw_deploy_with tw_deployment_destroy tw_session_create tw_session_fork "
               "tw_session_destroy "
               "tw_session_get_info"},
    {steps, "tw_session_feed tw_session_score tw_session_logits tw_session_position "
            "tw_session_rewind tw_session_interrupt"},
    {states, "tw_session_save tw_session_save_memory tw_session_restore "
             "tw_session_restore_memory tw_session_tokens tw_state_file_info tw_state_file_remove"},
    {prefixes, "tw_session_feed_prompt tw_session_reuse_prefix tw_session_keep_prefix"},
    {several_sessions, "tw_step"},
    {deltas, "tw_delta_make tw_delta_apply tw_delta_get_info tw_bundle_compare"},
    {greedy_runs, "tw_session_run_greedy"},
    {generation, "tw_generate"},
    {file_guards, "tw_guard_files"},
    {compilation, "tw_compile_file tw_compile_key tw_compile_dump tw_model_get_info"},
    {targets, "tw_target_name tw_target_get_info"},
    {certificates, "tw_certifier_create tw_certifier_destroy tw_certifier_prove"},
};

static void every_function_refuses_invalid_arguments(void **state) {
    (void)state;
    rig_open(&rig, "host", 1, NULL);
    for (size_t i = 0; i < N_TABLE(groups); i++) {
        groups[i].walk();
    }
    rig_close(&rig);
}

static bool is_walked(const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < N_TABLE(groups); i++) {
        for (const char *at = groups[i].entries; (at = strstr(at, name)); at += n) {
            if ((at[n] == 0 || at[n] == ' ') && (at == groups[i].entries || at[-1] == ' ')) {
                return true;
            }
        }
    }
    return false;
}

static void the_walk_covers_every_declared_function(void **state) {
    (void)state;
    char name[128];
    uint32_t n = 0;
    FILE *list = popen("tools/mk/declared tilewright/tilewright.h tilewright/compile.h "
                       "tilewright/emulate.h tilewright/program.h tilewright/state.h "
                       "tilewright/delta.h",
                       "r");
    assert_non_null(list);
    for (; fscanf(list, "%127s", name) == 1; n++) {
        if (!is_walked(name)) {
            fail_msg("%s is not in the walk", name);
        }
    }
    assert_int_equal(pclose(list), 0);
    assert_true(n > 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_refuses_invalid_arguments),
        cmocka_unit_test(the_walk_covers_every_declared_function),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_bundle_cleanup();
    return failed;
}
