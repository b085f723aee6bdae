/* SPDX-License-Identifier: Apache-2.0
 *
 * Expressions (eval.h): evaluation by recursion over the tree, lookups, and calls.
 */
#include "driver/chat/eval.h"

#include "loader/base/clock.h"

#include <string.h>

int tw_jinja_no_memory(struct tw_jinja_render *r) {
    return tw_jinja_render_fail(r, TW_E_NOMEM, "rendering needs more than %zu MiB of memory",
                                r->arena->max_bytes >> 20);
}

int tw_jinja_step(struct tw_jinja_render *r, size_t n) {
    uint32_t before = r->steps;
    r->steps = n < TW_JINJA_STEPS - r->steps ? r->steps + (uint32_t)n : TW_JINJA_STEPS;
    if (r->steps == TW_JINJA_STEPS) {
        return tw_jinja_render_fail(r, TW_E_RANGE, "rendering takes more than %u steps",
                                    TW_JINJA_STEPS);
    }
    if ((before ^ r->steps) >> 8 && tw_clock_s() - r->start_s > TW_JINJA_SECONDS) {
        return tw_jinja_render_fail(r, TW_E_RANGE, "rendering takes more than %.0f s",
                                    TW_JINJA_SECONDS);
    }
    return 0;
}

int tw_jinja_step_product(struct tw_jinja_render *r, size_t n, size_t m) {
    return tw_jinja_step(r, (n / 64 + 1) * (m / 64 + 1)); /* neither is above 2^28 */
}

/* Counts what is evaluated by recursion; on success the caller takes 1 off r->depth at its end. */
static int enter(struct tw_jinja_render *r) {
    if (r->depth == TW_JINJA_DEPTH) {
        return tw_jinja_render_fail(r, TW_E_RANGE, "calls nest more than %u deep", TW_JINJA_DEPTH);
    }
    r->depth++;
    return 0;
}

int tw_jinja_finish_text(struct tw_jinja_render *r, const struct tw_jinja_buffer *b,
                         struct tw_jinja_value *out) {
    *out = tw_jinja_string(tw_jinja_buffer_text(b));
    return b->failed ? tw_jinja_no_memory(r) : 0;
}

int tw_jinja_change_case(struct tw_jinja_render *r, struct tw_jinja_text text,
                         enum tw_jinja_case to, bool words, struct tw_jinja_value *out) {
    struct tw_jinja_buffer b = {.arena = r->arena};
    tw_jinja_put_case(&b, text, to, words);
    return tw_jinja_finish_text(r, &b, out);
}

static int name_length(struct tw_jinja_text name) {
    return name.n < 60 ? (int)name.n : 60;
}

/* ---- lookups ---- */

static void look_up(const struct tw_jinja_render *r, struct tw_jinja_text name,
                    struct tw_jinja_value *out) {
    for (const struct tw_jinja_scope *s = r->scope; s; s = s->parent) {
        const struct tw_jinja_value *v = tw_jinja_get_text(&s->names, name);
        if (v) {
            *out = *v;
            return;
        }
    }
    *out = tw_jinja_undefined(name);
}

static int bind_method(struct tw_jinja_render *r, const struct tw_jinja_function *f,
                       const struct tw_jinja_value *self, struct tw_jinja_value *out) {
    struct tw_jinja_bound *bound = tw_jinja_alloc(r->arena, sizeof *bound);
    if (!bound) {
        return tw_jinja_no_memory(r);
    }
    bound->function = f;
    bound->self = *self;
    *out = (struct tw_jinja_value){.kind = TW_JINJA_FUNCTION, .bound = bound};
    return 0;
}

static int eval_name(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                     struct tw_jinja_value *out) {
    look_up(r, e->text, out);
    const struct tw_jinja_function *f =
        out->kind == TW_JINJA_UNDEFINED ? tw_jinja_global(e->text) : NULL;
    return f ? bind_method(r, f, out, out) : 0;
}

static const struct tw_jinja_function *method_of(const struct tw_jinja_value *v,
                                                 struct tw_jinja_text name) {
    return v->kind == TW_JINJA_STRING ? tw_jinja_string_method(name)
           : tw_jinja_is_sequence(v)  ? tw_jinja_list_method(name)
           : v->kind == TW_JINJA_DICT ? tw_jinja_dict_method(name)
           : v->kind == TW_JINJA_LOOP ? tw_jinja_loop_method(name)
                                      : NULL;
}

