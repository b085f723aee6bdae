/* SPDX-License-Identifier: Apache-2.0
 *
 * The transfers of a usbredir session: a bounded list for each direction, answered in order as
 * packets are received and sent.
 */
#include "firmware/usb/usbredir_internal.h"

#define HELD_BYTES (64u << 20)  /* limit on the data of waiting OUT transfers */
#define OUTPUT_BYTES (4u << 20) /* limit on the output that waits to be written */

/* ---- lists of transfers ---- */

struct transfer *tw_usbredir_nth(const struct transfers *t, uint32_t i) {
    return &t->at[(t->first + i) % TW_USBREDIR_TRANSFERS];
}

bool tw_usbredir_append(struct transfers *t, const struct transfer *x) {
    if (t->count == TW_USBREDIR_TRANSFERS || t->bytes + (x->data ? x->length : 0) > HELD_BYTES) {
        return false;
    }
    *tw_usbredir_nth(t, t->count++) = *x;
    t->bytes += x->data ? x->length : 0;
    return true;
}

struct transfer tw_usbredir_extract(struct transfers *t, uint32_t i) {
    struct transfer x = *tw_usbredir_nth(t, i);
    for (; i > 0; i--) {
        *tw_usbredir_nth(t, i) = *tw_usbredir_nth(t, i - 1);
    }
    t->first = (t->first + 1) % TW_USBREDIR_TRANSFERS;
    t->count--;
    t->bytes -= x.data ? x.length : 0;
    return x;
}

void tw_usbredir_answer(struct tw_usbredir_session *s, struct transfer *x, uint8_t status,
                        const uint8_t *data, size_t n) {
    struct usb_redir_bulk_packet_header h = x->header;
    h.status = status;
    h.length = (uint16_t)(n & 0xFFFF);
    h.length_high = (uint16_t)(n >> 16);
    usbredirparser_send_bulk_packet(s->parser, x->id, &h, (uint8_t *)(uintptr_t)data,
                                    data ? (int)n : 0);
    if (x->data) {
        usbredirparser_free_packet_data(s->parser, x->data);
    }
}

void tw_usbredir_answer_all(struct tw_usbredir_session *s, struct transfers *t, uint8_t status) {
    while (t->count) {
        struct transfer x = tw_usbredir_extract(t, 0);
        tw_usbredir_answer(s, &x, status, NULL, 0);
    }
}

/* ---- moving packets ---- */

uint32_t tw_usbredir_bus_packet(const struct tw_usbredir_session *s) {
    return tw_usb_bulk_packet(s->device->speed);
}

/* A transfer consists of full bus packets, except perhaps the last: a short one ends the packet. */
static void take_out(struct tw_usbredir_session *s, const struct transfer *x) {
    bool ends = x->length == 0 || x->length % tw_usbredir_bus_packet(s) != 0;
    if (tw_usb_assembly_add(&s->assembly, x->data, x->length, ends)) {
        if (!s->device->recovery) {
            tw_usb_pipe_put(s->pipe, &s->assembly.bytes, s->assembly.n);
        }
        tw_usb_assembly_clear(&s->assembly);
    }
}

void tw_usbredir_pump_out(struct tw_usbredir_session *s) {
    while (s->out.count && tw_usb_pipe_room(s->pipe)) {
        struct transfer x = tw_usbredir_extract(&s->out, 0);
        take_out(s, &x);
        tw_usbredir_answer(s, &x, usb_redir_success, NULL, x.length);
    }
}

static bool open_split(struct tw_usbredir_session *s) {
    size_t n;
    if (!s->split.open && tw_usb_pipe_get(s->pipe, &s->split.bytes, &n)) {
        tw_usb_split_begin(&s->split, n);
    }
    return s->split.open;
}

bool tw_usbredir_has_room(const struct tw_usbredir_session *s) {
    return usbredirparser_get_bufferered_output_size(s->parser) < OUTPUT_BYTES;
}

void tw_usbredir_pump_in(struct tw_usbredir_session *s) {
    while (s->in.count && tw_usbredir_has_room(s) && open_split(s)) {
        struct transfer x = tw_usbredir_extract(&s->in, 0);
        const uint8_t *bytes;
        bool babble;
        size_t n =
            tw_usb_split_next(&s->split, x.length, tw_usbredir_bus_packet(s), &bytes, &babble);
        tw_usbredir_answer(s, &x, babble ? usb_redir_babble : usb_redir_success, bytes, n);
    }
}
