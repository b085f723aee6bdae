/* SPDX-License-Identifier: Apache-2.0
 *
 * The server's memory requests: a fixed table of live allocations, and every access checked to lie
 * inside one of them.
 */
#include "firmware/core/server/server.h"
#include "loader/base/assert.h"
#include "tilewright/range.h"

#define MAX_ALIGN 65536u

static bool holds(const struct tw_server_allocation *a, uint64_t address, uint64_t bytes) {
    return address >= a->address && tw_range_ok(address - a->address, bytes, a->bytes);
}

struct tw_server_allocation *tw_server_find(struct tw_server *server, uint64_t address,
                                            uint64_t bytes) {
    /* Successive requests of the token path name the same allocation. */
    if (server->last_hit < server->n_allocations &&
        holds(&server->allocations[server->last_hit], address, bytes)) {
        return &server->allocations[server->last_hit];
    }
    for (uint32_t i = 0; i < server->n_allocations; i++) {
        if (holds(&server->allocations[i], address, bytes)) {
            server->last_hit = i;
            return &server->allocations[i];
        }
    }
    return NULL;
}

static void add(struct tw_server *server, uint64_t address, uint64_t bytes, bool adopted) {
    TW_ASSERT(server->n_allocations < TW_SERVER_ALLOCATIONS && bytes > 0);
    struct tw_server_allocation *a = &server->allocations[server->n_allocations++];
    a->address = address;
    a->bytes = bytes;
    a->users = a->frozen = a->writers = a->kept = 0;
    a->adopted = adopted ? 1 : 0;
    if (!adopted) {
        server->counters.memory_used += bytes;
        if (server->counters.memory_used > server->counters.memory_peak) {
            server->counters.memory_peak = server->counters.memory_used;
        }
    }
}

void tw_server_drop(struct tw_server *server, struct tw_server_allocation *a) {
    TW_ASSERT(server->n_allocations > 0 && a >= server->allocations &&
              a < server->allocations + server->n_allocations);
    TW_ASSERT(a->users == 0 && a->frozen == 0);
    TW_ASSERT(a->adopted || a->bytes <= server->counters.memory_used);
    server->port.free(server->port.ctx, a->address, a->bytes, a->adopted != 0);
    if (!a->adopted) {
        server->counters.memory_used -= a->bytes;
    }
    *a = server->allocations[--server->n_allocations];
}

int tw_server_alloc(struct tw_server *server, struct tw_server_request *request) {
    struct tw_wire_alloc q;
    memcpy(&q, request->payload, sizeof q);
    if (q.bytes == 0 || !tw_is_pow2_u64(q.align) || q.align > MAX_ALIGN ||
        (q.flags & ~(uint32_t)TW_WIRE_ALLOC_ZERO)) {
        return tw_server_refuse(server, TW_E_RANGE, "invalid allocation size, alignment or flags",
                                q.bytes, q.align);
    }
    bool room = tw_server_make_room(server, q.bytes);
    if (server->n_allocations == TW_SERVER_ALLOCATIONS) {
        return tw_server_refuse(server, TW_E_NOMEM, "allocation table full", server->n_allocations,
                                TW_SERVER_ALLOCATIONS);
    }
    TW_ASSERT(server->counters.memory_used <= server->port.memory_bytes);
    uint64_t left = server->port.memory_bytes - server->counters.memory_used;
    if (!room) {
        return tw_server_refuse(server, TW_E_NOMEM, "out of device memory", left, q.bytes);
    }
    uint64_t address =
        server->port.alloc(server->port.ctx, q.bytes, q.align, (q.flags & TW_WIRE_ALLOC_ZERO) != 0);
    if (address == 0) {
        return tw_server_refuse(server, TW_E_NOMEM, "out of device memory", 0, q.bytes);
    }
    add(server, address, q.bytes, false);
    request->out_address = address;
    return 0;
}

int tw_server_adopt(struct tw_server *server, uint64_t address, uint64_t bytes) {
    uint64_t end;
    if (bytes == 0 || !tw_add_u64(address, bytes, &end)) {
        return TW_E_RANGE;
    }
    for (uint32_t i = 0; i < server->n_allocations; i++) {
        struct tw_server_allocation *a = &server->allocations[i];
        if (a->adopted && a->address == address && a->bytes == bytes) {
            a->adopted++;
            return 0;
        }
        if (address < a->address + a->bytes && a->address < end) {
            return TW_E_RANGE;
        }
    }
    if (server->n_allocations == TW_SERVER_ALLOCATIONS) {
        return TW_E_NOMEM;
    }
    add(server, address, bytes, true);
    return 0;
}

int tw_server_free(struct tw_server *server, struct tw_server_request *request) {
    struct tw_server_allocation *a = NULL;
    for (uint32_t i = 0; i < server->n_allocations; i++) {
        if (server->allocations[i].address == request->header.address) {
            a = &server->allocations[i];
        }
    }
    if (!a) {
        return tw_server_refuse(server, TW_E_RANGE, "no allocation starts at this address",
                                request->header.address, 0);
    }
    if (a->kept == 1) {
        return tw_server_refuse(server, TW_E_RANGE,
                                "kept content without a user: the device frees it itself",
                                request->header.address, 0);
    }
    TW_ASSERT(!a->adopted || !a->kept); /* adopted memory is never in the content cache */
    if (a->adopted > 1 || a->kept > 2) {
        a->adopted -= a->adopted != 0;
        a->kept -= a->kept != 0;
        return 0;
    }
    if (a->users) {
        return tw_server_refuse(server, TW_E_DEVICE_BUSY, "a loaded program uses the memory",
                                a->users, 0);
    }
    if (a->kept) {
        a->kept--;
        return 0;
    }
    tw_server_drop(server, a);
    return 0;
}