static struct tw_jinja_value loop_item(const struct tw_jinja_loop *loop, size_t index) {
    return index < loop->items->n ? loop->items->item[index]
                                  : tw_jinja_undefined(TW_JINJA_TEXT("an item beside the loop's"));
}

static bool loop_attribute(const struct tw_jinja_loop *loop, struct tw_jinja_text name,
                           struct tw_jinja_value *out) {
    int64_t i = (int64_t)loop->index, n = (int64_t)loop->items->n;
    const struct {
        const char *name;
        struct tw_jinja_value value;
    } table[] = {
        {"index", tw_jinja_int(i + 1)},
        {"index0", tw_jinja_int(i)},
        {"revindex", tw_jinja_int(n - i)},
        {"revindex0", tw_jinja_int(n - i - 1)},
        {"first", tw_jinja_bool(i == 0)},
        {"last", tw_jinja_bool(i == n - 1)},
        {"length", tw_jinja_int(n)},
        {"depth", tw_jinja_int(loop->depth + 1)},
        {"depth0", tw_jinja_int(loop->depth)},
        {"previtem", loop_item(loop, loop->index - 1)},
        {"nextitem", loop_item(loop, loop->index + 1)},
    };
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        if (tw_jinja_is(name, table[k].name)) {
            *out = table[k].value;
            return true;
        }
    }
    return false;
}

static int undefined_error(struct tw_jinja_render *r, const struct tw_jinja_value *v) {
    return tw_jinja_render_fail(r, TW_E_FORMAT, "'%.*s' is undefined", name_length(v->text),
                                v->text.p);
}

int tw_jinja_attribute(struct tw_jinja_render *r, const struct tw_jinja_value *v,
                       struct tw_jinja_text name, struct tw_jinja_value *out) {
    struct tw_jinja_value self = *v;
    if (v->kind == TW_JINJA_UNDEFINED) {
        return undefined_error(r, v);
    }
    const struct tw_jinja_function *f = method_of(&self, name);
    if (f) {
        return bind_method(r, f, &self, out);
    }
    if (self.kind == TW_JINJA_LOOP && loop_attribute(self.loop, name, out)) {
        return 0;
    }
    const struct tw_jinja_value *found =
        tw_jinja_is_dict(&self) ? tw_jinja_get_text(self.dict, name) : NULL;
    *out = found ? *found : tw_jinja_undefined(name);
    return 0;
}

/* Resolves an index of Python's, from the end if negative; false: outside. */
static bool resolve_index(int64_t index, size_t n, size_t *out) {
    int64_t at = index < 0 ? index + (int64_t)n : index;
    *out = (size_t)at;
    return at >= 0 && at < (int64_t)n;
}

static int char_at(struct tw_jinja_render *r, struct tw_jinja_text text, int64_t index,
                   struct tw_jinja_value *out) {
    size_t at = 0, i, n = tw_jinja_count_chars(text);
    if (!resolve_index(index, n, &i)) {
        *out = tw_jinja_undefined(TW_JINJA_TEXT("a character beyond the end"));
        return tw_jinja_step(r, n / 64);
    }
    while (i-- > 0) {
        at += tw_jinja_char_bytes(text, at);
    }
    *out = tw_jinja_string(tw_jinja_cut(text, at, at + tw_jinja_char_bytes(text, at)));
    return tw_jinja_step(r, n / 64);
}

