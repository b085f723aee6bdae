/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that templates may call by name (eval.h), those that the transformers library adds
 * among them, and the methods of lists, dicts and loops. Methods that change a list or a dict are
 * refused, as the library's sandbox does.
 */
#include "driver/chat/eval.h"

#include <stdio.h>
#include <string.h>

/* ---- by name ---- */

static int range_bound(struct tw_jinja_render *r, const struct tw_jinja_value *v, int64_t *out) {
    if (v->kind != TW_JINJA_INT && v->kind != TW_JINJA_BOOL) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "range needs integers, found %s",
                                    tw_jinja_type_name(v));
    }
    *out = tw_jinja_as_int(v);
    return 0;
}

static int fill_range(struct tw_jinja_render *r, const int64_t b[3], struct tw_jinja_value *out) {
    double n = ((double)b[1] - (double)b[0]) / (double)b[2];
    if (n > TW_JINJA_RANGE) {
        return tw_jinja_render_fail(r, TW_E_RANGE, "range of more than %d items", TW_JINJA_RANGE);
    }
    if (!tw_jinja_new_list(r->arena, TW_JINJA_LIST, out)) {
        return tw_jinja_no_memory(r);
    }
    for (int64_t i = b[0]; b[2] > 0 ? i < b[1] : i > b[1];) {
        if (!tw_jinja_push(r->arena, out->list, tw_jinja_int(i))) {
            return tw_jinja_no_memory(r);
        }
        if (__builtin_add_overflow(i, b[2], &i)) {
            break;
        }
    }
    return tw_jinja_step(r, out->list->n / 16);
}

static int run_range(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                     struct tw_jinja_value *out) {
    int64_t b[3] = {0, 0, 1};
    int code = range_bound(r, call->arg[0], &b[call->arg[1] ? 0 : 1]);
    code = code || !call->arg[1] ? code : range_bound(r, call->arg[1], &b[1]);
    code = code || !call->arg[2] ? code : range_bound(r, call->arg[2], &b[2]);
    if (!code && b[2] == 0) {
        code = tw_jinja_render_fail(r, TW_E_FORMAT, "range cannot have the step 0");
    }
    return code ? code : fill_range(r, b, out);
}

/* dict(other, name=value) and namespace(...) */
static int run_dict_of(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                       enum tw_jinja_kind kind, struct tw_jinja_value *out) {
    const struct tw_jinja_arguments *all = call->all;
    const struct tw_jinja_value *from = all->positional.n ? &all->positional.item[0] : NULL;
    if (all->positional.n > 1 || (from && !tw_jinja_is_dict(from))) {
        return tw_jinja_render_fail(r, TW_E_UNSUPPORTED, "%s takes one dict, and named values",
                                    kind == TW_JINJA_DICT ? "dict" : "namespace");
    }
    bool good = tw_jinja_new_dict(r->arena, kind, out);
    for (size_t i = 0; good && from && i < from->dict->n; i++) {
        good =
            tw_jinja_set(r->arena, out->dict, from->dict->entry[i].key, from->dict->entry[i].value);
    }
    for (size_t i = 0; good && i < all->keyword.n; i++) {
        good = tw_jinja_set(r->arena, out->dict, all->keyword.entry[i].key,
                            all->keyword.entry[i].value);
    }
    return good ? 0 : tw_jinja_no_memory(r);
}

static int run_dict(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                    struct tw_jinja_value *out) {
    return run_dict_of(r, call, TW_JINJA_DICT, out);
}

static int run_namespace(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                         struct tw_jinja_value *out) {
    return run_dict_of(r, call, TW_JINJA_NAMESPACE, out);
}

static int run_raise_exception(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                               struct tw_jinja_value *out) {
    struct tw_jinja_text text = tw_jinja_str(r->arena, call->arg[0]);
    *out = tw_jinja_none();
    return tw_jinja_render_fail(r, TW_E_FORMAT, "the template refuses these messages: %.*s",
                                text.n < 240 ? (int)text.n : 240, text.p);
}

static int run_strftime_now(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                            struct tw_jinja_value *out) {
    struct tw_jinja_text given = tw_jinja_str(r->arena, call->arg[0]);
    struct tw_jinja_buffer b = {.arena = r->arena};
    char format[128], text[256];
    struct tm tm;
    if (given.n >= sizeof format || !localtime_r(&r->now, &tm)) {
        return tw_jinja_render_fail(r, TW_E_RANGE, "strftime_now: a format of %zu bytes", given.n);
    }
    memcpy(format, given.p, given.n);
    format[given.n] = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof text, format, &tm);
#pragma GCC diagnostic pop
    tw_jinja_put(&b, (struct tw_jinja_text){text, NULL, n});
    return tw_jinja_finish_text(r, &b, out);
}

const struct tw_jinja_function *tw_jinja_global(struct tw_jinja_text name) {
    static const struct tw_jinja_function table[] = {
        {"range", "start stop step", 1, run_range},
        {"dict", "*", 0, run_dict},
        {"namespace", "*", 0, run_namespace},
        {"raise_exception", "message", 1, run_raise_exception},
        {"strftime_now", "format", 1, run_strftime_now},
    };
    return TW_JINJA_IN_TABLE(table, name);
}

/* ---- methods of dicts ---- */

static int run_get(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                   struct tw_jinja_value *out) {
    const struct tw_jinja_dict *dict = call->self.dict;
    const struct tw_jinja_value *v = tw_jinja_get(dict, call->arg[0]);
    *out = v ? *v : call->arg[1] ? *call->arg[1] : tw_jinja_none();
    return tw_jinja_step(r, dict->n / 16);
}

