/* SPDX-License-Identifier: Apache-2.0
 *
 * Hot-plug events: the list of devices is read again every second, and at once when libusb reports
 * a change; the differences are the events. So no event is missed even if the system reports none.
 */
#include "driver/device/device.h"
#include "driver/transport/usb/usb_hint.h"
#include "loader/base/clock.h"
#include "loader/base/grow.h"
#include "loader/base/sized.h"
#include "loader/base/stop.h"

#include <stdlib.h>
#include <string.h>

#define SCAN_MS 1000u
#define STEP_MS 100u /* between two looks at *stop */

struct snapshot {
    struct tw_transport_info *device;
    size_t n, capacity;
    bool failed; /* out of memory */
};

static bool append(void *ctx, const struct tw_transport_info *t) {
    struct snapshot *s = ctx;
    s->failed = !tw_grow(&s->device, &s->capacity, s->n + 1, sizeof *s->device);
    if (!s->failed) {
        s->device[s->n++] = *t;
    }
    return !s->failed;
}

static void take_snapshot(struct snapshot *s) {
    s->n = 0;
    for (size_t i = 0; tw_transports[i] && !s->failed; i++) {
        tw_transports[i]->discover(append, s);
    }
}

/* Finds the same device, not just one of the same name. */
static const struct tw_transport_info *find(const struct snapshot *s,
                                            const struct tw_transport_info *t) {
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->device[i].selector, t->selector) == 0 &&
            s->device[i].instance == t->instance) {
            return &s->device[i];
        }
    }
    return NULL;
}

struct watcher {
    bool (*changed)(void *ctx, enum tw_device_event event, const struct tw_device_info *info);
    void *ctx;
    const volatile sig_atomic_t *stop;
    struct snapshot previous, now;
};

static bool is_stopped(const struct watcher *w) {
    return tw_stopped(w->stop);
}

static bool report(struct watcher *w, enum tw_device_event event, const struct tw_transport_info *t,
                   size_t index) {
    struct tw_device_info info = tw_device_describe(t, (uint32_t)index);
    return !is_stopped(w) && w->changed(w->ctx, event, &info);
}

static bool report_differences(struct watcher *w) {
    bool more = true;
    for (size_t i = 0; more && i < w->previous.n; i++) {
        const struct tw_transport_info *t = &w->previous.device[i];
        more = find(&w->now, t) || report(w, TW_DEVICE_LEFT, t, i);
    }
    for (size_t i = 0; more && i < w->now.n; i++) {
        const struct tw_transport_info *t = &w->now.device[i], *old = find(&w->previous, t);
        if (!old) {
            more = report(w, TW_DEVICE_ARRIVED, t, i);
        } else if (strcmp(old->state, t->state) != 0) {
            more = report(w, TW_DEVICE_CHANGED, t, i);
        }
    }
    return more;
}

static void await_scan(const struct watcher *w, struct tw_usb_hint *hint) {
    uint64_t begin = tw_clock_ms();
    while (!is_stopped(w) && tw_clock_ms() - begin < SCAN_MS && !tw_usb_hint_wait(hint, STEP_MS)) {
    }
}

int tw_device_watch(bool (*changed)(void *ctx, enum tw_device_event event,
                                    const struct tw_device_info *info),
                    void *ctx, const volatile sig_atomic_t *stop, tw_error *err) {
    int code = TW_NEED(err, changed);
    if (code) {
        return code;
    }
    struct watcher w = {.changed = changed, .ctx = ctx, .stop = stop};
    /* before the first scan, so that no change is missed in between */
    struct tw_usb_hint *hint = tw_usb_hint_create();
    take_snapshot(&w.now);
    while (!w.now.failed && report_differences(&w) && !is_stopped(&w)) {
        struct snapshot old = w.previous;
        w.previous = w.now;
        w.now = old;
        await_scan(&w, hint);
        take_snapshot(&w.now);
    }
    bool failed = w.now.failed;
    tw_usb_hint_destroy(hint);
    free(w.previous.device);
    free(w.now.device);
    return failed ? tw_fail(err, TW_E_NOMEM, "devices: out of memory") : 0;
}
