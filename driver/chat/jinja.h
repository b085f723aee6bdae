/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates: the subset of Jinja that templates of models use, interpreted.
 *
 *   statements   if/elif/else, for (with if, else, recursive, break, continue, loop.*), set, set
 *                blocks with filters, with, macro, call, filter, generation, raw, comments
 *   expressions  literals, attributes, indices, slices, arithmetic, ~, comparisons, in, and, or,
 *                not, inline if, filters, tests, calls with named arguments
 *   functions    range, dict, namespace, raise_exception, strftime_now
 *   filters, tests, methods   the tables of filters.c, filters_text.c, predicates.c,
 *                string_methods.c and functions.c
 *
 * It behaves as Jinja 3.1 does with the settings of the transformers library (trim_blocks,
 * lstrip_blocks, a sandbox in which lists and dicts cannot be changed). Where that would differ,
 * rendering fails: what is not supported is named with line and column, and never skipped.
 * Integers have 64 bits; upper and lower case are those of single characters.
 *
 * Limits: a source of 1 MiB, nesting (parser.h), depth, steps and time (eval.h),
 * and memory.
 *
 * A template is immutable: any number of threads may render it.
 */
#ifndef TW_DRIVER_CHAT_JINJA_H
#define TW_DRIVER_CHAT_JINJA_H

#include "tilewright/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define TW_JINJA_SOURCE_MAX (1u << 20)

struct tw_jinja;

/* Parses a template. The source is copied. Errors: FORMAT (syntax, with line and column),
 * UNSUPPORTED (names the construct), RANGE (too long), NOMEM. */
int tw_jinja_create(const char *source, size_t n, struct tw_jinja **out, tw_error *err);
/* Frees a template. NULL is legal. */
void tw_jinja_destroy(struct tw_jinja *jinja);

/* A variable whose text counts as part of the template, such as bos_token. */
struct tw_jinja_constant {
    const char *name, *text;
};

/* A part of the rendered text: all of it from the template, or all from the caller's data. */
struct tw_jinja_part {
    const char *text;
    size_t n;
    bool data;
};

struct tw_jinja_output {
    char *text; /* n bytes and a 0 */
    size_t n;
    struct tw_jinja_part *parts; /* adjacent ones differ in `data`; of `text`, in order */
    size_t n_parts;
};
void tw_jinja_output_finish(struct tw_jinja_output *output);

struct tw_jinja_input {
    /* an object: messages, tools, add_generation_prompt ...; data, but for the values of keys
     * "role" that are system, user, assistant, tool or developer, which count as the template's */
    const json_t *variables;
    const struct tw_jinja_constant *constants;
    size_t n_constants;
    time_t now; /* for strftime_now, in local time */
};

/* Renders. *out is the caller's: tw_jinja_output_finish(). Errors: FORMAT (an operation that
 * Python would refuse; the template refuses the messages), UNSUPPORTED, RANGE (a limit), NOMEM. */
int tw_jinja_render(const struct tw_jinja *jinja, const struct tw_jinja_input *input,
                    struct tw_jinja_output *out, tw_error *err);

#endif
