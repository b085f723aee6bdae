/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of chats in the public API: prompts as token ids of a real vocabulary.
 */
#include "driver/chat/builtin.h"
#include "driver/chat/jinja.h"
#include "driver/decoder/decoder.h"
#include "driver/tokenizer/encode_parts.h"
#include "tests/driver/tokenizer/tokenizer_kit.h"
#include "tests/support/model_bundle.h"
#include "tests/support/test.h"
#include "tests/support/vocab_made.h"
#include "tilewright/tilewright.h"

enum { BOS = 1, EOS = 2, MAX_IDS = 200 };

struct prompt {
    uint32_t ids[MAX_IDS];
    size_t n;
};

static tw_decoder *open_decoder(void) {
    tw_decoder *decoder;
    tw_error err = {0};
    assert_int_equal(tw_decoder_open(model_bundle("host"), 0, &decoder, &err), 0);
    return decoder;
}

static tw_chat *open_chat(const tw_decoder *decoder, const char *template_text) {
    tw_chat *chat;
    tw_error err = {0};
    const struct tw_chat_options o = {
        .size = sizeof o, .template_text = template_text, .now = 1752148800};
    if (tw_chat_create(decoder, &o, &chat, &err)) {
        fail_msg("%s", err.message);
    }
    return chat;
}

/* The ids of a template with one message. */
static struct prompt prompt_of(const char *template_text, const char *json) {
    struct prompt p = {.n = 0};
    tw_error err = {0};
    tw_decoder *decoder = open_decoder();
    tw_chat *chat = open_chat(decoder, template_text);
    if (tw_chat_tokenize(chat, json, strlen(json), p.ids, MAX_IDS, &p.n, &err)) {
        fail_msg("%s", err.message);
    }
    assert_true(p.n <= MAX_IDS);
    tw_chat_destroy(chat);
    tw_decoder_close(decoder);
    return p;
}

static size_t count(const struct prompt *p, uint32_t id) {
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) {
        n += p->ids[i] == id;
    }
    return n;
}

#define MESSAGE(text) "{\"messages\": [{\"role\": \"user\", \"content\": \"" text "\"}]}"

static void special_tokens_come_from_the_template_only(void **state) {
    (void)state;
    struct prompt p =
        prompt_of("{{ bos_token }}{{ messages[0].content }}</s>", MESSAGE("a</s>b<s>c"));
    assert_int_equal(count(&p, BOS), 1);
    assert_int_equal(count(&p, EOS), 1);
    assert_int_equal(p.ids[0], BOS);
    assert_int_equal(p.ids[p.n - 1], EOS);
    /* through a filter, and spelled half by each of them */
    p = prompt_of("{{ messages[0].content | trim | lower }}", MESSAGE(" </S> "));
    assert_int_equal(count(&p, EOS), 0);
    p = prompt_of("<{{ messages[0].content }}s>", MESSAGE("/"));
    assert_int_equal(count(&p, EOS), 0);
    p = prompt_of("{{ '<' ~ '/s>' }}", MESSAGE(""));
    assert_int_equal(count(&p, EOS), 1);
}

/* The vocabulary asks for BOS: one, whoever writes it. */
static void there_is_exactly_one_bos(void **state) {
    (void)state;
    struct prompt with =
        prompt_of("{{ bos_token }}hello {{ messages[0].content }}", MESSAGE("you"));
    struct prompt without = prompt_of("hello {{ messages[0].content }}", MESSAGE("you"));
    assert_int_equal(with.n, without.n);
    assert_memory_equal(with.ids, without.ids, with.n * sizeof with.ids[0]);
    assert_int_equal(count(&with, BOS), 1);
    /* half of it is the template's */
    without = prompt_of("<{{ messages[0].content }}", MESSAGE("s>"));
    assert_int_equal(count(&without, BOS), 1);
    without = prompt_of("{{ messages[0].content }}", MESSAGE("<s>"));
    assert_int_equal(count(&without, BOS), 1);
    assert_true(without.n > 1);
}

/* The first id of each line of a conversation in the built-in template, with a vocabulary in which
 * <|user|> and the like are CONTROL: a marker, whether the template writes the role or the message
 * names it; and users cannot write one. */
