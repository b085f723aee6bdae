/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright perplexity: how well a model predicts a text.
 *
 * The text's tokens are cut into chunks of the context's length; what is left over is not used. In
 * each chunk the first token is replaced by BOS if the vocabulary asks for one, and the second half
 * is scored: with n positions, the tokens at n/2+1 ... n-1, each given all tokens before it in the
 * chunk. Perplexity is exp of the mean negative log-likelihood of all scored tokens; its standard
 * error is that of the mean, carried through exp. This is how llama.cpp's llama-perplexity defines
 * it, so figures can be compared at the same context.
 */
#include "loader/base/clock.h"
#include "tools/cmd.h"
#include "tools/engine.h"
#include "tools/prompt.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct perplexity_args {
    struct engine_options engine;
    int64_t chunks;
    bool json, special;
};

#define AT(field) offsetof(struct perplexity_args, field)
static const struct opt options[] = {
    {OPT_I64, 0, "chunks", "N", AT(chunks), 1, 1 << 24, "score the first N chunks only (all)"},
    {OPT_FLAG, 0, "special", NULL, AT(special), 0, 0, "parse special tokens in the text"},
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print one JSON object"},
    COMPILE_ROWS(struct perplexity_args),
    SESSION_ROWS(struct perplexity_args),
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "perplexity",
    "MODEL|BUNDLE FILE",
    2,
    "Measure how well a model predicts a text: exp of the mean negative log-likelihood.",
    options,
    "FILE - is standard input. The text is cut into chunks of the context's length (-c; 512 unless "
    "given,\nor what the bundle has), and the second half of each is scored, as llama.cpp does. A "
    "bundle needs\n--logits all; a model is compiled with it."};

struct totals {
    double nll, nll2; /* sums of the negative log-likelihoods and of their squares */
    uint64_t n;
    uint32_t chunks;
};

static double mean(const struct totals *t) {
    return t->n ? t->nll / (double)t->n : 0;
}

/* The standard error of exp(mean), to first order. */
static double deviation(const struct totals *t) {
    double m = mean(t), variance = t->n > 1 ? t->nll2 / (double)t->n - m * m : 0;
    return variance > 0 ? sqrt(variance / (double)(t->n - 1)) * exp(m) : 0;
}

/* -log of the softmax of logits[id], in double. */
static double negative_log(const float *logits, uint32_t n, uint32_t id) {
    double sum = 0, max = (double)logits[0];
    for (uint32_t i = 1; i < n; i++) {
        max = (double)logits[i] > max ? (double)logits[i] : max;
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - max);
    }
    return max + log(fmax(sum, 1.0)) - (double)logits[id]; /* the largest one alone adds 1 */
}

/* The chunk's tokens, and room for the logits of some of them. */
struct work {
    uint32_t *ids, n_ctx, n_vocab;
    float *logits;
};
enum { PIECE = 64 };

/* Scores one chunk. Position i predicts token i + 1; the last position predicts nothing. */
static int score_chunk(struct engine *e, const struct work *w, struct totals *t, tw_error *err) {
    uint32_t half = w->n_ctx / 2;
    int code = tw_session_rewind(e->session, 0, err);
    for (uint32_t at = 0, n; at < w->n_ctx && !code && !ui_stop; at += n) {
        n = w->n_ctx - at < PIECE ? w->n_ctx - at : PIECE;
        code = tw_session_score(e->session, w->ids + at, n, w->logits, err);
        for (uint32_t i = 0; i < n && !code; i++) {
            if (at + i < half || at + i + 1 >= w->n_ctx) {
                continue;
            }
            double nll =
                negative_log(w->logits + (size_t)i * w->n_vocab, w->n_vocab, w->ids[at + i + 1]);
            t->nll += nll;
            t->nll2 += nll * nll;
            t->n++;
        }
    }
    t->chunks += !code && !ui_stop;
    return code;
}

static int print_chunk(const struct perplexity_args *a, const struct totals *t, uint32_t chunks,
                       tw_error *err) {
    if (a->json) {
        ui_progress(NULL, "scoring", t->chunks, chunks);
        return 0;
    }
    printf("[%u/%u] %.4f\n", t->chunks, chunks, exp(mean(t)));
    return ui_flush(err);
}

