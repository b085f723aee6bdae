/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's side of a mailbox. A wait first looks for some microseconds, then arms the interrupt, looks once more and
 * sleeps; it wakes now and then by itself, so a lost interrupt costs time and nothing else. Packets are copied out before
 * anybody looks into them: what the device changes afterwards does not matter.
 */
#include "driver/transport/pcie_pipe.h"

#include "firmware/port/event.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPIN_NS 50000        /* longer than a short request takes */
#define POLL_SPIN_NS 2000000 /* where there is no interrupt */
#define POLL_SLEEP_NS 100000 /* ... and after that */
#define SLICE_NS 100000000   /* of a sleep: between two looks at the registers */
#define CONFIRM_NS 500000000 /* the device renews `alive` ten times meanwhile */
#define START_NS 3000000000  /* for the device to take a start; it may be busy elsewhere */
#define END_NS 500000000     /* for it to take the last packet, and to let the mailbox go */
#define LOOK_NS 100000       /* between two looks at a register that something has been asked of */

struct host {
    struct tw_pipe pipe;
    struct tw_pcie_side side;
    char name[96];
    struct tw_pcie_registers *regs;
    uint8_t *box; /* the mailbox: host memory, or in the window */
    uint32_t start, reset;
    int wake; /* rung when the pipe is gone */

    pthread_mutex_t lock; /* of sending */
    uint32_t to_device;
    bool room_out; /* room() gave the next slot */

    _Atomic bool blamed, gone; /* gone: `cause` is there */
    char cause[200];
    uint32_t taken; /* of the thread that takes */
    union {
        uint8_t bytes[TW_PCIE_SLOT_BYTES];
        uint64_t words[TW_PCIE_SLOT_BYTES / 8];
    } in;
};

static struct tw_pcie_mailbox *head(const struct host *h) {
    return (struct tw_pcie_mailbox *)(void *)h->box;
}

static uint8_t *slot_to_device(const struct host *h, uint32_t number) {
    return h->box + TW_PCIE_MAILBOX_HEAD + (uint64_t)(number % TW_PCIE_SLOTS) * TW_PCIE_SLOT_BYTES;
}

static uint8_t *slot_to_host(const struct host *h, uint32_t number) {
    return slot_to_device(h, number) + (uint64_t)TW_PCIE_SLOTS * TW_PCIE_SLOT_BYTES;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- losing it ---- */

static void lose(struct host *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void lose(struct host *h, const char *format, ...) {
    if (!atomic_exchange(&h->blamed, true)) { /* the first cause stays */
        va_list args;
        va_start(args, format);
        vsnprintf(h->cause, sizeof h->cause, format, args);
        va_end(args);
        atomic_store(&h->gone, true);
    }
    tw_event_ring(h->wake);
}

/* Is the device still there? */
static void look_at_registers(struct host *h) {
    uint32_t magic = tw_pcie_load(&h->regs->magic);
    bool started = tw_pcie_load(&h->regs->started) == h->start; /* before, the fault is one of another time */
    int32_t fault = started ? __atomic_load_n(&h->regs->fault, __ATOMIC_ACQUIRE) : 0;
    if (magic == UINT32_MAX) {
        lose(h, "it is off its bus: its registers read as all ones; look whether it sits in its slot and has power");
    } else if (magic == 0) {
        lose(h, "its firmware has ended");
    } else if (magic != TW_PCIE_MAGIC) {
        lose(h, "its registers hold nonsense: magic %08x", magic);
    } else if (fault) {
        lose(h, "it could not use the mailbox at %#llx: %s",
             (unsigned long long)__atomic_load_n(&h->regs->fault_address, __ATOMIC_RELAXED),
             fault == TW_E_RANGE ? "the IOMMU does not let it reach that address"
             : fault == TW_E_IO  ? "it cannot read this machine's memory (emulate --guest-ram, --monitor)"
                                 : "it found nonsense there");
    }
}

/* ---- packets ---- */

/* In the window only whole aligned words are moved: it may be memory of the kind that allows no others. */
static void copy_words(volatile uint64_t *to, const volatile uint64_t *from, size_t bytes) {
    for (size_t i = 0; i < (bytes + 7) / 8; i++) {
        to[i] = from[i];
    }
}

static void copy_out(struct host *h, const uint8_t *slot, size_t n) {
    if (h->side.mailbox) {
        memcpy(h->in.bytes, slot, n);
    } else {
        copy_words(h->in.words, (const volatile uint64_t *)(const volatile void *)slot, n);
    }
}

static void copy_in(const struct host *h, uint8_t *slot, const uint8_t *bytes, size_t n) {
    if (h->side.mailbox) {
        memcpy(slot, bytes, n);
        return;
    }
    volatile uint64_t *to = (volatile uint64_t *)(volatile void *)slot;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, n - i < 8 ? n - i : 8);
        to[i / 8] = word;
    }
}

