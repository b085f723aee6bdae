/* SPDX-License-Identifier: Apache-2.0
 *
 * The command server: the device's side of tilewright/wire.h. One call handles one request
 * completely and leaves the answer in the server, so a port only moves bytes. Freestanding: all
 * state is in the structures below; memory and threads come from the port's hooks. Unless stated
 * otherwise, one caller at a time.
 */
#ifndef TW_FIRMWARE_CORE_SERVER_SERVER_H
#define TW_FIRMWARE_CORE_SERVER_SERVER_H

#include "firmware/core/tile_machine.h"
#include "tilewright/version.h"
#include "tilewright/wire.h"

#include <stdatomic.h>
#include <stdbool.h>

#define TW_FIRMWARE_VERSION ((uint32_t)TW_VERSION_NUMBER)

#define TW_SERVER_ALLOCATIONS 256u
#define TW_SERVER_PROGRAMS 32u
#define TW_SERVER_EVENTS 16u
#define TW_SERVER_LOG_LINES 16u
#define TW_SERVER_LOG_BYTES 96u

/* The certificate of a program (tilewright-machine(7)): words in device memory, aligned to 4. */
struct tw_server_certificate {
    const uint32_t *words;
    uint32_t n_words;  /* 0: LOAD carried none */
    uint64_t step_ops; /* number of ops per step that it states; 0: not stated */
};

/* Checks a program and its certificate at LOAD, before anything of it runs. Neither changes until
 * UNLOAD; all tables of the program lie inside device memory, their content may be anything. Asks
 * `interrupt` about once in a thousand ops, which also reports progress to the host, and ends with
 * INTERRUPTED when it is requested. Returns 0, or a TW_E_ code with the reason in
 * what[size], which for VERIFY begins with the rule's number and name. */
typedef int tw_server_verifier(void *ctx, const struct tw_program *program,
                               const struct tw_server_certificate *certificate,
                               const struct tw_interrupt *interrupt, char *what, uint32_t size);

/* What a port of the firmware provides. Hooks run on the caller's thread. */
struct tw_server_port {
    void *ctx;
    /* Allocates `bytes` (> 0) aligned to `align` (a power of two), cleared if `zero`. Returns the
     * device address, or 0 if memory ran out. */
    uint64_t (*alloc)(void *ctx, uint64_t bytes, uint32_t align, bool zero);
    /* Frees what alloc returned, or forgets a range that was adopted. */
    void (*free)(void *ctx, uint64_t address, uint64_t bytes, bool adopted);
    /* Returns a pointer to memory inside an allocation; never fails. */
    void *(*map)(void *ctx, uint64_t address);
    /* Starts up to n_threads threads for plans and returns how many there are (>= 1). Called while
     * a program is loaded. */
    uint32_t (*team)(void *ctx, uint32_t n_threads);
    /* Runs one step of a plan on n_threads threads, at most what team returned. NULL: the device
     * has no fast mode. */
    void (*run)(void *ctx, struct tw_plan *plan, uint32_t n_threads);
    /* Computes the BLAKE2b-256 of n bytes of an allocation, for KEEP. NULL: the port trusts its
     * host that the hash is right. */
    void (*hash)(void *ctx, const void *bytes, uint64_t n, uint8_t out[32]);
    /* NULL: the port trusts its host to have checked programs, and HELLO says so (no
     * TW_WIRE_CAN_VERIFY). */
    tw_server_verifier *verify;
    /* Requests the end of what the device is executing; asked by the threads that run a step, as
     * struct tw_cancel says. */
    struct tw_interrupt interrupt;
    const struct tw_kernel_table *kernels; /* NULL: the device cannot run programs */
    /* What programs may need at most; NULL: all that this firmware knows. Outlives the server. */
    const struct tw_requirements *limits;
    uint64_t memory_bytes; /* of the device; the server limits it to what a pointer reaches */
    uint32_t max_threads;
    uint32_t max_payload; /* of a message; 0: TW_WIRE_MAX_PAYLOAD */
    bool can_cancel;      /* takes CANCEL while a request is executed, and calls tw_server_cancel */
    char target[64], device[32];
    /* The target's description as JSON text, terminated, for DESCRIBE; NULL: none. Must outlive the
     * server. */
    const char *description;
};