static int get_item(struct tw_jinja_render *r, const struct tw_jinja_value *v,
                    const struct tw_jinja_value *key, struct tw_jinja_value *out) {
    struct tw_jinja_value self = *v;
    if (self.kind == TW_JINJA_UNDEFINED) {
        return undefined_error(r, &self);
    }
    if (tw_jinja_is_dict(&self)) {
        const struct tw_jinja_value *found = tw_jinja_get(self.dict, key);
        if (found) {
            *out = *found;
            return tw_jinja_step(r, self.dict->n / 16);
        }
    }
    if (key->kind == TW_JINJA_STRING) {
        return tw_jinja_attribute(r, &self, key->text, out);
    }
    bool index = key->kind == TW_JINJA_INT || key->kind == TW_JINJA_BOOL;
    if (index && self.kind == TW_JINJA_STRING) {
        return char_at(r, self.text, tw_jinja_as_int(key), out);
    }
    size_t at;
    bool in = index && tw_jinja_is_sequence(&self) &&
              resolve_index(tw_jinja_as_int(key), self.list->n, &at);
    *out = in ? self.list->item[at]
              : tw_jinja_undefined(TW_JINJA_TEXT("an element that does not exist"));
    return 0;
}

int tw_jinja_path(struct tw_jinja_render *r, const struct tw_jinja_value *v,
                  const struct tw_jinja_value *path, struct tw_jinja_value *out) {
    struct tw_jinja_value at = *v;
    if (path->kind != TW_JINJA_STRING) {
        return get_item(r, &at, path, out);
    }
    int code = 0;
    for (size_t from = 0; !code && from <= path->text.n;) {
        size_t to = tw_jinja_find(path->text, TW_JINJA_TEXT("."), from);
        struct tw_jinja_text part = tw_jinja_cut(path->text, from, to);
        bool number = part.n > 0 && part.n < 10;
        int64_t index = 0;
        for (size_t i = 0; i < part.n && number; i++) {
            number = part.p[i] >= '0' && part.p[i] <= '9';
            index = index * 10 + (part.p[i] - '0');
        }
        struct tw_jinja_value key = number ? tw_jinja_int(index) : tw_jinja_string(part);
        code = get_item(r, &at, &key, &at);
        from = to + 1;
    }
    *out = at;
    return code;
}

/* ---- slices ---- */

static int slice_bound(struct tw_jinja_render *r, const struct tw_jinja_value *v, int64_t n,
                       int64_t low, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    if (!v || v->kind == TW_JINJA_NONE) {
        return 0;
    }
    if (v->kind != TW_JINJA_INT && v->kind != TW_JINJA_BOOL) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "a slice needs integers, found %s",
                                    tw_jinja_type_name(v));
    }
    int64_t i = tw_jinja_as_int(v);
    i = i < 0 ? (i < -n ? low : i + n) : i;
    *out = i > n + low ? n + low : i < low ? low : i;
    return 0;
}

struct range {
    int64_t from, to, step;
};

static int slice_range(struct tw_jinja_render *r, const struct tw_jinja_value *const bound[3],
                       int64_t n, struct range *out) {
    const struct tw_jinja_value *step = bound[2];
    out->step = step && step->kind == TW_JINJA_INT ? step->integer : 1;
    if (out->step == 0 || out->step < -INT32_MAX || out->step > INT32_MAX) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "a slice cannot have the step %lld",
                                    (long long)out->step);
    }
    bool back = out->step < 0;
    int64_t low = back ? -1 : 0;
    int code = slice_bound(r, bound[0], n, low, back ? n - 1 : 0, &out->from);
    return code ? code : slice_bound(r, bound[1], n, low, back ? -1 : n, &out->to);
}

static int slice_text(struct tw_jinja_render *r, struct tw_jinja_text text,
                      const struct range *range, struct tw_jinja_value *out) {
    size_t n = tw_jinja_count_chars(text), *at = NULL;
    struct tw_jinja_buffer b = {.arena = r->arena};
    int code = tw_jinja_step(r, n / 16);
    at = code ? NULL : tw_jinja_alloc(r->arena, (n + 1) * sizeof *at);
    if (!at) {
        return code ? code : tw_jinja_no_memory(r);
    }
    for (size_t i = 0; i < n; i++) {
        at[i + 1] = at[i] + tw_jinja_char_bytes(text, at[i]);
    }
    if (range->step == 1) {
        size_t from = (size_t)range->from, to = (size_t)range->to;
        *out =
            tw_jinja_string(from < to ? tw_jinja_cut(text, at[from], at[to]) : TW_JINJA_TEXT(""));
        return 0;
    }
    for (int64_t i = range->from; range->step > 0 ? i < range->to : i > range->to;
         i += range->step) {
        tw_jinja_put(&b, tw_jinja_cut(text, at[i], at[i + 1]));
    }
    return tw_jinja_finish_text(r, &b, out);
}

