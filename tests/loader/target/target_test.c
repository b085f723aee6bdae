/* SPDX-License-Identifier: Apache-2.0
 *
 * Targets: the built-in ones, and target files, valid and invalid.
 */
#include "loader/target/target_open.h"
#include "tests/support/test.h"
#include "tilewright/target.h"

#include <unistd.h>

/* Every key with a valid value; each test changes one. */
static const char *const keys[][2] = {
    {"name", "\"t\""},
    {"chips", "1"},
    {"width", "3"},
    {"height", "2"},
    {"sram_bytes", "1048640"},
    {"banks", "4"},
    {"clock_hz", "2e9"},
    {"dram_bytes_per_cycle", "64.0"},
    {"site_load_bytes_per_cycle", "16"},
    {"fma_per_cycle", "32.5"},
    {"int8_mac_per_cycle", "128"},
    {"vector_per_cycle", "16"},
    {"link_bytes_per_cycle", "8"},
    {"sync_cycles", "0"},
    {"call_cycles", "20"},
    {"chip_link_bytes_per_cycle", "2"},
    {"chip_link_cycles", "400"},
};
#define N_KEYS (sizeof keys / sizeof *keys)

/* Returns the text with `key` changed to `value` (NULL: left out), or with a new key added. */
static const char *text_with(const char *key, const char *value) {
    static char text[2048];
    size_t n = 0;
    int known = 0;
    for (size_t i = 0; i < N_KEYS; i++) {
        int here = key && !strcmp(keys[i][0], key);
        known |= here;
        if (!here || value) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%c\"%s\": %s", n ? ',' : '{',
                                  keys[i][0], here ? value : keys[i][1]);
        }
    }
    if (key && !known) {
        n += (size_t)snprintf(text + n, sizeof text - n, ",\"%s\": %s", key, value);
    }
    snprintf(text + n, sizeof text - n, "}\n");
    return text;
}

static void expect_text(const char *text, size_t size, int code, const char *part) {
    struct tw_target t;
    tw_error err = {0};
    int rc = tw_target_parse("t.json", text, size, &t, &err);
    if (rc != code || (code && (err.code != code || !strstr(err.message, part) ||
                                strncmp(err.message, "t.json", 6) != 0))) {
        fail_msg("code %d, message \"%s\", expected code %d and \"%s\" for %.200s", rc, err.message,
                 code, part, text);
    }
}

static void expect(const char *key, const char *value, int code) {
    const char *text = text_with(key, value);
    expect_text(text, strlen(text), code, key);
}

static struct tw_target parsed(const char *text) {
    struct tw_target t;
    tw_error err = {0};
    assert_int_equal(tw_target_parse("t.json", text, strlen(text), &t, &err), 0);
    return t;
}

/* ---- built-in targets ---- */

static void every_built_in_target_opens_under_its_own_name(void **state) {
    (void)state;
    size_t n = 0;
    for (const char *const *name = tw_target_names(); *name; name++, n++) {
        struct tw_target t;
        tw_error err = {0};
        assert_int_equal(tw_target_open(*name, 0, &t, &err), 0);
        assert_string_equal(t.name, *name);
        assert_in_range(tw_target_sites(&t), 1, TW_TARGET_MAX_SITES);
        assert_int_equal(t.class_bytes[0] % 64, 0);
        assert_true(t.clock_hz > 0 && t.fma_per_cycle > 0 && t.dram_bytes_per_cycle > 0);
        assert_int_equal(t.n_chips > 1, tw_target_has_links(&t));
    }
    assert_int_equal(n, 5);
}

static void the_built_in_targets_have_their_documented_shapes(void **state) {
    (void)state;
    struct tw_target t;
    assert_int_equal(tw_target_open("sim4x4", 0, &t, NULL), 0);
    assert_true(t.width == 4 && t.height == 4);
    assert_int_equal(tw_target_open("grid8x8", 7, &t, NULL),
                     0); /* host_sites applies to "host" only */
    assert_int_equal(tw_target_sites(&t), 64);
    assert_int_equal(t.class_bytes[0], 1536 * 1024);
    assert_int_equal(t.n_banks, 12);
    assert_int_equal(tw_target_open("sim4x4x2", 0, &t, NULL), 0);
    assert_true(t.n_chips == 2 && t.width == 4 && t.height == 4);
    assert_int_equal(tw_target_open("quad2x2", 0, &t, NULL), 0);
    assert_true(t.n_chips == 4 && t.width == 2 && t.height == 2);
}

