/* SPDX-License-Identifier: Apache-2.0
 *
 * The command server's dispatch: checks a request's header and payload size against one table,
 * calls the opcode's handler and encodes the answer. Also the small requests: identity, events,
 * counters, log, heartbeat.
 */
#include "firmware/core/server/server.h"

#include "loader/base/assert.h"
#include "tilewright/progblob.h"

static uint32_t copy_text(char *to, uint32_t size, const char *from) {
    uint32_t n = 0;
    TW_ASSERT(size > 0);
    while (n + 1 < size && from[n]) {
        to[n] = from[n];
        n++;
    }
    memset(to + n, 0, size - n);
    return n;
}

int tw_server_refuse(struct tw_server *server, int code, const char *what, uint64_t have,
                     uint64_t need) {
    struct tw_wire_failure *f = &server->answer.failure;
    TW_ASSERT(code < 0);
    memset(f, 0, sizeof *f);
    f->code = code;
    f->site = f->engine = f->op_index = f->opcode = f->stage = f->object = f->program = TW_NONE;
    f->have = have;
    f->need = need;
    copy_text(f->what, sizeof f->what, what);
    return code;
}

int tw_server_fault(struct tw_wire_failure *f, uint32_t program, const struct tw_fault *fault) {
    memset(f, 0, sizeof *f);
    f->code = fault->code ? fault->code : TW_E_FAULT;
    f->site = fault->site;
    f->engine = fault->engine;
    f->op_index = fault->op_index;
    f->opcode = fault->opcode;
    f->stage = fault->stage;
    f->object = fault->object;
    f->program = program;
    f->have = fault->have;
    f->need = fault->need;
    f->element = fault->element;
    copy_text(f->what, sizeof f->what, fault->what ? fault->what : "fault");
    return f->code;
}

void tw_server_log(struct tw_server *server, const char *text) {
    if (server->log.count == TW_SERVER_LOG_LINES) {
        server->log.first = (server->log.first + 1) % TW_SERVER_LOG_LINES;
        server->log.count--;
    }
    TW_ASSERT(server->log.first < TW_SERVER_LOG_LINES && server->log.count < TW_SERVER_LOG_LINES);
    uint32_t at = (server->log.first + server->log.count++) % TW_SERVER_LOG_LINES;
    copy_text(server->log.ring[at], TW_SERVER_LOG_BYTES, text);
}

void tw_server_post_event(struct tw_server *server, uint32_t kind,
                          const struct tw_wire_failure *failure) {
    if (server->events.count == TW_SERVER_EVENTS) {
        server->events.first = (server->events.first + 1) % TW_SERVER_EVENTS;
        server->events.count--;
        server->events.lost++;
    }
    TW_ASSERT(server->events.first < TW_SERVER_EVENTS && server->events.count < TW_SERVER_EVENTS);
    struct tw_wire_event *e =
        &server->events.ring[(server->events.first + server->events.count++) % TW_SERVER_EVENTS];
    memset(e, 0, sizeof *e);
    e->kind = kind;
    e->number = ++server->events.number;
    if (failure) {
        e->failure = *failure;
        tw_server_log(server, failure->what);
    }
}

static int hello(struct tw_server *server, struct tw_server_request *request) {
    struct tw_wire_hello h;
    memcpy(&h, request->payload, sizeof h);
    struct tw_wire_identity *id = &server->answer.identity;
    memset(id, 0, sizeof *id);
    /* The identity is sent whatever version the driver has: the driver decides which side must be
     * upgraded. */
    id->protocol_min = TW_WIRE_VERSION_MIN;
    id->protocol_max = TW_WIRE_VERSION_MAX;
    id->abi_major = TW_MACHINE_ABI_MAJOR;
    id->abi_minor = TW_MACHINE_ABI_MINOR;
    id->firmware_version = TW_FIRMWARE_VERSION;
    id->capabilities = (server->port.kernels ? TW_WIRE_CAN_STRICT | TW_WIRE_CAN_GREEDY : 0u) |
                       (server->port.memory_bytes ? (uint32_t)TW_WIRE_CAN_KEEP : 0u) |
                       (server->port.kernels && server->port.run ? TW_WIRE_CAN_FAST : 0u) |
                       (server->port.description ? (uint32_t)TW_WIRE_CAN_DESCRIBE : 0u) |
                       (server->port.verify ? (uint32_t)TW_WIRE_CAN_VERIFY : 0u) |
                       (server->port.can_cancel ? (uint32_t)TW_WIRE_CAN_CANCEL : 0u) |
                       TW_WIRE_CAN_LINK | TW_WIRE_CAN_LIMITS | TW_WIRE_CAN_COPY | TW_WIRE_CAN_COUNT;
    id->n_threads = server->port.max_threads;
    id->max_allocations = TW_SERVER_ALLOCATIONS;
    id->max_programs = TW_SERVER_PROGRAMS;
    id->memory_bytes = server->port.memory_bytes;
    id->memory_used = server->counters.memory_used;
    id->max_payload = tw_server_max_payload(server);
    copy_text(id->target, sizeof id->target, server->port.target);
    copy_text(id->device, sizeof id->device, server->port.device);
    request->out = id;
    request->out_bytes = sizeof *id;
    return 0;
}

