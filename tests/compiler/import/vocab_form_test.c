/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the second form of the vocabulary blob: what the builder puts there is what
 * tw_vocab_open shows, and each rule of the form is broken once. The first form:
 * import_vocab_test.c.
 */
#include "compiler/import/vocab_build.h"
#include "loader/bundle/vocab_open.h"
#include "tests/support/test.h"

struct made {
    struct tw_import_memory memory;
    struct tw_vocab_builder b;
    struct tw_model model;
};

static void put(struct made *m, const char *piece, unsigned type) {
    char *to;
    tw_error err = {0};
    assert_int_equal(tw_vocab_put(&m->b, 0, type, strlen(piece), &to, &err), 0);
    memcpy(to, piece, strlen(piece));
}

/* Tokens a, b, ab, abab, <|im_end|>; two merges. Announces more bytes than it
 * uses. */
static void begin(struct made *m) {
    static const struct tw_vocab_sizes sizes = {
        .kind = TW_VOCAB_BYTE_BPE, .n_tokens = 5, .bytes = 40, .n_merges = 2};
    tw_error err = {0};
    memset(m, 0, sizeof *m);
    assert_int_equal(tw_vocab_begin(&m->b, "t", &sizes, &m->memory, &err), 0);
    put(m, "a", TW_TOKEN_NORMAL);
    put(m, "b", TW_TOKEN_NORMAL);
    put(m, "ab", TW_TOKEN_NORMAL);
    put(m, "abab", TW_TOKEN_NORMAL);
    put(m, "<|im_end|>", TW_TOKEN_USER_DEFINED | TW_TOKEN_RSTRIP);
    m->b.merges[0] = (struct tw_vocab_merge){0, 1, 2};
    m->b.merges[1] = (struct tw_vocab_merge){2, 2, 3};
    strcpy(m->b.extra->pre, "gpt-2");
    m->b.header->flags = TW_VOCAB_IGNORE_MERGES;
}

static struct tw_vocab finish(struct made *m) {
    struct tw_vocab v;
    tw_error err = {0};
    if (tw_vocab_finish(&m->b, &m->model, &err) != 0) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(tw_vocab_open(m->model.vocab, m->model.vocab_bytes, &v, &err), 0);
    return v;
}

static void every_part_is_where_it_was_put(void **state) {
    (void)state;
    struct made m;
    tw_error err = {0};
    begin(&m);
    assert_int_equal(tw_vocab_add_known_names(&m.b, &err), 0);
    tw_vocab_add_end(&m.b, 1);
    tw_vocab_add_end(&m.b, TW_NONE);
    tw_vocab_add_end(&m.b, 1);
    struct tw_vocab v = finish(&m);
    assert_int_equal(v.header.magic, TW_VOCAB_MAGIC);
    assert_int_equal(v.header.bytes_size, 18); /* not the 40 that were announced */
    assert_null(v.scores);
    assert_int_equal(v.extra.n_merges, 2);
    assert_int_equal(v.merges[1].merged, 3);
    assert_string_equal(v.extra.pre, "gpt-2");
    assert_int_equal(v.extra.n_ends, 2);
    assert_int_equal(v.ends[0], 4);
    assert_int_equal(v.ends[1], 1);
    assert_int_equal(v.types[4], TW_TOKEN_CONTROL | TW_TOKEN_RSTRIP); /* by its name */
    assert_int_equal(v.extra.special[TW_SPECIAL_EOT], 4);
    assert_int_equal(v.extra.special[TW_SPECIAL_EOM], TW_NONE);
    tw_import_free(&m.memory);
}

static void equal_pieces_are_found_by_type_and_id(void **state) {
    (void)state;
    static const struct tw_vocab_sizes sizes = {
        .kind = TW_VOCAB_BYTE_BPE, .n_tokens = 4, .bytes = 4};
    struct made m = {0};
    tw_error err = {0};
    uint32_t id;
    assert_int_equal(tw_vocab_begin(&m.b, "t", &sizes, &m.memory, &err), 0);
    put(&m, "x", TW_TOKEN_NORMAL);
    put(&m, "x", TW_TOKEN_CONTROL);
    put(&m, "y", TW_TOKEN_CONTROL);
    put(&m, "y", TW_TOKEN_NORMAL);
    assert_int_equal(tw_vocab_find(&m.b, "x", 1, &id, &err), 0);
    assert_int_equal(id, 0);
    assert_int_equal(tw_vocab_find(&m.b, "y", 1, &id, &err), 0);
    assert_int_equal(id, 3);
    assert_int_equal(tw_vocab_find(&m.b, "z", 1, &id, &err), 0);
    assert_int_equal(id, TW_NONE);
    tw_import_free(&m.memory);
}

