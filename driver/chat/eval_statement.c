/* SPDX-License-Identifier: Apache-2.0
 *
 * Statements (eval.h): scopes, loops, macros, and what they print.
 */
#include "driver/chat/eval.h"

#include <string.h>

static int define(struct tw_jinja_render *r, struct tw_jinja_text name,
                  const struct tw_jinja_value *v) {
    bool set = tw_jinja_set(r->arena, &r->scope->names, tw_jinja_string(name), *v);
    return set ? 0 : tw_jinja_no_memory(r);
}

/* A body's own variables. In the arena, since macros defined inside may keep them. */
static int open_scope(struct tw_jinja_render *r, const struct tw_jinja_scope *parent) {
    struct tw_jinja_scope *scope = tw_jinja_alloc(r->arena, sizeof *scope);
    if (!scope) {
        return tw_jinja_no_memory(r);
    }
    scope->parent = parent;
    r->scope = scope;
    return 0;
}

/* ---- assignment ---- */

static int assign(struct tw_jinja_render *r, const struct tw_jinja_node *target,
                  const struct tw_jinja_value *v);

static int assign_attribute(struct tw_jinja_render *r, const struct tw_jinja_node *target,
                            const struct tw_jinja_value *v) {
    struct tw_jinja_value object;
    int code = tw_jinja_eval(r, target->a, &object);
    if (code) {
        return code;
    }
    if (object.kind != TW_JINJA_NAMESPACE) {
        return tw_jinja_render_fail(r, TW_E_FORMAT,
                                    "cannot assign to an attribute of a value of type %s: only "
                                    "those of a namespace can be set",
                                    tw_jinja_type_name(&object));
    }
    bool set = tw_jinja_set(r->arena, object.dict, tw_jinja_string(target->text), *v);
    return set ? 0 : tw_jinja_no_memory(r);
}

static int unpack(struct tw_jinja_render *r, const struct tw_jinja_node *target,
                  const struct tw_jinja_value *v) {
    struct tw_jinja_value list;
    size_t n = 0;
    int code = tw_jinja_iterate(r, v, &list);
    for (const struct tw_jinja_node *t = target->list; t; t = t->next) {
        n++;
    }
    if (!code && n != list.list->n) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "cannot unpack %zu values to %zu names",
                                    list.list->n, n);
    }
    const struct tw_jinja_node *t = target->list;
    for (size_t i = 0; !code && t; t = t->next, i++) {
        code = assign(r, t, &list.list->item[i]);
    }
    return code;
}

static int assign(struct tw_jinja_render *r, const struct tw_jinja_node *target,
                  const struct tw_jinja_value *v) {
    r->at = target;
    return target->kind == TW_JINJA_NAME   ? define(r, target->text, v)
           : target->kind == TW_JINJA_ATTR ? assign_attribute(r, target, v)
                                           : unpack(r, target, v);
}

/* ---- bodies whose output is a value ---- */

/* Runs statements with their output captured. */
static int capture(struct tw_jinja_render *r, const struct tw_jinja_node *list,
                   struct tw_jinja_value *out) {
    struct tw_jinja_buffer *outer = r->out, b = {.arena = r->arena};
    r->out = &b;
    int code = tw_jinja_run(r, list);
    r->out = outer;
    return code ? code : tw_jinja_finish_text(r, &b, out);
}

static int capture_inside(struct tw_jinja_render *r, const struct tw_jinja_node *list,
                          struct tw_jinja_value *out) {
    struct tw_jinja_scope *outer = r->scope;
    int code = open_scope(r, outer);
    code = code ? code : capture(r, list, out);
    r->scope = outer;
    return code;
}

static int run_set_block(struct tw_jinja_render *r, const struct tw_jinja_node *s) {
    struct tw_jinja_value v = tw_jinja_none();
    int code = capture_inside(r, s->list, &v);
    if (!code && s->a) {
        code = tw_jinja_eval_filters(r, s->a, &v, &v);
    }
    return code ? code : assign(r, s->target, &v);
}

