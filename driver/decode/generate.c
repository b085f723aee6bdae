/* SPDX-License-Identifier: Apache-2.0
 *
 * The decode loop: feed the prompt, then choose, pass on and feed one token at a time. Text goes through a stream that holds an
 * incomplete character back.
 */
#include "driver/decode/sampler.h"
#include "driver/decode/utf8_stream.h"
#include "driver/session.h"

#include <time.h>

struct loop {
    struct tw_session *session;
    const struct tw_generate_options *o;
    struct tw_sampler sampler;
    struct tw_utf8_stream utf8;
    struct tw_generate_result r;
    double start;
    bool begin_text; /* nothing came before: the first piece's blank is the tokenizer's own */
};

static const struct tw_generate_options defaults;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* in the vDSO: no system call */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool interrupted(const struct loop *l) {
    return l->o->stop && *l->o->stop;
}

static int init_sampler(struct loop *l, tw_error *err) {
    struct tw_sampler_params p = {.size = sizeof p,
                                  .temperature = l->o->temperature,
                                  .top_k = l->o->top_k,
                                  .top_p = l->o->top_p != 0.0f ? l->o->top_p : 1.0f,
                                  .min_p = l->o->min_p,
                                  .seed = l->o->seed};
    return tw_sampler_init(&l->sampler, &p, l->session->n_vocab, err);
}

/* Long prompts are fed in parts, so that an interrupt is noticed between them. */
static int feed_prompt(struct loop *l, const uint32_t *ids, size_t n, tw_error *err) {
    if (n > l->session->n_ctx - l->session->position) {
        return tw_session_feed(l->session, ids, n, err); /* refused as a whole */
    }
    size_t part = l->session->chunk > 16 ? l->session->chunk : 16;
    while (n) {
        if (interrupted(l)) {
            l->r.reason = TW_STOP_INTERRUPT;
            return tw_fail(err, TW_E_INTERRUPTED, "interrupted after %u tokens of the prompt", l->r.n_prompt);
        }
        size_t m = n < part ? n : part;
        int code = tw_session_feed(l->session, ids, m, err);
        if (code) {
            return code;
        }
        l->r.n_prompt += (uint32_t)m;
        ids += m;
        n -= m;
    }
    return 0;
}

static int pass_text(void *ctx, const char *text, size_t n) {
    const struct loop *l = ctx;
    return l->o->on_text(l->o->ctx, text, n);
}

/* Gives a token to the callbacks; true when one of them wants to stop. */
static bool pass_on(struct loop *l, uint32_t id) {
    if (l->o->on_token && l->o->on_token(l->o->ctx, id, l->session->logits)) {
        return true;
    }
    const struct tw_tokenizer *tok = l->session->deployment->decoder->tokenizer;
    const char *bytes;
    size_t n;
    unsigned flags =
        (l->o->flags & TW_GENERATE_PRINT_SPECIAL ? TW_PIECE_SPECIAL : 0u) | (l->begin_text ? TW_PIECE_FIRST : 0u);
    l->begin_text = false;
    if (!l->o->on_text || !tok || tw_tokenizer_piece(tok, id, flags, &bytes, &n, NULL)) {
        return false;
    }
    return tw_utf8_push(&l->utf8, bytes, n, pass_text, l) != 0;
}

static bool ends_text(const struct loop *l, uint32_t id) {
    const struct tw_tokenizer *tok = l->session->deployment->decoder->tokenizer;
    return tok && !(l->o->flags & TW_GENERATE_IGNORE_EOS) && tw_tokenizer_is_end(tok, id);
}

static int generate(struct loop *l, tw_error *err) {
    for (;;) {
        uint32_t id;
        int code = tw_sampler_sample(&l->sampler, l->session->logits, &id, err);
        if (code) {
            return code;
        }
        if (l->r.n_generated == 0) {
            l->r.first_token_s = now() - l->start;
        }
        if (ends_text(l, id)) {
            l->r.reason = TW_STOP_END;
            return 0;
        }
        l->r.n_generated++;
        bool stop = pass_on(l, id);
        if (stop || (l->o->n_predict && l->r.n_generated == l->o->n_predict)) {
            l->r.reason = stop ? TW_STOP_CALLBACK : TW_STOP_COUNT;
            return 0;
        }
        if (interrupted(l)) {
            l->r.reason = TW_STOP_INTERRUPT;
            return tw_fail(err, TW_E_INTERRUPTED, "interrupted after %u tokens", l->r.n_generated);
        }
        code = tw_session_feed(l->session, &id, 1, err);
        if (code) {
            l->r.reason = code == TW_E_CONTEXT_FULL ? TW_STOP_CONTEXT : l->r.reason;
            return code;
        }
    }
}

static int run(struct loop *l, const uint32_t *prompt, size_t n_prompt, tw_error *err) {
    int code = feed_prompt(l, prompt, n_prompt, err);
    double prefilled = now();
    l->r.prefill_s = prefilled - l->start;
    if (code) {
        return code;
    }
    code = generate(l, err);
    l->r.decode_s = now() - prefilled;
    if (l->o->on_text) {
        tw_utf8_flush(&l->utf8, pass_text, l);
    }
    return code;
}

int tw_generate(tw_session *session, const uint32_t *prompt, size_t n_prompt, const struct tw_generate_options *options,
                struct tw_generate_result *result, tw_error *err) {
    struct loop l = {.session = session, .o = options ? options : &defaults, .start = now()};
    const struct tw_decoder *decoder = session->deployment->decoder;
    /* A prompt of BOS alone, at the start, leaves the first blank to be dropped from what is generated. */
    l.begin_text =
        session->position == 0 && n_prompt == 1 && decoder->tokenizer && prompt[0] == decoder->vocab.header.bos;
    int code = init_sampler(&l, err);
    code = code ? code : run(&l, prompt, n_prompt, err);
    tw_sampler_finish(&l.sampler);
    if (result) {
        l.r.size = result->size;
        memcpy(result, &l.r, result->size < sizeof l.r ? result->size : sizeof l.r);
    }
    return code;
}
