/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's end of a link. Requests are assembled in slots, one for each credit; the executing
 * thread takes them in order and keeps each answer in a slot until the host has acknowledged it.
 * When a host goes, its unfinished requests are dropped, and the device is cleaned up (after CLOSE)
 * or reset (after anything else) before the next host is accepted.
 */
#include "firmware/serve/link_server_internal.h"

#include "firmware/link/packet.h"
#include "loader/base/assert.h"
#include "loader/base/clock.h"
#include "loader/base/event.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

void tw_link_server_sleep(uint32_t ms) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* ---- sending ---- */

static bool send_whole(struct tw_pipe *to, const uint8_t *bytes, size_t n, bool wait) {
    TW_ASSERT(n <= TW_PACKET_BYTES);
    for (;;) {
        enum tw_packet_result r = to->ops->send(to, bytes, n);
        if (r != TW_PACKET_AGAIN || !wait) {
            return r != TW_PACKET_GONE; /* without room it is lost; the host requests it again */
        }
        to->ops->wait(to, true, 200); /* the other thread hangs up to end this */
    }
}

static bool send_built(struct tw_link_server *s, struct tw_pipe *to, uint8_t *bytes, size_t n,
                       bool wait) {
    struct tw_faults_packet v = tw_faults_pass(s->faults, bytes, &n, true);
    if (v.late_ms) {
        tw_link_server_sleep(v.late_ms);
    }
    for (uint32_t i = 0; i < v.copies; i++) {
        if (!send_whole(to, bytes, n, wait)) {
            return false;
        }
    }
    return !v.vanish;
}

bool tw_link_server_send(struct tw_link_server *s, struct tw_pipe *to, struct tw_link_header *h,
                         const void *payload, uint32_t bytes) {
    uint8_t packet[TW_LINK_HEADER_BYTES + sizeof(struct tw_link_opened)];
    TW_ASSERT(bytes <= sizeof(struct tw_link_opened) && bytes <= to->chunk);
    const struct tw_packet_data data = {NULL, payload, bytes};
    h->flags = atomic_load_explicit(&s->check, memory_order_relaxed);
    return send_built(s, to, packet, tw_packet_build(h, &data, to->chunk, packet), false);
}

bool tw_link_server_send_answer(struct tw_link_server *s, struct tw_pipe *to,
                                struct tw_link_header *h, const struct slot *a, bool wait) {
    uint8_t packet[TW_PACKET_BYTES];
    TW_ASSERT(a->n >= TW_WIRE_HEADER_BYTES && a->n <= TW_LINK_MAX_MESSAGE);
    const struct tw_packet_data data = {a->bytes, a->bytes + TW_WIRE_HEADER_BYTES,
                                        a->n - TW_WIRE_HEADER_BYTES};
    bool connected = true;
    h->flags = atomic_load_explicit(&s->check, memory_order_relaxed);
    for (; connected && h->offset < a->n; h->offset += h->length) {
        connected = send_built(s, to, packet, tw_packet_build(h, &data, to->chunk, packet), wait);
    }
    return connected;
}

/* ---- executing ---- */

#define SHORT_BYTES 16384u

/* Cleans up after a host. If another has come and gone in the meantime, the caller repeats it. */
static void clean_up(struct tw_link_server *s) {
    enum cleanup cleanup = s->cleanup;
    TW_ASSERT(cleanup != CLEANUP_NONE && !s->executing && !s->sending);
    uint32_t departures = s->departures;
    char disconnect_reason[sizeof s->disconnect_reason];
    memcpy(disconnect_reason, s->disconnect_reason, sizeof disconnect_reason);
    pthread_mutex_unlock(&s->lock);
    struct tw_server *server = tw_emu_server(s->emu);
    if (cleanup == CLEANUP_RELEASE) {
        tw_server_release(server);
    } else {
        tw_server_reset(server);
        tw_server_log(server, disconnect_reason);
    }
    pthread_mutex_lock(&s->lock);
    TW_ASSERT(s->cleanup != CLEANUP_NONE);
    if (s->departures == departures) {
        tw_server_cancel(server, false);
        s->cleanup = CLEANUP_NONE;
    }
}

