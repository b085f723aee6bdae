/* SPDX-License-Identifier: Apache-2.0
 *
 * Greedy runs: a single request, with which the device chooses and feeds its own tokens. It is the
 * request of a step with a tail.
 */
#include "driver/session/session.h"

#include "loader/base/sized.h"
#include "loader/base/text_filter.h"

#include <string.h>

TW_STATIC_ASSERT(TW_GREEDY_MAX == TW_WIRE_MAX_TOKENS && TW_GREEDY_STOPS == TW_WIRE_MAX_STOPS,
                 "limits of greedy runs");
TW_STATIC_ASSERT(TW_ENDS_MAX <= TW_GREEDY_STOPS, "a greedy run can stop at every end of a text");

void tw_session_interrupt(tw_session *s) {
    if (s && !tw_session_check_reset(s, NULL)) { /* a reset has freed the word */
        atomic_store(s->interrupt, 1);
    }
}

bool tw_session_can_greedy(const struct tw_session *s) {
    uint32_t can = s->deployment->device->identity.capabilities;
    bool counts = can & TW_WIRE_CAN_COUNT || !s->window.room;
    return can & TW_WIRE_CAN_GREEDY && counts;
}

static int check(const struct tw_session *s, uint32_t id, const struct tw_greedy_options *o,
                 tw_error *err) {
    if (o->n == 0 || o->n > TW_GREEDY_MAX || o->n_stops > TW_GREEDY_STOPS) {
        return tw_fail(err, TW_E_USAGE,
                       "greedy run of %u tokens with %u stops: expected 1 to %u tokens and at most "
                       "%u stops",
                       o->n, o->n_stops, TW_GREEDY_MAX, TW_GREEDY_STOPS);
    }
    if (!tw_session_can_greedy(s)) {
        return tw_fail(err, TW_E_UNSUPPORTED, "device %s: does not support greedy runs",
                       s->deployment->device->selector);
    }
    return tw_session_check_feed(s, &id, 1, err);
}

/* Turns the request of a step into that of a run, and back (o NULL). */
static void set_request(const struct tw_session *s, struct session_program *p,
                        const struct tw_greedy_options *o) {
    struct tw_wire_run *run = (struct tw_wire_run *)(void *)p->request;
    run->n_steps = o ? o->n : 1;
    run->flags = o ? TW_WIRE_RUN_GREEDY : 0;
    if (o) {
        bool lists = p->n_choices && o->flags & TW_GREEDY_NO_LOGITS;
        run->flags |= lists ? TW_WIRE_RUN_CHOICE : 0;
        p->greedy->logits = lists ? p->choice_address : p->logits_address;
        p->greedy->n_vocab = lists ? p->n_choices : s->n_vocab;
        p->greedy->limit = s->n_ctx;
        p->greedy->abort = s->interrupt_address;
        p->greedy->n_stops = o->n_stops;
        memcpy(p->greedy->stop, o->stop, sizeof p->greedy->stop);
    }
}

/* Returns whether the answer is plausible: as many tokens as requested or as its reason allows,
 * inside the context and the vocabulary. */
static bool is_plausible(const struct tw_session *s, const struct tw_greedy_options *o) {
    const struct tw_wire_tokens *t = &s->tokens.head;
    bool may_be_none = t->ended == TW_WIRE_ENDED_ABORT || t->ended == TW_WIRE_ENDED_FAULT;
    bool good = t->n_tokens <= o->n && t->n_tokens <= s->n_ctx - s->position &&
                (t->n_tokens > 0 || may_be_none);
    for (uint32_t i = 0; good && i < t->n_tokens; i++) {
        good = s->tokens.id[i] < s->n_vocab;
    }
    return good;
}

static int call_device(struct tw_session *s, const struct tw_greedy_options *o, tw_error *err) {
    struct session_program *p = &s->executor->decode;
    struct tw_wire_failure failure = {.site = TW_NONE, .stage = TW_NONE};
    set_request(s, p, o);
    struct tw_device_call call = {
        .opcode = TW_WIRE_RUN,
        .payload = p->request,
        .bytes = (uint32_t)((uint8_t *)(p->greedy + 1) - p->request),
        .out = &s->tokens,
        .out_bytes = (uint32_t)(sizeof s->tokens.head + o->n * sizeof s->tokens.id[0]),
        .failure = &failure,
        .stop = s->stop};
    int code = tw_device_call(s->deployment->device, &call, err);
    set_request(s, p, NULL);
    code = code ? code : tw_bundle_intact(&s->deployment->decoder->bundle, err);
    if (!code && !is_plausible(s, o)) {
        code = tw_fail(err, TW_E_PROTOCOL,
                       "device %s: its answer to a run of %u tokens at position %u is invalid: %u "
                       "tokens, end reason %u",
                       s->deployment->device->selector, o->n, s->position, s->tokens.head.n_tokens,
                       s->tokens.head.ended);
    }
    return code && code != TW_E_TRUNCATED ? tw_session_explain(s, p, &failure, code, err) : code;
}

/* Explains non-finite logits of the step after the chosen tokens, whose input was `fed`. */
static int explain_numbers(struct tw_session *s, uint32_t fed, tw_error *err) {
    const struct session_program *program = &s->executor->decode;
    uint8_t *request = tw_session_set_inputs(s, program, 0, s->position, &fed, 1);
    return tw_session_explain_numbers(s, &program, &request, 1, err);
}

/* Sets *reason to why the run ended, or returns an error. `fed`: the input of the last step that
 * was begun. */