/* A slot is free; with the lock. */
static bool has_room(struct host *h) {
    uint32_t used = h->to_device - tw_pcie_load(&head(h)->done);
    if (used > TW_PCIE_SLOTS) {
        look_at_registers(h);
        lose(h, "it has taken %d packets more than it was sent: its counter is damaged", (int)(TW_PCIE_SLOTS - used));
        return false;
    }
    return used < TW_PCIE_SLOTS;
}

static void ring(const struct host *h) {
    h->side.ring(h->side.ctx);
}

/* With the lock. */
static void publish(struct host *h, size_t n) {
    __atomic_store_n(&head(h)->to_device_bytes[h->to_device % TW_PCIE_SLOTS], (uint32_t)n, __ATOMIC_RELAXED);
    h->room_out = false;
    tw_pcie_store(&h->regs->to_device, ++h->to_device);
    ring(h);
}

/* The pipe's send and room, with the lock. While room() is out nobody else can send: packets go by number. */
static enum tw_packet_result send_locked(struct host *h, const uint8_t *bytes, size_t n) {
    uint8_t *slot = slot_to_device(h, h->to_device);
    if (h->room_out != (bytes == slot)) {
        return TW_PACKET_AGAIN;
    }
    if (h->room_out && n == 0) {
        h->room_out = false;
        return TW_PACKET_OK;
    }
    if (!h->room_out) {
        copy_in(h, slot, bytes, n);
    }
    publish(h, n);
    return TW_PACKET_OK;
}

static enum tw_packet_result send_packet(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    struct host *h = (struct host *)p;
    enum tw_packet_result r = TW_PACKET_AGAIN;
    pthread_mutex_lock(&h->lock);
    if (!atomic_load(&h->gone) && has_room(h)) {
        r = send_locked(h, bytes, n);
    }
    pthread_mutex_unlock(&h->lock);
    return atomic_load(&h->gone) ? TW_PACKET_GONE : r;
}

static uint8_t *give_room(struct tw_pipe *p) {
    struct host *h = (struct host *)p;
    uint8_t *slot = NULL;
    pthread_mutex_lock(&h->lock);
    if (!atomic_load(&h->gone) && !h->room_out && has_room(h)) {
        h->room_out = true;
        slot = slot_to_device(h, h->to_device);
    }
    pthread_mutex_unlock(&h->lock);
    return slot;
}

/* A packet to take. */
static bool has_packet(struct host *h) {
    uint32_t ready = tw_pcie_load(&head(h)->to_host) - h->taken;
    if (ready > TW_PCIE_SLOTS) {
        look_at_registers(h);
        lose(h, "it claims %u packets in a mailbox of %u: its counter is damaged", ready, TW_PCIE_SLOTS);
        return false;
    }
    return ready != 0;
}

static enum tw_packet_result take(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    struct host *h = (struct host *)p;
    if (atomic_load(&h->gone) || !has_packet(h)) {
        return atomic_load(&h->gone) ? TW_PACKET_GONE : TW_PACKET_AGAIN;
    }
    uint32_t size = __atomic_load_n(&head(h)->to_host_bytes[h->taken % TW_PCIE_SLOTS], __ATOMIC_RELAXED);
    if (size == 0 || size > TW_PCIE_SLOT_BYTES) {
        lose(h, "it put a packet of %u bytes into a slot of %u", size, TW_PCIE_SLOT_BYTES);
        return TW_PACKET_GONE;
    }
    copy_out(h, slot_to_host(h, h->taken), size);
    tw_pcie_store(&h->regs->taken, ++h->taken);
    tw_pcie_fence();
    if (tw_pcie_load(&head(h)->wants_room)) {
        ring(h);
    }
    *bytes = h->in.bytes;
    *n = size;
    return TW_PACKET_OK;
}