static int get_slice(struct tw_jinja_render *r, const struct tw_jinja_value *v,
                     const struct tw_jinja_value *const bound[3], struct tw_jinja_value *out) {
    struct tw_jinja_value self = *v;
    struct range range;
    bool text = self.kind == TW_JINJA_STRING;
    if (!text && !tw_jinja_is_sequence(&self)) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "a slice needs a string or a list, found %s",
                                    tw_jinja_type_name(&self));
    }
    size_t n = text ? tw_jinja_count_chars(self.text) : self.list->n;
    int code = slice_range(r, bound, (int64_t)n, &range);
    if (code || text) {
        return code ? code : slice_text(r, self.text, &range, out);
    }
    if (!tw_jinja_new_list(r->arena, self.kind, out)) {
        return tw_jinja_no_memory(r);
    }
    for (int64_t i = range.from; range.step > 0 ? i < range.to : i > range.to; i += range.step) {
        if (!tw_jinja_push(r->arena, out->list, self.list->item[i])) {
            return tw_jinja_no_memory(r);
        }
    }
    return tw_jinja_step(r, n / 16);
}

/* ---- calls ---- */

const struct tw_jinja_function *tw_jinja_in_table(const struct tw_jinja_function *table, size_t n,
                                                  struct tw_jinja_text name) {
    for (size_t i = 0; i < n; i++) {
        if (tw_jinja_is(name, table[i].name)) {
            return &table[i];
        }
    }
    return NULL;
}

/* Returns the next word of a list of parameters, and advances *at past it. */
static struct tw_jinja_text next_parameter(const char **at) {
    const char *from = *at + (**at == ' ');
    size_t n = strcspn(from, " ");
    *at = from + n;
    return (struct tw_jinja_text){from, NULL, n};
}

static int bind(struct tw_jinja_render *r, const struct tw_jinja_function *f,
                const struct tw_jinja_arguments *all, struct tw_jinja_call *call) {
    size_t n = 0, used = 0;
    for (const char *at = f->parameters; *at && n < TW_JINJA_PARAMETERS; n++) {
        struct tw_jinja_text name = next_parameter(&at);
        const struct tw_jinja_value *given = tw_jinja_get_text(&all->keyword, name);
        used += given != NULL;
        call->arg[n] = n < all->positional.n ? &all->positional.item[n] : given;
        if (n < f->required && !call->arg[n]) {
            return tw_jinja_render_fail(r, TW_E_FORMAT, "%s needs the argument %.*s", f->name,
                                        (int)name.n, name.p);
        }
    }
    if (all->positional.n > n || used < all->keyword.n) {
        return tw_jinja_render_fail(r, TW_E_UNSUPPORTED,
                                    "%s has arguments that are not supported; it takes (%s)",
                                    f->name, f->parameters);
    }
    return 0;
}

int tw_jinja_call_function(struct tw_jinja_render *r, const struct tw_jinja_function *f,
                           const struct tw_jinja_value *self, const struct tw_jinja_arguments *all,
                           struct tw_jinja_value *out) {
    struct tw_jinja_call call = {.self = *self, .all = all};
    int code = enter(r); /* map calls filters, map among them */
    if (code) {
        return code;
    }
    code = f->parameters[0] == '*' ? 0 : bind(r, f, all, &call);
    code = code ? code : tw_jinja_step(r, 1);
    code = code ? code : f->run(r, &call, out);
    r->depth--;
    return code;
}

int tw_jinja_call_value(struct tw_jinja_render *r, const struct tw_jinja_value *f,
                        const struct tw_jinja_arguments *all, struct tw_jinja_value *out) {
    struct tw_jinja_value callee = *f;
    if (callee.kind == TW_JINJA_FUNCTION) {
        return tw_jinja_call_function(r, callee.bound->function, &callee.bound->self, all, out);
    }
    if (callee.kind == TW_JINJA_MACRO) {
        return tw_jinja_run_macro(r, callee.macro, all, out);
    }
    if (callee.kind == TW_JINJA_LOOP) {
        return tw_jinja_run_loop_again(r, callee.loop, all, out);
    }
    if (callee.kind == TW_JINJA_UNDEFINED) {
        return undefined_error(r, &callee);
    }
    return tw_jinja_render_fail(r, TW_E_FORMAT, "a value of type %s cannot be called",
                                tw_jinja_type_name(&callee));
}

