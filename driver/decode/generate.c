/* SPDX-License-Identifier: Apache-2.0
 *
 * The decode loop: feeds the prompt, then samples, reports and feeds back one token at a time; or,
 * for greedy tokens whose logits are not wanted, has the device choose and feed several at a time.
 * Text goes through a stream that holds back an incomplete character.
 */
#include "driver/decode/sampler.h"
#include "driver/decode/stop_text.h"
#include "driver/session/session.h"
#include "driver/tokenizer/utf8_stream.h"
#include "loader/base/clock.h"
#include "loader/base/sized.h"
#include "loader/base/stop.h"

#include <stdlib.h>

/* Maximum seconds and tokens of one greedy run on the device, so that text appears smoothly and an
 * interrupt takes effect. */
#define RUN_S 0.03
#define RUN_TOKENS 16u

struct loop {
    struct tw_session *session;
    const struct tw_generate_options *o;
    struct tw_sampler sampler;
    struct tw_generate_result r;
    double start;
    uint32_t last;   /* the token chosen last */
    bool begin_text; /* at the beginning of the text: drop the space that the tokenizer added */
    bool on_device;  /* the device chooses tokens */
    struct tw_stop_text stop_text;
    uint32_t *window; /* what stays of a full context; NULL: generation ends there */
    uint32_t n_sink;  /* the first tokens of it, that always stay */
    bool found;       /* the text came to a stop text */
    bool refused;     /* on_text wanted to stop: it gets no more */
};

static bool interrupted(const struct loop *l) {
    return tw_session_stopped(l->session) || tw_stopped(l->o->stop);
}

/* In options 0 means the default, which is 1 for these. */
static float or_1(float f) {
    return f != 0.0f ? f : 1.0f;
}

static int init_sampler(struct loop *l, tw_error *err) {
    struct tw_sampler_params p = {.size = sizeof p,
                                  .temperature = l->o->temperature,
                                  .top_k = l->o->top_k,
                                  .top_p = or_1(l->o->top_p),
                                  .min_p = l->o->min_p,
                                  .seed = l->o->seed,
                                  .typical = or_1(l->o->typical),
                                  .repeat_penalty = or_1(l->o->repeat_penalty),
                                  .presence_penalty = l->o->presence_penalty,
                                  .frequency_penalty = l->o->frequency_penalty,
                                  .repeat_last_n = l->o->repeat_last_n ? l->o->repeat_last_n : 64,
                                  .bias = l->o->logit_bias,
                                  .n_bias = l->o->n_logit_bias};
    if (p.repeat_last_n > l->session->n_ctx) {
        p.repeat_last_n = l->session->n_ctx;
    }
    return tw_sampler_init(&l->sampler, &p, l->session->n_vocab, err);
}

/* Sets the reason that goes with the code of a step. */
static int record_reason(struct loop *l, int code) {
    l->r.reason = code == TW_E_CONTEXT_FULL  ? TW_STOP_CONTEXT
                  : code == TW_E_INTERRUPTED ? TW_STOP_INTERRUPT
                                             : l->r.reason;
    return code;
}

/* ---- a full context ---- */

/* How many tokens stay. */
static uint32_t window_of(const struct tw_session *s) {
    return s->n_ctx / 2;
}

static int init_window(struct loop *l, tw_error *err) {
    const struct tw_session *s = l->session;
    const struct tw_generate_options *o = l->o;
    if (o->on_full > TW_FULL_SINK || (o->n_sink && o->on_full != TW_FULL_SINK)) {
        return tw_fail(err, TW_E_USAGE, "tw_generate: %s",
                       o->on_full > TW_FULL_SINK ? "on_full is none of enum tw_on_full"
                                                 : "n_sink is for TW_FULL_SINK only");
    }
    l->n_sink = o->on_full != TW_FULL_SINK ? 0 : o->n_sink ? o->n_sink : 4;
    if (o->on_full == TW_FULL_STOP) {
        return 0;
    }
    if (l->n_sink >= window_of(s)) {
        return tw_fail(err, TW_E_USAGE,
                       "tw_generate: of a full context of %u positions %u stay, which must be more "
                       "than the %u first ones that are always kept; use a larger context",
                       s->n_ctx, window_of(s), l->n_sink);
    }
    l->window = malloc(window_of(s) * sizeof *l->window);
    return l->window ? 0 : tw_fail(err, TW_E_NOMEM, "tw_generate: out of memory");
}

/* Sees to it that a token can be fed, if the options say so. What stays is fed again, from position
 * 0 on: keys and values depend on positions, and those of later layers on all tokens before. */
