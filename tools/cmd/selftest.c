/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright selftest: memory, transfers and a small program on a device, each checked against what is known.
 */
#include "tilewright/tilewright.h"
#include "tools/cmd.h"
#include "tools/ui.h"

struct selftest_args {
    const char *device;
    bool json;
};

#define AT(field) offsetof(struct selftest_args, field)
static const struct opt options[] = {
    {OPT_TEXT, 0, "device", "D", AT(device), 0, 0, "device of `tilewright devices` (emu)"},
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {"selftest", "",
                                     0,          "Tests a device: memory, transfers, a small program.",
                                     options,    "The exit status is 6 where a step fails."};

static void print_step(void *ctx, const struct tw_selftest_step *s) {
    (void)ctx;
    printf("ok  %-16s %8.2f ms", s->name, 1e3 * s->seconds);
    if (s->bytes && s->seconds > 0) {
        printf("  %.0f MB/s", 1e-6 * (double)s->bytes / s->seconds);
    }
    putchar('\n');
}

static void add_step(void *ctx, const struct tw_selftest_step *s) {
    json_array_append_new(
        ctx, json_pack("{s:s, s:f, s:I}", "step", s->name, "seconds", s->seconds, "bytes", (json_int_t)s->bytes));
}

static int run(int argc, char **argv, tw_error *err) {
    struct selftest_args a = {.device = "emu"};
    struct opt_result result;
    int code = opt_parse(&verb, argc, argv, &a, &result, err);
    if (code) {
        return code;
    }
    if (result.help) {
        opt_print_help(&verb, stdout);
        return ui_flush(err);
    }
    tw_device *device;
    code = tw_device_open(a.device, NULL, &device, err);
    if (code) {
        return code;
    }
    json_t *steps = a.json ? json_array() : NULL;
    code = tw_device_selftest(device, a.json ? add_step : print_step, steps, err);
    tw_device_close(device);
    if (!a.json) {
        int flushed = ui_flush(code ? NULL : err);
        return code ? code : flushed;
    }
    json_t *o = json_pack("{s:s, s:b, s:o}", "device", a.device, "passed", code == 0, "steps", steps);
    int printed = ui_print_json(o, code ? NULL : err);
    return code ? code : printed;
}

const struct cmd cmd_selftest = {&verb, run};