static int print(struct tw_jinja_render *r, const struct tw_jinja_value *v) {
    tw_jinja_put_str(r->out, v);
    return r->out->failed ? tw_jinja_no_memory(r) : 0;
}

static int run_filter_block(struct tw_jinja_render *r, const struct tw_jinja_node *s) {
    struct tw_jinja_value v = tw_jinja_none();
    int code = capture_inside(r, s->list, &v);
    code = code ? code : tw_jinja_eval_filters(r, s->a, &v, &v);
    return code ? code : print(r, &v);
}

/* ---- macros ---- */

/* Defines a macro's parameters in its scope: positional arguments, named ones, defaults. */
static int define_parameters(struct tw_jinja_render *r, const struct tw_jinja_node *parameters,
                             const struct tw_jinja_arguments *all) {
    size_t i = 0, used = 0;
    int code = 0;
    for (const struct tw_jinja_node *p = parameters; p && !code; p = p->next, i++) {
        const struct tw_jinja_value *given = tw_jinja_get_text(&all->keyword, p->text);
        struct tw_jinja_value v = tw_jinja_undefined(p->text);
        used += given != NULL;
        if (i < all->positional.n) {
            v = all->positional.item[i];
        } else if (given) {
            v = *given;
        } else if (p->a) {
            code = tw_jinja_eval(r, p->a, &v);
        }
        code = code ? code : define(r, p->text, &v);
    }
    const struct tw_jinja_value *caller = tw_jinja_get_text(&all->keyword, TW_JINJA_TEXT("caller"));
    if (!code && caller) {
        code = define(r, TW_JINJA_TEXT("caller"), caller);
    }
    if (!code && (all->positional.n > i || all->keyword.n > used + (caller != NULL))) {
        code = tw_jinja_render_fail(r, TW_E_FORMAT, "the macro takes %zu arguments, got others", i);
    }
    return code;
}

int tw_jinja_run_macro(struct tw_jinja_render *r, const struct tw_jinja_macro *macro,
                       const struct tw_jinja_arguments *all, struct tw_jinja_value *out) {
    struct tw_jinja_scope *outer = r->scope;
    int code = open_scope(r, macro->scope);
    code = code ? code : define_parameters(r, macro->node->target, all);
    code = code ? code : capture(r, macro->node->list, out);
    r->scope = outer;
    return code;
}

static int make_macro(struct tw_jinja_render *r, const struct tw_jinja_node *node,
                      struct tw_jinja_value *out) {
    struct tw_jinja_macro *macro = tw_jinja_alloc(r->arena, sizeof *macro);
    if (!macro) {
        return tw_jinja_no_memory(r);
    }
    macro->node = node;
    macro->scope = r->scope;
    *out = (struct tw_jinja_value){.kind = TW_JINJA_MACRO, .macro = macro};
    return 0;
}

static int run_macro_definition(struct tw_jinja_render *r, const struct tw_jinja_node *s) {
    struct tw_jinja_value v = tw_jinja_none();
    int code = make_macro(r, s, &v);
    return code ? code : define(r, s->text, &v);
}

static int run_call_block(struct tw_jinja_render *r, const struct tw_jinja_node *s) {
    struct tw_jinja_value caller = tw_jinja_none(), callee = caller, v = caller;
    struct tw_jinja_arguments all;
    int code = make_macro(r, s, &caller);
    code = code ? code : tw_jinja_eval(r, s->a->a, &callee);
    code = code ? code : tw_jinja_eval_arguments(r, s->a->list, &all);
    if (!code &&
        !tw_jinja_set(r->arena, &all.keyword, tw_jinja_string(TW_JINJA_TEXT("caller")), caller)) {
        code = tw_jinja_no_memory(r);
    }
    code = code ? code : tw_jinja_call_value(r, &callee, &all, &v);
    return code ? code : print(r, &v);
}

/* ---- loops ---- */

