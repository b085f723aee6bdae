/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright bench: prefill and decode speed of a session, medians over repeats. Both begin with an
 * empty context, so that figures compare with llama-bench's.
 */
#include "loader/base/clock.h"
#include "tilewright/numerics.h"
#include "tools/cmd.h"
#include "tools/engine.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define REPEATS_MAX 1000

struct bench_args {
    struct engine_options engine;
    int64_t prompt, n, repeats;
    bool json;
};

#define AT(field) offsetof(struct bench_args, field)
static const struct opt options[] = {
    {OPT_I64, 'p', "n-prompt", "N", AT(prompt), 1, 1 << 24,
     "tokens to prefill (128, or the context length)"},
    {OPT_I64, 'n', "n-gen", "N", AT(n), 1, 1 << 24,
     "tokens to decode, from an empty context (128, or the context length)"},
    {OPT_I64, 'r', "repeats", "N", AT(repeats), 1, REPEATS_MAX,
     "number of repeats; medians are reported (5)"},
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print JSON"},
    COMPILE_ROWS(struct bench_args),
    SESSION_ROWS(struct bench_args),
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "bench", "MODEL|BUNDLE", 1, "Measure prefill and decode speed on a device.", options, ""};

struct result {
    double prefill_tok_s, decode_tok_s;
    double decode_ms_median, decode_ms_p99; /* of one token */
    /* opening the bundle, a prompt of up to 16 tokens, the first logits */
    double first_token_ms;
    uint32_t prompt, n, repeats;
    uint64_t done, total; /* tokens fed, for the progress line */
};

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The q-quantile of v[0..n), which is sorted by it. */
static double quantile(double *v, size_t n, double q) {
    qsort(v, n, sizeof *v, by_value);
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? v[i] + (at - (double)i) * (v[i + 1] - v[i]) : v[i];
}

static uint32_t token(const struct engine *e, uint32_t i) {
    return (uint32_t)((i * UINT64_C(7919) + 1) % e->info.n_vocab);
}

/* Counts n tokens that were fed, shows the progress and checks for an interrupt. */
static int tick(struct result *r, uint32_t n, tw_error *err) {
    r->done += n;
    ui_progress(NULL, "measuring", r->done, r->total);
    return ui_stop ? tw_fail(err, TW_E_INTERRUPTED, "interrupted") : 0;
}

/* Feeds the prompt in parts, as tw_generate does: each is one step of the session. */
static int prefill(struct engine *e, struct result *r, const uint32_t *ids, tw_error *err) {
    uint32_t part = e->session_info.chunk > 16 ? e->session_info.chunk : 16;
    int code = tw_session_rewind(e->session, 0, err);
    for (uint32_t at = 0, n; at < r->prompt && !code; at += n) {
        n = r->prompt - at < part ? r->prompt - at : part;
        code = tw_session_feed(e->session, ids + at, n, err);
        code = code ? code : tick(r, n, err);
    }
    return code;
}

/* From an empty context, token by token, the likeliest one each time. */
static int decode(struct engine *e, struct result *r, double *token_s, tw_error *err) {
    uint32_t id = token(e, 0);
    int code = tw_session_rewind(e->session, 0, err);
    for (uint32_t i = 0; i < r->n && !code; i++) {
        double start = tw_clock_s();
        code = tw_session_feed(e->session, &id, 1, err);
        id = code ? 0 : tw_argmax(tw_session_logits(e->session), e->info.n_vocab);
        token_s[i] = tw_clock_s() - start;
        code = code ? code : tick(r, 1, err);
    }
    return code;
}

/* One repeat: prefill and decode, each from an empty context, as llama-bench does it. */
static int repeat(struct engine *e, struct result *r, uint32_t *ids, double *prefill_s,
                  double *token_s, tw_error *err) {
    for (uint32_t i = 0; i < r->prompt; i++) {
        ids[i] = token(e, i);
    }
    double start = tw_clock_s();
    int code = prefill(e, r, ids, err);
    *prefill_s = tw_clock_s() - start;
    return code ? code : decode(e, r, token_s, err);
}

static int first_token(struct engine *e, struct result *r, tw_error *err) {
    uint32_t ids[16], n = r->prompt < 16 ? r->prompt : 16;
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = token(e, i);
    }
    double start = tw_clock_s();
    int code = tw_session_feed(e->session, ids, n, err);
    r->first_token_ms = 1e3 * (e->load_s + tw_clock_s() - start);
    return code;
}

struct samples {
    uint32_t *ids;
    double *token_s, *prefill, *decode;
};

static int measure(struct engine *e, struct result *r, struct samples *s, tw_error *err) {
    int code = first_token(e, r, err);
    double unused;
    r->total = (uint64_t)(r->prompt + r->n) * (r->repeats + 1);
    /* the first repeat warms caches and threads, and is not counted */
    code = code ? code : repeat(e, r, s->ids, &unused, s->token_s, err);
    for (uint32_t i = 0; i < r->repeats && !code; i++) {
        double *token_s = s->token_s + (size_t)i * r->n, prefill_s, total = 0;
        code = repeat(e, r, s->ids, &prefill_s, token_s, err);
        for (uint32_t k = 0; k < r->n; k++) {
            total += token_s[k];
        }
        s->prefill[i] = r->prompt / prefill_s;
        s->decode[i] = r->n / total;
    }
    if (!code) {
        r->prefill_tok_s = quantile(s->prefill, r->repeats, 0.5);
        r->decode_tok_s = quantile(s->decode, r->repeats, 0.5);
        r->decode_ms_median = 1e3 * quantile(s->token_s, (size_t)r->n * r->repeats, 0.5);
        r->decode_ms_p99 = 1e3 * quantile(s->token_s, (size_t)r->n * r->repeats, 0.99);
    }
    return code;
}

