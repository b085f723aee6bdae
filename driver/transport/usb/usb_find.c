/* SPDX-License-Identifier: Apache-2.0
 *
 * Discovery on USB. Claims, serial numbers and product names come from sysfs, without opening a
 * device; every text from a device is made printable.
 */
#include "driver/transport/usb/usb_find.h"

#include "driver/transport/usb/usb_holder.h"
#include "loader/base/text_filter.h"
#include "tilewright/range.h"
#include "tilewright/usb.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CONTROL_MS 300
#define REQUEST_IN (LIBUSB_ENDPOINT_IN | LIBUSB_REQUEST_TYPE_VENDOR | LIBUSB_RECIPIENT_INTERFACE)

/* ---- descriptors ---- */

static bool is_ours(const struct libusb_interface_descriptor *i) {
    return i->bInterfaceClass == TW_USB_CLASS && i->bInterfaceSubClass == TW_USB_SUBCLASS &&
           i->bInterfaceProtocol == TW_USB_PROTOCOL;
}

/* Returns the endpoint's packet size; 0 if the descriptor is invalid. */
static uint16_t packet_bytes(const struct libusb_endpoint_descriptor *e) {
    uint16_t n = e->wMaxPacketSize & 0x7FF;
    return n >= 8 && n <= 1024 && tw_is_pow2_u64(n) ? n : 0;
}

static void take_endpoint(struct tw_usb_place *p, const struct libusb_endpoint_descriptor *e) {
    bool in = e->bEndpointAddress & LIBUSB_ENDPOINT_IN;
    uint8_t type = e->bmAttributes & LIBUSB_TRANSFER_TYPE_MASK;
    uint16_t bytes = packet_bytes(e);
    if (bytes == 0 || (e->bEndpointAddress & 0x0F) == 0) {
        return;
    }
    if (type == LIBUSB_TRANSFER_TYPE_BULK && in && !p->in) {
        p->in = e->bEndpointAddress;
        p->in_packet = bytes;
    } else if (type == LIBUSB_TRANSFER_TYPE_BULK && !in && !p->out) {
        p->out = e->bEndpointAddress;
        p->out_packet = bytes;
    } else if (type == LIBUSB_TRANSFER_TYPE_INTERRUPT && in && !p->notice) {
        p->notice = e->bEndpointAddress;
        p->notice_packet = bytes;
    }
}

static bool take_interface(struct tw_usb_place *p, const struct libusb_interface *i) {
    if (i->num_altsetting < 1 || !is_ours(&i->altsetting[0])) {
        return false;
    }
    p->interface = i->altsetting[0].bInterfaceNumber;
    for (uint8_t k = 0; k < i->altsetting[0].bNumEndpoints; k++) {
        take_endpoint(p, &i->altsetting[0].endpoint[k]);
    }
    return true;
}

/* Finds interface and endpoints by class, type and direction in the active configuration. Returns
 * NULL, or what is wrong. */
static const char *find_place(libusb_device *device, struct tw_usb_place *place) {
    struct libusb_config_descriptor *c;
    memset(place, 0, sizeof *place);
    if (libusb_get_active_config_descriptor(device, &c)) {
        return "it is not configured";
    }
    place->configuration = c->bConfigurationValue;
    for (uint8_t i = 0; !place->found && i < c->bNumInterfaces; i++) {
        place->found = take_interface(place, &c->interface[i]);
    }
    libusb_free_config_descriptor(c);
    return !place->found               ? "it has no Tilewright interface"
           : !place->out || !place->in ? "its interface has no usable pair of bulk endpoints"
                                       : NULL;
}

static bool has_our_ids(const struct libusb_device_descriptor *d) {
    return d->idVendor == TW_USB_VENDOR &&
           (d->idProduct == TW_USB_PRODUCT || d->idProduct == TW_USB_PRODUCT_RECOVERY);
}

/* ---- names ---- */

static bool make_path(libusb_device *device, char path[32]) {
    uint8_t port[7];
    int n = libusb_get_port_numbers(device, port, sizeof port);
    int at = snprintf(path, 32, "%u-", libusb_get_bus_number(device));
    for (int i = 0; i < n; i++) {
        at += snprintf(path + at, 32 - (size_t)at, "%s%u", i ? "." : "", port[i]);
    }
    return n > 0; /* else it is a root hub */
}

