/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright run: reads a prompt, generates, and streams the text; or ids, logits, JSON.
 */
#include "loader/base/clock.h"
#include "loader/base/grow.h"
#include "tilewright/state.h"
#include "tools/chat_loop.h"
#include "tools/cmd.h"
#include "tools/engine.h"
#include "tools/logits_file.h"
#include "tools/model.h"
#include "tools/prompt.h"
#include "tools/saved_run.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <stdlib.h>
#include <string.h>

enum { N_DEFAULT = -2, N_UNTIL_END = -1, N_DEFAULT_COUNT = 256 };

struct run_args {
    struct engine_options engine;
    struct prompt_options prompt;
    struct sampling_options sampling;
    struct conversation_options conversation;
    const char *logits, *logits_all, *load_state, *save_state;
    int64_t n;
    bool talk, single; /* conversation: with the user, or one answer */
    bool print_ids, json, special, ignore_eos, hide_prompt, stats;
};

#define AT(field) offsetof(struct run_args, field)
#define PROMPT(field) (offsetof(struct run_args, prompt) + offsetof(struct prompt_options, field))
static const struct opt options[] = {
    {OPT_TEXT, 'p', "prompt", "TEXT", PROMPT(text), 0, 0, "text to continue (none)"},
    {OPT_TEXT, 'f', "file", "FILE", PROMPT(file), 0, 0,
     "read the prompt from FILE; - is standard input"},
    {OPT_IDS, 0, "ids", "1,2,3", PROMPT(ids), 0, 0,
     "prompt as token ids, used exactly as given; greedy unless --temp is given"},
    {OPT_FLAG, 'e', "escape", NULL, PROMPT(escape), 0, 0,
     "interpret \\n, \\r, \\t, \\\\, \\', \\\" and \\xHH in the prompt"},
    {OPT_FLAG, 0, "no-bos", NULL, PROMPT(no_bos), 0, 0,
     "do not put the beginning-of-text token before the prompt"},
    {OPT_FLAG, 0, "special", NULL, AT(special), 0, 0,
     "parse special tokens in the prompt, and print them in the text"},
    {OPT_I64, 'n', "n-predict", "N", AT(n), -1, 1 << 24,
     "tokens to generate; -1: until the text ends (256, or as many as fit into the context)"},
    SAMPLING_ROWS(struct run_args),
    CONVERSATION_ROWS(struct run_args),
    {OPT_FLAG, 0, "conversation", NULL, AT(talk), 0, 0,
     "talk, as the verb chat does, with the prompt as the first message; also -cnv"},
    {OPT_FLAG, 0, "single-turn", NULL, AT(single), 0, 0,
     "the prompt is a message: print the answer to it; also -st, and with -sys"},
    {OPT_FLAG, 0, "ignore-eos", NULL, AT(ignore_eos), 0, 0, "continue past the end of the text"},
    {OPT_FLAG, 0, "no-display-prompt", NULL, AT(hide_prompt), 0, 0, "print only what is generated"},
    {OPT_FLAG, 0, "print-ids", NULL, AT(print_ids), 0, 0,
     "print the ids of the generated tokens on one line instead of the text"},
    {OPT_TEXT, 0, "logits", "FILE", AT(logits), 0, 0,
     "write the logits to FILE: float32, one row for each generated token"},
    {OPT_TEXT, 0, "logits-all", "FILE", AT(logits_all), 0, 0,
     "generate nothing; write the logits after each token of the prompt to FILE"},
    {OPT_TEXT, 0, "load-state", "FILE", AT(load_state), 0, 0,
     "continue the sequence saved in FILE: with the prompt, or where it ends"},
    {OPT_TEXT, 0, "save-state", "FILE", AT(save_state), 0, 0,
     "save the sequence to FILE at the end; if FILE has its beginning, only what is new"},
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0,
     "print one JSON object at the end instead of the text"},
    {OPT_FLAG, 0, "stats", NULL, AT(stats), 0, 0,
     "print speed and seed on standard error at the end"},
    CONTEXT_ROWS(struct run_args),
    COMPILE_ROWS(struct run_args),
    SESSION_ROWS(struct run_args),
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "run",
    "MODEL|BUNDLE",
    1,
    "Generate text. A model is compiled into the cache first; a bundle runs as it is.",
    options,
    "Standard output carries the text and nothing else. Ctrl-C ends the text, and the command "
    "exits with status 130."};

