/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright reset: makes a device answer again and frees everything on it. Opening it climbs the
 * ladder of what connects it as far as needed; then the device itself is reset; if it is lost on
 * the way it is opened once more.
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
     "seconds without a sign of life that end a step (10)"},
    {OPT_FLAG, 'v', "verbose", NULL, AT(verbose), 0, 0, "tell each step on standard error"},
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "reset",
    "",
    0,
    "Resets a device: whatever is in its memory is freed, weights kept for later too.",
    options,
    "A device that another process has is not touched; the message names the process. The exit "
    "status is 6 where the\n"
    "device does not answer in the end, and then the message says what was tried."};

struct ladder {
    const struct reset_args *args;
    json_t *steps;
    double start;
};

static void say(const struct ladder *l, const char *format, ...) TW_PRINTF(2, 3);
static void say(const struct ladder *l, const char *format, ...) {
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (l->args->verbose) {
        ui_note("reset %s: %s", l->args->device, text);
    }
}

/* The result of a step, which `text` tells where it went well. */
static void note(struct ladder *l, const char *step, int code, const char *text,
                 const tw_error *err) {
    double now = tw_clock_s();
    say(l, "%s: %s (%.1f ms)", step, code ? err->message : text, 1e3 * (now - l->start));
    json_array_append_new(l->steps,
                          json_pack("{s:s, s:b, s:s, s:f}", "step", step, "done", code == 0, "text",
                                    code ? err->message : text, "seconds", now - l->start));
    l->start = now;
}

static int open_device(struct ladder *l, const char *step, tw_device **device, tw_error *err) {
    struct tw_device_options o = {.size = sizeof o,
                                  .deadline_ms = (uint32_t)(l->args->deadline * 1000)};
    char text[300] = "it answers";
    int code = tw_device_open(l->args->device, &o, device, err);
    if (!code && tw_device_recovered(*device)[0]) {
        snprintf(text, sizeof text, "it did not answer until %.250s", tw_device_recovered(*device));
    }
    note(l, step, code, text, err);
    return code;
}

static int reset_device(struct ladder *l, const char *step, tw_device *device, tw_error *err) {
    int code = tw_device_reset(device, err);
    note(l, step, code, "its memory is free, and it answers", err);
    return code;
}

/* What a fresh connection may mend: the device drops the one of before. */
static bool may_be_mended(int code) {
    return code == TW_E_DEVICE_LOST || code == TW_E_TIMEOUT || code == TW_E_PROTOCOL;
}

static int climb(struct ladder *l, tw_error *err) {
    tw_device *device = NULL;
    say(l, "opening it; a step ends after %g s without a sign of life", (double)l->args->deadline);
    int code = open_device(l, "open", &device, err);
    if (code) {
        return code;
    }
    code = reset_device(l, "reset", device, err);
    tw_device_close(device);
    if (may_be_mended(code)) {
        code = open_device(l, "open again", &device, err);
        if (!code) {
            code = reset_device(l, "reset again", device, err);
            tw_device_close(device);
        }
    }
    return code;
}

static int report(const struct ladder *l, int code, tw_error *err) {
    if (l->args->json) {
        json_t *o =
            json_pack("{s:o, s:b, s:O, s:s*, s:s*}", "device", text_json(l->args->device), "reset",
                      code == 0, "steps", l->steps, "error", code ? err->message : NULL, "code",
                      code ? tw_error_name(code) : NULL);
        int printed = ui_print_json(o, code ? NULL : err);
        return code ? code : printed;
    }
    if (!code) {
        printf("%s: reset, answers\n", text_clean(l->args->device).text);
        code = ui_flush(err);
    }
    return code;
}

static int run(int argc, char **argv, tw_error *err) {
    struct reset_args a = {.deadline = 10};
    struct opt_result result;
    int code = opt_parse(&verb, argc, argv, &a, &result, err);
    if (code) {
        return code;
    }
    if (result.help) {
        opt_print_help(&verb, stdout);
        return ui_flush(err);
    }
    if (!a.device) {
        return tw_fail(err, TW_E_USAGE,
                       "reset: --device is missing; tilewright devices lists them");
    }
    struct ladder l = {.args = &a, .steps = json_array(), .start = tw_clock_s()};
    code = report(&l, climb(&l, err), err);
    json_decref(l.steps);
    return code;
}

const struct cmd cmd_reset = {&verb, run};
