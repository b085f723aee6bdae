/* SPDX-License-Identifier: Apache-2.0
 *
 * The callback only counts, as libusb allows little else inside it.
 */
#include "driver/transport/usb/usb_hint.h"

#include <libusb.h>
#include <stdlib.h>
#include <time.h>

struct tw_usb_hint {
    libusb_context *context;
    unsigned events; /* changed while tw_usb_hint_wait handles libusb's events */
};

static int LIBUSB_CALL count(libusb_context *context, libusb_device *device,
                             libusb_hotplug_event event, void *hint) {
    (void)context;
    (void)device;
    (void)event;
    ((struct tw_usb_hint *)hint)->events++;
    return 0;
}

struct tw_usb_hint *tw_usb_hint_create(void) {
    struct tw_usb_hint *h = calloc(1, sizeof *h);
    if (!h || libusb_init(&h->context)) {
        free(h);
        return NULL;
    }
    int code = libusb_hotplug_register_callback(
        h->context, LIBUSB_HOTPLUG_EVENT_DEVICE_ARRIVED | LIBUSB_HOTPLUG_EVENT_DEVICE_LEFT, 0,
        LIBUSB_HOTPLUG_MATCH_ANY, LIBUSB_HOTPLUG_MATCH_ANY, LIBUSB_HOTPLUG_MATCH_ANY, count, h,
        NULL);
    if (code) {
        tw_usb_hint_destroy(h);
        return NULL;
    }
    return h;
}

bool tw_usb_hint_wait(struct tw_usb_hint *h, unsigned ms) {
    if (!h) {
        const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
        nanosleep(&t, NULL);
        return false;
    }
    struct timeval t = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
    libusb_handle_events_timeout_completed(h->context, &t, NULL);
    bool any = h->events > 0;
    h->events = 0;
    return any;
}

void tw_usb_hint_destroy(struct tw_usb_hint *h) {
    if (h) {
        libusb_exit(h->context); /* also deregisters the callback */
        free(h);
    }
}
