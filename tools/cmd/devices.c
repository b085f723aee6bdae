/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright devices: every device with its state; each selector that it prints is accepted by --device.
 */
#include "tilewright/tilewright.h"
#include "tools/cmd.h"
#include "tools/ui.h"

#include <string.h>

struct devices_args {
    bool json;
    const char *device;
};

static const struct opt options[] = {
    {OPT_TEXT, 0, "device", "D", offsetof(struct devices_args, device), 0, 0,
     "only this one; fails unless it is ready"},
    {OPT_FLAG, 0, "json", NULL, offsetof(struct devices_args, json), 0, 0, "print JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {"devices", "",
                                     0,         "Lists the devices that can be used, with their state.",
                                     options,   "--device of other verbs takes a number or a name of this list."};

/* One device of the list: by number or name. */
struct search {
    const char *wanted;
    struct tw_device_info found;
    bool any;
};

static bool match(void *ctx, const struct tw_device_info *d) {
    struct search *s = ctx;
    char number[16];
    snprintf(number, sizeof number, "%u", d->index);
    if (strcmp(s->wanted, number) == 0 || strcmp(s->wanted, d->selector) == 0) {
        s->found = *d;
        s->any = true;
    }
    return !s->any;
}

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

static int show_one(const struct devices_args *a, tw_error *err) {
    struct search s = {.wanted = a->device};
    tw_device_list(match, &s);
    if (!s.any) {
        return tw_fail(err, TW_E_NO_DEVICE, "device %s is not in the list", a->device);
    }
    json_t *list = a->json ? json_array() : NULL;
    a->json ? add_json(list, &s.found) : print_line(NULL, &s.found);
    int code = a->json ? ui_print_json(list, err) : ui_flush(err);
    if (code || strcmp(s.found.state, "ready") == 0) {
        return code;
    }
    bool busy = strcmp(s.found.state, "busy") == 0;
    return tw_fail(err, busy ? TW_E_DEVICE_BUSY : TW_E_NO_DEVICE, "device %s is %s: %s", s.found.selector,
                   s.found.state, s.found.detail);
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
    if (a.device) {
        return show_one(&a, err);
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