static int describe(struct tw_server *server, struct tw_server_request *request) {
    if (server->port.description) {
        request->out = server->answer.description;
        request->out_bytes = copy_text(server->answer.description,
                                       sizeof server->answer.description, server->port.description);
    }
    return 0;
}

static uint32_t lower_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Lowers the limits of the firmware to those of its port. */
static void lower(struct tw_requirements *to, const struct tw_requirements *by) {
    for (uint32_t w = 0; w < TW_REQ_OP_WORDS; w++) {
        to->ops[w] &= by->ops[w];
    }
    to->dtypes &= by->dtypes;
    to->packings &= by->packings;
    to->features &= by->features;
    to->rows = lower_u32(to->rows, by->rows);
    to->chips = lower_u32(to->chips, by->chips);
    to->sites = lower_u32(to->sites, by->sites);
    to->words = lower_u32(to->words, by->words);
    to->trips = lower_u32(to->trips, by->trips);
    for (uint32_t c = 0; c < TW_MEM_CLASSES; c++) {
        to->sram_bytes[c] =
            to->sram_bytes[c] < by->sram_bytes[c] ? to->sram_bytes[c] : by->sram_bytes[c];
    }
}

void tw_server_limits(const struct tw_server *server, struct tw_requirements *out) {
    const struct tw_kernel_table *kernels = server->port.kernels;
    memset(out, 0xFF, sizeof *out); /* no limit of a number */
    memset(out->ops, 0, sizeof out->ops);
    for (uint32_t code = 0; code < TW_OP_LIMIT && kernels; code++) {
        if (tw_op_info(code).name && (!tw_op_is_data(code) || kernels->fn[code])) {
            (void)tw_require_op(out, code);
        }
    }
    out->dtypes = ((uint32_t)1 << TW_DT_COUNT) - 1;
    out->packings = ((uint32_t)1 << TW_PACK_COUNT) - 1;
    out->features = TW_FEATURE_ALL;
    out->sites = TW_MAX_SITES;
    if (server->port.limits) {
        lower(out, server->port.limits);
    }
}

static int limits(struct tw_server *server, struct tw_server_request *request) {
    tw_server_limits(server, &server->answer.limits);
    request->out = &server->answer.limits;
    request->out_bytes = sizeof server->answer.limits;
    return 0;
}

static int reset(struct tw_server *server, struct tw_server_request *request) {
    (void)request;
    tw_server_reset(server);
    tw_server_post_event(server, TW_WIRE_EVENT_RESET, NULL);
    return 0;
}

static int event(struct tw_server *server, struct tw_server_request *request) {
    if (server->events.count == 0) {
        return 0;
    }
    server->answer.event = server->events.ring[server->events.first];
    server->answer.event.lost = server->events.lost;
    server->events.lost = 0;
    server->events.first = (server->events.first + 1) % TW_SERVER_EVENTS;
    server->events.count--;
    TW_ASSERT(server->events.count < TW_SERVER_EVENTS);
    request->out = &server->answer.event;
    request->out_bytes = sizeof server->answer.event;
    return 0;
}

static int counters(struct tw_server *server, struct tw_server_request *request) {
    server->answer.counters = server->counters;
    server->answer.counters.allocations = server->n_allocations;
    request->out = &server->answer.counters;
    request->out_bytes = sizeof server->answer.counters;
    return 0;
}

static int read_log(struct tw_server *server, struct tw_server_request *request) {
    if (server->log.count == 0) {
        return 0;
    }
    request->out_bytes =
        copy_text(server->answer.line, TW_SERVER_LOG_BYTES, server->log.ring[server->log.first]);
    server->log.first = (server->log.first + 1) % TW_SERVER_LOG_LINES;
    server->log.count--;
    request->out = server->answer.line;
    return 0;
}

static int heartbeat(struct tw_server *server, struct tw_server_request *request) {
    request->out_address = server->progress;
    return 0;
}