static int take_ended(struct tw_session *s, uint32_t fed, enum tw_stop_reason *reason,
                      tw_error *err) {
    struct tw_wire_failure *f = &s->tokens.head.failure;
    f->what[sizeof f->what - 1] = 0;
    tw_clean_text(f->what);
    switch ((enum tw_wire_ended)s->tokens.head.ended) {
    case TW_WIRE_ENDED_COUNT:
        *reason = TW_STOP_COUNT;
        return 0;
    case TW_WIRE_ENDED_STOP:
        *reason = TW_STOP_END;
        return 0;
    case TW_WIRE_ENDED_LIMIT:
        *reason = TW_STOP_CONTEXT;
        return 0;
    case TW_WIRE_ENDED_ABORT:
        *reason = TW_STOP_INTERRUPT;
        atomic_store(s->interrupt, 0);
        return 0;
    case TW_WIRE_ENDED_FAULT:
        break;
    }
    if (tw_session_was_cut(f)) {
        *reason = TW_STOP_INTERRUPT;
        return tw_session_explain(s, &s->executor->decode, f, TW_E_INTERRUPTED, err);
    }
    if (f->site == TW_NONE && strcmp(f->what, "NotFinite") == 0) {
        return explain_numbers(s, fed, err);
    }
    tw_error_set(err, TW_E_FAULT, "device %s: RUN: %s (have %llu, need %llu)",
                 s->deployment->device->selector, f->what, (unsigned long long)f->have,
                 (unsigned long long)f->need);
    return tw_session_explain(s, &s->executor->decode, f, TW_E_FAULT, err);
}

/* Sets the logits of the last step if the caller wants them or memory is shared. */
static int keep_logits(struct tw_session *s, const struct tw_greedy_options *o, tw_error *err) {
    bool unwanted = o->flags & TW_GREEDY_NO_LOGITS;
    s->logits = NULL;
    return unwanted && !s->executor->decode.logits_mapped
               ? 0
               : tw_session_fetch_logits(s, &s->executor->decode, err);
}

/* Checks the arguments and copies the options to *o. */
static int read_arguments(const struct tw_session *session, const void *options,
                          const uint32_t *tokens, const uint32_t *n_tokens,
                          const enum tw_stop_reason *reason, struct tw_greedy_options *o,
                          tw_error *err) {
    const char *const missing = !session    ? "session"
                                : !options  ? "options"
                                : !tokens   ? "tokens"
                                : !n_tokens ? "n_tokens"
                                : !reason   ? "reason"
                                            : NULL;
    if (missing) {
        return tw_fail(err, TW_E_USAGE, "tw_session_run_greedy: %s is NULL", missing);
    }
    int code = tw_sized_read("tw_session_run_greedy", o, sizeof *o, options, err);
    return code ? code
                : tw_known_flags("tw_session_run_greedy", o->flags, TW_GREEDY_NO_LOGITS, err);
}

/* Takes the pages that the run can need, and gives those back that it does not. */
static int run(struct tw_session *s, uint32_t id, const struct tw_greedy_options *o,
               uint32_t *tokens, uint32_t *n_tokens, enum tw_stop_reason *reason, tw_error *err) {
    struct session_program *p = &s->executor->decode;
    uint32_t left = s->n_ctx - s->position, most = o->n < left ? o->n : left;
    int code = tw_session_own_pages(s, s->position, s->position + most, err);
    if (code) {
        return code;
    }
    code = tw_executor_mend(s->executor, p, err);
    code = code ? code : tw_session_write_table(s, p->table[0], err);
    code = code ? code : tw_session_slide(s, s->position, s->position + most, err);
    if (code) { /* nothing has run */
        tw_session_drop_pages(s, s->position);
        return code;
    }
    tw_session_set_inputs(s, p, 0, s->position, &id, 1);
    code = call_device(s, o, err);
    if (!code) {
        uint32_t n = s->tokens.head.n_tokens; /* each of them took a step */
        memcpy(tokens, s->tokens.id, n * sizeof *tokens);
        *n_tokens = n;
        if (n) { /* the last one was not fed */
            s->ids[s->position] = id;
            memcpy(s->ids + s->position + 1, tokens, (n - 1) * sizeof *tokens);
        }
        s->position += n;
        s->steps += n;
        tw_session_report(s, n, n, false);
        code = take_ended(s, n ? tokens[n - 1] : id, reason, err);
    }
    if (!code && *n_tokens > 0) {
        code = keep_logits(s, o, err);
    }
    tw_session_drop_pages(s, s->position);
    return code ? tw_session_break(s, code, err) : 0;
}

int tw_session_run_greedy(tw_session *s, uint32_t id, const struct tw_greedy_options *options,
                          uint32_t *tokens, uint32_t *n_tokens, enum tw_stop_reason *reason,
                          tw_error *err) {
    struct tw_greedy_options o;
    int code = read_arguments(s, options, tokens, n_tokens, reason, &o, err);
    if (code) {
        return code;
    }
    *n_tokens = 0;
    code = check(s, id, &o, err);
    if (code) {
        return code;
    }
    code = tw_session_restore_window(s, err);
    if (code) {
        return code;
    }
    if (atomic_exchange(s->interrupt, 0) || tw_session_stopped(s)) {
        *reason = TW_STOP_INTERRUPT;
        return 0;
    }
    pthread_mutex_lock(&s->executor->lock);
    code = run(s, id, &o, tokens, n_tokens, reason, err);
    pthread_mutex_unlock(&s->executor->lock);
    return code;
}
