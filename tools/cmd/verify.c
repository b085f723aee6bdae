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
    bool json, rules;
};

#define AT(field) offsetof(struct verify_args, field)
static const struct opt options[] = {
    {OPT_FLAG, 0, "rules", NULL, AT(rules), 0, 0,
     "list the rules and how many objects each was checked for"},
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
    int code = opt_parse(&verb, argc, argv, &a, &result, err);
    if (code) {
        return code;
    }
    if (result.help) {
        opt_print_help(&verb, stdout);
        return ui_flush(err);
    }
    const char *path = result.operand[0];
    return text_file_is(path) ? verify_text(path, &a, err) : verify(path, &a, err);
}

const struct cmd cmd_verify = {&verb, run};
