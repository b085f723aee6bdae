/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright bench: prefill and decode speed of a session, medians over repeats. Both begin with an
 * empty context, so that figures compare with llama-bench's; decode with --depth tokens on request,
 * and with several sequences, which share steps.
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
#define PARALLEL_MAX 256
#define USUAL_TOKENS 128

struct bench_args {
    struct engine_options engine;
    int64_t prompt, n, repeats, depth, parallel;
    bool json;
};

#define AT(field) offsetof(struct bench_args, field)
static const struct opt options[] = {
    {OPT_I64, 'p', "n-prompt", "N", AT(prompt), 1, 1 << 24,
     "tokens to prefill (128, or the context length)"},
    {OPT_I64, 'n', "n-gen", "N", AT(n), 1, 1 << 24,
     "tokens to decode, from --depth on (128, or as many as fit)"},
    {OPT_I64, 'd', "depth", "D", AT(depth), 0, 1 << 24, "tokens before those to decode (0)"},
    {OPT_I64, 0, "parallel", "N", AT(parallel), 1, PARALLEL_MAX,
     "decode N sequences at once, which share steps (1)"},
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
    double prefill_tok_s, decode_tok_s;     /* decode: of all sequences together */
    double single_tok_s;                    /* of one sequence alone, if there are several */
    double decode_ms_median, decode_ms_p99; /* of one token of each sequence */
    /* opening the bundle, a prompt of up to 16 tokens, the first logits */
    double first_token_ms;
    uint32_t prompt, n, repeats, depth, parallel;
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

/* The sequences that decode together; the first one is the engine's session. */
struct sequences {
    tw_session *session[PARALLEL_MAX];
    uint32_t id[PARALLEL_MAX];
    struct tw_step_entry entry[PARALLEL_MAX];
};

/* Feeds a sequence the tokens before the depth that it does not have. */
static int fill(struct engine *e, const struct result *r, tw_session *session, uint32_t sequence,
                tw_error *err) {
    uint32_t ids[64], n;
    int code = 0;
    for (uint32_t at = tw_session_position(session); at < r->depth && !code; at += n) {
        n = r->depth - at < 64 ? r->depth - at : 64;
        for (uint32_t i = 0; i < n; i++) {
            ids[i] = token(e, at + i + 31 * sequence);
        }
        code = tw_session_feed(session, ids, n, err);
        code = code || !ui_stop ? code : tw_fail(err, TW_E_INTERRUPTED, "interrupted");
    }
    return code;
}

/* Has each of the first n sequences begin at the depth. */
static int begin(struct engine *e, struct result *r, struct sequences *q, uint32_t n,
                 tw_error *err) {
    int code = 0;
    for (uint32_t i = 0; i < n && !code; i++) {
        q->id[i] = token(e, i);
        code = tw_session_position(q->session[i]) > r->depth
                   ? tw_session_rewind(q->session[i], r->depth, err)
                   : fill(e, r, q->session[i], i, err);
    }
    return code;
}

/* Feeds each of the first n sequences its next token. */
static int step(struct sequences *q, uint32_t n, tw_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        q->entry[i] = (struct tw_step_entry){.session = q->session[i], .ids = &q->id[i], .n = 1};
    }
    return n == 1 ? tw_session_feed(q->session[0], q->id, 1, err) : tw_step(q->entry, n, err);
}

/* Token by token, the likeliest one each time. Stores the seconds of each of the r->n steps, if
 * token_s is not NULL, and adds them to *total. */
static int decode(struct engine *e, struct result *r, struct sequences *q, uint32_t n,
                  double *token_s, double *total, tw_error *err) {
    int code = begin(e, r, q, n, err);
    *total = 0;
    for (uint32_t i = 0; i < r->n && !code; i++) {
        double start = tw_clock_s();
        code = step(q, n, err);
        for (uint32_t k = 0; k < n && !code; k++) {
            q->id[k] = tw_argmax(tw_session_logits(q->session[k]), e->info.n_vocab);
        }
        double seconds = tw_clock_s() - start;
        *total += seconds;
        if (token_s) {
            token_s[i] = seconds;
        }
        code = code ? code : tick(r, n, err);
    }
    return code;
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
    double *token_s, *prefill, *decode, *single;
};