static void read_attribute(const char *path, const char *name, char text[64]) {
    char file[96];
    snprintf(file, sizeof file, "/sys/bus/usb/devices/%s/%s", path, name);
    FILE *f = fopen(file, "re");
    if (!f || !fgets(text, 64, f)) {
        text[0] = 0;
    }
    if (f) {
        fclose(f);
    }
    text[strcspn(text, "\n")] = 0;
    tw_clean_text(text);
}

/* Reads the serial number; "" unless it can be typed as a name and does not look like a path or an
 * index. */
static void read_serial(const char *path, char serial[48]) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    char text[64];
    read_attribute(path, "serial", text);
    size_t n = strlen(text);
    bool name = n && n < 48 && strspn(text, letters) == n &&
                !(strchr(text, '-') && strspn(text, "0123456789-.") == n);
    memcpy(serial, name ? text : "", name ? n + 1 : 1);
}

/* ---- links ---- */

static uint32_t link_mbits(libusb_device *device) {
    switch (libusb_get_device_speed(device)) {
    case LIBUSB_SPEED_LOW:
        return 1;
    case LIBUSB_SPEED_FULL:
        return 12;
    case LIBUSB_SPEED_HIGH:
        return 480;
    case LIBUSB_SPEED_SUPER:
        return 5000;
    case LIBUSB_SPEED_SUPER_PLUS:
        return 10000;
    default:
        return 0;
    }
}

/* Returns the highest speed in the BOS descriptor, which only devices of USB 2.1 and later have;
 * else 0. */
static uint32_t best_mbits(libusb_context *context, libusb_device_handle *handle) {
    struct libusb_bos_descriptor *bos;
    struct libusb_ss_usb_device_capability_descriptor *ss;
    uint32_t best = 0;
    if (libusb_get_bos_descriptor(handle, &bos)) {
        return 0;
    }
    for (uint8_t i = 0; i < bos->bNumDeviceCaps; i++) {
        if (bos->dev_capability[i]->bDevCapabilityType == LIBUSB_BT_SS_USB_DEVICE_CAPABILITY &&
            libusb_get_ss_usb_device_capability_descriptor(context, bos->dev_capability[i], &ss) ==
                0) {
            best = ss->wSpeedSupported & LIBUSB_SUPER_SPEED_OPERATION ? 5000 : best;
            libusb_free_ss_usb_device_capability_descriptor(ss);
        }
    }
    libusb_free_bos_descriptor(bos);
    return best;
}

static void query_max_speed(libusb_context *context, struct tw_usb_found *d, uint16_t usb_version) {
    libusb_device_handle *handle;
    d->mbits = d->best_mbits = link_mbits(d->device);
    if (d->mbits && d->mbits <= 480 && usb_version > 0x0200 &&
        libusb_open(d->device, &handle) == 0) {
        uint32_t best = best_mbits(context, handle);
        d->best_mbits = best > d->mbits ? best : d->mbits;
        libusb_close(handle);
    }
}

/* ---- states ---- */

void tw_usb_reason(libusb_device_handle *handle, uint8_t interface, char text[121]) {
    int n = libusb_control_transfer(handle, REQUEST_IN, TW_USB_REASON, 0, interface,
                                    (unsigned char *)text, 120, CONTROL_MS);
    text[n > 0 ? n : 0] = 0;
    tw_clean_text(text);
}

static void query_reason(struct tw_usb_found *d) {
    libusb_device_handle *handle;
    char text[121] = "";
    if (libusb_open(d->device, &handle) == 0) {
        if (libusb_claim_interface(handle, d->place.interface) == 0) {
            tw_usb_reason(handle, d->place.interface, text);
            libusb_release_interface(handle, d->place.interface);
        }
        libusb_close(handle);
    }
    snprintf(d->detail, sizeof d->detail, "in recovery: %s",
             text[0] ? text : "the device gives no reason");
}

static void set_state(struct tw_usb_found *d, enum tw_usb_state state, const char *detail) {
    d->state = state;
    snprintf(d->detail, sizeof d->detail, "%s", detail);
}

