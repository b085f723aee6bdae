/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's side of a mailbox. A wait first polls for some microseconds, then arms the interrupt,
 * polls once more and sleeps; it also wakes periodically, so a lost interrupt only costs time.
 * Packets are copied out of the mailbox before they are examined, so that later changes by the
 * device have no effect.
 */
#include "driver/transport/pcie/pcie_host_pipe_internal.h"

#include "loader/base/clock.h"
#include "loader/base/event.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define SPIN_NS 50000        /* longer than a short request takes */
#define POLL_SPIN_NS 2000000 /* without an interrupt: first poll for this time, */
#define POLL_SLEEP_NS 100000 /* then sleep this long between two polls */
#define SLICE_NS 100000000   /* maximum sleep between two looks at the registers */

static uint8_t *slot_to_device(const struct host *h, uint32_t number) {
    return h->box + TW_PCIE_MAILBOX_HEAD + (uint64_t)(number % TW_PCIE_SLOTS) * TW_PCIE_SLOT_BYTES;
}

static uint8_t *slot_to_host(const struct host *h, uint32_t number) {
    return slot_to_device(h, number) + (uint64_t)TW_PCIE_SLOTS * TW_PCIE_SLOT_BYTES;
}

/* ---- failing ---- */

void tw_pcie_fail_pipe(struct host *h, const char *format, ...) {
    if (!atomic_exchange(&h->blamed, true)) { /* keep the first cause */
        va_list args;
        va_start(args, format);
        vsnprintf(h->cause, sizeof h->cause, format, args);
        va_end(args);
        atomic_store(&h->gone, true);
    }
    tw_event_signal(h->wake);
}

int32_t tw_pcie_fault(const struct host *h) {
    /* before that, the register may hold the fault of an earlier start */
    bool started = tw_pcie_load(&h->regs->started) == h->start;
    return started ? __atomic_load_n(&h->regs->fault, __ATOMIC_ACQUIRE) : 0;
}

void tw_pcie_probe(struct host *h) {
    uint32_t magic = tw_pcie_load(&h->regs->magic);
    int32_t fault = tw_pcie_fault(h);
    if (magic == UINT32_MAX) {
        tw_pcie_fail_pipe(h, "the device has dropped off the bus: its registers read as all ones; "
                             "check its slot and its power");
    } else if (magic == 0) {
        tw_pcie_fail_pipe(h, "its firmware has ended");
    } else if (magic != TW_PCIE_MAGIC) {
        tw_pcie_fail_pipe(h, "its registers are damaged: magic %08x, expected %08x", magic,
                          TW_PCIE_MAGIC);
    } else if (fault) {
        tw_pcie_fail_pipe(
            h, "it could not use the mailbox at %#llx: %s",
            (unsigned long long)__atomic_load_n(&h->regs->fault_address, __ATOMIC_RELAXED),
            fault == TW_E_RANGE ? "the IOMMU does not let it reach that address"
            : fault == TW_E_IO
                ? "it cannot read this machine's memory (emulate --guest-ram, --monitor)"
                : "it found invalid data there");
    }
}

/* ---- packets ---- */

/* Copies whole aligned words, the only access that the memory of a window may support. */
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

/* Returns whether a slot is free; with the lock held. */
static bool has_room(struct host *h) {
    uint32_t done = tw_pcie_load(&tw_pcie_head(h)->done), used = h->to_device - done;
    if (used > TW_PCIE_SLOTS) {
        tw_pcie_probe(h);
        tw_pcie_fail_pipe(
            h, "it claims to have taken %u packets of the %u it was sent: its counter is damaged",
            done, h->to_device);
        return false;
    }
    return used < TW_PCIE_SLOTS;
}

/* Hands the next slot to the device; with the lock held. */
static void publish(struct host *h, size_t n) {
    __atomic_store_n(&tw_pcie_head(h)->to_device_bytes[h->to_device % TW_PCIE_SLOTS], (uint32_t)n,
                     __ATOMIC_RELAXED);
    h->room_out = false;
    tw_pcie_store(&h->regs->to_device, ++h->to_device);
    tw_pcie_ring(h);
}

/* Sends a packet, with the lock held. Slots are used in order, so while room() has lent the next
 * one no other packet can be sent. */
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

enum tw_packet_result tw_pcie_send(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    struct host *h = (struct host *)p;
    enum tw_packet_result r = TW_PACKET_AGAIN;
    pthread_mutex_lock(&h->lock);
    if (!atomic_load(&h->gone) && has_room(h)) {
        r = send_locked(h, bytes, n);
    }
    pthread_mutex_unlock(&h->lock);
    return atomic_load(&h->gone) ? TW_PACKET_GONE : r;
}

