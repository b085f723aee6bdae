/* SPDX-License-Identifier: Apache-2.0
 *
 * Rings of buffers under one lock. A packet of 0 bytes in the incoming ring means that the host has
 * gone.
 */
#include "firmware/usb/usb_device_pipe.h"

#include "loader/base/clock.h"
#include "loader/base/event.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define BUFFERS (2 * TW_USB_QUEUE + 3) /* those of the two queues, the view, two spare ones */

static struct tw_usb_pipe *of(struct tw_pipe *p) {
    return (struct tw_usb_pipe *)p;
}

/* ---- rings ---- */

static bool full(const struct tw_usb_queue *q) {
    return q->count == TW_USB_QUEUE;
}

static uint32_t last(const struct tw_usb_queue *q) {
    return (q->first + q->count) % TW_USB_QUEUE;
}

static void swap(uint8_t **a, uint8_t **b) {
    uint8_t *was = *a;
    *a = *b;
    *b = was;
}

static void pop(struct tw_usb_queue *q, uint8_t **bytes, size_t *n) {
    swap(&q->bytes[q->first], bytes);
    *n = q->n[q->first];
    q->first = (q->first + 1) % TW_USB_QUEUE;
    q->count--;
}

static void clear(struct tw_usb_queue *q) {
    q->first = q->count = 0;
}

/* ---- life ---- */

static void assign_buffers(struct tw_usb_pipe *p) {
    for (uint32_t i = 0; i < TW_USB_QUEUE; i++) {
        p->in.bytes[i] = p->memory + (size_t)i * TW_PACKET_BYTES;
        p->out.bytes[i] = p->memory + (size_t)(TW_USB_QUEUE + i) * TW_PACKET_BYTES;
    }
    uint8_t *rest = p->memory + (size_t)(2 * TW_USB_QUEUE) * TW_PACKET_BYTES;
    p->view = rest;
    p->spare[0] = rest + TW_PACKET_BYTES;
    p->spare[1] = rest + 2 * TW_PACKET_BYTES;
}

int tw_usb_pipe_init(struct tw_usb_pipe *p, const struct tw_pipe_ops *ops, bool wakes,
                     tw_error *err) {
    p->base = (struct tw_pipe){.ops = ops, .chunk = TW_LINK_CHUNK};
    pthread_mutex_init(&p->lock, NULL);
    tw_clock_init_condition(&p->changed);
    p->base.fd = tw_event_create();
    p->wake = wakes ? tw_event_create() : -1;
    p->memory = malloc((size_t)BUFFERS * TW_PACKET_BYTES); /* pages appear when used */
    int code =
        p->memory ? 0 : tw_fail(err, TW_E_NOMEM, "USB device: out of memory for its packets");
    if (!code && (p->base.fd < 0 || (wakes && p->wake < 0))) {
        code = tw_fail(err, TW_E_IO, "USB device: cannot create an eventfd: %s", strerror(errno));
    }
    if (code) {
        tw_usb_pipe_finish(p);
        return code;
    }
    assign_buffers(p);
    return 0;
}

void tw_usb_pipe_finish(struct tw_usb_pipe *p) {
    tw_event_destroy(p->base.fd);
    tw_event_destroy(p->wake);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p->memory);
}

/* ---- the device server's side ---- */

