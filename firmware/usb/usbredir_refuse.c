/* SPDX-License-Identifier: Apache-2.0
 *
 * Refuses requests for what the device does not have: streams, isochronous and interrupt OUT
 * transfers. The refusals need only the parser.
 */
#include "firmware/usb/usbredir_internal.h"

#include <stdlib.h>

static void on_iso_start(void *priv, uint64_t id, struct usb_redir_start_iso_stream_header *h) {
    struct tw_usbredir_session *s = priv;
    struct usb_redir_iso_stream_status_header a = {.status = usb_redir_inval,
                                                   .endpoint = h->endpoint};
    usbredirparser_send_iso_stream_status(s->parser, id, &a);
}

static void on_iso_stop(void *priv, uint64_t id, struct usb_redir_stop_iso_stream_header *h) {
    struct usb_redir_start_iso_stream_header same = {.endpoint = h->endpoint};
    on_iso_start(priv, id, &same);
}

static void refuse_streams(struct tw_usbredir_session *s, uint64_t id, uint32_t endpoints) {
    struct usb_redir_bulk_streams_status_header a = {.endpoints = endpoints,
                                                     .status = usb_redir_inval};
    usbredirparser_send_bulk_streams_status(s->parser, id, &a);
}

static void on_streams_alloc(void *priv, uint64_t id,
                             struct usb_redir_alloc_bulk_streams_header *h) {
    refuse_streams(priv, id, h->endpoints);
}

static void on_streams_free(void *priv, uint64_t id, struct usb_redir_free_bulk_streams_header *h) {
    refuse_streams(priv, id, h->endpoints);
}

static void refuse_receiving(struct tw_usbredir_session *s, uint64_t id, uint32_t stream,
                             uint8_t endpoint) {
    struct usb_redir_bulk_receiving_status_header a = {
        .stream_id = stream, .endpoint = endpoint, .status = usb_redir_inval};
    usbredirparser_send_bulk_receiving_status(s->parser, id, &a);
}

static void on_receiving_start(void *priv, uint64_t id,
                               struct usb_redir_start_bulk_receiving_header *h) {
    refuse_receiving(priv, id, h->stream_id, h->endpoint);
}

static void on_receiving_stop(void *priv, uint64_t id,
                              struct usb_redir_stop_bulk_receiving_header *h) {
    refuse_receiving(priv, id, h->stream_id, h->endpoint);
}

static void on_iso(void *priv, uint64_t id, struct usb_redir_iso_packet_header *h, uint8_t *data,
                   int n) {
    struct tw_usbredir_session *s = priv;
    (void)id;
    (void)h;
    (void)n;
    usbredirparser_free_packet_data(s->parser, data);
}

static void on_interrupt(void *priv, uint64_t id, struct usb_redir_interrupt_packet_header *h,
                         uint8_t *data, int n) {
    struct tw_usbredir_session *s = priv;
    struct usb_redir_interrupt_packet_header a = *h;
    (void)n;
    usbredirparser_free_packet_data(s->parser, data);
    a.status = usb_redir_inval;
    a.length = 0;
    usbredirparser_send_interrupt_packet(s->parser, id, &a, NULL, 0);
}

static void on_filter(void *priv, struct usbredirfilter_rule *rules, int n) {
    (void)priv;
    (void)n;
    free(rules);
}

static void on_nothing(void *priv) {
    (void)priv;
}

void tw_usbredir_refuse(struct usbredirparser *p) {
    p->start_iso_stream_func = on_iso_start;
    p->stop_iso_stream_func = on_iso_stop;
    p->alloc_bulk_streams_func = on_streams_alloc;
    p->free_bulk_streams_func = on_streams_free;
    p->start_bulk_receiving_func = on_receiving_start;
    p->stop_bulk_receiving_func = on_receiving_stop;
    p->iso_packet_func = on_iso;
    p->interrupt_packet_func = on_interrupt;
    p->filter_filter_func = on_filter;
    p->filter_reject_func = on_nothing;
    p->device_disconnect_ack_func = on_nothing;
}