/* Returns a pointer to a range of device memory, or refuses the request and returns NULL. */
static uint8_t *access_range(struct tw_server *server, uint64_t address, uint64_t bytes,
                             bool write) {
    struct tw_server_allocation *a = tw_server_find(server, address, bytes);
    if (!a) {
        tw_server_refuse(server, TW_E_RANGE, "address outside allocated memory", address, bytes);
        return NULL;
    }
    if (write && (a->adopted || a->frozen || a->kept)) {
        tw_server_refuse(server, TW_E_RANGE, "memory is read-only", address, bytes);
        return NULL;
    }
    return server->port.map(server->port.ctx, address);
}

int tw_server_write(struct tw_server *server, struct tw_server_request *request) {
    uint8_t *p = access_range(server, request->header.address, request->header.length, true);
    if (!p) {
        return server->answer.failure.code;
    }
    TW_ASSERT(request->header.length > 0);
    memcpy(p, request->payload, request->header.length);
    return 0;
}

int tw_server_read(struct tw_server *server, struct tw_server_request *request) {
    struct tw_wire_range q;
    memcpy(&q, request->payload, sizeof q);
    if (q.bytes > tw_server_max_payload(server)) {
        return tw_server_refuse(server, TW_E_RANGE, "too many bytes to read", q.bytes,
                                tw_server_max_payload(server));
    }
    request->out = access_range(server, request->header.address, q.bytes, false);
    if (!request->out) {
        return server->answer.failure.code;
    }
    TW_ASSERT(q.bytes <= UINT32_MAX);
    request->out_bytes = (uint32_t)q.bytes;
    return 0;
}

/* FILL, COPY and HASH check for cancellation before each part of this size. */
#define PART_BYTES ((uint64_t)1 << 20)

static uint64_t next_part(uint64_t at, uint64_t bytes) {
    TW_ASSERT(at < bytes);
    return bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
}

static int refuse_cancelled(struct tw_server *server, uint64_t at, uint64_t bytes) {
    return tw_server_refuse(server, TW_E_INTERRUPTED, "cancelled before its end", at, bytes);
}

int tw_server_fill(struct tw_server *server, struct tw_server_request *request) {
    struct tw_wire_range q;
    memcpy(&q, request->payload, sizeof q);
    uint8_t *p = access_range(server, request->header.address, q.bytes, true);
    if (!p) {
        return server->answer.failure.code;
    }
    for (uint64_t at = 0; at < q.bytes; at += PART_BYTES) {
        if (tw_cancelled(&server->cancel)) {
            return refuse_cancelled(server, at, q.bytes);
        }
        memset(p + at, (int)(q.value & 0xFFu), (size_t)next_part(at, q.bytes));
    }
    return 0;
}

int tw_server_copy(struct tw_server *server, struct tw_server_request *request) {
    struct tw_wire_copy q;
    uint64_t span;
    memcpy(&q, request->payload, sizeof q);
    if (q.rows == 0 || q.bytes == 0 || q.bytes > q.stride ||
        !tw_mul_u64(q.rows - 1, q.stride, &span) || !tw_add_u64(span, q.bytes, &span)) {
        return tw_server_refuse(server, TW_E_RANGE, "invalid rows, bytes or stride to copy",
                                q.bytes, q.rows);
    }
    const uint8_t *from = access_range(server, q.from, span, false);
    uint8_t *to = from ? access_range(server, request->header.address, span, true) : NULL;
    if (!to) {
        return server->answer.failure.code;
    }
    for (uint64_t row = 0, done = 0; row < q.rows; row++, done += q.bytes) {
        if (done / PART_BYTES != (done + q.bytes) / PART_BYTES && tw_cancelled(&server->cancel)) {
            return refuse_cancelled(server, done, q.rows * q.bytes);
        }
        memmove(to + row * q.stride, from + row * q.stride, (size_t)q.bytes);
    }
    return 0;
}

int tw_server_hash(struct tw_server *server, struct tw_server_request *request) {
    struct tw_wire_range q;
    memcpy(&q, request->payload, sizeof q);
    const uint8_t *p = access_range(server, request->header.address, q.bytes, false);
    if (!p) {
        return server->answer.failure.code;
    }
    memset(&server->answer.hash, 0, sizeof server->answer.hash);
    uint32_t crc = 0;
    for (uint64_t at = 0; at < q.bytes; at += PART_BYTES) {
        if (tw_cancelled(&server->cancel)) {
            return refuse_cancelled(server, at, q.bytes);
        }
        crc = tw_wire_crc32c(crc, p + at, (size_t)next_part(at, q.bytes));
    }
    server->answer.hash.crc32c = crc;
    request->out = &server->answer.hash;
    request->out_bytes = sizeof server->answer.hash;
    return 0;
}

void tw_server_reset(struct tw_server *server) {
    tw_server_unload_all(server);
    while (server->n_allocations) {
        tw_server_drop(server, &server->allocations[server->n_allocations - 1]);
    }
    server->last_hit = 0;
}
