/* SPDX-License-Identifier: Apache-2.0
 *
 * The server's RUN: writes the inputs, then runs steps. A greedy run continues by itself: it
 * chooses each step's likeliest token and makes it the next step's input, so that many tokens need
 * one request.
 */
#include "firmware/core/bind.h"
#include "firmware/core/server/server.h"
#include "loader/base/assert.h"
#include "tilewright/numerics.h"
#include "tilewright/range.h"

#include <stdatomic.h>

/* A RUN request and its decoded parts. */
struct run {
    struct tw_server *server;
    struct tw_server_program *program;
    struct tw_wire_run q;
    struct tw_wire_input in[TW_WIRE_MAX_INPUTS];
    struct tw_wire_greedy greedy;
};

static void *map(const struct run *r, uint64_t address) {
    return r->server->port.map(r->server->port.ctx, address);
}

/* ---- the request ---- */

static int check_program(struct run *r) {
    struct tw_server *server = r->server;
    if (r->q.program >= TW_SERVER_PROGRAMS || !server->programs[r->q.program].used) {
        return tw_server_refuse(server, TW_E_RANGE, "no such program", r->q.program, 0);
    }
    r->program = &server->programs[r->q.program];
    if (r->program->broken) {
        return tw_server_refuse(server, TW_E_FAULT,
                                r->program->cut
                                    ? "a step of the program was cancelled; it must be loaded again"
                                    : "the program has faulted and must be loaded again",
                                r->program->steps, 0);
    }
    if (r->q.scheduler >= TW_SCHED_COUNT) {
        return tw_server_refuse(server, TW_E_UNSUPPORTED, "unknown scheduler", r->q.scheduler,
                                TW_SCHED_COUNT - 1);
    }
    bool known = r->q.flags == 0 || r->q.flags == TW_WIRE_RUN_GREEDY ||
                 r->q.flags == TW_WIRE_RUN_CHECK ||
                 r->q.flags == (TW_WIRE_RUN_GREEDY | TW_WIRE_RUN_CHOICE);
    return known ? 0
                 : tw_server_refuse(server, TW_E_UNSUPPORTED,
                                    "RUN: flags that this device does not know", r->q.flags,
                                    TW_WIRE_RUN_GREEDY);
}

/* Decodes the parts after the request's head. *data: offset of the inputs' bytes. */
static int parse(struct run *r, const struct tw_server_request *request, uint64_t *data) {
    struct tw_server *server = r->server;
    uint64_t at = sizeof r->q + (uint64_t)r->q.n_inputs * sizeof r->in[0],
             length = request->header.length;
    if (r->q.n_inputs > TW_WIRE_MAX_INPUTS || at > length) {
        return tw_server_refuse(server, TW_E_PROTOCOL, "too many inputs of a run", r->q.n_inputs,
                                TW_WIRE_MAX_INPUTS);
    }
    memcpy(r->in, request->payload + sizeof r->q, r->q.n_inputs * sizeof r->in[0]);
    *data = at;
    for (uint32_t i = 0; i < r->q.n_inputs; i++) {
        const struct tw_server_allocation *a =
            tw_server_find(server, r->in[i].address, r->in[i].bytes);
        if (!a || a->adopted || a->frozen || a->kept) {
            return tw_server_refuse(server, TW_E_RANGE, "input outside writable memory",
                                    r->in[i].address, r->in[i].bytes);
        }
        at += r->in[i].bytes;
    }
    bool greedy = r->q.flags & TW_WIRE_RUN_GREEDY;
    at = greedy ? (at + 7) / 8 * 8 : at;
    if (at + (greedy ? sizeof r->greedy : 0) != length) {
        return tw_server_refuse(server, TW_E_PROTOCOL, "payload length does not match the inputs",
                                length, at);
    }
    if (greedy) {
        memcpy(&r->greedy, request->payload + at, sizeof r->greedy);
    }
    return 0;
}

static bool is_input(const struct run *r, uint32_t input) {
    return input < r->q.n_inputs && r->in[input].bytes >= 4;
}

