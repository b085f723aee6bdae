/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright compile: compiles a model file into a bundle and reports what was made.
 */
#include "loader/base/clock.h"
#include "loader/base/temporary.h"
#include "tilewright/delta.h"
#include "tools/cmd.h"
#include "tools/delta_report.h"
#include "tools/engine.h"
#include "tools/model.h"
#include "tools/output_path.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct compile_args {
    struct engine_options engine;
    const char *out, *delta_from;
    bool json, quiet;
};

#define AT(field) offsetof(struct compile_args, field)
static const struct opt options[] = {
    {OPT_TEXT, 'o', "output", "BUNDLE", AT(out), 0, 0, "file to write (required)"},
    {OPT_TEXT, 0, "delta-from", "OLD", AT(delta_from), 0, 0,
     "write only what makes the bundle of the bundle OLD, for tilewright patch"},
    COMPILE_ROWS(struct compile_args),
    {OPT_TEXT, 0, "logits", "WHICH", ENGINE_OFFSET(struct compile_args, logits), 0, 0,
     "last, or all: with a program that gives the logits of all tokens of a prompt (last)"},
    {OPT_I64, 0, "top-k", "K", ENGINE_OFFSET(struct compile_args, lists), 1, 1024,
     "have each site list its K best logits, so that greedy runs need not read them all"},
    {OPT_FLAG, 'q', "quiet", NULL, AT(quiet), 0, 0, "print nothing"},
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print the report as JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "compile", "MODEL",
    1,         "Compile a model (GGUF, safetensors, llama2.c) into a bundle for a target.",
    options,   "The bundle appears only when it is complete."};

static int report_json(const struct tw_compile_report *r, const struct compile_args *a,
                       const struct tw_delta_info *delta, double seconds, tw_error *err) {
    json_t *o = json_pack(
        "{s:o, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:f, s:f}",
        "bundle", text_json(a->out), "target", r->target, "sites", (int)r->n_sites, "n_ctx",
        (int)r->n_ctx, "prefill_rows", (int)r->prefill_rows, "batch_rows", (int)r->batch_rows,
        "n_params", (json_int_t)r->n_params, "param_bytes", (json_int_t)r->param_bytes,
        "state_bytes", (json_int_t)r->state_bytes, "bundle_bytes", (json_int_t)r->bundle_bytes,
        "compile_s", seconds, "plan_s", r->plan_s, "emit_s", r->emit_s, "predicted_decode_cycles",
        (json_int_t)r->decode_cycles, "predicted_prefill_cycles", (json_int_t)r->prefill_cycles,
        "predicted_decode_tok_s", r->decode_tok_s, "predicted_prefill_tok_s", r->prefill_tok_s);
    if (a->delta_from) {
        json_object_set_new(o, "delta", delta_json(delta, a->out));
    }
    return ui_print_json(o, err);
}

static int report_text(const struct tw_compile_report *r, const struct compile_args *a,
                       const struct tw_delta_info *delta, double seconds, tw_error *err) {
    char bytes[32], params[32], state[32];
    if (a->delta_from) {
        delta_print(delta, a->out);
    }
    printf("%s: %s, %s of weights, %s of state\n",
           a->delta_from ? "bundle" : text_clean(a->out).text, ui_bytes(r->bundle_bytes, bytes),
           ui_bytes(r->param_bytes, params), ui_bytes(r->state_bytes, state));
    printf("target %s: %u site%s, context %u, prefill %u token%s per step", r->target, r->n_sites,
           text_s(r->n_sites), r->n_ctx, r->prefill_rows, text_s(r->prefill_rows));
    if (r->batch_rows) {
        printf(", batches of up to %u", r->batch_rows);
    }
    printf("\n");
    printf("predicted: decode %.1f tok/s (%llu cycles), prefill %.1f tok/s\n", r->decode_tok_s,
           (unsigned long long)r->decode_cycles, r->prefill_tok_s);
    printf("compiled in %.2f s: planning %.2f s, writing %.2f s\n", seconds, r->plan_s, r->emit_s);
    return ui_flush(err);
}

static int check_output(const char *model, const struct compile_args *a, tw_error *err) {
    const char *const inputs[] = {model, a->engine.tokenizer, a->engine.target, a->delta_from};
    int code = output_check(a->out, "bundle", inputs, sizeof inputs / sizeof inputs[0], err);
    tw_decoder *old = NULL;
    if (!code && a->delta_from) { /* before a long compilation */
        code = tw_decoder_open(a->delta_from, TW_DECODER_NO_RULES, &old, err);
        tw_decoder_close(old);
    }
    return code;
}

