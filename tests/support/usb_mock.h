/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated USB devices: umockdev shows them in a /sys and /dev for this process, and the functions
 * below answer the kernel's usbfs calls. So libusb is the real one. The process runs with
 * libumockdev-preload (usb_mock_enter).
 *
 * The caller of an ioctl is this process, so its memory is read and written directly; a transfer
 * that has ended is returned when libusb asks for one; it polls all the time.
 */
#ifndef TW_TESTS_SUPPORT_USB_MOCK_H
#define TW_TESTS_SUPPORT_USB_MOCK_H

#include "firmware/link/pipe.h"
#include "tilewright/usb.h"

#include <linux/usbdevice_fs.h>
#include <pthread.h>
#include <umockdev.h>

#define MOCK_URBS 64u
#define MOCK_OUT 0x04u /* not the endpoint numbers of any real port */
#define MOCK_IN 0x85u
#define MOCK_NOTICE 0x83u
#define MOCK_PACKET 512u

enum mock_out {
    MOCK_TAKE,  /* packets are assembled and passed to `on_packet` */
    MOCK_HOLD,  /* transfers stay in flight */
    MOCK_ERROR, /* each ends with EPROTO */
    MOCK_CUT    /* half of each is taken, then EPROTO */
};

struct mock_packet {
    uint8_t *bytes;
    size_t n;
    struct mock_packet *next;
};

/* What can be wrong with its descriptors. */
struct mock_shape {
    uint16_t product, usb_version, packet;
    uint8_t interface_class, endpoints;
    const char *serial; /* NULL: none */
};

struct usb_mock {
    UMockdevTestbed *bed;
    UMockdevIoctlBase *handler;
    pthread_mutex_t lock;
    struct usbdevfs_urb *flying[MOCK_URBS], *done[MOCK_URBS];
    unsigned n_flying, n_done;
    struct mock_packet *to_host, **to_host_end;
    uint8_t *assembly; /* of OUT transfers up to a short one */
    size_t assembled;
    void (*on_packet)(void *ctx, const uint8_t *bytes, size_t n); /* with the lock held */
    void *ctx;

    enum mock_out out;
    int refuse_claim, refuse_submit; /* errno of CLAIMINTERFACE and SUBMITURB, 0: none */
    unsigned claims_refused;         /* number of further claims that fail */
    unsigned stalls_in, stalls_out;  /* number of further transfers that end with a stall */
    unsigned errors_in;
    bool gone;
    struct tw_usb_status status;
    bool silent_status;
    const char *reason;
    unsigned claims, clears, resets, host_resets, ended_bytes;
};

/* Runs the program again with the preloaded library. Call it first, before any thread exists. */
void usb_mock_enter(char **argv);
void usb_mock_init(struct usb_mock *m);
void usb_mock_finish(struct usb_mock *m);
/* Adds a device at bus 1, port `port`, address port + 1, whose usbfs calls `m` answers. */
void usb_mock_add(struct usb_mock *m, unsigned port, const struct mock_shape *shape);
/* Marks its interface in sysfs as claimed by another process. */
void usb_mock_claimed(struct usb_mock *m, unsigned port);
void usb_mock_remove(struct usb_mock *m, unsigned port);
/* A device without faults. */
extern const struct mock_shape mock_good;

/* Queues a packet for the host: transfers end with it as a bus would end them. */
void usb_mock_send(struct usb_mock *m, const void *bytes, size_t n);
void usb_mock_notice(struct usb_mock *m, const struct tw_usb_notice *notice);
/* Unplugs the device: transfers in flight end with an error, and every call fails. */
void usb_mock_vanish(struct usb_mock *m);
void usb_mock_set_out(struct usb_mock *m, enum mock_out out);
unsigned usb_mock_flying(struct usb_mock *m);

#endif