static int check_greedy(const struct run *r) {
    const struct tw_wire_greedy *g = &r->greedy;
    struct tw_server *server = r->server;
    if (r->q.n_steps == 0 || r->q.n_steps > TW_WIRE_MAX_TOKENS || g->n_stops > TW_WIRE_MAX_STOPS) {
        return tw_server_refuse(server, TW_E_PROTOCOL,
                                "RUN: too many tokens or stop ids, or no tokens", r->q.n_steps,
                                TW_WIRE_MAX_TOKENS);
    }
    if (!is_input(r, g->ids) || (g->pos != TW_NONE && !is_input(r, g->pos)) ||
        (g->end != TW_NONE && !is_input(r, g->end))) {
        return tw_server_refuse(server, TW_E_PROTOCOL,
                                "a greedy run names an input that it does not have", g->ids,
                                r->q.n_inputs);
    }
    for (uint32_t i = 0; i < r->q.n_inputs; i++) {
        if ((r->in[i].flags & TW_WIRE_INPUT_COUNTS) && !is_input(r, i)) {
            return tw_server_refuse(server, TW_E_PROTOCOL, "an input that counts has no word", i,
                                    r->in[i].bytes);
        }
    }
    uint64_t bytes = r->q.flags & TW_WIRE_RUN_CHOICE ? sizeof(struct tw_top) : sizeof(float);
    if (g->n_vocab == 0 || g->logits % 4 != 0 ||
        !tw_server_find(server, g->logits, g->n_vocab * bytes)) {
        return tw_server_refuse(server, TW_E_RANGE, "logits outside allocated memory", g->logits,
                                g->n_vocab);
    }
    if (g->abort % 4 != 0 || (g->abort != 0 && !tw_server_find(server, g->abort, 4))) {
        return tw_server_refuse(server, TW_E_RANGE, "abort word outside allocated memory", g->abort,
                                4);
    }
    return 0;
}

static void write_inputs(const struct run *r, const uint8_t *data) {
    TW_ASSERT(r->q.n_inputs <= TW_WIRE_MAX_INPUTS);
    for (uint32_t i = 0; i < r->q.n_inputs; i++) {
        memcpy(map(r, r->in[i].address), data, r->in[i].bytes);
        data += r->in[i].bytes;
    }
}

/* ---- steps ---- */

static bool is_fault(const struct tw_fault *fault, const char *name) {
    for (size_t i = 0; fault->what && fault->what[i] == name[i]; i++) {
        if (name[i] == 0) {
            return true;
        }
    }
    return false;
}

/* Returns true if the program can run another step after this fault. A step that was refused when
 * its trips were latched has run nothing. A plan can also start again after a number that is not
 * finite; a strict machine is in the middle of its step. */
static bool is_whole(const struct tw_server_program *p, const struct tw_fault *fault) {
    return is_fault(fault, "InputRange") || is_fault(fault, "PageOutOfRange") ||
           is_fault(fault, "PageShared") || (p->plan && is_fault(fault, "NotFinite"));
}

static int run_machine(const struct run *r, struct tw_fault *fault) {
    struct tw_server_program *p = r->program;
    TW_ASSERT(p->used && !p->broken && !p->strict == (p->mode == TW_WIRE_FAST));
    memset(fault, 0, sizeof *fault);
    if (p->mode == TW_WIRE_STRICT) {
        /* the random scheduler gets another seed in each step; the others keep theirs */
        uint64_t seed = r->q.seed + (r->q.scheduler == TW_SCHED_RANDOM ? p->steps : 0);
        tw_strict_check_numbers(p->strict, r->q.flags & TW_WIRE_RUN_CHECK);
        int code = tw_strict_step(p->strict, (enum tw_scheduler)r->q.scheduler, seed, fault);
        atomic_store_explicit(&r->server->watch.site, TW_NONE, memory_order_relaxed);
        return code;
    }
    if (r->q.flags & TW_WIRE_RUN_CHECK) {
        return tw_plan_check_numbers(p->plan, fault);
    }
    int code = tw_plan_begin(p->plan, fault);
    if (!code) {
        r->server->port.run(r->server->port.ctx, p->plan, p->n_threads);
        if (tw_plan_was_cut(p->plan)) {
            fault->site = fault->engine = fault->op_index = fault->stage = TW_NONE;
            code = tw_fault_cancelled(fault);
        }
    }
    return code;
}

