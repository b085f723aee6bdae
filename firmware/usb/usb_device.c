/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes descriptors field by field into the caller's buffer, for the speed of the bus; answers
 * requests from them and from the device's progress.
 */
#include "firmware/usb/usb_device.h"

#include "loader/base/text_filter.h"

#include <stdio.h>

enum descriptor {
    DEVICE = 1,
    CONFIGURATION = 2,
    STRING = 3,
    INTERFACE = 4,
    ENDPOINT = 5,
    QUALIFIER = 6,
    BOS = 15,
    CAPABILITY = 16,
    COMPANION = 48
};
enum string { STRING_LANGUAGES, STRING_VENDOR, STRING_PRODUCT, STRING_SERIAL };

/* Standard requests (USB specification, chapter 9) that reach us: bmRequestType in the high
 * byte. */
enum standard {
    DEVICE_STATUS = 0x8000,
    INTERFACE_STATUS = 0x8100,
    ENDPOINT_STATUS = 0x8200,
    DEVICE_CLEAR = 0x0001,
    INTERFACE_CLEAR = 0x0101,
    ENDPOINT_CLEAR = 0x0201,
    DEVICE_SET = 0x0003,
    INTERFACE_SET = 0x0103,
    ENDPOINT_SET = 0x0203,
    GET_DESCRIPTOR = 0x8006,
    SET_EXIT_LATENCIES = 0x0030,
    SET_ISOCHRONOUS_DELAY = 0x0031,
    VENDOR_IN = 0xC100, /* with tw_usb_request in the low byte */
    VENDOR_OUT = 0x4100
};

int tw_usb_device_init(struct tw_usb_device *d, const struct tw_usb_options *o, tw_error *err) {
    memset(d, 0, sizeof *d);
    if (!o->serial || !tw_text_is_ascii(o->serial, TW_USB_SERIAL_MAX)) {
        return tw_fail(err, TW_E_USAGE,
                       "USB device: the serial number '%.70s' is not 1 to %u printable characters",
                       o->serial ? o->serial : "", TW_USB_SERIAL_MAX);
    }
    if (o->recovery && !tw_text_is_ascii(o->recovery, 4096)) {
        return tw_fail(err, TW_E_USAGE,
                       "USB device: the recovery reason is not 1 to 4096 printable characters");
    }
    snprintf(d->serial, sizeof d->serial, "%s", o->serial);
    snprintf(d->reason, sizeof d->reason, "%s", o->recovery ? o->recovery : "");
    d->recovery = o->recovery != NULL;
    d->speed = o->speed;
    d->firmware_version = o->firmware_version;
    d->progress = o->progress;
    d->progress_ctx = o->ctx;
    return 0;
}

uint16_t tw_usb_product(const struct tw_usb_device *d) {
    return d->recovery ? TW_USB_PRODUCT_RECOVERY : TW_USB_PRODUCT;
}

const char *tw_usb_product_text(const struct tw_usb_device *d) {
    return d->recovery ? "Tilewright device (recovery)" : "Tilewright device";
}

uint16_t tw_usb_bcd_version(const struct tw_usb_device *d) {
    uint32_t major = d->firmware_version >> 16 & 0xFF, minor = d->firmware_version >> 8 & 0xFF;
    uint32_t patch = d->firmware_version & 0xFF;
    minor = minor < 9 ? minor : 9;
    patch = patch < 9 ? patch : 9;
    return (uint16_t)((major / 10 % 10) << 12 | (major % 10) << 8 | minor << 4 | patch);
}

uint32_t tw_usb_bulk_packet(enum tw_usb_speed speed) {
    static const uint32_t bytes[] = {64, 512, 1024};
    return bytes[speed];
}

/* ---- descriptors ---- */

static uint8_t *put(uint8_t *at, const uint8_t *bytes, size_t n) {
    memcpy(at, bytes, n);
    return at + n;
}

#define PUT(at, ...) put(at, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))
#define LOW(v) (uint8_t)((v)&0xFF)
#define HIGH(v) (uint8_t)((v) >> 8 & 0xFF)

static uint8_t *put_endpoint(uint8_t *at, enum tw_usb_speed speed, uint8_t address,
                             uint32_t *count) {
    bool bulk = address != TW_USB_NOTICE;
    uint32_t max_packet = bulk ? tw_usb_bulk_packet(speed) : TW_USB_NOTICE_PACKET;
    at = PUT(at, 7, ENDPOINT, address, bulk ? 2 : 3, LOW(max_packet), HIGH(max_packet),
             bulk ? 0 : 4);
    ++*count;
    if (speed == TW_USB_SUPER) { /* bursts of 16 packets; one notice per interval */
        at = PUT(at, 6, COMPANION, bulk ? 15 : 0, 0, bulk ? 0 : TW_USB_NOTICE_PACKET, 0);
        ++*count;
    }
    return at;
}