struct output {
    const struct run_args *args;
    const struct prompt *prompt;
    struct logits_file *logits;
    uint32_t n_vocab;
    uint32_t restored;       /* tokens of a saved sequence */
    uint32_t last, n_tokens; /* the last token generated, and how many */
    uint32_t dropped;        /* tokens that a full context lost */
    uint32_t *ids;
    size_t n_ids, ids_room;
    char *text; /* for JSON */
    size_t n_text, text_room;
    int code; /* of a callback that failed */
    tw_error *err;
    int ended; /* what tw_generate returned: 0, or the code whose message *err has */
};

static int on_token(void *ctx, uint32_t id, const float *logits) {
    struct output *out = ctx;
    out->last = id;
    out->n_tokens++;
    if (out->args->print_ids || out->args->json) {
        if (!tw_grow(&out->ids, &out->ids_room, out->n_ids + 1, sizeof *out->ids)) {
            return out->code = tw_fail(out->err, TW_E_NOMEM, "out of memory for the generated ids");
        }
        out->ids[out->n_ids++] = id;
    }
    if (out->logits) {
        out->code =
            logits_file_write(out->logits, logits, (size_t)out->n_vocab * sizeof *logits, out->err);
    }
    return out->code;
}

static int on_text(void *ctx, const char *text, size_t n) {
    struct output *out = ctx;
    if (out->args->json) {
        if (!tw_grow(&out->text, &out->text_room, out->n_text + n, 1)) {
            return out->code = tw_fail(out->err, TW_E_NOMEM, "out of memory for the text");
        }
        memcpy(out->text + out->n_text, text, n);
        out->n_text += n;
        return 0;
    }
    text_print_generated(text, n);
    return out->code = ui_flush(out->err);
}

static int print_prompt(struct output *out) {
    const struct run_args *a = out->args;
    if (!a->print_ids && !a->json && !a->hide_prompt && out->prompt->n_text) {
        text_print_generated(out->prompt->text, out->prompt->n_text);
        out->code = ui_flush(out->err);
    }
    return out->code;
}

/* The prompt is printed once it is processed: earlier, the progress line would wipe its end. */
static void on_prompt(void *ctx, uint32_t done, uint32_t total) {
    if (done < total) {
        ui_progress(NULL, "processing the prompt", done, total);
        return;
    }
    ui_progress_end();
    print_prompt(ctx); /* on_token stops where this failed */
}

static uint32_t choose_count(const struct run_args *a, const struct engine *e, size_t n_prompt) {
    if (a->n != N_DEFAULT) {
        return a->n == N_UNTIL_END ? 0 : (uint32_t)a->n;
    }
    /* The last token generated needs no position of its own. */
    size_t left = e->session_info.n_ctx - tw_session_position(e->session);
    size_t room = left >= n_prompt ? left - n_prompt + 1 : 1;
    return room < N_DEFAULT_COUNT && !engine_goes_on(&a->engine) ? (uint32_t)room : N_DEFAULT_COUNT;
}

static json_t *ids_json(const uint32_t *ids, size_t n) {
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(array, json_integer(ids[i]));
    }
    return array;
}

static double rate(double n, double seconds) {
    return seconds > 0 ? n / seconds : 0;
}

/* The error that ended the text is printed with what came before: {"code": "DEVICE_LOST", ...}. */
static json_t *error_json(const struct output *out) {
    return out->ended && out->ended != TW_E_CONTEXT_FULL && out->ended != TW_E_INTERRUPTED
               ? json_pack("{s:s, s:s}", "code", tw_error_name(out->ended), "message",
                           out->err->message)
               : json_null();
}

static int print_json(const struct engine *e, const struct output *out, const struct prompt *prompt,
                      const struct tw_generate_options *g, const struct tw_generate_result *r,
                      tw_error *err) {
    static const char *const reason[] = {"count",    "end",       "context",
                                         "callback", "interrupt", "stop"};
    json_t *text = out->n_text || e->info.has_tokenizer
                       ? json_stringn(out->text ? out->text : "", out->n_text)
                       : json_null();
    json_t *error = error_json(out);
    json_t *o = json_pack(
        "{s:s, s:s, s:o, s:s, s:i, s:I, s:o, s:o, s:o, s:o, s:s, s:o, s:f, s:f, s:f, s:f}", "model",
        e->info.model, "target", e->session_info.target, "device",
        text_json(e->session_info.device), "mode", e->session_info.mode, "threads",
        (int)e->session_info.n_threads, "seed", (json_int_t)g->seed, "temp",
        text_json_float(g->temperature), "prompt_ids", ids_json(prompt->ids, prompt->n), "ids",
        ids_json(out->ids, out->n_ids), "text", text, "stop",
        json_is_null(error) ? reason[r->reason] : "error", "error", error, "prefill_tok_s",
        rate(r->n_prompt - r->n_reused, r->prefill_s), "decode_tok_s",
        rate(r->n_generated > 1 ? r->n_generated - 1 : 0, r->decode_s), "first_token_ms",
        1e3 * r->first_token_s, "load_s", e->load_s);
    if (o && out->args->load_state) {
        json_object_set_new(o, "restored", json_integer(out->restored));
    }
    engine_json_context(o, &out->args->engine, r);
    return ui_print_json(o, err);
}

