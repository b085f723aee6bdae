/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of chat templates: real ones against texts that Jinja gave, small ones against what Python
 * prints, where each byte comes from, and what is refused.
 */
#include "driver/chat/builtin.h"
#include "driver/chat/jinja.h"
#include "loader/base/clock.h"
#include "tests/support/test.h"

#define JULY_10_2025 1752105600 /* the day on which the expected texts were rendered */

/* ---- rendering ---- */

struct rendered {
    int code;
    tw_error err;
    struct tw_jinja_output out;
};

static struct rendered render(const char *source, size_t n, const json_t *variables) {
    struct rendered r = {.code = 0};
    struct tw_jinja *jinja = NULL;
    r.code = tw_jinja_create(source, n, &jinja, &r.err);
    if (!r.code) {
        struct tw_jinja_input input = {.variables = variables, .now = JULY_10_2025};
        r.code = tw_jinja_render(jinja, &input, &r.out, &r.err);
    }
    tw_jinja_destroy(jinja);
    return r;
}

static void finish(struct rendered *r) {
    tw_jinja_output_finish(&r->out);
}

/* Renders with the messages of `chat`: pairs of role and content, up to NULL. */
static json_t *messages_of(const char *const *chat) {
    json_t *messages = json_array();
    for (; *chat; chat += 2) {
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", chat[0], "content", chat[1]));
    }
    return messages;
}

static void expect(const char *source, const char *expected) {
    json_t *v =
        json_pack("{s:s, s:[i,i,i], s:{s:i,s:[i,{s:s}]}, s:n, s:[{s:s,s:s},{s:s,s:s}]}", "s",
                  "Hello W\xC3\xB6rld", "l", 3, 1, 2, "d", "b", 1, "a", 1, "x", "y'", "n",
                  "messages", "role", "user", "content", "hi", "role", "assistant", "content", "A");
    struct rendered r = render(source, strlen(source), v);
    if (r.code) {
        fail_msg("%s: %s", source, r.err.message);
    }
    assert_string_equal(r.out.text, expected);
    finish(&r);
    json_decref(v);
}

static void expect_refused(const char *source, int code, const char *words) {
    json_t *v = json_pack("{s:[], s:n, s:[i]}", "messages", "n", "l", 1);
    struct rendered r = render(source, strlen(source), v);
    assert_int_equal(r.code, code);
    if (!strstr(r.err.message, words)) {
        fail_msg("%s: %s", source, r.err.message);
    }
    finish(&r);
    json_decref(v);
}

/* ---- real templates ---- */

static json_t *load(const char *name) {
    char path[4096];
    json_error_t at;
    const char *folder = getenv("TW_SHARED");
    if (!folder) {
        print_message("skipped: TW_SHARED is not set, so %s is not there\n", name);
        skip();
    }
    snprintf(path, sizeof path, "%s/data/templates/%s", folder, name);
    json_t *json = json_load_file(path, 0, &at);
    assert_non_null(json);
    return json;
}

