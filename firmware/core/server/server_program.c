/* SPDX-License-Identifier: Apache-2.0
 *
 * The server's LOAD and UNLOAD. LOAD creates a view of a program in device memory, has the port
 * check it, and prepares the tile machine for it twice: the first time only to learn how much
 * memory it needs. What it reads is frozen before the first look at it, so nothing can change
 * between the check and the use, and making room for the program cannot evict parts of it.
 */
#include "firmware/core/server/server.h"
#include "loader/base/assert.h"
#include "tilewright/progblob.h"
#include "tilewright/range.h"

#define ARENA_ALIGN 64u

static void *map_range(void *ctx, uint64_t address, uint64_t size) {
    struct tw_server *server = ctx;
    return tw_server_find(server, address, size) ? server->port.map(server->port.ctx, address)
                                                 : NULL;
}

uint64_t tw_server_own_alloc(struct tw_server *server, uint64_t bytes) {
    if (!tw_server_make_room(server, bytes)) {
        return 0;
    }
    uint64_t address = server->port.alloc(server->port.ctx, bytes, ARENA_ALIGN, true);
    if (address) {
        server->counters.memory_used += bytes;
        if (server->counters.memory_used > server->counters.memory_peak) {
            server->counters.memory_peak = server->counters.memory_used;
        }
    }
    return address;
}

void tw_server_own_free(struct tw_server *server, uint64_t address, uint64_t bytes) {
    TW_ASSERT(!address || bytes <= server->counters.memory_used);
    if (address) {
        server->port.free(server->port.ctx, address, bytes, false);
        server->counters.memory_used -= bytes;
    }
}

static void use_frozen(struct tw_server *server, uint64_t address, uint32_t add) {
    struct tw_server_allocation *a = tw_server_find(server, address, 1);
    TW_ASSERT(a && (add == 1 || a->frozen > 0));
    a->users += add;
    a->frozen += add;
    TW_ASSERT(a->frozen <= a->users);
}

/* Adds `add` (1, or -1 modulo 2^32) to the users of the allocations that are read while the program
 * is loaded: its blob, its binding rows and its certificate. */
static void use_program(struct tw_server *server, const struct tw_server_program *p, uint32_t add) {
    use_frozen(server, p->blob, add);
    if (p->n_bind) {
        use_frozen(server, p->bind, add);
    }
    if (p->certificate) {
        use_frozen(server, p->certificate, add);
    }
}

static void release(struct tw_server *server, struct tw_server_program *p) {
    tw_server_own_free(server, p->streams, p->streams_bytes);
    tw_server_own_free(server, p->arena, p->arena_bytes);
    memset(p, 0, sizeof *p);
}

/* Opens the blob as p->program; the stream table is in the server's own memory. */
static int open_blob(struct tw_server *server, const struct tw_wire_load *q,
                     struct tw_server_program *p) {
    const struct tw_progblob_header *h = server->port.map(server->port.ctx, q->blob);
    if (q->blob_bytes < sizeof *h || h->n_sites == 0 || h->n_sites > TW_MAX_SITES ||
        h->with_streams != 1) {
        return tw_server_refuse(server, TW_E_FORMAT, "not a program blob", q->blob_bytes,
                                sizeof *h);
    }
    uint32_t n_streams = h->n_sites * TW_ENGINE_COUNT;
    p->streams_bytes = n_streams * sizeof(struct tw_stream);
    p->streams = tw_server_own_alloc(server, p->streams_bytes);
    if (!p->streams) {
        return tw_server_refuse(server, TW_E_NOMEM, "out of memory for the program's streams", 0,
                                p->streams_bytes);
    }
    const char *what = "not a program blob";
    int code = tw_progblob_open(h, (size_t)q->blob_bytes, NULL, 0, &p->program,
                                server->port.map(server->port.ctx, p->streams), n_streams, &what);
    return code ? tw_server_refuse(server, code, what, q->blob_bytes, 0) : 0;
}

/* Appends text, or a number's digits, to a line of `room` bytes. */
static void add_text(char *line, uint32_t room, const char *text) {
    uint32_t n = 0;
    while (n < room && line[n]) {
        n++;
    }
    for (; *text && n + 1 < room; text++) {
        line[n++] = *text;
    }
    line[n < room ? n : room - 1] = 0;
}

