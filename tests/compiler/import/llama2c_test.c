/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of llama2.c checkpoints and tokenizer files, on small ones written here in both forms.
 */
#include "compiler/import/import.h"
#include "loader/bundle/vocab_open.h"
#include "tests/support/test.h"

#include <math.h>

enum {
    DIM = 8,
    HIDDEN = 12,
    LAYERS = 2,
    HEADS = 2,
    KV = 1,
    VOCAB = 6,
    SEQ = 16,
    HEAD_DIM = 4,
    KV_DIM = 4
};

/* Floats of all parts but the output matrix and the rotary tables. */
#define BODY_FLOATS \
    (VOCAB * DIM + DIM + LAYERS * (2 * DIM + 2 * DIM * DIM + 2 * DIM * KV_DIM + 3 * DIM * HIDDEN))
#define TABLE_FLOATS (SEQ * HEAD_DIM)
#define OUTPUT_FLOATS (VOCAB * DIM)

struct file {
    uint8_t *bytes;
    size_t size;
};

/* A header followed by floats that count up from 0, so that a float's value is its index. */
static struct file checkpoint(size_t header_bytes, const int32_t *header, size_t words,
                              size_t floats) {
    struct file f = {.size = header_bytes + floats * 4};
    f.bytes = calloc(1, f.size);
    assert_non_null(f.bytes);
    memcpy(f.bytes, header, words * 4);
    for (size_t i = 0; i < floats; i++) {
        float value = (float)i;
        memcpy(f.bytes + header_bytes + i * 4, &value, 4);
    }
    return f;
}

static const int32_t legacy_header[7] = {DIM, HIDDEN, LAYERS, HEADS, KV, VOCAB, SEQ};

static struct file legacy(bool untied, bool tables) {
    int32_t header[7];
    memcpy(header, legacy_header, sizeof header);
    header[5] = untied ? -VOCAB : VOCAB;
    return checkpoint(28, header, 7,
                      BODY_FLOATS + (tables ? TABLE_FLOATS : 0u) + (untied ? OUTPUT_FLOATS : 0u));
}

static struct file version1(bool untied) {
    int32_t header[10] = {0x616b3432, 1,  DIM,   HIDDEN, LAYERS,
                          HEADS,      KV, VOCAB, SEQ,    untied ? 0 : 1};
    return checkpoint(256, header, 10, BODY_FLOATS + (untied ? OUTPUT_FLOATS : 0u));
}

struct opened {
    struct tw_import_memory memory;
    struct tw_model model;
    tw_error err;
};

static int import(struct opened *o, const struct file *f) {
    memset(o, 0, sizeof *o);
    return tw_import_llama2c("t.bin", f->bytes, f->size, &o->memory, &o->model, &o->err);
}

static void finish(struct opened *o, struct file *f) {
    tw_import_free(&o->memory);
    free(f->bytes);
}

static void expect_refused(struct file f, int code, const char *part) {
    struct opened o;
    int rc = import(&o, &f);
    if (rc != code || !strstr(o.err.message, part) || !strstr(o.err.message, "t.bin: ")) {
        fail_msg("code %d, message \"%s\", expected code %d and \"%s\"", rc, o.err.message, code,
                 part);
    }
    finish(&o, &f);
}

/* Index of a tensor's first float among all floats of the file, and its shape. */
static void expect_tensor(const struct opened *o, const char *name, uint32_t rows, uint32_t cols,
                          size_t index) {
    const struct tw_model_tensor *t = tw_model_find(&o->model, name);
    float first;
    assert_non_null(t);
    memcpy(&first, t->data, 4);
    assert_int_equal(t->rows, rows);
    assert_int_equal(t->cols, cols);
    assert_int_equal(t->bytes, rows * cols * 4);
    assert_int_equal(t->dtype, TW_DT_F32);
    if (first != (float)index) {
        fail_msg("%s starts at float %g, expected %zu", name, (double)first, index);
    }
}

/* ---- checkpoints ---- */