static void describe_ready(struct tw_usb_found *d, uint16_t version) {
    char product[64], better[64] = "";
    read_attribute(d->path, "product", product);
    if (d->best_mbits > d->mbits) {
        snprintf(better, sizeof better, "; the device supports %u: try another port or cable",
                 d->best_mbits);
    }
    d->state = TW_USB_READY;
    snprintf(d->detail, sizeof d->detail, "%.40s at %s, firmware %u.%u.%u, %u Mbit/s%s",
             product[0] ? product : "device", d->path, (unsigned)version >> 8, version >> 4 & 15u,
             version & 15u, d->mbits, better);
}

static bool may_open(const struct tw_usb_found *d) {
    char node[48];
    tw_usb_node(d, node);
    /* for other errors opening the device gives a better message */
    return access(node, R_OK | W_OK) == 0 || errno != EACCES;
}

static void find_state(libusb_context *context, struct tw_usb_found *d,
                       const struct libusb_device_descriptor *id) {
    const char *wrong = find_place(d->device, &d->place);
    char holder[80];
    d->mbits = d->best_mbits = link_mbits(d->device);
    bool recovery = id->idVendor == TW_USB_VENDOR && id->idProduct == TW_USB_PRODUCT_RECOVERY;
    if (wrong && !recovery) {
        set_state(d, TW_USB_UNUSABLE, wrong);
    } else if (!may_open(d)) {
        set_state(d, TW_USB_NO_PERMISSION, TW_USB_PERMISSION_REMEDY);
    } else if (tw_usb_claimed(d)) {
        tw_usb_holder(d, false, holder);
        set_state(d, TW_USB_BUSY, holder);
    } else if (recovery) {
        d->state = TW_USB_RECOVERY;
        query_reason(d);
    } else {
        query_max_speed(context, d, id->bcdUSB);
        describe_ready(d, id->bcdDevice);
    }
}

/* ---- the list ---- */

static bool is_wanted(libusb_device *device, struct libusb_device_descriptor *id) {
    struct tw_usb_place place;
    if (libusb_get_device_descriptor(device, id)) {
        return false;
    }
    if (has_our_ids(id)) {
        return true;
    }
    find_place(device, &place);
    return place.found;
}

static int by_path(const void *a, const void *b) {
    return strverscmp(((const struct tw_usb_found *)a)->path,
                      ((const struct tw_usb_found *)b)->path);
}

static void name_all(struct tw_usb_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        struct tw_usb_found *d = &list->device[i];
        bool unique = d->serial[0] != 0;
        for (size_t k = 0; k < list->n; k++) {
            unique = unique && (k == i || strcmp(list->device[k].serial, d->serial) != 0);
        }
        snprintf(d->name, sizeof d->name, "%s", unique ? d->serial : d->path);
    }
}

static int collect(struct tw_usb_list *list, libusb_device **all, size_t n, tw_error *err) {
    list->device = calloc(n ? n : 1, sizeof *list->device);
    if (!list->device) {
        return tw_fail(err, TW_E_NOMEM, "device usb: out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        struct libusb_device_descriptor id;
        struct tw_usb_found *d = &list->device[list->n];
        if (is_wanted(all[i], &id) && make_path(all[i], d->path)) {
            d->device = libusb_ref_device(all[i]);
            read_serial(d->path, d->serial);
            find_state(list->context, d, &id);
            list->n++;
        }
    }
    qsort(list->device, list->n, sizeof *list->device, by_path);
    name_all(list);
    return 0;
}

static int fail_start(int code, tw_error *err) {
    return tw_fail(
        err, TW_E_NO_DEVICE, "device usb: libusb cannot start: %s%s", libusb_strerror(code),
        code == LIBUSB_ERROR_OTHER ? " (out of file descriptors? check: ulimit -n)" : "");
}

int tw_usb_find(struct tw_usb_list *list, tw_error *err) {
    libusb_device **all;
    *list = (struct tw_usb_list){0};
    int code = libusb_init(&list->context);
    if (code) {
        list->context = NULL;
        return fail_start(code, err);
    }
    ssize_t n = libusb_get_device_list(list->context, &all);
    if (n < 0) {
        return fail_start((int)n, err);
    }
    code = collect(list, all, (size_t)n, err);
    libusb_free_device_list(all, 1);
    return code;
}

void tw_usb_find_end(struct tw_usb_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        libusb_unref_device(list->device[i].device);
    }
    free(list->device);
    if (list->context) {
        libusb_exit(list->context);
    }
    *list = (struct tw_usb_list){0};
}