/* Describes a fault in *failure, counts it and posts it as an event. Returns its code. A cancelled
 * step is neither counted nor posted: whoever cancelled it knows. */
static int record_fault(const struct run *r, const struct tw_fault *fault,
                        struct tw_wire_failure *failure) {
    int code = tw_server_fault(failure, r->q.program, fault);
    if (code != TW_E_INTERRUPTED) {
        r->server->counters.faults++;
        tw_server_post_event(r->server, TW_WIRE_EVENT_FAULT, failure);
    }
    return code;
}

static int step(const struct run *r, struct tw_wire_failure *failure) {
    struct tw_server *server = r->server;
    struct tw_server_program *p = r->program;
    struct tw_fault fault;
    if (run_machine(r, &fault)) {
        p->broken = !is_whole(p, &fault);
        p->cut = fault.code == TW_E_INTERRUPTED;
        return record_fault(r, &fault, failure);
    }
    p->steps++;
    server->progress++;
    tw_server_tick(server);
    server->counters.steps++;
    server->counters.ops += p->strict ? tw_strict_ops(p->strict) : 0;
    return 0;
}

static int run_steps(const struct run *r, struct tw_server_request *request) {
    struct tw_wire_done *a = &r->server->answer.done;
    for (uint32_t i = 0; i < r->q.n_steps; i++) {
        if (tw_cancelled(&r->server->cancel)) {
            return tw_server_refuse(r->server, TW_E_INTERRUPTED, "cancelled before the step began",
                                    i, r->q.n_steps);
        }
        int code = step(r, &r->server->answer.failure);
        if (code) {
            return code;
        }
    }
    a->steps = r->program->steps;
    a->ops = r->program->strict ? tw_strict_ops(r->program->strict) : 0;
    request->out = a;
    request->out_bytes = sizeof *a;
    return 0;
}

/* ---- greedy runs ---- */

static uint32_t get_input(const struct run *r, uint32_t input) {
    uint32_t value;
    TW_ASSERT(is_input(r, input));
    memcpy(&value, map(r, r->in[input].address), sizeof value);
    return value;
}

static void set_input(const struct run *r, uint32_t input, uint32_t value) {
    TW_ASSERT(is_input(r, input));
    memcpy(map(r, r->in[input].address), &value, sizeof value);
}

static void feed_back(const struct run *r, uint32_t id) {
    set_input(r, r->greedy.ids, id);
    for (uint32_t i = 0; i < r->q.n_inputs; i++) {
        if (r->in[i].flags & TW_WIRE_INPUT_COUNTS) {
            set_input(r, i, get_input(r, i) + 1);
        }
    }
    if (r->greedy.pos != TW_NONE) {
        set_input(r, r->greedy.pos, get_input(r, r->greedy.pos) + 1);
    }
    if (r->greedy.end != TW_NONE) {
        set_input(r, r->greedy.end, get_input(r, r->greedy.end) + 1);
    }
}

static bool is_stop(const struct tw_wire_greedy *g, uint32_t id) {
    for (uint32_t i = 0; i < g->n_stops; i++) {
        if (g->stop[i] == id) {
            return true;
        }
    }
    return false;
}

static bool aborted(const struct run *r) {
    if (tw_cancelled(&r->server->cancel)) {
        return true;
    }
    return r->greedy.abort &&
           atomic_load_explicit((_Atomic uint32_t *)map(r, r->greedy.abort), memory_order_relaxed);
}