size_t tw_usb_function(enum tw_usb_speed speed, uint8_t bytes[TW_USB_FUNCTION_MAX],
                       uint32_t *count) {
    uint8_t *at =
        PUT(bytes, 9, INTERFACE, 0, 0, 3, TW_USB_CLASS, TW_USB_SUBCLASS, TW_USB_PROTOCOL, 0);
    *count = 1;
    at = put_endpoint(at, speed, TW_USB_OUT, count);
    at = put_endpoint(at, speed, TW_USB_IN, count);
    at = put_endpoint(at, speed, TW_USB_NOTICE, count);
    return (size_t)(at - bytes);
}

static size_t put_device(const struct tw_usb_device *d, uint8_t *to) {
    bool super = d->speed == TW_USB_SUPER;
    uint16_t version = tw_usb_bcd_version(d), product = tw_usb_product(d);
    uint8_t *at = PUT(to, 18, DEVICE, super ? 0x20 : 0, super ? 3 : 2, 0, 0, 0, super ? 9 : 64);
    at = PUT(at, LOW(TW_USB_VENDOR), HIGH(TW_USB_VENDOR), LOW(product), HIGH(product), LOW(version),
             HIGH(version));
    at = PUT(at, STRING_VENDOR, STRING_PRODUCT, STRING_SERIAL, 1);
    return (size_t)(at - to);
}

/* Bus-powered, 500 mA: a small board is powered by its host. */
static size_t put_configuration(const struct tw_usb_device *d, uint8_t *to) {
    uint32_t count;
    size_t n = 9 + tw_usb_function(d->speed, to + 9, &count);
    PUT(to, 9, CONFIGURATION, LOW(n), HIGH(n), 1, 1, 0, 0x80, d->speed == TW_USB_SUPER ? 62 : 250);
    return n;
}

/* Writes the device qualifier: the device is the same at full speed. */
static size_t put_qualifier(uint8_t *to) {
    return (size_t)(PUT(to, 10, QUALIFIER, 0, 2, 0, 0, 0, 64, 1, 0) - to);
}

/* Writes the BOS: link power management, full speed and up, negligible exit latencies. */
static size_t put_bos(uint8_t *to) {
    uint8_t *at = PUT(to, 5, BOS, 22, 0, 2);
    at = PUT(at, 7, CAPABILITY, 2, 2, 0, 0, 0);
    at = PUT(at, 10, CAPABILITY, 3, 0, 0x0E, 0, 1, 10, 0xFF, 0x07);
    return (size_t)(at - to);
}

static size_t put_string(const struct tw_usb_device *d, uint32_t index, uint8_t *to) {
    const char *const texts[] = {NULL, TW_USB_VENDOR_TEXT, tw_usb_product_text(d), d->serial};
    if (index == STRING_LANGUAGES) {
        return (size_t)(PUT(to, 4, STRING, 0x09, 0x04) - to);
    }
    if (index > STRING_SERIAL) {
        return 0;
    }
    size_t n = strlen(texts[index]);
    to[0] = (uint8_t)(2 + 2 * n);
    to[1] = STRING;
    for (size_t i = 0; i < n; i++) {
        to[2 + 2 * i] = (uint8_t)texts[index][i];
        to[3 + 2 * i] = 0;
    }
    return 2 + 2 * n;
}

/* Writes a descriptor and returns its size; 0 if there is no such descriptor. */
static size_t put_descriptor(const struct tw_usb_device *d, uint16_t value, uint8_t *to) {
    uint32_t index = value & 0xFF;
    switch (value >> 8) {
    case DEVICE:
        return put_device(d, to);
    case CONFIGURATION:
        return index == 0 ? put_configuration(d, to) : 0;
    case STRING:
        return put_string(d, index, to);
    case QUALIFIER:
        return d->speed == TW_USB_HIGH ? put_qualifier(to) : 0;
    case BOS:
        return d->speed == TW_USB_SUPER ? put_bos(to) : 0;
    default:
        return 0;
    }
}

/* ---- control requests ---- */

static uint32_t read_progress(const struct tw_usb_device *d, struct tw_link_progress *p) {
    uint32_t generation = 0;
    memset(p, 0, sizeof *p);
    if (d->progress) {
        d->progress(d->progress_ctx, p, &generation);
    }
    return generation;
}

static size_t put_status(const struct tw_usb_device *d, uint8_t *to) {
    struct tw_usb_status s;
    s.generation = read_progress(d, &s.progress);
    s.state = d->recovery;
    memcpy(to, &s, sizeof s);
    return sizeof s;
}

static enum tw_usb_reply reset(struct tw_usb_device *d) {
    struct tw_link_progress ignored;
    d->dropping = read_progress(d, &ignored);
    if (d->drop) {
        d->drop(d->ctx);
    }
    return d->dropping ? TW_USB_LATER : TW_USB_DONE;
}

bool tw_usb_device_dropped(struct tw_usb_device *d, struct tw_usb_notice *notice) {
    struct tw_link_progress ignored;
    if (!d->dropping || read_progress(d, &ignored) == d->dropping) {
        return false;
    }
    *notice = (struct tw_usb_notice){TW_USB_NOTICE_DROPPED, d->dropping};
    d->dropping = 0;
    return true;
}