static void print_stats(const struct engine *e, const struct output *out,
                        const struct tw_generate_options *g, const struct tw_generate_result *r) {
    bool line_is_open = !out->args->json && !out->args->print_ids;
    (line_is_open ? ui_note_below : ui_note)(
        "%u token%s of prompt, %.1f tok/s; %u generated, %.1f tok/s; first after %.1f ms; seed "
        "%llu; %s, %s, %u thread%s",
        r->n_prompt, text_s(r->n_prompt), rate(r->n_prompt - r->n_reused, r->prefill_s),
        r->n_generated, rate(r->n_generated > 1 ? r->n_generated - 1 : 0, r->decode_s),
        1e3 * r->first_token_s, (unsigned long long)g->seed, e->session_info.target,
        e->session_info.mode, e->session_info.n_threads, text_s(e->session_info.n_threads));
    engine_note_context(r);
}

static int print_output(const struct engine *e, struct output *out, const struct prompt *prompt,
                        const struct tw_generate_options *g, const struct tw_generate_result *r,
                        tw_error *err) {
    if (out->args->json) {
        return print_json(e, out, prompt, g, r, err);
    }
    if (out->args->print_ids) {
        for (size_t i = 0; i < out->n_ids; i++) {
            printf(i ? " %u" : "%u", out->ids[i]);
        }
        putchar('\n');
    } else {
        ui_end_line();
    }
    return ui_flush(err);
}

/* The speed is printed after the text. */
static int print_results(const struct engine *e, struct output *out, const struct prompt *prompt,
                         const struct tw_generate_options *g, const struct tw_generate_result *r,
                         tw_error *err) {
    int code = print_output(e, out, prompt, g, r, err);
    if (out->args->stats) {
        print_stats(e, out, g, r);
    }
    return code;
}

static bool has_room(const struct engine *e, const struct prompt *prompt) {
    return prompt->n <= e->session_info.n_ctx - tw_session_position(e->session);
}

/* Saves what there is, whatever ended the text, if that left the session usable. Returns the code
 * that the command ends with, given that of the text. */
static int save_after(struct engine *e, const struct output *out, int code, tw_error *err) {
    tw_error why = {0};
    if (code && code != UI_PIPE && code != TW_E_CONTEXT_FULL && code != TW_E_INTERRUPTED) {
        return code;
    }
    size_t end = out->restored + out->prompt->n + out->n_tokens - out->dropped;
    int saved =
        saved_run_save(e, out->args->save_state, out->n_tokens ? &out->last : NULL, end, &why);
    if (saved && (!code || code == UI_PIPE)) {
        return tw_fail(err, saved, "%s", why.message);
    }
    if (saved) {
        ui_note("%s", why.message);
    }
    return code;
}

/* Writes the logits after every token of the prompt, a piece at a time. */
static int score(struct engine *e, struct output *out, const struct prompt *prompt, tw_error *err) {
    enum { PIECE = 64 };
    struct tw_generate_options g = {.size = sizeof g};
    struct tw_generate_result r = {.size = sizeof r, .n_prompt = (uint32_t)prompt->n};
    size_t row_bytes = (size_t)out->n_vocab * sizeof(float);
    if (!has_room(e, prompt)) { /* it is refused, before anything is computed */
        return tw_session_feed(e->session, prompt->ids, prompt->n, err);
    }
    float *logits = malloc(PIECE * row_bytes);
    int code = logits ? 0 : tw_fail(err, TW_E_NOMEM, "out of memory for the logits of the prompt");
    for (size_t at = 0; at < prompt->n && !code; at += PIECE) {
        size_t n = prompt->n - at < PIECE ? prompt->n - at : PIECE;
        double start = tw_clock_s();
        code = tw_session_score(e->session, prompt->ids + at, n, logits, err);
        r.prefill_s += tw_clock_s() - start;
        code = code ? code : logits_file_write(out->logits, logits, n * row_bytes, err);
    }
    free(logits);
    code = code ? code : print_prompt(out);
    return code ? code : print_results(e, out, prompt, &g, &r, err);
}