static int make_room(struct loop *l, tw_error *err) {
    struct tw_session *s = l->session;
    if (!l->window || s->position < s->n_ctx) {
        return 0;
    }
    uint32_t n = window_of(s), newest = n - l->n_sink;
    memcpy(l->window, s->ids, l->n_sink * sizeof *s->ids);
    memcpy(l->window + l->n_sink, s->ids + s->position - newest, newest * sizeof *s->ids);
    l->r.n_windows++;
    l->r.n_dropped += s->position - n;
    tw_session_drop_tokens(s, 0);
    return tw_session_feed(s, l->window, n, err);
}

/* ---- the prompt ---- */

static void report_prompt(struct loop *l, uint32_t more, size_t total) {
    l->r.n_prompt += more;
    if (more && l->o->on_prompt) {
        l->o->on_prompt(l->o->ctx, l->r.n_prompt, (uint32_t)total);
    }
}

/* Feeds what of the prompt fits a part, and the context. */
static int feed_some(struct loop *l, const uint32_t *ids, size_t n, size_t *taken, tw_error *err) {
    struct tw_session *s = l->session;
    size_t part = s->chunk > 16 ? s->chunk : 16;
    int code = make_room(l, err);
    *taken = n < part ? n : part;
    if (!code && l->window && *taken > s->n_ctx - s->position) {
        *taken = s->n_ctx - s->position;
    }
    return code ? code : tw_session_feed_part(s, ids, *taken, err);
}

/* Feeds the prompt, in parts, so that an interrupt takes effect between them. */
static int feed_prompt(struct loop *l, const uint32_t *ids, size_t n, tw_error *err) {
    struct tw_session *s = l->session;
    size_t room = s->n_ctx - s->position, total = n, first = l->window && n > room ? room : n, m;
    if (first) { /* a prompt that is not allowed is refused as a whole */
        int code = tw_session_check_feed(s, ids, first, err);
        if (code) {
            return record_reason(l, code);
        }
        l->r.n_reused = tw_session_take_prefix(s, ids, first);
    }
    report_prompt(l, l->r.n_reused, total);
    for (size_t at = l->r.n_reused; at < n; at += m) {
        if (interrupted(l)) {
            l->r.reason = TW_STOP_INTERRUPT;
            return tw_fail(err, TW_E_INTERRUPTED, "interrupted after %u tokens of the prompt",
                           l->r.n_prompt);
        }
        int code = feed_some(l, ids + at, n - at, &m, err);
        if (code) {
            return record_reason(l, code);
        }
        report_prompt(l, (uint32_t)m, total);
    }
    tw_session_leave_prefix(s, false);
    return 0;
}

static int pass_text(void *ctx, const char *text, size_t n) {
    struct loop *l = ctx;
    int stopped = l->o->on_text ? l->o->on_text(l->o->ctx, text, n) : 0;
    l->refused = l->refused || stopped;
    return stopped;
}

/* Text on its way to the caller, who gets it once it cannot begin a stop text any more. */
static int check_text(void *ctx, const char *text, size_t n) {
    struct loop *l = ctx;
    if (l->o->n_stop_texts == 0) {
        return pass_text(l, text, n);
    }
    int stopped = tw_stop_text_push(&l->stop_text, text, n, pass_text, l, &l->found);
    return l->found ? 1 : stopped;
}

static bool wants_text(const struct loop *l) {
    return l->o->on_text || l->o->n_stop_texts;
}

/* Passes a token to the callbacks. Returns true if one of them wants to stop. */
static bool pass_on(struct loop *l, uint32_t id) {
    const float *logits = l->o->flags & TW_GENERATE_NO_LOGITS ? NULL : l->session->logits;
    if (l->o->on_token && l->o->on_token(l->o->ctx, id, logits)) {
        return true;
    }
    const struct tw_tokenizer *tok = l->session->deployment->decoder->tokenizer;
    const char *bytes;
    size_t n;
    unsigned flags = (l->o->flags & TW_GENERATE_PRINT_SPECIAL ? TW_PIECE_SPECIAL : 0u) |
                     (l->begin_text ? TW_PIECE_FIRST : 0u);
    l->begin_text = false;
    if (!wants_text(l) || !tok || tw_tokenizer_piece(tok, id, flags, &bytes, &n, NULL)) {
        return false;
    }
    return tw_utf8_push(&l->session->text.utf8, bytes, n, check_text, l) != 0;
}

static bool ends_text(const struct loop *l, uint32_t id) {
    const struct tw_tokenizer *tok = l->session->deployment->decoder->tokenizer;
    return tok && !(l->o->flags & TW_GENERATE_IGNORE_EOS) && tw_tokenizer_is_end(tok, id);
}

/* Counts and passes on a chosen token. Returns true if generation ends with it; *code is then the
 * result. */
