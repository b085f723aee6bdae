/* SPDX-License-Identifier: Apache-2.0
 *
 * The usb-host end of usbredirparser: its callbacks put transfers into bounded lists, and pump()
 * answers those that can be answered. An OUT transfer that finds no room stays unanswered, which
 * the guest sees as NAK.
 */
#include "firmware/usb/usbredir_internal.h"

#include "loader/base/clock.h"

#include <stdlib.h>

#define TURN_BYTES (1 << 20) /* limit on what one turn reads */
#define TICK_MS 5

static void send_notice(struct tw_usbredir_session *s) {
    struct usb_redir_interrupt_packet_header h = {.endpoint = TW_USB_NOTICE,
                                                  .length = sizeof s->notice};
    uint8_t bytes[sizeof s->notice];
    memcpy(bytes, &s->notice, sizeof bytes);
    usbredirparser_send_interrupt_packet(s->parser, s->notices_sent++, &h, bytes, sizeof bytes);
    s->notice_pending = false;
}

/* ---- the device's hooks ---- */

static void discard_packets(struct tw_usbredir_session *s) {
    tw_usb_assembly_clear(&s->assembly);
    s->split.open = false;
}

static void cut(struct tw_usbredir_session *s) {
    discard_packets(s);
    tw_usb_pipe_cut(s->pipe, s->configuration != 0);
}

static void drop(void *ctx) {
    struct tw_usbredir_session *s = ctx;
    /* Packets that the guest has in flight belong to the dropped host. */
    while (s->out.count) {
        struct transfer x = tw_usbredir_extract(&s->out, 0);
        tw_usbredir_answer(s, &x, usb_redir_success, NULL, x.length);
    }
    cut(s);
}

static void clear_endpoint(void *ctx, uint8_t endpoint) {
    struct tw_usbredir_session *s = ctx;
    if (endpoint == TW_USB_OUT) {
        tw_usb_assembly_clear(&s->assembly);
    } else {
        s->split.open = false;
    }
}

/* ---- the guest's requests ---- */

static void on_log(void *priv, int level, const char *message) {
    (void)priv;
    (void)level;
    (void)message; /* nothing is printed: an error ends the session */
}

static int on_read(void *priv, uint8_t *bytes, int n) {
    struct tw_usbredir_session *s = priv;
    int max = n < s->quota ? n : s->quota;
    if (max <= 0 || s->ended) {
        return 0;
    }
    int got = s->stream.read(s->stream.ctx, bytes, max);
    if (got > 0) {
        s->quota -= got;
    } else if (got < 0) {
        s->ended = true;
    }
    return got;
}

static int on_write(void *priv, uint8_t *bytes, int n) {
    struct tw_usbredir_session *s = priv;
    int put = s->stream.write(s->stream.ctx, bytes, n);
    if (put < 0) {
        s->ended = true;
    }
    return put;
}

/* Sends interface and endpoints. QEMU needs them before the device appears, and again after each
 * choice of a configuration or interface. */
static void send_topology(struct tw_usbredir_session *s) {
    struct usb_redir_interface_info_header i = {.interface_count = 1};
    struct usb_redir_ep_info_header e = {.interval = {0}};
    i.interface_class[0] = TW_USB_CLASS;
    i.interface_subclass[0] = TW_USB_SUBCLASS;
    i.interface_protocol[0] = TW_USB_PROTOCOL;
    memset(e.type, usb_redir_type_invalid, sizeof e.type);
    const uint32_t out = TW_USB_OUT, in = 16 + (TW_USB_IN & 15), notice = 16 + (TW_USB_NOTICE & 15);
    e.type[0] = e.type[16] = usb_redir_type_control;
    e.max_packet_size[0] = e.max_packet_size[16] = s->device->speed == TW_USB_SUPER ? 512 : 64;
    e.type[out] = e.type[in] = usb_redir_type_bulk;
    e.max_packet_size[out] = e.max_packet_size[in] = (uint16_t)tw_usbredir_bus_packet(s);
    e.type[notice] = usb_redir_type_interrupt;
    e.max_packet_size[notice] = TW_USB_NOTICE_PACKET;
    e.interval[notice] = 4;
    usbredirparser_send_interface_info(s->parser, &i);
    usbredirparser_send_ep_info(s->parser, &e);
}