static void the_characters_of_byte_level_pieces_become_bytes(void **state) {
    (void)state;
    char out[64];
    assert_int_equal(tw_vocab_unmap_bytes("\xC4\xA0hi\xC4\x8A", 6, out), 4); /* U+0120, U+010A */
    assert_memory_equal(out, " hi\n", 4);
    assert_int_equal(
        tw_vocab_unmap_bytes("\xC4\x80\xC4\xA1\xC5\x82\xC5\x83\xC2\xA1\xC3\xBF", 12, out),
        6); /* U+0100, U+0121, U+0142, U+0143, U+00A1, U+00FF */
    assert_memory_equal(out, "\x00\x7F\xA0\xAD\xA1\xFF", 6);
    /* what the table does not have stays */
    assert_int_equal(tw_vocab_unmap_bytes(" \xE2\x96\x81\xC5\x84\xC2", 7, out), 7);
    assert_memory_equal(out, " \xE2\x96\x81\xC5\x84\xC2", 7);
}

/* ---- rules ---- */

static void expect_refused(struct made *m, int code, const char *part) {
    tw_error err = {0};
    struct tw_vocab v;
    assert_int_equal(tw_vocab_open(m->model.vocab, m->model.vocab_bytes, &v, &err), code);
    if (!strstr(err.message, part)) {
        fail_msg("message \"%s\" does not contain \"%s\"", err.message, part);
    }
    assert_null(v.offsets);
    tw_import_free(&m->memory);
}

#define BREAK(code, part, ...)          \
    do {                                \
        struct made m;                  \
        begin(&m);                      \
        (void)finish(&m);               \
        __VA_ARGS__;                    \
        expect_refused(&m, code, part); \
    } while (0)

static void header_words_of_the_second_form_are_checked(void **state) {
    (void)state;
    BREAK(TW_E_FORMAT, "kind is 5", m.b.header->kind = 5);
    BREAK(TW_E_FORMAT, "flags are 0x400", m.b.header->flags = 1024);
    BREAK(TW_E_FORMAT, "reserved", m.b.header->n_ends = 1);
    BREAK(TW_E_FORMAT, "reserved", m.b.header->end[0] = 1);
    BREAK(TW_E_FORMAT, "reserved", m.b.extra->reserved[1] = 1);
    BREAK(TW_E_FORMAT, "reserved", m.b.extra->special[TW_SPECIALS - 1] = 0);
    BREAK(TW_E_RANGE, "the FIM middle token is 5", m.b.extra->special[TW_SPECIAL_FIM_MIDDLE] = 5);
    BREAK(TW_E_FORMAT, "5 scores, expected 0", m.b.extra->n_scores = 5);
    BREAK(TW_E_FORMAT, "0 scores, expected 5", m.b.header->kind = TW_VOCAB_UNIGRAM;
          memset(m.b.extra->pre, 0, TW_PRE_NAME_BYTES));
    BREAK(TW_E_FORMAT, "pre-tokenizer is \"\"", m.b.extra->pre[0] = 0);
    BREAK(TW_E_FORMAT, "pre-tokenizer", memset(m.b.extra->pre, 'x', TW_PRE_NAME_BYTES));
    BREAK(TW_E_FORMAT, "none for this kind", m.b.header->kind = TW_VOCAB_MERGE_BPE);
    BREAK(TW_E_RANGE, "4294967295 merges", m.b.extra->n_merges = UINT32_MAX);
    BREAK(TW_E_RANGE, "4 bytes of normalisations", m.b.extra->charsmap_bytes = 4);
    BREAK(TW_E_RANGE, "65 ids besides eos", m.b.extra->n_ends = 65);
    BREAK(TW_E_TRUNCATED, "need", m.b.extra->n_ends = 1);
}

static void content_of_the_second_form_is_checked(void **state) {
    (void)state;
    BREAK(TW_E_RANGE, "merge 0 joins tokens 5 and 1", m.b.merges[0].left = 5);
    BREAK(TW_E_RANGE, "merge 1", m.b.merges[1].merged = UINT32_MAX);
    BREAK(TW_E_FORMAT, "merge 0 joins tokens 1 and 0 to 2, which is not spelled",
          m.b.merges[0] = (struct tw_vocab_merge){1, 0, 2});
    BREAK(TW_E_FORMAT, "merge 1", m.b.merges[1].merged = 2);
    BREAK(TW_E_RANGE, "type of token 0 is 65", m.b.types[0] |= 64);
}

static void a_blob_of_the_second_form_has_one_size(void **state) {
    (void)state;
    struct made m;
    begin(&m);
    tw_vocab_add_end(&m.b, 1);
    (void)finish(&m);
    for (size_t size = 0; size <= m.model.vocab_bytes; size++) {
        struct tw_vocab v;
        tw_error err = {0};
        void *copy = malloc(size + 1); /* exact, so that a sanitizer sees a read past the end */
        assert_non_null(copy);
        memcpy(copy, m.model.vocab, size);
        assert_int_equal(tw_vocab_open(copy, size, &v, &err),
                         size < m.model.vocab_bytes ? TW_E_TRUNCATED : 0);
        free(copy);
    }
    tw_import_free(&m.memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_where_it_was_put),
        cmocka_unit_test(equal_pieces_are_found_by_type_and_id),
        cmocka_unit_test(the_characters_of_byte_level_pieces_become_bytes),
        cmocka_unit_test(header_words_of_the_second_form_are_checked),
        cmocka_unit_test(content_of_the_second_form_is_checked),
        cmocka_unit_test(a_blob_of_the_second_form_has_one_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
