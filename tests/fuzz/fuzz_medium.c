/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes a medium that delivers any packets in any order, with a device that receives, sends, hangs
 * up and closes at any time. Each byte of the input is an action of one of them.
 */
#include "firmware/link/medium.h"
#include "firmware/link/packet.h"
#include "tests/support/fuzz_input.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct medium {
    struct tw_pipe base;
    struct fuzz_input in;
    bool *closed;
    uint8_t bytes[512];
};

static size_t build(struct medium *m, enum tw_link_kind kind, const void *payload, uint32_t n) {
    struct tw_link_header h = {.kind = (uint8_t)kind};
    const struct tw_packet_data data = {NULL, payload, n};
    return tw_packet_build(&h, &data, 400, m->bytes);
}

static enum tw_packet_result take_packet(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    struct medium *m = (struct medium *)p;
    struct tw_link_open open = {.pid = 1};
    *bytes = m->bytes;
    switch (fuzz_u8(&m->in) % 6) {
    case 0:
        return TW_PACKET_AGAIN;
    case 1:
        open.nonce = fuzz_u8(&m->in) % 4;
        *n = build(m, TW_LINK_OPEN, &open, sizeof open);
        break;
    case 2:
        *n = fuzz_u8(&m->in); /* 0: the host has gone */
        fuzz_bytes(&m->in, m->bytes, *n);
        break;
    case 3:
        *n = build(m, (enum tw_link_kind)(fuzz_u8(&m->in) % TW_LINK_KIND_LIMIT), &open,
                   fuzz_u8(&m->in) % 48);
        break;
    case 4:
        return TW_PACKET_GONE;
    default:
        *n = 0;
    }
    return TW_PACKET_OK;
}

static enum tw_packet_result send_packet(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    struct medium *m = (struct medium *)p;
    return bytes && n ? (enum tw_packet_result)(fuzz_u8(&m->in) % 3) : TW_PACKET_GONE;
}

static bool wait_medium(struct tw_pipe *p, bool write, int ms) {
    (void)p, (void)write, (void)ms;
    return false;
}

static void hang_up(struct tw_pipe *p) {
    (void)p;
    abort(); /* the medium outlives its connections */
}

static void close_medium(struct tw_pipe *p) {
    if (*((struct medium *)p)->closed) {
        abort();
    }
    *((struct medium *)p)->closed = true;
}

static const struct tw_pipe_ops ops = {.send = send_packet,
                                       .take = take_packet,
                                       .wait = wait_medium,
                                       .hang_up = hang_up,
                                       .close = close_medium};

/* Makes the device act on its connection. Returns false if it has closed it. */
static bool act(struct tw_pipe *call, uint32_t what, bool *gone) {
    uint8_t *bytes, sum = 0;
    size_t n;
    enum tw_packet_result r;
    switch (what) {
    case 0:
    case 1:
        r = call->ops->take(call, &bytes, &n);
        for (size_t i = 0; r == TW_PACKET_OK && i < n; i++) {
            sum = (uint8_t)(sum + bytes[i]);
        }
        break;
    case 2:
        r = call->ops->send(call, &sum, 1);
        if (*gone && r != TW_PACKET_GONE) {
            abort();
        }
        return true; /* a medium that does not send may still be there */
    case 3:
        call->ops->hang_up(call);
        *gone = true;
        return true;
    case 4:
        call->ops->close(call);
        return false;
    default:
        call->ops->wait(call, what & 1, 0);
        return true;
    }
    if (*gone && r != TW_PACKET_GONE) {
        abort(); /* a closed connection stays closed */
    }
    *gone = r == TW_PACKET_GONE;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bool closed = false, gone = false;
    struct medium m = {.base = {&ops, 400, 0}, .in = {data, size, 0}, .closed = &closed};
    struct tw_medium *line = tw_medium_create(&m.base);
    struct tw_pipe *call = NULL;
    while (fuzz_more(&m.in)) {
        if (!call) {
            call = tw_medium_accept(line);
            gone = false;
        }
        if (call && (tw_medium_accept(line) || tw_medium_fd(line) != -1)) {
            abort(); /* one at a time */
        }
        if (call && !act(call, fuzz_u8(&m.in) % 6, &gone)) {
            call = NULL;
        }
    }
    if (call) {
        call->ops->close(call);
    }
    tw_medium_destroy(line);
    if (!closed) {
        abort();
    }
    return 0;
}
