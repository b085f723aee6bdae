/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the GGUF container reader: files written by import_kit.h with one thing wrong or
 * unusual.
 */
#include "compiler/import/gguf.h"

#include "tests/compiler/import_kit.h"
#include "tests/support/test.h"

struct opened {
    struct tw_import_memory memory;
    struct tw_gguf gguf;
    uint8_t *copy; /* exact size, so that a sanitizer sees a read past the end */
    tw_error err;
};

static int parse_bytes(struct opened *o, const uint8_t *bytes, size_t size) {
    memset(o, 0, sizeof *o);
    o->copy = malloc(size ? size : 1);
    assert_non_null(o->copy);
    memcpy(o->copy, bytes, size);
    return tw_gguf_parse("t.gguf", o->copy, size, &o->memory, &o->gguf, &o->err);
}

static int parse(struct opened *o, struct kit *k) {
    kit_write(k);
    return parse_bytes(o, k->file, k->size);
}

static void finish(struct opened *o, struct kit *k) {
    tw_import_free(&o->memory);
    free(o->copy);
    if (k) {
        kit_free(k);
    }
}

static void expect_accepted(struct kit *k) {
    struct opened o;
    int rc = parse(&o, k);
    if (rc) {
        fail_msg("refused: %s", o.err.message);
    }
    finish(&o, k);
}

/* Checks a refusal: the code, and one line that names the file and contains `part`. */
static void check_refusal(const struct opened *o, int rc, int code, const char *part) {
    assert_int_equal(rc, code);
    assert_int_equal(o->err.code, code);
    if (!strstr(o->err.message, part) || !strstr(o->err.message, "t.gguf: ") ||
        strchr(o->err.message, '\n')) {
        fail_msg("message \"%s\" does not contain the file or \"%s\"", o->err.message, part);
    }
}

static void expect_refused(struct kit *k, int code, const char *part) {
    struct opened o;
    int rc = parse(&o, k);
    check_refusal(&o, rc, code, part);
    finish(&o, k);
}

/* ---- what is read ---- */

static void every_scalar_type_is_read(void **state) {
    (void)state;
    struct kit k = {.version = 3, .alignment = 32};
    struct opened o;
    uint64_t value = 0;
    float number = 0;
    bool flag = false;
    double f64 = 0.25;
    static const uint32_t types[] = {0, 1, 2, 3, 4, 5, 10, 11};
    for (size_t i = 0; i < 8; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%u", types[i]);
        kit_int(&k, key, types[i], 100 + (int64_t)i);
    }
    kit_f32(&k, "f32", 1.5f);
    kit_raw(&k, "f64", 12, &f64, 8);
    kit_bool(&k, "bool", 1);
    assert_int_equal(parse(&o, &k), 0);
    for (size_t i = 0; i < 8; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%u", types[i]);
        assert_int_equal(tw_gguf_uint(&o.gguf, key, true, 0, 200, &value, &o.err), 0);
        assert_int_equal(value, 100 + i);
    }
    assert_int_equal(tw_gguf_float(&o.gguf, "f32", true, &number, &o.err), 0);
    assert_true(number == 1.5f);
    assert_int_equal(tw_gguf_float(&o.gguf, "f64", true, &number, &o.err), 0);
    assert_true(number == 0.25f);
    assert_int_equal(tw_gguf_bool(&o.gguf, "bool", &flag, &o.err), 0);
    assert_true(flag);
    finish(&o, &k);
}

static void strings_and_arrays_are_viewed_in_place(void **state) {
    (void)state;
    struct kit k = {.version = 2, .alignment = 32};
    struct opened o;
    const char *text = NULL;
    uint64_t length = 0;
    const struct tw_gguf_kv *array = NULL;
    static const char *const words[] = {"", "one", "three"};
    kit_string(&k, "s", "hello");
    kit_strings(&k, "words", words, 3);
    assert_int_equal(parse(&o, &k), 0);
    assert_int_equal(o.gguf.version, 2);
    assert_int_equal(tw_gguf_string(&o.gguf, "s", true, &text, &length, &o.err), 0);
    assert_int_equal(length, 5);
    assert_memory_equal(text, "hello", 5);
    assert_int_equal(tw_gguf_array(&o.gguf, "words", true, TW_GGUF_STRING, &array, &o.err), 0);
    assert_int_equal(array->count, 3);
    const uint8_t *cursor = array->value, *piece;
    for (size_t i = 0; i < 3; i++) {
        tw_gguf_next_string(&cursor, &piece, &length);
        assert_int_equal(length, strlen(words[i]));
        assert_memory_equal(piece, words[i], length);
    }
    finish(&o, &k);
}