static int print_result(const struct engine *e, const struct perplexity_args *a,
                        const struct totals *t, double seconds, tw_error *err) {
    double p = exp(mean(t)), d = deviation(t);
    ui_progress_end();
    if (a->json) {
        return ui_print_json(json_pack("{s:s, s:s, s:i, s:i, s:I, s:f, s:f, s:f, s:f}", "model",
                                       e->info.model, "target", e->session_info.target, "ctx",
                                       (int)e->session_info.n_ctx, "chunks", (int)t->chunks,
                                       "scored", (json_int_t)t->n, "nll", mean(t), "perplexity", p,
                                       "error", d, "seconds", seconds),
                             err);
    }
    printf("perplexity %.4f +- %.5f: %llu tokens scored in %u chunk%s of %u, %.1f s\n", p, d,
           (unsigned long long)t->n, t->chunks, text_s(t->chunks), e->session_info.n_ctx, seconds);
    return ui_flush(err);
}

static int score(struct engine *e, const struct perplexity_args *a, const struct prompt *text,
                 struct work *w, tw_error *err) {
    struct totals t = {.n = 0};
    uint64_t fit = text->n / w->n_ctx;
    uint32_t chunks =
        (uint32_t)(a->chunks && (uint64_t)a->chunks < fit ? (uint64_t)a->chunks : fit);
    double start = tw_clock_s();
    int code = 0;
    for (uint32_t i = 0; i < chunks && !code && !ui_stop; i++) {
        memcpy(w->ids, text->ids + (size_t)i * w->n_ctx, w->n_ctx * sizeof *w->ids);
        /* the text's first token is BOS if the vocabulary puts one before texts */
        w->ids[0] = text->ids[0] == e->info.bos ? e->info.bos : w->ids[0];
        code = score_chunk(e, w, &t, err);
        code = code || ui_stop ? code : print_chunk(a, &t, chunks, err);
    }
    if (!code && ui_stop) {
        code =
            tw_fail(err, TW_E_INTERRUPTED, "interrupted after %u of %u chunks", t.chunks, chunks);
    }
    return code ? code : print_result(e, a, &t, tw_clock_s() - start, err);
}

static int check_length(const struct engine *e, const struct prompt *text, const char *file,
                        tw_error *err) {
    uint32_t n_ctx = e->session_info.n_ctx;
    if (n_ctx < 4) {
        return tw_fail(err, TW_E_USAGE, "a context of %u positions; expected at least 4 (-c)",
                       n_ctx);
    }
    return text->n >= n_ctx
               ? 0
               : tw_fail(err, TW_E_USAGE,
                         "%.200s: %zu tokens, but a chunk has %u: use a longer text, or a smaller "
                         "context (-c)",
                         file, text->n, n_ctx);
}

static int with_engine(struct engine *e, const struct perplexity_args *a, const char *file,
                       tw_error *err) {
    struct prompt_options o = {.file = file};
    struct prompt text;
    struct work w = {.n_ctx = e->session_info.n_ctx, .n_vocab = e->info.n_vocab};
    int code = prompt_read(&o, a->special, e->source.decoder, &text, err);
    code = code ? code : check_length(e, &text, file, err);
    w.ids = malloc(w.n_ctx * sizeof *w.ids);
    w.logits = malloc((size_t)PIECE * w.n_vocab * sizeof *w.logits);
    if (!code && (!w.ids || !w.logits)) {
        code = tw_fail(err, TW_E_NOMEM, "out of memory for the logits of %u tokens", PIECE);
    }
    if (!code) {
        ui_catch_interrupts();
        code = score(e, a, &text, &w, err);
    }
    prompt_finish(&text);
    free(w.ids);
    free(w.logits);
    return code;
}

/* 512 positions, or those that the model was trained for. */
static int choose_context(struct perplexity_args *a, const char *model, tw_error *err) {
    struct tw_model_info info = {.size = sizeof info};
    if (a->engine.ctx || cache_is_bundle(model)) {
        return 0;
    }
    int code = tw_model_get_info(model, a->engine.tokenizer, &info, err);
    a->engine.ctx = info.n_ctx_train && info.n_ctx_train < 512 ? info.n_ctx_train : 512;
    return code;
}

static int run(int argc, char **argv, tw_error *err) {
    struct perplexity_args a = {.engine = ENGINE_DEFAULTS};
    struct opt_result result;
    struct engine e;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    const char *model = result.operand[0], *file = result.operand[1];
    a.engine.text = true;
    a.engine.logits = "all";
    code = choose_context(&a, model, err);
    code = code ? code : engine_open(&e, model, &a.engine, err);
    if (!code) {
        code = with_engine(&e, &a, file, err);
        engine_close(&e);
    }
    return code;
}

const struct cmd cmd_perplexity = {&verb, run};