uint8_t *tw_pcie_room(struct tw_pipe *p) {
    struct host *h = (struct host *)p;
    pthread_mutex_lock(&h->lock);
    bool lent = !h->room_out && has_room(h);
    h->room_out = h->room_out || lent;
    /* Lends a slot even if the pipe is gone: send then reports it, and the caller does not wait. */
    uint8_t *slot = lent || atomic_load(&h->gone) ? slot_to_device(h, h->to_device) : NULL;
    pthread_mutex_unlock(&h->lock);
    return slot;
}

/* Returns whether there is a packet to take. */
static bool has_packet(struct host *h) {
    uint32_t ready = tw_pcie_load(&tw_pcie_head(h)->to_host) - h->taken;
    if (ready > TW_PCIE_SLOTS) {
        tw_pcie_probe(h);
        tw_pcie_fail_pipe(h, "it claims %u packets in a mailbox of %u: its counter is damaged",
                          ready, TW_PCIE_SLOTS);
        return false;
    }
    return ready != 0;
}

enum tw_packet_result tw_pcie_take(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    struct host *h = (struct host *)p;
    if (atomic_load(&h->gone) || !has_packet(h)) {
        return atomic_load(&h->gone) ? TW_PACKET_GONE : TW_PACKET_AGAIN;
    }
    uint32_t size = __atomic_load_n(&tw_pcie_head(h)->to_host_bytes[h->taken % TW_PCIE_SLOTS],
                                    __ATOMIC_RELAXED);
    if (size == 0 || size > TW_PCIE_SLOT_BYTES) {
        tw_pcie_fail_pipe(h, "it put a packet of %u bytes into a slot of %u", size,
                          TW_PCIE_SLOT_BYTES);
        return TW_PACKET_GONE;
    }
    copy_out(h, slot_to_host(h, h->taken), size);
    tw_pcie_store(&h->regs->taken, ++h->taken);
    tw_pcie_fence();
    if (tw_pcie_load(&tw_pcie_head(h)->wants_room)) {
        tw_pcie_ring(h);
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

static bool spin(struct host *h, bool write, uint64_t end) {
    do {
        for (int i = 0; i < 64; i++) {
            if (ready(h, write)) {
                return true;
            }
        }
    } while (tw_clock_ns() < end);
    return false;
}

/* Sleeps until something rings, at most ns. */
static void sleep_until_rung(struct host *h, uint64_t ns) {
    struct pollfd p[] = {{.fd = h->side.interrupt, .events = POLLIN},
                         {.fd = h->side.request, .events = POLLIN},
                         {.fd = h->wake, .events = POLLIN}};
    struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    if (ppoll(p, 3, &t, NULL) > 0) {
        if (p[0].revents) {
            tw_event_clear(h->side.interrupt);
        }
        if (p[1].revents) {
            tw_pcie_fail_pipe(
                h, "the kernel reclaimed it: it is being unplugged, or unbound from its driver");
        }
    }
}

static bool sleep_until_ready(struct host *h, bool write, uint64_t end) {
    bool by_interrupt = h->side.interrupt >= 0, done = false;
    if (by_interrupt) {
        tw_pcie_store(&h->regs->armed, write ? TW_PCIE_ARM_ROOM : TW_PCIE_ARM_PACKET);
        tw_pcie_fence();
        tw_pcie_load(&h->regs->magic); /* a read flushes the posted write */
    }
    while (!(done = ready(h, write))) {
        uint64_t now = tw_clock_ns(), max = by_interrupt ? SLICE_NS : POLL_SLEEP_NS;
        if (now >= end) {
            break;
        }
        sleep_until_rung(h, end - now < max ? end - now : max);
        tw_pcie_probe(h);
    }
    if (by_interrupt) {
        tw_pcie_store(&h->regs->armed, 0);
    }
    return done;
}

bool tw_pcie_wait(struct tw_pipe *p, bool write, int ms) {
    struct host *h = (struct host *)p;
    uint64_t begin = tw_clock_ns(), end = ms < 0 ? UINT64_MAX : begin + (uint64_t)ms * 1000000;
    uint64_t spin_end = begin + (h->side.interrupt < 0 ? POLL_SPIN_NS : SPIN_NS);
    return spin(h, write, spin_end < end ? spin_end : end) || sleep_until_ready(h, write, end);
}
