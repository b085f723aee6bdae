/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the vocabulary blob: a valid one, and one violation of each rule that tw_vocab_open
 * checks.
 */
#include "compiler/import/vocab_build.h"
#include "loader/bundle/vocab_open.h"
#include "tests/support/test.h"

#include <math.h>

/* Three tokens, "<0x0A>" "a" "", laid out by hand as tilewright/vocab.h defines. */
struct blob {
    struct tw_vocab_header header;
    float scores[3];
    uint32_t offsets[4];
    uint8_t types[4]; /* three and a byte of padding */
    char bytes[7];
};

static struct blob good(void) {
    struct blob b = {
        .header = {.magic = TW_VOCAB_MAGIC_1,
                   .kind = TW_VOCAB_SPM_BPE,
                   .n_tokens = 3,
                   .flags = TW_VOCAB_ADD_BOS | TW_VOCAB_SPACE_PREFIX,
                   .bos = 1,
                   .eos = 2,
                   .unk = TW_NONE,
                   .pad = TW_NONE,
                   .bytes_size = 7},
        .scores = {0, -1, -2.5f},
        .offsets = {0, 6, 7, 7},
        .types = {TW_TOKEN_BYTE, TW_TOKEN_NORMAL, TW_TOKEN_CONTROL},
    };
    memcpy(b.bytes, "<0x0A>a", 7);
    return b;
}

#define BLOB_BYTES (offsetof(struct blob, bytes) + 7)

static int open_blob(const struct blob *b, size_t size, struct tw_vocab *out, tw_error *err) {
    memset(err, 0, sizeof *err);
    /* exact, so that a sanitizer sees a read past the end */
    void *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, b, size < sizeof *b ? size : sizeof *b);
    int rc = tw_vocab_open(copy, size, out, err);
    free(copy);
    return rc;
}

static void refuse(const struct blob *b, int code, const char *part) {
    struct tw_vocab v;
    tw_error err;
    assert_int_equal(open_blob(b, BLOB_BYTES, &v, &err), code);
    if (!strstr(err.message, part)) {
        fail_msg("message \"%s\" does not contain \"%s\"", err.message, part);
    }
    assert_null(v.scores);
}

static void a_good_blob_is_viewed(void **state) {
    (void)state;
    struct blob b = good();
    struct tw_vocab v;
    tw_error err = {0};
    assert_int_equal(tw_vocab_open(&b, BLOB_BYTES, &v, &err), 0);
    assert_int_equal(v.header.n_tokens, 3);
    assert_ptr_equal(v.scores, b.scores);
    assert_ptr_equal(v.offsets, b.offsets);
    assert_ptr_equal(v.types, b.types);
    assert_ptr_equal(v.bytes, b.bytes);
}

static void a_blob_of_any_other_size_is_refused(void **state) {
    (void)state;
    struct blob b = good();
    struct tw_vocab v;
    tw_error err;
    for (size_t size = 0; size < BLOB_BYTES; size++) {
        assert_int_equal(open_blob(&b, size, &v, &err), TW_E_TRUNCATED);
    }
    assert_int_equal(open_blob(&b, BLOB_BYTES + 1, &v, &err), TW_E_FORMAT);
}

static void header_words_are_checked(void **state) {
    (void)state;
    struct blob b = good();
    b.header.magic++;
    refuse(&b, TW_E_FORMAT, "magic");
    b = good();
    b.header.kind = TW_VOCAB_NONE;
    refuse(&b, TW_E_FORMAT, "kind is 0");
    b = good();
    b.header.flags |= 16;
    refuse(&b, TW_E_FORMAT, "flags");
    b = good();
    b.header.end[1] = 1;
    refuse(&b, TW_E_FORMAT, "end token 1 is 1, expected 0: only 0 are used");
    b = good();
    b.header.n_ends = 3;
    refuse(&b, TW_E_RANGE, "3 ids besides eos end a text");
    b = good();
    b.header.n_ends = 1;
    b.header.end[0] = b.header.n_tokens;
    refuse(&b, TW_E_RANGE, "end token 0 is");
    b = good();
    b.header.n_ends = 1;
    b.header.end[0] = TW_NONE;
    refuse(&b, TW_E_RANGE, "end token 0 is 4294967295");
    b = good();
    b.header.n_tokens = 0;
    refuse(&b, TW_E_RANGE, "0 tokens");
    b = good();
    b.header.n_tokens = UINT32_MAX;
    refuse(&b, TW_E_RANGE, "4294967295 tokens");
    b = good();
    b.header.n_tokens = 4;
    refuse(&b, TW_E_TRUNCATED, "4 tokens");
    b = good();
    b.header.bytes_size = UINT32_MAX;
    refuse(&b, TW_E_TRUNCATED, "4294967295 bytes");
}

static void an_unaligned_blob_is_refused(void **state) {
    (void)state;
    struct blob b = good();
    struct tw_vocab v;
    tw_error err = {0};
    _Alignas(4) char shifted[sizeof b + 1];
    memcpy(shifted + 1, &b, sizeof b);
    assert_int_equal(tw_vocab_open(shifted + 1, BLOB_BYTES, &v, &err), TW_E_FORMAT);
    assert_non_null(strstr(err.message, "aligned"));
}

static void ids_are_checked(void **state) {
    (void)state;
    static const char *const names[] = {"bos", "eos", "unk", "pad"};
    for (size_t i = 0; i < 4; i++) {
        struct blob b = good();
        uint32_t *ids[] = {&b.header.bos, &b.header.eos, &b.header.unk, &b.header.pad};
        *ids[i] = 3;
        refuse(&b, TW_E_RANGE, names[i]);
    }
    struct blob b = good();
    b.header.bos = TW_NONE;
    refuse(&b, TW_E_FORMAT, "a flag asks for the bos token");
    b = good();
    b.header.eos = TW_NONE;
    b.header.flags = TW_VOCAB_ADD_EOS;
    refuse(&b, TW_E_FORMAT, "a flag asks for the eos token");
}

