/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest legal transport, to the smallest device (firmware/emulator/null_port.h). Copy this
 * file to start a new backend.
 */
#include "driver/transport/transport.h"
#include "firmware/emulator/null_port.h"

#include <stdlib.h>

struct null_transport {
    struct tw_transport base;
    struct tw_server server;
    bool answer_pending; /* `answer` has not been received yet */
    struct tw_server_answer answer;
};

static void discover(bool (*found)(void *ctx, const struct tw_transport_info *info), void *ctx) {
    struct tw_transport_info info = {.selector = "null",
                                     .state = "ready",
                                     .detail = "answers, but has no memory and runs nothing"};
    found(ctx, &info);
}

static int open_null(const char *rest, const struct tw_transport_options *options,
                     struct tw_transport **out, tw_error *err) {
    (void)options;
    if (*rest) {
        return tw_fail(err, TW_E_NO_DEVICE, "device null:%s: no such device; use null", rest);
    }
    struct null_transport *t = calloc(1, sizeof *t);
    if (!t) {
        return tw_fail(err, TW_E_NOMEM, "device null: out of memory");
    }
    t->base.ops = &tw_transport_null;
    t->base.credits = 1;
    tw_null_port_init(&t->server);
    *out = &t->base;
    return 0;
}

static int submit(struct tw_transport *base, const uint8_t *header, const void *payload,
                  uint32_t payload_bytes, tw_error *err) {
    struct null_transport *t = (struct null_transport *)base;
    if (t->answer_pending) {
        return tw_fail(err, TW_E_USAGE, "device null: a request is still unanswered");
    }
    tw_server_handle(&t->server, header, payload, payload_bytes, &t->answer);
    t->answer_pending = true;
    return 0;
}

static int receive(struct tw_transport *base, uint8_t *header, const void **payload,
                   uint32_t *payload_bytes, tw_error *err) {
    struct null_transport *t = (struct null_transport *)base;
    if (!t->answer_pending) {
        return tw_fail(err, TW_E_USAGE, "device null: no request is unanswered");
    }
    t->answer_pending = false;
    memcpy(header, t->answer.header, TW_WIRE_HEADER_BYTES);
    *payload = t->answer.payload;
    *payload_bytes = t->answer.length;
    return 0;
}

static void close_null(struct tw_transport *base) {
    free(base);
}

const struct tw_transport_ops tw_transport_null = {
    .name = "null",
    .discover = discover,
    .open = open_null,
    .submit = submit,
    .receive = receive,
    .close = close_null,
};