static enum tw_usb_reply vendor(struct tw_usb_device *d, const struct tw_usb_setup *s,
                                uint8_t *data, size_t *n) {
    unsigned key = (unsigned)s->type << 8 | s->request;
    if (s->index & 0xFF) {
        return TW_USB_STALL; /* not our interface */
    }
    switch (key) {
    case VENDOR_IN | TW_USB_STATUS:
        *n = put_status(d, data);
        return TW_USB_DONE;
    case VENDOR_IN | TW_USB_REASON:
        *n = strlen(d->reason);
        memcpy(data, d->reason, *n);
        return TW_USB_DONE;
    case VENDOR_OUT | TW_USB_RESET:
        return s->length == 0 ? reset(d) : TW_USB_STALL;
    default:
        return TW_USB_STALL;
    }
}

/* Returns the halt flag of a bulk endpoint, or NULL. */
static bool *halt_of(struct tw_usb_device *d, uint16_t index) {
    switch (index & 0xFF) {
    case TW_USB_OUT:
        return &d->out_halted;
    case TW_USB_IN:
        return &d->in_halted;
    default:
        return NULL;
    }
}

static enum tw_usb_reply halt(struct tw_usb_device *d, const struct tw_usb_setup *s, bool on) {
    bool *halted = halt_of(d, s->index);
    if (s->value != 0) {
        return TW_USB_STALL; /* not ENDPOINT_HALT */
    }
    if (!halted) {
        return (s->index & 0xFF) == TW_USB_NOTICE ? TW_USB_DONE : TW_USB_STALL;
    }
    *halted = on;
    if (!on && d->clear) {
        d->clear(d->ctx, (uint8_t)(s->index & 0xFF));
    }
    return TW_USB_DONE;
}

static enum tw_usb_reply status(struct tw_usb_device *d, const struct tw_usb_setup *s,
                                uint8_t *data, size_t *n) {
    const bool *halted = s->type == 0x82 ? halt_of(d, s->index) : NULL;
    data[0] = halted && *halted;
    data[1] = 0;
    *n = 2;
    return TW_USB_DONE;
}

static enum tw_usb_reply standard(struct tw_usb_device *d, const struct tw_usb_setup *s,
                                  uint8_t *data, size_t *n) {
    switch ((unsigned)s->type << 8 | s->request) {
    case GET_DESCRIPTOR:
        *n = put_descriptor(d, s->value, data);
        return *n ? TW_USB_DONE : TW_USB_STALL;
    case DEVICE_STATUS:
    case INTERFACE_STATUS:
    case ENDPOINT_STATUS:
        return status(d, s, data, n);
    case ENDPOINT_CLEAR:
        return halt(d, s, false);
    case ENDPOINT_SET:
        return halt(d, s, true);
    case DEVICE_CLEAR:
    case DEVICE_SET:
    case INTERFACE_CLEAR:
    case INTERFACE_SET: /* power states of the link: accepted without effect */
    case SET_EXIT_LATENCIES:
    case SET_ISOCHRONOUS_DELAY:
        return d->speed == TW_USB_SUPER ? TW_USB_DONE : TW_USB_STALL;
    default:
        return TW_USB_STALL;
    }
}

enum tw_usb_reply tw_usb_device_control(struct tw_usb_device *d, const struct tw_usb_setup *s,
                                        uint8_t *data, size_t *n) {
    *n = 0;
    enum tw_usb_reply reply =
        (s->type & 0x60) == 0x40 ? vendor(d, s, data, n) : standard(d, s, data, n);
    *n = *n < s->length ? *n : s->length;
    return reply;
}

void tw_usb_device_configured(struct tw_usb_device *d) {
    d->out_halted = d->in_halted = false;
}

/* ---- packets ---- */

bool tw_usb_assembly_add(struct tw_usb_assembly *a, const uint8_t *bytes, size_t n, bool ends) {
    if (a->too_long || n > TW_PACKET_BYTES - a->n) {
        a->too_long = !ends;
        a->n = 0;
        return false;
    }
    if (n) {
        memcpy(a->bytes + a->n, bytes, n);
        a->n += n;
    }
    return ends && a->n > 0; /* a zero-length packet alone is no packet of the link */
}

void tw_usb_assembly_clear(struct tw_usb_assembly *a) {
    a->n = 0;
    a->too_long = false;
}

void tw_usb_split_begin(struct tw_usb_split *s, size_t n) {
    s->n = n;
    s->at = 0;
    s->open = true;
}

size_t tw_usb_split_next(struct tw_usb_split *s, size_t room, uint32_t bus_packet,
                         const uint8_t **bytes, bool *babble) {
    size_t left = s->n - s->at, n = left < room ? left : room;
    *bytes = s->bytes + s->at;
    *babble = left > room && (room == 0 || room % bus_packet != 0);
    if (*babble) {
        n -= n % bus_packet;
    }
    s->at += n;
    /* The packet ends with this transfer if its last bus packet is short and the host had room. */
    s->open = s->at < s->n || (n > 0 && n == room && n % bus_packet == 0);
    return n;
}