static bool take(struct loop *l, uint32_t id, int *code, tw_error *err) {
    *code = 0;
    if (l->r.n_generated == 0) {
        l->r.first_token_s = tw_clock_s() - l->start;
    }
    if (ends_text(l, id)) {
        l->r.reason = TW_STOP_END;
        return true;
    }
    l->r.n_generated++;
    l->last = id;
    bool stop = pass_on(l, id);
    if (stop || (l->o->n_predict && l->r.n_generated == l->o->n_predict)) {
        l->r.reason = l->found ? TW_STOP_TEXT : stop ? TW_STOP_CALLBACK : TW_STOP_COUNT;
        return true;
    }
    if (interrupted(l)) {
        l->r.reason = TW_STOP_INTERRUPT;
        *code = tw_fail(err, TW_E_INTERRUPTED, "interrupted after %u tokens", l->r.n_generated);
        return true;
    }
    return false;
}

/* ---- tokens that the device chooses ---- */

static void list_stops(const struct loop *l, struct tw_greedy_options *o) {
    if (!(l->o->flags & TW_GENERATE_IGNORE_EOS)) {
        o->n_stops = tw_decoder_ends(l->session->deployment->decoder, o->stop);
    }
}

/* Returns the number of tokens of the next run, if the last one had `last` tokens of `token_s`
 * seconds each. */
static uint32_t next_count(const struct loop *l, uint32_t last, double token_s) {
    uint32_t n = last * token_s * 2 <= RUN_S ? last * 2
                 : RUN_S > token_s           ? (uint32_t)(RUN_S / token_s)
                                             : 1;
    n = n < RUN_TOKENS ? n : RUN_TOKENS;
    uint32_t left = l->o->n_predict ? l->o->n_predict - l->r.n_generated : n;
    return n < left ? n : left;
}

/* Takes the tokens of a run. The device may have fed more than are wanted; the session is then
 * rewound to before the surplus. */
static bool take_run(struct loop *l, const uint32_t *ids, uint32_t n, int *code, tw_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        if (take(l, ids[i], code, err)) {
            uint32_t surplus = n - 1 - i;
            if (surplus > 0) {
                tw_session_drop_tokens(l->session, l->session->position - surplus);
            }
            return true;
        }
    }
    return false;
}

/* Generates in greedy runs on the device. `id`: the token chosen last. */
static int generate_on_device(struct loop *l, uint32_t id, tw_error *err) {
    struct tw_greedy_options o = {.size = sizeof o, .n = 1, .flags = TW_GREEDY_NO_LOGITS};
    list_stops(l, &o);
    for (;;) {
        uint32_t ids[RUN_TOKENS], n;
        enum tw_stop_reason reason = TW_STOP_COUNT;
        double begin = tw_clock_s();
        tw_error fault = {0};
        int taken, code = make_room(l, &fault);
        n = 0;
        code = code ? code : tw_session_run_greedy(l->session, id, &o, ids, &n, &reason, &fault);
        double run_s = tw_clock_s() - begin;
        if (take_run(l, ids, n, &taken, err)) {
            if (code == TW_E_INTERRUPTED) {
                tw_error_append(err, ", in the middle of a step; create a new session to continue");
            }
            return taken;
        }
        if (code) {
            return record_reason(l, tw_fail(err, code, "%s", fault.message));
        }
        if (reason == TW_STOP_INTERRUPT) {
            l->r.reason = reason;
            return tw_fail(err, TW_E_INTERRUPTED, "interrupted after %u tokens", l->r.n_generated);
        }
        id = ids[n - 1];
        o.n = next_count(l, n, run_s / n);
    }
}

/* ---- tokens that the host chooses ---- */

static int generate(struct loop *l, tw_error *err) {
    for (;;) {
        uint32_t id;
        const struct tw_session *s = l->session;
        int code = s->lists ? tw_sampler_sample_lists(&l->sampler, s->lists, s->n_lists, &id, err)
                            : tw_sampler_sample(&l->sampler, s->logits, &id, err);
        if (code || take(l, id, &code, err)) {
            return code;
        }
        tw_sampler_accept(&l->sampler, id);
        if (l->on_device) {
            return generate_on_device(l, id, err);
        }
        code = make_room(l, err);
        code = code ? code : tw_session_feed(l->session, &id, 1, err);
        if (code) {
            return record_reason(l, code);
        }
    }
}

/* ---- characters across calls ---- */

/* Continues an incomplete character of the previous call, if the prompt is the token that call
 * ended with; else ends that character and begins a new text. */
static void begin_text(struct loop *l, const uint32_t *prompt, size_t n_prompt) {
    struct session_text *t = &l->session->text;
    bool continues = n_prompt == 1 && prompt[0] == t->id && l->session->position == t->position;
    if (continues) {
        return;
    }
    if (l->o->on_text) {
        tw_utf8_flush(&t->utf8, pass_text, l);
    }
    memset(&t->utf8, 0, sizeof t->utf8);
}