/* Chooses the first of all entries of the lists. Returns the index of what is not finite, or n. */
static uint32_t choose_of_lists(const struct tw_top *list, uint32_t n, uint32_t *id) {
    uint32_t at = tw_top_first(list, n);
    if (at == n) {
        return 0; /* all are missing */
    }
    *id = list[at].id;
    return tw_first_not_finite(&list[at].value, 1) ? n : at;
}

/* The same of all logits. */
static uint32_t choose_of_logits(const float *logits, uint32_t n, uint32_t *id) {
    uint32_t bad = tw_first_not_finite(logits, n);
    *id = bad < n ? 0 : tw_argmax(logits, n);
    return bad;
}

/* Runs one step and chooses its token. Returns false on a fault. */
static bool next_token(const struct run *r, uint32_t *id) {
    struct tw_wire_failure *failure = &r->server->tokens.head.failure;
    if (step(r, failure)) {
        return false;
    }
    const void *from = map(r, r->greedy.logits);
    uint32_t n = r->greedy.n_vocab, bad = r->q.flags & TW_WIRE_RUN_CHOICE
                                              ? choose_of_lists(from, n, id)
                                              : choose_of_logits(from, n, id);
    if (bad < n) {
        struct tw_fault fault = {.code = TW_E_FAULT,
                                 .what = "NotFinite",
                                 .site = TW_NONE,
                                 .engine = TW_NONE,
                                 .op_index = TW_NONE,
                                 .stage = TW_NONE,
                                 .object = TW_NONE,
                                 .have = bad,
                                 .need = n};
        record_fault(r, &fault, failure);
        return false;
    }
    return true;
}

static enum tw_wire_ended generate(const struct run *r, uint32_t *ids, uint32_t *n) {
    const struct tw_wire_greedy *g = &r->greedy;
    for (*n = 0;; feed_back(r, ids[*n - 1])) {
        if (aborted(r)) {
            return TW_WIRE_ENDED_ABORT;
        }
        if (g->pos != TW_NONE && get_input(r, g->pos) >= g->limit) {
            return TW_WIRE_ENDED_LIMIT;
        }
        TW_ASSERT(*n < r->q.n_steps && *n < TW_WIRE_MAX_TOKENS);
        if (!next_token(r, &ids[*n])) {
            return TW_WIRE_ENDED_FAULT;
        }
        if (is_stop(g, ids[(*n)++])) {
            return TW_WIRE_ENDED_STOP;
        }
        if (*n == r->q.n_steps) {
            return TW_WIRE_ENDED_COUNT;
        }
    }
}

static int run_greedy(const struct run *r, struct tw_server_request *request) {
    struct tw_server *server = r->server;
    struct tw_wire_tokens *a = &server->tokens.head;
    memset(&server->tokens, 0, sizeof server->tokens);
    a->ended = generate(r, server->tokens.id, &a->n_tokens);
    a->steps = r->program->steps;
    a->ops = r->program->strict ? tw_strict_ops(r->program->strict) : 0;
    TW_ASSERT(a->n_tokens <= r->q.n_steps && r->q.n_steps <= TW_WIRE_MAX_TOKENS);
    memset(server->tokens.id + a->n_tokens, 0xFF,
           (TW_WIRE_MAX_TOKENS - a->n_tokens) * sizeof server->tokens.id[0]);
    request->out = a;
    request->out_bytes = (uint32_t)(sizeof *a + r->q.n_steps * sizeof server->tokens.id[0]);
    return 0;
}

int tw_server_run(struct tw_server *server, struct tw_server_request *request) {
    struct run r;
    uint64_t data = 0;
    memset(&r, 0, sizeof r);
    r.server = server;
    memcpy(&r.q, request->payload, sizeof r.q);
    bool greedy = r.q.flags & TW_WIRE_RUN_GREEDY;
    int code = check_program(&r);
    code = code ? code : parse(&r, request, &data);
    code = code || !greedy ? code : check_greedy(&r);
    if (code) {
        return code; /* nothing has been written */
    }
    write_inputs(&r, request->payload + data);
    return greedy ? run_greedy(&r, request) : run_steps(&r, request);
}