static void the_host_has_as_many_sites_as_asked_for(void **state) {
    (void)state;
    struct tw_target t, u;
    static const uint32_t asked[][2] = {{1, 1},     {2, 2},     {5, 5},
                                        {256, 256}, {257, 256}, {0xFFFFFFFF, 256}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        assert_int_equal(tw_target_open("host", asked[i][0], &t, NULL), 0);
        assert_int_equal(tw_target_sites(&t), asked[i][1]);
    }
    assert_int_equal(tw_target_open("host", 0, &t, NULL), 0);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    assert_int_equal(tw_target_sites(&t), cores > 256 ? 256 : cores);
    assert_int_equal(tw_target_open("host", 3, &t, NULL), 0);
    assert_int_equal(tw_target_open("host", 4, &u, NULL), 0);
    assert_memory_not_equal(t.hash, u.hash, sizeof t.hash);
}

static void an_unknown_name_is_refused_with_the_list_of_names(void **state) {
    (void)state;
    static const char *const names[] = {"", "Host", "sim4x", "sim4x44", "json", ".json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tw_target t;
        tw_error err = {0};
        assert_int_equal(tw_target_open(names[i], 0, &t, &err), TW_E_USAGE);
        for (const char *const *name = tw_target_names(); *name; name++) {
            assert_non_null(strstr(err.message, *name));
        }
    }
}

/* ---- files ---- */

static void a_file_gives_its_values(void **state) {
    (void)state;
    struct tw_target t = parsed(text_with(NULL, NULL));
    assert_string_equal(t.name, "t");
    assert_int_equal(t.width, 3);
    assert_int_equal(t.height, 2);
    assert_int_equal(t.n_banks, 4);
    assert_int_equal(t.class_bytes[0], 1048640 / 64 * 64);
    assert_true(t.clock_hz == 2e9 && t.fma_per_cycle == 32.5 && t.sync_cycles == 0.0 &&
                t.call_cycles == 20.0);
}

static int open_saved(const char *text, size_t size, struct tw_target *t, tw_error *err) {
    char path[] = "/tmp/tw-target-XXXXXX.json";
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, size), (ssize_t)size);
    close(fd);
    int rc = tw_target_open(path, 0, t, err);
    unlink(path);
    return rc;
}

static void a_file_on_disk_reads_as_its_text_does(void **state) {
    (void)state;
    const char *text = text_with(NULL, NULL);
    struct tw_target t, u = parsed(text);
    assert_int_equal(open_saved(text, strlen(text), &t, NULL), 0);
    assert_memory_equal(&t, &u, sizeof t);
}

static void a_file_that_cannot_be_read_is_an_input_error(void **state) {
    (void)state;
    struct tw_target t;
    tw_error err = {0};
    assert_int_equal(tw_target_open("/nonexistent/t.json", 0, &t, &err), TW_E_IO);
    assert_non_null(strstr(err.message, "/nonexistent/t.json: "));
    assert_int_equal(tw_target_open("/tmp/", 0, &t, &err), TW_E_IO);
}

static void a_file_without_end_or_too_large_is_refused(void **state) {
    (void)state;
    struct tw_target t;
    tw_error err = {0};
    assert_int_equal(tw_target_open("/dev/zero", 0, &t, &err), TW_E_RANGE);
    char *blanks = malloc(1 << 20);
    assert_non_null(blanks);
    memset(blanks, ' ', 1 << 20);
    assert_int_equal(open_saved(blanks, 1 << 20, &t, &err), TW_E_RANGE);
    free(blanks);
}

static void every_missing_key_is_named(void **state) {
    (void)state;
    for (size_t i = 0; i < N_KEYS; i++) {
        /* "name" has one error for a missing, mistyped or invalid name */
        expect(keys[i][0], NULL, i ? TW_E_MISSING : TW_E_FORMAT);
    }
}

static void a_key_of_a_wrong_type_is_named(void **state) {
    (void)state;
    static const char *const wrong[] = {"null", "true", "\"1\"", "[1]", "{}"};
    for (size_t i = 0; i < N_KEYS; i++) {
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            if (i || k != 2) {
                expect(keys[i][0], wrong[k], TW_E_FORMAT);
            }
        }
    }
    expect("width", "3.0", TW_E_FORMAT);
    expect("sram_bytes", "1e6", TW_E_FORMAT);
}

