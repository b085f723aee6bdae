/* SPDX-License-Identifier: Apache-2.0
 *
 * Chats of the public API: a template with the tokenizer of a decoder.
 */
#include "driver/chat/builtin.h"
#include "driver/chat/jinja.h"
#include "driver/decoder/decoder.h"
#include "driver/tokenizer/encode_parts.h"

#include "loader/base/sized.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define JSON_BYTES_MAX (16u << 20)

struct tw_chat {
    struct tw_decoder *decoder; /* retained */
    struct tw_jinja *jinja;
    char *bos, *eos;             /* their pieces; "" without */
    struct tw_reserved reserved; /* marks in the template's source, which users cannot write */
    int64_t now;
};

const char *tw_chat_builtin_name(uint32_t index) {
    return index < tw_chat_n_builtins ? tw_chat_builtins[index].name : NULL;
}

static const char *find_builtin(const char *name) {
    for (size_t i = 0; i < tw_chat_n_builtins; i++) {
        if (strcmp(tw_chat_builtins[i].name, name) == 0) {
            return tw_chat_builtins[i].text;
        }
    }
    return NULL;
}

/* ---- creation ---- */

static int no_template(const tw_decoder *decoder, tw_error *err) {
    return tw_fail(err, TW_E_UNSUPPORTED,
                   "%s: the model has no chat template; name one with --template (chatml, gemma, "
                   "llama2, llama3, mistral, phi3, zephyr, or a file), or use run for a model that "
                   "is not made for chats",
                   decoder->bundle.path);
}

static int choose_text(const tw_decoder *decoder, const struct tw_chat_options *o, const char **out,
                       tw_error *err) {
    const char *builtin = o->template_text ? find_builtin(o->template_text) : NULL;
    *out = builtin ? builtin : o->template_text ? o->template_text : decoder->bundle.chat;
    if (!*out) {
        return no_template(decoder, err);
    }
    if (o->template_text && !builtin && !strchr(*out, '{')) {
        return tw_fail(err, TW_E_USAGE,
                       "chat template \"%.60s\": neither a built-in name (chatml, gemma, llama2, "
                       "llama3, mistral, phi3, zephyr) nor a template",
                       *out);
    }
    return 0;
}

/* Returns a copy of a token's piece, "" if there is no such token; NULL: no memory. */
static char *copy_piece(const struct tw_tokenizer *tokenizer, uint32_t id) {
    const char *bytes = "";
    size_t n = 0;
    if (id == TW_NONE || tw_tokenizer_piece(tokenizer, id, TW_PIECE_SPECIAL, &bytes, &n, NULL)) {
        n = 0;
    }
    char *copy = calloc(1, n + 1);
    if (copy && n) {
        memcpy(copy, bytes, n);
    }
    return copy;
}

static int fill(tw_chat *chat, const tw_decoder *decoder, const char *text, tw_error *err) {
    const struct tw_vocab_header *h = &decoder->vocab.header;
    chat->bos = copy_piece(decoder->tokenizer, h->bos);
    chat->eos = copy_piece(decoder->tokenizer, h->eos);
    if (!chat->bos || !chat->eos) {
        return tw_fail(err, TW_E_NOMEM, "chat: out of memory");
    }
    chat->decoder = tw_decoder_retain(decoder);
    int code = tw_jinja_create(text, strlen(text), &chat->jinja, err);
    return code ? code
                : tw_reserved_add(&chat->reserved, decoder->tokenizer, text, strlen(text), err);
}

int tw_chat_create(const tw_decoder *decoder, const struct tw_chat_options *options, tw_chat **out,
                   tw_error *err) {
    struct tw_chat_options o;
    const char *text = NULL;
    int code = TW_NEED_2(err, decoder, out);
    code = code ? code : tw_sized_read(__func__, &o, sizeof o, options, err);
    if (!code && !decoder->tokenizer) {
        code = tw_fail(err, TW_E_UNSUPPORTED, "%s: it has no tokenizer, so it cannot chat",
                       decoder->bundle.path);
    }
    code = code ? code : choose_text(decoder, &o, &text, err);
    if (code) {
        return code;
    }
    tw_chat *chat = calloc(1, sizeof *chat);
    if (!chat) {
        return tw_fail(err, TW_E_NOMEM, "chat: out of memory");
    }
    chat->now = o.now;
    code = fill(chat, decoder, text, err);
    if (code) {
        tw_chat_destroy(chat);
        return code;
    }
    *out = chat;
    return 0;
}

void tw_chat_destroy(tw_chat *chat) {
    if (chat) {
        tw_jinja_destroy(chat->jinja);
        tw_reserved_finish(&chat->reserved);
        tw_decoder_close(chat->decoder);
        free(chat->bos);
        free(chat->eos);
        free(chat);
    }
}

/* ---- rendering ---- */

