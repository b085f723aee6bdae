/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's side of a mailbox. take() does everything that the host can request: it reads the
 * words `start` and `reset`, then the counters. A status thread renews the progress registers, also
 * while a request executes, and notices a host whose memory has gone.
 */
#include "firmware/pcie/pcie_device.h"

#include "loader/base/clock.h"
#include "loader/base/event.h"
#include "tilewright/range.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDLE_MS 250u    /* period of the status thread while no host has started */
#define PROBE_TURNS 12u /* periods of TW_PCIE_STATUS_MS between two probes of the host's memory */
#define ROOM_MS 2u      /* polling period for a host that makes room without ringing */
#define MAX_SLOT_BYTES (1u << 20)

/* The host's words at a start, read once. */
struct mailbox {
    uint32_t kind, n_slots, slot_bytes;
    uint64_t at;
};

struct device {
    struct tw_pipe pipe;
    struct tw_pcie_device_options o;
    struct tw_pcie_registers *regs;
    pthread_t status;

    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t room;  /* the host may have made room */
    pthread_cond_t tick;  /* wakes the status thread */
    bool quit, hung_up;
    bool attached;  /* the mailbox may be accessed */
    bool host_left; /* take() must report that the host has gone */
    bool resetting; /* was_reset follows once the device has no host */
    struct mailbox box;
    uint32_t started, was_reset, alive; /* as in the registers, which the host could overwrite */
    uint32_t to_host, done;
    uint8_t in[TW_PACKET_BYTES];
};

/* ---- the host's memory ---- */

static void interrupt(const struct device *d, uint32_t why) {
    tw_pcie_fence();
    if (tw_pcie_load(&d->regs->armed) & why) {
        d->o.access.interrupt(d->o.access.ctx);
    }
}

static void interrupt_any(const struct device *d) {
    interrupt(d, TW_PCIE_ARM_PACKET | TW_PCIE_ARM_ROOM);
}

static void release_mailbox(struct device *d) {
    d->host_left = d->host_left || d->attached;
    d->attached = false;
    pthread_cond_broadcast(&d->room);
}

/* Releases the mailbox and reports `code` in the fault register; `at`: the offset of the error. */
static void fail_mailbox(struct device *d, int code, uint64_t at) {
    release_mailbox(d);
    __atomic_store_n(&d->regs->fault_address, d->box.at + at, __ATOMIC_RELAXED);
    __atomic_store_n(&d->regs->fault, code, __ATOMIC_RELEASE);
    interrupt_any(d);
    tw_event_signal(d->o.access.doorbell); /* take() may be on another thread */
}

/* Returns a pointer to offset `at` of the mailbox, and how many contiguous bytes follow. Returns
 * NULL, with the mailbox released, if the host's memory cannot be accessed. */
static uint8_t *reach(struct device *d, uint64_t at, uint64_t *n, bool write) {
    uint8_t *p;
    if (d->box.kind == TW_PCIE_IN_WINDOW) {
        *n = tw_pcie_mailbox_bytes(d->box.n_slots, d->box.slot_bytes) - at;
        return d->o.access.bar2 + TW_PCIE_REGISTER_BYTES + d->box.at + at;
    }
    p = d->o.access.reach(d->o.access.ctx, d->box.at + at, n, write);
    if (!p || *n == 0) {
        fail_mailbox(d, TW_E_RANGE, at);
        return NULL;
    }
    return p;
}

static bool copy(struct device *d, uint64_t at, uint8_t *bytes, uint64_t size, bool write) {
    while (size) {
        uint64_t n;
        uint8_t *p = reach(d, at, &n, write);
        if (!p) {
            return false;
        }
        n = n < size ? n : size;
        if (write) {
            memcpy(p, bytes, n);
        } else {
            memcpy(bytes, p, n);
        }
        at += n;
        bytes += n;
        size -= n;
    }
    return true;
}

/* Words are aligned, so they never cross a page boundary. */
static bool put(struct device *d, size_t at, uint32_t value) {
    uint64_t n;
    uint8_t *p = reach(d, at, &n, true);
    if (p) {
        tw_pcie_store((uint32_t *)(void *)p, value);
    }
    return p != NULL;
}

static bool get(struct device *d, size_t at, uint32_t *value) {
    uint64_t n;
    const uint8_t *p = reach(d, at, &n, false);
    if (p) {
        *value = tw_pcie_load((const uint32_t *)(const void *)p);
    }
    return p != NULL;
}

static uint64_t slot_at(const struct device *d, uint32_t number, bool to_host) {
    uint64_t slot = number % d->box.n_slots + (to_host ? d->box.n_slots : 0);
    return TW_PCIE_MAILBOX_HEAD + slot * d->box.slot_bytes;
}