struct tw_server_allocation {
    uint64_t address, bytes;
    uint32_t users; /* references by loaded programs; while > 0, FREE is refused */
    /* of these, as program blob, binding rows or certificate; while > 0, writes are refused */
    uint32_t frozen;
    uint32_t writers; /* of these, as tensors that a program or its host writes */
    /* how many times it was adopted (read-only memory of the port's owner); 0: not */
    uint32_t adopted;
    uint32_t kept;    /* 0: not in the content cache; else 1 + its users */
    uint8_t hash[32]; /* of kept content */
};

struct tw_server_program {
    bool used, broken; /* broken: it faulted in the middle of a step and must be loaded again */
    bool cut;          /* broken because its step was cancelled */
    uint32_t mode, n_threads;
    uint64_t blob, bind, certificate; /* addresses; certificate 0: none */
    uint64_t n_bind;
    uint64_t streams, streams_bytes; /* the server's own memory: the stream table, */
    uint64_t arena, arena_bytes;     /* and the tile machine */
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
    uint64_t progress; /* counts steps; the answer to HEARTBEAT */
    /* During a request, other threads of the port may read `watch` and set cancel.now. */
    struct tw_watch watch; /* watch.progress changes whenever the device makes progress */
    uint8_t pad[64];       /* a step's threads keep reading `cancel`, so it shares no cache line */
    struct tw_cancel cancel; /* tw_server_cancel */
    uint8_t pad_cancel[64];
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
        struct tw_requirements limits;
        struct tw_wire_hash hash;
        struct tw_wire_loaded loaded;
        struct tw_wire_done done;
        struct tw_wire_failure failure;
        struct tw_wire_event event;
        struct tw_wire_counters counters;
        char line[TW_SERVER_LOG_BYTES];
        char description[TW_WIRE_MAX_DESCRIPTION];
    } answer; /* the small answers' payload */
    struct {
        struct tw_wire_tokens head;
        uint32_t id[TW_WIRE_MAX_TOKENS];
    } tokens; /* the answer to a greedy run */
};

/* The answer to a request: a header and `length` bytes of payload, valid until the next request.
 * The payload of a READ points into device memory. */
struct tw_server_answer {
    uint8_t header[TW_WIRE_HEADER_BYTES];
    const void *payload;
    uint32_t length;
};

/* Initialises the server with a copy of *port. There is no finish: tw_server_reset frees all that
 * it holds. */
void tw_server_init(struct tw_server *server, const struct tw_server_port *port);

/* Handles one request. A request that is not a valid message is answered too (status PROTOCOL or
 * VERSION), so that the other side learns why. `payload` has payload_bytes bytes and is 8-byte
 * aligned; a length that differs from the header's is refused. */
void tw_server_handle(struct tw_server *server, const uint8_t header[TW_WIRE_HEADER_BYTES],
                      const void *payload, uint64_t payload_bytes, struct tw_server_answer *answer);

/* For ports that share memory with their host: makes [address, address + bytes) a read-only
 * allocation. Returns 0, NOMEM (table full) or RANGE (empty, wraps around, or overlaps a live
 * allocation). The same range may be adopted more than once; it takes as many FREEs to forget
 * it. */
int tw_server_adopt(struct tw_server *server, uint64_t address, uint64_t bytes);

/* Unloads and frees everything, kept content included. */
void tw_server_reset(struct tw_server *server);
/* Unloads and frees everything except kept content, after a host has sent CLOSE. */
void tw_server_release(struct tw_server *server);

/* Adds a line to the log that LOG reads, truncated to TW_SERVER_LOG_BYTES - 1 bytes; the newest
 * TW_SERVER_LOG_LINES are kept. */
void tw_server_log(struct tw_server *server, const char *text);

/* Returns the progress counter of strict ops and steps. Legal from any thread. */
static inline uint32_t tw_server_progress(const struct tw_server *server) {
    return atomic_load_explicit(&server->watch.progress, memory_order_relaxed);
}
/* Sets or clears the word that ends what the device is executing: a RUN in the middle of its step,
 * a LOAD, FILL or HASH. The request is then refused with INTERRUPTED, and a program that was in a
 * step must be loaded again. Requests that begin while the word is set end likewise, before their
 * first step. Legal from any thread; clear it while no request is handled. */
