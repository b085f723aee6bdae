/* SPDX-License-Identifier: Apache-2.0
 *
 * The command server: the device's side of tilewright/wire.h. One call handles one request
 * completely and leaves the answer in the server, so a port only moves bytes. Freestanding: all
 * state is in the structures below, memory and threads come through the port's hooks. One caller at
 * a time.
 */
#ifndef TW_FIRMWARE_CORE_SERVER_SERVER_H
#define TW_FIRMWARE_CORE_SERVER_SERVER_H

#include "firmware/core/tile_machine.h"
#include "tilewright/wire.h"

#include <stdatomic.h>
#include <stdbool.h>

#define TW_FIRMWARE_VERSION 0x000100u /* major << 16 | minor << 8 | patch */

#define TW_SERVER_ALLOCATIONS 256u
#define TW_SERVER_PROGRAMS 32u
#define TW_SERVER_EVENTS 16u
#define TW_SERVER_LOG_LINES 16u
#define TW_SERVER_LOG_BYTES 96u

/* What a home of the firmware provides. Hooks run on the caller's thread. */
struct tw_server_port {
    void *ctx;
    /* `bytes` (> 0) of memory aligned to `align` (a power of two): its device address, or 0. zero:
     * filled with zeros.
     */
    uint64_t (*alloc)(void *ctx, uint64_t bytes, uint32_t align, bool zero);
    /* Takes back what alloc gave, or forgets a range that the port adopted. */
    void (*free)(void *ctx, uint64_t address, uint64_t bytes, bool adopted);
    /* Pointer to memory inside an allocation; never fails. */
    void *(*map)(void *ctx, uint64_t address);
    /* Readies up to n_threads threads for plans and returns how many there are (>= 1); called while
     * a program is loaded. */
    uint32_t (*team)(void *ctx, uint32_t n_threads);
    /* Runs one step of a plan on n_threads threads, at most what team gave. NULL: the device cannot
     * run in fast mode.
     */
    void (*run)(void *ctx, struct tw_plan *plan, uint32_t n_threads);
    const struct tw_kernel_table *kernels; /* NULL: the device cannot run programs */
    uint64_t memory_bytes;                 /* in all; what a pointer does not reach is not used */
    uint32_t max_threads;
    uint32_t max_payload; /* of a message; 0: TW_WIRE_MAX_PAYLOAD */
    char target[64], device[32];
};

struct tw_server_allocation {
    uint64_t address, bytes;
    uint32_t users;   /* references of loaded programs, also earlier ones: FREE is refused */
    uint32_t frozen;  /* of these, program blobs and binding rows: writes are refused */
    uint32_t adopted; /* memory of the port's owner, read-only: how many times it was adopted */
    uint32_t kept;    /* 0: no content by name; else 1 + its users */
    uint8_t hash[32]; /* of what is kept */
};

struct tw_server_program {
    bool used, broken; /* broken: it faulted half way; it must be loaded again */
    uint32_t mode, n_threads;
    uint64_t blob, bind; /* addresses */
    uint64_t n_bind;
    uint64_t streams, streams_bytes; /* memory of the server: the stream table */
    uint64_t arena, arena_bytes;     /* and the machine */
    uint64_t steps;
    struct tw_program program;
    struct tw_strict *strict;
    struct tw_plan *plan;
};

struct tw_server {
    struct tw_server_port port;
    uint32_t n_allocations, last_hit;
    struct tw_server_allocation allocations[TW_SERVER_ALLOCATIONS]; /* in no order */
    struct tw_server_program programs[TW_SERVER_PROGRAMS];
    struct tw_wire_counters counters;
    uint64_t progress; /* counts steps; the heartbeat's word */
    /* What other threads of the port may look at during a request, and the word that they may
     * set. */
    struct tw_watch watch; /* its beat changes whenever the device gets on */
    _Atomic bool cancel;   /* a run ends before its next step: nobody waits for it */
    struct {
        uint32_t first, count, lost;
        uint64_t number;
        struct tw_wire_event ring[TW_SERVER_EVENTS];
    } events;
    struct {
        uint32_t first, count;
        char ring[TW_SERVER_LOG_LINES][TW_SERVER_LOG_BYTES];
    } log;
    union {
        struct tw_wire_identity identity;
        struct tw_wire_hash hash;
        struct tw_wire_loaded loaded;
        struct tw_wire_done done;
        struct tw_wire_failure failure;
        struct tw_wire_event event;
        struct tw_wire_counters counters;
        char line[TW_SERVER_LOG_BYTES];
    } answer; /* the small answers' payload */
    struct {
        struct tw_wire_tokens head;
        uint32_t id[TW_WIRE_MAX_TOKENS];
    } tokens; /* a greedy run's */
};

