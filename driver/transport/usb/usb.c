/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport to a device on USB. Selectors: "usb" for the first one that is ready, "usb:SERIAL",
 * "usb:BUS-PORT[.PORT...]". One process at a time uses a device: the kernel lets only one claim its
 * interface and releases it when that process dies; a lock file names the process to others.
 */
#include "tilewright/usb.h"
#include "driver/transport/link/link_client.h"
#include "driver/transport/usb/usb_find.h"
#include "driver/transport/usb/usb_holder.h"
#include "driver/transport/usb/usb_host_pipe.h"
#include "loader/base/assert.h"
#include "loader/base/clock.h"
#include "loader/base/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Opening a device may fail while the kernel is still setting it up after it was plugged in. */
#define SETTLE_MS 1200u
#define SETTLE_STEP_US 50000
#define STATUS_MS 500
#define REQUEST_IN (LIBUSB_ENDPOINT_IN | LIBUSB_REQUEST_TYPE_VENDOR | LIBUSB_RECIPIENT_INTERFACE)

/* ---- discovery ---- */

static const char *state_name(enum tw_usb_state state) {
    switch (state) {
    case TW_USB_READY:
        return "ready";
    case TW_USB_BUSY:
        return "busy";
    case TW_USB_NO_PERMISSION:
        return "no permission";
    case TW_USB_RECOVERY:
        return "recovery";
    case TW_USB_UNUSABLE:
        break;
    }
    return "unusable";
}

static void discover(bool (*found)(void *ctx, const struct tw_transport_info *info), void *ctx) {
    struct tw_usb_list list;
    tw_error err = {0};
    bool more = true;
    if (tw_usb_find(&list, &err)) {
        struct tw_transport_info info = {.selector = "usb", .state = "unusable"};
        snprintf(info.detail, sizeof info.detail, "%.*s", (int)sizeof info.detail - 1, err.message);
        more = found(ctx, &info);
    }
    for (size_t i = 0; i < list.n && more; i++) {
        const struct tw_usb_found *d = &list.device[i];
        struct tw_transport_info info = {.instance = libusb_get_device_address(d->device),
                                         .link_mbits = d->mbits};
        info.link_best_mbits = d->best_mbits;
        snprintf(info.selector, sizeof info.selector, "usb:%s", d->name);
        snprintf(info.state, sizeof info.state, "%s", state_name(d->state));
        memcpy(info.detail, d->detail, sizeof info.detail);
        more = found(ctx, &info);
    }
    tw_usb_find_end(&list);
}

/* ---- selection ---- */
static int refuse_name(const struct tw_usb_list *list, const char *rest, tw_error *err) {
    char names[200] = "";
    for (size_t i = 0; i < list->n; i++) {
        size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%susb:%s", i ? ", " : "", list->device[i].name);
    }
    if (list->n == 0) {
        return tw_fail(err, TW_E_NO_DEVICE,
                       "device usb%s%s: found no device on USB (does this kernel have USB? run: "
                       "tilewright doctor)",
                       *rest ? ":" : "", rest);
    }
    return tw_fail(err, TW_E_NO_DEVICE, "device usb:%s: no such device on USB; there are %s", rest,
                   names);
}

static struct tw_usb_found *select_device(const struct tw_usb_list *list, const char *rest) {
    struct tw_usb_found *first = *rest || list->n == 0 ? NULL : &list->device[0];
    for (size_t i = 0; i < list->n; i++) {
        struct tw_usb_found *d = &list->device[i];
        if (*rest ? strcmp(rest, d->path) == 0 || strcmp(rest, d->name) == 0
                  : d->state == TW_USB_READY) {
            return d;
        }
    }
    return first;
}

static int check_state(const struct tw_usb_found *d, tw_error *err) {
    if (d->state == TW_USB_READY) {
        return 0;
    }
    return tw_fail(err, d->state == TW_USB_BUSY ? TW_E_DEVICE_BUSY : TW_E_NO_DEVICE,
                   "device usb:%s: %s", d->name, d->detail);
}

/* ---- exclusive use ---- */

struct use {
    int lock; /* -1: none */
    char path[160];
};

static void end_use(void *owner) {
    struct use *u = owner;
    tw_lock_release(u->path, u->lock);
    free(u);
}

/* Takes the lock file. If none can be created, the kernel's claim alone decides. */
static int begin_use(const struct tw_usb_found *d, struct use **out, tw_error *err) {
    struct use *u = calloc(1, sizeof *u);
    char what[80];
    tw_error e = {0};
    if (!u) {
        return tw_fail(err, TW_E_NOMEM, "device usb:%s: out of memory", d->name);
    }
    u->lock = -1;
    tw_usb_lock_path(d->path, u->path);
    snprintf(what, sizeof what, "device usb:%s", d->name);
    if (tw_lock_take(u->path, what, &u->lock, &e) == TW_E_DEVICE_BUSY) {
        free(u);
        return tw_fail(err, TW_E_DEVICE_BUSY, "%s", e.message);
    }
    *out = u;
    return 0;
}

/* ---- opening ---- */