/* ---- waiting ---- */

static bool ready(struct host *h, bool write) {
    bool there;
    if (write) {
        pthread_mutex_lock(&h->lock);
        there = has_room(h);
        pthread_mutex_unlock(&h->lock);
    } else {
        there = has_packet(h);
    }
    return there || atomic_load(&h->gone);
}

static bool spin(struct host *h, bool write, int64_t end) {
    do {
        for (int i = 0; i < 64; i++) {
            if (ready(h, write)) {
                return true;
            }
        }
    } while (now_ns() < end);
    return false;
}

/* Sleeps until something rings, at most ns. */
static void sleep_until_rung(struct host *h, int64_t ns) {
    struct pollfd p[] = {{.fd = h->side.interrupt, .events = POLLIN},
                         {.fd = h->side.request, .events = POLLIN},
                         {.fd = h->wake, .events = POLLIN}};
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    if (ppoll(p, 3, &t, NULL) > 0) {
        if (p[0].revents) {
            tw_event_heard(h->side.interrupt);
        }
        if (p[1].revents) {
            lose(h, "the system wants it back: it is being unplugged, or taken from its driver");
        }
    }
}

static bool sleep_until_ready(struct host *h, bool write, int64_t end) {
    bool by_interrupt = h->side.interrupt >= 0, done = false;
    if (by_interrupt) {
        tw_pcie_store(&h->regs->armed, write ? TW_PCIE_ARM_ROOM : TW_PCIE_ARM_PACKET);
        tw_pcie_fence();
        tw_pcie_load(&h->regs->magic); /* what is read behind a write has waited for it to arrive */
    }
    while (!(done = ready(h, write))) {
        int64_t left = end - now_ns(), most = by_interrupt ? SLICE_NS : POLL_SLEEP_NS;
        if (left <= 0) {
            break;
        }
        sleep_until_rung(h, left < most ? left : most);
        look_at_registers(h);
    }
    if (by_interrupt) {
        tw_pcie_store(&h->regs->armed, 0);
    }
    return done;
}

static bool wait_pipe(struct tw_pipe *p, bool write, int ms) {
    struct host *h = (struct host *)p;
    int64_t begin = now_ns(), end = ms < 0 ? INT64_MAX : begin + (int64_t)ms * 1000000;
    int64_t look = begin + (h->side.interrupt < 0 ? POLL_SPIN_NS : SPIN_NS);
    return spin(h, write, look < end ? look : end) || sleep_until_ready(h, write, end);
}

/* ---- start, end, reset ---- */

/* Until a register has a value. */
static bool await(struct host *h, const uint32_t *word, uint32_t value, int64_t ns) {
    int64_t end = now_ns() + ns;
    while (tw_pcie_load(word) != value) {
        look_at_registers(h);
        if (atomic_load(&h->gone) || now_ns() > end) {
            return false;
        }
        nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
    }
    return true;
}

static void number_next(uint32_t *number) {
    *number += *number == UINT32_MAX ? 2 : 1; /* never 0 */
}

static bool start(struct host *h, enum tw_pcie_mailbox_kind kind) {
    struct tw_pcie_registers *r = h->regs;
    pthread_mutex_lock(&h->lock);
    h->room_out = false;
    tw_pcie_store(&r->mailbox_kind, (uint32_t)kind);
    tw_pcie_store(&r->n_slots, TW_PCIE_SLOTS);
    tw_pcie_store(&r->slot_bytes, TW_PCIE_SLOT_BYTES);
    __atomic_store_n(&r->mailbox, h->side.mailbox ? h->side.mailbox_address : 0, __ATOMIC_RELAXED);
    tw_pcie_store(&r->armed, 0);
    tw_pcie_store(&r->to_device, h->to_device); /* as they are already, but after a reset of the function */
    tw_pcie_store(&r->taken, h->taken);
    number_next(&h->start);
    tw_pcie_store(&r->start, h->start);
    ring(h);
    pthread_mutex_unlock(&h->lock);
    return await(h, &r->started, h->start, kind == TW_PCIE_NONE ? END_NS : START_NS);
}

