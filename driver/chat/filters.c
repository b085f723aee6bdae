/* SPDX-License-Identifier: Apache-2.0
 *
 * The filters of templates that take lists and dicts (eval.h); those of text are in
 * filters_text.c.
 */
#include "driver/chat/filters_text.h"
#include "driver/chat/strings.h"

#include <stdlib.h>
#include <string.h>

#define FILTER(name)                                                             \
    static int name(struct tw_jinja_render *r, const struct tw_jinja_call *call, \
                    struct tw_jinja_value *out)

FILTER(run_default) {
    bool also_false = call->arg[1] && tw_jinja_truth(call->arg[1]);
    bool missing =
        call->self.kind == TW_JINJA_UNDEFINED || (also_false && !tw_jinja_truth(&call->self));
    *out = !missing       ? call->self
           : call->arg[0] ? *call->arg[0]
                          : tw_jinja_string(TW_JINJA_TEXT(""));
    return tw_jinja_step(r, 1);
}

FILTER(run_length) {
    const struct tw_jinja_value *v = &call->self;
    if (!tw_jinja_is_sequence(v) && v->kind != TW_JINJA_STRING && v->kind != TW_JINJA_DICT &&
        v->kind != TW_JINJA_UNDEFINED) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "a value of type %s has no length",
                                    tw_jinja_type_name(v));
    }
    size_t n = tw_jinja_is_sequence(v)      ? v->list->n
               : v->kind == TW_JINJA_DICT   ? v->dict->n
               : v->kind == TW_JINJA_STRING ? tw_jinja_count_chars(v->text)
                                            : 0;
    *out = tw_jinja_int((int64_t)n);
    return tw_jinja_step(r, n / 64);
}

FILTER(run_list) {
    return tw_jinja_iterate(r, &call->self, out);
}

FILTER(run_first) {
    struct tw_jinja_value list;
    int code = tw_jinja_iterate(r, &call->self, &list);
    if (!code) {
        *out = list.list->n ? list.list->item[0]
                            : tw_jinja_undefined(TW_JINJA_TEXT("the first of no items"));
    }
    return code;
}

FILTER(run_last) {
    struct tw_jinja_value list;
    int code = tw_jinja_iterate(r, &call->self, &list);
    if (!code) {
        *out = list.list->n ? list.list->item[list.list->n - 1]
                            : tw_jinja_undefined(TW_JINJA_TEXT("the last of no items"));
    }
    return code;
}

FILTER(run_reverse) {
    struct tw_jinja_value list;
    int code = tw_jinja_iterate(r, &call->self, &list);
    for (size_t i = 0, j = code ? 0 : list.list->n; i + 1 < j; i++) {
        struct tw_jinja_value v = list.list->item[i];
        list.list->item[i] = list.list->item[--j];
        list.list->item[j] = v;
    }
    if (!code && call->self.kind == TW_JINJA_STRING) {
        struct tw_jinja_buffer b = {.arena = r->arena};
        for (size_t i = 0; i < list.list->n; i++) {
            tw_jinja_put(&b, list.list->item[i].text);
        }
        return tw_jinja_finish_text(r, &b, out);
    }
    *out = list;
    return code;
}

/* join(d, attribute) */
FILTER(run_join) {
    struct tw_jinja_value list, v;
    struct tw_jinja_buffer b = {.arena = r->arena};
    struct tw_jinja_text between =
        call->arg[0] ? tw_jinja_str(r->arena, call->arg[0]) : TW_JINJA_TEXT("");
    int code = tw_jinja_iterate(r, &call->self, &list);
    for (size_t i = 0; !code && i < list.list->n; i++) {
        v = list.list->item[i];
        code = call->arg[1] ? tw_jinja_path(r, &v, call->arg[1], &v) : 0;
        if (!code && i) {
            tw_jinja_put(&b, between);
        }
        if (!code) {
            tw_jinja_put_str(&b, &v);
        }
    }
    return code ? code : tw_jinja_finish_text(r, &b, out);
}