/* Keeps the items for which the loop's condition is true. */
static int keep_items(struct tw_jinja_render *r, const struct tw_jinja_node *s,
                      struct tw_jinja_list *items) {
    struct tw_jinja_scope *outer = r->scope;
    size_t kept = 0;
    int code = 0;
    for (size_t i = 0; i < items->n && !code; i++) {
        struct tw_jinja_value keep = tw_jinja_bool(false);
        code = open_scope(r, outer);
        code = code ? code : assign(r, s->target, &items->item[i]);
        code = code ? code : tw_jinja_eval(r, s->b, &keep);
        if (!code && tw_jinja_truth(&keep)) {
            items->item[kept++] = items->item[i];
        }
    }
    items->n = kept;
    r->scope = outer;
    return code;
}

static int run_item(struct tw_jinja_render *r, const struct tw_jinja_node *s,
                    struct tw_jinja_loop *loop) {
    struct tw_jinja_value v = {.kind = TW_JINJA_LOOP, .loop = loop};
    int code = open_scope(r, loop->scope);
    code = code ? code : define(r, TW_JINJA_TEXT("loop"), &v);
    code = code ? code : assign(r, s->target, &loop->items->item[loop->index]);
    code = code ? code : tw_jinja_run(r, s->list);
    return code;
}

static int run_items(struct tw_jinja_render *r, const struct tw_jinja_node *s,
                     struct tw_jinja_list *items, unsigned depth) {
    struct tw_jinja_scope *outer = r->scope;
    struct tw_jinja_loop *loop = tw_jinja_alloc(r->arena, sizeof *loop);
    if (!loop) {
        return tw_jinja_no_memory(r);
    }
    *loop = (struct tw_jinja_loop){.node = s, .scope = outer, .items = items, .depth = depth};
    int code = 0;
    for (; loop->index < items->n && !code && r->flow != TW_JINJA_FLOW_BREAK; loop->index++) {
        r->flow = TW_JINJA_FLOW_ON;
        code = run_item(r, s, loop);
    }
    r->flow = TW_JINJA_FLOW_ON;
    r->scope = outer;
    if (!code && items->n == 0 && s->other) {
        code = open_scope(r, outer);
        code = code ? code : tw_jinja_run(r, s->other);
        r->scope = outer;
    }
    return code;
}

/* Runs a loop over v. */
static int run_over(struct tw_jinja_render *r, const struct tw_jinja_node *s,
                    const struct tw_jinja_value *v, unsigned depth) {
    struct tw_jinja_value list;
    int code = tw_jinja_iterate(r, v, &list);
    code = code || !s->b ? code : keep_items(r, s, list.list);
    return code ? code : run_items(r, s, list.list, depth);
}

static int run_for(struct tw_jinja_render *r, const struct tw_jinja_node *s) {
    struct tw_jinja_value v = tw_jinja_none();
    int code = tw_jinja_eval(r, s->a, &v);
    r->at = s;
    return code ? code : run_over(r, s, &v, 0);
}

int tw_jinja_run_loop_again(struct tw_jinja_render *r, const struct tw_jinja_loop *loop,
                            const struct tw_jinja_arguments *all, struct tw_jinja_value *out) {
    if (!loop->node->flag || all->positional.n != 1 || all->keyword.n) {
        return tw_jinja_render_fail(r, TW_E_FORMAT,
                                    "loop() needs one argument, and a loop marked as recursive");
    }
    struct tw_jinja_buffer *outer = r->out, b = {.arena = r->arena};
    struct tw_jinja_scope *scope = r->scope;
    r->out = &b;
    int code = open_scope(r, loop->scope);
    code = code ? code : run_over(r, loop->node, &all->positional.item[0], loop->depth + 1);
    r->scope = scope;
    r->out = outer;
    return code ? code : tw_jinja_finish_text(r, &b, out);
}

/* ---- statements ---- */

static int run_if(struct tw_jinja_render *r, const struct tw_jinja_node *s) {
    for (;;) {
        struct tw_jinja_value v = tw_jinja_none();
        int code = tw_jinja_eval(r, s->a, &v);
        if (code || tw_jinja_truth(&v)) {
            return code ? code : tw_jinja_run(r, s->list);
        }
        if (!s->other || s->other->kind != TW_JINJA_IF || s->other->next) {
            return tw_jinja_run(r, s->other);
        }
        s = s->other;
    }
}