/* The handler of each opcode, and the bytes of payload that it accepts: [min, max]. */
static const struct {
    int (*handle)(struct tw_server *, struct tw_server_request *);
    uint32_t min, max;
} handlers[TW_WIRE_OPCODE_LIMIT] = {
    [TW_WIRE_HELLO] = {hello, sizeof(struct tw_wire_hello), sizeof(struct tw_wire_hello)},
    [TW_WIRE_RESET] = {reset, 0, 0},
    [TW_WIRE_ALLOC] = {tw_server_alloc, sizeof(struct tw_wire_alloc), sizeof(struct tw_wire_alloc)},
    [TW_WIRE_FREE] = {tw_server_free, 0, 0},
    [TW_WIRE_WRITE] = {tw_server_write, 1, TW_WIRE_MAX_PAYLOAD},
    [TW_WIRE_READ] = {tw_server_read, sizeof(struct tw_wire_range), sizeof(struct tw_wire_range)},
    [TW_WIRE_FILL] = {tw_server_fill, sizeof(struct tw_wire_range), sizeof(struct tw_wire_range)},
    [TW_WIRE_HASH] = {tw_server_hash, sizeof(struct tw_wire_range), sizeof(struct tw_wire_range)},
    [TW_WIRE_LOAD] = {tw_server_load, TW_WIRE_LOAD_PLAIN_BYTES, sizeof(struct tw_wire_load)},
    [TW_WIRE_UNLOAD] = {tw_server_unload, 0, 0},
    [TW_WIRE_RUN] = {tw_server_run, sizeof(struct tw_wire_run), TW_WIRE_MAX_PAYLOAD},
    [TW_WIRE_EVENT] = {event, 0, 0},
    [TW_WIRE_COUNTERS] = {counters, 0, 0},
    [TW_WIRE_LOG] = {read_log, 0, 0},
    [TW_WIRE_HEARTBEAT] = {heartbeat, 0, 0},
    [TW_WIRE_KEEP] = {tw_server_keep, sizeof(struct tw_wire_content),
                      sizeof(struct tw_wire_content)},
    [TW_WIRE_FIND] = {tw_server_find_content, sizeof(struct tw_wire_content),
                      sizeof(struct tw_wire_content)},
    [TW_WIRE_DESCRIBE] = {describe, 0, 0},
    [TW_WIRE_LIMITS] = {limits, 0, 0},
    [TW_WIRE_COPY] = {tw_server_copy, sizeof(struct tw_wire_copy), sizeof(struct tw_wire_copy)},
};

static int check_and_handle(struct tw_server *server, struct tw_server_request *request,
                            const uint8_t *bytes, uint64_t payload_bytes) {
    const char *why;
    int code = tw_wire_decode(bytes, &request->header, &why);
    const struct tw_wire_header *h = &request->header;
    /* A driver of another version may still query the identity. */
    if (code && !(code == TW_E_VERSION && h->opcode == TW_WIRE_HELLO)) {
        return tw_server_refuse(server, code, why, h->version, TW_WIRE_VERSION_MAX);
    }
    if (h->flags != 0 || h->status != 0) {
        return tw_server_refuse(server, TW_E_PROTOCOL, "unexpected flags or status in a request",
                                h->flags, 0);
    }
    if (h->length != payload_bytes) {
        return tw_server_refuse(server, TW_E_PROTOCOL, "payload length differs from the header's",
                                payload_bytes, h->length);
    }
    if (h->length < handlers[h->opcode].min || h->length > handlers[h->opcode].max) {
        return tw_server_refuse(server, TW_E_PROTOCOL, "payload length not valid for this request",
                                h->length, handlers[h->opcode].min);
    }
    TW_ASSERT(handlers[h->opcode].handle && h->opcode < TW_WIRE_OPCODE_LIMIT);
    server->counters.bytes_in += h->length;
    return handlers[h->opcode].handle(server, request);
}

void tw_server_handle(struct tw_server *server, const uint8_t header[TW_WIRE_HEADER_BYTES],
                      const void *payload, uint64_t payload_bytes,
                      struct tw_server_answer *answer) {
    struct tw_server_request request;
    memset(&request, 0, sizeof request);
    request.payload = payload;
    server->counters.messages++;
    tw_server_tick(server);
    int code = check_and_handle(server, &request, header, payload_bytes);
    if (code) {
        server->counters.refused++;
        request.out = &server->answer.failure;
        request.out_bytes = sizeof server->answer.failure;
    }
    TW_ASSERT(code <= 0 && (request.out || request.out_bytes == 0));
    TW_ASSERT(server->n_allocations <= TW_SERVER_ALLOCATIONS);
    TW_ASSERT(server->counters.memory_used <= server->counters.memory_peak);
    server->counters.bytes_out += request.out_bytes;
    struct tw_wire_header h = {0};
    h.version = TW_WIRE_VERSION_MAX;
    h.opcode = request.header.opcode;
    h.flags = TW_WIRE_ANSWER;
    h.sequence = request.header.sequence;
    h.status = code;
    h.address = request.out_address;
    h.length = request.out_bytes;
    tw_wire_encode(&h, answer->header);
    answer->payload = request.out;
    answer->length = request.out_bytes;
}

void tw_server_init(struct tw_server *server, const struct tw_server_port *port) {
    memset(server, 0, sizeof *server);
    server->port = *port;
    server->cancel.interrupt = port->interrupt;
    atomic_store_explicit(&server->watch.site, TW_NONE, memory_order_relaxed);
    /* Memory beyond the reach of a pointer is not used, so every checked range fits a size_t. */
    if (server->port.memory_bytes > SIZE_MAX) {
        server->port.memory_bytes = SIZE_MAX;
    }
}