static char *load_template(const char *name, size_t *n) {
    char path[4096];
    snprintf(path, sizeof path, "%s/data/templates/llamacpp_v0.5.0/%s", getenv("TW_SHARED"), name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = malloc(1 << 20);
    assert_non_null(text);
    *n = fread(text, 1, 1 << 20, f);
    fclose(f);
    return text;
}

/* The chats of jinja2_expected.json by their names. */
static json_t *variables_of(const char *name) {
    static const struct {
        const char *name, *chat[9];
    } chats[] = {
        {"user", {"user", "Hello, how are you?"}},
        {"sys_user", {"system", "You are a helpful assistant.", "user", "Hello"}},
        {"multi",
         {"system", "You are a helpful assistant.", "user", "Hello", "assistant", "Hi there",
          "user", "Who are you?\n  second line {{ not_a_template }} <|im_end|>"}},
        {"two_users", {"user", "a", "user", "b"}},
        {"empty", {NULL}},
        {"empty_content", {"user", ""}},
        {"unicode", {"user", "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E \xF0\x9F\xA6\x99 \xC3\xA9"}},
    };
    size_t n = strcspn(name, "+");
    for (size_t i = 0; i < sizeof chats / sizeof *chats; i++) {
        if (strlen(chats[i].name) == n && strncmp(chats[i].name, name, n) == 0) {
            return json_pack("{s:o, s:b, s:s, s:s}", "messages", messages_of(chats[i].chat),
                             "add_generation_prompt", name[n] == '+', "bos_token", "<s>",
                             "eos_token", "</s>");
        }
    }
    fail_msg("there is no chat %s", name);
    return NULL;
}

/* Errors of the template itself must come with its words. */
static void expect_error(const char *what, const struct rendered *r, const char *expected) {
    const char *words = strstr(expected, "TemplateError: ");
    if (!r->code || (words && !strstr(r->err.message, words + strlen("TemplateError: ")))) {
        fail_msg("%s: expected \"%s\", got \"%s\"", what, expected, r->err.message);
    }
}

static void expect_result(const char *template, const char *name, const json_t *expected) {
    char what[200];
    size_t n;
    char *source = load_template(template, &n);
    json_t *variables = variables_of(name);
    struct rendered r = render(source, n, variables);
    const char *out = json_string_value(json_object_get(expected, "out"));
    snprintf(what, sizeof what, "%s, %s", template, name);
    if (!out) {
        expect_error(what, &r, json_string_value(json_object_get(expected, "error")));
    } else if (r.code || strcmp(r.out.text, out) != 0) {
        fail_msg("%s: %s\n%s\n---\n%s", what, r.err.message, r.code ? "" : r.out.text, out);
    }
    finish(&r);
    json_decref(variables);
    free(source);
}

static void real_templates_give_what_jinja_gives(void **state) {
    (void)state;
    const char *template, *name;
    json_t *all = load("jinja2_expected.json"), *chats, *expected;
    size_t n = 0;
    json_object_foreach(all, template, chats) {
        json_object_foreach(chats, name, expected) {
            expect_result(template, name, expected);
            n++;
        }
    }
    assert_int_equal(n, 980);
    json_decref(all);
}

/* The only text that differs from Jinja's own: its author's engine removes newlines that Jinja
 * keeps. */
#define DIFFERS "MadeAgents/Hammer2.1"

static void templates_of_hugging_face_give_their_text(void **state) {
    (void)state;
    json_t *all = load("hfjs_e2e.json"), *one;
    size_t i;
    json_array_foreach(all, i, one) {
        const json_t *source = json_object_get(one, "chat_template");
        const char *name = json_string_value(json_object_get(one, "name"));
        const char *target = json_string_value(json_object_get(one, "target"));
        struct rendered r = render(json_string_value(source), json_string_length(source),
                                   json_object_get(one, "data"));
        bool same = !r.code && strcmp(r.out.text, target) == 0;
        if (same == (strcmp(name, DIFFERS) == 0)) {
            fail_msg("%s: %s\n%s\n---\n%s", name, r.err.message, r.code ? "" : r.out.text, target);
        }
        finish(&r);
    }
    assert_int_equal(i, 53);
    json_decref(all);
}

static void templates_of_ollama_can_be_rendered(void **state) {
    (void)state;
    char path[4096], line[16384];
    const char *name;
    size_t n = 0;
    json_t *one, *source, *variables;
    json_decref(load("hfjs_e2e.json")); /* skips without the data */
    snprintf(path, sizeof path, "%s/data/templates/ollama_templates.jsonl", getenv("TW_SHARED"));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    variables = variables_of("multi+gen");
    while (fgets(line, sizeof line, f)) {
        one = json_loads(line, 0, NULL);
        assert_non_null(one);
        json_object_foreach(one, name, source) {
            struct rendered r =
                render(json_string_value(source), json_string_length(source), variables);
            bool refuses = r.code && strstr(r.err.message, "refuses these messages");
            if (r.code ? !refuses : !strstr(r.out.text, "Who are you?")) {
                fail_msg("%s: %s", name, r.err.message);
            }
            finish(&r);
            n++;
        }
        json_decref(one);
    }
    assert_int_equal(n, 35);
    json_decref(variables);
    fclose(f);
}

/* ---- small ones: the expectations are what Python with Jinja 3.1 prints ---- */

static void values_print_as_python_prints_them(void **state) {
    (void)state;
    expect("{{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1/3 }} {{ -0.5 }}",
           "1.0 1e+16 1000000000000000.0 0.0001 1e-05 0.3333333333333333 -0.5");
    expect("{{ d }} {{ none }} {{ true }} {{ (1,) }} {{ [] }}",
           "{'b': 1, 'a': [1, {'x': \"y'\"}]} None True (1,) []");
    expect("{{ ['\\n\\x07', \"it's\"] }}", "['\\n\\x07', \"it's\"]");
    expect("{{ d|tojson }} {{ l|tojson(indent=1) }} {{ '<\\n'|tojson }}",
           "{\"b\": 1, \"a\": [1, {\"x\": \"y'\"}]} [\n 3,\n 1,\n 2\n] \"<\\n\"");
    expect("{{ d|tojson(separators=(',',':'), sort_keys=true) }}",
           "{\"a\":[1,{\"x\":\"y'\"}],\"b\":1}");
}

static void operators_follow_python(void **state) {
    (void)state;
    expect("{{ 7//2 }} {{ -7//2 }} {{ -7%3 }} {{ 2**10 }} {{ 7.5//2 }} {{ 'ab'*2 }}",
           "3 -4 2 1024 3.0 abab");
    expect("{{ 1 == 1.0 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ not 1 == 2 }} {{ 5 not in l }}",
           "True True False True True");
    expect("{{ 'x' ~ 1 ~ none ~ [1,'a'] }} {{ 2 * 3 ~ 'x' }} {{ '%s-%.2f' % ('a', 1.234) }}",
           "x1None[1, 'a'] 6x a-1.23");
    expect("{{ s[1:3] }} {{ s[::-1] }} {{ l[-1] }} {{ l[5] }} {{ l[::2] }} {{ s[7] }}",
           "el dlr\xC3\xB6W olleH 2  [3, 2] \xC3\xB6");
    expect("{{ 'a' if false }}|{{ missing }}|{{ missing|default('x') }}|{{ d.nope is defined }}",
           "||x|False");
}

static void statements_scope_as_in_jinja(void **state) {
    (void)state;
    expect("{% set y = 1 %}{% for x in l %}{{ y }}{% set y = x %}{{ y }}{% endfor %}{{ y }}",
           "1311121");
    expect("{% set ns = namespace(a=1) %}{% for x in l %}{% set ns.a = ns.a + x %}{% endfor %}"
           "{{ ns.a }}",
           "7");
    expect("{% for x in l if x > 1 %}{{ loop.length }}{{ x }}{% else %}none{% endfor %}", "2322");
    expect("{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "32");
    expect("{% macro m(a, b=2) %}[{{ a }}{{ b }}{{ caller() if caller }}]{% endmacro %}"
           "{{ m(1) }}{{ m(b=3) }}{% call m(7) %}hey{% endcall %}",
           "[12][3][72hey]");
    expect("{% set x | trim | upper %}  body {% endset %}[{{ x }}]{% filter upper %}a{% endfilter "
           "%}{% with a=1 %}{{ a }}{% endwith %}",
           "[BODY]A1");
    expect("{% if n %}a{% elif l[0] == 3 %}b{% else %}c{% endif %}", "b");
    expect("{% for m in messages recursive %}{{ m.role }}{% if loop.depth < 2 %}"
           "{{ loop([{'role': '+'}]) }}{% endif %}{% endfor %}",
           "user+assistant+");
}

static void white_space_is_removed_as_transformers_does(void **state) {
    (void)state;
    expect("A\n  {% if true %}\n  x\n  {% endif %}\n B\n", "A\n  x\n B");
    expect("a {%+ if true %} b{% endif +%}\nc", "a  b\nc");
    expect("  {{ 1 }}\n  {% set a=1 %}  \nz", "  1\n  \nz");
    expect("{%- if true -%}  a  {%- endif -%}  b", "ab");
    expect("{% raw -%}  {{ x }}  {%- endraw %}\ny", "{{ x }}y");
    expect("  {# c #}\n x {# d #} \n", " x  ");
    expect("x\r\ny\r{{1}}", "x\ny\n1");
}

static void filters_do_what_they_do_in_jinja(void **state) {
    (void)state;
    expect("{{ messages|map(attribute='role')|join(', ') }} "
           "{{ messages|selectattr('role', 'equalto', 'user')|list|length }} "
           "{{ messages|rejectattr('role', 'equalto', 'user')|map(attribute='content')|first }}",
           "user, assistant 1 A");
    expect("{{ l|sort }} {{ l|sort(reverse=true) }} {{ l|min }} {{ l|max }} {{ l|sum }}",
           "[1, 2, 3] [3, 2, 1] 1 3 6");
    expect("{% for k, v in d|dictsort %}{{ k }};{% endfor %}{% for k, v in d.items() %}{{ k }};"
           "{% endfor %}",
           "a;b;b;a;");
    expect("{{ \"it's ok\"|title }} {{ \"it's ok\".title() }} {{ 'a b '.split(none, 1) }}",
           "It's Ok It'S Ok ['a', 'b ']");
    expect("{{ 'a\\nb\\n\\nc'|indent(2) }} {{ 'aaa'|replace('a', 'b', 2) }} {{ '3.7'|int }}",
           "a\n  b\n\n  c bba 3");
    expect("{{ \"{} {x}\".format(1, x='y') }} {{ 'xxaxx'.strip('x') }} {{ none|select|list }}",
           "1 y a []");
}

/* ---- where bytes come from ---- */

/* The parts as text: [data] in brackets. */
static void expect_parts_of(const char *role, const char *source, const char *expected) {
    const char *const chat[] = {role, " Hi <|e|> ", NULL};
    char shown[400] = "";
    size_t n = 0;
    json_t *v = json_pack("{s:o}", "messages", messages_of(chat));
    struct rendered r = render(source, strlen(source), v);
    assert_int_equal(r.code, 0);
    for (size_t i = 0; i < r.out.n_parts; i++) {
        const struct tw_jinja_part *p = &r.out.parts[i];
        n += (size_t)snprintf(shown + n, sizeof shown - n, p->data ? "[%.*s]" : "%.*s", (int)p->n,
                              p->text);
    }
    assert_string_equal(shown, expected);
    finish(&r);
    json_decref(v);
}

static void expect_parts(const char *source, const char *expected) {
    expect_parts_of("guest", source, expected);
}

static void marks_of_data_stay_through_filters(void **state) {
    (void)state;
    expect_parts("<|e|>{{ messages[0].content }}<|e|>", "<|e|>[ Hi <|e|> ]<|e|>");
    expect_parts("{{ '<s>' + messages[0]['content'] | trim + '</s>' }}", "<s>[Hi <|e|>]</s>");
    expect_parts("{{ messages[0].content|upper }}{{ 'a' ~ messages[0].role ~ 'b' }}",
                 "[ HI <|E|> ]a[guest]b");
    expect_parts("{{ messages[0].content.split('|')[1] }}{{ messages[0].content[4:9] }}",
                 "[e<|e|>]");
    expect_parts("{% set x %}<{{ messages[0].role }}>{% endset %}{{ x }}", "<[guest]>");
    expect_parts("{{ messages[0]|tojson }}",
                 "{\"[role]\": \"[guest]\", \"[content]\": \"[ Hi <|e|> ]\"}");
    expect_parts("{{ messages[0].content|replace('<|e|>', '<|e|>') }}", "[ Hi ]<|e|>[ ]");
    expect_parts("{{ ['<', messages[0].role]|join('|') }}{{ messages[0].role[::-1] }}",
                 "<|[guesttseug]");
    expect_parts("{{ '%s!' % messages[0].role }}{{ '{}?'.format(messages[0].role) }}",
                 "[guest]![guest]?");
}

/* Markers made of a role are the template's, if it is one that templates know. */
static void roles_count_as_text_of_the_template(void **state) {
    (void)state;
    static const char marker[] = "{{ '<|' ~ messages[0].role ~ '|>' ~ messages[0].content }}";
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "<|%s|>[ Hi <|e|> ]", roles[i]);
        expect_parts_of(roles[i], marker, expected);
    }
    expect_parts_of("end", marker, "<|[end]|>[ Hi <|e|> ]");
    expect_parts_of("user ", marker, "<|[user ]|>[ Hi <|e|> ]");
}

