/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright dump: prints a stage of a model's compilation as text, or the programs that a bundle
 * or a text file holds.
 */
#include "tilewright/program.h"
#include "tools/cmd.h"
#include "tools/engine.h"
#include "tools/text_file.h"
#include "tools/ui.h"

#include <string.h>

struct dump_args {
    struct engine_options engine;
    const char *stage, *program;
};

#define AT(field) offsetof(struct dump_args, field)
static const struct opt options[] = {
    {OPT_TEXT, 0, "stage", "S", AT(stage), 0, 0,
     "stage to print: graph, mid, low, section or program (program)"},
    {OPT_TEXT, 0, "program", "NAME", AT(program), 0, 0,
     "for a bundle or text file: print only this program"},
    COMPILE_ROWS(struct dump_args),
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "dump",
    "MODEL|BUNDLE|TEXT",
    1,
    "Print a stage of a model's compilation, or the programs of a bundle or text file, as text.",
    options,
    "A bundle holds programs only; earlier stages come from the model. Programs are printed in the "
    "form of tws(5)."};

static int dump_bundle(const char *path, bool is_text, const struct dump_args *a, tw_error *err) {
    int code = engine_check_bundle(&a->engine, path, err);
    if (code) {
        return code;
    }
    if (a->engine.target || a->engine.ctx) {
        return tw_fail(err, TW_E_USAGE, "option --%s is for models; %s is compiled already",
                       a->engine.target ? "target" : "ctx", path);
    }
    if (a->stage && strcmp(a->stage, "program") != 0) {
        return tw_fail(err, TW_E_USAGE,
                       "%s: a %s has only stage program; dump stage '%.40s' of its model", path,
                       is_text ? "text file" : "bundle", a->stage);
    }
    if (is_text) {
        return tw_program_file_print(path, a->program, stdout, err);
    }
    tw_decoder *decoder;
    code = tw_decoder_open(path, TW_DECODER_NO_RULES, &decoder, err);
    if (!code) {
        code = tw_decoder_print(decoder, a->program, stdout, err);
        tw_decoder_close(decoder);
    }
    return code;
}

static int dump_model(const char *path, const struct dump_args *a, tw_error *err) {
    if (a->program) {
        return tw_fail(err, TW_E_USAGE, "option --program is for bundles and text files");
    }
    int code = engine_check_model(&a->engine, a->engine.target, err);
    if (code) {
        return code;
    }
    struct tw_compile_options c = engine_compile_options(&a->engine, "");
    c.progress = ui_progress;
    code = tw_compile_dump(path, a->stage ? a->stage : "program", &c, stdout, err);
    ui_progress_end();
    return code;
}

static int run(int argc, char **argv, tw_error *err) {
    struct dump_args a = {.engine = ENGINE_DEFAULTS};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    const char *path = result.operand[0];
    bool is_text = text_file_is(path);
    code = is_text || cache_is_bundle(path) ? dump_bundle(path, is_text, &a, err)
                                            : dump_model(path, &a, err);
    /* If the output broke, that is the error to report, whatever the interrupted printer says. */
    int flushed = ui_flush(err);
    return flushed ? flushed : code;
}

const struct cmd cmd_dump = {&verb, run};