static int generate(struct engine *e, struct output *out, const struct prompt *prompt,
                    tw_error *err) {
    const struct run_args *a = out->args;
    struct tw_generate_options g = {.size = sizeof g,
                                    .n_predict = choose_count(a, e, prompt->n),
                                    .flags = (a->ignore_eos ? TW_GENERATE_IGNORE_EOS : 0u) |
                                             (a->special ? TW_GENERATE_PRINT_SPECIAL : 0u) |
                                             (a->logits ? 0u : TW_GENERATE_NO_LOGITS) |
                                             (a->engine.whole_steps ? TW_GENERATE_WHOLE_STEPS : 0u),
                                    .on_token = on_token,
                                    .on_text = a->print_ids ? NULL : on_text,
                                    .on_prompt = on_prompt,
                                    .ctx = out,
                                    .stop = &ui_stop};
    struct sampling sampling = {.bias = {{0}}};
    struct tw_generate_result r = {.size = sizeof r};
    int sampled =
        sampling_apply(&a->sampling, e->source.decoder, a->prompt.ids.given, &sampling, &g, err);
    if (sampled) {
        return sampled;
    }
    int full = engine_on_full(&a->engine, &g, err);
    if (full) {
        return full;
    }
    if (a->n == 0 || (!g.on_full && !has_room(e, prompt))) { /* the latter is refused */
        int code = tw_session_feed_prompt(e->session, prompt->ids, prompt->n, &r.n_reused, err);
        r.n_prompt = code ? r.n_reused : (uint32_t)prompt->n;
        code = code ? code : print_prompt(out);
        return code ? code : print_results(e, out, prompt, &g, &r, err);
    }
    uint32_t *history;
    int code = saved_run_history(e, &g, &history, err);
    code = code ? code : tw_generate(e->session, prompt->ids, prompt->n, &g, &r, err);
    free(history);
    out->dropped = r.n_dropped;
    ui_progress_end();
    if (out->code) {
        return out->code;
    }
    out->ended = code;
    /* what has been generated is printed, whatever ended it */
    bool show = !code || code == TW_E_CONTEXT_FULL || code == TW_E_INTERRUPTED || r.n_generated;
    int printed = show ? print_results(e, out, prompt, &g, &r, code ? NULL : err) : 0;
    return printed == UI_PIPE || !code ? printed : code;
}

/* ---- conversations ---- */

/* -sys or --template alone: one answer. */
static bool talks(const struct run_args *a) {
    return a->talk || a->single || a->conversation.system || a->conversation.template;
}

static int converse(struct engine *e, const struct run_args *a, tw_error *err) {
    struct prompt prompt = {.text = NULL};
    struct conversation_options conversation = a->conversation;
    struct chat_loop_options o = {.conversation = &conversation,
                                  .sampling = &a->sampling,
                                  .engine = &a->engine,
                                  .single = !a->talk || a->single,
                                  .stats = a->stats};
    bool given = a->prompt.text || a->prompt.file || o.single;
    int code = given ? prompt_read_text(&a->prompt, &prompt, err) : 0;
    if (!code && given && (!prompt.n_text || memchr(prompt.text, 0, prompt.n_text))) {
        code = tw_fail(err, TW_E_USAGE,
                       "the message is empty, or has a byte 0: give it with -p, -f or on standard "
                       "input");
    }
    conversation.n = a->n == N_DEFAULT ? N_UNTIL_END : a->n;
    o.first = given ? prompt.text : NULL;
    code = code ? code : chat_loop(e, &o, err);
    prompt_finish(&prompt);
    return code;
}

/* A model without a tokenizer can be used with ids only. */
static bool needs_tokenizer(const struct run_args *a) {
    return !a->prompt.ids.given ||
           (a->n != 0 && !a->print_ids && !a->json && !a->logits && !a->logits_all);
}

/* For bundles and cached models; other models were checked before they were compiled. */
static int check_tokenizer(const struct engine *e, const struct run_args *a, const char *path,
                           tw_error *err) {
    struct tw_model_info facts = {.size = sizeof facts, .tokenizer_problem = "it has no tokenizer"};
    if (e->info.has_tokenizer || !needs_tokenizer(a)) {
        return 0;
    }
    int code = e->source.is_bundle ? 0 : tw_model_get_info(path, a->engine.tokenizer, &facts, err);
    facts.has_tokenizer = false;
    return code ? code : model_need_tokenizer(path, &facts, err);
}

