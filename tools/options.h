/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line options: one table per verb drives parsing, range checks and --help.
 */
#ifndef TW_TOOLS_OPTIONS_H
#define TW_TOOLS_OPTIONS_H

#include "tilewright/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Kinds and the type that the value is stored as. */
enum opt_kind {
    OPT_FLAG,  /* bool, no argument */
    OPT_TEXT,  /* const char *, the argument as it is */
    OPT_I64,   /* int64_t in [lo, hi] */
    OPT_FLOAT, /* float in [lo, hi] */
    OPT_TEXTS, /* struct opt_texts: the option may be given several times */
    OPT_IDS,   /* struct opt_ids: numbers separated by commas or spaces */
    OPT_END
};

struct opt_ids {
    bool given;
    uint32_t *ids; /* malloced; the caller frees */
    size_t n;
};

#define OPT_MAX_TEXTS 16u
struct opt_texts {
    const char *text[OPT_MAX_TEXTS];
    size_t n;
};

struct opt {
    enum opt_kind kind;
    char letter;      /* 0: none */
    const char *name; /* without dashes */
    const char *arg;  /* name of the argument in --help */
    size_t offset;    /* into the verb's structure */
    double lo, hi;
    const char *help;
};

struct opt_verb {
    const char *name;
    const char *operands;      /* "MODEL|BUNDLE"; each "[FILE]" at the end is one more */
    uint32_t n_operands;       /* number of the others, unless --help is given */
    const char *summary;       /* one line */
    const struct opt *options; /* ends with OPT_END; -h, --help is always understood */
    const char *notes;         /* more lines for --help, or "" */
};

#define OPT_MAX_OPERANDS 3u
struct opt_result {
    bool help;
    const char *operand[OPT_MAX_OPERANDS];
    uint64_t given[2]; /* a bit for each row of the table */
};
/* Returns whether the option of that name was given. */
bool opt_was_given(const struct opt_verb *verb, const struct opt_result *result, const char *name);

/* Parses argv[1..argc). "-n 3", "-n3", "--name 3", "--name=3"; "--" ends the options; the last of
 * equal options counts. The names of tools/option_names.h are accepted for ours, and if the operand
 * is a model, -m and --model may be written before it. Errors: USAGE (names the option, what was
 * found and expected, and what may have been meant), NOMEM. */
int opt_parse(const struct opt_verb *verb, int argc, char **argv, void *into,
              struct opt_result *result, tw_error *err);

void opt_print_help(const struct opt_verb *verb, FILE *out);

#endif