/* The keys (with_keys), the values (with_values), or pairs of both. */
static int list_entries(struct tw_jinja_render *r, const struct tw_jinja_dict *dict, bool with_keys,
                        bool with_values, struct tw_jinja_value *out) {
    bool good = tw_jinja_new_list(r->arena, TW_JINJA_LIST, out);
    for (size_t i = 0; i < dict->n && good; i++) {
        struct tw_jinja_value v = with_keys ? dict->entry[i].key : dict->entry[i].value;
        if (with_keys && with_values) {
            good = tw_jinja_new_list(r->arena, TW_JINJA_TUPLE, &v) &&
                   tw_jinja_push(r->arena, v.list, dict->entry[i].key) &&
                   tw_jinja_push(r->arena, v.list, dict->entry[i].value);
        }
        good = good && tw_jinja_push(r->arena, out->list, v);
    }
    return good ? tw_jinja_step(r, dict->n / 16) : tw_jinja_no_memory(r);
}

static int run_items(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                     struct tw_jinja_value *out) {
    return list_entries(r, call->self.dict, true, true, out);
}

static int run_keys(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                    struct tw_jinja_value *out) {
    return list_entries(r, call->self.dict, true, false, out);
}

static int run_values(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                      struct tw_jinja_value *out) {
    return list_entries(r, call->self.dict, false, true, out);
}

static int run_copy(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                    struct tw_jinja_value *out) {
    struct tw_jinja_arguments all = {0};
    struct tw_jinja_call copy = {.all = &all};
    return tw_jinja_push(r->arena, &all.positional, call->self)
               ? run_dict_of(r, &copy, TW_JINJA_DICT, out)
               : tw_jinja_no_memory(r);
}

static int run_refused(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                       struct tw_jinja_value *out) {
    *out = tw_jinja_none();
    return tw_jinja_render_fail(r, TW_E_UNSUPPORTED,
                                "this method would change a %s, which templates may not do",
                                tw_jinja_type_name(&call->self));
}

const struct tw_jinja_function *tw_jinja_dict_method(struct tw_jinja_text name) {
    static const struct tw_jinja_function table[] = {
        {"get", "key default", 1, run_get},  {"items", "", 0, run_items},
        {"keys", "", 0, run_keys},           {"values", "", 0, run_values},
        {"copy", "", 0, run_copy},           {"pop", "*", 0, run_refused},
        {"update", "*", 0, run_refused},     {"clear", "*", 0, run_refused},
        {"setdefault", "*", 0, run_refused}, {"popitem", "*", 0, run_refused},
    };
    return TW_JINJA_IN_TABLE(table, name);
}

/* ---- methods of lists ---- */

static int run_count(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                     struct tw_jinja_value *out) {
    const struct tw_jinja_list *list = call->self.list;
    int64_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        n += tw_jinja_equal(&list->item[i], call->arg[0]);
    }
    *out = tw_jinja_int(n);
    return tw_jinja_step(r, list->n / 16);
}

static int run_index(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                     struct tw_jinja_value *out) {
    const struct tw_jinja_list *list = call->self.list;
    for (size_t i = 0; i < list->n; i++) {
        if (tw_jinja_equal(&list->item[i], call->arg[0])) {
            *out = tw_jinja_int((int64_t)i);
            return tw_jinja_step(r, list->n / 16);
        }
    }
    return tw_jinja_render_fail(r, TW_E_FORMAT, "index: the value is not in the list");
}

const struct tw_jinja_function *tw_jinja_list_method(struct tw_jinja_text name) {
    static const struct tw_jinja_function table[] = {
        {"count", "value", 1, run_count}, {"index", "value", 1, run_index},
        {"append", "*", 0, run_refused},  {"extend", "*", 0, run_refused},
        {"insert", "*", 0, run_refused},  {"pop", "*", 0, run_refused},
        {"remove", "*", 0, run_refused},  {"reverse", "*", 0, run_refused},
        {"sort", "*", 0, run_refused},    {"clear", "*", 0, run_refused},
    };
    return TW_JINJA_IN_TABLE(table, name);
}

/* ---- methods of loops ---- */

static int run_cycle(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                     struct tw_jinja_value *out) {
    const struct tw_jinja_list *values = &call->all->positional;
    if (values->n == 0) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "loop.cycle needs values");
    }
    *out = values->item[call->self.loop->index % values->n];
    return 0;
}

static int run_changed(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                       struct tw_jinja_value *out) {
    struct tw_jinja_loop *loop = call->self.loop;
    struct tw_jinja_value now = {.kind = TW_JINJA_TUPLE};
    struct tw_jinja_list *copy = tw_jinja_alloc(r->arena, sizeof *copy);
    if (!copy) {
        return tw_jinja_no_memory(r);
    }
    *copy = call->all->positional;
    now.list = copy;
    *out = tw_jinja_bool(!loop->changed || !tw_jinja_equal(&loop->last, &now));
    loop->changed = true;
    loop->last = now;
    return 0;
}

const struct tw_jinja_function *tw_jinja_loop_method(struct tw_jinja_text name) {
    static const struct tw_jinja_function table[] = {
        {"cycle", "*", 0, run_cycle},
        {"changed", "*", 0, run_changed},
    };
    return TW_JINJA_IN_TABLE(table, name);
}
