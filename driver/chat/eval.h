/* SPDX-License-Identifier: Apache-2.0
 *
 * The evaluator of chat templates: walks the tree and appends to the output. What it may use is
 * limited: memory by the arena, the depth of calls, and steps and time by a count.
 */
#ifndef TW_DRIVER_CHAT_EVAL_H
#define TW_DRIVER_CHAT_EVAL_H

#include "driver/chat/ast.h"
#include "driver/chat/lexer.h"
#include "driver/chat/strings.h"

#include <time.h>

#define TW_JINJA_DEPTH 600u     /* of expressions, statements and calls inside each other */
#define TW_JINJA_STEPS 5000000u /* nodes evaluated and items visited */
#define TW_JINJA_SECONDS 10.0
#define TW_JINJA_RANGE 100000 /* the longest range() */

/* Variables of one body; those of bodies around it are visible. */
struct tw_jinja_scope {
    const struct tw_jinja_scope *parent;
    struct tw_jinja_dict names;
};

enum tw_jinja_flow { TW_JINJA_FLOW_ON, TW_JINJA_FLOW_BREAK, TW_JINJA_FLOW_CONTINUE };

struct tw_jinja_render {
    const struct tw_jinja_source *source;
    struct tw_jinja_arena *arena;
    struct tw_jinja_scope *scope;
    struct tw_jinja_buffer *out;
    const struct tw_jinja_node *at; /* for messages */
    enum tw_jinja_flow flow;
    uint32_t depth, steps;
    double start_s;
    time_t now; /* for strftime_now */
    tw_error *err;
};

/* Fills the error with the place of the node that is being evaluated. */
#define tw_jinja_render_fail(r, code, ...) \
    tw_jinja_fail((r)->source, (r)->at ? (r)->at->at : 0, (r)->err, (code), __VA_ARGS__)
/* "it needs too much memory" */
int tw_jinja_no_memory(struct tw_jinja_render *r);
/* Counts steps. Errors: RANGE (too many, or too much time). */
int tw_jinja_step(struct tw_jinja_render *r, size_t n);
/* Counts what comparing m bytes at each of n places may take, before it is done. */
int tw_jinja_step_product(struct tw_jinja_render *r, size_t n, size_t m);

/* ---- calls ---- */

struct tw_jinja_arguments {
    struct tw_jinja_list positional;
    struct tw_jinja_dict keyword;
};

#define TW_JINJA_PARAMETERS 6u
struct tw_jinja_call {
    struct tw_jinja_value self; /* what a filter, test or method is applied to */
    /* by the order of the function's parameters; NULL: not given */
    const struct tw_jinja_value *arg[TW_JINJA_PARAMETERS];
    const struct tw_jinja_arguments *all;
};

struct tw_jinja_function {
    const char *name;
    const char *parameters; /* "old new count"; "*": any, not bound */
    unsigned required;      /* of them */
    int (*run)(struct tw_jinja_render *r, const struct tw_jinja_call *call,
               struct tw_jinja_value *out);
};
struct tw_jinja_bound {
    const struct tw_jinja_function *function;
    struct tw_jinja_value self;
};
struct tw_jinja_macro {
    const struct tw_jinja_node *node; /* MACRO_DEF or CALL_BLOCK */
    const struct tw_jinja_scope *scope;
};
struct tw_jinja_loop {
    const struct tw_jinja_node *node;
    const struct tw_jinja_scope *scope; /* around the loop */
    const struct tw_jinja_list *items;
    size_t index;
    unsigned depth;
    bool changed;
    struct tw_jinja_value last; /* what `changed` saw */
};

/* Return the entry of a table by name, or NULL. */
const struct tw_jinja_function *tw_jinja_filter(struct tw_jinja_text name);
const struct tw_jinja_function *tw_jinja_test(struct tw_jinja_text name);
const struct tw_jinja_function *tw_jinja_global(struct tw_jinja_text name);
const struct tw_jinja_function *tw_jinja_string_method(struct tw_jinja_text name);
const struct tw_jinja_function *tw_jinja_list_method(struct tw_jinja_text name);
const struct tw_jinja_function *tw_jinja_dict_method(struct tw_jinja_text name);
const struct tw_jinja_function *tw_jinja_loop_method(struct tw_jinja_text name);
const struct tw_jinja_function *tw_jinja_in_table(const struct tw_jinja_function *table, size_t n,
                                                  struct tw_jinja_text name);