/* Notes what the user should know before a long compilation. */
static int note_model(const char *model, const struct compile_args *a, tw_error *err) {
    struct tw_model_info facts = {.size = sizeof facts};
    int code = tw_model_get_info(model, a->engine.tokenizer, &facts, err);
    if (code || a->quiet) {
        return code;
    }
    if (!facts.has_tokenizer) {
        ui_note("%.160s: %s: the bundle will take and print token ids only", model,
                facts.tokenizer_problem);
    }
    if (a->engine.ctx > facts.n_ctx_train) {
        ui_note("option --ctx: %lld positions, but the model was trained for %u: text beyond "
                "those may make no sense",
                (long long)a->engine.ctx, facts.n_ctx_train);
    }
    return 0;
}

static int check_logits(const struct compile_args *a, tw_error *err) {
    const char *which = a->engine.logits;
    return !which || strcmp(which, "last") == 0 || strcmp(which, "all") == 0
               ? 0
               : tw_fail(err, TW_E_USAGE, "option --logits: found \"%.40s\", expected last or all",
                         which);
}

/* Compiles to `out`, and removes what is not complete if a signal comes; or, if `guarded`, all of
 * it, until the guard ends. */
static int build(const char *model, const struct tw_compile_options *how, const char *out,
                 bool guarded, struct tw_compile_report *report, tw_error *err) {
    char *temporary = tw_temporary_path(out);
    if (!temporary) {
        return tw_fail(err, TW_E_NOMEM, "out of memory");
    }
    ui_guard(temporary, guarded ? out : NULL, NULL);
    int code = tw_compile_file(model, out, how, report, err);
    if (guarded) {
        ui_guard(out, NULL, NULL);
    } else {
        ui_guard(NULL, NULL, NULL);
    }
    ui_progress_end();
    free(temporary);
    return code;
}

/* Compiles to a file beside the output, and writes there what makes it of the older bundle. */
static int build_delta(const char *model, const struct tw_compile_options *how,
                       const struct compile_args *a, struct tw_compile_report *report,
                       struct tw_delta_info *delta, tw_error *err) {
    char *name = NULL,
         *whole = asprintf(&name, "%s.twb", a->out) < 0 ? NULL : tw_temporary_path(name);
    int code = whole ? build(model, how, whole, true, report, err)
                     : tw_fail(err, TW_E_NOMEM, "out of memory");
    code = code ? code : tw_delta_make(a->delta_from, whole, a->out, delta, err);
    if (whole) {
        unlink(whole);
    }
    ui_guard(NULL, NULL, NULL);
    free(name);
    free(whole);
    return code;
}

static void note_batch(const struct tw_compile_options *c, const struct tw_compile_report *r) {
    if (c->batch_rows > 1 && r->batch_rows < c->batch_rows) {
        ui_note("option --batch: %u sequences requested, but on target %s programs of at most %u "
                "fit",
                c->batch_rows, r->target, r->batch_rows ? r->batch_rows : 1);
    }
}

static int compile(const char *model, const struct compile_args *a, tw_error *err) {
    int code = check_logits(a, err);
    code = code ? code : check_output(model, a, err);
    code = code ? code : engine_check_model(&a->engine, a->engine.target, err);
    code = code ? code : note_model(model, a, err);
    if (code) {
        return code;
    }
    struct tw_compile_options c = engine_compile_options(&a->engine, "");
    c.progress = ui_progress;
    struct tw_compile_report report = {.size = sizeof report};
    struct tw_delta_info delta = {.size = sizeof delta};
    double start = tw_clock_s();
    code = a->delta_from ? build_delta(model, &c, a, &report, &delta, err)
                         : build(model, &c, a->out, false, &report, err);
    if (code || a->quiet) {
        return code;
    }
    double seconds = tw_clock_s() - start;
    note_batch(&c, &report);
    return a->json ? report_json(&report, a, &delta, seconds, err)
                   : report_text(&report, a, &delta, seconds, err);
}

static int run(int argc, char **argv, tw_error *err) {
    struct compile_args a = {.engine = ENGINE_DEFAULTS};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    return compile(result.operand[0], &a, err);
}

const struct cmd cmd_compile = {&verb, run};