FILTER(run_items) {
    const struct tw_jinja_function *items = tw_jinja_dict_method(TW_JINJA_TEXT("items"));
    if (call->self.kind == TW_JINJA_UNDEFINED) {
        return tw_jinja_iterate(r, &call->self, out);
    }
    if (call->self.kind != TW_JINJA_DICT) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "items needs a dict, found %s",
                                    tw_jinja_type_name(&call->self));
    }
    return tw_jinja_call_function(r, items, &call->self, call->all, out);
}

FILTER(run_sum) {
    struct tw_jinja_value list, sum = call->arg[1] ? *call->arg[1] : tw_jinja_int(0), v;
    const struct tw_jinja_value *path = call->arg[0];
    int code = tw_jinja_iterate(r, &call->self, &list);
    for (size_t i = 0; !code && i < list.list->n; i++) {
        v = list.list->item[i];
        code = path && path->kind != TW_JINJA_NONE ? tw_jinja_path(r, &v, path, &v) : 0;
        code = code ? code : tw_jinja_operate(r, TW_JINJA_ADD, &sum, &v, &sum);
    }
    *out = sum;
    return code;
}

FILTER(run_attr) {
    if (call->arg[0]->kind != TW_JINJA_STRING) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "attr needs the name of an attribute");
    }
    *out = tw_jinja_undefined(call->arg[0]->text);
    return call->self.kind == TW_JINJA_DICT
               ? 0
               : tw_jinja_attribute(r, &call->self, call->arg[0]->text, out);
}

/* ---- sort, unique, min, max ---- */

/* A list to sort: its keys beside it. Merge sort, since it must be stable and may fail. */
struct sorting {
    struct tw_jinja_render *r;
    struct tw_jinja_entry *item, *other;
    bool descending;
};

static int merge(struct sorting *s, size_t from, size_t middle, size_t to) {
    size_t i = from, j = middle;
    for (size_t k = from; k < to; k++) {
        int order = 0;
        bool both = i < middle && j < to;
        if (both && !tw_jinja_compare(&s->item[i].key, &s->item[j].key, &order)) {
            return tw_jinja_render_fail(s->r, TW_E_FORMAT, "cannot sort %s and %s",
                                        tw_jinja_type_name(&s->item[i].key),
                                        tw_jinja_type_name(&s->item[j].key));
        }
        order = s->descending ? -order : order;
        bool second = both ? order > 0 : i == middle;
        s->other[k] = second ? s->item[j++] : s->item[i++];
    }
    memcpy(s->item + from, s->other + from, (to - from) * sizeof *s->item);
    return tw_jinja_step(s->r, to - from);
}

static int sort_entries(struct sorting *s, size_t n) {
    int code = 0;
    for (size_t width = 1; width < n && !code; width *= 2) {
        for (size_t from = 0; from + width < n && !code; from += 2 * width) {
            size_t to = from + 2 * width;
            code = merge(s, from, from + width, to < n ? to : n);
        }
    }
    return code;
}

/* The key to sort by: an attribute, and strings in lower case unless asked otherwise. */
static int sort_key(struct tw_jinja_render *r, const struct tw_jinja_value *item,
                    const struct tw_jinja_value *path, bool with_case, struct tw_jinja_value *out) {
    *out = *item;
    int code = path && path->kind != TW_JINJA_NONE ? tw_jinja_path(r, item, path, out) : 0;
    if (!code && !with_case && out->kind == TW_JINJA_STRING) {
        struct tw_jinja_buffer b = {.arena = r->arena};
        tw_jinja_put_case(&b, out->text, TW_JINJA_LOWER, false);
        code = tw_jinja_finish_text(r, &b, out);
    }
    return code;
}

static int sort_list(struct tw_jinja_render *r, struct tw_jinja_list *list,
                     const struct tw_jinja_value *path, bool with_case, bool descending) {
    struct sorting s = {.r = r, .descending = descending};
    size_t bytes = (list->n + 1) * sizeof *s.item;
    s.item = tw_jinja_alloc(r->arena, bytes);
    s.other = tw_jinja_alloc(r->arena, bytes);
    int code = 0;
    if (!s.item || !s.other) {
        return tw_jinja_no_memory(r);
    }
    for (size_t i = 0; i < list->n && !code; i++) {
        s.item[i].value = list->item[i];
        code = sort_key(r, &list->item[i], path, with_case, &s.item[i].key);
    }
    code = code ? code : sort_entries(&s, list->n);
    for (size_t i = 0; i < list->n && !code; i++) {
        list->item[i] = s.item[i].value;
    }
    return code;
}

