/* SPDX-License-Identifier: Apache-2.0
 *
 * The verbs. Each file of tools/cmd/ is one: its option table and what it does.
 */
#ifndef TW_TOOLS_CMD_H
#define TW_TOOLS_CMD_H

#include "tools/options.h"

struct cmd {
    const struct opt_verb *verb;
    /* argv[0] is the verb. Returns 0 or a TW_E_* code with a line in err; UI_PIPE when the
     * reader of the output has gone. */
    int (*run)(int argc, char **argv, tw_error *err);
};

/* Parses a verb's arguments into `args`. Returns whether the verb is to go on; if not, *code is
 * what it returns: the error, or that of printing its help. */
bool cmd_begin(const struct opt_verb *verb, int argc, char **argv, void *args,
               struct opt_result *result, int *code, tw_error *err);

extern const struct cmd cmd_compile, cmd_run, cmd_chat, cmd_perplexity, cmd_bench, cmd_inspect,
    cmd_dump, cmd_verify, cmd_devices, cmd_emulate, cmd_selftest, cmd_reset, cmd_doctor, cmd_top,
    cmd_cache, cmd_state, cmd_diff, cmd_patch;

#endif