static int parse_json(const char *text, size_t n, json_t **out, tw_error *err) {
    json_error_t at;
    if (n > JSON_BYTES_MAX) {
        return tw_fail(err, TW_E_RANGE, "chat: %zu bytes of JSON, expected at most %u", n,
                       JSON_BYTES_MAX);
    }
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &at);
    if (!*out) {
        return tw_fail(err, TW_E_FORMAT, "chat: JSON, line %d, column %d: %s", at.line, at.column,
                       at.text);
    }
    if (!json_is_object(*out) || !json_is_array(json_object_get(*out, "messages"))) {
        json_decref(*out);
        *out = NULL;
        return tw_fail(err, TW_E_FORMAT, "chat: expected a JSON object with an array \"messages\"");
    }
    return 0;
}

static int render(const tw_chat *chat, const char *text, size_t n, struct tw_jinja_output *out,
                  tw_error *err) {
    const struct tw_jinja_constant constants[] = {{"bos_token", chat->bos},
                                                  {"eos_token", chat->eos}};
    json_t *json = NULL;
    int code = parse_json(text, n, &json, err);
    struct tw_jinja_input input = {.variables = json,
                                   .constants = constants,
                                   .n_constants = 2,
                                   .now = chat->now ? (time_t)chat->now : time(NULL)};
    code = code ? code : tw_jinja_render(chat->jinja, &input, out, err);
    json_decref(json);
    return code;
}

int tw_chat_render(const tw_chat *chat, const char *json, size_t n, char *text, size_t capacity,
                   size_t *length, tw_error *err) {
    struct tw_jinja_output out = {0};
    int code = TW_NEED_3(err, chat, json, length);
    code = code || capacity == 0 ? code : TW_NEED(err, text);
    code = code ? code : render(chat, json, n, &out, err);
    if (!code) {
        size_t fit = out.n < capacity ? out.n : capacity;
        *length = out.n;
        if (fit) {
            memcpy(text, out.text, fit);
        }
    }
    tw_jinja_output_finish(&out);
    return code;
}

/* The ids of the parts, in whose literal ones there are no marks that the template wrote. */
static int encode_parts(const tw_chat *chat, const struct tw_text_part *parts, size_t n,
                        struct tw_token_list *list, tw_error *err) {
    const struct tw_tokenizer *tokenizer = chat->decoder->tokenizer;
    struct tw_reserved reserved;
    int code = tw_reserved_copy(&chat->reserved, tokenizer, &reserved, err);
    for (size_t i = 0; i < n && !code; i++) {
        code = parts[i].special
                   ? tw_reserved_add(&reserved, tokenizer, parts[i].text, parts[i].n, err)
                   : 0;
    }
    code = code ? code : tw_tokenizer_encode_parts(tokenizer, parts, n, &reserved, list, err);
    tw_reserved_finish(&reserved);
    return code;
}

/* Whether the template begins with BOS; what users wrote may complete no token of it. */
static bool begins_with_bos(const tw_chat *chat, const struct tw_jinja_output *out) {
    size_t n = strlen(chat->bos);
    return n && out->n_parts && !out->parts[0].data && out->parts[0].n >= n &&
           memcmp(out->parts[0].text, chat->bos, n) == 0;
}

/* The ids of the parts, with exactly one BOS if the vocabulary wants one. */
static int encode(const tw_chat *chat, const struct tw_jinja_output *out,
                  struct tw_token_list *list, tw_error *err) {
    const struct tw_vocab_header *h = &chat->decoder->vocab.header;
    struct tw_text_part *parts = calloc(out->n_parts + 1, sizeof *parts);
    if (!parts) {
        return tw_fail(err, TW_E_NOMEM, "chat: out of memory");
    }
    for (size_t i = 0; i < out->n_parts; i++) {
        const struct tw_jinja_part *p = &out->parts[i];
        parts[i] = (struct tw_text_part){p->text, p->n, !p->data};
    }
    bool add = h->bos != TW_NONE && h->flags & TW_VOCAB_ADD_BOS && !begins_with_bos(chat, out);
    int code = add ? tw_tokenizer_encode(chat->decoder->tokenizer, "", 0,
                                         TW_ENCODE_BOS | TW_ENCODE_NO_EOS, list, err)
                   : 0;
    code = code ? code : encode_parts(chat, parts, out->n_parts, list, err);
    free(parts);
    return code;
}

int tw_chat_tokenize(const tw_chat *chat, const char *json, size_t n, uint32_t *ids,
                     size_t capacity, size_t *count, tw_error *err) {
    struct tw_jinja_output out = {0};
    struct tw_token_list list = {0};
    int code = TW_NEED_3(err, chat, json, count);
    code = code || capacity == 0 ? code : TW_NEED(err, ids);
    code = code ? code : render(chat, json, n, &out, err);
    code = code ? code : encode(chat, &out, &list, err);
    if (!code) {
        size_t fit = list.n < capacity ? list.n : capacity;
        *count = list.n;
        if (fit) {
            memcpy(ids, list.ids, fit * sizeof *ids);
        }
    }
    tw_token_list_finish(&list);
    tw_jinja_output_finish(&out);
    return code;
}
