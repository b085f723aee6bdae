/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the USB device behind usbredir with whole sessions. Input: a byte (speed in bits 0-1, bit
 * 2: recovery, bit 3: no hello first), then records of
 *   kind u8, id u8, bytes u16, payload
 * Kind below 200: a usbredir message of that type, whose header fields and data are the payload
 * (bit 7 of the id: the length field is 3 too large). 200: the payload as it is. 201: the
 * device sends a packet of (payload's first two bytes) bytes. 202: the device takes a packet. 203:
 * the open's generation changes. Whatever comes in after our hello, what goes out must follow
 * the protocol.
 */
#include "firmware/usb/usbredir_session.h"

#include <stdlib.h>
#include <usbredirparser.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STREAM (1u << 20)

static struct {
    uint8_t in[STREAM], out[STREAM];
    size_t in_n, in_at, out_n, out_at;
    uint32_t generation;
} bus;

static int read_bus(void *ctx, uint8_t *bytes, int n) {
    (void)ctx;
    size_t left = bus.in_n - bus.in_at, count = left < (size_t)n ? left : (size_t)n;
    memcpy(bytes, bus.in + bus.in_at, count);
    bus.in_at += count;
    return (int)count;
}

static int write_bus(void *ctx, const uint8_t *bytes, int n) {
    (void)ctx;
    size_t room = STREAM - bus.out_n, count = room < (size_t)n ? room : (size_t)n;
    memcpy(bus.out + bus.out_n, bytes, count);
    bus.out_n += count;
    return (int)count;
}

static void report_progress(void *ctx, struct tw_link_progress *p, uint32_t *generation) {
    (void)ctx;
    (void)p;
    *generation = bus.generation;
}

/* ---- the guest that receives ---- */

static struct usbredirparser *guest;

static int read_device(void *priv, uint8_t *bytes, int n) {
    (void)priv;
    size_t left = bus.out_n - bus.out_at, count = left < (size_t)n ? left : (size_t)n;
    memcpy(bytes, bus.out + bus.out_at, count);
    bus.out_at += count;
    return (int)count;
}

static int discard(void *priv, uint8_t *bytes, int n) {
    (void)priv;
    (void)bytes;
    return n;
}

static void on_log(void *priv, int level, const char *message) {
    (void)priv;
    (void)level;
    (void)message;
}

#define ON(name, type)                                                                    \
    static void on_##name(void *priv, uint64_t id, struct usb_redir_##type##_header *h) { \
        (void)priv;                                                                       \
        (void)id;                                                                         \
        (void)h;                                                                          \
    }
ON(configuration, configuration_status)
ON(alt, alt_setting_status)
ON(iso, iso_stream_status)
ON(interrupt_status, interrupt_receiving_status)
ON(streams, bulk_streams_status)
ON(receiving, bulk_receiving_status)

#define ON_DATA(name, type)                                                             \
    static void on_##name(void *priv, uint64_t id, struct usb_redir_##type##_header *h, \
                          uint8_t *bytes, int n) {                                      \
        (void)priv;                                                                     \
        (void)id;                                                                       \
        (void)h;                                                                        \
        (void)n;                                                                        \
        usbredirparser_free_packet_data(guest, bytes);                                  \
    }
ON_DATA(control, control_packet)
ON_DATA(bulk, bulk_packet)
ON_DATA(interrupt, interrupt_packet)

static void on_hello(void *priv, struct usb_redir_hello_header *h) {
    (void)priv;
    (void)h;
}
static void on_connect(void *priv, struct usb_redir_device_connect_header *h) {
    (void)priv;
    (void)h;
}
static void on_interface(void *priv, struct usb_redir_interface_info_header *h) {
    (void)priv;
    (void)h;
}
static void on_endpoints(void *priv, struct usb_redir_ep_info_header *h) {
    (void)priv;
    (void)h;
}

static void start_guest(void) {
    uint32_t caps[USB_REDIR_CAPS_SIZE] = {0};
    guest = usbredirparser_create();
    guest->log_func = on_log;
    guest->read_func = read_device;
    guest->write_func = discard;
    guest->hello_func = on_hello;
    guest->device_connect_func = on_connect;
    guest->interface_info_func = on_interface;
    guest->ep_info_func = on_endpoints;
    guest->configuration_status_func = on_configuration;
    guest->alt_setting_status_func = on_alt;
    guest->iso_stream_status_func = on_iso;
    guest->interrupt_receiving_status_func = on_interrupt_status;
    guest->bulk_streams_status_func = on_streams;
    guest->bulk_receiving_status_func = on_receiving;
    guest->control_packet_func = on_control;
    guest->bulk_packet_func = on_bulk;
    guest->interrupt_packet_func = on_interrupt;
    for (int cap = usb_redir_cap_bulk_streams; cap <= usb_redir_cap_bulk_receiving; cap++) {
        usbredirparser_caps_set_cap(caps, cap);
    }
    usbredirparser_init(guest, "fuzz", caps, USB_REDIR_CAPS_SIZE, usbredirparser_fl_no_hello);
}