enum tw_packet_result tw_usb_pipe_send(struct tw_pipe *pipe, const uint8_t *bytes, size_t n) {
    struct tw_usb_pipe *p = of(pipe);
    enum tw_packet_result r = TW_PACKET_OK;
    bool sent = false;
    pthread_mutex_lock(&p->lock);
    if (p->gone) {
        r = TW_PACKET_GONE;
    } else if (p->present && full(&p->out)) {
        r = TW_PACKET_AGAIN;
    } else if (p->present && n > 0 && n <= TW_PACKET_BYTES) {
        uint32_t at = last(&p->out);
        memcpy(p->out.bytes[at], bytes, n);
        p->out.n[at] = n;
        p->out.count++;
        sent = true;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    if (sent) {
        tw_event_signal(p->wake);
    }
    return r;
}

enum tw_packet_result tw_usb_pipe_take(struct tw_pipe *pipe, uint8_t **bytes, size_t *n) {
    struct tw_usb_pipe *p = of(pipe);
    enum tw_packet_result r = TW_PACKET_OK;
    pthread_mutex_lock(&p->lock);
    bool was_full = full(&p->in);
    if (p->gone) {
        r = TW_PACKET_GONE;
        tw_event_clear(p->base.fd); /* reported once, so that a poll loop does not spin */
    } else if (p->in.count == 0) {
        r = TW_PACKET_AGAIN;
    } else {
        pop(&p->in, &p->view, n);
        *bytes = p->view;
        if (p->in.count == 0) {
            tw_event_clear(p->base.fd);
        }
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    if (was_full && r == TW_PACKET_OK) {
        tw_event_signal(p->wake);
    }
    return r;
}

/* Waits for a change. With the lock. Returns false on a timeout. */
static bool wait_until(struct tw_usb_pipe *p, const struct timespec *end) {
    return (end ? pthread_cond_timedwait(&p->changed, &p->lock, end)
                : pthread_cond_wait(&p->changed, &p->lock)) != ETIMEDOUT;
}

static bool ready(const struct tw_usb_pipe *p, bool write) {
    return p->gone || (write ? !p->present || !full(&p->out) : p->in.count > 0);
}

bool tw_usb_pipe_wait(struct tw_pipe *pipe, bool write, int ms) {
    struct tw_usb_pipe *p = of(pipe);
    struct timespec end = tw_clock_after_ms(ms < 0 ? 0 : (uint32_t)ms);
    pthread_mutex_lock(&p->lock);
    while (!ready(p, write) && wait_until(p, ms < 0 ? NULL : &end)) {
    }
    bool ok = ready(p, write);
    pthread_mutex_unlock(&p->lock);
    return ok;
}

void tw_usb_pipe_hang_up(struct tw_pipe *pipe) {
    struct tw_usb_pipe *p = of(pipe);
    pthread_mutex_lock(&p->lock);
    p->gone = true;
    p->present = false;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    tw_event_signal(p->base.fd);
    tw_event_signal(p->wake);
}

/* ---- the port's side ---- */

bool tw_usb_pipe_room(struct tw_usb_pipe *p) {
    pthread_mutex_lock(&p->lock);
    bool room = !p->gone && !full(&p->in);
    pthread_mutex_unlock(&p->lock);
    return room;
}

/* Queues an incoming packet. With the lock. */
static void put_in(struct tw_usb_pipe *p, uint8_t **bytes, size_t n) {
    uint32_t at = last(&p->in);
    if (bytes) {
        swap(&p->in.bytes[at], bytes);
    }
    p->in.n[at] = n;
    if (p->in.count++ == 0) {
        tw_event_signal(p->base.fd);
    }
    pthread_cond_broadcast(&p->changed);
}

bool tw_usb_pipe_put(struct tw_usb_pipe *p, uint8_t **bytes, size_t n) {
    pthread_mutex_lock(&p->lock);
    bool room = !p->gone && !full(&p->in);
    if (room) {
        p->seen = true;
        put_in(p, bytes, n);
    }
    pthread_mutex_unlock(&p->lock);
    return room;
}

bool tw_usb_pipe_wait_room(struct tw_usb_pipe *p, int ms) {
    struct timespec end = tw_clock_after_ms((uint32_t)ms);
    pthread_mutex_lock(&p->lock);
    while (!p->gone && full(&p->in) && wait_until(p, &end)) {
    }
    bool room = !p->gone && !full(&p->in);
    pthread_mutex_unlock(&p->lock);
    return room;
}

bool tw_usb_pipe_wait_get(struct tw_usb_pipe *p, uint8_t **bytes, size_t *n, int ms) {
    struct timespec end = tw_clock_after_ms((uint32_t)ms);
    pthread_mutex_lock(&p->lock);
    while (ms > 0 && !p->gone && p->out.count == 0 && wait_until(p, &end)) {
    }
    bool ok = !p->gone && p->out.count > 0;
    if (ok) {
        pop(&p->out, bytes, n);
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return ok;
}

bool tw_usb_pipe_get(struct tw_usb_pipe *p, uint8_t **bytes, size_t *n) {
    return tw_usb_pipe_wait_get(p, bytes, n, 0);
}

/* Returns true if the medium must get a mark: it has seen this host, or an earlier mark is
 * queued. */
static bool needs_mark(const struct tw_usb_pipe *p) {
    bool needed = p->seen;
    for (uint32_t i = 0; i < p->in.count; i++) {
        needed = needed || p->in.n[(p->in.first + i) % TW_USB_QUEUE] == 0;
    }
    return needed;
}

void tw_usb_pipe_cut(struct tw_usb_pipe *p, bool present) {
    pthread_mutex_lock(&p->lock);
    bool mark = needs_mark(p), empty = p->in.count == 0;
    clear(&p->in);
    clear(&p->out);
    if (!p->gone) {
        p->present = present;
        if (!empty) {
            tw_event_clear(p->base.fd);
        }
        if (mark) {
            put_in(p, NULL, 0);
        }
        p->seen = false;
    }
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void tw_usb_pipe_clear_out(struct tw_usb_pipe *p) {
    pthread_mutex_lock(&p->lock);
    clear(&p->out);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

bool tw_usb_pipe_gone(struct tw_usb_pipe *p) {
    pthread_mutex_lock(&p->lock);
    bool gone = p->gone;
    pthread_mutex_unlock(&p->lock);
    return gone;
}

void tw_usb_pipe_awake(struct tw_usb_pipe *p) {
    tw_event_clear(p->wake);
}