int tw_jinja_apply_filter(struct tw_jinja_render *r, struct tw_jinja_text name,
                          const struct tw_jinja_value *self, const struct tw_jinja_arguments *all,
                          struct tw_jinja_value *out) {
    const struct tw_jinja_function *f = tw_jinja_filter(name);
    if (!f) {
        return tw_jinja_render_fail(r, TW_E_UNSUPPORTED, "the filter '%.*s' is not supported",
                                    name_length(name), name.p);
    }
    return tw_jinja_call_function(r, f, self, all, out);
}

int tw_jinja_apply_test(struct tw_jinja_render *r, struct tw_jinja_text name,
                        const struct tw_jinja_value *self, const struct tw_jinja_arguments *all,
                        bool *out) {
    struct tw_jinja_value v;
    const struct tw_jinja_function *f = tw_jinja_test(name);
    if (!f) {
        return tw_jinja_render_fail(r, TW_E_UNSUPPORTED, "the test '%.*s' is not supported",
                                    name_length(name), name.p);
    }
    int code = tw_jinja_call_function(r, f, self, all, &v);
    *out = !code && tw_jinja_truth(&v);
    return code;
}

/* Adds the items of *list, or the entries of **dict, to the arguments. */
static int spread(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                  const struct tw_jinja_value *v, struct tw_jinja_arguments *out) {
    struct tw_jinja_value list;
    bool named = e->kind == TW_JINJA_SPREAD_NAMED, good = true;
    if (named && !tw_jinja_is_dict(v)) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "** needs a dict, found %s",
                                    tw_jinja_type_name(v));
    }
    for (size_t i = 0; named && good && i < v->dict->n; i++) {
        good =
            tw_jinja_set(r->arena, &out->keyword, v->dict->entry[i].key, v->dict->entry[i].value);
    }
    int code = named ? 0 : tw_jinja_iterate(r, v, &list);
    for (size_t i = 0; !named && !code && good && i < list.list->n; i++) {
        good = tw_jinja_push(r->arena, &out->positional, list.list->item[i]);
    }
    return code || good ? code : tw_jinja_no_memory(r);
}

int tw_jinja_eval_arguments(struct tw_jinja_render *r, const struct tw_jinja_node *list,
                            struct tw_jinja_arguments *out) {
    *out = (struct tw_jinja_arguments){0};
    for (const struct tw_jinja_node *e = list; e; e = e->next) {
        struct tw_jinja_value v;
        bool keyword = e->kind == TW_JINJA_KEYWORD;
        bool spreads = e->kind == TW_JINJA_SPREAD || e->kind == TW_JINJA_SPREAD_NAMED;
        int code = tw_jinja_eval(r, keyword || spreads ? e->a : e, &v);
        if (code) {
            return code;
        }
        if (spreads) {
            code = spread(r, e, &v, out);
        } else if (!(keyword ? tw_jinja_set(r->arena, &out->keyword, tw_jinja_string(e->text), v)
                             : tw_jinja_push(r->arena, &out->positional, v))) {
            code = tw_jinja_no_memory(r);
        }
        if (code) {
            return code;
        }
    }
    return 0;
}

static int eval_call(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                     struct tw_jinja_value *out) {
    struct tw_jinja_value callee;
    struct tw_jinja_arguments all;
    int code = tw_jinja_eval(r, e->a, &callee);
    code = code ? code : tw_jinja_eval_arguments(r, e->list, &all);
    r->at = e;
    return code ? code : tw_jinja_call_value(r, &callee, &all, out);
}

/* ---- filters and tests ---- */

int tw_jinja_eval_filters(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                          const struct tw_jinja_value *v, struct tw_jinja_value *out) {
    struct tw_jinja_value self = *v;
    struct tw_jinja_arguments all;
    int code = e->a ? tw_jinja_eval_filters(r, e->a, v, &self) : 0;
    code = code ? code : tw_jinja_eval_arguments(r, e->list, &all);
    r->at = e;
    return code ? code : tw_jinja_apply_filter(r, e->text, &self, &all, out);
}