static void a_legacy_checkpoint_is_laid_out_in_the_order_of_run_c(void **state) {
    (void)state;
    struct file f = legacy(false, true);
    struct opened o;
    assert_int_equal(import(&o, &f), 0);
    size_t at = 0;
    expect_tensor(&o, "token_embd.weight", VOCAB, DIM, at);
    at += VOCAB * DIM;
    expect_tensor(&o, "blk.1.attn_norm.weight", 1, DIM, at + DIM);
    at += LAYERS * DIM;
    expect_tensor(&o, "blk.1.attn_q.weight", DIM, DIM, at + DIM * DIM);
    at += LAYERS * DIM * DIM;
    expect_tensor(&o, "blk.1.attn_k.weight", KV_DIM, DIM, at + KV_DIM * DIM);
    at += LAYERS * KV_DIM * DIM;
    expect_tensor(&o, "blk.0.attn_v.weight", KV_DIM, DIM, at);
    at += LAYERS * KV_DIM * DIM;
    expect_tensor(&o, "blk.0.attn_output.weight", DIM, DIM, at);
    at += LAYERS * DIM * DIM;
    expect_tensor(&o, "blk.1.ffn_norm.weight", 1, DIM, at + DIM);
    at += LAYERS * DIM;
    expect_tensor(&o, "blk.1.ffn_gate.weight", HIDDEN, DIM, at + HIDDEN * DIM);
    at += LAYERS * HIDDEN * DIM;
    expect_tensor(&o, "blk.0.ffn_down.weight", DIM, HIDDEN, at);
    at += LAYERS * HIDDEN * DIM;
    expect_tensor(&o, "blk.0.ffn_up.weight", HIDDEN, DIM, at);
    at += LAYERS * HIDDEN * DIM;
    expect_tensor(&o, "output_norm.weight", 1, DIM, at);
    assert_int_equal(at + DIM, BODY_FLOATS);
    assert_int_equal(o.model.n_tensors, 2 + 9 * LAYERS);
    assert_true(o.model.tied);
    finish(&o, &f);
}

static void hyperparameters_are_those_of_run_c(void **state) {
    (void)state;
    struct file f = legacy(false, true);
    struct opened o;
    assert_int_equal(import(&o, &f), 0);
    const struct tw_hparams *h = &o.model.h;
    assert_int_equal(h->n_vocab, VOCAB);
    assert_int_equal(h->n_ctx_train, SEQ);
    assert_int_equal(h->head_dim, HEAD_DIM);
    assert_int_equal(h->rope_dims, HEAD_DIM);
    assert_int_equal(h->rope_pairing, TW_ROPE_INTERLEAVED);
    assert_true(h->norm_eps == 1e-5f && h->rope_theta == 10000.0f);
    finish(&o, &f);
}

static void a_negative_vocabulary_means_a_separate_output(void **state) {
    (void)state;
    for (int tables = 0; tables < 2; tables++) {
        struct file f = legacy(true, tables != 0);
        struct opened o;
        assert_int_equal(import(&o, &f), 0);
        assert_false(o.model.tied);
        expect_tensor(&o, "output.weight", VOCAB, DIM, BODY_FLOATS + (tables ? TABLE_FLOATS : 0u));
        finish(&o, &f);
    }
}

static void the_rotary_tables_may_be_absent(void **state) {
    (void)state;
    struct file f = legacy(false, false);
    struct opened o;
    assert_int_equal(import(&o, &f), 0);
    expect_tensor(&o, "output_norm.weight", 1, DIM, BODY_FLOATS - DIM);
    finish(&o, &f);
}

static void version_1_starts_with_the_norms(void **state) {
    (void)state;
    for (int untied = 0; untied < 2; untied++) {
        struct file f = version1(untied != 0);
        struct opened o;
        assert_int_equal(import(&o, &f), 0);
        expect_tensor(&o, "blk.0.attn_norm.weight", 1, DIM, 0);
        expect_tensor(&o, "blk.0.ffn_norm.weight", 1, DIM, LAYERS * DIM);
        expect_tensor(&o, "output_norm.weight", 1, DIM, 2 * LAYERS * DIM);
        expect_tensor(&o, "token_embd.weight", VOCAB, DIM, (2 * LAYERS + 1) * DIM);
        expect_tensor(&o, "blk.1.ffn_up.weight", HIDDEN, DIM, BODY_FLOATS - HIDDEN * DIM);
        assert_int_equal(o.model.tied, !untied);
        if (untied) {
            expect_tensor(&o, "output.weight", VOCAB, DIM, BODY_FLOATS);
        }
        finish(&o, &f);
    }
}

static void other_versions_are_refused_by_number(void **state) {
    (void)state;
    struct file f = version1(false);
    f.bytes[4] = 2;
    expect_refused(f, TW_E_UNSUPPORTED, "version 2 (int8) is not supported");
    f = version1(false);
    f.bytes[4] = 9;
    expect_refused(f, TW_E_UNSUPPORTED, "version is 9, expected 1");
    f = version1(false);
    f.bytes[36] = 2;
    expect_refused(f, TW_E_RANGE, "shared_classifier is 2");
    f = version1(false);
    f.size = 255;
    expect_refused(f, TW_E_TRUNCATED, "255 bytes");
}

