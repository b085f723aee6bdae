/* SPDX-License-Identifier: Apache-2.0
 *
 * The methods of strings in templates (eval.h).
 */
#include "driver/chat/eval.h"
#include "driver/chat/strings.h"

#include <string.h>

#define METHOD(name)                                                             \
    static int name(struct tw_jinja_render *r, const struct tw_jinja_call *call, \
                    struct tw_jinja_value *out)

static const struct tw_jinja_text *text_of(const struct tw_jinja_value *v) {
    return v && v->kind == TW_JINJA_STRING ? &v->text : NULL;
}

static int need_text(struct tw_jinja_render *r, const char *method,
                     const struct tw_jinja_value *v) {
    return v->kind == TW_JINJA_STRING
               ? 0
               : tw_jinja_render_fail(r, TW_E_FORMAT, "%s needs a string, found %s", method,
                                      tw_jinja_type_name(v));
}

static int strip(struct tw_jinja_render *r, const struct tw_jinja_call *call, bool left, bool right,
                 struct tw_jinja_value *out) {
    const struct tw_jinja_text *chars = text_of(call->arg[0]);
    int code = tw_jinja_step_product(r, call->self.text.n, chars ? chars->n : 0);
    *out = tw_jinja_string(code ? call->self.text
                                : tw_jinja_strip(call->self.text, chars, left, right));
    return code;
}

METHOD(run_strip) {
    return strip(r, call, true, true, out);
}

METHOD(run_lstrip) {
    return strip(r, call, true, false, out);
}

METHOD(run_rstrip) {
    return strip(r, call, false, true, out);
}

METHOD(run_upper) {
    return tw_jinja_change_case(r, call->self.text, TW_JINJA_UPPER, false, out);
}

METHOD(run_lower) {
    return tw_jinja_change_case(r, call->self.text, TW_JINJA_LOWER, false, out);
}

METHOD(run_title) {
    return tw_jinja_change_case(r, call->self.text, TW_JINJA_TITLE, false, out);
}

METHOD(run_capitalize) {
    return tw_jinja_change_case(r, call->self.text, TW_JINJA_CAPITALIZE, false, out);
}

static int split(struct tw_jinja_render *r, const struct tw_jinja_call *call, bool last,
                 struct tw_jinja_value *out) {
    const struct tw_jinja_value *separator = call->arg[0], *max = call->arg[1];
    const struct tw_jinja_text *text = text_of(separator);
    if ((text && text->n == 0) || (separator && !text && separator->kind != TW_JINJA_NONE)) {
        return tw_jinja_render_fail(r, TW_E_FORMAT, "split needs a separator that is not empty");
    }
    struct tw_jinja_value list;
    int code = tw_jinja_step_product(r, call->self.text.n, last && text ? text->n : 0);
    if (code) {
        return code;
    }
    bool good =
        tw_jinja_new_list(r->arena, TW_JINJA_LIST, &list) &&
        tw_jinja_split(r->arena, call->self.text, text,
                       max && max->kind == TW_JINJA_INT ? max->integer : -1, last, list.list);
    *out = list;
    return good ? 0 : tw_jinja_no_memory(r);
}

METHOD(run_split) {
    return split(r, call, false, out);
}

METHOD(run_rsplit) {
    return split(r, call, true, out);
}

METHOD(run_splitlines) {
    struct tw_jinja_value list;
    bool good = tw_jinja_new_list(r->arena, TW_JINJA_LIST, &list) &&
                tw_jinja_split_lines(r->arena, call->self.text,
                                     call->arg[0] && tw_jinja_truth(call->arg[0]), list.list);
    *out = list;
    return good ? 0 : tw_jinja_no_memory(r);
}

/* startswith and endswith: a string, or one of several. */
static int has_affix(struct tw_jinja_render *r, const struct tw_jinja_call *call,
                     bool (*has)(struct tw_jinja_text, struct tw_jinja_text), const char *method,
                     struct tw_jinja_value *out) {
    const struct tw_jinja_value *what = call->arg[0];
    bool tuple = what->kind == TW_JINJA_TUPLE, is = false;
    int code = tuple ? 0 : need_text(r, method, what);
    if (!code && !tuple) {
        is = has(call->self.text, what->text);
    }
    for (size_t i = 0; tuple && i < what->list->n && !code && !is; i++) {
        code = need_text(r, method, &what->list->item[i]);
        is = !code && has(call->self.text, what->list->item[i].text);
    }
    *out = tw_jinja_bool(is);
    return code;
}

METHOD(run_startswith) {
    return has_affix(r, call, tw_jinja_begins, "startswith", out);
}

METHOD(run_endswith) {
    return has_affix(r, call, tw_jinja_ends, "endswith", out);
}