/* ---- start and reset ---- */

static bool is_valid(const struct device *d, const struct mailbox *m) {
    if (!tw_is_pow2_u64(m->n_slots) || m->n_slots > TW_PCIE_MAX_SLOTS ||
        m->slot_bytes < TW_LINK_HEADER_BYTES + TW_PCIE_CHUNK ||
        m->slot_bytes % TW_PCIE_MAILBOX_HEAD || m->slot_bytes > MAX_SLOT_BYTES ||
        m->at % TW_PCIE_MAILBOX_HEAD) {
        return false;
    }
    uint64_t bytes = tw_pcie_mailbox_bytes(m->n_slots, m->slot_bytes);
    if (m->kind == TW_PCIE_IN_WINDOW) {
        return tw_range_ok(m->at, bytes, d->o.access.bar2_bytes - TW_PCIE_REGISTER_BYTES);
    }
    uint64_t last = d->o.dma_bits < 64 ? (UINT64_C(1) << d->o.dma_bits) - 1 : UINT64_MAX;
    return m->kind == TW_PCIE_IN_HOST && tw_range_ok(m->at, bytes - 1, last);
}

static void attach(struct device *d, const struct mailbox *m) {
    d->box = *m;
    if (!is_valid(d, m)) {
        fail_mailbox(d, TW_E_PROTOCOL, 0);
        return;
    }
    int code = d->o.access.renew ? d->o.access.renew(d->o.access.ctx) : 0;
    if (code) {
        fail_mailbox(d, code, 0);
        return;
    }
    d->to_host = tw_pcie_load(&d->regs->taken);
    d->done = tw_pcie_load(&d->regs->to_device);
    d->attached = put(d, offsetof(struct tw_pcie_mailbox, to_host), d->to_host) &&
                  put(d, offsetof(struct tw_pcie_mailbox, done), d->done) &&
                  put(d, offsetof(struct tw_pcie_mailbox, wants_room), 0);
    pthread_cond_signal(&d->tick);
}

static void start(struct device *d, uint32_t number) {
    const struct tw_pcie_registers *r = d->regs;
    struct mailbox m = {tw_pcie_load(&r->mailbox_kind), tw_pcie_load(&r->n_slots),
                        tw_pcie_load(&r->slot_bytes),
                        __atomic_load_n(&r->mailbox, __ATOMIC_RELAXED)};
    __atomic_store_n(&d->regs->fault, 0, __ATOMIC_RELAXED);
    if (m.kind == TW_PCIE_NONE) {
        release_mailbox(d);
    } else {
        attach(d, &m);
    }
    d->started = number;
    tw_pcie_store(&d->regs->started, number);
    interrupt_any(d);
}

/* Disconnects the host. Drops the packets that it has sent, because an OPEN among them would make
 * it the host again. The mailbox stays: the next OPEN may come through it. */
static void reset(struct device *d) {
    d->host_left = d->resetting = true;
    if (d->attached) {
        d->done = tw_pcie_load(&d->regs->to_device);
        put(d, offsetof(struct tw_pcie_mailbox, done), d->done);
    }
    pthread_cond_signal(&d->tick);
}

/* Handles what the host requests through registers. */
static void poll_registers(struct device *d) {
    uint32_t number = tw_pcie_load(&d->regs->start);
    if (number != d->started) {
        start(d, number);
    }
    if (tw_pcie_load(&d->regs->reset) != d->was_reset && !d->resetting) {
        reset(d);
    }
}

/* ---- packets ---- */

/* Copies the next packet to d->in. Returns false if there is none, or the mailbox was released. */
static bool get_packet(struct device *d, size_t *size) {
    uint32_t ready = tw_pcie_load(&d->regs->to_device) - d->done, n;
    if (!d->attached || ready == 0) {
        return false;
    }
    size_t length_at =
        offsetof(struct tw_pcie_mailbox, to_device_bytes) + d->done % d->box.n_slots * 4;
    if (ready > d->box.n_slots) {
        fail_mailbox(d, TW_E_PROTOCOL, 0);
        return false;
    }
    if (!get(d, length_at, &n)) {
        return false;
    }
    if (n == 0 || n > d->box.slot_bytes) {
        fail_mailbox(d, TW_E_PROTOCOL, length_at);
        return false;
    }
    n = n < TW_PACKET_BYTES ? n : TW_PACKET_BYTES;
    if (!copy(d, slot_at(d, d->done, false), d->in, n, false) ||
        !put(d, offsetof(struct tw_pcie_mailbox, done), d->done + 1)) {
        return false;
    }
    d->done++;
    *size = n;
    interrupt(d, TW_PCIE_ARM_ROOM);
    return true;
}

