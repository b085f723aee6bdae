/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates (jinja.h): from source to tree, from JSON to values, from the tree to text.
 */
#include "driver/chat/jinja.h"

#include "driver/chat/eval.h"
#include "driver/chat/parser.h"

#include "loader/base/clock.h"

#include <stdlib.h>
#include <string.h>

#define TREE_BYTES_MAX ((size_t)256 << 20)
#define RENDER_BYTES_MAX ((size_t)128 << 20)
#define JSON_DEPTH_MAX 60u

struct tw_jinja {
    struct tw_jinja_source source;
    struct tw_jinja_arena arena;
    struct tw_jinja_node *tree;
};

/* ---- from source to tree ---- */

/* Copies the source with LF for every newline and without the last one. */
static void copy_source(const char *source, size_t n, struct tw_jinja_source *out) {
    for (size_t i = 0; i < n; i++) {
        bool cr = source[i] == '\r';
        out->text[out->n++] = cr ? '\n' : source[i];
        i += cr && i + 1 < n && source[i + 1] == '\n';
    }
    out->n -= out->n && out->text[out->n - 1] == '\n';
}

static int parse(struct tw_jinja *jinja, tw_error *err) {
    struct tw_jinja_tokens tokens = {0};
    int code = tw_jinja_lex(&jinja->source, &jinja->arena, &tokens, err);
    struct tw_jinja_parser parser = {
        .source = &jinja->source, .arena = &jinja->arena, .token = tokens.token, .err = err};
    return code ? code : tw_jinja_parse(&parser, &jinja->tree);
}

int tw_jinja_create(const char *source, size_t n, struct tw_jinja **out, tw_error *err) {
    if (n > TW_JINJA_SOURCE_MAX) {
        return tw_fail(err, TW_E_RANGE, "chat template: %zu bytes, expected at most %u", n,
                       TW_JINJA_SOURCE_MAX);
    }
    struct tw_jinja *jinja = calloc(1, sizeof *jinja);
    char *text = malloc(n + 1);
    if (!jinja || !text) {
        free(jinja);
        free(text);
        return tw_fail(err, TW_E_NOMEM, "chat template: no memory for %zu bytes", n);
    }
    jinja->source.text = text;
    jinja->arena.max_bytes = TREE_BYTES_MAX;
    copy_source(source, n, &jinja->source);
    int code = parse(jinja, err);
    if (code) {
        tw_jinja_destroy(jinja);
        return code;
    }
    *out = jinja;
    return 0;
}

void tw_jinja_destroy(struct tw_jinja *jinja) {
    if (jinja) {
        tw_jinja_arena_finish(&jinja->arena);
        free(jinja->source.text);
        free(jinja);
    }
}

/* ---- from JSON to values ---- */

static bool copy_text(struct tw_jinja_arena *arena, const char *text, size_t n, bool data,
                      struct tw_jinja_text *out) {
    char *p = tw_jinja_alloc(arena, n + 1);
    uint8_t *marks = data ? tw_jinja_alloc(arena, n + 1) : NULL;
    if (!p || (data && !marks)) {
        return false;
    }
    memcpy(p, text, n);
    if (marks) {
        memset(marks, 1, n);
    }
    *out = (struct tw_jinja_text){p, marks, n};
    return true;
}

static bool convert(struct tw_jinja_arena *arena, const json_t *json, unsigned depth,
                    struct tw_jinja_value *out);

static bool convert_array(struct tw_jinja_arena *arena, const json_t *json, unsigned depth,
                          struct tw_jinja_value *out) {
    bool good = tw_jinja_new_list(arena, TW_JINJA_LIST, out);
    for (size_t i = 0; good && i < json_array_size(json); i++) {
        struct tw_jinja_value v;
        good = convert(arena, json_array_get(json, i), depth + 1, &v) &&
               tw_jinja_push(arena, out->list, v);
    }
    return good;
}

/* Whether a value is the name of a role that templates know. Some write markers with it, such as
 * '<|' ~ message.role ~ '|>', which are tokens only as a whole: so these count as the template's
 * own text. What else may stand for a role stays data. */
static bool is_role(const char *key, const json_t *item) {
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
    const char *text = strcmp(key, "role") == 0 ? json_string_value(item) : NULL;
    for (size_t i = 0; text && i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(text, roles[i]) == 0 && json_string_length(item) == strlen(roles[i])) {
            return true;
        }
    }
    return false;
}

static bool convert_object(struct tw_jinja_arena *arena, const json_t *json, unsigned depth,
                           struct tw_jinja_value *out) {
    const char *key;
    json_t *item;
    bool good = tw_jinja_new_dict(arena, TW_JINJA_DICT, out);
    /* the iterators of jansson do not change the object, and give each key once */
    json_object_foreach((json_t *)(uintptr_t)json, key, item) {
        struct tw_jinja_value v;
        struct tw_jinja_text name;
        good = good && convert(arena, item, depth + 1, &v);
        if (good && is_role(key, item)) {
            v.text.data = NULL;
        }
        good = good && copy_text(arena, key, strlen(key), true, &name) &&
               tw_jinja_add(arena, out->dict, tw_jinja_string(name), v);
    }
    return good;
}