static void add_number(char *line, uint32_t room, uint32_t number) {
    char digits[12];
    uint32_t n = sizeof digits;
    digits[--n] = 0;
    do {
        digits[--n] = (char)('0' + number % 10);
        number /= 10;
    } while (number && n > 0);
    add_text(line, room, digits + n);
}

/* Compares what the program says that it needs with what this device has: a program of a newer
 * minor version of the machine is refused by the number of its op, whatever else this firmware
 * would make of it. */
static int check_needs(struct tw_server *server, const struct tw_wire_load *q) {
    static const char *const what[] = {[TW_LACK_OP] = "needs op",
                                       [TW_LACK_DTYPE] = "needs element type",
                                       [TW_LACK_PACKING] = "needs packing",
                                       [TW_LACK_FEATURE] = "needs feature",
                                       [TW_LACK_ROWS] = "has too many rows in a step",
                                       [TW_LACK_CHIPS] = "spans too many chips",
                                       [TW_LACK_SITES] = "spans too many sites",
                                       [TW_LACK_WORDS] = "has too many semaphores",
                                       [TW_LACK_TRIPS] = "has too many trips",
                                       [TW_LACK_SRAM] = "needs too much SRAM of memory class"};
    const struct tw_progblob_header *h = server->port.map(server->port.ctx, q->blob);
    struct tw_requirements have;
    char line[sizeof server->answer.failure.what] = "the program ";
    tw_server_limits(server, &have);
    struct tw_lack l = tw_requirements_lack(&h->needs, &have);
    if (l.kind == TW_LACK_NOTHING) {
        return 0;
    }
    add_text(line, sizeof line, what[l.kind]);
    if (l.kind <= TW_LACK_FEATURE || l.kind == TW_LACK_SRAM) {
        add_text(line, sizeof line, " ");
        add_number(line, sizeof line, l.number);
    }
    return tw_server_refuse(server, TW_E_UNSUPPORTED, line, l.have, l.need);
}

/* The requirements are the program's own, so that what was compared is what will run. Code that
 * does not decode is refused by the checks that follow. */
static int check_stated_needs(struct tw_server *server, const struct tw_wire_load *q,
                              const struct tw_server_program *p) {
    const struct tw_progblob_header *h = server->port.map(server->port.ctx, q->blob);
    struct tw_requirements needs;
    bool same =
        !tw_requirements_of(&p->program, &needs) || memcmp(&needs, &h->needs, sizeof needs) == 0;
    return same
               ? 0
               : tw_server_refuse(server, TW_E_FORMAT,
                                  "the requirements that the program states are not its own", 0, 0);
}

static bool is_cancelled(void *server) {
    tw_server_tick(server);
    return tw_cancelled(&((struct tw_server *)server)->cancel);
}

/* Has the port check the program. */
static int verify(struct tw_server *server, const struct tw_wire_load *q,
                  const struct tw_server_program *p) {
    if (!server->port.verify) {
        return 0;
    }
    const struct tw_server_certificate certificate = {
        .words = p->certificate ? server->port.map(server->port.ctx, p->certificate) : NULL,
        .n_words = p->certificate ? (uint32_t)(q->certificate_bytes / 4) : 0,
        .step_ops = q->step_ops};
    const struct tw_interrupt interrupt = {is_cancelled, server};
    char what[sizeof server->answer.failure.what] = "";
    int code = server->port.verify(server->port.ctx, &p->program, &certificate, &interrupt, what,
                                   sizeof what);
    if (code) {
        what[sizeof what - 1] = 0;
        tw_server_log(server, what);
        tw_server_refuse(server, code, what, 0, 0);
    }
    return code;
}

static int prepare_machine(struct tw_server_program *p, const struct tw_machine_config *config,
                           struct tw_arena *arena, struct tw_fault *fault) {
    memset(fault, 0, sizeof *fault);
    arena->used = 0;
    return p->mode == TW_WIRE_STRICT ? tw_strict_init(config, arena, &p->strict, fault)
                                     : tw_plan_build(config, p->n_threads, arena, &p->plan, fault);
}