static enum tw_packet_result take(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    struct device *d = (struct device *)p;
    enum tw_packet_result r = TW_PACKET_AGAIN;
    *bytes = d->in;
    *n = 0;
    pthread_mutex_lock(&d->lock);
    for (bool rung = true; rung && r == TW_PACKET_AGAIN && !d->hung_up;) {
        poll_registers(d);
        pthread_cond_broadcast(&d->room);
        if (d->host_left) {
            d->host_left = false;
            r = TW_PACKET_OK; /* of 0 bytes: the host has gone */
        } else if (get_packet(d, n)) {
            r = TW_PACKET_OK;
        } else {
            /* a packet that comes after this rings again */
            rung = d->host_left || tw_event_clear(d->o.access.doorbell);
        }
    }
    r = d->hung_up ? TW_PACKET_GONE : r;
    pthread_mutex_unlock(&d->lock);
    return r;
}

/* Returns true if a slot to the host is free. With the lock. */
static bool has_room(struct device *d) {
    uint32_t used = d->to_host - tw_pcie_load(&d->regs->taken);
    if (d->attached && used > d->box.n_slots) {
        fail_mailbox(d, TW_E_PROTOCOL, 0);
    }
    return d->attached && used < d->box.n_slots;
}

static bool put_packet(struct device *d, const uint8_t *bytes, size_t n) {
    uint32_t slot = d->to_host % d->box.n_slots;
    /* copy() does not change `bytes` when it writes to the host. */
    if (!copy(d, slot_at(d, d->to_host, true), (uint8_t *)(uintptr_t)bytes, n, true) ||
        !put(d, offsetof(struct tw_pcie_mailbox, to_host_bytes) + slot * 4, (uint32_t)n) ||
        !put(d, offsetof(struct tw_pcie_mailbox, to_host), d->to_host + 1)) {
        return false;
    }
    d->to_host++;
    interrupt(d, TW_PCIE_ARM_PACKET);
    return true;
}

static enum tw_packet_result send_packet(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    struct device *d = (struct device *)p;
    pthread_mutex_lock(&d->lock);
    enum tw_packet_result r = d->hung_up ? TW_PACKET_GONE : TW_PACKET_AGAIN;
    if (r == TW_PACKET_AGAIN && has_room(d) && n <= d->box.slot_bytes && put_packet(d, bytes, n)) {
        r = TW_PACKET_OK;
    }
    pthread_mutex_unlock(&d->lock);
    return r;
}

/* ---- waiting ---- */

/* Waits for a free slot. The host rings when it sees that we wait, but it may have looked just
 * before. */
static bool wait_for_room(struct device *d, int ms) {
    bool there = d->hung_up || has_room(d);
    for (int left = ms; !there && left != 0;) {
        uint32_t part = left > 0 && left < (int)ROOM_MS ? (uint32_t)left : ROOM_MS;
        struct timespec end = tw_clock_after_ms(part);
        if (d->attached) {
            put(d, offsetof(struct tw_pcie_mailbox, wants_room), 1);
        }
        pthread_cond_timedwait(&d->room, &d->lock, &end);
        left -= left > 0 ? (int)part : 0;
        /* returns early without a mailbox */
        there = d->hung_up || has_room(d) || !d->attached;
    }
    if (d->attached) {
        put(d, offsetof(struct tw_pcie_mailbox, wants_room), 0);
    }
    return there;
}

static bool wait_pipe(struct tw_pipe *p, bool write, int ms) {
    struct device *d = (struct device *)p;
    struct pollfd bell = {.fd = d->o.access.doorbell, .events = POLLIN};
    if (!write) {
        return poll(&bell, 1, ms) > 0;
    }
    pthread_mutex_lock(&d->lock);
    bool there = wait_for_room(d, ms);
    pthread_mutex_unlock(&d->lock);
    return there;
}

/* ---- the status thread ---- */

/* Words are written one by one, so a reader may see parts of two successive states. */
static void publish(struct device *d, const struct tw_link_progress *progress,
                    uint32_t generation) {
    uint32_t words[sizeof *progress / 4];
    uint32_t *to = (uint32_t *)(void *)&d->regs->progress;
    memcpy(words, progress, sizeof words);
    for (size_t i = 0; i < sizeof words / 4; i++) {
        __atomic_store_n(&to[i], words[i], __ATOMIC_RELAXED);
    }
    __atomic_store_n(&d->regs->generation, generation, __ATOMIC_RELAXED);
    tw_pcie_store(&d->regs->alive, ++d->alive);
}

