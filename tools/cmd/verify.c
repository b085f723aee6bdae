/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright verify: recomputes every hash of a bundle, or parses a text file of programs, and
 * checks the programs against the rules of the tile machine.
 */
#include "tilewright/compile.h"
#include "tilewright/program.h"
#include "tools/cmd.h"
#include "tools/text.h"
#include "tools/text_file.h"
#include "tools/ui.h"

struct verify_args {
    bool json, rules, exhaustive;
    int64_t max_states;
};

#define AT(field) offsetof(struct verify_args, field)
static const struct opt options[] = {
    {OPT_FLAG, 0, "rules", NULL, AT(rules), 0, 0,
     "list the rules and how many objects each was checked for"},
    {OPT_FLAG, 0, "exhaustive", NULL, AT(exhaustive), 0, 0,
     "for a text file: run the ops in every order, instead of a proof"},
    {OPT_I64, 0, "max-states", "N", AT(max_states), 1, 1u << 24,
     "maximum number of states that --exhaustive stores (65536)"},
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "verify",
    "BUNDLE|TEXT",
    1,
    "Check a bundle (every hash, and its programs against every rule) or a text file of programs, "
    "see tws(5).",
    options,
    "Exit status 3: the file is damaged; 7: a program breaks a rule."};

/* True if `info` is of a text file: no target, no model. */
static bool is_text(const struct tw_decoder_info *info) {
    return info->target[0] == 0;
}

static int print_json(const char *path, const struct tw_decoder_info *info,
                      const struct tw_rules_info *r, int code, const char *message, tw_error *err) {
    json_t *rules = json_array();
    for (uint32_t i = 1; i <= r->n_rules; i++) {
        json_array_append_new(rules, json_pack("{s:i, s:s, s:s, s:I, s:b}", "rule", (int)i, "name",
                                               tw_rule_name(i), "demands", tw_rule_text(i),
                                               "checked", (json_int_t)r->checked[i], "failed",
                                               (int)(r->failed_rule == i)));
    }
    json_t *o =
        json_pack("{s:o, s:b, s:s?, s:s?, s:i, s:o, s:o}", is_text(info) ? "text" : "bundle",
                  text_json(path), "ok", code == 0, "target", is_text(info) ? NULL : info->target,
                  "model", is_text(info) ? NULL : info->model, "programs", (int)info->n_programs,
                  "error", code ? json_string(message) : json_null(), "rules", rules);
    return ui_print_json(o, err);
}

static int print_text(const char *path, const struct tw_decoder_info *info,
                      const struct tw_rules_info *r, bool list, tw_error *err) {
    uint64_t checked = 0;
    for (uint32_t i = 1; i <= r->n_rules; i++) {
        checked += r->checked[i];
    }
    if (list) {
        for (uint32_t i = 1; i <= r->n_rules; i++) {
            printf("%2u %-20s %10llu  %s\n", i, tw_rule_name(i), (unsigned long long)r->checked[i],
                   tw_rule_text(i));
        }
    }
    if (is_text(info)) {
        printf("%s: ok: %u program%s obey%s %u rules (%llu checks)\n", text_clean(path).text,
               info->n_programs, info->n_programs == 1 ? "" : "s", info->n_programs == 1 ? "s" : "",
               r->n_rules, (unsigned long long)checked);
        return ui_flush(err);
    }
    printf("%s: ok: hashes match; %u program%s for %s obey %u rules (%llu checks)\n",
           text_clean(path).text, info->n_programs, text_s(info->n_programs), info->target,
           r->n_rules, (unsigned long long)checked);
    return ui_flush(err);
}

static int report(const char *path, const struct verify_args *a, const struct tw_decoder_info *info,
                  const struct tw_rules_info *rules, int code, tw_error *err) {
    int printed = 0;
    if (a->json) {
        printed = print_json(path, info, rules, code, code ? err->message : "", code ? NULL : err);
    } else if (!code) {
        printed = print_text(path, info, rules, a->rules, err);
    }
    return code ? code : printed;
}

static int verify_text(const char *path, const struct verify_args *a, tw_error *err) {
    struct tw_decoder_info info = {.size = sizeof info};
    struct tw_rules_info rules = {.size = sizeof rules};
    tw_certifier *certifier;
    int code = tw_certifier_create(&certifier, err);
    if (code) {
        return code;
    }
    code =
        tw_program_file_verify(path, tw_certifier_prove, certifier, &rules, &info.n_programs, err);
    tw_certifier_destroy(certifier);
    return code && code != TW_E_VERIFY ? code : report(path, a, &info, &rules, code, err);
}

/* ---- every order ---- */

