/* SPDX-License-Identifier: Apache-2.0
 *
 * Serves an emulated device at its endpoints: the public interface to
 * firmware/serve/device_server.h and to the ports usbredir.h, gadget.h (firmware/usb) and ivshmem.h
 * (firmware/pcie).
 */
#include "tilewright/emulate.h"
#include "driver/transport/emu/emu_options.h"
#include "firmware/faults/faults.h"
#include "firmware/pcie/ivshmem.h"
#include "firmware/serve/device_server.h"
#include "firmware/usb/gadget.h"
#include "firmware/usb/usbredir.h"
#include "loader/base/private_path.h"
#include "loader/base/sized.h"
#include "loader/base/stop.h"

#include <stdio.h>
#include <time.h>

#define ENDPOINTS 4u

/* What is served: the device at its endpoints, or, in recovery, only endpoints on buses. */
struct serving {
    struct tw_emulate_options o;
    struct tw_device_server *socket; /* NULL in recovery */
    struct tw_pipe *idle[ENDPOINTS]; /* in recovery: endpoints whose packets nobody reads */
    uint32_t n_idle;
    char endpoint[ENDPOINTS][128];
    uint32_t n_endpoints;
};

/* ---- endpoints on buses ---- */

static void get_progress(void *ctx, struct tw_link_progress *progress, uint32_t *generation) {
    tw_device_server_progress(ctx, progress, generation);
}

static int find_speed(const char *name, enum tw_usb_speed *out, tw_error *err) {
    static const char *const names[] = {"full", "high", "super"};
    *out = TW_USB_HIGH;
    for (int i = 0; name && i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum tw_usb_speed)i;
            return 0;
        }
    }
    return name ? tw_fail(err, TW_E_USAGE, "USB speed '%.40s': expected full, high or super", name)
                : 0;
}

/* Derives a serial number from a path, so that a device served there again has the same one. */
static void path_serial(const char *path, char serial[TW_USB_SERIAL_MAX + 1]) {
    snprintf(serial, TW_USB_SERIAL_MAX + 1, "%08X", tw_wire_crc32c(0, path, strlen(path)));
}

/* Adds an endpoint. Its packets go to the device; in recovery nobody reads them. */
static int add_endpoint(struct serving *s, const char *kind, const char *name, struct tw_pipe *pipe,
                        tw_error *err) {
    snprintf(s->endpoint[s->n_endpoints++], sizeof s->endpoint[0], "%s:%s", kind, name);
    if (!s->socket) {
        s->idle[s->n_idle++] = pipe;
        return 0;
    }
    struct tw_medium *medium = tw_medium_create(pipe);
    return medium ? tw_device_server_add_medium(s->socket, medium, err)
                  : tw_fail(err, TW_E_NOMEM, "%s %.120s: out of memory", kind, name);
}

static int open_usbredir(struct serving *s, const struct tw_usb_options *o, tw_error *err) {
    char serial[TW_USB_SERIAL_MAX + 1];
    struct tw_pipe *pipe;
    path_serial(s->o.usbredir, serial);
    struct tw_usb_options own = *o;
    own.serial = s->o.serial ? s->o.serial : serial;
    int code = find_speed(s->o.usb_speed, &own.speed, err);
    code = code ? code : tw_usbredir_create(s->o.usbredir, &own, &pipe, err);
    return code ? code : add_endpoint(s, "usbredir", s->o.usbredir, pipe, err);
}

static int open_gadget(struct serving *s, const struct tw_usb_options *o, tw_error *err) {
    char serial[TW_USB_SERIAL_MAX + 1], udc[64];
    struct tw_pipe *pipe;
    tw_gadget_board_serial(serial);
    struct tw_usb_options own = *o;
    own.serial = s->o.serial ? s->o.serial : serial;
    int code = tw_gadget_create(s->o.udc, &own, &pipe, err);
    if (code) {
        return code;
    }
    snprintf(udc, sizeof udc, "%s", tw_gadget_udc(pipe));
    return add_endpoint(s, "gadget", udc, pipe, err);
}

static int open_usb(struct serving *s, tw_error *err) {
    struct tw_usb_options o = {.recovery = s->o.recovery,
                               .firmware_version = TW_FIRMWARE_VERSION,
                               .progress = s->socket ? get_progress : NULL,
                               .ctx = s->socket};
    int code = s->o.usbredir ? open_usbredir(s, &o, err) : 0;
    return code || !s->o.gadget ? code : open_gadget(s, &o, err);
}