/* Prefill from an empty context, as llama-bench does it. */
static int measure_prefill(struct engine *e, struct result *r, struct samples *s, uint32_t repeat,
                           tw_error *err) {
    double start = tw_clock_s();
    int code = prefill(e, r, s->ids, err);
    s->prefill[repeat] = r->prompt / (tw_clock_s() - start);
    return code;
}

static int measure_decode(struct engine *e, struct result *r, struct samples *s,
                          struct sequences *q, uint32_t repeat, tw_error *err) {
    double total;
    int code = decode(e, r, q, r->parallel, s->token_s + (size_t)repeat * r->n, &total, err);
    s->decode[repeat] = r->n * r->parallel / total;
    s->single[repeat] = s->decode[repeat];
    if (!code && r->parallel > 1) {
        code = decode(e, r, q, 1, NULL, &total, err);
        s->single[repeat] = r->n / total;
    }
    return code;
}

/* Of each kind, one repeat to warm caches and threads is not counted. */
static int measure(struct engine *e, struct result *r, struct samples *s, struct sequences *q,
                   tw_error *err) {
    int code = first_token(e, r, err);
    uint64_t steps = (uint64_t)r->n * (r->parallel + (r->parallel > 1));
    r->total = (r->prompt + steps) * (r->repeats + 1);
    for (uint32_t i = 0; i < r->prompt; i++) {
        s->ids[i] = token(e, i);
    }
    for (uint32_t i = 0; i <= r->repeats && !code; i++) {
        code = measure_prefill(e, r, s, i ? i - 1 : 0, err);
    }
    code = code ? code : tw_session_rewind(e->session, 0, err);
    for (uint32_t i = 0; i <= r->repeats && !code; i++) {
        code = measure_decode(e, r, s, q, i ? i - 1 : 0, err);
    }
    if (!code) {
        r->prefill_tok_s = quantile(s->prefill, r->repeats, 0.5);
        r->decode_tok_s = quantile(s->decode, r->repeats, 0.5);
        r->single_tok_s = quantile(s->single, r->repeats, 0.5);
        r->decode_ms_median = 1e3 * quantile(s->token_s, (size_t)r->n * r->repeats, 0.5);
        r->decode_ms_p99 = 1e3 * quantile(s->token_s, (size_t)r->n * r->repeats, 0.99);
    }
    return code;
}

static double rss_mib(void) {
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (double)u.ru_maxrss / 1024 : 0;
}

static void print_decode(const struct result *r) {
    char depth[48] = "";
    if (r->depth) {
        snprintf(depth, sizeof depth, " after %u", r->depth);
    }
    printf("decode   %10.1f tok/s  (%u token%s%s; one: median %.3f ms, 99%% below %.3f ms)\n",
           r->decode_tok_s, r->n, text_s(r->n), depth, r->decode_ms_median, r->decode_ms_p99);
    if (r->parallel > 1) {
        printf(
            "         %10.1f tok/s  for each of %u sequences; one alone %.1f: %.2f times as many "
            "together\n",
            r->decode_tok_s / r->parallel, r->parallel, r->single_tok_s,
            r->decode_tok_s / r->single_tok_s);
    }
}