/* Flushes an incomplete character if the text is over, at its end or because nothing can follow;
 * keeps it if the next call may continue the text. */
static void end_text(struct loop *l, int code) {
    struct session_text *t = &l->session->text;
    bool cut = l->r.reason != TW_STOP_END && (code == 0 || code == TW_E_INTERRUPTED);
    t->id = l->last;
    t->position = l->session->position;
    if (!cut && wants_text(l)) {
        tw_utf8_flush(&t->utf8, check_text, l);
    }
    if (!l->found && !l->refused) {
        tw_stop_text_flush(&l->stop_text, pass_text, l);
    }
}

/* Shows the sampler the tokens before the text. */
static void look_back(struct loop *l, const uint32_t *prompt, size_t n_prompt) {
    for (uint32_t i = 0; i < l->o->n_history; i++) {
        tw_sampler_accept(&l->sampler, l->o->history[i]);
    }
    for (size_t i = 0; i < n_prompt; i++) {
        tw_sampler_accept(&l->sampler, prompt[i]);
    }
}

static int run(struct loop *l, const uint32_t *prompt, size_t n_prompt, tw_error *err) {
    begin_text(l, prompt, n_prompt);
    look_back(l, prompt, n_prompt);
    int code = feed_prompt(l, prompt, n_prompt, err);
    double prefilled = tw_clock_s();
    l->r.prefill_s = prefilled - l->start;
    if (code) {
        return code;
    }
    code = generate(l, err);
    l->r.decode_s = tw_clock_s() - prefilled;
    end_text(l, code);
    return code;
}

/* Checks the caller's arguments and copies the options to *o. */
static int read_arguments(const struct tw_session *session, const uint32_t *prompt, size_t n_prompt,
                          const struct tw_generate_options *options,
                          const struct tw_generate_result *result, struct tw_generate_options *o,
                          tw_error *err) {
    const unsigned known = TW_GENERATE_IGNORE_EOS | TW_GENERATE_PRINT_SPECIAL |
                           TW_GENERATE_NO_LOGITS | TW_GENERATE_WHOLE_STEPS;
    if (!session || !prompt || n_prompt == 0) {
        return tw_fail(err, TW_E_USAGE, "tw_generate: %s",
                       !session        ? "session is NULL"
                       : n_prompt == 0 ? "the prompt is empty; pass at least one token"
                                       : "prompt is NULL");
    }
    int code = tw_sized_read("tw_generate", o, sizeof *o, options, err);
    code = code || !result ? code : tw_sized_check("tw_generate", result, err);
    if (!code && ((o->n_history && !o->history) || (o->n_logit_bias && !o->logit_bias))) {
        code = tw_fail(err, TW_E_USAGE, "tw_generate: %s is NULL, but its number is not 0",
                       o->n_history && !o->history ? "history" : "logit_bias");
    }
    return code ? code : tw_known_flags("tw_generate", o->flags, known, err);
}

int tw_generate(tw_session *session, const uint32_t *prompt, size_t n_prompt,
                const struct tw_generate_options *options, struct tw_generate_result *result,
                tw_error *err) {
    struct tw_generate_options o;
    int code = read_arguments(session, prompt, n_prompt, options, result, &o, err);
    if (code) {
        return code;
    }
    struct loop l = {.session = session, .o = &o, .start = tw_clock_s()};
    const struct tw_decoder *decoder = session->deployment->decoder;
    /* After a prompt of BOS alone the generated text begins with the space to drop. */
    l.begin_text = session->position == 0 && n_prompt == 1 && decoder->tokenizer &&
                   prompt[0] == decoder->vocab.header.bos;
    bool greedy = o.temperature == 0.0f || o.top_k == 1;
    code = tw_stop_text_init(&l.stop_text, o.stop_texts, o.n_stop_texts, err);
    code = code ? code : init_window(&l, err);
    code = code ? code : init_sampler(&l, err);
    bool chooses = !tw_sampler_adjusts(&l.sampler); /* the device's own choice would do */
    l.on_device =
        greedy && chooses && o.flags & TW_GENERATE_NO_LOGITS && tw_session_can_greedy(session);
    if (chooses && o.flags & TW_GENERATE_NO_LOGITS) {
        (void)tw_session_use_lists(session, o.temperature == 0.0f ? 1 : o.top_k);
    }
    session->stop[1] = o.flags & TW_GENERATE_WHOLE_STEPS ? NULL : o.stop;
    code = code ? code : run(&l, prompt, n_prompt, err);
    session->stop[1] = NULL;
    tw_session_use_logits(session);
    tw_sampler_finish(&l.sampler);
    free(l.window);
    if (result) {
        l.r.size = sizeof l.r;
        tw_sized_write(result, &l.r, sizeof l.r);
    }
    return code;
}