static void any_other_size_is_refused(void **state) {
    (void)state;
    struct file whole = legacy(false, true);
    for (size_t size = 0; size < whole.size; size += size < 64 ? 1 : 37) {
        struct file f = {.bytes = malloc(size ? size : 1), .size = size};
        assert_non_null(f.bytes);
        memcpy(f.bytes, whole.bytes, size);
        expect_refused(f, TW_E_TRUNCATED, "bytes");
    }
    free(whole.bytes);
    struct file f = legacy(false, true);
    f.bytes = realloc(f.bytes, f.size + 1);
    f.bytes[f.size++] = 0;
    expect_refused(f, TW_E_FORMAT, "the file has");
}

static void header_fields_are_checked_one_by_one(void **state) {
    (void)state;
    static const char *const names[] = {"dim",        "hidden_dim", "n_layers", "n_heads",
                                        "n_kv_heads", "vocab_size", "seq_len"};
    static const int32_t bad[] = {0, -1, INT32_MAX, INT32_MIN};
    for (size_t field = 0; field < 7; field++) {
        for (size_t i = 0; i < 4; i++) {
            if (field == 5 && bad[i] == -1) {
                continue; /* -1: one token, untied: the file size is wrong */
            }
            struct file f = legacy(false, true);
            memcpy(f.bytes + 4 * field, &bad[i], 4);
            expect_refused(f, TW_E_RANGE, names[field]);
        }
    }
}

static void heads_that_do_not_divide_are_refused(void **state) {
    (void)state;
    static const struct {
        size_t field;
        int32_t value;
        const char *part;
    } cases[] = {{3, 3, "field dim is 8, expected a multiple of"},
                 {4, 3, "field n_kv_heads is 3, expected a divisor"},
                 {3, 8, "the head size is 1, expected an even number"}};
    for (size_t i = 0; i < 3; i++) {
        struct file f = legacy(false, true);
        memcpy(f.bytes + 4 * cases[i].field, &cases[i].value, 4);
        expect_refused(f, TW_E_RANGE, cases[i].part);
    }
}

/* ---- tokenizer files ---- */

struct token {
    float score;
    int32_t length; /* as written, if negative or beyond the text; else the text's */
    const char *text;
};

static struct file tokenizer(int32_t max_length, const struct token *tokens, size_t count) {
    struct file f = {.bytes = malloc(4096)};
    assert_non_null(f.bytes);
    memcpy(f.bytes, &max_length, 4);
    f.size = 4;
    for (size_t i = 0; i < count; i++) {
        int32_t length = (int32_t)strlen(tokens[i].text);
        int32_t written = tokens[i].length ? tokens[i].length : length;
        memcpy(f.bytes + f.size, &tokens[i].score, 4);
        memcpy(f.bytes + f.size + 4, &written, 4);
        memcpy(f.bytes + f.size + 8, tokens[i].text, (size_t)length);
        f.size += 8 + (size_t)length;
    }
    f.bytes = realloc(f.bytes, f.size); /* exact, so that a sanitizer sees a read past the end */
    return f;
}

static const struct token good[VOCAB] = {{0, 0, "<unk>"},  {0, 0, "\n<s>\n"}, {0, 0, "\n</s>\n"},
                                         {0, 0, "<0x0A>"}, {-1, 0, " a b"},   {-2.5f, 0, "c"}};

static int import_tokenizer(struct opened *o, const struct file *f, struct tw_vocab *v) {
    memset(o, 0, sizeof *o);
    o->model.h.n_vocab = VOCAB;
    int rc = tw_import_llama2c_vocab("tok.bin", f->bytes, f->size, &o->memory, &o->model, &o->err);
    return rc ? rc : tw_vocab_open(o->model.vocab, o->model.vocab_bytes, v, &o->err);
}

static void expect_piece(const struct tw_vocab *v, uint32_t id, const char *text,
                         enum tw_token_type type) {
    assert_int_equal(v->offsets[id + 1] - v->offsets[id], strlen(text));
    assert_memory_equal(v->bytes + v->offsets[id], text, strlen(text));
    assert_int_equal(v->types[id], type);
}