static int eval_filter(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                       struct tw_jinja_value *out) {
    struct tw_jinja_value self;
    struct tw_jinja_arguments all;
    int code = tw_jinja_eval(r, e->a, &self);
    code = code ? code : tw_jinja_eval_arguments(r, e->list, &all);
    r->at = e;
    return code ? code : tw_jinja_apply_filter(r, e->text, &self, &all, out);
}

static int eval_test(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                     struct tw_jinja_value *out) {
    struct tw_jinja_value self;
    struct tw_jinja_arguments all;
    bool is = false;
    int code = tw_jinja_eval(r, e->a, &self);
    code = code ? code : tw_jinja_eval_arguments(r, e->list, &all);
    r->at = e;
    code = code ? code : tw_jinja_apply_test(r, e->text, &self, &all, &is);
    *out = tw_jinja_bool(is != e->flag);
    return code;
}

/* ---- operators ---- */

static int eval_logic(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                      struct tw_jinja_value *out) {
    int code = tw_jinja_eval(r, e->a, out);
    bool decided = !code && tw_jinja_truth(out) == (e->kind == TW_JINJA_OR);
    return code || decided ? code : tw_jinja_eval(r, e->b, out);
}

static int eval_binary(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                       struct tw_jinja_value *out) {
    struct tw_jinja_value a, b;
    int code = tw_jinja_eval(r, e->a, &a);
    code = code ? code : tw_jinja_eval(r, e->b, &b);
    r->at = e;
    return code ? code : tw_jinja_operate(r, e->op, &a, &b, out);
}

static int eval_sign(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                     struct tw_jinja_value *out) {
    struct tw_jinja_value a, zero = tw_jinja_int(0);
    int code = tw_jinja_eval(r, e->a, &a);
    if (code) {
        return code;
    }
    r->at = e;
    if (a.kind == TW_JINJA_FLOAT) {
        *out = tw_jinja_float(e->kind == TW_JINJA_NEGATE ? -a.number : a.number);
        return 0;
    }
    return tw_jinja_operate(r, e->kind == TW_JINJA_NEGATE ? TW_JINJA_SUB : TW_JINJA_ADD, &zero, &a,
                            out);
}

static int eval_if_else(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                        struct tw_jinja_value *out) {
    struct tw_jinja_value condition;
    int code = tw_jinja_eval(r, e->a, &condition);
    if (code || tw_jinja_truth(&condition)) {
        return code ? code : tw_jinja_eval(r, e->b, out);
    }
    *out = tw_jinja_undefined(TW_JINJA_TEXT("the missing else of an inline if"));
    return e->c ? tw_jinja_eval(r, e->c, out) : 0;
}

/* ---- literals, items ---- */

static int eval_items(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                      struct tw_jinja_value *out) {
    struct tw_jinja_value list;
    if (!tw_jinja_new_list(r->arena, e->flag ? TW_JINJA_TUPLE : TW_JINJA_LIST, &list)) {
        return tw_jinja_no_memory(r);
    }
    for (const struct tw_jinja_node *item = e->list; item; item = item->next) {
        struct tw_jinja_value v;
        int code = tw_jinja_eval(r, item, &v);
        if (code || !tw_jinja_push(r->arena, list.list, v)) {
            return code ? code : tw_jinja_no_memory(r);
        }
    }
    *out = list;
    return 0;
}

static int eval_pairs(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                      struct tw_jinja_value *out) {
    struct tw_jinja_value dict;
    if (!tw_jinja_new_dict(r->arena, TW_JINJA_DICT, &dict)) {
        return tw_jinja_no_memory(r);
    }
    for (const struct tw_jinja_node *key = e->list; key; key = key->next->next) {
        struct tw_jinja_value k, v;
        int code = tw_jinja_eval(r, key, &k);
        code = code ? code : tw_jinja_eval(r, key->next, &v);
        if (!code && (k.kind >= TW_JINJA_LIST || k.kind == TW_JINJA_UNDEFINED)) {
            code = tw_jinja_render_fail(r, TW_E_FORMAT, "a value of type %s cannot be a key",
                                        tw_jinja_type_name(&k));
        }
        if (code || !tw_jinja_set(r->arena, dict.dict, k, v)) {
            return code ? code : tw_jinja_no_memory(r);
        }
    }
    *out = dict;
    return 0;
}