FILTER(run_sort) {
    struct tw_jinja_value list;
    int code = tw_jinja_iterate(r, &call->self, &list);
    code = code
               ? code
               : sort_list(r, list.list, call->arg[2], call->arg[1] && tw_jinja_truth(call->arg[1]),
                           call->arg[0] && tw_jinja_truth(call->arg[0]));
    *out = list;
    return code;
}

/* dictsort(case_sensitive, by, reverse) */
FILTER(run_dictsort) {
    const struct tw_jinja_value *by = call->arg[1];
    struct tw_jinja_value list, path = tw_jinja_int(0);
    struct tw_jinja_arguments none = {0};
    struct tw_jinja_call items = {.self = call->self, .all = &none};
    bool values = by && by->kind == TW_JINJA_STRING && tw_jinja_is(by->text, "value");
    path.integer = values;
    int code = run_items(r, &items, &list);
    code = code ? code
                : sort_list(r, list.list, &path, call->arg[0] && tw_jinja_truth(call->arg[0]),
                            call->arg[2] && tw_jinja_truth(call->arg[2]));
    *out = list;
    return code;
}

static int extreme(struct tw_jinja_render *r, const struct tw_jinja_call *call, bool largest,
                   struct tw_jinja_value *out) {
    struct tw_jinja_value list;
    int code = tw_jinja_iterate(r, &call->self, &list);
    code = code ? code
                : sort_list(r, list.list, call->arg[1],
                            call->arg[0] && tw_jinja_truth(call->arg[0]), largest);
    if (!code) {
        *out = list.list->n ? list.list->item[0]
                            : tw_jinja_undefined(TW_JINJA_TEXT("the largest of no items"));
    }
    return code;
}

FILTER(run_min) {
    return extreme(r, call, false, out);
}

FILTER(run_max) {
    return extreme(r, call, true, out);
}

FILTER(run_unique) {
    struct tw_jinja_value list, seen, key;
    int code = tw_jinja_iterate(r, &call->self, &list);
    bool good = tw_jinja_new_list(r->arena, TW_JINJA_LIST, out) &&
                tw_jinja_new_list(r->arena, TW_JINJA_LIST, &seen);
    for (size_t i = 0; !code && good && i < list.list->n; i++) {
        bool known = false;
        code = sort_key(r, &list.list->item[i], call->arg[1],
                        call->arg[0] && tw_jinja_truth(call->arg[0]), &key);
        for (size_t k = 0; !code && k < seen.list->n && !known; k++) {
            known = tw_jinja_equal(&seen.list->item[k], &key);
        }
        code = code ? code : tw_jinja_step(r, seen.list->n / 16);
        if (!code && !known) {
            good = tw_jinja_push(r->arena, seen.list, key) &&
                   tw_jinja_push(r->arena, out->list, list.list->item[i]);
        }
    }
    return code ? code : good ? 0 : tw_jinja_no_memory(r);
}

/* ---- select, reject, map ---- */

/* The items of what is not false, as Jinja's own code has it: of None there are none. */
static int iterate_some(struct tw_jinja_render *r, const struct tw_jinja_value *v,
                        struct tw_jinja_value *out) {
    struct tw_jinja_value none = tw_jinja_undefined(TW_JINJA_TEXT(""));
    return tw_jinja_iterate(r, tw_jinja_truth(v) ? v : &none, out);
}

/* The arguments after the first n, as those of a filter or test. */
static struct tw_jinja_arguments rest_of(const struct tw_jinja_arguments *all, size_t n) {
    struct tw_jinja_arguments rest = *all;
    n = n < rest.positional.n ? n : rest.positional.n;
    if (n > 0) { /* without arguments there is no array */
        rest.positional.item += n;
    }
    rest.positional.n -= n;
    return rest;
}