static void on_hello(void *priv, struct usb_redir_hello_header *hello) {
    static const uint8_t speeds[] = {usb_redir_speed_full, usb_redir_speed_high,
                                     usb_redir_speed_super};
    struct tw_usbredir_session *s = priv;
    (void)hello;
    s->greeted = true;
    struct usb_redir_device_connect_header c = {.speed = speeds[s->device->speed],
                                                .vendor_id = TW_USB_VENDOR,
                                                .product_id = tw_usb_product(s->device),
                                                .device_version_bcd =
                                                    tw_usb_bcd_version(s->device)};
    send_topology(s);
    usbredirparser_send_device_connect(s->parser, &c);
}

/* Returns true if requests are to be handled: the other side must have sent its hello first. */
static bool is_ready(struct tw_usbredir_session *s) {
    if (!s->greeted) {
        s->ended = true;
    }
    return !s->ended;
}

static void on_reset(void *priv) {
    struct tw_usbredir_session *s = priv;
    if (!is_ready(s)) {
        return;
    }
    s->configuration = 0;
    s->listens = s->notice_pending = s->resetting = false;
    s->device->dropping = 0;
    tw_usbredir_answer_all(s, &s->out, usb_redir_cancelled);
    tw_usbredir_answer_all(s, &s->in, usb_redir_cancelled);
    tw_usb_device_configured(s->device);
    cut(s);
}

static void on_set_configuration(void *priv, uint64_t id,
                                 struct usb_redir_set_configuration_header *h) {
    struct tw_usbredir_session *s = priv;
    struct usb_redir_configuration_status_header a = {.status = usb_redir_stall};
    if (!is_ready(s)) {
        return;
    }
    if (h->configuration <= 1) {
        s->configuration = h->configuration;
        tw_usb_device_configured(s->device);
        cut(s);
        send_topology(s);
        a.status = usb_redir_success;
    }
    a.configuration = s->configuration;
    usbredirparser_send_configuration_status(s->parser, id, &a);
}

static void on_get_configuration(void *priv, uint64_t id) {
    struct tw_usbredir_session *s = priv;
    struct usb_redir_configuration_status_header a = {.configuration = s->configuration};
    if (is_ready(s)) {
        usbredirparser_send_configuration_status(s->parser, id, &a);
    }
}

static void on_set_alt_setting(void *priv, uint64_t id,
                               struct usb_redir_set_alt_setting_header *h) {
    struct tw_usbredir_session *s = priv;
    bool ours = h->interface == 0 && h->alt == 0 && s->configuration;
    struct usb_redir_alt_setting_status_header a = {
        .status = ours ? usb_redir_success : usb_redir_stall, .interface = h->interface};
    if (!is_ready(s)) {
        return;
    }
    if (ours) {
        tw_usb_device_configured(s->device);
        cut(s);
        send_topology(s);
    }
    usbredirparser_send_alt_setting_status(s->parser, id, &a);
}

static void on_get_alt_setting(void *priv, uint64_t id,
                               struct usb_redir_get_alt_setting_header *h) {
    struct tw_usbredir_session *s = priv;
    struct usb_redir_alt_setting_status_header a = {
        .status = h->interface ? usb_redir_stall : usb_redir_success, .interface = h->interface};
    if (is_ready(s)) {
        usbredirparser_send_alt_setting_status(s->parser, id, &a);
    }
}

static void listen_to(struct tw_usbredir_session *s, uint64_t id, uint8_t endpoint, bool on) {
    bool ours = endpoint == TW_USB_NOTICE && s->configuration;
    struct usb_redir_interrupt_receiving_status_header a = {
        .status = ours ? usb_redir_success : usb_redir_stall, .endpoint = endpoint};
    if (is_ready(s)) {
        s->listens = ours ? on : s->listens;
        usbredirparser_send_interrupt_receiving_status(s->parser, id, &a);
    }
}

static void on_start_interrupts(void *priv, uint64_t id,
                                struct usb_redir_start_interrupt_receiving_header *h) {
    listen_to(priv, id, h->endpoint, true);
}

static void on_stop_interrupts(void *priv, uint64_t id,
                               struct usb_redir_stop_interrupt_receiving_header *h) {
    listen_to(priv, id, h->endpoint, false);
}

/* Cancels the transfer with this id, if it is in the list. */
static bool cancel_in(struct tw_usbredir_session *s, struct transfers *t, uint64_t id) {
    for (uint32_t i = 0; i < t->count; i++) {
        if (tw_usbredir_nth(t, i)->id == id) {
            struct transfer x = tw_usbredir_extract(t, i);
            tw_usbredir_answer(s, &x, usb_redir_cancelled, NULL, 0);
            return true;
        }
    }
    return false;
}