static void built_in_templates_are_templates(void **state) {
    (void)state;
    const char *const chat[] = {"system", "S", "user", "U", "assistant", "A", "user", "V", NULL};
    json_t *v = json_pack("{s:o, s:b, s:s, s:s}", "messages", messages_of(chat),
                          "add_generation_prompt", 1, "bos_token", "<s>", "eos_token", "</s>");
    static const char *const expected[][2] = {
        {"chatml", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
                   "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n"
                   "<|im_start|>assistant\n"},
        {"gemma", "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA"
                  "<end_of_turn>\n<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n"},
        {"llama2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]"},
        {"llama3", "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
                   "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
                   "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
                   "<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
                   "<|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"mistral", "<s>[INST] S\n\nU [/INST] A</s>[INST] V [/INST]"},
        {"phi3", "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n"
                 "<|user|>\nV<|end|>\n<|assistant|>\n"},
        {"zephyr", "<|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\nA</s>\n<|user|>\nV</s>\n"
                   "<|assistant|>\n"},
    };
    assert_int_equal(tw_chat_n_builtins, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < tw_chat_n_builtins; i++) {
        struct rendered r = render(tw_chat_builtins[i].text, strlen(tw_chat_builtins[i].text), v);
        assert_int_equal(r.code, 0);
        assert_string_equal(tw_chat_builtins[i].name, expected[i][0]);
        assert_string_equal(r.out.text, expected[i][1]);
        finish(&r);
    }
    json_decref(v);
}

/* ---- refusals ---- */

static void what_is_not_supported_is_named_with_its_place(void **state) {
    (void)state;
    expect_refused("a\n {% include 'x' %}", TW_E_UNSUPPORTED,
                   "line 2, column 5: the statement {% include %} is not supported");
    expect_refused("{{ n|frob }}", TW_E_UNSUPPORTED, "column 6: the filter 'frob'");
    expect_refused("{{ n is frob }}", TW_E_UNSUPPORTED, "the test 'frob' is not supported");
    expect_refused("{{ n|trim(1, 2) }}", TW_E_UNSUPPORTED, "trim has arguments");
    expect_refused("{{ l.append(1) }}", TW_E_UNSUPPORTED, "would change a list");
}

static void mistakes_in_templates_are_refused(void **state) {
    (void)state;
    expect_refused("{% if true %}a", TW_E_FORMAT, "the template ends; expected {% elif %}");
    expect_refused("{{ 'abc }}", TW_E_FORMAT, "the string has no end");
    expect_refused("{# abc", TW_E_FORMAT, "the comment has no end");
    expect_refused("{{ (1 }}", TW_E_FORMAT, "} closes nothing that is open");
    expect_refused("{{ 1 2 }}", TW_E_FORMAT, "found 2; expected }}");
    expect_refused("{% endif %}", TW_E_FORMAT, "ends nothing");
    expect_refused("{% break %}", TW_E_FORMAT, "outside of a loop");
    expect_refused("{% set 1 = 2 %}", TW_E_FORMAT, "a name to assign to");
}

static void what_python_refuses_is_refused(void **state) {
    (void)state;
    expect_refused("{{ missing.x }}", TW_E_FORMAT, "'missing' is undefined");
    expect_refused("{{ 'x' + 1 }}", TW_E_FORMAT, "+ between str and int");
    expect_refused("{{ messages[0]['role'] }}", TW_E_FORMAT, "undefined");
    expect_refused("{{ raise_exception('No!') }}", TW_E_FORMAT,
                   "the template refuses these messages: No!");
    expect_refused("{{ 1 // 0 }}", TW_E_FORMAT, "division by zero");
    expect_refused("{% for x in n %}{% endfor %}", TW_E_FORMAT, "cannot be iterated");
    expect_refused("{% set n.x = 1 %}", TW_E_FORMAT, "only those of a namespace");
}

static void hostile_templates_end(void **state) {
    (void)state;
    char deep[3001];
    expect_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", TW_E_RANGE, "deep");
    expect_refused("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}"
                   "{% endfor %}",
                   TW_E_NOMEM, "memory");
    expect_refused("{% for a in range(100000) %}{% set x = 1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1"
                   "+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1 %}{% endfor %}",
                   TW_E_RANGE, "steps");
    expect_refused("{% set ns = namespace(x='ab') %}{% for a in range(99) %}"
                   "{% set ns.x = ns.x + ns.x %}{% endfor %}",
                   TW_E_NOMEM, "memory");
    expect_refused("{{ range(1000000) }}", TW_E_RANGE, "range of more than");
    expect_refused("{{ 9223372036854775 * 10000 }}", TW_E_RANGE, "64 bits");
    memset(deep, '(', 3000);
    memcpy(deep, "{{", 2);
    deep[3000] = 0;
    expect_refused(deep, TW_E_FORMAT, "brackets");
    memset(deep, '-', 3000);
    memcpy(deep, "{{", 2);
    expect_refused(deep, TW_E_FORMAT, "no end");
    memcpy(deep + 2990, "1 }}", 5);
    expect_refused(deep, TW_E_UNSUPPORTED, "nested");
}

/* Renders `head`, n times `link`, and `tail`. */
static void expect_long_refused(const char *head, const char *link, size_t n, const char *tail,
                                int code, const char *words) {
    size_t length = strlen(link), at = strlen(head);
    char *source = malloc(at + n * length + strlen(tail) + 1);
    assert_non_null(source);
    memcpy(source, head, at);
    for (size_t i = 0; i < n; i++, at += length) {
        memcpy(source + at, link, length);
    }
    memcpy(source + at, tail, strlen(tail) + 1);
    json_t *v = json_pack("{s:[]}", "messages");
    struct rendered r = render(source, strlen(source), v);
    if (r.code != code || !strstr(r.err.message, words)) {
        fail_msg("%s%s...: %d, %s", head, link, r.code, r.err.message);
    }
    finish(&r);
    json_decref(v);
    free(source);
}

/* Filters are applied by recursion: chains of them, and map() of map(). */
static void long_chains_of_filters_are_refused(void **state) {
    (void)state;
    expect_long_refused("{{ 'a'|map('map'", ",'map'", 20000, ") }}", TW_E_RANGE, "deep");
    expect_long_refused("{% filter e", "|e", 200000, " %}x{% endfilter %}", TW_E_UNSUPPORTED,
                        "nested");
    expect_long_refused("{% set x", "|e", 200000, " %}x{% endset %}", TW_E_UNSUPPORTED, "nested");
    expect_long_refused("{{ 'a'", "|e", 200000, " }}", TW_E_UNSUPPORTED, "nested");
    expect_long_refused("{% if 0 %}", "{% elif 0 %}", 80000, "{% elif x.y %}{% endif %}",
                        TW_E_FORMAT, "'x' is undefined");
    expect("{{ ['b']|map('upper')|map('lower')|map('map', 'upper')|map('join')|join }}", "B");
}

/* Each of them would take minutes if its cost were counted when it is done. */
static void long_operations_on_strings_are_refused_before(void **state) {
    (void)state;
    static const char head[] = "{% set ns = namespace(x='a') %}{% for i in range(21) %}"
                               "{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    static const char *const tails[] = {"{{ ns.x.strip('b' ~ ns.x)|length }}",
                                        "{{ ns.x|trim('b' ~ ns.x)|length }}",
                                        "{{ ns.x.rfind(ns.x[9:1000000] ~ 'b') }}",
                                        "{{ ns.x.rsplit(ns.x[9:1000000] ~ 'b')|length }}"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        char source[400];
        snprintf(source, sizeof source, "%s%s", head, tails[i]);
        expect_refused(source, TW_E_RANGE, "steps");
    }
    expect("{{ s.rfind('o') }} {{ s.rsplit(' ', 1)[0] }} {{ 'xax'.strip('x') }}", "4 Hello a");
}