/* Keeps the items whose value (or, by_attribute, whose attribute) passes a test, or not. */
static int select_items(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                        bool by_attribute, bool wanted, struct tw_jinja_value *out) {
    const struct tw_jinja_list *args = &call->all->positional;
    const struct tw_jinja_value *test = args->n > by_attribute ? &args->item[by_attribute] : NULL;
    struct tw_jinja_arguments rest = rest_of(call->all, 1u + by_attribute);
    struct tw_jinja_value list, v;
    if ((by_attribute && args->n == 0) || (test && test->kind != TW_JINJA_STRING)) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "select and reject need the name of a test");
    }
    int code = iterate_some(r, &call->self, &list);
    size_t kept = 0;
    for (size_t i = 0; !code && i < list.list->n; i++) {
        bool is = false;
        v = list.list->item[i];
        code = by_attribute ? tw_jinja_path(r, &v, &args->item[0], &v) : 0;
        if (!code && test) {
            code = tw_jinja_apply_test(r, test->text, &v, &rest, &is);
        } else if (!code) {
            is = tw_jinja_truth(&v);
        }
        if (!code && is == wanted) {
            list.list->item[kept++] = list.list->item[i];
        }
    }
    list.list->n = code ? 0 : kept;
    *out = list;
    return code;
}

FILTER(run_select) {
    return select_items(r, call, false, true, out);
}

FILTER(run_reject) {
    return select_items(r, call, false, false, out);
}

FILTER(run_selectattr) {
    return select_items(r, call, true, true, out);
}

FILTER(run_rejectattr) {
    return select_items(r, call, true, false, out);
}

/* map(attribute=..., default=...), or map('filter', arguments...) */
static int map_item(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                    struct tw_jinja_value *v) {
    const struct tw_jinja_arguments *all = call->all;
    const struct tw_jinja_value *path =
        tw_jinja_get_text(&all->keyword, TW_JINJA_TEXT("attribute"));
    const struct tw_jinja_value *otherwise =
        tw_jinja_get_text(&all->keyword, TW_JINJA_TEXT("default"));
    if (path) {
        int code = tw_jinja_path(r, v, path, v);
        if (!code && v->kind == TW_JINJA_UNDEFINED && otherwise) {
            *v = *otherwise;
        }
        return code;
    }
    struct tw_jinja_arguments rest = rest_of(all, 1);
    if (all->positional.n == 0 || all->positional.item[0].kind != TW_JINJA_STRING) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "map needs the name of a filter");
    }
    struct tw_jinja_value self = *v;
    return tw_jinja_apply_filter(r, all->positional.item[0].text, &self, &rest, v);
}

FILTER(run_map) {
    struct tw_jinja_value list;
    int code = iterate_some(r, &call->self, &list);
    for (size_t i = 0; !code && i < list.list->n; i++) {
        code = map_item(r, call, &list.list->item[i]);
    }
    *out = list;
    return code;
}

const struct tw_jinja_function *tw_jinja_filter(struct tw_jinja_text name) {
    static const struct tw_jinja_function table[] = {
        {"default", "default_value boolean", 0, run_default},
        {"d", "default_value boolean", 0, run_default},
        {"length", "", 0, run_length},
        {"count", "", 0, run_length},
        {"list", "", 0, run_list},
        {"first", "", 0, run_first},
        {"last", "", 0, run_last},
        {"reverse", "", 0, run_reverse},
        {"join", "d attribute", 0, run_join},
        {"items", "", 0, run_items},
        {"sum", "attribute start", 0, run_sum},
        {"attr", "name", 1, run_attr},
        {"sort", "reverse case_sensitive attribute", 0, run_sort},
        {"dictsort", "case_sensitive by reverse", 0, run_dictsort},
        {"min", "case_sensitive attribute", 0, run_min},
        {"max", "case_sensitive attribute", 0, run_max},
        {"unique", "case_sensitive attribute", 0, run_unique},
        {"select", "*", 0, run_select},
        {"reject", "*", 0, run_reject},
        {"selectattr", "*", 0, run_selectattr},
        {"rejectattr", "*", 0, run_rejectattr},
        {"map", "*", 0, run_map},
    };
    const struct tw_jinja_function *f = TW_JINJA_IN_TABLE(table, name);
    return f ? f : tw_jinja_text_filter(name);
}
