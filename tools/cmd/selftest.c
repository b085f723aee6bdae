/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright selftest: checks memory, transfers and a small program on a device, as often as asked
 * for, and reports what the link had to resend meanwhile.
 */
#include "tilewright/tilewright.h"
#include "tools/cmd.h"
#include "tools/text.h"
#include "tools/ui.h"

struct selftest_args {
    const char *device;
    int64_t repeats;
    float deadline;
    bool json;
};

#define AT(field) offsetof(struct selftest_args, field)
static const struct opt options[] = {
    {OPT_TEXT, 0, "device", "D", AT(device), 0, 0, "device of `tilewright devices` (emu)"},
    {OPT_I64, 'r', "repeats", "N", AT(repeats), 1, 1000000, "run N times, or until a failure (1)"},
    {OPT_FLOAT, 0, "deadline", "S", AT(deadline), 0.1, 3600,
     "fail after this many seconds without progress (10)"},
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {"selftest",
                                     "",
                                     0,
                                     "Test a device: memory, transfers, a small program.",
                                     options,
                                     "The exit status is 6 if a step fails; the message names the "
                                     "step, the place, and what was found and expected."};

static void print_step(void *ctx, const struct tw_selftest_step *s) {
    (void)ctx;
    printf("ok  %-16s %8.2f ms", s->name, 1e3 * s->seconds);
    if (s->bytes && s->seconds > 0) {
        printf("  %.0f MB/s", 1e-6 * (double)s->bytes / s->seconds);
    }
    putchar('\n');
}

static void add_step(void *ctx, const struct tw_selftest_step *s) {
    json_array_append_new(ctx, json_pack("{s:s, s:f, s:I}", "step", s->name, "seconds", s->seconds,
                                         "bytes", (json_int_t)s->bytes));
}

/* JSON has the steps of each round, text only those of the first. */
static int test(const struct selftest_args *a, tw_device *device, json_t *steps, int64_t *passed,
                tw_error *err) {
    int code = 0;
    for (*passed = 0; !code && *passed < a->repeats && !ui_stop; *passed += !code) {
        code = tw_device_selftest(device,
                                  a->json        ? add_step
                                  : *passed == 0 ? print_step
                                                 : NULL,
                                  steps, err);
        ui_progress(NULL, "testing", (uint64_t)*passed, (uint64_t)a->repeats);
    }
    ui_progress_end();
    return !code && ui_stop ? tw_fail(err, TW_E_INTERRUPTED, "interrupted") : code;
}

static int print_text(const struct selftest_args *a, const struct tw_status_info *s,
                      const struct tw_device_info *info, int64_t passed, tw_error *err) {
    char sent[32], received[32];
    if (a->repeats > 1) {
        printf("ok  %lld of %lld rounds\n", (long long)passed, (long long)a->repeats);
    }
    printf("    link: %s sent, %s received, resent %llu times, %llu packets damaged\n",
           ui_bytes(s->sent_bytes, sent), ui_bytes(s->received_bytes, received),
           (unsigned long long)s->resent, (unsigned long long)s->damaged);
    if (info->trusts_host) {
        printf("    trusts its host: runs programs without verifying them\n");
    }
    return ui_flush(err);
}

static int print_json(const struct selftest_args *a, const struct tw_status_info *s,
                      const struct tw_device_info *info, json_t *steps, int64_t passed, int code,
                      const char *message, tw_error *err) {
    json_t *o = json_pack(
        "{s:o, s:b, s:I, s:I, s:o, s:s*, s:s*, s:I, s:I, s:I, s:I, s:b}", "device",
        text_json(a->device), "passed", code == 0, "rounds", (json_int_t)a->repeats,
        "rounds_passed", (json_int_t)passed, "steps", steps, "error", code ? message : NULL, "code",
        code ? tw_error_name(code) : NULL, "sent_bytes", (json_int_t)s->sent_bytes,
        "received_bytes", (json_int_t)s->received_bytes, "resent", (json_int_t)s->resent, "damaged",
        (json_int_t)s->damaged, "trusts_host", info->trusts_host != 0);
    return ui_print_json(o, err);
}

static int run(int argc, char **argv, tw_error *err) {
    struct selftest_args a = {.device = "emu", .repeats = 1, .deadline = 10};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    struct tw_device_options o = {.size = sizeof o, .deadline_ms = (uint32_t)(a.deadline * 1000)};
    tw_device *device = NULL;
    struct tw_status_info s = {.size = sizeof s};
    struct tw_device_info info = {.size = sizeof info};
    int64_t passed = 0;
    json_t *steps = json_array();
    tw_error e = {0};
    code = tw_device_open(a.device, &o, &device, &e);
    if (!code) {
        ui_catch_interrupts();
        code = test(&a, device, steps, &passed, &e);
        tw_device_get_status(device, &s, NULL);
        tw_device_get_info(device, &info, NULL);
        tw_device_close(device);
    }
    int printed = a.json
                      ? print_json(&a, &s, &info, json_incref(steps), passed, code, e.message, err)
                  : device ? print_text(&a, &s, &info, passed, err)
                           : 0;
    json_decref(steps);
    return printed || !code ? printed : tw_fail(err, code, "%s", e.message);
}

const struct cmd cmd_selftest = {&verb, run};