static void on_cancel(void *priv, uint64_t id) {
    struct tw_usbredir_session *s = priv;
    if (!is_ready(s) || cancel_in(s, &s->in, id) || cancel_in(s, &s->out, id)) {
        return;
    }
    if (s->resetting && s->reset_id == id) {
        s->reset_header.status = usb_redir_cancelled;
        usbredirparser_send_control_packet(s->parser, id, &s->reset_header, NULL, 0);
        s->resetting = false;
    }
}

static void on_bulk(void *priv, uint64_t id, struct usb_redir_bulk_packet_header *h, uint8_t *data,
                    int n) {
    struct tw_usbredir_session *s = priv;
    uint32_t length = h->length | (uint32_t)h->length_high << 16;
    struct transfer x = {.id = id, .header = *h, .data = data, .length = n > 0 ? (uint32_t)n : 0};
    bool out = h->endpoint == TW_USB_OUT;
    if (!is_ready(s)) {
        usbredirparser_free_packet_data(s->parser, data);
        return;
    }
    if (!s->configuration || (!out && h->endpoint != TW_USB_IN)) {
        tw_usbredir_answer(s, &x, usb_redir_inval, NULL, 0);
        return;
    }
    if (out ? s->device->out_halted : s->device->in_halted) {
        tw_usbredir_answer(s, &x, usb_redir_stall, NULL, 0);
        return;
    }
    x.length = out ? x.length : length;
    if (!tw_usbredir_append(out ? &s->out : &s->in, &x)) {
        usbredirparser_free_packet_data(s->parser, data);
        s->ended = true; /* more in flight than any real guest has */
    }
}

static void answer_control(struct tw_usbredir_session *s, uint64_t id,
                           struct usb_redir_control_packet_header *h, uint8_t status, uint8_t *data,
                           size_t n) {
    bool in = h->requesttype & 0x80;
    h->status = status;
    h->length = (uint16_t)(status == usb_redir_success && !in ? h->length : n);
    usbredirparser_send_control_packet(s->parser, id, h, in && n ? data : NULL, in ? (int)n : 0);
}

static void wait_for_drop(struct tw_usbredir_session *s, uint64_t id,
                          const struct usb_redir_control_packet_header *h) {
    s->resetting = true;
    s->reset_id = id;
    s->reset_header = *h;
    s->reset_until = tw_clock_ms() + TW_USB_DROP_MS;
}

static void on_control(void *priv, uint64_t id, struct usb_redir_control_packet_header *h,
                       uint8_t *data, int bytes) {
    struct tw_usbredir_session *s = priv;
    uint8_t reply[TW_USB_CONTROL_MAX];
    size_t n;
    const struct tw_usb_setup setup = {h->requesttype, h->request, h->value, h->index, h->length};
    (void)bytes;
    usbredirparser_free_packet_data(s->parser, data); /* no supported request has data */
    if (!is_ready(s)) {
        return;
    }
    if ((h->endpoint & 0x7F) != 0 || s->resetting) {
        answer_control(s, id, h, usb_redir_stall, NULL, 0);
        return;
    }
    switch (tw_usb_device_control(s->device, &setup, reply, &n)) {
    case TW_USB_DONE:
        answer_control(s, id, h, usb_redir_success, reply, n);
        break;
    case TW_USB_LATER:
        wait_for_drop(s, id, h);
        break;
    case TW_USB_STALL:
        answer_control(s, id, h, usb_redir_stall, NULL, 0);
        break;
    }
}

/* Answers a RESET once the host has been dropped, or with a stall when the time is up. */
static void settle_reset(struct tw_usbredir_session *s) {
    if (!s->resetting) {
        return;
    }
    bool dropped = tw_usb_device_dropped(s->device, &s->notice);
    if (dropped) {
        s->notice_pending = true;
        s->split.open = false;
        tw_usb_pipe_clear_out(s->pipe); /* what was queued for it meanwhile */
    }
    if (dropped || tw_clock_ms() > s->reset_until) {
        s->resetting = false;
        s->device->dropping = 0;
        answer_control(s, s->reset_id, &s->reset_header,
                       dropped ? usb_redir_success : usb_redir_stall, NULL, 0);
    }
}

/* ---- life ---- */