static double rss_mib(void) {
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (double)u.ru_maxrss / 1024 : 0;
}

static int print(const struct engine *e, const struct result *r, bool json, tw_error *err) {
    const struct tw_session_info *s = &e->session_info;
    if (json) {
        json_t *compile_s = e->source.compiled ? json_real(e->source.compile_s) : json_null();
        json_t *o = json_pack(
            "{s:s, s:s, s:o, s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:f, "
            "s:I, s:I}",
            "model", e->info.model, "target", s->target, "device", text_json(s->device), "mode",
            s->mode, "isa", e->isa, "threads", (int)s->n_threads, "n_prompt", (int)r->prompt,
            "n_gen", (int)r->n, "repeats", (int)r->repeats, "prefill_tok_s", r->prefill_tok_s,
            "decode_tok_s", r->decode_tok_s, "decode_ms_median", r->decode_ms_median,
            "decode_ms_p99", r->decode_ms_p99, "first_token_ms", r->first_token_ms, "load_s",
            e->load_s, "compile_s", compile_s, "rss_mib", rss_mib(), "bytes_per_token",
            (json_int_t)e->info.bytes_per_token, "n_params", (json_int_t)e->info.n_params);
        return ui_print_json(o, err);
    }
    char bytes[32];
    printf("%s on %s (target %s, %s mode, %u thread%s, isa %s)\n",
           e->info.model[0] ? e->info.model : "-", text_clean(s->device).text, s->target, s->mode,
           s->n_threads, text_s(s->n_threads), e->isa);
    printf("prefill  %10.1f tok/s  (%u token%s, median of %u)\n", r->prefill_tok_s, r->prompt,
           text_s(r->prompt), r->repeats);
    printf("decode   %10.1f tok/s  (%u token%s; one: median %.3f ms, 99%% below %.3f ms)\n",
           r->decode_tok_s, r->n, text_s(r->n), r->decode_ms_median, r->decode_ms_p99);
    printf("weights  %10s per token, %.2f GB/s in decode\n",
           ui_bytes(e->info.bytes_per_token, bytes),
           1e-9 * (double)e->info.bytes_per_token * r->decode_tok_s);
    printf("load     %10.1f ms, first token after %.1f ms, peak memory %.1f MiB\n", 1e3 * e->load_s,
           r->first_token_ms, rss_mib());
    if (e->source.compiled) {
        printf("compiled in %.2f s\n", e->source.compile_s);
    }
    return ui_flush(err);
}

static int choose_counts(const struct engine *e, const struct bench_args *a, struct result *r,
                         tw_error *err) {
    uint32_t ctx = e->session_info.n_ctx, usual = ctx < 128 ? ctx : 128;
    r->prompt = a->prompt ? (uint32_t)a->prompt : usual;
    r->n = a->n ? (uint32_t)a->n : usual;
    r->repeats = (uint32_t)a->repeats;
    uint32_t max = r->prompt > r->n ? r->prompt : r->n;
    return max > ctx ? tw_fail(err, TW_E_CONTEXT_FULL,
                               "%u tokens do not fit into a context of %u (-c)", max, ctx)
                     : 0;
}

static int bench(struct engine *e, const struct bench_args *a, tw_error *err) {
    struct result r = {0};
    int code = choose_counts(e, a, &r, err);
    if (code) {
        return code;
    }
    struct samples s = {.ids = malloc(r.prompt * sizeof *s.ids),
                        .token_s = calloc((size_t)r.n * r.repeats, sizeof *s.token_s),
                        .prefill = calloc(r.repeats, sizeof *s.prefill),
                        .decode = calloc(r.repeats, sizeof *s.decode)};
    if (!s.ids || !s.token_s || !s.prefill || !s.decode) {
        code = tw_fail(err, TW_E_NOMEM, "no memory for %u x %u measurements", r.n, r.repeats);
    }
    ui_catch_interrupts();
    code = code ? code : measure(e, &r, &s, err);
    ui_progress_end();
    code = code ? code : print(e, &r, a->json, err);
    free(s.ids);
    free(s.token_s);
    free(s.prefill);
    free(s.decode);
    return code;
}

static int run(int argc, char **argv, tw_error *err) {
    struct bench_args a = {.engine = ENGINE_DEFAULTS, .repeats = 5};
    struct opt_result result;
    int code = opt_parse(&verb, argc, argv, &a, &result, err);
    if (code) {
        return code;
    }
    if (result.help) {
        opt_print_help(&verb, stdout);
        return ui_flush(err);
    }
    struct engine e;
    code = engine_open(&e, result.operand[0], &a.engine, err);
    if (!code) {
        code = bench(&e, &a, err);
        engine_close(&e);
    }
    return code;
}

const struct cmd cmd_bench = {&verb, run};