static void nested_arrays_are_skipped_to_depth_four(void **state) {
    (void)state;
    for (unsigned depth = 1; depth <= 6; depth++) {
        struct kit k = {.version = 3, .alignment = 32}, inner = {0};
        /* arrays of one array each, the last of three bytes */
        for (unsigned i = 1; i < depth; i++) {
            kit_put_int(&inner, i + 1 < depth ? 9 : 0, 4);
            kit_put_int(&inner, i + 1 < depth ? 1 : 3, 8);
        }
        kit_put(&inner, "abc", 3);
        kit_array(&k, "nested", depth > 1 ? 9 : 0, depth > 1 ? 1 : 3, inner.file, inner.size);
        kit_string(&k, "next", "still found");
        if (depth <= 4) {
            expect_accepted(&k);
        } else {
            expect_refused(&k, TW_E_UNSUPPORTED, "key nested nests arrays deeper than 4");
        }
        kit_free(&inner);
    }
}

static void tensors_are_found_by_name_with_their_bytes(void **state) {
    (void)state;
    struct kit k;
    struct opened o;
    static const float values[4] = {1, 2, 3, 4};
    kit_llama(&k);
    kit_tensor(&k, "aaa", 0, 2, 2);
    k.tensors[k.n_tensors - 1].data = values;
    assert_int_equal(parse(&o, &k), 0);
    assert_int_equal(o.gguf.n_tensors, k.n_tensors);
    for (size_t i = 0; i < k.n_tensors; i++) {
        const struct tw_gguf_tensor *t = tw_gguf_find_tensor(&o.gguf, k.tensors[i].name);
        assert_non_null(t);
        assert_int_equal(t->bytes, k.tensors[i].bytes);
        assert_int_equal(t->dims[0], k.tensors[i].dims[0]);
    }
    assert_memory_equal(tw_gguf_find_tensor(&o.gguf, "aaa")->data, values, sizeof values);
    assert_null(tw_gguf_find_tensor(&o.gguf, "aab"));
    finish(&o, &k);
}

static void alignments_that_are_powers_of_two_from_8_are_kept(void **state) {
    (void)state;
    for (uint32_t alignment = 8; alignment <= 4096; alignment *= 2) {
        struct kit k;
        kit_llama(&k);
        k.alignment = alignment;
        kit_u32(&k, "general.alignment", alignment);
        expect_accepted(&k);
    }
}

static void a_scalar_tensor_has_one_element(void **state) {
    (void)state;
    struct kit k = {.version = 3, .alignment = 32};
    struct opened o;
    kit_append_tensor(&k, "scalar", 0, 0, 1, 1);
    assert_int_equal(parse(&o, &k), 0);
    assert_int_equal(tw_gguf_find_tensor(&o.gguf, "scalar")->bytes, 4);
    finish(&o, &k);
}

/* ---- what is refused ---- */

static void every_truncation_is_refused(void **state) {
    (void)state;
    struct kit k;
    kit_llama(&k);
    kit_write(&k);
    for (size_t size = 0; size < k.size; size += size < 4096 ? 1 : 509) {
        struct opened o;
        int rc = parse_bytes(&o, k.file, size);
        check_refusal(&o, rc, size < 4 ? TW_E_FORMAT : TW_E_TRUNCATED, "");
        finish(&o, NULL);
    }
    kit_free(&k);
}

static void versions_other_than_2_and_3_are_refused(void **state) {
    (void)state;
    static const uint32_t versions[] = {0, 1, 4, 65536, 0x7FFFFFFF};
    for (size_t i = 0; i < 5; i++) {
        struct kit k;
        kit_llama(&k);
        k.version = versions[i];
        expect_refused(&k, TW_E_UNSUPPORTED, "2 or 3");
    }
}

static void a_big_endian_file_gets_its_own_message(void **state) {
    (void)state;
    struct kit k;
    kit_llama(&k);
    k.version = 0x03000000;
    expect_refused(&k, TW_E_UNSUPPORTED, "big-endian");
}

static void counts_that_the_file_cannot_hold_are_refused(void **state) {
    (void)state;
    static const int64_t excess[] = {1 << 20, INT64_MAX / 2, -1000};
    for (size_t i = 0; i < 3; i++) {
        struct kit k;
        kit_llama(&k);
        k.kv_count_error = excess[i];
        expect_refused(&k, TW_E_TRUNCATED, "the key count is");
        kit_llama(&k);
        k.tensor_count_error = excess[i];
        expect_refused(&k, TW_E_TRUNCATED, "the tensor count is");
    }
}