#define TW_JINJA_IN_TABLE(table, name) \
    tw_jinja_in_table((table), sizeof(table) / sizeof *(table), (name))

/* Binds the arguments to the function's parameters and calls it. Errors: FORMAT (missing, too many
 * or unknown arguments; what the function finds wrong). */
int tw_jinja_call_function(struct tw_jinja_render *r, const struct tw_jinja_function *f,
                           const struct tw_jinja_value *self, const struct tw_jinja_arguments *all,
                           struct tw_jinja_value *out);
/* Call the filter or test of that name. Errors: UNSUPPORTED (there is none), and its own. */
int tw_jinja_apply_filter(struct tw_jinja_render *r, struct tw_jinja_text name,
                          const struct tw_jinja_value *self, const struct tw_jinja_arguments *all,
                          struct tw_jinja_value *out);
int tw_jinja_apply_test(struct tw_jinja_render *r, struct tw_jinja_text name,
                        const struct tw_jinja_value *self, const struct tw_jinja_arguments *all,
                        bool *out);
/* Calls a value: a function, a macro, a recursive loop. */
int tw_jinja_call_value(struct tw_jinja_render *r, const struct tw_jinja_value *f,
                        const struct tw_jinja_arguments *all, struct tw_jinja_value *out);

/* ---- values in a rendering ---- */

/* v.name. Undefined if there is none. Errors: FORMAT (v is undefined). */
int tw_jinja_attribute(struct tw_jinja_render *r, const struct tw_jinja_value *v,
                       struct tw_jinja_text name, struct tw_jinja_value *out);
/* "a.b.0" of filters like map(attribute=...). */
int tw_jinja_path(struct tw_jinja_render *r, const struct tw_jinja_value *v,
                  const struct tw_jinja_value *path, struct tw_jinja_value *out);
/* v[from:to:step]; each of them NULL or a value. */
int tw_jinja_slice(struct tw_jinja_render *r, const struct tw_jinja_value *v,
                   const struct tw_jinja_value *const bound[3], struct tw_jinja_value *out);
/* A list (kind LIST) of what iterating over v gives. Errors: FORMAT (not iterable). */
int tw_jinja_iterate(struct tw_jinja_render *r, const struct tw_jinja_value *v,
                     struct tw_jinja_value *out);
int tw_jinja_operate(struct tw_jinja_render *r, enum tw_jinja_operator op,
                     const struct tw_jinja_value *a, const struct tw_jinja_value *b,
                     struct tw_jinja_value *out);
/* Python's format % value. */
int tw_jinja_percent(struct tw_jinja_render *r, struct tw_jinja_text format,
                     const struct tw_jinja_value *v, struct tw_jinja_value *out);

/* ---- evaluation ---- */

int tw_jinja_eval(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                  struct tw_jinja_value *out);
/* Evaluates arguments of a call, filter or test. */
int tw_jinja_eval_arguments(struct tw_jinja_render *r, const struct tw_jinja_node *list,
                            struct tw_jinja_arguments *out);
/* Applies the filters of `e`, whose innermost operand is missing, to v. */
int tw_jinja_eval_filters(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                          const struct tw_jinja_value *v, struct tw_jinja_value *out);
/* Runs statements, in the render's scope. */
int tw_jinja_run(struct tw_jinja_render *r, const struct tw_jinja_node *list);
/* Runs a macro's body, or again the body of a recursive loop; the text is the result. */
int tw_jinja_run_macro(struct tw_jinja_render *r, const struct tw_jinja_macro *macro,
                       const struct tw_jinja_arguments *all, struct tw_jinja_value *out);
int tw_jinja_run_loop_again(struct tw_jinja_render *r, const struct tw_jinja_loop *loop,
                            const struct tw_jinja_arguments *all, struct tw_jinja_value *out);

/* A result, or NOMEM if the buffer failed. */
int tw_jinja_finish_text(struct tw_jinja_render *r, const struct tw_jinja_buffer *b,
                         struct tw_jinja_value *out);
/* The text in another case; `words`: tw_jinja_put_case (strings.h). */
int tw_jinja_change_case(struct tw_jinja_render *r, struct tw_jinja_text text,
                         enum tw_jinja_case to, bool words, struct tw_jinja_value *out);

#endif