static const char *kind_name(enum tw_schedules_found kind) {
    switch (kind) {
    case TW_FOUND_RACE:
        return "race";
    case TW_FOUND_DIFFERS:
        return "differs";
    case TW_FOUND_FAULT:
        return "fault";
    case TW_FOUND_DEADLOCK:
        return "deadlock";
    case TW_FOUND_LIMIT:
        return "limit";
    }
    return "?";
}

struct explored {
    const char *path;
    json_t *programs; /* NULL: text goes to standard output */
};

static json_t *finding_json(const struct tw_schedules_finding *f) {
    json_t *schedules = json_array();
    for (int i = 0; i < 2 && f->schedule[i]; i++) {
        json_array_append_new(schedules, json_string(f->schedule[i]));
    }
    return json_pack("{s:s, s:o, s:o}", "kind", kind_name(f->kind), "what", text_json(f->what),
                     "schedules", schedules);
}

static void explored_json(const struct explored *x, const struct tw_schedules_info *info) {
    json_t *findings = json_array();
    for (uint32_t i = 0; i < info->n_findings; i++) {
        json_array_append_new(findings, finding_json(&info->findings[i]));
    }
    json_array_append_new(x->programs,
                          json_pack("{s:o, s:i, s:I, s:I, s:I, s:o}", "program",
                                    text_json(info->program), "line", (int)info->line, "input",
                                    (json_int_t)info->input, "states", (json_int_t)info->states,
                                    "orders", (json_int_t)info->ends, "findings", findings));
}

static void explored_text(const struct explored *x, const struct tw_schedules_info *info) {
    char verdict[100] = "ok: every order of its ops leaves the same bytes";
    if (info->found == TW_FOUND_LIMIT) {
        snprintf(verdict, sizeof verdict, "nothing found, but not every order was run");
    } else if (info->found) {
        snprintf(verdict, sizeof verdict, "not ok with inputs of %u", info->input);
    }
    printf("%s:%u: program %s: %s (%llu order%s run to the end, %llu state%s with a choice)\n",
           text_clean(x->path).text, info->line, text_clean(info->program).text, verdict,
           (unsigned long long)info->ends, text_s(info->ends), (unsigned long long)info->states,
           text_s(info->states));
    for (uint32_t i = 0; i < info->n_findings; i++) {
        const struct tw_schedules_finding *f = &info->findings[i];
        printf("  %s: %s\n", kind_name(f->kind), text_clean(f->what).text);
        for (int k = 0; k < 2 && f->schedule[k]; k++) {
            printf("    order: %s\n", f->schedule[k]);
        }
    }
}

static void take_explored(void *ctx, const struct tw_schedules_info *info) {
    const struct explored *x = ctx;
    if (x->programs) {
        explored_json(x, info);
    } else {
        explored_text(x, info);
    }
}

static int explore(const char *path, const struct verify_args *a, tw_error *err) {
    struct explored x = {path, a->json ? json_array() : NULL};
    int code = tw_program_file_explore(path, (uint32_t)a->max_states, 0, take_explored, &x, err),
        printed;
    if (a->json && (!code || code == TW_E_VERIFY || code == TW_E_NOMEM)) {
        printed = ui_print_json(
            json_pack("{s:o, s:b, s:o, s:o}", "text", text_json(path), "ok", code == 0, "error",
                      code ? json_string(err->message) : json_null(), "programs", x.programs),
            code ? NULL : err);
    } else {
        json_decref(x.programs);
        printed = ui_flush(code ? NULL : err);
    }
    return code ? code : printed;
}

static int verify(const char *path, const struct verify_args *a, tw_error *err) {
    tw_decoder *decoder;
    int code = tw_decoder_open(path, TW_DECODER_NO_RULES | TW_DECODER_CHECK_HASH, &decoder, err);
    if (code) {
        return code;
    }
    struct tw_decoder_info info = {.size = sizeof info};
    struct tw_rules_info rules = {.size = sizeof rules};
    tw_decoder_get_info(decoder, &info, NULL);
    code = tw_decoder_verify(decoder, &rules, err);
    code = report(path, a, &info, &rules, code, err);
    tw_decoder_close(decoder);
    return code;
}

static int run(int argc, char **argv, tw_error *err) {
    struct verify_args a = {0};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    const char *path = result.operand[0];
    bool text = text_file_is(path);
    if (!a.exhaustive && a.max_states) {
        return tw_fail(err, TW_E_USAGE, "--max-states applies only with --exhaustive");
    }
    if (a.exhaustive && !text) {
        return tw_fail(err, TW_E_USAGE,
                       "%s is not a text of programs: --exhaustive is for small ones, see tws(5); "
                       "without it, verify proves a bundle's order",
                       path);
    }
    if (a.exhaustive) {
        return explore(path, &a, err);
    }
    return text ? verify_text(path, &a, err) : verify(path, &a, err);
}

const struct cmd cmd_verify = {&verb, run};