static int refuse_open(const struct tw_usb_found *d, int code, tw_error *err) {
    char holder[80];
    if (code == LIBUSB_ERROR_ACCESS) {
        return tw_fail(err, TW_E_NO_DEVICE, "device usb:%s: %s", d->name, TW_USB_PERMISSION_REMEDY);
    }
    if (code == LIBUSB_ERROR_BUSY) {
        tw_usb_holder(d, true, holder);
        return tw_fail(err, TW_E_DEVICE_BUSY, "device usb:%s: %s", d->name, holder);
    }
    return tw_fail(err, TW_E_NO_DEVICE, "device usb:%s: cannot open it: %s; plug it in again",
                   d->name, libusb_strerror(code));
}

/* Refuses a device that reports recovery by its status; one without our USB ids shows it only so.
 * A device that does not answer is left to the link. */
static int check_recovery(const struct tw_usb_found *d, libusb_device_handle *handle,
                          tw_error *err) {
    struct tw_usb_status status;
    char text[121];
    int n = libusb_control_transfer(handle, REQUEST_IN, TW_USB_STATUS, 0, d->place.interface,
                                    (unsigned char *)&status, sizeof status, STATUS_MS);
    if (n != (int)sizeof status || status.state == 0) {
        return 0;
    }
    tw_usb_reason(handle, d->place.interface, text);
    return tw_fail(err, TW_E_NO_DEVICE, "device usb:%s: in recovery: %s", d->name,
                   text[0] ? text : "the device gives no reason");
}

/* Opens and claims the device; sets *again if a retry may succeed soon. */
static int open_port(const struct tw_usb_found *d, struct tw_usb_port *port, bool *again,
                     tw_error *err) {
    int code = libusb_open(d->device, &port->handle);
    if (code) {
        port->handle = NULL;
        *again = *again || code != LIBUSB_ERROR_ACCESS;
        return refuse_open(d, code, err);
    }
    libusb_set_auto_detach_kernel_driver(port->handle, 1);
    code = libusb_claim_interface(port->handle, d->place.interface);
    if (code) {
        *again = *again || code != LIBUSB_ERROR_BUSY;
        code = refuse_open(d, code, err);
    } else {
        code = check_recovery(d, port->handle, err);
    }
    if (code) {
        libusb_close(port->handle);
        port->handle = NULL;
    }
    return code;
}

struct opened {
    struct tw_usb_port port;
    struct use *use;
    char name[80];
    uint32_t mbits, best_mbits;
};

/* Opens the device. On success the port owns the list's libusb context. */
static int open_device(struct tw_usb_list *list, const struct tw_usb_found *d, struct opened *o,
                       bool *again, tw_error *err) {
    int code = check_state(d, err);
    code = code ? code : begin_use(d, &o->use, err);
    if (code) {
        return code;
    }
    code = open_port(d, &o->port, again, err);
    if (code) {
        end_use(o->use);
        o->use = NULL;
        return code;
    }
    o->port.context = list->context;
    o->port.place = d->place;
    list->context = NULL;
    snprintf(o->name, sizeof o->name, "usb:%s", d->name);
    o->mbits = d->mbits;
    o->best_mbits = d->best_mbits;
    return 0;
}

static int find_and_open(const char *rest, struct opened *o, bool *again, tw_error *err) {
    struct tw_usb_list list;
    int code = tw_usb_find(&list, err);
    if (!code) {
        const struct tw_usb_found *d = select_device(&list, rest);
        code = d ? open_device(&list, d, o, again, err) : refuse_name(&list, rest, err);
    }
    tw_usb_find_end(&list);
    return code;
}

/* Opens the device, and tries again for a while if it may still be settling, during which it may
 * also be missing from the list. */
static int settle_and_open(const char *rest, struct opened *o, tw_error *err) {
    uint64_t begin = tw_clock_ms();
    bool again = false;
    int code = find_and_open(rest, o, &again, err);
    while (code == TW_E_NO_DEVICE && again && tw_clock_ms() - begin < SETTLE_MS) {
        usleep(SETTLE_STEP_US);
        code = find_and_open(rest, o, &again, err);
    }
    return code;
}

static int open_usb(const char *rest, const struct tw_transport_options *options,
                    struct tw_transport **out, tw_error *err) {
    struct opened o = {0};
    struct tw_pipe *pipe;
    struct tw_link *link;
    int code = settle_and_open(rest, &o, err);
    if (code) {
        return code;
    }
    TW_ASSERT(o.use && o.port.handle);
    code = tw_usb_host_pipe_open(o.name, &o.port, &pipe, err);
    code = code ? code : tw_link_open(o.name, pipe, options->deadline_ms, &link, err);
    if (code) {
        end_use(o.use);
        return code;
    }
    tw_usb_host_pipe_set_generation(pipe, link->conn.generation);
    link->wiring.closed = end_use;
    link->wiring.owner = o.use;
    link->base.ops = &tw_transport_usb;
    link->base.link_mbits = o.mbits;
    link->base.link_best_mbits = o.best_mbits;
    *out = &link->base;
    return 0;
}

const struct tw_transport_ops tw_transport_usb = {
    .name = "usb",
    .discover = discover,
    .open = open_usb,
    .submit = tw_link_submit,
    .receive = tw_link_receive,
    .stuck = tw_link_is_stuck,
    .close = tw_link_close,
};