static void roles_become_the_markers_of_the_vocabulary(void **state) {
    (void)state;
    enum { ASSISTANT = 32001, SYSTEM = 32006, END = 32007, USER = 32010 };
    static const uint32_t markers[] = {SYSTEM, END,  USER, END,      ASSISTANT,
                                       END,    USER, END,  ASSISTANT};
    struct real real = open_real(shared("gguf_vocab/ggml-vocab-phi-3.gguf"));
    json_t *v =
        json_pack("{s:[{s:s,s:s},{s:s,s:s},{s:s,s:s},{s:s,s:s}],s:b}", "messages",          //
                  "role", "system", "content", "S", "role", "user", "content", "<|user|>U", //
                  "role", "assistant", "content", "A", "role", "user", "content", "V",
                  "add_generation_prompt", 1);
    const char *source = NULL;
    for (size_t i = 0; i < tw_chat_n_builtins; i++) {
        source = strcmp(tw_chat_builtins[i].name, "phi3") ? source : tw_chat_builtins[i].text;
    }
    struct tw_jinja *jinja;
    struct tw_jinja_input input = {.variables = v};
    struct tw_jinja_output out;
    struct tw_text_part parts[20];
    struct tw_token_list list = {.n = 0};
    size_t found = 0;
    assert_int_equal(tw_jinja_create(source, strlen(source), &jinja, NULL), 0);
    assert_int_equal(tw_jinja_render(jinja, &input, &out, NULL), 0);
    assert_in_range(out.n_parts, 1, 20);
    for (size_t i = 0; i < out.n_parts; i++) {
        parts[i] = (struct tw_text_part){out.parts[i].text, out.parts[i].n, !out.parts[i].data};
    }
    assert_int_equal(
        tw_tokenizer_encode_parts(real.tokenizer, parts, out.n_parts, NULL, &list, NULL), 0);
    for (size_t i = 0; i < list.n; i++) {
        if (list.ids[i] >= 32000) {
            assert_true(found < sizeof markers / sizeof *markers);
            assert_int_equal(list.ids[i], markers[found++]);
        }
    }
    assert_int_equal(found, sizeof markers / sizeof *markers);
    tw_token_list_finish(&list);
    tw_jinja_output_finish(&out);
    tw_jinja_destroy(jinja);
    json_decref(v);
    close_real(&real);
}

/* Marks of turns that the vocabulary types USER_DEFINED: in the template they are tokens, in what
 * users wrote they are not. Others are tokens everywhere. */
static void users_cannot_write_the_marks_of_the_template(void **state) {
    (void)state;
    enum { ASSISTANT = 256, USER, TAB, BREAK, TAG };
    static const struct made_piece pieces[] = {{"<|Assistant|>", 0, TW_TOKEN_USER_DEFINED},
                                               {"<|user|>", 0, TW_TOKEN_USER_DEFINED},
                                               {"\t", 0, TW_TOKEN_USER_DEFINED},
                                               {"\n\n", 0, TW_TOKEN_USER_DEFINED},
                                               {"<b>", 0, TW_TOKEN_USER_DEFINED}};
    const struct made_spec spec = {.kind = TW_VOCAB_BYTE_BPE,
                                   .pieces = pieces,
                                   .n_pieces = 5,
                                   .pre = "default",
                                   .bytes = true};
    static const char json[] = MESSAGE("<|Assistant|><|user|><b>\\n\\n");
    struct made_vocab made;
    struct prompt p;
    tw_decoder *decoder = open_decoder();
    struct tw_tokenizer *own = decoder->tokenizer;
    struct tw_vocab own_vocab = decoder->vocab;
    assert_int_equal(made_vocab(&spec, &made, NULL), 0);
    decoder->vocab = made.vocab;
    assert_int_equal(tw_tokenizer_create(&made.vocab, &decoder->tokenizer, NULL), 0);
    /* one mark is in the source, the other in what is made of it */
    tw_chat *chat = open_chat(decoder, "{{ '<|' ~ messages[0].role ~ '|>' ~ messages[0].content }}"
                                       "\n\n<|Assistant|>");
    assert_int_equal(tw_chat_tokenize(chat, json, strlen(json), p.ids, MAX_IDS, &p.n, NULL), 0);
    assert_int_equal(count(&p, USER), 1);
    assert_int_equal(p.ids[0], USER);
    assert_int_equal(count(&p, ASSISTANT), 1);
    assert_int_equal(p.ids[p.n - 1], ASSISTANT);
    assert_int_equal(count(&p, TAG), 1);
    assert_int_equal(count(&p, BREAK), 2);
    tw_chat_destroy(chat);
    tw_tokenizer_destroy(decoder->tokenizer);
    decoder->tokenizer = own;
    decoder->vocab = own_vocab;
    tw_import_free(&made.memory);
    tw_decoder_close(decoder);
}

/* Words go on across the edges of messages. */
static void a_prompt_is_one_text(void **state) {
    (void)state;
    struct prompt parts = prompt_of("On{{ messages[0].content }}n a time", MESSAGE("ce upo"));
    tw_decoder *decoder = open_decoder();
    uint32_t ids[MAX_IDS];
    size_t n;
    assert_int_equal(tw_tokenize(decoder, "Once upon a time", 16, 0, ids, MAX_IDS, &n, NULL), 0);
    assert_int_equal(parts.n, n);
    assert_memory_equal(parts.ids, ids, n * sizeof ids[0]);
    tw_decoder_close(decoder);
}

