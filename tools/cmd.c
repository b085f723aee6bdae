/* SPDX-License-Identifier: Apache-2.0
 *
 * What all verbs begin with (tools/cmd.h).
 */
#include "tools/cmd.h"

#include "tools/ui.h"

bool cmd_begin(const struct opt_verb *verb, int argc, char **argv, void *args,
               struct opt_result *result, int *code, tw_error *err) {
    *code = opt_parse(verb, argc, argv, args, result, err);
    if (*code || !result->help) {
        return *code == 0;
    }
    opt_print_help(verb, stdout);
    *code = ui_flush(err);
    return false;
}
