/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator port: anonymous mappings as device memory, addresses that are pointers, and a team
 * of host threads for fast steps. The hooks below are all that the command server needs of it.
 */
#include "firmware/emulator/emulator.h"

#include "firmware/emulator/workers.h"
#include "loader/base/hash.h"
#include "tilewright/range.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u
#define HUGE_PAGE (2u << 20)
#define HASH_PIECE (1u << 20)

struct tw_emu {
    struct tw_server server;
    struct tw_workers *workers;
    pthread_mutex_t watch; /* of `running`: a plan does not end while somebody reads its progress */
    const struct tw_plan *running;
    char description[TW_WIRE_MAX_DESCRIPTION];
};

uint32_t tw_emu_processors(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return (uint32_t)CPU_COUNT(&set);
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

/* Computes the bytes to map for an allocation: whole pages. */
static bool mapped_bytes(uint64_t bytes, uint64_t *out) {
    return tw_align_u64(bytes, PAGE, out) && *out <= SIZE_MAX;
}

/* Fresh mappings are zero, so `zero` costs nothing and pages appear when first touched. Memory that
 * must be zeroed is state: a token touches a little of every head's cache, and with huge pages
 * the first one would pay for zeroing all of it. */
static uint64_t emu_alloc(void *ctx, uint64_t bytes, uint32_t align, bool zero) {
    (void)ctx;
    uint64_t size, whole;
    uint64_t slack = align > PAGE ? align : bytes >= HUGE_PAGE ? HUGE_PAGE : 0;
    if (!mapped_bytes(bytes, &size) || !tw_add_u64(size, slack, &whole) || whole > SIZE_MAX) {
        return 0;
    }
    uint8_t *p = mmap(NULL, whole, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        return 0;
    }
    uint64_t head = slack ? (slack - ((uintptr_t)p & (slack - 1))) & (slack - 1) : 0;
    if (head) {
        munmap(p, head);
    }
    if (slack > head) {
        munmap(p + head + size, slack - head);
    }
    if (bytes >= HUGE_PAGE) {
        /* advice only; either kind of page works */
        madvise(p + head, size, zero ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    }
    return (uintptr_t)(p + head);
}

static void emu_free(void *ctx, uint64_t address, uint64_t bytes, bool adopted) {
    (void)ctx;
    uint64_t size;
    if (!adopted && mapped_bytes(bytes, &size)) {
        munmap((void *)(uintptr_t)address, size);
    }
}

static void *emu_map(void *ctx, uint64_t address) {
    (void)ctx;
    return (void *)(uintptr_t)address;
}

static void set_running(struct tw_emu *emu, const struct tw_plan *plan) {
    pthread_mutex_lock(&emu->watch);
    emu->running = plan;
    pthread_mutex_unlock(&emu->watch);
}

static void emu_run(void *ctx, struct tw_plan *plan, uint32_t n_threads) {
    struct tw_emu *emu = ctx;
    /* A plan has its member count baked in, and all must run at once: the server requested
     * them from emu_team at LOAD. */
    set_running(emu, plan);
    tw_workers_run(emu->workers, plan, n_threads);
    set_running(emu, NULL);
}

static uint32_t emu_team(void *ctx, uint32_t n_threads) {
    struct tw_emu *emu = ctx;
    return tw_workers_prepare(emu->workers, n_threads);
}

/* Makes progress while it takes long, as the host's timeout asks for. */
static void emu_hash(void *ctx, const void *bytes, uint64_t n, uint8_t out[32]) {
    struct tw_emu *emu = ctx;
    struct tw_hash h;
    tw_hash_init(&h);
    for (uint64_t at = 0; at < n; at += HASH_PIECE) {
        uint64_t left = n - at;
        tw_hash_update(&h, (const uint8_t *)bytes + at, left < HASH_PIECE ? left : HASH_PIECE);
        atomic_fetch_add_explicit(&emu->server.watch.progress, 1, memory_order_relaxed);
    }
    tw_hash_final(&h, out);
}

static uint64_t host_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_C(1) << 32;
}

static void describe(struct tw_server_port *port, const struct tw_emu_options *options) {
    port->alloc = emu_alloc;
    port->free = emu_free;
    port->map = emu_map;
    port->run = emu_run;
    port->team = emu_team;
    port->hash = emu_hash;
    port->verify = options->verify;
    port->interrupt = options->interrupt;
    port->kernels = options->kernels ? options->kernels : tw_kernel_table_best();
    port->limits = options->limits;
    port->memory_bytes = options->memory_bytes ? options->memory_bytes : host_memory();
    port->max_threads = options->n_threads ? options->n_threads : tw_emu_processors();
    port->max_payload = options->max_payload;
    port->can_cancel = options->can_cancel;
    port->max_threads =
        port->max_threads < TW_EMU_MAX_THREADS ? port->max_threads : TW_EMU_MAX_THREADS;
    const char *target = options->target ? options->target : "";
    memcpy(port->target, target, strnlen(target, sizeof port->target - 1));
    memcpy(port->device, "emulator", sizeof "emulator");
}

int tw_emu_create(const struct tw_emu_options *options, struct tw_emu **out, tw_error *err) {
    struct tw_emu *emu = calloc(1, sizeof *emu);
    if (!emu) {
        return tw_fail(err, TW_E_NOMEM, "emulator: out of memory for the device (%zu bytes)",
                       sizeof *emu);
    }
    struct tw_server_port port = {.ctx = emu};
    describe(&port, options);
    if (options->description) {
        strncpy(emu->description, options->description, sizeof emu->description - 1);
        port.description = emu->description;
    }
    emu->workers = tw_workers_create(port.max_threads);
    if (!emu->workers) {
        free(emu);
        return tw_fail(err, TW_E_NOMEM, "emulator: out of memory for %u threads", port.max_threads);
    }
    pthread_mutex_init(&emu->watch, NULL);
    tw_server_init(&emu->server, &port);
    *out = emu;
    return 0;
}

void tw_emu_destroy(struct tw_emu *emu) {
    if (emu) {
        tw_workers_destroy(emu->workers);
        tw_server_reset(&emu->server);
        pthread_mutex_destroy(&emu->watch);
        free(emu);
    }
}

void tw_emu_handle(struct tw_emu *emu, const uint8_t *header, const void *payload,
                   uint64_t payload_bytes, struct tw_server_answer *answer) {
    tw_server_handle(&emu->server, header, payload, payload_bytes, answer);
}

int tw_emu_adopt(struct tw_emu *emu, const void *bytes, uint64_t size, uint64_t *address) {
    *address = (uintptr_t)bytes;
    return tw_server_adopt(&emu->server, *address, size);
}

void *tw_emu_map(struct tw_emu *emu, uint64_t address, uint64_t bytes) {
    return tw_server_find(&emu->server, address, bytes) ? (void *)(uintptr_t)address : NULL;
}

struct tw_server *tw_emu_server(struct tw_emu *emu) {
    return &emu->server;
}

/* Returns where a strict step is. The words are read one by one, so they may belong to two
 * different ops; the site is TW_NONE between steps. */
static struct tw_place strict_place(const struct tw_watch *w) {
    return (struct tw_place){atomic_load_explicit(&w->site, memory_order_relaxed),
                             atomic_load_explicit(&w->engine, memory_order_relaxed),
                             atomic_load_explicit(&w->op_index, memory_order_relaxed),
                             atomic_load_explicit(&w->opcode, memory_order_relaxed)};
}

void tw_emu_progress(struct tw_emu *emu, struct tw_link_progress *out) {
    out->at = strict_place(&emu->server.watch);
    out->waiting = (struct tw_place){.site = TW_NONE};
    pthread_mutex_lock(&emu->watch);
    out->counter = tw_server_progress(&emu->server);
    if (emu->running) {
        out->counter += tw_plan_progress(emu->running);
        tw_plan_where(emu->running, &out->at, &out->waiting);
    }
    pthread_mutex_unlock(&emu->watch);
}