static bool convert(struct tw_jinja_arena *arena, const json_t *json, unsigned depth,
                    struct tw_jinja_value *out) {
    *out = tw_jinja_none();
    if (depth > JSON_DEPTH_MAX) {
        return false;
    }
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return convert_object(arena, json, depth, out);
    case JSON_ARRAY:
        return convert_array(arena, json, depth, out);
    case JSON_STRING:
        out->kind = TW_JINJA_STRING;
        return copy_text(arena, json_string_value(json), json_string_length(json), true,
                         &out->text);
    case JSON_INTEGER:
        *out = tw_jinja_int(json_integer_value(json));
        return true;
    case JSON_REAL:
        *out = tw_jinja_float(json_real_value(json));
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = tw_jinja_bool(json_is_true(json));
        return true;
    case JSON_NULL:
        return true;
    }
    return false;
}

static bool define_constants(struct tw_jinja_arena *arena, const struct tw_jinja_input *input,
                             struct tw_jinja_dict *names) {
    bool good = true;
    for (size_t i = 0; i < input->n_constants && good; i++) {
        const struct tw_jinja_constant *c = &input->constants[i];
        struct tw_jinja_value v = {.kind = TW_JINJA_STRING};
        good = copy_text(arena, c->text, strlen(c->text), false, &v.text) &&
               tw_jinja_set(arena, names,
                            tw_jinja_string((struct tw_jinja_text){c->name, NULL, strlen(c->name)}),
                            v);
    }
    return good;
}

/* ---- from the tree to text ---- */

static bool is_data(const struct tw_jinja_text *text, size_t i) {
    return text->data && text->data[i];
}

static size_t count_parts(const struct tw_jinja_text *text) {
    size_t n = text->n > 0;
    for (size_t i = 1; i < text->n; i++) {
        n += is_data(text, i) != is_data(text, i - 1);
    }
    return n;
}

static int make_output(const struct tw_jinja_text *text, struct tw_jinja_output *out,
                       tw_error *err) {
    size_t n_parts = count_parts(text);
    out->text = malloc(text->n + 1);
    out->parts = calloc(n_parts + 1, sizeof *out->parts);
    if (!out->text || !out->parts) {
        tw_jinja_output_finish(out);
        return tw_fail(err, TW_E_NOMEM, "chat template: no memory for %zu bytes of text", text->n);
    }
    memcpy(out->text, text->p, text->n);
    out->text[text->n] = 0;
    out->n = text->n;
    for (size_t i = 0; i < text->n; i++) {
        if (i == 0 || is_data(text, i) != is_data(text, i - 1)) {
            out->parts[out->n_parts++] = (struct tw_jinja_part){out->text + i, 0, is_data(text, i)};
        }
        out->parts[out->n_parts - 1].n++;
    }
    return 0;
}

static int render(const struct tw_jinja *jinja, const struct tw_jinja_input *input,
                  struct tw_jinja_arena *arena, struct tw_jinja_output *out, tw_error *err) {
    struct tw_jinja_scope outer = {.parent = NULL}, scope = {.parent = &outer};
    struct tw_jinja_value variables;
    struct tw_jinja_buffer text = {.arena = arena};
    if (!convert(arena, input->variables, 0, &variables) || !tw_jinja_is_dict(&variables) ||
        !define_constants(arena, input, &outer.names)) {
        return tw_fail(err, TW_E_RANGE,
                       "chat template: the messages are too large or nested too deeply (more than "
                       "%u)",
                       JSON_DEPTH_MAX);
    }
    scope.names = *variables.dict;
    struct tw_jinja_render r = {.source = &jinja->source,
                                .arena = arena,
                                .scope = &scope,
                                .out = &text,
                                .start_s = tw_clock_s(),
                                .now = input->now,
                                .err = err};
    struct tw_jinja_text result;
    int code = tw_jinja_run(&r, jinja->tree);
    result = tw_jinja_buffer_text(&text);
    return code ? code : make_output(&result, out, err);
}

int tw_jinja_render(const struct tw_jinja *jinja, const struct tw_jinja_input *input,
                    struct tw_jinja_output *out, tw_error *err) {
    struct tw_jinja_arena arena = {.max_bytes = RENDER_BYTES_MAX};
    memset(out, 0, sizeof *out);
    int code = render(jinja, input, &arena, out, err);
    tw_jinja_arena_finish(&arena);
    return code;
}

void tw_jinja_output_finish(struct tw_jinja_output *output) {
    free(output->text);
    free(output->parts);
    memset(output, 0, sizeof *output);
}
