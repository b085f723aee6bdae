/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright reset: makes a device answer again and frees everything on it. Opening it tries the
 * recovery steps of its transport, mildest first, until it answers; then the device itself is
 * reset. If the connection is lost meanwhile, it is opened once more.
 */
#include "loader/base/clock.h"
#include "loader/base/compiler.h"
#include "tilewright/tilewright.h"
#include "tools/cmd.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <stdarg.h>
#include <string.h>

struct reset_args {
    const char *device;
    float deadline;
    bool verbose, json;
};

#define AT(field) offsetof(struct reset_args, field)
static const struct opt options[] = {
    {OPT_TEXT, 0, "device", "D", AT(device), 0, 0, "device of `tilewright devices`"},
    {OPT_FLOAT, 0, "deadline", "S", AT(deadline), 0.1, 3600,
     "end a step after this many seconds without any answer (10)"},
    {OPT_FLAG, 'v', "verbose", NULL, AT(verbose), 0, 0, "report each step on standard error"},
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "reset",
    "",
    0,
    "Reset a device: free all of its memory, cached weights included.",
    options,
    "A device that another process is using is not touched; the message names the process. The "
    "exit status is 6 if the\n"
    "device still does not answer; the message then says what was tried."};

struct recovery {
    const struct reset_args *args;
    json_t *steps;
    double start;
};

static void report_verbose(const struct recovery *r, const char *format, ...) TW_PRINTF(2, 3);
static void report_verbose(const struct recovery *r, const char *format, ...) {
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (r->args->verbose) {
        ui_note("reset %s: %s", r->args->device, text);
    }
}

/* Records the result of a step; `text` describes a success. */
static void record_step(struct recovery *r, const char *step, int code, const char *text,
                        const tw_error *err) {
    double now = tw_clock_s();
    report_verbose(r, "%s: %s (%.1f ms)", step, code ? err->message : text, 1e3 * (now - r->start));
    json_array_append_new(r->steps,
                          json_pack("{s:s, s:b, s:s, s:f}", "step", step, "done", code == 0, "text",
                                    code ? err->message : text, "seconds", now - r->start));
    r->start = now;
}

static int open_device(struct recovery *r, const char *step, tw_device **device, tw_error *err) {
    struct tw_device_options o = {.size = sizeof o,
                                  .deadline_ms = (uint32_t)(r->args->deadline * 1000)};
    char text[300] = "the device answers";
    int code = tw_device_open(r->args->device, &o, device, err);
    if (!code && tw_device_recovered(*device)[0]) {
        snprintf(text, sizeof text, "the device did not answer until %.250s",
                 tw_device_recovered(*device));
    }
    record_step(r, step, code, text, err);
    return code;
}

static int reset_device(struct recovery *r, const char *step, tw_device *device, tw_error *err) {
    int code = tw_device_reset(device, err);
    record_step(r, step, code, "the device's memory is free, and it answers", err);
    return code;
}

/* Errors that a fresh connection may fix: the device drops the previous one. */
static bool can_reconnect(int code) {
    return code == TW_E_DEVICE_LOST || code == TW_E_TIMEOUT || code == TW_E_PROTOCOL;
}

static int recover(struct recovery *r, tw_error *err) {
    tw_device *device = NULL;
    report_verbose(r, "opening the device; a step ends after %g s without an answer",
                   (double)r->args->deadline);
    int code = open_device(r, "open", &device, err);
    if (code) {
        return code;
    }
    code = reset_device(r, "reset", device, err);
    tw_device_close(device);
    if (can_reconnect(code)) {
        code = open_device(r, "open again", &device, err);
        if (!code) {
            code = reset_device(r, "reset again", device, err);
            tw_device_close(device);
        }
    }
    return code;
}

static int report(const struct recovery *r, int code, tw_error *err) {
    if (r->args->json) {
        json_t *o =
            json_pack("{s:o, s:b, s:O, s:s*, s:s*}", "device", text_json(r->args->device), "reset",
                      code == 0, "steps", r->steps, "error", code ? err->message : NULL, "code",
                      code ? tw_error_name(code) : NULL);
        int printed = ui_print_json(o, code ? NULL : err);
        return code ? code : printed;
    }
    if (!code) {
        printf("%s: reset, answers\n", text_clean(r->args->device).text);
        code = ui_flush(err);
    }
    return code;
}

static int run(int argc, char **argv, tw_error *err) {
    struct reset_args a = {.deadline = 10};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    if (!a.device) {
        return tw_fail(err, TW_E_USAGE,
                       "reset: option --device is missing; tilewright devices lists the devices");
    }
    struct recovery r = {.args = &a, .steps = json_array(), .start = tw_clock_s()};
    code = report(&r, recover(&r, err), err);
    json_decref(r.steps);
    return code;
}

const struct cmd cmd_reset = {&verb, run};