static void set_callbacks(struct usbredirparser *p) {
    p->log_func = on_log;
    p->read_func = on_read;
    p->write_func = on_write;
    p->hello_func = on_hello;
    p->reset_func = on_reset;
    p->set_configuration_func = on_set_configuration;
    p->get_configuration_func = on_get_configuration;
    p->set_alt_setting_func = on_set_alt_setting;
    p->get_alt_setting_func = on_get_alt_setting;
    p->start_interrupt_receiving_func = on_start_interrupts;
    p->stop_interrupt_receiving_func = on_stop_interrupts;
    p->cancel_data_packet_func = on_cancel;
    p->control_packet_func = on_control;
    p->bulk_packet_func = on_bulk;
}

static bool start_parser(struct tw_usbredir_session *s) {
    uint32_t caps[USB_REDIR_CAPS_SIZE] = {0};
    s->parser = usbredirparser_create();
    if (!s->parser) {
        return false;
    }
    s->parser->priv = s;
    set_callbacks(s->parser);
    tw_usbredir_refuse(s->parser);
    /* Without 32-bit lengths and packet sizes QEMU does not keep several bulk transfers in
     * flight. */
    usbredirparser_caps_set_cap(caps, usb_redir_cap_connect_device_version);
    usbredirparser_caps_set_cap(caps, usb_redir_cap_ep_info_max_packet_size);
    usbredirparser_caps_set_cap(caps, usb_redir_cap_64bits_ids);
    usbredirparser_caps_set_cap(caps, usb_redir_cap_32bits_bulk_length);
    usbredirparser_init(s->parser, "tilewright", caps, USB_REDIR_CAPS_SIZE,
                        usbredirparser_fl_usb_host);
    return true;
}

struct tw_usbredir_session *tw_usbredir_session_create(struct tw_usb_device *device,
                                                       struct tw_usb_pipe *pipe,
                                                       const struct tw_usbredir_stream *stream) {
    struct tw_usbredir_session *s = calloc(1, sizeof *s);
    struct transfer *lists = calloc(2 * TW_USBREDIR_TRANSFERS, sizeof *lists);
    if (!s || !lists || !start_parser(s)) {
        free(lists);
        free(s);
        return NULL;
    }
    s->out.at = lists;
    s->in.at = lists + TW_USBREDIR_TRANSFERS;
    s->stream = *stream;
    s->device = device;
    s->pipe = pipe;
    s->assembly.bytes = pipe->spare[0];
    s->split.bytes = pipe->spare[1];
    device->drop = drop;
    device->clear = clear_endpoint;
    device->ctx = s;
    return s;
}

void tw_usbredir_session_destroy(struct tw_usbredir_session *s) {
    if (!s) {
        return;
    }
    tw_usbredir_answer_all(s, &s->out, usb_redir_cancelled); /* frees their data */
    tw_usb_device_configured(s->device);
    s->device->dropping = 0;
    s->device->drop = NULL;
    s->device->clear = NULL;
    tw_usb_pipe_cut(s->pipe, false);
    s->pipe->spare[0] = s->assembly.bytes;
    s->pipe->spare[1] = s->split.bytes;
    usbredirparser_destroy(s->parser);
    free(s->out.at);
    free(s);
}

static void pump(struct tw_usbredir_session *s) {
    settle_reset(s);
    tw_usbredir_pump_out(s);
    tw_usbredir_pump_in(s);
    if (s->notice_pending && s->listens) {
        send_notice(s);
    }
}

bool tw_usbredir_session_reads(const struct tw_usbredir_session *s) {
    return tw_usbredir_has_room(s);
}

bool tw_usbredir_session_writes(const struct tw_usbredir_session *s) {
    return usbredirparser_has_data_to_write(s->parser) > 0;
}

int tw_usbredir_session_tick(const struct tw_usbredir_session *s) {
    return s->resetting ? TICK_MS : -1;
}

bool tw_usbredir_session_turn(struct tw_usbredir_session *s) {
    s->quota = tw_usbredir_has_room(s) ? TURN_BYTES : 0;
    if (s->quota && usbredirparser_do_read(s->parser) == usbredirparser_read_parse_error) {
        s->ended = true;
    }
    if (!s->ended) {
        pump(s);
    }
    if (!s->ended && tw_usbredir_session_writes(s) && usbredirparser_do_write(s->parser) < 0) {
        s->ended = true;
    }
    return !s->ended;
}