static int print(const struct engine *e, const struct result *r, bool json, tw_error *err) {
    const struct tw_session_info *s = &e->session_info;
    if (json) {
        json_t *compile_s = e->source.compiled ? json_real(e->source.compile_s) : json_null();
        json_t *o = json_pack(
            "{s:s, s:s, s:o, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, "
            "s:f, s:o, s:f, s:I, s:I}",
            "model", e->info.model, "target", s->target, "device", text_json(s->device), "mode",
            s->mode, "isa", e->isa, "threads", (int)s->n_threads, "n_prompt", (int)r->prompt,
            "n_gen", (int)r->n, "repeats", (int)r->repeats, "depth", (int)r->depth, "parallel",
            (int)r->parallel, "prefill_tok_s", r->prefill_tok_s, "decode_tok_s", r->decode_tok_s,
            "single_tok_s", r->single_tok_s, "decode_ms_median", r->decode_ms_median,
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
    print_decode(r);
    printf("weights  %10s per token, %.2f GB/s in decode\n",
           ui_bytes(e->info.bytes_per_token, bytes),
           1e-9 * (double)e->info.bytes_per_token * r->single_tok_s);
    printf("load     %10.1f ms, first token after %.1f ms, peak memory %.1f MiB\n", 1e3 * e->load_s,
           r->first_token_ms, rss_mib());
    if (e->source.compiled) {
        printf("compiled in %.2f s\n", e->source.compile_s);
    }
    return ui_flush(err);
}

static int choose_counts(const struct engine *e, const struct bench_args *a, struct result *r,
                         tw_error *err) {
    uint32_t ctx = e->session_info.n_ctx, usual = ctx < USUAL_TOKENS ? ctx : USUAL_TOKENS;
    r->depth = (uint32_t)a->depth;
    r->parallel = (uint32_t)a->parallel;
    r->prompt = a->prompt ? (uint32_t)a->prompt : usual;
    uint32_t left = r->depth < ctx ? ctx - r->depth : 1;
    r->n = a->n ? (uint32_t)a->n : left < usual ? left : usual;
    r->repeats = (uint32_t)a->repeats;
    uint32_t end = r->depth + r->n, max = r->prompt > end ? r->prompt : end;
    return max > ctx ? tw_fail(err, TW_E_CONTEXT_FULL,
                               "%u tokens do not fit into a context of %u (-c)", max, ctx)
                     : 0;
}

static int open_sequences(struct engine *e, const struct result *r, struct sequences *q,
                          tw_error *err) {
    int code = 0;
    q->session[0] = e->session;
    if (r->parallel > 1 && e->session_info.batch < 2) {
        ui_note("option --parallel: the bundle has no programs for several sequences (compile "
                "--batch), so each takes steps of its own");
    }
    for (uint32_t i = 1; i < r->parallel && !code; i++) {
        code = tw_session_fork(e->session, &q->session[i], err); /* of no tokens yet */
    }
    return code;
}

static void close_sequences(struct sequences *q) {
    for (uint32_t i = 1; i < PARALLEL_MAX; i++) {
        tw_session_destroy(q->session[i]);
    }
}

static int bench(struct engine *e, const struct bench_args *a, tw_error *err) {
    struct result r = {0};
    struct sequences q = {.session = {NULL}};
    int code = choose_counts(e, a, &r, err);
    if (code) {
        return code;
    }
    struct samples s = {.ids = malloc(r.prompt * sizeof *s.ids),
                        .token_s = calloc((size_t)r.n * r.repeats, sizeof *s.token_s),
                        .prefill = calloc(r.repeats, sizeof *s.prefill),
                        .decode = calloc(r.repeats, sizeof *s.decode),
                        .single = calloc(r.repeats, sizeof *s.single)};
    if (!s.ids || !s.token_s || !s.prefill || !s.decode || !s.single) {
        code = tw_fail(err, TW_E_NOMEM, "no memory for %u x %u measurements", r.n, r.repeats);
    }
    ui_catch_interrupts();
    code = code ? code : open_sequences(e, &r, &q, err);
    code = code ? code : measure(e, &r, &s, &q, err);
    ui_progress_end();
    code = code ? code : print(e, &r, a->json, err);
    close_sequences(&q);
    free(s.ids);
    free(s.token_s);
    free(s.prefill);
    free(s.decode);
    free(s.single);
    return code;
}

/* What the sequences need: programs for as many in a step as there can be, and pages. */
static void ask_for(struct bench_args *a) {
    struct engine_options *o = &a->engine;
    int64_t n = a->n ? a->n : USUAL_TOKENS, prompt = a->prompt ? a->prompt : USUAL_TOKENS,
            most = a->depth + n > prompt ? a->depth + n : prompt;
    if (a->parallel > 1) {
        o->batch_wanted = o->batch ? 0 : a->parallel < 16 ? a->parallel : 16;
        o->positions = a->parallel * (most + 2 * TW_PAGE_POSITIONS);
    }
}

static int run(int argc, char **argv, tw_error *err) {
    struct bench_args a = {.engine = ENGINE_DEFAULTS, .repeats = 5, .parallel = 1};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    struct engine e;
    ask_for(&a);
    code = engine_open(&e, result.operand[0], &a.engine, err);
    if (!code) {
        code = bench(&e, &a, err);
        engine_close(&e);
    }
    return code;
}

const struct cmd cmd_bench = {&verb, run};