static int eval_attribute(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                          struct tw_jinja_value *out) {
    struct tw_jinja_value v;
    int code = tw_jinja_eval(r, e->a, &v);
    r->at = e;
    return code ? code : tw_jinja_attribute(r, &v, e->text, out);
}

static int eval_item(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                     struct tw_jinja_value *out) {
    struct tw_jinja_value v, key;
    int code = tw_jinja_eval(r, e->a, &v);
    code = code ? code : tw_jinja_eval(r, e->b, &key);
    r->at = e;
    return code ? code : get_item(r, &v, &key, out);
}

static int eval_slice(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                      struct tw_jinja_value *out) {
    const struct tw_jinja_node *const part[3] = {e->b, e->c, e->d};
    struct tw_jinja_value v, bound[3];
    const struct tw_jinja_value *given[3] = {NULL, NULL, NULL};
    int code = tw_jinja_eval(r, e->a, &v);
    for (unsigned i = 0; i < 3 && !code; i++) {
        code = part[i] ? tw_jinja_eval(r, part[i], &bound[i]) : 0;
        given[i] = part[i] ? &bound[i] : NULL;
    }
    r->at = e;
    return code ? code : get_slice(r, &v, given, out);
}

static int eval_kind(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                     struct tw_jinja_value *out) {
    struct tw_jinja_value v;
    int code;
    switch (e->kind) {
    case TW_JINJA_CONST:
        *out = e->value;
        return 0;
    case TW_JINJA_NAME:
        return eval_name(r, e, out);
    case TW_JINJA_ITEMS:
        return eval_items(r, e, out);
    case TW_JINJA_PAIRS:
        return eval_pairs(r, e, out);
    case TW_JINJA_ATTR:
        return eval_attribute(r, e, out);
    case TW_JINJA_ITEM:
        return eval_item(r, e, out);
    case TW_JINJA_SLICE:
        return eval_slice(r, e, out);
    case TW_JINJA_CALL:
        return eval_call(r, e, out);
    case TW_JINJA_FILTER:
        return eval_filter(r, e, out);
    case TW_JINJA_TEST:
        return eval_test(r, e, out);
    case TW_JINJA_NOT:
        code = tw_jinja_eval(r, e->a, &v);
        *out = tw_jinja_bool(!code && !tw_jinja_truth(&v));
        return code;
    case TW_JINJA_NEGATE:
    case TW_JINJA_PLUS:
        return eval_sign(r, e, out);
    case TW_JINJA_AND:
    case TW_JINJA_OR:
        return eval_logic(r, e, out);
    case TW_JINJA_BINARY:
        return eval_binary(r, e, out);
    case TW_JINJA_IF_ELSE:
        return eval_if_else(r, e, out);
    case TW_JINJA_KEYWORD:
    case TW_JINJA_SPREAD:
    case TW_JINJA_SPREAD_NAMED:
    case TW_JINJA_DATA:
    case TW_JINJA_OUTPUT:
    case TW_JINJA_IF:
    case TW_JINJA_FOR:
    case TW_JINJA_SET:
    case TW_JINJA_SET_BLOCK:
    case TW_JINJA_MACRO_DEF:
    case TW_JINJA_CALL_BLOCK:
    case TW_JINJA_FILTER_BLOCK:
    case TW_JINJA_WITH:
    case TW_JINJA_BODY:
    case TW_JINJA_BREAK:
    case TW_JINJA_CONTINUE:
    case TW_JINJA_PARAMETER:
        break;
    }
    return tw_jinja_render_fail(r, TW_E_INTERNAL, "a statement was evaluated as an expression");
}

int tw_jinja_eval(struct tw_jinja_render *r, const struct tw_jinja_node *e,
                  struct tw_jinja_value *out) {
    r->at = e;
    int code = enter(r);
    if (code) {
        return code;
    }
    code = tw_jinja_step(r, 1);
    code = code ? code : eval_kind(r, e, out);
    r->depth--;
    return code;
}
