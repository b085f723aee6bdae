/* SPDX-License-Identifier: Apache-2.0
 *
 * Serving an emulated device through its doors: the public form of firmware/serve/device_server.h,
 * usbredir.h, gadget.h and ivshmem.h.
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

#define DOORS 4u

/* What is served: the device, or doors on buses alone where it cannot run. */
struct serving {
    struct tw_emulate_options o;
    struct tw_device_server *socket; /* NULL in recovery */
    struct tw_pipe *closed[DOORS];   /* doors in recovery: nobody takes their packets */
    uint32_t n_closed;
    char door[DOORS][128];
    uint32_t n_doors;
};

/* ---- doors on buses ---- */

static void tell_progress(void *ctx, struct tw_link_progress *progress, uint32_t *generation) {
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
    return name
               ? tw_fail(err, TW_E_USAGE, "USB speed '%.40s': there are full, high and super", name)
               : 0;
}

/* A serial number for the device behind a path: the same whenever it is served there again. */
static void path_serial(const char *path, char serial[TW_USB_SERIAL_MAX + 1]) {
    snprintf(serial, TW_USB_SERIAL_MAX + 1, "%08X", tw_wire_crc32c(0, path, strlen(path)));
}

/* Puts a door's medium where its packets go, or do not. */
static int open_door(struct serving *s, const char *kind, const char *name, struct tw_pipe *medium,
                     tw_error *err) {
    snprintf(s->door[s->n_doors++], sizeof s->door[0], "%s:%s", kind, name);
    if (!s->socket) {
        s->closed[s->n_closed++] = medium;
        return 0;
    }
    struct tw_medium *line = tw_medium_create(medium);
    return line ? tw_device_server_add_medium(s->socket, line, err)
                : tw_fail(err, TW_E_NOMEM, "%s %.120s: no memory for its line", kind, name);
}

static int open_usbredir(struct serving *s, const struct tw_usb_options *o, tw_error *err) {
    char serial[TW_USB_SERIAL_MAX + 1];
    struct tw_pipe *medium;
    path_serial(s->o.usbredir, serial);
    struct tw_usb_options own = *o;
    own.serial = s->o.serial ? s->o.serial : serial;
    int code = find_speed(s->o.usb_speed, &own.speed, err);
    code = code ? code : tw_usbredir_create(s->o.usbredir, &own, &medium, err);
    return code ? code : open_door(s, "usbredir", s->o.usbredir, medium, err);
}

static int open_gadget(struct serving *s, const struct tw_usb_options *o, tw_error *err) {
    char serial[TW_USB_SERIAL_MAX + 1], udc[64];
    struct tw_pipe *medium;
    tw_gadget_board_serial(serial);
    struct tw_usb_options own = *o;
    own.serial = s->o.serial ? s->o.serial : serial;
    int code = tw_gadget_create(s->o.udc, &own, &medium, err);
    if (code) {
        return code;
    }
    snprintf(udc, sizeof udc, "%s", tw_gadget_udc(medium));
    return open_door(s, "gadget", udc, medium, err);
}

static int open_usb(struct serving *s, tw_error *err) {
    struct tw_usb_options o = {.recovery = s->o.recovery,
                               .firmware_version = TW_FIRMWARE_VERSION,
                               .progress = s->socket ? tell_progress : NULL,
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
                                             .progress = s->socket ? tell_progress : NULL,
                                             .ctx = s->socket};
    struct tw_pipe *medium;
    int code = tw_ivshmem_create(&o, &d, &medium, err);
    return code ? code : open_door(s, "ivshmem", o.path, medium, err);
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
        snprintf(s->door[s->n_doors++], sizeof s->door[0], "socket:%s", path);
    }
    return code;
}

static int check(const struct tw_emulate_options *o, tw_error *err) {
    bool usb = o->usbredir || o->gadget, bus = usb || o->ivshmem;
    if (o->path && !*o->path) {
        return tw_fail(err, TW_E_USAGE, "serve: no path to listen on");
    }
    if (!o->path && !bus) {
        return tw_fail(err, TW_E_USAGE,
                       "serve: no door: neither a socket's path nor a USB or PCIe device");
    }
    if ((o->usb_speed && !o->usbredir) || (o->udc && !o->gadget) || (o->serial && !usb)) {
        return tw_fail(
            err, TW_E_USAGE,
            "serve: a speed is of usbredir, a controller of gadget, a serial number of both");
    }
    if (!o->ivshmem && (o->guest_ram || o->monitor)) {
        return tw_fail(err, TW_E_USAGE, "serve: a guest's memory and monitor are of ivshmem");
    }
    if (o->recovery && (o->path || !bus)) {
        return tw_fail(
            err, TW_E_USAGE,
            "serve: a device in recovery is on a bus (usbredir, gadget, ivshmem) and nowhere else");
    }
    return 0;
}

/* In recovery nothing but the doors' own threads has to do anything. */
static void wait_for(const volatile sig_atomic_t *stop) {
    const struct timespec t = {0, 100000000};
    while (!tw_stopped(stop)) {
        nanosleep(&t, NULL);
    }
}

int tw_emulate(const struct tw_emulate_options *options, const volatile sig_atomic_t *stop,
               tw_error *err) {
    struct serving s = {.n_doors = 0};
    int code = TW_NEED(err, options);
    code = code ? code : tw_sized_read(__func__, &s.o, sizeof s.o, options, err);
    code = code ? code : check(&s.o, err);
    code = code || s.o.recovery ? code : make_device(&s, err);
    code = code ? code : open_usb(&s, err);
    code = code || !s.o.ivshmem ? code : open_ivshmem(&s, err);
    for (uint32_t i = 0; !code && s.o.ready && i < s.n_doors; i++) {
        s.o.ready(s.o.ctx, s.door[i]);
    }
    if (!code && s.socket) {
        tw_device_server_run(s.socket, stop);
    } else if (!code) {
        wait_for(stop);
    }
    for (uint32_t i = 0; i < s.n_closed; i++) {
        s.closed[i]->ops->close(s.closed[i]);
    }
    tw_device_server_destroy(s.socket);
    return code;
}

const char *tw_fault_plan(uint32_t index, const char **text) {
    const char *ignored;
    return tw_faults_list(index, text ? text : &ignored);
}