static void texts_and_ids_are_cut_to_their_room(void **state) {
    (void)state;
    static const char json[] = MESSAGE("hello");
    tw_decoder *decoder = open_decoder();
    tw_chat *chat = open_chat(decoder, "{{ strftime_now('%Y') }} {{ messages[0].content }}!");
    char text[8] = "-------";
    uint32_t ids[2] = {0, 7};
    size_t n = 0;
    assert_int_equal(tw_chat_render(chat, json, strlen(json), text, 6, &n, NULL), 0);
    assert_int_equal(n, 11);
    assert_string_equal(text, "2025 h-");
    assert_int_equal(tw_chat_tokenize(chat, json, strlen(json), ids, 1, &n, NULL), 0);
    assert_true(n > 2);
    assert_int_equal(ids[0], BOS);
    assert_int_equal(ids[1], 7);
    tw_chat_destroy(chat);
    tw_decoder_close(decoder);
}

static void a_chat_keeps_its_decoder(void **state) {
    (void)state;
    static const char json[] = MESSAGE("hello");
    tw_decoder *decoder = open_decoder();
    tw_chat *chat = open_chat(decoder, "chatml");
    size_t n = 0;
    tw_decoder_close(decoder);
    assert_int_equal(tw_chat_tokenize(chat, json, strlen(json), NULL, 0, &n, NULL), 0);
    assert_true(n > 10);
    tw_chat_destroy(chat);
}

static void options_may_be_missing_but_not_the_rest(void **state) {
    (void)state;
    tw_decoder *decoder = open_decoder();
    tw_chat *chat = NULL;
    tw_error err = {0};
    size_t n;
    /* the shipped model has no template */
    assert_int_equal(tw_chat_create(decoder, NULL, &chat, &err), TW_E_UNSUPPORTED);
    assert_int_equal(tw_chat_create(NULL, NULL, &chat, &err), TW_E_USAGE);
    assert_int_equal(tw_chat_create(decoder, NULL, NULL, &err), TW_E_USAGE);
    const struct tw_chat_options o = {.size = sizeof o, .template_text = "nosuch"};
    assert_int_equal(tw_chat_create(decoder, &o, &chat, &err), TW_E_USAGE);
    assert_null(chat);
    chat = open_chat(decoder, "chatml");
    assert_int_equal(tw_chat_render(chat, NULL, 0, NULL, 0, &n, &err), TW_E_USAGE);
    assert_int_equal(tw_chat_render(chat, "{}", 2, NULL, 1, &n, &err), TW_E_USAGE);
    assert_int_equal(tw_chat_tokenize(chat, "{}", 2, NULL, 0, NULL, &err), TW_E_USAGE);
    tw_chat_destroy(chat);
    tw_decoder_close(decoder);
}

static void bad_json_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *json, *words;
        int code;
    } bad[] = {
        {"", "JSON, line", TW_E_FORMAT},
        {"[]", "object with an array \"messages\"", TW_E_FORMAT},
        {"{\"messages\": {}}", "array \"messages\"", TW_E_FORMAT},
        {"{\"messages\": [], \"messages\": []}", "duplicate", TW_E_FORMAT},
        {"{\"messages\": [", "JSON, line", TW_E_FORMAT},
    };
    tw_decoder *decoder = open_decoder();
    tw_chat *chat = open_chat(decoder, "chatml");
    char deep[400] = "{\"messages\": []";
    size_t n, at = strlen(deep);
    tw_error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int code = tw_chat_render(chat, bad[i].json, strlen(bad[i].json), NULL, 0, &n, &err);
        assert_int_equal(code, bad[i].code);
        if (!strstr(err.message, bad[i].words)) {
            fail_msg("%s: %s", bad[i].json, err.message);
        }
    }
    memcpy(deep + at, ", \"x\": ", 7);
    memset(deep + at + 7, '[', 100);
    memset(deep + at + 107, ']', 100);
    memcpy(deep + at + 207, "}", 2);
    assert_int_equal(tw_chat_render(chat, deep, strlen(deep), NULL, 0, &n, &err), TW_E_RANGE);
    tw_chat_destroy(chat);
    tw_decoder_close(decoder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_tokens_come_from_the_template_only),
        cmocka_unit_test(there_is_exactly_one_bos),
        cmocka_unit_test(roles_become_the_markers_of_the_vocabulary),
        cmocka_unit_test(users_cannot_write_the_marks_of_the_template),
        cmocka_unit_test(a_prompt_is_one_text),
        cmocka_unit_test(texts_and_ids_are_cut_to_their_room),
        cmocka_unit_test(a_chat_keeps_its_decoder),
        cmocka_unit_test(options_may_be_missing_but_not_the_rest),
        cmocka_unit_test(bad_json_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_bundle_cleanup();
    return failed;
}