static void objects_of_many_keys_take_little_time(void **state) {
    (void)state;
    enum { KEYS = 150000 };
    json_t *many = json_object(), *v = json_pack("{s:[], s:o}", "messages", "many", many);
    char key[16];
    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "%u", i);
        json_object_set_new(many, key, json_null());
    }
    double begin = tw_clock_s();
    struct rendered r = render("{{ many|length }}", 17, v);
    assert_true(tw_clock_s() - begin < 5.0); /* looking each of them up takes a minute */
    assert_string_equal(r.out.text, "150000");
    finish(&r);
    json_decref(v);
}

/* Values that share their parts have 2^40 of them. */
static void comparing_shared_values_ends(void **state) {
    (void)state;
    expect("{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(40) %}"
           "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
           "{{ ns.x == ns.y }}",
           "False");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_templates_give_what_jinja_gives),
        cmocka_unit_test(templates_of_hugging_face_give_their_text),
        cmocka_unit_test(templates_of_ollama_can_be_rendered),
        cmocka_unit_test(values_print_as_python_prints_them),
        cmocka_unit_test(operators_follow_python),
        cmocka_unit_test(statements_scope_as_in_jinja),
        cmocka_unit_test(white_space_is_removed_as_transformers_does),
        cmocka_unit_test(filters_do_what_they_do_in_jinja),
        cmocka_unit_test(marks_of_data_stay_through_filters),
        cmocka_unit_test(roles_count_as_text_of_the_template),
        cmocka_unit_test(built_in_templates_are_templates),
        cmocka_unit_test(what_is_not_supported_is_named_with_its_place),
        cmocka_unit_test(mistakes_in_templates_are_refused),
        cmocka_unit_test(what_python_refuses_is_refused),
        cmocka_unit_test(hostile_templates_end),
        cmocka_unit_test(long_chains_of_filters_are_refused),
        cmocka_unit_test(long_operations_on_strings_are_refused_before),
        cmocka_unit_test(objects_of_many_keys_take_little_time),
        cmocka_unit_test(comparing_shared_values_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