static int run_with(struct tw_jinja_render *r, const struct tw_jinja_node *s) {
    struct tw_jinja_scope *outer = r->scope, *inner;
    int code = open_scope(r, outer);
    inner = r->scope;
    for (const struct tw_jinja_node *set = s->other; set && !code; set = set->next) {
        struct tw_jinja_value v = tw_jinja_none();
        r->scope = outer; /* the values do not see the new names */
        code = tw_jinja_eval(r, set->a, &v);
        r->scope = inner;
        code = code ? code : assign(r, set->target, &v);
    }
    code = code ? code : tw_jinja_run(r, s->list);
    r->scope = outer;
    return code;
}

static int run_statement(struct tw_jinja_render *r, const struct tw_jinja_node *s) {
    struct tw_jinja_value v = tw_jinja_none();
    int code;
    switch (s->kind) {
    case TW_JINJA_DATA:
        tw_jinja_put(r->out, s->text);
        return r->out->failed ? tw_jinja_no_memory(r) : 0;
    case TW_JINJA_OUTPUT:
        code = tw_jinja_eval(r, s->a, &v);
        return code ? code : print(r, &v);
    case TW_JINJA_IF:
        return run_if(r, s);
    case TW_JINJA_FOR:
        return run_for(r, s);
    case TW_JINJA_SET:
        code = tw_jinja_eval(r, s->a, &v);
        return code ? code : assign(r, s->target, &v);
    case TW_JINJA_SET_BLOCK:
        return run_set_block(r, s);
    case TW_JINJA_MACRO_DEF:
        return run_macro_definition(r, s);
    case TW_JINJA_CALL_BLOCK:
        return run_call_block(r, s);
    case TW_JINJA_FILTER_BLOCK:
        return run_filter_block(r, s);
    case TW_JINJA_WITH:
        return run_with(r, s);
    case TW_JINJA_BODY:
        return tw_jinja_run(r, s->list);
    case TW_JINJA_BREAK:
    case TW_JINJA_CONTINUE:
        r->flow = s->kind == TW_JINJA_BREAK ? TW_JINJA_FLOW_BREAK : TW_JINJA_FLOW_CONTINUE;
        return 0;
    case TW_JINJA_CONST:
    case TW_JINJA_NAME:
    case TW_JINJA_ITEMS:
    case TW_JINJA_PAIRS:
    case TW_JINJA_ATTR:
    case TW_JINJA_ITEM:
    case TW_JINJA_SLICE:
    case TW_JINJA_CALL:
    case TW_JINJA_KEYWORD:
    case TW_JINJA_SPREAD:
    case TW_JINJA_SPREAD_NAMED:
    case TW_JINJA_FILTER:
    case TW_JINJA_TEST:
    case TW_JINJA_NOT:
    case TW_JINJA_NEGATE:
    case TW_JINJA_PLUS:
    case TW_JINJA_AND:
    case TW_JINJA_OR:
    case TW_JINJA_BINARY:
    case TW_JINJA_IF_ELSE:
    case TW_JINJA_PARAMETER:
        break;
    }
    return tw_jinja_render_fail(r, TW_E_INTERNAL, "an expression was run as a statement");
}

int tw_jinja_run(struct tw_jinja_render *r, const struct tw_jinja_node *list) {
    int code = 0;
    if (list && r->depth >= TW_JINJA_DEPTH) {
        r->at = list;
        return tw_jinja_render_fail(r, TW_E_RANGE, "calls nest more than %u deep", TW_JINJA_DEPTH);
    }
    r->depth++;
    for (; list && !code && r->flow == TW_JINJA_FLOW_ON; list = list->next) {
        r->at = list;
        code = tw_jinja_step(r, 1);
        code = code ? code : run_statement(r, list);
    }
    r->depth--;
    return code;
}