static void tokens_are_checked(void **state) {
    (void)state;
    struct blob b = good();
    b.offsets[0] = 1;
    refuse(&b, TW_E_FORMAT, "pieces span 1 to 7");
    b = good();
    b.offsets[3] = 6;
    refuse(&b, TW_E_FORMAT, "pieces span 0 to 6");
    b = good();
    b.offsets[2] = 5;
    refuse(&b, TW_E_FORMAT, "token 1 spans bytes 6 to 5");
    b = good();
    b.offsets[1] = UINT32_MAX;
    refuse(&b, TW_E_FORMAT, "token 0 spans bytes 0 to 4294967295");
    b = good();
    b.scores[1] = NAN;
    refuse(&b, TW_E_RANGE, "score of token 1");
    b = good();
    b.scores[2] = -INFINITY;
    refuse(&b, TW_E_RANGE, "score of token 2");
    b = good();
    b.types[1] = 0;
    refuse(&b, TW_E_RANGE, "type of token 1 is 0");
    b = good();
    b.types[1] = 7;
    refuse(&b, TW_E_RANGE, "type of token 1 is 7");
    b = good();
    b.bytes[4] = 'G';
    refuse(&b, TW_E_FORMAT, "byte token 0 is \"<0x0G>\"");
}

/* ---- the builder ---- */

static const struct tw_vocab_sizes three = {.kind = TW_VOCAB_SPM_BPE, .n_tokens = 3, .bytes = 7};

static void the_builder_makes_a_blob_of_the_same_tokens(void **state) {
    (void)state;
    static const char *const pieces[3] = {"<0x0A>", "a", ""};
    struct blob expected = good();
    struct tw_vocab v;
    struct tw_import_memory memory = {0};
    struct tw_model model = {0};
    struct tw_vocab_builder b;
    tw_error err = {0};
    assert_int_equal(tw_vocab_begin(&b, "t", &three, &memory, &err), 0);
    for (uint32_t i = 0; i < 3; i++) {
        char *piece;
        enum tw_token_type type = (enum tw_token_type)expected.types[i];
        assert_int_equal(
            tw_vocab_put(&b, expected.scores[i], type, strlen(pieces[i]), &piece, &err), 0);
        memcpy(piece, pieces[i], strlen(pieces[i]));
    }
    b.header->flags = expected.header.flags;
    b.header->bos = 1;
    b.header->eos = 2;
    assert_int_equal(tw_vocab_finish(&b, &model, &err), 0);
    assert_int_equal(tw_vocab_open(model.vocab, model.vocab_bytes, &v, &err), 0);
    assert_int_equal(v.header.magic, TW_VOCAB_MAGIC);
    assert_int_equal(v.header.flags, expected.header.flags);
    assert_int_equal(v.header.bos, 1);
    assert_memory_equal(v.scores, expected.scores, sizeof expected.scores);
    assert_memory_equal(v.offsets, expected.offsets, sizeof expected.offsets);
    assert_memory_equal(v.types, expected.types, 3);
    assert_memory_equal(v.bytes, expected.bytes, 7);
    tw_import_free(&memory);
}

static void the_builder_refuses_more_than_its_size(void **state) {
    (void)state;
    struct tw_import_memory memory = {0};
    struct tw_vocab_builder b;
    tw_error err = {0};
    char *piece;
    const struct tw_vocab_sizes bad[] = {
        {.kind = TW_VOCAB_SPM_BPE},
        {.kind = TW_VOCAB_SPM_BPE, .n_tokens = 1u << 25},
        {.kind = TW_VOCAB_SPM_BPE, .n_tokens = 1, .bytes = UINT64_C(1) << 32},
        {.kind = TW_VOCAB_BYTE_BPE, .n_tokens = 1, .n_merges = 1u << 25},
        {.kind = TW_VOCAB_UNIGRAM, .n_tokens = 1, .charsmap_bytes = 1u << 30},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tw_vocab_begin(&b, "t", &bad[i], &memory, &err), TW_E_RANGE);
    }
    const struct tw_vocab_sizes one = {.kind = TW_VOCAB_SPM_BPE, .n_tokens = 1, .bytes = 3};
    assert_int_equal(tw_vocab_begin(&b, "t", &one, &memory, &err), 0);
    assert_int_equal(tw_vocab_put(&b, 0, TW_TOKEN_NORMAL, 4, &piece, &err), TW_E_INTERNAL);
    assert_int_equal(tw_vocab_put(&b, NAN, TW_TOKEN_NORMAL, 3, &piece, &err), TW_E_RANGE);
    assert_int_equal(tw_vocab_put(&b, 0, TW_TOKEN_NORMAL, 3, &piece, &err), 0);
    assert_int_equal(tw_vocab_put(&b, 0, TW_TOKEN_NORMAL, 0, &piece, &err), TW_E_INTERNAL);
    tw_import_free(&memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_blob_is_viewed),
        cmocka_unit_test(a_blob_of_any_other_size_is_refused),
        cmocka_unit_test(header_words_are_checked),
        cmocka_unit_test(an_unaligned_blob_is_refused),
        cmocka_unit_test(ids_are_checked),
        cmocka_unit_test(tokens_are_checked),
        cmocka_unit_test(the_builder_makes_a_blob_of_the_same_tokens),
        cmocka_unit_test(the_builder_refuses_more_than_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
