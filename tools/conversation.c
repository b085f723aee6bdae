/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations (conversation.h).
 */
#include "tools/conversation.h"

#include "loader/base/grow.h"
#include "tilewright/state.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(tw_error *err) {
    return tw_fail(err, TW_E_NOMEM, "out of memory for the conversation");
}

/* ---- beginning and end ---- */

/* Reads a template from a file; NULL in *out if `name` is that of a built-in one. */
static int read_template(const char *name, char **out, tw_error *err) {
    const char *builtin;
    *out = NULL;
    for (uint32_t i = 0; (builtin = tw_chat_builtin_name(i)); i++) {
        if (strcmp(builtin, name) == 0) {
            return 0;
        }
    }
    FILE *f = fopen(name, "rbe");
    if (!f) {
        return tw_fail(err, TW_E_USAGE,
                       "option --template: '%.200s' is neither a file nor chatml, gemma, llama2, "
                       "llama3, mistral, phi3 or zephyr",
                       name);
    }
    enum { MAX = 1 << 20 };
    char *text = calloc(1, MAX + 1);
    size_t n = text ? fread(text, 1, MAX + 1, f) : 0;
    bool failed = ferror(f);
    fclose(f);
    if (!text || failed || n > MAX || memchr(text, 0, n)) {
        free(text);
        return tw_fail(err,
                       !text    ? TW_E_NOMEM
                       : failed ? TW_E_IO
                                : TW_E_FORMAT,
                       "%.200s: not a chat template: expected a text of at most 1 MiB", name);
    }
    *out = text;
    return 0;
}

int conversation_begin(struct conversation *c, struct engine *engine,
                       const struct engine_options *engine_options,
                       const struct conversation_options *options,
                       const struct sampling_options *sampling, tw_error *err) {
    struct tw_chat_options o = {.size = sizeof o, .template_text = options->template};
    char *text = NULL;
    *c = (struct conversation){
        .engine = engine, .engine_options = engine_options, .options = options};
    c->generate.size = sizeof c->generate;
    c->messages = json_array();
    int code = c->messages ? 0 : no_memory(err);
    code = code ? code : engine_on_full(engine_options, &c->generate, err);
    code = code || !options->template ? code : read_template(options->template, &text, err);
    o.template_text = text ? text : o.template_text;
    code = code ? code : tw_chat_create(engine->source.decoder, &o, &c->chat, err);
    free(text);
    code = code ? code
                : sampling_apply(sampling, engine->source.decoder, false, &c->sampling,
                                 &c->generate, err);
    return code || !options->system ? code : conversation_set_system(c, options->system, err);
}

void conversation_finish(struct conversation *c) {
    tw_chat_destroy(c->chat);
    json_decref(c->messages);
    free(c->fed);
    free(c->answer);
    memset(c, 0, sizeof *c);
}

/* ---- messages ---- */

static json_t *make_message(const char *role, const char *text, size_t n, tw_error *err) {
    json_t *content = json_stringn(text, n);
    json_t *message = content ? json_pack("{s:s, s:o}", "role", role, "content", content) : NULL;
    if (!message) {
        tw_error_set(err, TW_E_FORMAT, "the message is not valid UTF-8");
    }
    return message;
}

static const char *role_of(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role ? role : "";
}

static bool has_system(const struct conversation *c) {
    return strcmp(role_of(json_array_get(c->messages, 0)), "system") == 0;
}

static int add(struct conversation *c, const char *role, const char *text, size_t n,
               tw_error *err) {
    json_t *message = make_message(role, text, n, err);
    if (!message) {
        return TW_E_FORMAT;
    }
    return json_array_append_new(c->messages, message) ? no_memory(err) : 0;
}

int conversation_add(struct conversation *c, const char *text, size_t n, tw_error *err) {
    return add(c, "user", text, n, err);
}

int conversation_set_system(struct conversation *c, const char *text, tw_error *err) {
    json_t *message = text ? make_message("system", text, strlen(text), err) : NULL;
    if (text && !message) {
        return TW_E_FORMAT;
    }
    if (has_system(c)) {
        json_array_remove(c->messages, 0);
    }
    return message && json_array_insert_new(c->messages, 0, message) ? no_memory(err) : 0;
}

