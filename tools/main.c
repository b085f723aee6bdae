/* SPDX-License-Identifier: Apache-2.0
 *
 * The command tilewright: finds the verb, runs it, and turns its error into one line and an exit
 * status.
 */
#include "tilewright/tilewright.h"
#include "tools/cmd.h"
#include "tools/option_names.h"
#include "tools/ui.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

static const struct cmd *const commands[] = {
    &cmd_compile, &cmd_run,   &cmd_chat,   &cmd_perplexity, &cmd_bench,   &cmd_inspect,  &cmd_dump,
    &cmd_diff,    &cmd_patch, &cmd_verify, &cmd_devices,    &cmd_emulate, &cmd_selftest, &cmd_reset,
    &cmd_doctor,  &cmd_top,   &cmd_cache,  &cmd_state,      NULL};

static void print_usage(FILE *out) {
    fputs("usage: tilewright VERB [arguments]\n"
          "Compile language models for a tiled accelerator, and run them on it or on the emulated "
          "device.\n\n",
          out);
    for (size_t i = 0; commands[i]; i++) {
        fprintf(out, "  %-10s %s\n", commands[i]->verb->name, commands[i]->verb->summary);
    }
    fputs("\ntilewright VERB --help lists the options of a verb; tilewright --version prints the "
          "version.\n",
          out);
}

static const struct cmd *find(const char *name) {
    for (size_t i = 0; commands[i]; i++) {
        if (strcmp(commands[i]->verb->name, name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

static int unknown(const char *word, tw_error *err) {
    size_t best = SIZE_MAX, distance;
    const char *meant = NULL;
    for (size_t i = 0; commands[i]; i++) {
        if (option_is_near(word, commands[i]->verb->name, &distance) && distance < best) {
            best = distance;
            meant = commands[i]->verb->name;
        }
    }
    if (meant) {
        return tw_fail(err, TW_E_USAGE,
                       "unknown verb '%.60s'; did you mean %s? see tilewright --help", word, meant);
    }
    if (access(word, F_OK) == 0) {
        return tw_fail(err, TW_E_USAGE,
                       "'%.200s' is a file; a verb comes first, as in: tilewright run %.200s", word,
                       word);
    }
    return tw_fail(err, TW_E_USAGE, "unknown verb '%.60s'; see tilewright --help", word);
}

/* Help that was asked for goes to stdout. */
static int help(const struct cmd *command, tw_error *err) {
    if (command) {
        opt_print_help(command->verb, stdout);
    } else {
        print_usage(stdout);
    }
    return ui_flush(err);
}

static int dispatch(int argc, char **argv, tw_error *err) {
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        return help(NULL, err);
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("tilewright %s\n", tw_version());
        return ui_flush(err);
    }
    const struct cmd *command = find(strcmp(word, "help") == 0 && argc > 2 ? argv[2] : word);
    if (!command && strcmp(word, "help") == 0 && argc == 2) {
        return help(NULL, err);
    }
    if (!command) {
        return unknown(strcmp(word, "help") == 0 ? argv[2] : word, err);
    }
    if (strcmp(word, "help") == 0) {
        return help(command, err);
    }
    return command->run(argc - 1, argv + 1, err);
}

int main(int argc, char **argv) {
    ui_init();
    if (argc < 2) {
        print_usage(stderr);
        return TW_CLASS_USAGE;
    }
    tw_error err = {0};
    int code = dispatch(argc, argv, &err);
    if (code == UI_PIPE) {
        return 128 + 13; /* as if SIGPIPE had ended us, but with everything closed */
    }
    if (code && code != TW_E_INTERRUPTED) {
        ui_print_error(&err);
    }
    return tw_error_exit_status(code);
}