static void a_number_out_of_range_is_named(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"chips", "0"},
        {"chips", "65"},
        {"width", "0"},
        {"width", "-1"},
        {"width", "4097"},
        {"height", "4294967298"},
        {"banks", "0"},
        {"banks", "65"},
        {"sram_bytes", "16383"},
        {"sram_bytes", "-64"},
        {"clock_hz", "0"},
        {"clock_hz", "-1e9"},
        {"fma_per_cycle", "0"},
        {"sync_cycles", "-1"},
        {"sram_bytes", "9223372036854775807"},
        {"call_cycles", "1e10"},
        {"chip_link_bytes_per_cycle", "0"},
        {"chip_link_cycles", "-1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect(bad[i][0], bad[i][1], TW_E_RANGE);
    }
    const char *many = text_with("width", "4096");
    expect_text(many, strlen(many), TW_E_RANGE, "4096 x 2 sites");
    const char *banks = text_with("chips", "17");
    expect_text(banks, strlen(banks), TW_E_RANGE, "17 chips with 4 banks each; the maximum is 64");
}

/* ---- memory classes and State ---- */

static void a_target_may_have_more_memory_classes(void **state) {
    (void)state;
    struct tw_target t, again;
    char printed[TW_TARGET_TEXT_BYTES];
    const char *text = text_with(
        "sram_classes", "[{\"name\":\"interleaved\",\"bytes\":65600,\"holds\":[\"params\"]},"
                        "{\"name\":\"b\",\"bytes\":4294967296,\"holds\":[\"private\","
                        "\"state\"]}]");
    assert_int_equal(tw_target_parse("t", text, strlen(text), &t, NULL), 0);
    assert_int_equal(t.n_classes, 3);
    assert_string_equal(t.class_name[0], "plain");
    assert_string_equal(t.class_name[1], "interleaved");
    assert_int_equal(t.class_bytes[0], 1048640);
    assert_int_equal(t.class_bytes[1], 65600);
    assert_true(t.class_bytes[2] == 4294967296u && t.class_bytes[3] == 0);
    assert_int_equal(t.class_of[TW_HOLDS_PARAMS], 1);
    assert_int_equal(t.class_of[TW_HOLDS_ACTIVATIONS], 0);
    assert_int_equal(t.class_of[TW_HOLDS_PRIVATE], 2);
    assert_int_equal(t.class_of[TW_HOLDS_STATE], 2);
    assert_true(tw_target_sram(&t) == 1048640 + 65600 + 4294967296u);
    assert_int_equal(tw_target_print(&t, printed, sizeof printed, NULL), 0);
    assert_int_equal(tw_target_parse("t", printed, strlen(printed), &again, NULL), 0);
    assert_memory_equal(&t, &again, sizeof t);
    /* where things go is part of what a bundle was compiled for */
    text = text_with("sram_classes",
                     "[{\"name\":\"interleaved\",\"bytes\":65600,\"holds\":[\"params\"]},"
                     "{\"name\":\"b\",\"bytes\":4294967296,\"holds\":[\"private\"]}]");
    assert_int_equal(tw_target_parse("t", text, strlen(text), &again, NULL), 0);
    assert_true(memcmp(t.hash, again.hash, sizeof t.hash) != 0);
}