static int build_machine(struct tw_server *server, const struct tw_wire_load *q,
                         struct tw_server_program *p, uint32_t number) {
    struct tw_machine_config config = {.program = &p->program,
                                       .bind = server->port.map(server->port.ctx, q->bind),
                                       .n_bind = q->n_bind,
                                       .map = map_range,
                                       .ctx = server,
                                       .watch = &server->watch,
                                       .cancel = &server->cancel,
                                       .kernels = server->port.kernels};
    struct tw_arena arena = {NULL, 0, 0};
    struct tw_fault fault;
    int code = prepare_machine(p, &config, &arena, &fault);
    if (code && code != TW_E_NOMEM) {
        return tw_server_fault(&server->answer.failure, number, &fault);
    }
    p->arena_bytes = arena.used ? arena.used : 1;
    p->arena = tw_server_own_alloc(server, p->arena_bytes);
    if (!p->arena) {
        return tw_server_refuse(server, TW_E_NOMEM, "out of memory for the program's machine",
                                server->port.memory_bytes - server->counters.memory_used,
                                p->arena_bytes);
    }
    arena.base = server->port.map(server->port.ctx, p->arena);
    arena.size = (size_t)p->arena_bytes;
    code = prepare_machine(p, &config, &arena, &fault);
    if (code == TW_E_NOMEM) {
        return tw_server_refuse(server, TW_E_INTERNAL,
                                "the machine needs more memory than it computed", arena.size,
                                arena.used);
    }
    return code ? tw_server_fault(&server->answer.failure, number, &fault) : 0;
}

static bool has_writers(struct tw_server *server, uint64_t address) {
    const struct tw_server_allocation *a = tw_server_find(server, address, 1);
    return a && a->writers;
}

static int check_load(struct tw_server *server, const struct tw_wire_load *q) {
    if (q->mode > TW_WIRE_FAST || !server->port.kernels ||
        (q->mode == TW_WIRE_FAST && !server->port.run)) {
        return tw_server_refuse(server, TW_E_UNSUPPORTED,
                                "this device cannot run programs in this mode", q->mode, 0);
    }
    uint64_t bind_bytes;
    if (!tw_mul_u64(q->n_bind, 8, &bind_bytes) || q->bind % 8 != 0 ||
        !tw_server_find(server, q->bind, bind_bytes)) {
        return tw_server_refuse(server, TW_E_RANGE, "binding rows outside allocated memory",
                                q->bind, q->n_bind);
    }
    if (q->blob % 8 != 0 || !tw_server_find(server, q->blob, q->blob_bytes)) {
        return tw_server_refuse(server, TW_E_RANGE, "program outside allocated memory", q->blob,
                                q->blob_bytes);
    }
    bool certified = server->port.verify && q->certificate_bytes != 0;
    if (certified && (q->certificate % 4 != 0 || q->certificate_bytes % 4 != 0 ||
                      q->certificate_bytes / 4 > UINT32_MAX ||
                      !tw_server_find(server, q->certificate, q->certificate_bytes))) {
        return tw_server_refuse(server, TW_E_RANGE, "certificate outside allocated memory",
                                q->certificate, q->certificate_bytes);
    }
    if (has_writers(server, q->blob) || has_writers(server, q->bind) ||
        (certified && has_writers(server, q->certificate))) {
        return tw_server_refuse(server, TW_E_RANGE,
                                "another loaded program writes the memory of this one", q->blob,
                                q->bind);
    }
    return 0;
}

/* Threads synchronise about six times per layer. If each thread would process weights for less than
 * about 100 us per step, a single thread is as fast on an idle host, and much faster on a busy one,
 * where a spinning thread may wait for one that is not running. */
#define THREAD_WORK_BYTES ((uint64_t)2 << 20)

static uint32_t choose_threads(const struct tw_program *p, uint32_t max) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n_tensors && bytes < UINT64_MAX >> 16; i++) {
        bytes += p->tensors[i].role == TW_ROLE_PARAM
                     ? (p->tensors[i].bytes >> 8) * p->tensors[i].bind_count
                     : 0;
    }
    uint64_t threads = bytes / (THREAD_WORK_BYTES >> 8) * (p->rows < 256 ? p->rows : 256);
    return threads < 1 ? 1 : threads < max ? (uint32_t)threads : max;
}

