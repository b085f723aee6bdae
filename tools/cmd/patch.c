/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright patch: makes a bundle of another and a delta.
 */
#include "tilewright/delta.h"

#include "loader/base/temporary.h"
#include "tools/cmd.h"
#include "tools/delta_report.h"
#include "tools/output_path.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <stdlib.h>

struct patch_args {
    const char *out;
    bool json, quiet;
};

#define AT(field) offsetof(struct patch_args, field)
static const struct opt options[] = {
    {OPT_TEXT, 'o', "output", "BUNDLE", AT(out), 0, 0, "file to write (required)"},
    {OPT_FLAG, 'q', "quiet", NULL, AT(quiet), 0, 0, "print nothing"},
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "patch", "OLD DELTA",
    2,       "Make the bundle that a delta describes (see diff and compile --delta-from).",
    options, "The bundle appears only when it is complete and has the hash that DELTA states."};

static int patch(const char *old, const char *delta, const struct patch_args *a, tw_error *err) {
    struct tw_delta_info info = {.size = sizeof info};
    char bytes[32], hash[65];
    const char *const inputs[] = {old, delta};
    int code = output_check(a->out, "bundle", inputs, 2, err);
    if (code) {
        return code;
    }
    char *temporary = tw_temporary_path(a->out);
    ui_guard(temporary, NULL, NULL);
    code = tw_delta_apply(old, delta, a->out, &info, err);
    ui_guard(NULL, NULL, NULL);
    free(temporary);
    if (code || a->quiet) {
        return code;
    }
    if (a->json) {
        return ui_print_json(json_pack("{s:o, s:s, s:o}", "bundle", text_json(a->out), "content",
                                       text_hex(info.target_hash, sizeof info.target_hash, hash),
                                       "delta", delta_json(&info, delta)),
                             err);
    }
    printf("%s: %s, content %s\n", text_clean(a->out).text, ui_bytes(info.target_bytes, bytes),
           text_hex(info.target_hash, sizeof info.target_hash, hash));
    return ui_flush(err);
}

static int run(int argc, char **argv, tw_error *err) {
    struct patch_args a = {0};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    return patch(result.operand[0], result.operand[1], &a, err);
}

const struct cmd cmd_patch = {&verb, run};