static void renew_status(struct device *d) {
    struct tw_link_progress progress = {0};
    uint32_t generation = 0;
    if (d->o.progress) {
        d->o.progress(d->o.ctx, &progress, &generation);
    }
    pthread_mutex_lock(&d->lock);
    publish(d, &progress, generation);
    if (d->resetting && !d->host_left && generation == 0 && progress.executing == 0) {
        d->resetting = false;
        d->was_reset = tw_pcie_load(&d->regs->reset);
        tw_pcie_store(&d->regs->was_reset, d->was_reset);
        interrupt_any(d);
    }
    pthread_mutex_unlock(&d->lock);
}

static void *run_status(void *arg) {
    struct device *d = arg;
    pthread_mutex_lock(&d->lock);
    for (uint32_t turn = 1; !d->quit; turn++) {
        pthread_mutex_unlock(&d->lock);
        renew_status(d);
        pthread_mutex_lock(&d->lock);
        uint64_t n;
        if (d->attached && turn % PROBE_TURNS == 0) {
            /* a host that died is detected because the IOMMU no longer maps its memory */
            reach(d, 0, &n, true);
        }
        struct timespec end =
            tw_clock_after_ms(d->attached || d->resetting ? TW_PCIE_STATUS_MS : IDLE_MS);
        if (!d->quit) {
            pthread_cond_timedwait(&d->tick, &d->lock, &end);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- life ---- */

static void hang_up(struct tw_pipe *p) {
    struct device *d = (struct device *)p;
    pthread_mutex_lock(&d->lock);
    d->hung_up = true;
    pthread_cond_broadcast(&d->room);
    pthread_mutex_unlock(&d->lock);
    tw_event_signal(d->o.access.doorbell);
}

static void dispose(struct device *d) {
    if (d->o.access.close) {
        d->o.access.close(d->o.access.ctx);
    }
    pthread_cond_destroy(&d->room);
    pthread_cond_destroy(&d->tick);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static void close_pipe(struct tw_pipe *p) {
    struct device *d = (struct device *)p;
    pthread_mutex_lock(&d->lock);
    d->quit = true;
    pthread_cond_signal(&d->tick);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->status, NULL);
    tw_pcie_store(&d->regs->magic, 0);
    interrupt_any(d);
    dispose(d);
}

static const struct tw_pipe_ops ops = {
    .send = send_packet,
    .take = take,
    .wait = wait_pipe,
    .hang_up = hang_up,
    .close = close_pipe,
};

static void fill_registers(struct device *d) {
    struct tw_pcie_registers *r = d->regs;
    memset(r, 0, sizeof *r);
    r->version = TW_PCIE_VERSION;
    r->state = d->o.reason ? TW_PCIE_RECOVERY : TW_PCIE_RUNS;
    r->firmware_version = d->o.firmware_version;
    r->max_slots = TW_PCIE_MAX_SLOTS;
    r->dma_bits = d->o.dma_bits;
    r->window_offset = TW_PCIE_REGISTER_BYTES;
    r->window_bytes = d->o.access.bar2_bytes - TW_PCIE_REGISTER_BYTES;
    snprintf(r->reason, sizeof r->reason, "%s", d->o.reason ? d->o.reason : "");
    tw_pcie_store(&r->magic, TW_PCIE_MAGIC);
}

static void init_locks(struct device *d) {
    tw_clock_init_condition(&d->room);
    tw_clock_init_condition(&d->tick);
    pthread_mutex_init(&d->lock, NULL);
}

static int refuse(const struct tw_pcie_device_options *o, int code, const char *why,
                  tw_error *err) {
    if (o->access.close) {
        o->access.close(o->access.ctx);
    }
    return tw_fail(err, code, "PCIe device: %s", why);
}

int tw_pcie_device_create(const struct tw_pcie_device_options *o, struct tw_pipe **out,
                          tw_error *err) {
    if (o->access.bar2_bytes < 2 * TW_PCIE_REGISTER_BYTES || o->dma_bits < 12 || o->dma_bits > 64) {
        return refuse(o, TW_E_USAGE,
                      "BAR2 must have 8192 bytes or more, and dma_bits must be 12 to 64", err);
    }
    struct device *d = calloc(1, sizeof *d);
    if (!d) {
        return refuse(o, TW_E_NOMEM, "out of memory", err);
    }
    d->pipe = (struct tw_pipe){.ops = &ops, .chunk = TW_PCIE_CHUNK, .fd = o->access.doorbell};
    d->o = *o;
    d->regs = (struct tw_pcie_registers *)(void *)o->access.bar2;
    init_locks(d);
    fill_registers(d);
    if (pthread_create(&d->status, NULL, run_status, d)) {
        dispose(d);
        return tw_fail(err, TW_E_INTERNAL, "PCIe device: cannot create a thread");
    }
    *out = &d->pipe;
    return 0;
}