/* Delays a request as the fault plan says; a frozen request ends when its host has gone. */
static void follow_plan(struct tw_link_server *s, const struct tw_faults_request *v) {
    for (uint32_t ms = 0; ms < v->wait_ms; ms += 10) {
        tw_link_server_sleep(10);
        if (v->moving) {
            atomic_fetch_add_explicit(&s->progress, 1, memory_order_relaxed);
        }
    }
    pthread_mutex_lock(&s->lock);
    while (v->freeze && !s->quit && s->cleanup == CLEANUP_NONE) {
        if (v->flood) {
            tw_link_server_send_progress(s);
            pthread_mutex_unlock(&s->lock);
            tw_link_server_sleep(1);
            pthread_mutex_lock(&s->lock);
        } else {
            pthread_cond_wait(&s->work, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
}

/* Acts as after a watchdog reset: the host is still connected, but the device does not know it. */
static void forget_host(struct tw_link_server *s) {
    tw_server_reset(tw_emu_server(s->emu));
    pthread_mutex_lock(&s->lock);
    s->generation++;
    s->received = s->executed = s->acked = s->received_bytes = s->cancelled = 0;
    pthread_mutex_unlock(&s->lock);
}

static uint8_t opcode_of(const struct slot *request) {
    return request->bytes[TW_WIRE_AT_opcode];
}

/* Changes the first byte of the content that a KEEP has just kept. */
static void corrupt_content(struct tw_link_server *s, const struct slot *request,
                            const struct slot *answer) {
    uint8_t *kept = tw_emu_map(s->emu, TW_WIRE_GET(request->bytes, address), 1);
    if (kept && TW_WIRE_GET(answer->bytes, status) == 0) {
        *kept = (uint8_t)(*kept ^ 1);
    }
}

/* Executes request `number` and fills its answer slot. Called without the lock: both slots belong
 * to the executing thread until `executed` reaches their number. */
static void execute(struct tw_link_server *s, uint32_t number) {
    TW_ASSERT(number > 0);
    const struct slot *request = tw_link_server_slot(s->request, number),
                      *last = tw_link_server_slot(s->answer, number - 1);
    struct slot *answer = tw_link_server_slot(s->answer, number);
    struct tw_server_answer out;
    TW_ASSERT(request->n >= TW_WIRE_HEADER_BYTES && request->n <= TW_LINK_MAX_MESSAGE);
    struct tw_faults_request v = tw_faults_handle(s->faults, opcode_of(request));
    follow_plan(s, &v);
    if (v.reset) {
        forget_host(s);
        return;
    }
    tw_emu_handle(s->emu, request->bytes, request->bytes + TW_WIRE_HEADER_BYTES,
                  request->n - TW_WIRE_HEADER_BYTES, &out);
    TW_ASSERT(out.length <= TW_LINK_MAX_PAYLOAD && (out.payload || out.length == 0));
    memcpy(answer->bytes, out.header, TW_WIRE_HEADER_BYTES);
    if (out.length) {
        memcpy(answer->bytes + TW_WIRE_HEADER_BYTES, out.payload, out.length);
    }
    if (v.rot) {
        corrupt_content(s, request, answer);
    }
    struct tw_faults_answer sent = {answer->bytes, TW_WIRE_HEADER_BYTES + out.length};
    const struct tw_faults_answer before = {last->bytes, number > 1 ? last->n : 0};
    tw_faults_inject(s->faults, &sent, &before);
    TW_ASSERT(sent.n >= TW_WIRE_HEADER_BYTES && sent.n <= TW_LINK_MAX_MESSAGE);
    answer->n = sent.n;
}

/* Returns the program that a RUN names, or TW_NONE. */
static uint32_t program_of(const struct slot *request) {
    struct tw_wire_run q = {.program = TW_NONE};
    if (opcode_of(request) == TW_WIRE_RUN && request->n >= TW_WIRE_HEADER_BYTES + sizeof q) {
        memcpy(&q, request->bytes + TW_WIRE_HEADER_BYTES, sizeof q);
    }
    return q.program;
}

/* Executes the next request and sends its answer. wait: for room to send; otherwise packets that
 * find no room are lost, and the host requests them again. */
static void execute_next(struct tw_link_server *s, bool wait) {
    TW_ASSERT(tw_link_server_sound(s) && s->executed < s->received);
    TW_ASSERT(s->host && !s->executing && s->cleanup == CLEANUP_NONE);
    uint32_t number = s->executed + 1, generation = s->generation;
    const struct slot *request = tw_link_server_slot(s->request, number);
    s->executing = opcode_of(request) ? opcode_of(request) : 1u;
    s->program = program_of(request);
    tw_server_cancel(tw_emu_server(s->emu), number <= s->cancelled);
    pthread_mutex_unlock(&s->lock);
    execute(s, number);
    atomic_fetch_add_explicit(&s->progress, 1, memory_order_relaxed);
    pthread_mutex_lock(&s->lock);
    TW_ASSERT(s->executing);
    s->executing = 0;
    if (s->generation != generation || s->cleanup != CLEANUP_NONE || !s->host) {
        pthread_cond_broadcast(&s->work); /* only the cleanup still waits for it */
        return;
    }
    TW_ASSERT(s->executed == number - 1 && number <= s->received);
    s->executed = number;
    struct tw_link_header h = {
        .kind = TW_LINK_DATA, .generation = generation, .sequence = number, .ack = s->received};
    struct tw_pipe *to = s->host;
    TW_ASSERT(!s->sending);
    s->sending = true;
    pthread_mutex_unlock(&s->lock);
    bool connected =
        tw_link_server_send_answer(s, to, &h, tw_link_server_slot(s->answer, number), wait);
    pthread_mutex_lock(&s->lock);
    TW_ASSERT(s->sending && s->host == to); /* no host is detached during a send */
    s->sending = false;
    if (!connected) {
        to->ops->hang_up(to); /* the other thread notices and detaches the host */
    }
    pthread_cond_broadcast(&s->sent_all);
}

/* Returns true for requests that take less time than waking a thread. */
static bool is_short(const struct slot *request) {
    TW_ASSERT(request->n >= TW_WIRE_HEADER_BYTES);
    struct tw_wire_range range = {.bytes = UINT64_MAX};
    uint32_t payload = request->n - TW_WIRE_HEADER_BYTES;
    switch (opcode_of(request)) {
    case TW_WIRE_HELLO:
    case TW_WIRE_FREE:
    case TW_WIRE_EVENT:
    case TW_WIRE_COUNTERS:
    case TW_WIRE_LOG:
    case TW_WIRE_HEARTBEAT:
        return true;
    case TW_WIRE_WRITE:
        return payload <= SHORT_BYTES;
    case TW_WIRE_READ:
        memcpy(&range, request->bytes + TW_WIRE_HEADER_BYTES,
               payload == sizeof range ? sizeof range : 0);
        return range.bytes <= SHORT_BYTES;
    default:
        return false;
    }
}

bool tw_link_server_execute_short(struct tw_link_server *s) {
    bool idle = s->executed + 1 == s->received && !s->executing && !s->sending &&
                s->cleanup == CLEANUP_NONE;
    bool no_faults = !tw_faults_name(s->faults)[0]; /* a fault plan may delay any request */
    if (!idle || !no_faults || !is_short(tw_link_server_slot(s->request, s->received))) {
        return false;
    }
    execute_next(s, false);
    return true;
}

static void *run_executor(void *arg) {
    struct tw_link_server *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->quit) {
        if (s->cleanup != CLEANUP_NONE && !s->executing) {
            clean_up(s);
            tw_event_signal(s->news);
        } else if (s->executed != s->received && !s->executing) {
            execute_next(s, true);
        } else {
            pthread_cond_wait(&s->work, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- life ---- */

static int make_slots(struct tw_link_server *s) {
    for (uint32_t i = 0; i < TW_LINK_CREDITS; i++) {
        s->request[i].bytes = malloc(TW_LINK_MAX_MESSAGE); /* uses no memory before it is written */
        s->answer[i].bytes = malloc(TW_LINK_MAX_MESSAGE);
        if (!s->request[i].bytes || !s->answer[i].bytes) {
            return TW_E_NOMEM;
        }
    }
    return 0;
}

static void free_all(struct tw_link_server *s) {
    for (uint32_t i = 0; i < TW_LINK_CREDITS; i++) {
        free(s->request[i].bytes);
        free(s->answer[i].bytes);
    }
    tw_event_destroy(s->news);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->sent_all);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

int tw_link_server_create(struct tw_emu *emu, struct tw_faults *faults, struct tw_link_server **out,
                          tw_error *err) {
    struct tw_link_server *s = calloc(1, sizeof *s);
    if (!s) {
        return tw_fail(err, TW_E_NOMEM, "emulator: out of memory for its link");
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->sent_all, NULL);
    s->faults = faults;
    s->news = tw_event_create();
    if (make_slots(s)) {
        free_all(s);
        return tw_fail(err, TW_E_NOMEM, "emulator: out of memory for its link");
    }
    s->emu = emu;
    if (s->news < 0 || pthread_create(&s->executor, NULL, run_executor, s)) {
        free_all(s);
        return tw_fail(err, TW_E_INTERNAL,
                       "emulator: cannot create a thread or descriptor for its link");
    }
    *out = s;
    return 0;
}

/* "host 123 (tilewright) disconnected without CLOSE, 12 ms after its last PING, in RUN" */
static void write_disconnect_reason(struct tw_link_server *s) {
    static const char *const kind[TW_LINK_KIND_LIMIT] = {"packet",
#define TW_X(name, number, text) #name,
                                                         TW_LINK_KINDS(TW_X)
#undef TW_X
    };
    snprintf(s->disconnect_reason, sizeof s->disconnect_reason,
             "host %u (%.16s) disconnected without CLOSE, %llu ms after its last %s%s%s", s->pid,
             s->command, (unsigned long long)(tw_clock_ms() - s->last_packet_ms),
             kind[s->last_kind], s->executing ? ", in " : "",
             s->executing ? tw_wire_opcode_name(s->executing) : "");
}

void tw_link_server_detach(struct tw_link_server *s, enum cleanup cleanup) {
    struct tw_pipe *host = s->host;
    if (!host) {
        return;
    }
    host->ops->hang_up(host);
    while (s->sending) {
        pthread_cond_wait(&s->sent_all, &s->lock);
    }
    TW_ASSERT(s->host == host); /* only the caller's thread changes it */
    host->ops->close(host);
    s->host = NULL;
    s->departures++;
    s->cleanup = cleanup;
    s->was_dirty = cleanup == CLEANUP_RESET;
    write_disconnect_reason(s);
    s->received = s->executed = s->acked = s->received_bytes = s->cancelled = 0;
    tw_server_cancel(tw_emu_server(s->emu), true);
    struct tw_slow_kernels how;
    if (tw_faults_kernels(s->faults, &how)) {
        tw_slow_kernels_release();
    }
    TW_ASSERT(tw_link_server_sound(s));
    pthread_cond_broadcast(&s->work);
}

void tw_link_server_drop(struct tw_link_server *s) {
    pthread_mutex_lock(&s->lock);
    tw_link_server_detach(s, CLEANUP_RESET);
    pthread_mutex_unlock(&s->lock);
}

void tw_link_server_destroy(struct tw_link_server *s) {
    if (!s) {
        return;
    }
    tw_link_server_drop(s);
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->executor, NULL);
    TW_ASSERT(!s->host && !s->executing && !s->sending);
    tw_emu_destroy(s->emu);
    free_all(s);
}

/* ---- the caller's thread ---- */

int tw_link_server_news_fd(const struct tw_link_server *s) {
    return s->news;
}

int tw_link_server_host_fd(const struct tw_link_server *s) {
    return s->host ? s->host->fd : -1; /* only the caller's thread changes it */
}

static void describe(struct tw_link_server *s, struct tw_link_opened *out) {
    const struct tw_server_port *port = &tw_emu_server(s->emu)->port;
    memset(out, 0, sizeof *out);
    out->credits = TW_LINK_CREDITS;
    out->max_payload = TW_LINK_MAX_PAYLOAD;
    memcpy(out->target, port->target, sizeof out->target);
    memcpy(out->device, port->device, sizeof out->device);
    memcpy(out->faults, tw_faults_name(s->faults), strlen(tw_faults_name(s->faults)));
}

void tw_link_server_describe(struct tw_link_server *s, struct tw_link_opened *out) {
    pthread_mutex_lock(&s->lock);
    describe(s, out);
    if (s->host) {
        out->status = TW_E_DEVICE_BUSY;
        out->holder_pid = s->pid;
        memcpy(out->holder, s->command, sizeof out->holder);
    }
    pthread_mutex_unlock(&s->lock);
}

bool tw_link_server_send_opened(struct tw_link_server *s) {
    struct tw_link_opened o;
    TW_ASSERT(s->host && s->cleanup == CLEANUP_NONE);
    describe(s, &o);
    o.generation = s->generation;
    o.was_dirty = s->was_dirty;
    tw_faults_inject_opened(s->faults, &o);
    struct tw_link_header h = {.kind = TW_LINK_OPENED, .generation = s->generation};
    s->opened = true;
    return tw_link_server_send(s, s->host, &h, &o, sizeof o);
}

/* Keeps the host's command as printable text: a host may send any bytes. */
static void record_command(struct tw_link_server *s, const char *command) {
    size_t n = strnlen(command, sizeof s->command - 1);
    memset(s->command, 0, sizeof s->command);
    for (size_t i = 0; i < n; i++) {
        s->command[i] = command[i] < ' ' || command[i] > '~' ? '?' : command[i];
    }
}

bool tw_link_server_attach(struct tw_link_server *s, struct tw_pipe *host, uint32_t pid,
                           const char *command) {
    pthread_mutex_lock(&s->lock);
    bool free_now = !s->host;
    if (free_now) {
        TW_ASSERT(tw_link_server_sound(s) && host->chunk <= TW_LINK_CHUNK);
        tw_faults_new_host(s->faults);
        s->host = host;
        s->pid = pid;
        s->generation++;
        s->last_packet_ms = tw_clock_ms();
        s->last_kind = TW_LINK_OPEN;
        s->opened = s->close_received = s->resend_requested = false;
        record_command(s, command);
        if (s->cleanup == CLEANUP_NONE && !s->executing && !tw_link_server_send_opened(s)) {
            tw_link_server_detach(s, CLEANUP_RESET);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return free_now;
}

void tw_link_server_news(struct tw_link_server *s) {
    if (!tw_event_clear(s->news)) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    if (s->host && !s->opened && s->cleanup == CLEANUP_NONE && !tw_link_server_send_opened(s)) {
        tw_link_server_detach(s, CLEANUP_RESET);
    }
    pthread_mutex_unlock(&s->lock);
}