METHOD(run_removeprefix) {
    int code = need_text(r, "removeprefix", call->arg[0]);
    if (!code) {
        struct tw_jinja_text text = call->self.text, what = call->arg[0]->text;
        *out =
            tw_jinja_string(tw_jinja_cut(text, tw_jinja_begins(text, what) ? what.n : 0, text.n));
    }
    return code;
}

METHOD(run_removesuffix) {
    int code = need_text(r, "removesuffix", call->arg[0]);
    if (!code) {
        struct tw_jinja_text text = call->self.text, what = call->arg[0]->text;
        *out = tw_jinja_string(
            tw_jinja_cut(text, 0, text.n - (tw_jinja_ends(text, what) ? what.n : 0)));
    }
    return code;
}

METHOD(run_replace) {
    struct tw_jinja_buffer b = {.arena = r->arena};
    int code = need_text(r, "replace", call->arg[0]);
    code = code ? code : need_text(r, "replace", call->arg[1]);
    if (code) {
        return code;
    }
    bool limited = call->arg[2] && call->arg[2]->kind == TW_JINJA_INT;
    tw_jinja_put_replaced(&b, call->self.text, call->arg[0]->text, call->arg[1]->text,
                          limited ? call->arg[2]->integer : -1);
    code = tw_jinja_finish_text(r, &b, out);
    return code ? code : tw_jinja_step(r, call->self.text.n / 64);
}

/* The position of a byte, in characters; -1 if it is the end. */
static int64_t position(struct tw_jinja_text text, size_t at) {
    return at == text.n ? -1 : (int64_t)tw_jinja_count_chars(tw_jinja_cut(text, 0, at));
}

METHOD(run_find) {
    int code = need_text(r, "find", call->arg[0]);
    if (!code) {
        struct tw_jinja_text what = call->arg[0]->text;
        *out = tw_jinja_int(
            what.n ? position(call->self.text, tw_jinja_find(call->self.text, what, 0)) : 0);
        code = tw_jinja_step(r, call->self.text.n / 64);
    }
    return code;
}

METHOD(run_rfind) {
    int code = need_text(r, "rfind", call->arg[0]);
    code = code ? code : tw_jinja_step_product(r, call->self.text.n, call->arg[0]->text.n);
    if (!code) {
        *out = tw_jinja_int(
            position(call->self.text, tw_jinja_find_last(call->self.text, call->arg[0]->text)));
        code = tw_jinja_step(r, call->self.text.n / 16);
    }
    return code;
}

METHOD(run_count) {
    int64_t n = 0;
    int code = need_text(r, "count", call->arg[0]);
    if (code) {
        return code;
    }
    struct tw_jinja_text text = call->self.text, what = call->arg[0]->text;
    if (what.n == 0) {
        n = (int64_t)tw_jinja_count_chars(text) + 1;
    }
    for (size_t at = 0; what.n && (at = tw_jinja_find(text, what, at)) < text.n; at += what.n) {
        n++;
    }
    *out = tw_jinja_int(n);
    return tw_jinja_step(r, text.n / 64);
}

METHOD(run_join) {
    struct tw_jinja_value list;
    struct tw_jinja_buffer b = {.arena = r->arena};
    int code = tw_jinja_iterate(r, call->arg[0], &list);
    for (size_t i = 0; !code && i < list.list->n; i++) {
        code = need_text(r, "join", &list.list->item[i]);
        if (!code && i) {
            tw_jinja_put(&b, call->self.text);
        }
        if (!code) {
            tw_jinja_put(&b, list.list->item[i].text);
        }
    }
    return code ? code : tw_jinja_finish_text(r, &b, out);
}

/* ---- isdigit and the like: for each character, and not for an empty string ---- */

static bool all_chars(struct tw_jinja_text text, bool (*is)(uint32_t c)) {
    bool good = text.n > 0;
    for (size_t at = 0; at < text.n && good; at += tw_jinja_char_bytes(text, at)) {
        good = is(tw_jinja_code_point(text, at));
    }
    return good;
}

static bool is_digit(uint32_t c) {
    return c >= '0' && c <= '9';
}

static bool is_alpha(uint32_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
}

static bool is_alnum(uint32_t c) {
    return is_alpha(c) || is_digit(c);
}

METHOD(run_isdigit) {
    *out = tw_jinja_bool(all_chars(call->self.text, is_digit));
    return tw_jinja_step(r, call->self.text.n / 64);
}

METHOD(run_isalpha) {
    *out = tw_jinja_bool(all_chars(call->self.text, is_alpha));
    return tw_jinja_step(r, call->self.text.n / 64);
}

METHOD(run_isalnum) {
    *out = tw_jinja_bool(all_chars(call->self.text, is_alnum));
    return tw_jinja_step(r, call->self.text.n / 64);
}

