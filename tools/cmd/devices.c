/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright devices: every device with its state; each selector that it prints is accepted by
 * --device.
 */
#include "tilewright/tilewright.h"
#include "tools/cmd.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <string.h>

struct devices_args {
    bool json, watch;
    const char *device;
};

static const struct opt options[] = {
    {OPT_TEXT, 0, "device", "D", offsetof(struct devices_args, device), 0, 0,
     "show only this device; fail unless it is ready"},
    {OPT_FLAG, 0, "watch", NULL, offsetof(struct devices_args, watch), 0, 0,
     "then print a line for each device that arrives, leaves or changes state (Ctrl-C ends)"},
    {OPT_FLAG, 0, "json", NULL, offsetof(struct devices_args, json), 0, 0, "print JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "devices", "",
    0,         "List the devices and their states.",
    options,   "Option --device of other verbs takes a number or a name from this list."};

/* Finds one device of the list by number or name. */
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

/* ---- for people ---- */

/* Column widths: the longest text of each. */
struct columns {
    int selector, state, target;
};

static int wider(int width, const char *text) {
    int n = (int)strlen(text);
    return n > width ? n : width;
}

static bool measure(void *ctx, const struct tw_device_info *d) {
    struct columns *c = ctx;
    c->selector = wider(c->selector, d->selector);
    c->state = wider(c->state, d->state);
    c->target = wider(c->target, d->target[0] ? d->target : "any");
    return true;
}

static bool print_line(void *ctx, const struct tw_device_info *d) {
    const struct columns *c = ctx;
    printf("%2u  %-*s  %-*s  %-*s  %s\n", d->index, c->selector, text_clean(d->selector).text,
           c->state, d->state, c->target, d->target[0] ? d->target : "any", d->detail);
    return true;
}

/* The list may change between the two passes; then a line of it is not aligned. */
static int print_all(tw_error *err) {
    struct columns c = {0};
    tw_device_list(measure, &c, NULL);
    tw_device_list(print_line, &c, NULL);
    return ui_flush(err);
}

/* ---- events ---- */

struct watch {
    bool json;
    int code;
    tw_error *err;
};

static bool print_event(void *ctx, enum tw_device_event event, const struct tw_device_info *d) {
    static const char *const word[] = {"", "arrived", "left", "changed"};
    struct watch *w = ctx;
    if (w->json) {
        w->code =
            ui_print_json(json_pack("{s:s, s:o, s:s, s:s}", "event", word[event], "device",
                                    text_json(d->selector), "state", d->state, "detail", d->detail),
                          w->err);
    } else {
        printf("%-7s  %-14s  %-9s  %s\n", word[event], text_clean(d->selector).text,
               event == TW_DEVICE_LEFT ? "" : d->state, event == TW_DEVICE_LEFT ? "" : d->detail);
        w->code = ui_flush(w->err);
    }
    return w->code == 0;
}

static int watch_all(bool json, tw_error *err) {
    struct watch w = {.json = json, .err = err};
    ui_catch_interrupts();
    int code = tw_device_watch(print_event, &w, &ui_stop, err);
    return code ? code : w.code;
}

/* ---- for programs ---- */

static bool add_json(void *ctx, const struct tw_device_info *d) {
    json_array_append_new(ctx, json_pack("{s:i, s:o, s:s, s:s, s:s, s:i, s:i}", "index",
                                         (int)d->index, "device", text_json(d->selector), "state",
                                         d->state, "target", d->target, "detail", d->detail,
                                         "link_mbits", (int)d->link_mbits, "link_best_mbits",
                                         (int)d->link_best_mbits));
    return true;
}

static int show_one(const struct devices_args *a, tw_error *err) {
    struct search s = {.wanted = a->device};
    tw_device_list(match, &s, NULL);
    if (!s.any) {
        return tw_fail(err, TW_E_NO_DEVICE, "no device %s; see tilewright devices", a->device);
    }
    json_t *list = a->json ? json_array() : NULL;
    struct columns c = {0};
    measure(&c, &s.found);
    a->json ? add_json(list, &s.found) : print_line(&c, &s.found);
    int code = a->json ? ui_print_json(list, err) : ui_flush(err);
    if (code || strcmp(s.found.state, "ready") == 0) {
        return code;
    }
    bool busy = strcmp(s.found.state, "busy") == 0;
    return tw_fail(err, busy ? TW_E_DEVICE_BUSY : TW_E_NO_DEVICE, "device %s is %s: %s",
                   s.found.selector, s.found.state, s.found.detail);
}

static int run(int argc, char **argv, tw_error *err) {
    struct devices_args a = {0};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    if (a.watch) {
        return watch_all(a.json, err);
    }
    if (a.device) {
        return show_one(&a, err);
    }
    if (a.json) {
        json_t *list = json_array();
        tw_device_list(add_json, list, NULL);
        return ui_print_json(list, err);
    }
    return print_all(err);
}

const struct cmd cmd_devices = {&verb, run};