static int open_ivshmem(struct serving *s, tw_error *err) {
    const struct tw_ivshmem_options o = {.path = s->o.ivshmem,
                                         .ram = s->o.guest_ram,
                                         .monitor = s->o.monitor,
                                         .requester = (uint16_t)s->o.requester};
    const struct tw_pcie_device_options d = {.firmware_version = TW_FIRMWARE_VERSION,
                                             .reason = s->o.recovery,
                                             .progress = s->socket ? get_progress : NULL,
                                             .ctx = s->socket};
    struct tw_pipe *pipe;
    int code = tw_ivshmem_create(&o, &d, &pipe, err);
    return code ? code : add_endpoint(s, "ivshmem", o.path, pipe, err);
}

/* ---- the device ---- */

static int make_device(struct serving *s, tw_error *err) {
    struct tw_emu_target target;
    char path[108];
    struct tw_device_server_options o = {
        .path = s->o.path,
        .emu = {.n_threads = s->o.n_threads, .memory_bytes = s->o.memory_bytes},
        .faults = s->o.faults,
        .seed = s->o.seed,
    };
    int code = tw_emu_options_fill(&o.emu, s->o.target ? s->o.target : "", s->o.isa, &target, err);
    code = code || !o.path ? code : tw_runtime_socket(o.path, true, path, err);
    code = code ? code : tw_device_server_create(&o, &s->socket, err);
    if (!code && o.path) {
        snprintf(s->endpoint[s->n_endpoints++], sizeof s->endpoint[0], "socket:%s", path);
    }
    return code;
}

static int check(const struct tw_emulate_options *o, tw_error *err) {
    bool usb = o->usbredir || o->gadget, bus = usb || o->ivshmem;
    if (o->path && !*o->path) {
        return tw_fail(err, TW_E_USAGE, "emulate: the path to listen on is empty");
    }
    if (!o->path && !bus) {
        return tw_fail(err, TW_E_USAGE,
                       "emulate: no endpoint; set a socket path, or a USB or PCIe device");
    }
    if ((o->usb_speed && !o->usbredir) || (o->udc && !o->gadget) || (o->serial && !usb)) {
        return tw_fail(
            err, TW_E_USAGE,
            "emulate: a speed needs usbredir, a controller gadget, a serial number one of both");
    }
    if (!o->ivshmem && (o->guest_ram || o->monitor)) {
        return tw_fail(err, TW_E_USAGE, "emulate: guest memory and a monitor need ivshmem");
    }
    if (o->recovery && (o->path || !bus)) {
        return tw_fail(
            err, TW_E_USAGE,
            "emulate: a device in recovery needs a bus (usbredir, gadget, ivshmem) and no socket");
    }
    return 0;
}

/* Waits in recovery, when the threads of the endpoints do everything. */
static void wait_for(const volatile sig_atomic_t *stop) {
    const struct timespec t = {0, 100000000};
    while (!tw_stopped(stop)) {
        nanosleep(&t, NULL);
    }
}

int tw_emulate(const struct tw_emulate_options *options, const volatile sig_atomic_t *stop,
               tw_error *err) {
    struct serving s = {.n_endpoints = 0};
    int code = TW_NEED(err, options);
    code = code ? code : tw_sized_read(__func__, &s.o, sizeof s.o, options, err);
    code = code ? code : check(&s.o, err);
    code = code || s.o.recovery ? code : make_device(&s, err);
    code = code ? code : open_usb(&s, err);
    code = code || !s.o.ivshmem ? code : open_ivshmem(&s, err);
    for (uint32_t i = 0; !code && s.o.ready && i < s.n_endpoints; i++) {
        s.o.ready(s.o.ctx, s.endpoint[i]);
    }
    if (!code && s.socket) {
        tw_device_server_run(s.socket, stop);
    } else if (!code) {
        wait_for(stop);
    }
    for (uint32_t i = 0; i < s.n_idle; i++) {
        s.idle[i]->ops->close(s.idle[i]);
    }
    tw_device_server_destroy(s.socket);
    return code;
}

const char *tw_fault_plan(uint32_t index, const char **text) {
    const char *ignored;
    return tw_faults_list(index, text ? text : &ignored);
}