METHOD(run_isspace) {
    *out = tw_jinja_bool(all_chars(call->self.text, tw_jinja_is_space));
    return tw_jinja_step(r, call->self.text.n / 64);
}

static int is_case(struct tw_jinja_render *r, const struct tw_jinja_call *call, const char *test,
                   struct tw_jinja_value *out) {
    struct tw_jinja_arguments none = {0};
    bool is = false;
    int code = tw_jinja_apply_test(r, (struct tw_jinja_text){test, NULL, strlen(test)}, &call->self,
                                   &none, &is);
    *out = tw_jinja_bool(is);
    return code;
}

METHOD(run_isupper) {
    return is_case(r, call, "upper", out);
}

METHOD(run_islower) {
    return is_case(r, call, "lower", out);
}

/* ---- format ---- */

/* The value of a field of str.format: "{}", "{0}" or "{name}". */
static const struct tw_jinja_value *field_value(const struct tw_jinja_arguments *all,
                                                struct tw_jinja_text name, size_t *next) {
    size_t index = 0;
    bool number = true;
    for (size_t i = 0; i < name.n && number; i++) {
        number = is_digit((uint8_t)name.p[i]) && index < 1000;
        index = index * 10 + (size_t)(name.p[i] - '0');
    }
    if (!number) {
        return tw_jinja_get_text(&all->keyword, name);
    }
    index = name.n ? index : (*next)++;
    return index < all->positional.n ? &all->positional.item[index] : NULL;
}

/* One field whose "{" is at `at`. */
static int put_field(struct tw_jinja_render *r, const struct tw_jinja_call *call, size_t *at,
                     size_t *next, struct tw_jinja_buffer *b) {
    struct tw_jinja_text text = call->self.text;
    size_t end = tw_jinja_find(text, TW_JINJA_TEXT("}"), *at);
    struct tw_jinja_text name = tw_jinja_cut(text, *at + 1, end);
    const struct tw_jinja_value *v = end < text.n ? field_value(call->all, name, next) : NULL;
    if (!v) {
        return tw_jinja_render_fail(r, TW_E_UNSUPPORTED,
                                    "format: the field {%.*s} is not supported, or has no value",
                                    name.n < 40 ? (int)name.n : 40, name.p);
    }
    tw_jinja_put_str(b, v);
    *at = end + 1;
    return 0;
}

METHOD(run_format) {
    struct tw_jinja_text text = call->self.text;
    struct tw_jinja_buffer b = {.arena = r->arena};
    size_t next = 0;
    int code = 0;
    for (size_t at = 0; at < text.n && !code && !b.failed;) {
        bool twice = at + 1 < text.n && text.p[at] == text.p[at + 1];
        if (text.p[at] == '{' && !twice) {
            code = put_field(r, call, &at, &next, &b);
            continue;
        }
        bool brace = text.p[at] == '{' || text.p[at] == '}';
        tw_jinja_put(&b, tw_jinja_cut(text, at, at + 1));
        at += brace && twice ? 2 : 1;
    }
    return code ? code : tw_jinja_finish_text(r, &b, out);
}

const struct tw_jinja_function *tw_jinja_string_method(struct tw_jinja_text name) {
    static const struct tw_jinja_function table[] = {
        {"strip", "chars", 0, run_strip},
        {"lstrip", "chars", 0, run_lstrip},
        {"rstrip", "chars", 0, run_rstrip},
        {"upper", "", 0, run_upper},
        {"lower", "", 0, run_lower},
        {"title", "", 0, run_title},
        {"capitalize", "", 0, run_capitalize},
        {"split", "sep maxsplit", 0, run_split},
        {"rsplit", "sep maxsplit", 0, run_rsplit},
        {"splitlines", "keepends", 0, run_splitlines},
        {"startswith", "prefix", 1, run_startswith},
        {"endswith", "suffix", 1, run_endswith},
        {"removeprefix", "prefix", 1, run_removeprefix},
        {"removesuffix", "suffix", 1, run_removesuffix},
        {"replace", "old new count", 2, run_replace},
        {"find", "sub", 1, run_find},
        {"rfind", "sub", 1, run_rfind},
        {"count", "sub", 1, run_count},
        {"join", "iterable", 1, run_join},
        {"format", "*", 0, run_format},
        {"isdigit", "", 0, run_isdigit},
        {"isalpha", "", 0, run_isalpha},
        {"isalnum", "", 0, run_isalnum},
        {"isspace", "", 0, run_isspace},
        {"isupper", "", 0, run_isupper},
        {"islower", "", 0, run_islower},
    };
    return TW_JINJA_IN_TABLE(table, name);
}