static void a_tokenizer_is_converted_to_the_form_of_gguf(void **state) {
    (void)state;
    struct file f = tokenizer(7, good, VOCAB);
    struct opened o;
    struct tw_vocab v;
    assert_int_equal(import_tokenizer(&o, &f, &v), 0);
    expect_piece(&v, 0, "<unk>", TW_TOKEN_UNKNOWN);
    expect_piece(&v, 1, "<s>", TW_TOKEN_CONTROL);
    expect_piece(&v, 2, "</s>", TW_TOKEN_CONTROL);
    expect_piece(&v, 3, "<0x0A>", TW_TOKEN_BYTE);
    expect_piece(&v, 4,
                 "\xE2\x96\x81"
                 "a"
                 "\xE2\x96\x81"
                 "b",
                 TW_TOKEN_NORMAL);
    expect_piece(&v, 5, "c", TW_TOKEN_NORMAL);
    assert_true(v.scores[5] == -2.5f);
    assert_int_equal(v.header.bos, 1);
    assert_int_equal(v.header.eos, 2);
    assert_int_equal(v.header.unk, 0);
    assert_int_equal(v.header.flags,
                     TW_VOCAB_ADD_BOS | TW_VOCAB_SPACE_PREFIX | TW_VOCAB_STOP_AT_BOS);
    finish(&o, &f);
}

static void refuse_tokenizer(struct file f, int code, const char *part) {
    struct opened o;
    struct tw_vocab v;
    int rc = import_tokenizer(&o, &f, &v);
    if (rc != code || !strstr(o.err.message, part) || !strstr(o.err.message, "tok.bin: ")) {
        fail_msg("code %d, message \"%s\", expected code %d and \"%s\"", rc, o.err.message, code,
                 part);
    }
    finish(&o, &f);
}

static void bad_tokenizers_are_refused(void **state) {
    (void)state;
    struct token t[VOCAB + 1];
    memcpy(t, good, sizeof good);
    t[VOCAB] = good[5];
    refuse_tokenizer(tokenizer(7, t, VOCAB + 1), TW_E_FORMAT,
                     "9 bytes follow token 5, expected exactly 6 tokens");
    refuse_tokenizer(tokenizer(7, t, VOCAB - 1), TW_E_TRUNCATED,
                     "inside token 5, expected 6 tokens");
    refuse_tokenizer(tokenizer(0, t, VOCAB), TW_E_RANGE, "max_token_length at offset 0 is 0");
    refuse_tokenizer(tokenizer(5, t, VOCAB), TW_E_RANGE, "the length of token 2 at offset 34 is 6");
    t[4].length = -1;
    refuse_tokenizer(tokenizer(7, t, VOCAB), TW_E_RANGE,
                     "the length of token 4 at offset 62 is -1");
    t[4].length = INT32_MAX;
    refuse_tokenizer(tokenizer(INT32_MAX, t, VOCAB), TW_E_TRUNCATED,
                     "token 4 has 2147483647 bytes at offset 66");
    t[4] = good[4];
    t[5].score = NAN;
    refuse_tokenizer(tokenizer(7, t, VOCAB), TW_E_RANGE, "the score of token 5");
}

static void every_truncation_of_a_tokenizer_is_refused(void **state) {
    (void)state;
    struct file whole = tokenizer(7, good, VOCAB);
    for (size_t size = 0; size < whole.size; size++) {
        struct file f = {.bytes = malloc(size ? size : 1), .size = size};
        assert_non_null(f.bytes);
        memcpy(f.bytes, whole.bytes, size);
        refuse_tokenizer(f, TW_E_TRUNCATED, "");
    }
    free(whole.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_legacy_checkpoint_is_laid_out_in_the_order_of_run_c),
        cmocka_unit_test(hyperparameters_are_those_of_run_c),
        cmocka_unit_test(a_negative_vocabulary_means_a_separate_output),
        cmocka_unit_test(the_rotary_tables_may_be_absent),
        cmocka_unit_test(version_1_starts_with_the_norms),
        cmocka_unit_test(other_versions_are_refused_by_number),
        cmocka_unit_test(any_other_size_is_refused),
        cmocka_unit_test(header_fields_are_checked_one_by_one),
        cmocka_unit_test(heads_that_do_not_divide_are_refused),
        cmocka_unit_test(a_tokenizer_is_converted_to_the_form_of_gguf),
        cmocka_unit_test(bad_tokenizers_are_refused),
        cmocka_unit_test(every_truncation_of_a_tokenizer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
