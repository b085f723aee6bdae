/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright reset: frees everything on a device and sees that it answers.
 */
#include "tilewright/tilewright.h"
#include "tools/cmd.h"
#include "tools/ui.h"

struct reset_args {
    const char *device;
};

static const struct opt options[] = {
    {OPT_TEXT, 0, "device", "D", offsetof(struct reset_args, device), 0, 0, "device of `tilewright devices`"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "reset", "",
    0,       "Resets a device: whatever is in its memory is freed, weights kept for later too.",
    options, "A device that another process has is not touched; the message names the process."};

static int run(int argc, char **argv, tw_error *err) {
    struct reset_args a = {0};
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
        return tw_fail(err, TW_E_USAGE, "reset: --device is missing; tilewright devices lists them");
    }
    tw_device *device;
    code = tw_device_open(a.device, NULL, &device, err);
    if (code) {
        return code;
    }
    code = tw_device_reset(device, err);
    tw_device_close(device);
    if (code) {
        return code;
    }
    printf("%s: reset, answers\n", a.device);
    return ui_flush(err);
}

const struct cmd cmd_reset = {&verb, run};