void conversation_reset(struct conversation *c) {
    for (size_t n = json_array_size(c->messages); n > (size_t)has_system(c); n--) {
        json_array_remove(c->messages, n - 1);
    }
}

static const char *last_role(const struct conversation *c) {
    size_t n = json_array_size(c->messages);
    return n ? role_of(json_array_get(c->messages, n - 1)) : "";
}

static void drop_last(struct conversation *c) {
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

bool conversation_drop_answer(struct conversation *c) {
    size_t n = json_array_size(c->messages);
    while (n > 0 && strcmp(role_of(json_array_get(c->messages, n - 1)), "user") != 0) {
        n--;
    }
    while (n > 0 && json_array_size(c->messages) > n) {
        drop_last(c);
    }
    return n > 0;
}

/* ---- tokens ---- */

struct prompt_ids {
    uint32_t *ids;
    size_t n, room;
};

/* The tokens of all messages, with the answer begun. */
static int tokenize(const struct conversation *c, struct prompt_ids *out, tw_error *err) {
    json_t *o = json_pack("{s:O, s:b}", "messages", c->messages, "add_generation_prompt", 1);
    char *json = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    int code = json ? 0 : no_memory(err);
    size_t need = 256;
    do {
        if (!code && !tw_grow(&out->ids, &out->room, need, sizeof *out->ids)) {
            code = no_memory(err);
        }
        code = code
                   ? code
                   : tw_chat_tokenize(c->chat, json, strlen(json), out->ids, out->room, &need, err);
    } while (!code && need > out->room);
    out->n = need;
    free(json);
    return code;
}

static int check_room(const struct conversation *c, size_t n, tw_error *err) {
    uint32_t n_ctx = c->engine->session_info.n_ctx;
    return n > 0 && (n <= n_ctx || c->generate.on_full)
               ? 0
               : tw_fail(err, TW_E_CONTEXT_FULL,
                         "the messages are %zu tokens, but the context has %u: /reset begins anew; "
                         "or start with a larger context (-c), or with --on-full slide",
                         n, n_ctx);
}

/* Records tokens that the session may have soon. */
static bool record(struct conversation *c, const uint32_t *ids, size_t n) {
    if (!tw_grow(&c->fed, &c->fed_room, c->n_fed + n, sizeof *c->fed)) {
        return false;
    }
    memcpy(c->fed + c->n_fed, ids, n * sizeof *ids);
    c->n_fed += n;
    return true;
}

/* Rewinds the session to where the tokens begin to differ, and takes what the cache has of them; at
 * least the last one is left to be fed. */
static int keep_common(struct conversation *c, const struct prompt_ids *p, tw_error *err) {
    size_t same = 0;
    uint32_t reused = 0;
    while (same < c->n_fed && same + 1 < p->n && c->fed[same] == p->ids[same]) {
        same++;
    }
    c->n_fed = same;
    int code = tw_session_rewind(c->engine->session, (uint32_t)same, err);
    if (!code && p->n <= c->engine->session_info.n_ctx) {
        code =
            tw_session_reuse_prefix(c->engine->session, p->ids + same, p->n - same, &reused, err);
    }
    c->n_reused = reused;
    return code || record(c, p->ids + same, reused) ? code : no_memory(err);
}

/* Feeds all tokens but the last, in parts, so that Ctrl-C takes effect between them. */
static int feed(struct conversation *c, const struct prompt_ids *p, tw_error *err) {
    size_t part = c->engine->session_info.chunk > 16 ? c->engine->session_info.chunk : 16;
    int code = 0;
    while (!code && c->n_fed + 1 < p->n && !ui_stop) {
        size_t left = p->n - 1 - c->n_fed, n = left < part ? left : part;
        code = tw_session_feed(c->engine->session, p->ids + c->n_fed, n, err);
        if (!code && !record(c, p->ids + c->n_fed, n)) {
            code = no_memory(err);
        }
        ui_progress(NULL, "reading the messages", c->n_fed, p->n);
    }
    ui_progress_end();
    return code;
}

/* ---- answers ---- */

struct hearing {
    struct conversation *c;
    int code;
    tw_error *err;
};

static int on_token(void *ctx, uint32_t id, const float *logits) {
    struct hearing *h = ctx;
    (void)logits;
    if (!record(h->c, &id, 1)) {
        return h->code = no_memory(h->err);
    }
    return ui_stop != 0;
}

static int on_text(void *ctx, const char *text, size_t n) {
    struct hearing *h = ctx;
    struct conversation *c = h->c;
    if (!tw_grow(&c->answer, &c->answer_room, c->n_answer + n, 1)) {
        return h->code = no_memory(h->err);
    }
    memcpy(c->answer + c->n_answer, text, n);
    c->n_answer += n;
    if (c->shows) {
        text_print_generated(text, n);
        h->code = ui_flush(h->err);
    }
    return h->code;
}

static void on_prompt(void *ctx, uint32_t done, uint32_t total) {
    (void)ctx;
    ui_progress(NULL, "reading the messages", done, total);
    if (done == total) {
        ui_progress_end();
    }
}

/* Records what the session has after its context was full. */
static int record_window(struct conversation *c, tw_error *err) {
    size_t n = tw_session_tokens(c->engine->session, NULL, 0);
    c->n_fed = 0;
    if (!tw_grow(&c->fed, &c->fed_room, n, sizeof *c->fed)) {
        return no_memory(err);
    }
    c->n_fed = tw_session_tokens(c->engine->session, c->fed, n);
    return 0;
}

/* Generates after the tokens of the prompt that are left: the last one, or those that do not fit
 * the context at once. A full context ends the answer, not the chat. */
static int generate(struct conversation *c, const struct prompt_ids *p, tw_error *err) {
    struct hearing h = {.c = c, .err = err};
    size_t fed = c->n_fed;
    struct tw_generate_options g = c->generate;
    g.n_predict = c->options->n > 0 ? (uint32_t)c->options->n : 0;
    g.flags = TW_GENERATE_NO_LOGITS;
    g.history = p->ids;
    g.n_history = (uint32_t)fed;
    if (fed + 1 < p->n) {
        g.flags |= TW_GENERATE_WHOLE_STEPS;
        g.on_prompt = on_prompt;
        g.stop = &ui_stop;
    }
    g.on_token = on_token;
    g.on_text = on_text;
    g.ctx = &h;
    c->result = (struct tw_generate_result){.size = sizeof c->result};
    if (!record(c, p->ids + fed, p->n - fed)) {
        return no_memory(err);
    }
    int code = tw_generate(c->engine->session, p->ids + fed, p->n - fed, &g, &c->result, err);
    uint32_t position = tw_session_position(c->engine->session);
    c->n_fed = position < c->n_fed ? position : c->n_fed;
    if (c->result.n_windows && record_window(c, h.code ? NULL : err)) {
        return TW_E_NOMEM;
    }
    ui_progress_end();
    return h.code ? h.code : code == TW_E_CONTEXT_FULL ? 0 : code;
}

static int answer(struct conversation *c, struct prompt_ids *p, tw_error *err) {
    int code = tokenize(c, p, err);
    code = code ? code : check_room(c, p->n, err);
    code = code ? code : keep_common(c, p, err);
    code = code || p->n > c->engine->session_info.n_ctx ? code : feed(c, p, err);
    if (!code && ui_stop) {
        return tw_fail(err, TW_E_INTERRUPTED, "interrupted before the answer");
    }
    code = code ? code : generate(c, p, err);
    c->result.n_prompt = (uint32_t)p->n;
    c->result.n_reused += c->n_reused;
    if (!code) {
        engine_keep_prefix(c->engine, c->engine_options);
    }
    return code ? code : add(c, "assistant", c->answer ? c->answer : "", c->n_answer, err);
}

int conversation_answer(struct conversation *c, tw_error *err) {
    struct prompt_ids p = {.n = 0};
    c->n_answer = 0;
    int code = answer(c, &p, err);
    c->stopped = ui_stop != 0;
    if (code && strcmp(last_role(c), "user") == 0) {
        drop_last(c);
    }
    free(p.ids);
    return code;
}