static void a_memory_class_that_is_wrong_is_named(void **state) {
    (void)state;
#define CLASS(name, bytes, holds) "{\"name\":" name ",\"bytes\":" bytes ",\"holds\":" holds "}"
    static const struct {
        const char *value;
        int code;
    } bad[] = {
        {"1", TW_E_FORMAT},
        {"[]", TW_E_FORMAT},
        {"{}", TW_E_FORMAT},
        {"[1]", TW_E_FORMAT},
        {"[{}]", TW_E_FORMAT},
        {"[{\"name\":\"a\",\"bytes\":64}]", TW_E_FORMAT},
        {"[" CLASS("1", "64", "[]") "]", TW_E_FORMAT},
        {"[" CLASS("\"\"", "64", "[]") "]", TW_E_FORMAT},
        {"[" CLASS("\"a b\"", "64", "[]") "]", TW_E_FORMAT},
        {"[" CLASS("\"sixteen-letters-\"", "64", "[]") "]", TW_E_FORMAT},
        {"[" CLASS("\"plain\"", "64", "[]") "]", TW_E_FORMAT},
        {"[" CLASS("\"a\"", "64", "[]") "," CLASS("\"a\"", "64", "[]") "]", TW_E_FORMAT},
        {"[" CLASS("\"a\"", "63", "[]") "]", TW_E_RANGE},
        {"[" CLASS("\"a\"", "4294967297", "[]") "]", TW_E_RANGE},
        {"[" CLASS("\"a\"", "64.5", "[]") "]", TW_E_RANGE},
        {"[" CLASS("\"a\"", "\"64\"", "[]") "]", TW_E_RANGE},
        {"[" CLASS("\"a\"", "64", "\"params\"") "]", TW_E_FORMAT},
        {"[" CLASS("\"a\"", "64", "[1]") "]", TW_E_FORMAT},
        {"[" CLASS("\"a\"", "64", "[\"weights\"]") "]", TW_E_FORMAT},
        {"[" CLASS("\"a\"", "64", "[\"params\",\"params\"]") "]", TW_E_FORMAT},
        {"[" CLASS("\"a\"", "64", "[\"state\"]") "," CLASS("\"b\"", "64", "[\"state\"]") "]",
         TW_E_FORMAT},
        {"[" CLASS("\"a\"", "64", "[]") "," CLASS("\"b\"", "64", "[]") "," CLASS(
             "\"c\"", "64", "[]") "," CLASS("\"d\"", "64", "[]") "]",
         TW_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *text = text_with("sram_classes", bad[i].value);
        expect_text(text, strlen(text), bad[i].code, "class");
    }
    expect("state", "\"flash\"", TW_E_FORMAT);
    expect("state", "1", TW_E_FORMAT);
    expect("state", "\"dram\"", 0);
    expect("state", "\"sram\"", 0);
}

/* A target that names the defaults has the hash of one that says nothing. */
static void the_defaults_do_not_change_the_hash(void **state) {
    (void)state;
    struct tw_target t, u, v;
    const char *text = text_with(NULL, NULL);
    assert_int_equal(tw_target_parse("t", text, strlen(text), &t, NULL), 0);
    text = text_with("state", "\"dram\"");
    assert_int_equal(tw_target_parse("t", text, strlen(text), &u, NULL), 0);
    text = text_with("state", "\"sram\"");
    assert_int_equal(tw_target_parse("t", text, strlen(text), &v, NULL), 0);
    assert_memory_equal(t.hash, u.hash, sizeof t.hash);
    assert_true(memcmp(t.hash, v.hash, sizeof t.hash) != 0);
    assert_int_equal(v.state_in_sram, 1);
}

static void numbers_at_the_ends_of_their_ranges_are_accepted(void **state) {
    (void)state;
    expect("width", "2048", 0);
    expect("banks", "64", 0);
    expect("sram_bytes", "16384", 0);
    expect("sram_bytes", "4294967296", 0);
}

/* Without the two chip_link_ keys there are no links; one of them alone is an error
 * (every_missing_key_is_named). */
static void chips_may_have_no_links(void **state) {
    (void)state;
    char text[2048], *comma;
    for (uint32_t chips = 1; chips <= 2; chips++) {
        snprintf(text, sizeof text, "%s", text_with("chips", chips == 1 ? "1" : "2"));
        struct tw_target with = parsed(text);
        assert_true(tw_target_has_links(&with) && with.chip_link_cycles == 400.0);
        comma = strstr(text, ",\"chip_link_bytes");
        assert_non_null(comma);
        strcpy(comma, "}");
        struct tw_target without = parsed(text);
        assert_int_equal(without.n_chips, chips);
        assert_false(tw_target_has_links(&without));
        assert_memory_not_equal(with.hash, without.hash, sizeof with.hash);
    }
}

static void unknown_and_repeated_keys_are_refused(void **state) {
    (void)state;
    expect("colour", "1", TW_E_FORMAT);
    expect("Width", "1", TW_E_FORMAT);
    expect("", "1", TW_E_FORMAT);
    const char *twice = "{\"name\":\"t\",\"name\":\"t\"}";
    expect_text(twice, strlen(twice), TW_E_FORMAT, "name");
}

static void a_name_is_short_and_printable(void **state) {
    (void)state;
    char longest[70], too_long[70];
    memset(longest, 'a', sizeof longest);
    longest[0] = longest[64] = '"';
    longest[65] = '\0';
    expect("name", longest, 0);
    memset(too_long, 'a', sizeof too_long);
    too_long[0] = too_long[65] = '"';
    too_long[66] = '\0';
    expect("name", too_long, TW_E_FORMAT);
    static const char *const bad[] = {"\"\"", "\"a b\"", "\"a\\n\"", "\"\\u001b[31m\"",
                                      "\"\xC3\xA9\""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect("name", bad[i], TW_E_FORMAT);
    }
}

static void anything_but_a_json_object_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",     " ",       "{",        "{}",          "[]",
                                      "null", "7",       "\"host\"", "{\"name\":}", "{\"a\":1}}",
                                      "GGUF", "\xFF\xFE"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_text(bad[i], strlen(bad[i]), TW_E_FORMAT, "");
    }
    expect_text("{}\0{}", 5, TW_E_FORMAT, "");
}

