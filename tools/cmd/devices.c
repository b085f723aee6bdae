/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright devices: every device with its state; each selector that it prints is accepted by --device.
 */
#include "tilewright/tilewright.h"
#include "tools/cmd.h"
#include "tools/ui.h"

struct devices_args {
    bool json;
};

static const struct opt options[] = {
    {OPT_FLAG, 0, "json", NULL, offsetof(struct devices_args, json), 0, 0, "print JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {"devices", "",
                                     0,         "Lists the devices that can be used, with their state.",
                                     options,   "--device takes a number or a name of this list."};

static bool print_line(void *ctx, const struct tw_device_info *d) {
    (void)ctx;
    printf("%2u  %-14s %-9s %-10s %s\n", d->index, d->selector, d->state, d->target[0] ? d->target : "any", d->detail);
    return true;
}

static bool add_json(void *ctx, const struct tw_device_info *d) {
    json_array_append_new(ctx, json_pack("{s:i, s:s, s:s, s:s, s:s}", "index", (int)d->index, "device", d->selector,
                                         "state", d->state, "target", d->target, "detail", d->detail));
    return true;
}

static int run(int argc, char **argv, tw_error *err) {
    struct devices_args a = {0};
    struct opt_result result;
    int code = opt_parse(&verb, argc, argv, &a, &result, err);
    if (code) {
        return code;
    }
    if (result.help) {
        opt_print_help(&verb, stdout);
        return ui_flush(err);
    }
    if (a.json) {
        json_t *list = json_array();
        tw_device_list(add_json, list);
        return ui_print_json(list, err);
    }
    tw_device_list(print_line, NULL);
    return ui_flush(err);
}

const struct cmd cmd_devices = {&verb, run};