static void duplicate_names_are_refused(void **state) {
    (void)state;
    struct kit k;
    kit_llama(&k);
    k.kv[k.n_kv] = k.kv[2];
    k.n_kv++;
    expect_refused(&k, TW_E_FORMAT, "key general.license occurs twice");
    kit_llama(&k);
    kit_append_tensor(&k, "blk.1.ffn_up.weight", 0, 2, 4, 4);
    expect_refused(&k, TW_E_FORMAT, "tensor blk.1.ffn_up.weight occurs twice");
}

static void odd_names_are_refused(void **state) {
    (void)state;
    struct kit k;
    kit_llama(&k);
    kit_u32(&k, "", 1);
    expect_refused(&k, TW_E_FORMAT, "a key at offset");
    kit_llama(&k);
    kit_tensor(&k, "", 0, 4, 4);
    expect_refused(&k, TW_E_FORMAT, "a tensor name at offset");
    kit_llama(&k);
    kit_tensor(&k, "a name of sixty-five bytes, which is one more than GGUF allows...", 0, 4, 4);
    expect_refused(&k, TW_E_FORMAT, "is 65 bytes long, expected at most 64");
}

static void unknown_value_types_are_refused(void **state) {
    (void)state;
    struct kit k;
    kit_llama(&k);
    kit_raw(&k, "x", 13, "abcd", 4);
    expect_refused(&k, TW_E_FORMAT, "key x has unknown value type 13");
    kit_llama(&k);
    kit_array(&k, "x", 77, 1, "abcd", 4);
    expect_refused(&k, TW_E_FORMAT, "key x is an array of unknown element type 77");
    kit_llama(&k);
    kit_bool(&k, "x", 2);
    expect_refused(&k, TW_E_FORMAT, "key x is a bool of value 2");
}

static void array_lengths_that_wrap_are_refused(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        uint64_t count;
    } cases[] = {{4, UINT64_MAX},
                 {10, UINT64_C(1) << 61},
                 {8, UINT64_C(1) << 62},
                 {8, UINT64_MAX / 8 + 2},
                 {9, UINT64_MAX / 12 + 1}};
    for (size_t i = 0; i < 5; i++) {
        struct kit k;
        kit_llama(&k);
        kit_array(&k, "x", cases[i].type, cases[i].count, "abcdefgh", 8);
        expect_refused(&k, TW_E_TRUNCATED, "the length of ");
    }
}

static void bad_alignments_are_refused(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 1, 3, 4, 12, 24, 1u << 21, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kit k;
        kit_llama(&k);
        kit_u32(&k, "general.alignment", bad[i]);
        expect_refused(&k, TW_E_RANGE, "key general.alignment is");
    }
    struct kit k;
    kit_llama(&k);
    kit_string(&k, "general.alignment", "32");
    expect_refused(&k, TW_E_FORMAT, "key general.alignment has type string, expected an integer");
}

static void bad_dimensions_are_refused(void **state) {
    (void)state;
    static const struct {
        uint64_t d0, d1;
        int code;
        const char *part;
    } cases[] = {
        {0, 4, TW_E_RANGE, "dimension 0 of tensor x is 0"},
        {4, 0, TW_E_RANGE, "dimension 1 of tensor x is 0"},
        {(uint64_t)-8, 4, TW_E_RANGE, "dimension 0 of tensor x is -8"},
        {UINT64_C(1) << 32, UINT64_C(1) << 32, TW_E_RANGE,
         "[4294967296, 4294967296] is larger than 2^64"},
        {32, (UINT64_C(1) << 57) - 1, TW_E_TRUNCATED, "tensor x has"},
    };
    for (size_t i = 0; i < 5; i++) {
        struct kit k;
        kit_llama(&k);
        kit_append_tensor(&k, "x", 0, 2, 4, 4);
        k.tensors[k.n_tensors - 1].dims[0] = cases[i].d0;
        k.tensors[k.n_tensors - 1].dims[1] = cases[i].d1;
        expect_refused(&k, cases[i].code, cases[i].part);
    }
    struct kit k;
    kit_llama(&k);
    kit_append_tensor(&k, "x", 0, 5, 4, 4);
    expect_refused(&k, TW_E_FORMAT, "tensor x has 5 dimensions");
}

static void tensor_types_are_refused_by_name_or_number(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        int code;
        const char *part;
    } cases[] = {
        {4, TW_E_UNSUPPORTED, "tensor x has type Q4_2 (removed)"},
        {36, TW_E_UNSUPPORTED, "tensor x has type IQ4_NL_4_4 (removed)"},
        {99, TW_E_UNSUPPORTED, "tensor x has unknown type 99"},
        {UINT32_MAX, TW_E_UNSUPPORTED, "tensor x has unknown type 4294967295"},
        {8, TW_E_SHAPE, "tensor x of type Q8_0 has rows of 33 elements, expected a multiple of 32"},
        {12, TW_E_SHAPE,
         "tensor x of type Q4_K has rows of 33 elements, expected a multiple of 256"},
    };
    for (size_t i = 0; i < 6; i++) {
        struct kit k;
        kit_llama(&k);
        kit_append_tensor(&k, "x", 0, 1, 33, 1);
        k.tensors[k.n_tensors - 1].type = cases[i].type;
        expect_refused(&k, cases[i].code, cases[i].part);
    }
}

