/* SPDX-License-Identifier: Apache-2.0
 *
 * Begin, recovery and end of the host's side of a mailbox: identifies the device, starts it, takes
 * recovery steps if it does not answer, and releases it. Each of these writes a register and waits
 * until another one shows the answer.
 */
#include "driver/transport/pcie/pcie_host_pipe_internal.h"

#include "loader/base/clock.h"
#include "loader/base/event.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONFIRM_NS 500000000 /* the device renews `alive` ten times meanwhile */
#define START_NS 3000000000  /* for the device to accept a start; it may be busy */
#define END_NS 500000000     /* for it to take the last packet and release the mailbox */
#define POLL_NS 100000       /* between two reads of a register */

/* ---- start, end, reset ---- */

/* Waits until a register has a value. Returns false after `ns`, or if the pipe is gone. */
static bool await(struct host *h, const uint32_t *word, uint32_t value, uint64_t ns) {
    uint64_t end = tw_clock_ns() + ns;
    while (tw_pcie_load(word) != value) {
        tw_pcie_probe(h);
        if (atomic_load(&h->gone) || tw_clock_ns() > end) {
            return false;
        }
        nanosleep(&(struct timespec){0, POLL_NS}, NULL);
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
    /* they have these values already, except after a reset of the function */
    tw_pcie_store(&r->to_device, h->to_device);
    tw_pcie_store(&r->taken, h->taken);
    number_next(&h->start);
    tw_pcie_store(&r->start, h->start);
    tw_pcie_ring(h);
    pthread_mutex_unlock(&h->lock);
    return await(h, &r->started, h->start, kind == TW_PCIE_NONE ? END_NS : START_NS);
}

static enum tw_pcie_mailbox_kind kind_of(const struct host *h) {
    return h->side.mailbox ? TW_PCIE_IN_HOST : TW_PCIE_IN_WINDOW;
}

static bool begin(struct host *h) {
    bool started = start(h, kind_of(h));
    tw_pcie_probe(h); /* it may have reported a fault of the mailbox */
    return started && !atomic_load(&h->gone);
}

static bool confirm(struct tw_pipe *p, struct tw_link_progress *out) {
    struct host *h = (struct host *)p;
    uint32_t words[sizeof *out / 4], before = tw_pcie_load(&h->regs->alive);
    const uint32_t *from = (const uint32_t *)(const void *)&h->regs->progress;
    for (uint64_t end = tw_clock_ns() + CONFIRM_NS; tw_pcie_load(&h->regs->alive) == before;) {
        tw_pcie_probe(h);
        if (atomic_load(&h->gone) || tw_clock_ns() > end) {
            return false;
        }
        nanosleep(&(struct timespec){0, POLL_NS}, NULL);
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
    tw_pcie_ring(h);
    return await(h, &h->regs->was_reset, h->reset, START_NS);
}

/* Waits after a reset until the firmware has filled the registers. Until then the device looks as
 * if its firmware had ended, or as if it had dropped off the bus. */
static bool await_firmware(const struct host *h) {
    uint64_t end = tw_clock_ns() + START_NS;
    while (tw_pcie_load(&h->regs->magic) != TW_PCIE_MAGIC) {
        if (tw_clock_ns() > end) {
            return false;
        }
        nanosleep(&(struct timespec){0, POLL_NS}, NULL);
    }
    return true;
}

static bool reset_function(struct host *h) {
    return h->side.reset && h->side.reset(h->side.ctx) && await_firmware(h) && begin(h);
}

static const char *recover(struct tw_pipe *p, unsigned rung) {
    struct host *h = (struct host *)p;
    if (atomic_load(&h->gone)) {
        return NULL;
    }
    switch (rung) {
    case 0:
        return begin(h) ? "the mailbox was started again" : "";
    case 1:
        return reset_device(h) ? "the device was reset by its register" : "";
    case 2:
        return reset_function(h) ? "the PCIe function was reset" : "";
    default:
        return NULL;
    }
}

/* ---- the pipe's functions ---- */

static const char *cause(struct tw_pipe *p) {
    const struct host *h = (const struct host *)p;
    return atomic_load(&h->gone) ? h->cause : NULL;
}

static void hang_up(struct tw_pipe *p) {
    tw_pcie_fail_pipe((struct host *)p, "it was closed");
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

/* Lets the device take what was sent last (CLOSE) and release the mailbox before it is unmapped. */
static void close_pipe(struct tw_pipe *p) {
    struct host *h = (struct host *)p;
    if (!atomic_load(&h->gone) && await(h, &tw_pcie_head(h)->done, h->to_device, END_NS)) {
        start(h, TW_PCIE_NONE);
    }
    dispose(h);
}

static const struct tw_pipe_ops ops_host = {
    .send = tw_pcie_send,
    .take = tw_pcie_take,
    .wait = tw_pcie_wait,
    .hang_up = hang_up,
    .close = close_pipe,
    .room = tw_pcie_room,
    .probe_status = confirm,
    .recover = recover,
    .cause = cause,
};

/* Without room(): packets are not built in the window, where single bytes are slow to write and to
 * read back. */
static const struct tw_pipe_ops ops_window = {
    .send = tw_pcie_send,
    .take = tw_pcie_take,
    .wait = tw_pcie_wait,
    .hang_up = hang_up,
    .close = close_pipe,
    .probe_status = confirm,
    .recover = recover,
    .cause = cause,
};

/* ---- identification ---- */

static int find_window(const struct host *h, uint64_t *offset, tw_error *err) {
    uint64_t at = __atomic_load_n(&h->regs->window_offset, __ATOMIC_RELAXED),
             bytes = __atomic_load_n(&h->regs->window_bytes, __ATOMIC_RELAXED);
    uint64_t need = tw_pcie_mailbox_bytes(TW_PCIE_SLOTS, TW_PCIE_SLOT_BYTES);
    if (at % TW_PCIE_MAILBOX_HEAD || at < TW_PCIE_REGISTER_BYTES || bytes < need ||
        at > h->side.bar2_bytes || bytes > h->side.bar2_bytes - at) {
        return tw_fail(err, TW_E_PROTOCOL,
                       "device %s: its window of %llu bytes at %#llx of BAR2 (%llu bytes) is "
                       "invalid, expected "
                       "at least %llu bytes inside BAR2",
                       h->name, (unsigned long long)bytes, (unsigned long long)at,
                       (unsigned long long)h->side.bar2_bytes, (unsigned long long)need);
    }
    *offset = at;
    return 0;
}

/* Identifies the device. Each register is read once, as the device could change it. */
static int greet(struct host *h, tw_error *err) {
    const struct tw_pcie_registers *r = h->regs;
    char reason[sizeof r->reason + 1] = "";
    uint32_t magic = tw_pcie_load(&r->magic), version = tw_pcie_load(&r->version),
             slots = tw_pcie_load(&r->max_slots);
    if (magic == UINT32_MAX) {
        return tw_fail(err, TW_E_DEVICE_LOST,
                       "device %s: it has dropped off the bus: its registers read as all ones",
                       h->name);
    }
    if (magic != TW_PCIE_MAGIC) {
        return tw_fail(err, TW_E_NO_DEVICE,
                       "device %s: not a Tilewright device, or its firmware is not running: magic "
                       "%08x, expected %08x",
                       h->name, magic, TW_PCIE_MAGIC);
    }
    if (version != TW_PCIE_VERSION) {
        return tw_fail(err, TW_E_VERSION,
                       "device %s: it uses register version %u, this driver %u: upgrade the %s",
                       h->name, version, TW_PCIE_VERSION,
                       version > TW_PCIE_VERSION ? "driver" : "device's firmware");
    }
    if (r->state == TW_PCIE_RECOVERY) {
        memcpy(reason, r->reason, sizeof r->reason);
        return tw_fail(err, TW_E_FAULT, "device %s: it is in recovery and cannot run: %s", h->name,
                       reason);
    }
    if (slots < TW_PCIE_SLOTS) {
        return tw_fail(err, TW_E_PROTOCOL, "device %s: it has %u slots, expected at least %u",
                       h->name, slots, TW_PCIE_SLOTS);
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
        return tw_fail(err, TW_E_DEVICE_LOST,
                       "device %s: it does not answer the doorbell: its firmware has stopped",
                       h->name);
    }
    /* else its other registers are meaningless */
    bool there = tw_pcie_load(&h->regs->magic) == TW_PCIE_MAGIC;
    int code = there && tw_pcie_fault(h) ? TW_E_FAULT : TW_E_DEVICE_LOST;
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
    h->pipe = (struct tw_pipe){
        .ops = side->mailbox ? &ops_host : &ops_window, .chunk = TW_PCIE_CHUNK, .fd = -1};
    h->side = *side;
    snprintf(h->name, sizeof h->name, "%s", side->name);
    h->regs = (struct tw_pcie_registers *)(void *)side->bar2;
    h->wake = tw_event_create();
    pthread_mutex_init(&h->lock, NULL);
    int code = h->wake < 0 || side->bar2_bytes < TW_PCIE_REGISTER_BYTES
                   ? tw_fail(err, TW_E_NOMEM,
                             "device %s: out of file descriptors, or BAR2 is too small", h->name)
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
