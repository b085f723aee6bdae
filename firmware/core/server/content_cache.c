/* SPDX-License-Identifier: Apache-2.0
 *
 * The content cache: allocations that are kept under the hash of their content, so that the next
 * host finds the weights that the last one uploaded. Unused ones are freed when memory or the table
 * runs short.
 */
#include "firmware/core/server/server.h"

#include "loader/base/assert.h"

static struct tw_wire_content content_of(const struct tw_server_request *request) {
    struct tw_wire_content c;
    memcpy(&c, request->payload, sizeof c);
    return c;
}

/* Checks the hash that a host gives: later hosts find the content by it, and trust it. */
static bool hash_is_right(const struct tw_server *server, const struct tw_server_allocation *a,
                          const uint8_t hash[32]) {
    uint8_t own[32];
    if (!server->port.hash) {
        return true;
    }
    server->port.hash(server->port.ctx, server->port.map(server->port.ctx, a->address), a->bytes,
                      own);
    return memcmp(own, hash, sizeof own) == 0;
}

int tw_server_keep(struct tw_server *server, struct tw_server_request *request) {
    struct tw_wire_content c = content_of(request);
    struct tw_server_allocation *a = tw_server_find(server, request->header.address, c.bytes);
    if (!a || a->address != request->header.address || a->bytes != c.bytes || a->adopted ||
        a->kept || a->writers) {
        return tw_server_refuse(server, TW_E_RANGE, "no allocation of that size to keep",
                                request->header.address, c.bytes);
    }
    if (!hash_is_right(server, a, c.hash)) {
        return tw_server_refuse(server, TW_E_HASH, "the content to keep does not match its hash",
                                a->address, a->bytes);
    }
    TW_ASSERT(a->bytes > 0 && !a->kept);
    a->kept = 2; /* 1 + its users: this host */
    memcpy(a->hash, c.hash, sizeof a->hash);
    return 0;
}

int tw_server_find_content(struct tw_server *server, struct tw_server_request *request) {
    struct tw_wire_content c = content_of(request);
    for (uint32_t i = 0; i < server->n_allocations; i++) {
        struct tw_server_allocation *a = &server->allocations[i];
        if (a->kept && a->kept < UINT32_MAX && a->bytes == c.bytes &&
            memcmp(a->hash, c.hash, sizeof a->hash) == 0) {
            a->kept++;
            request->out_address = a->address;
            return 0;
        }
    }
    return 0;
}

static bool has_room(const struct tw_server *server, uint64_t bytes) {
    TW_ASSERT(server->counters.memory_used <= server->port.memory_bytes);
    return server->n_allocations < TW_SERVER_ALLOCATIONS &&
           bytes <= server->port.memory_bytes - server->counters.memory_used;
}

bool tw_server_make_room(struct tw_server *server, uint64_t bytes) {
    for (uint32_t i = 0; i < server->n_allocations && !has_room(server, bytes);) {
        struct tw_server_allocation *a = &server->allocations[i];
        if (a->kept == 1 && a->users == 0) {
            tw_server_drop(server, a); /* its entry now holds another allocation */
        } else {
            i++;
        }
    }
    return bytes <= server->port.memory_bytes - server->counters.memory_used;
}

void tw_server_release(struct tw_server *server) {
    tw_server_unload_all(server);
    for (uint32_t i = 0; i < server->n_allocations;) {
        struct tw_server_allocation *a = &server->allocations[i];
        TW_ASSERT(a->users == 0 && a->frozen == 0); /* all programs are unloaded */
        if (a->kept) {
            a->kept = 1;
            i++;
        } else {
            tw_server_drop(server, a);
        }
    }
    server->last_hit = 0;
}