static void offsets_outside_the_file_are_refused(void **state) {
    (void)state;
    static const struct {
        uint64_t offset;
        int code;
    } cases[] = {{UINT64_MAX - 31, TW_E_TRUNCATED},
                 {UINT64_C(1) << 63, TW_E_TRUNCATED},
                 {1 << 20, TW_E_TRUNCATED},
                 {16, TW_E_FORMAT}};
    for (size_t i = 0; i < 4; i++) {
        struct kit k = {.version = 3, .alignment = 32};
        struct opened o;
        kit_tensor(&k, "x", 0, 8, 1);
        kit_write(&k);
        /* The only tensor's offset is the eight bytes before the padding of 24+8+1+4+8+4+8 = 57
         * bytes. */
        for (unsigned b = 0; b < 8; b++) {
            k.file[49 + b] = (uint8_t)(cases[i].offset >> (8 * b));
        }
        int rc = parse_bytes(&o, k.file, k.size);
        check_refusal(&o, rc, cases[i].code, "tensor x ");
        finish(&o, &k);
    }
}

static void values_of_another_type_or_range_are_refused(void **state) {
    (void)state;
    struct kit k = {.version = 3, .alignment = 32};
    struct opened o;
    uint64_t value = 0;
    float number = 0;
    bool flag = false;
    const struct tw_gguf_kv *array;
    kit_string(&k, "s", "x");
    kit_int(&k, "minus", 5, -3);
    kit_f32(&k, "nan", (float)(0.0 / strtod("0", NULL)));
    kit_array(&k, "bytes", 0, 2, "ab", 2);
    assert_int_equal(parse(&o, &k), 0);
    check_refusal(&o, tw_gguf_uint(&o.gguf, "s", true, 0, 9, &value, &o.err), TW_E_FORMAT,
                  "key s has type string");
    check_refusal(&o, tw_gguf_uint(&o.gguf, "none", true, 0, 9, &value, &o.err), TW_E_MISSING,
                  "key none is missing");
    check_refusal(&o, tw_gguf_uint(&o.gguf, "minus", true, 0, 9, &value, &o.err), TW_E_RANGE,
                  "is -3, expected 0 to 9");
    check_refusal(&o, tw_gguf_float(&o.gguf, "nan", true, &number, &o.err), TW_E_RANGE,
                  "expected a finite number");
    check_refusal(&o, tw_gguf_float(&o.gguf, "minus", true, &number, &o.err), TW_E_FORMAT,
                  "has type i32, expected f32");
    check_refusal(&o, tw_gguf_bool(&o.gguf, "minus", &flag, &o.err), TW_E_FORMAT, "expected bool");
    check_refusal(&o, tw_gguf_array(&o.gguf, "bytes", true, TW_GGUF_F32, &array, &o.err),
                  TW_E_FORMAT, "is an array of u8, expected an array of f32");
    assert_int_equal(tw_gguf_uint(&o.gguf, "none", false, 0, 9, &value, &o.err), 0);
    assert_int_equal(value, 0);
    finish(&o, &k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scalar_type_is_read),
        cmocka_unit_test(strings_and_arrays_are_viewed_in_place),
        cmocka_unit_test(nested_arrays_are_skipped_to_depth_four),
        cmocka_unit_test(tensors_are_found_by_name_with_their_bytes),
        cmocka_unit_test(alignments_that_are_powers_of_two_from_8_are_kept),
        cmocka_unit_test(a_scalar_tensor_has_one_element),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(versions_other_than_2_and_3_are_refused),
        cmocka_unit_test(a_big_endian_file_gets_its_own_message),
        cmocka_unit_test(counts_that_the_file_cannot_hold_are_refused),
        cmocka_unit_test(duplicate_names_are_refused),
        cmocka_unit_test(odd_names_are_refused),
        cmocka_unit_test(unknown_value_types_are_refused),
        cmocka_unit_test(array_lengths_that_wrap_are_refused),
        cmocka_unit_test(bad_alignments_are_refused),
        cmocka_unit_test(bad_dimensions_are_refused),
        cmocka_unit_test(tensor_types_are_refused_by_name_or_number),
        cmocka_unit_test(offsets_outside_the_file_are_refused),
        cmocka_unit_test(values_of_another_type_or_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