static enum tw_pcie_mailbox_kind kind_of(const struct host *h) {
    return h->side.mailbox ? TW_PCIE_IN_HOST : TW_PCIE_IN_WINDOW;
}

static bool begin(struct host *h) {
    bool started = start(h, kind_of(h));
    look_at_registers(h); /* it may have found fault with the mailbox */
    return started && !atomic_load(&h->gone);
}

static bool confirm(struct tw_pipe *p, struct tw_link_progress *out) {
    struct host *h = (struct host *)p;
    uint32_t words[sizeof *out / 4], before = tw_pcie_load(&h->regs->alive);
    const uint32_t *from = (const uint32_t *)(const void *)&h->regs->progress;
    for (int64_t end = now_ns() + CONFIRM_NS; tw_pcie_load(&h->regs->alive) == before;) {
        look_at_registers(h);
        if (atomic_load(&h->gone) || now_ns() > end) {
            return false;
        }
        nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
    }
    for (size_t i = 0; i < sizeof words / 4; i++) {
        words[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    }
    memcpy(out, words, sizeof words);
    return true;
}

static bool reset_device(struct host *h) {
    number_next(&h->reset);
    tw_pcie_store(&h->regs->reset, h->reset);
    ring(h);
    return await(h, &h->regs->was_reset, h->reset, START_NS);
}

/* The function comes back with fresh registers, as soon as its firmware has filled them. */
static bool reset_function(struct host *h) {
    return h->side.reset && h->side.reset(h->side.ctx) && await(h, &h->regs->magic, TW_PCIE_MAGIC, START_NS) &&
           begin(h);
}

static const char *recover(struct tw_pipe *p, unsigned rung) {
    struct host *h = (struct host *)p;
    if (atomic_load(&h->gone)) {
        return NULL;
    }
    switch (rung) {
    case 0:
        return begin(h) ? "the mailbox was started again" : NULL;
    case 1:
        return reset_device(h) ? "the device was reset by its register" : NULL;
    case 2:
        return reset_function(h) ? "the PCIe function was reset" : NULL;
    default:
        return NULL;
    }
}

/* ---- life ---- */

static const char *cause(struct tw_pipe *p) {
    const struct host *h = (const struct host *)p;
    return atomic_load(&h->gone) ? h->cause : NULL;
}

static void hang_up(struct tw_pipe *p) {
    lose((struct host *)p, "it was closed");
}

static void dispose(struct host *h) {
    if (h->side.close) {
        h->side.close(h->side.ctx);
    }
    if (h->wake >= 0) {
        close(h->wake);
    }
    pthread_mutex_destroy(&h->lock);
    free(h);
}

/* The device takes what was sent last (CLOSE) and lets the mailbox go, before that is unmapped. */
static void close_pipe(struct tw_pipe *p) {
    struct host *h = (struct host *)p;
    if (!atomic_load(&h->gone) && await(h, &head(h)->done, h->to_device, END_NS)) {
        start(h, TW_PCIE_NONE);
    }
    dispose(h);
}

static const struct tw_pipe_ops ops_host = {
    .send = send_packet,
    .take = take,
    .wait = wait_pipe,
    .hang_up = hang_up,
    .close = close_pipe,
    .room = give_room,
    .confirm = confirm,
    .recover = recover,
    .cause = cause,
};

/* Nothing is built in the window: a byte there is slow, and what is written may have to be read back. */
static const struct tw_pipe_ops ops_window = {
    .send = send_packet,
    .take = take,
    .wait = wait_pipe,
    .hang_up = hang_up,
    .close = close_pipe,
    .confirm = confirm,
    .recover = recover,
    .cause = cause,
};

uint32_t tw_pcie_pipe_firmware(const struct tw_pipe *p) {
    return ((const struct host *)p)->regs->firmware_version;
}

/* ---- who is there ---- */

static int find_window(const struct host *h, uint64_t *offset, tw_error *err) {
    uint64_t at = __atomic_load_n(&h->regs->window_offset, __ATOMIC_RELAXED), bytes = h->regs->window_bytes;
    uint64_t need = tw_pcie_mailbox_bytes(TW_PCIE_SLOTS, TW_PCIE_SLOT_BYTES);
    if (at % TW_PCIE_MAILBOX_HEAD || at < TW_PCIE_REGISTER_BYTES || bytes < need || at > h->side.bar2_bytes ||
        bytes > h->side.bar2_bytes - at) {
        return tw_fail(err, TW_E_PROTOCOL,
                       "device %s: its window of %llu bytes at %#llx of BAR2 (%llu bytes) is of no use", h->name,
                       (unsigned long long)bytes, (unsigned long long)at, (unsigned long long)h->side.bar2_bytes);
    }
    *offset = at;
    return 0;
}

/* Each word is read once: the device could change it. */
static int greet(struct host *h, tw_error *err) {
    const struct tw_pcie_registers *r = h->regs;
    char reason[sizeof r->reason + 1] = "";
    uint32_t magic = tw_pcie_load(&r->magic), version = r->version, slots = r->max_slots;
    if (magic == UINT32_MAX) {
        return tw_fail(err, TW_E_DEVICE_LOST, "device %s: it is off its bus: its registers read as all ones", h->name);
    }
    if (magic != TW_PCIE_MAGIC) {
        return tw_fail(err, TW_E_NO_DEVICE,
                       "device %s: it is no Tilewright device, or its firmware does not run: magic %08x, expected %08x",
                       h->name, magic, TW_PCIE_MAGIC);
    }
    if (version != TW_PCIE_VERSION) {
        return tw_fail(err, TW_E_VERSION,
                       "device %s: its registers are of version %u, this driver's of %u: upgrade the %s", h->name,
                       version, TW_PCIE_VERSION, version > TW_PCIE_VERSION ? "driver" : "device's firmware");
    }
    if (r->state == TW_PCIE_RECOVERY) {
        memcpy(reason, r->reason, sizeof r->reason);
        return tw_fail(err, TW_E_FAULT, "device %s: it is in recovery and cannot run: %s", h->name, reason);
    }
    if (slots < TW_PCIE_SLOTS) {
        return tw_fail(err, TW_E_PROTOCOL, "device %s: it has %u slots, this driver needs %u", h->name, slots,
                       TW_PCIE_SLOTS);
    }
    uint64_t window = 0;
    if (h->side.mailbox) {
        h->box = h->side.mailbox;
        return 0;
    }
    int code = find_window(h, &window, err);
    h->box = code ? NULL : h->side.bar2 + window;
    return code;
}

static int fail_start(const struct host *h, tw_error *err) {
    if (!atomic_load(&h->gone)) {
        return tw_fail(err, TW_E_DEVICE_LOST, "device %s: it does not answer its doorbell: its firmware has stopped",
                       h->name);
    }
    int code = h->regs->fault ? TW_E_FAULT : TW_E_DEVICE_LOST;
    return tw_fail(err, code, "device %s: %s", h->name, h->cause);
}

int tw_pcie_pipe_create(const struct tw_pcie_side *side, struct tw_pipe **out, tw_error *err) {
    struct host *h = calloc(1, sizeof *h);
    if (!h) {
        if (side->close) {
            side->close(side->ctx);
        }
        return tw_fail(err, TW_E_NOMEM, "device %s: out of memory", side->name);
    }
    h->pipe = (struct tw_pipe){.ops = side->mailbox ? &ops_host : &ops_window, .chunk = TW_PCIE_CHUNK, .fd = -1};
    h->side = *side;
    snprintf(h->name, sizeof h->name, "%s", side->name);
    h->regs = (struct tw_pcie_registers *)(void *)side->bar2;
    h->wake = tw_event_create();
    pthread_mutex_init(&h->lock, NULL);
    int code = h->wake < 0 || side->bar2_bytes < TW_PCIE_REGISTER_BYTES
                   ? tw_fail(err, TW_E_NOMEM, "device %s: no descriptor, or no BAR2", h->name)
                   : greet(h, err);
    if (!code) {
        h->start = tw_pcie_load(&h->regs->start);
        h->reset = tw_pcie_load(&h->regs->reset);
        h->to_device = tw_pcie_load(&h->regs->to_device);
        h->taken = tw_pcie_load(&h->regs->taken);
        code = begin(h) ? 0 : fail_start(h, err);
    }
    if (code) {
        dispose(h);
        return code;
    }
    *out = &h->pipe;
    return 0;
}