static void choose_team(struct tw_server *server, const struct tw_wire_load *q,
                        struct tw_server_program *p) {
    if (p->mode == TW_WIRE_FAST) {
        uint32_t wanted =
            q->n_threads ? q->n_threads : choose_threads(&p->program, server->port.max_threads);
        wanted = wanted < p->program.n_sites ? wanted : p->program.n_sites;
        p->n_threads = server->port.team(server->port.ctx, wanted);
        TW_ASSERT(p->n_threads > 0);
    }
}

/* Checks the program, whose blob, rows and certificate are frozen, and prepares its machine. */
static int prepare(struct tw_server *server, const struct tw_wire_load *q,
                   struct tw_server_program *p, uint32_t number) {
    int code = open_blob(server, q, p);
    code = code ? code : check_needs(server, q);
    code = code ? code : verify(server, q, p);
    code = code ? code : check_stated_needs(server, q, p);
    code = code ? code : tw_server_check_bindings(server, p);
    if (code) {
        return code;
    }
    tw_server_use_tensors(server, p, 1);
    choose_team(server, q, p);
    code = build_machine(server, q, p, number);
    if (code) {
        tw_server_use_tensors(server, p, UINT32_MAX);
    }
    return code;
}

static int load(struct tw_server *server, const struct tw_wire_load *q, struct tw_server_program *p,
                uint32_t number) {
    TW_ASSERT(!p->used && !p->arena && !p->streams);
    memset(p, 0, sizeof *p);
    p->mode = q->mode;
    p->blob = q->blob;
    p->bind = q->bind;
    p->n_bind = q->n_bind;
    p->certificate = server->port.verify && q->certificate_bytes ? q->certificate : 0;
    use_program(server, p, 1);
    int code = prepare(server, q, p, number);
    if (code) {
        use_program(server, p, UINT32_MAX);
        release(server, p);
        return code;
    }
    TW_ASSERT(p->streams && p->arena && !p->strict != !p->plan);
    p->used = true;
    server->counters.programs++;
    return 0;
}

int tw_server_load(struct tw_server *server, struct tw_server_request *request) {
    struct tw_wire_load q = {0};
    uint32_t bytes = request->header.length, n = 0;
    if (bytes != sizeof q && bytes != TW_WIRE_LOAD_PLAIN_BYTES) {
        return tw_server_refuse(server, TW_E_PROTOCOL, "payload length not valid for this request",
                                bytes, sizeof q);
    }
    memcpy(&q, request->payload, bytes);
    while (n < TW_SERVER_PROGRAMS && server->programs[n].used) {
        n++;
    }
    if (n == TW_SERVER_PROGRAMS) {
        return tw_server_refuse(server, TW_E_NOMEM, "program table full", n, TW_SERVER_PROGRAMS);
    }
    int code = check_load(server, &q);
    code = code ? code : load(server, &q, &server->programs[n], n);
    if (code) {
        return code;
    }
    const struct tw_server_program *p = &server->programs[n];
    struct tw_wire_loaded *a = &server->answer.loaded;
    memset(a, 0, sizeof *a);
    a->program = n;
    a->n_threads = p->mode == TW_WIRE_FAST ? p->n_threads : 1;
    a->arena_bytes = p->arena_bytes;
    request->out = a;
    request->out_bytes = sizeof *a;
    return 0;
}

static void unload(struct tw_server *server, struct tw_server_program *p) {
    TW_ASSERT(p->used && server->counters.programs > 0);
    tw_server_use_tensors(server, p, UINT32_MAX);
    use_program(server, p, UINT32_MAX);
    release(server, p);
    server->counters.programs--;
}

int tw_server_unload(struct tw_server *server, struct tw_server_request *request) {
    uint64_t n = request->header.address;
    if (n >= TW_SERVER_PROGRAMS || !server->programs[n].used) {
        return tw_server_refuse(server, TW_E_RANGE, "no such program", n, 0);
    }
    unload(server, &server->programs[n]);
    return 0;
}

void tw_server_unload_all(struct tw_server *server) {
    for (uint32_t i = 0; i < TW_SERVER_PROGRAMS; i++) {
        if (server->programs[i].used) {
            unload(server, &server->programs[i]);
        }
    }
}