/* ---- the input ---- */

static void push(const void *bytes, size_t n) {
    if (n <= STREAM - bus.in_n) {
        memcpy(bus.in + bus.in_n, bytes, n);
        bus.in_n += n;
    }
}

static void push_message(uint32_t type, uint8_t id, const uint8_t *payload, uint32_t n, bool wide) {
    uint8_t header[16];
    tw_wire_put(header, type, 4);
    tw_wire_put(header + 4, n + (id & 0x80 ? 3u : 0u), 4);
    tw_wire_put(header + 8, id & 0x7F, 8);
    push(header, wide ? 16 : 12);
    push(payload, n);
}

static void push_hello(void) {
    uint8_t hello[68] = "fuzz";
    uint32_t caps = 1u << usb_redir_cap_connect_device_version |
                    1u << usb_redir_cap_ep_info_max_packet_size | 1u << usb_redir_cap_64bits_ids |
                    1u << usb_redir_cap_32bits_bulk_length;
    tw_wire_put(hello + 64, caps, 4);
    push_message(usb_redir_hello, 0, hello, sizeof hello, false);
}

static void act(struct tw_usb_pipe *pipe, uint8_t kind, const uint8_t *payload, uint32_t n) {
    static uint8_t packet[TW_PACKET_BYTES];
    uint8_t *bytes;
    size_t got;
    if (kind == 201 && n >= 2) {
        size_t bytes_n = 1 + (payload[0] | (size_t)payload[1] << 8) % TW_PACKET_BYTES;
        tw_usb_pipe_send(&pipe->base, packet, bytes_n);
    } else if (kind == 202 && tw_usb_pipe_take(&pipe->base, &bytes, &got) == TW_PACKET_OK) {
        if (got > TW_PACKET_BYTES) {
            abort();
        }
        memset(bytes, 0x55, got); /* the bytes belong to the receiver */
    } else if (kind == 203) {
        bus.generation = n ? payload[0] : 0;
    }
}

static bool turn(struct tw_usbredir_session *s, bool says_hello) {
    bool alive = tw_usbredir_session_turn(s);
    if (says_hello && usbredirparser_do_read(guest) == usbredirparser_read_parse_error) {
        abort(); /* the device violates the protocol */
    }
    bus.in_n = bus.in_at = bus.out_n = bus.out_at = 0;
    return alive;
}

static void no_close(struct tw_pipe *p) {
    (void)p;
}

static const struct tw_pipe_ops ops = {.send = tw_usb_pipe_send,
                                       .take = tw_usb_pipe_take,
                                       .wait = tw_usb_pipe_wait,
                                       .hang_up = tw_usb_pipe_hang_up,
                                       .close = no_close};

static void run(struct tw_usbredir_session *s, struct tw_usb_pipe *pipe, const uint8_t *data,
                size_t size, bool says_hello) {
    for (size_t at = 0; at + 4 <= size;) {
        uint8_t kind = data[at], id = data[at + 1];
        uint32_t n = data[at + 2] | (uint32_t)data[at + 3] << 8;
        at += 4;
        n = n < size - at ? n : (uint32_t)(size - at);
        if (kind < 200) {
            push_message(kind, id, data + at, n, true);
        } else if (kind == 200) {
            push(data + at, n);
        } else {
            act(pipe, kind, data + at, n);
        }
        at += n;
        if (!turn(s, says_hello)) {
            return;
        }
    }
}

/* One pipe for all runs: it is large, and empty again when a session has ended. */
static struct tw_usb_pipe *empty_pipe(void) {
    static struct tw_usb_pipe pipe;
    uint8_t *bytes;
    size_t n;
    if (!pipe.memory && tw_usb_pipe_init(&pipe, &ops, false, NULL)) {
        abort();
    }
    while (tw_usb_pipe_take(&pipe.base, &bytes, &n) == TW_PACKET_OK) {
        if (n) {
            abort(); /* a packet that outlived its session */
        }
    }
    return &pipe;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct tw_usbredir_stream stream = {read_bus, write_bus, NULL};
    struct tw_usb_device device;
    struct tw_usb_pipe *pipe = empty_pipe();
    uint8_t how = size ? data[0] : 0;
    bool says_hello = !(how & 8);
    const struct tw_usb_options o = {.speed = (enum tw_usb_speed)((how & 3) % 3),
                                     .serial = "fuzz",
                                     .recovery = how & 4 ? "fuzz" : NULL,
                                     .progress = report_progress};
    bus.in_n = bus.in_at = bus.out_n = bus.out_at = bus.generation = 0;
    if (tw_usb_device_init(&device, &o, NULL)) {
        abort();
    }
    struct tw_usbredir_session *s = tw_usbredir_session_create(&device, pipe, &stream);
    start_guest();
    if (says_hello) {
        push_hello();
    }
    if (turn(s, says_hello) && size > 1) {
        run(s, pipe, data + 1, size - 1, says_hello);
    }
    tw_usbredir_session_destroy(s);
    usbredirparser_destroy(guest);
    return 0;
}