/* What the port gets back: a header to send and `length` bytes of payload, valid until the next
 * request. A large payload (READ) points into device memory. */
struct tw_server_answer {
    uint8_t header[TW_WIRE_HEADER_BYTES];
    const void *payload;
    uint32_t length;
};

/* Copies the port's description. The server holds nothing afterwards that needs releasing but what
 * RESET releases. */
void tw_server_init(struct tw_server *server, const struct tw_server_port *port);

/* Handles one request. A request that is not a valid message is answered too (status PROTOCOL or
 * VERSION), so that the other side learns why. `payload` has payload_bytes bytes, 8-byte aligned; a
 * length that differs from the header's is refused. */
void tw_server_handle(struct tw_server *server, const uint8_t header[TW_WIRE_HEADER_BYTES],
                      const void *payload, uint64_t payload_bytes, struct tw_server_answer *answer);

/* For ports that share memory with their host: makes [address, address + bytes) a read-only
 * allocation. 0, NOMEM (table full) or RANGE (empty, wraps, or overlaps a live allocation).
 * Adopting the same range again counts; as many FREEs forget it. */
int tw_server_adopt(struct tw_server *server, uint64_t address, uint64_t bytes);

/* Unloads and frees everything. */
void tw_server_reset(struct tw_server *server);
/* The host has closed in order: all but what is kept. */
void tw_server_release(struct tw_server *server);

/* A line for LOG; of more than TW_SERVER_LOG_LINES the oldest go. As a request: one caller at a
 * time. */
void tw_server_log(struct tw_server *server, const char *text);

/* Legal from any thread, at any time. */
static inline uint32_t tw_server_beat(const struct tw_server *server) {
    return atomic_load_explicit(&server->watch.beat, memory_order_relaxed);
}
static inline void tw_server_cancel(struct tw_server *server, bool cancel) {
    atomic_store_explicit(&server->cancel, cancel, memory_order_relaxed);
}

/* ---- between the server's files ---- */

/* One request on its way through the handlers. A handler returns 0 or a TW_E_* code, having filled
 * server->answer.failure (tw_server_refuse does both). */
struct tw_server_request {
    struct tw_wire_header header;
    const uint8_t *payload;
    uint64_t out_address;
    const void *out; /* answer payload */
    uint32_t out_bytes;
};
int tw_server_refuse(struct tw_server *server, int code, const char *what, uint64_t have,
                     uint64_t need);
/* Puts a fault of a program into a failure; returns its code. */
int tw_server_fault(struct tw_wire_failure *to, uint32_t program, const struct tw_fault *fault);

int tw_server_alloc(struct tw_server *server, struct tw_server_request *request);
int tw_server_free(struct tw_server *server, struct tw_server_request *request);
int tw_server_write(struct tw_server *server, struct tw_server_request *request);
int tw_server_read(struct tw_server *server, struct tw_server_request *request);
int tw_server_fill(struct tw_server *server, struct tw_server_request *request);
int tw_server_hash(struct tw_server *server, struct tw_server_request *request);
int tw_server_keep(struct tw_server *server, struct tw_server_request *request);
int tw_server_find_content(struct tw_server *server, struct tw_server_request *request);
/* Frees kept memory that nobody uses until `bytes` more fit and the table has room; false if they
 * do not. */
bool tw_server_make_room(struct tw_server *server, uint64_t bytes);
static inline uint32_t tw_server_max_payload(const struct tw_server *server) {
    return server->port.max_payload ? server->port.max_payload : TW_WIRE_MAX_PAYLOAD;
}
void tw_server_drop(struct tw_server *server, struct tw_server_allocation *a);
static inline void tw_server_tick(struct tw_server *server) {
    atomic_fetch_add_explicit(&server->watch.beat, 1, memory_order_relaxed);
}
/* The allocation that holds [address, address + bytes), or NULL. */
struct tw_server_allocation *tw_server_find(struct tw_server *server, uint64_t address,
                                            uint64_t bytes);

int tw_server_load(struct tw_server *server, struct tw_server_request *request);
int tw_server_unload(struct tw_server *server, struct tw_server_request *request);
/* How many references of loaded programs name an address in [address, address + bytes). */
uint32_t tw_server_references(const struct tw_server *server, uint64_t address, uint64_t bytes);
int tw_server_run(struct tw_server *server, struct tw_server_request *request);
void tw_server_unload_all(struct tw_server *server);

void tw_server_post_event(struct tw_server *server, uint32_t kind,
                          const struct tw_wire_failure *failure);

#endif
