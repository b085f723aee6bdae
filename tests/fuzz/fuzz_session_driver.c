/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the driver above its transports with a device that answers whole messages of any content:
 * deploying, sessions, steps, greedy runs, self-test. Whatever it answers, every call returns, and
 * an error is one line. Input: a byte that selects the calls, then for each answer a byte that
 * selects how it differs from a correct one, and the bytes that the difference takes.
 */
#include "driver/device/device.h"
#include "tests/support/fuzz_input.h"
#include "tests/support/model_bundle.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum difference { NONE, CONTENT, ADDRESS, REFUSED, LENGTH, HEADER, LOST, DIFFERENCES };

#define CREDITS 4u

struct device {
    struct tw_transport base;
    struct fuzz_input in;
    struct tw_wire_header requests[CREDITS];
    uint32_t wanted[CREDITS]; /* payload bytes of a correct answer */
    uint32_t submitted, answered;
};

static uint8_t payload[TW_LINK_MAX_PAYLOAD];

/* Returns the payload bytes of a correct answer to a request. */
static uint32_t bytes_of(const struct tw_wire_header *h, const void *request) {
    struct tw_wire_range range;
    struct tw_wire_run run;
    switch (h->opcode) {
    case TW_WIRE_HELLO:
        return sizeof(struct tw_wire_identity);
    case TW_WIRE_READ:
        memcpy(&range, request, sizeof range);
        return range.bytes < sizeof payload ? (uint32_t)range.bytes : 0;
    case TW_WIRE_HASH:
        return sizeof(struct tw_wire_hash);
    case TW_WIRE_LOAD:
        return sizeof(struct tw_wire_loaded);
    case TW_WIRE_RUN:
        memcpy(&run, request, sizeof run);
        return run.flags & TW_WIRE_RUN_GREEDY
                   ? (uint32_t)sizeof(struct tw_wire_tokens) + 4 * run.n_steps
                   : (uint32_t)sizeof(struct tw_wire_done);
    case TW_WIRE_COUNTERS:
        return sizeof(struct tw_wire_counters);
    default:
        return 0;
    }
}

static int submit(struct tw_transport *t, const uint8_t *header, const void *request,
                  uint32_t bytes, tw_error *err) {
    struct device *d = (struct device *)t;
    const char *why;
    struct tw_wire_header *h = &d->requests[d->submitted % CREDITS];
    if (d->submitted - d->answered >= CREDITS || tw_wire_decode(header, h, &why) ||
        h->length != bytes) {
        abort(); /* the driver broke its contract */
    }
    d->wanted[d->submitted++ % CREDITS] = bytes_of(h, request);
    (void)err;
    return 0;
}

static int receive(struct tw_transport *t, uint8_t *header, const void **out, uint32_t *bytes,
                   tw_error *err) {
    struct device *d = (struct device *)t;
    if (d->answered == d->submitted) {
        abort();
    }
    struct tw_wire_header h = d->requests[d->answered % CREDITS];
    uint32_t how = fuzz_u8(&d->in), flip = 0;
    h.length = d->wanted[d->answered++ % CREDITS];
    h.flags = TW_WIRE_ANSWER;
    h.address = 4096;
    memset(payload, 0, h.length);
    switch ((enum difference)(how % DIFFERENCES)) {
    case CONTENT:
        fuzz_bytes(&d->in, payload, h.length < 160 ? h.length : 160);
        break;
    case ADDRESS:
        h.address = fuzz_u8(&d->in) * UINT64_C(0x0101010101010101);
        break;
    case REFUSED:
        h.status = -(int32_t)fuzz_u8(&d->in);
        h.length = sizeof(struct tw_wire_failure);
        fuzz_bytes(&d->in, payload, h.length);
        break;
    case LENGTH:
        h.length = fuzz_u32(&d->in) % sizeof payload;
        break;
    case HEADER:
        h.sequence += fuzz_u8(&d->in) & 1;
        h.opcode = (uint8_t)fuzz_u8(&d->in);
        flip = fuzz_u8(&d->in);
        break;
    case LOST:
        return tw_fail(err, how & 128 ? TW_E_TIMEOUT : TW_E_DEVICE_LOST, "device fuzz: lost");
    case NONE:
    case DIFFERENCES:
        break;
    }
    tw_wire_encode(&h, header);
    header[flip % TW_WIRE_HEADER_BYTES] =
        (uint8_t)(header[flip % TW_WIRE_HEADER_BYTES] ^ (flip & 128));
    *out = payload;
    *bytes = h.length;
    return 0;
}

static bool stuck(struct tw_transport *t, struct tw_link_progress *out) {
    fuzz_bytes(&((struct device *)t)->in, out, sizeof *out);
    return true;
}

static void close_device(struct tw_transport *t) {
    (void)t;
}

static const struct tw_transport_ops ops = {
    .name = "fuzz", .submit = submit, .receive = receive, .stuck = stuck, .close = close_device};

static void check(int code, const tw_error *err) {
    if (code && (code > 0 || err->code != code || !err->message[0] || strchr(err->message, '\n'))) {
        abort();
    }
}

static void use_session(struct tw_device *device, const tw_decoder *decoder,
                        struct fuzz_input *in) {
    tw_error err = {0};
    tw_deployment *deployment = NULL;
    tw_session *session = NULL;
    int code = tw_deploy(device, decoder, &deployment, &err);
    code = code ? code : tw_session_create(deployment, NULL, &session, &err);
    check(code, &err);
    for (uint32_t i = 0; !code && fuzz_more(in) && i < 8; i++) {
        uint32_t ids[70] = {1, 2, 3}, tokens[16], n = 0;
        enum tw_stop_reason reason;
        struct tw_greedy_options o = {.size = sizeof o, .n = 1 + fuzz_u8(in) % 16};
        code = i & 1 ? tw_session_run_greedy(session, 1, &o, tokens, &n, &reason, &err)
                     : tw_session_feed(session, ids, i == 2 ? 70 : 1, &err);
        check(code, &err);
        if (n > o.n) {
            abort();
        }
    }
    tw_session_destroy(session);
    tw_deployment_destroy(deployment);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tw_decoder *decoder;
    if (!decoder) {
        tw_error err = {0};
        if (tw_decoder_open(model_bundle("host"), 0, &decoder, &err)) {
            abort();
        }
        model_bundle_cleanup(); /* removes the file, which stays mapped */
    }
    struct device d = {.base = {.ops = &ops, .credits = CREDITS}, .in = {data, size, 0}};
    uint32_t how = fuzz_u8(&d.in);
    struct tw_device device = {.transport = &d.base, .selector = "fuzz"};
    device.identity = (struct tw_wire_identity){
        .abi_major = TW_MACHINE_ABI_MAJOR,
        .abi_minor = TW_MACHINE_ABI_MINOR,
        .max_payload = how & 1 ? fuzz_u32(&d.in) : TW_LINK_MAX_PAYLOAD,
        .capabilities = TW_WIRE_CAN_GREEDY | TW_WIRE_CAN_FAST | (how & 2 ? TW_WIRE_CAN_KEEP : 0u)};
    memset(&device.limits, 0xFF, sizeof device.limits); /* as of a device that does not say */
    if (how & 8) {
        fuzz_bytes(&d.in, &device.limits, sizeof device.limits);
    }
    pthread_mutex_init(&device.lock, NULL);
    tw_error err = {0};
    if (how & 4) {
        check(tw_device_selftest(&device, NULL, NULL, &err), &err);
    } else {
        use_session(&device, decoder, &d.in);
    }
    pthread_mutex_destroy(&device.lock);
    return 0;
}