static inline void tw_server_cancel(struct tw_server *server, bool cancel) {
    atomic_store_explicit(&server->cancel.now, cancel, memory_order_relaxed);
}

/* ---- shared by the server's files ---- */

/* One request on its way through the handlers. A handler returns 0, or a TW_E_* code with
 * server->answer.failure filled in (tw_server_refuse does both). */
struct tw_server_request {
    struct tw_wire_header header;
    const uint8_t *payload;
    uint64_t out_address;
    const void *out; /* answer payload */
    uint32_t out_bytes;
};
/* Fills in server->answer.failure and returns `code`. have, need: the numbers compared. */
int tw_server_refuse(struct tw_server *server, int code, const char *what, uint64_t have,
                     uint64_t need);
/* Describes a fault of a program in *to and returns the fault's code. */
int tw_server_fault(struct tw_wire_failure *to, uint32_t program, const struct tw_fault *fault);

int tw_server_alloc(struct tw_server *server, struct tw_server_request *request);
int tw_server_free(struct tw_server *server, struct tw_server_request *request);
int tw_server_write(struct tw_server *server, struct tw_server_request *request);
int tw_server_read(struct tw_server *server, struct tw_server_request *request);
int tw_server_fill(struct tw_server *server, struct tw_server_request *request);
int tw_server_copy(struct tw_server *server, struct tw_server_request *request);
int tw_server_hash(struct tw_server *server, struct tw_server_request *request);
int tw_server_keep(struct tw_server *server, struct tw_server_request *request);
int tw_server_find_content(struct tw_server *server, struct tw_server_request *request);
/* Frees unused kept content until `bytes` more fit and the allocation table has a free entry.
 * Returns false if that is not enough. */
bool tw_server_make_room(struct tw_server *server, uint64_t bytes);
static inline uint32_t tw_server_max_payload(const struct tw_server *server) {
    return server->port.max_payload ? server->port.max_payload : TW_WIRE_MAX_PAYLOAD;
}
/* Frees an allocation and removes it from the table; another entry may take its place there. */
void tw_server_drop(struct tw_server *server, struct tw_server_allocation *a);
/* Advances the progress counter. */
static inline void tw_server_tick(struct tw_server *server) {
    atomic_fetch_add_explicit(&server->watch.progress, 1, memory_order_relaxed);
}
/* Returns the allocation that contains [address, address + bytes), or NULL. */
struct tw_server_allocation *tw_server_find(struct tw_server *server, uint64_t address,
                                            uint64_t bytes);

/* Allocates memory for the server itself, outside the allocation table: cleared, 64-byte aligned.
 * Returns its address, or 0 if memory ran out. */
uint64_t tw_server_own_alloc(struct tw_server *server, uint64_t bytes);
void tw_server_own_free(struct tw_server *server, uint64_t address, uint64_t bytes);

/* Refuses a program whose binding rows name memory that is not allocated, not aligned to
 * TW_WIRE_BIND_ALIGN or that it may not write, or the same memory for two tensors of which one is
 * written. Errors: RANGE, NOMEM. */
int tw_server_check_bindings(struct tw_server *server, const struct tw_server_program *p);
/* Adds `add` (1, or -1 modulo 2^32) to the users of the allocations that hold the program's
 * tensors, and to the writers of those that it writes. The bindings must have been checked. */
void tw_server_use_tensors(struct tw_server *server, const struct tw_server_program *p,
                           uint32_t add);

/* Stores what programs may need at most: of ops those that have a kernel or need none. */
void tw_server_limits(const struct tw_server *server, struct tw_requirements *out);

int tw_server_load(struct tw_server *server, struct tw_server_request *request);
int tw_server_unload(struct tw_server *server, struct tw_server_request *request);
int tw_server_run(struct tw_server *server, struct tw_server_request *request);
void tw_server_unload_all(struct tw_server *server);

/* Queues an event for the host; `failure` is copied. If the queue is full, the oldest
 * event is lost, and counted. */
void tw_server_post_event(struct tw_server *server, uint32_t kind,
                          const struct tw_wire_failure *failure);

#endif