static int with_engine(struct engine *e, const struct run_args *a, tw_error *err) {
    struct prompt prompt;
    struct logits_file logits;
    struct output out = {.args = a, .n_vocab = e->info.n_vocab, .err = err};
    struct prompt_options given = a->prompt;
    given.continues = a->load_state != NULL;
    int code = prompt_read(&given, a->special, e->source.decoder, &prompt, err);
    out.prompt = &prompt;
    if (!code && a->load_state) {
        code = saved_run_load(e, a->load_state, &prompt, &out.restored, err);
    }
    if (!code && (a->logits || a->logits_all)) {
        code = logits_file_open(&logits, a->logits ? a->logits : a->logits_all, err);
        out.logits = code ? NULL : &logits;
    }
    if (!code) {
        ui_catch_interrupts();
        code = a->logits_all ? score(e, &out, &prompt, err) : generate(e, &out, &prompt, err);
        code = a->save_state ? save_after(e, &out, code, err) : code;
        if (!code || code == TW_E_CONTEXT_FULL || code == TW_E_INTERRUPTED) {
            engine_keep_prefix(e, &a->engine);
        }
    }
    if (out.logits) {
        bool keep =
            !code || code == TW_E_INTERRUPTED || (code == TW_E_CONTEXT_FULL && !a->logits_all);
        int closed = logits_file_close(&logits, keep, code ? NULL : err);
        code = code ? code : closed;
    }
    prompt_finish(&prompt);
    free(out.ids);
    free(out.text);
    return code;
}

/* Options of text that is continued, and of its tokens. */
static int check_talk(const struct opt_result *result, tw_error *err) {
    static const char *const others[] = {
        "ids",        "no-bos",     "special",           "print-ids",  "json",      "logits",
        "logits-all", "ignore-eos", "no-display-prompt", "load-state", "save-state"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (opt_was_given(&verb, result, others[i])) {
            return tw_fail(err, TW_E_USAGE,
                           "option --%s does not go with a conversation (-cnv, -st, -sys, "
                           "--template), in which messages are exchanged",
                           others[i]);
        }
    }
    return 0;
}

static int check(const struct run_args *a, const struct opt_result *result, tw_error *err) {
    if ((a->prompt.text != NULL) + (a->prompt.file != NULL) + a->prompt.ids.given > 1) {
        return tw_fail(err, TW_E_USAGE,
                       "options --prompt, --file and --ids: only one of them can be given");
    }
    if (a->print_ids && a->json) {
        return tw_fail(err, TW_E_USAGE,
                       "options --print-ids and --json: only one of them can be given");
    }
    if (a->prompt.ids.given && (a->prompt.no_bos || a->prompt.escape)) {
        return tw_fail(err, TW_E_USAGE,
                       "option --%s has no effect on --ids, which are used "
                       "as given",
                       a->prompt.no_bos ? "no-bos" : "escape");
    }
    const char *file = a->logits ? a->logits : a->logits_all;
    if (file && strcmp(file, "-") == 0) {
        return tw_fail(err, TW_E_USAGE,
                       "option --logits%s: standard output carries the text; name a file",
                       a->logits ? "" : "-all");
    }
    if (a->logits_all && (a->logits || (a->n != N_DEFAULT && a->n != 0))) {
        return tw_fail(err, TW_E_USAGE,
                       "option --logits-all generates nothing: it does not go with --%s",
                       a->logits ? "logits" : "n-predict");
    }
    int code = a->logits_all ? sampling_refuse(&verb, result, "logits-all", err) : 0;
    return code || !talks(a) ? code : check_talk(result, err);
}

static int run(int argc, char **argv, tw_error *err) {
    struct run_args a = {.engine = ENGINE_DEFAULTS,
                         .n = N_DEFAULT,
                         .sampling = SAMPLING_DEFAULTS,
                         .conversation = CONVERSATION_DEFAULTS};
    struct opt_result result;
    int code = opt_parse(&verb, argc, argv, &a, &result, err);
    if (!code && result.help) {
        opt_print_help(&verb, stdout);
        code = ui_flush(err);
    } else if (!code) {
        code = check(&a, &result, err);
        a.engine.text = needs_tokenizer(&a);
        a.engine.whole_steps = talks(&a) || a.save_state || a.engine.prompt_cache;
        a.engine.caches = talks(&a);
        a.engine.logits = a.logits_all ? "all" : NULL;
        struct engine e;
        code = code ? code : engine_open(&e, result.operand[0], &a.engine, err);
        if (!code) {
            code = check_tokenizer(&e, &a, result.operand[0], err);
            code = code ? code : talks(&a) ? converse(&e, &a, err) : with_engine(&e, &a, err);
            engine_close(&e);
        }
    }
    free(a.prompt.ids.ids);
    return code;
}

const struct cmd cmd_run = {&verb, run};