static void text_truncated_anywhere_is_refused(void **state) {
    (void)state;
    char text[2048];
    snprintf(text, sizeof text, "%s", text_with(NULL, NULL));
    for (size_t n = 0; n + 2 < strlen(text); n++) { /* the last two: brace and newline */
        expect_text(text, n, TW_E_FORMAT, "");
    }
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    char *deep = malloc(60000);
    assert_non_null(deep);
    memset(deep, '[', 60000);
    expect_text(deep, 60000, TW_E_FORMAT, "");
    free(deep);
}

/* ---- hash ---- */

static void two_spellings_of_one_target_have_one_hash(void **state) {
    (void)state;
    struct tw_target a = parsed(text_with("clock_hz", "2e9")),
                     b = parsed(text_with("clock_hz", "2000000000"));
    assert_memory_equal(a.hash, b.hash, sizeof a.hash);
    b = parsed(text_with("clock_hz", "  20.0E+8 "));
    assert_memory_equal(a.hash, b.hash, sizeof a.hash);
}

static void every_value_is_in_the_hash(void **state) {
    (void)state;
    struct tw_target a = parsed(text_with(NULL, NULL));
    for (size_t i = 0; i < N_KEYS; i++) {
        struct tw_target b = parsed(text_with(keys[i][0], i == 0             ? "\"u\""
                                                          : i == 4 || i == 6 ? "65536"
                                                                             : "7"));
        assert_memory_not_equal(a.hash, b.hash, sizeof a.hash);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_built_in_target_opens_under_its_own_name),
        cmocka_unit_test(the_built_in_targets_have_their_documented_shapes),
        cmocka_unit_test(the_host_has_as_many_sites_as_asked_for),
        cmocka_unit_test(an_unknown_name_is_refused_with_the_list_of_names),
        cmocka_unit_test(a_file_gives_its_values),
        cmocka_unit_test(a_file_on_disk_reads_as_its_text_does),
        cmocka_unit_test(a_file_that_cannot_be_read_is_an_input_error),
        cmocka_unit_test(a_file_without_end_or_too_large_is_refused),
        cmocka_unit_test(every_missing_key_is_named),
        cmocka_unit_test(a_key_of_a_wrong_type_is_named),
        cmocka_unit_test(a_number_out_of_range_is_named),
        cmocka_unit_test(a_target_may_have_more_memory_classes),
        cmocka_unit_test(a_memory_class_that_is_wrong_is_named),
        cmocka_unit_test(the_defaults_do_not_change_the_hash),
        cmocka_unit_test(numbers_at_the_ends_of_their_ranges_are_accepted),
        cmocka_unit_test(chips_may_have_no_links),
        cmocka_unit_test(unknown_and_repeated_keys_are_refused),
        cmocka_unit_test(a_name_is_short_and_printable),
        cmocka_unit_test(anything_but_a_json_object_is_refused),
        cmocka_unit_test(text_truncated_anywhere_is_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(two_spellings_of_one_target_have_one_hash),
        cmocka_unit_test(every_value_is_in_the_hash),
    };
    return cmocka_run_group_tests_name("target", tests, NULL, NULL);
}
