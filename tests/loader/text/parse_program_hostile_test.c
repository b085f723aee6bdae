/* SPDX-License-Identifier: Apache-2.0
 *
 * The parser of programs on wrong, unusual and hostile text: errors name the place and what was
 * expected; limits; memory and time in proportion to the text.
 */
#include "loader/verify/verify.h"
#include "tests/support/program_mutate.h"
#include "tests/support/program_text.h"
#include "tests/support/small_program.h"
#include "tests/support/test.h"

#include <time.h>

#define HEAD "program p rows=1 sites=1 mesh=1x1 chips=1 sram=64\n"
#define TABLES                                                                   \
    "tensor 0 t role=param dtype=f32 shape=1x16 packing=row bytes=64 bind=0+1\n" \
    "buffer 0 b site=0 kind=scratch dtype=f32 pages=1x64 offset=0\n"             \
    "group 0 chip=0 x=0..1 y=0..1\n"                                             \
    "semaphore 0 s role=ready group=0\n"
#define STREAM HEAD TABLES "stream 1 site=0 engine=math\n"
#define BYTES(text) text, sizeof(text) - 1

/* ---- messages ---- */

static const struct {
    const char *text;
    size_t size;
    int code;
    const char *message;
} mistakes[] = {
    {BYTES(""), TW_E_FORMAT, "f:1:1: found the end of the text, expected 'program'"},
    {BYTES("; nothing\n\n"), TW_E_FORMAT, "f:3:1: found the end of the text, expected 'program'"},
    {BYTES("\n  progam p"), TW_E_FORMAT, "f:2:3: found 'progam', expected 'program'"},
    {BYTES("\0"), TW_E_FORMAT, "f:1:1: found '\\x00', expected 'program'"},
    {BYTES("program p rows=1\n"), TW_E_FORMAT,
     "f:1:17: found the end of the line, expected 'sites='"},
    {BYTES("program rows=1\n"), TW_E_FORMAT, "f:1:13: found '=1', expected a space"},
    {BYTES("program p rows=\n"), TW_E_FORMAT,
     "f:1:16: found the end of the line, expected a number for rows="},
    {BYTES("program p rows=4294967296\n"), TW_E_RANGE, "f:1:16: rows is more than 4294967295"},
    {BYTES("program p sram=18446744073709551616\n"), TW_E_RANGE,
     "f:1:16: sram is more than 18446744073709551615"},
    {BYTES("program p rows=1 rows=1\n"), TW_E_FORMAT,
     "f:1:18: found rows= twice, expected it once"},
    {BYTES("program p rows=1x\n"), TW_E_FORMAT, "f:1:17: found 'x', expected a space"},
    {BYTES("program p colour=1\n"), TW_E_FORMAT,
     "f:1:11: found 'colour=1', expected a field of a program: rows sites mesh chips sram sram1 "
     "sram2 sram3"},
    {BYTES("program p rows=1 sites=0 mesh=1x1 chips=1 sram=64\n"), TW_E_RANGE,
     "f:1:1: found 0 sites, expected 1 to 65536"},
    {BYTES("program p rows=1 sites=65537 mesh=1x1 chips=1 sram=64\n"), TW_E_RANGE,
     "f:1:1: found 65537 sites, expected 1 to 65536"},
    {BYTES(HEAD "tensr 0 t\n"), TW_E_FORMAT,
     "f:2:1: found 'tensr', expected tensor, buffer, group, semaphore, trip, section, stage "
     "or stream"},
    {BYTES(HEAD "copy b@0[0]\n"), TW_E_FORMAT,
     "f:2:1: found 'copy', expected tensor, buffer, group, semaphore, trip, section, stage "
     "or stream"},
    {BYTES(HEAD "group 1 chip=0\n"), TW_E_FORMAT,
     "f:2:7: found group 1, expected group 0: ids count the lines of their table"},
    {BYTES(HEAD "group 0 chip=65536\n"), TW_E_RANGE, "f:2:14: chip is more than 65535"},
    {BYTES(HEAD "group 0 chip=0 x=0-1\n"), TW_E_FORMAT, "f:2:19: found '-1', expected '..'"},
    {BYTES(HEAD "semaphore 0 \"a\\qb\" role=ready group=0\n"), TW_E_FORMAT,
     "f:2:16: found 'qb\"', expected an escape: \\\", \\\\ or \\xNN, not 00"},
    {BYTES(HEAD "semaphore 0 \"\\x00\" role=ready group=0\n"), TW_E_FORMAT,
     "f:2:15: found 'x00\"', expected an escape: \\\", \\\\ or \\xNN, not 00"},
    {BYTES(HEAD "semaphore 0 \"open role=ready\ngroup=0\n"), TW_E_FORMAT,
     "f:2:29: found the end of the line, expected the closing quote of a name"},
    {BYTES(HEAD "semaphore 0 \"a\0b\" role=ready\n"), TW_E_FORMAT,
     "f:2:15: found '\\x00b\"', expected the closing quote of a name"},
    {BYTES(HEAD "semaphore 0 s role=redy group=0\n"), TW_E_FORMAT,
     "f:2:20: found 'redy', expected role: ready valid gather release"},
    {BYTES(HEAD "trip 0 n input=x@0 add=0 div=1 max=1\n"), TW_E_FORMAT,
     "f:2:16: found x@0, expected @0 or one of the 0 tensors above"},
    {BYTES(HEAD TABLES "trip 0 n input=x@0 add=0 div=1 max=1\n"), TW_E_FORMAT,
     "f:6:16: found x@0, expected t@0"},
    {BYTES(HEAD "stream 3 site=0 engine=load\n"), TW_E_FORMAT,
     "f:2:8: found stream 3, expected one from 0 to 2, in ascending order"},
    {BYTES(STREAM "stream 1 site=0 engine=math\n"), TW_E_FORMAT,
     "f:7:8: found stream 1, expected one from 2 to 2, in ascending order"},
    {BYTES(STREAM "tensor 1 t\n"), TW_E_FORMAT,
     "f:7:1: found 'tensor', expected an op, '}', 'words', 'stage=', 'stream' or 'program'"},
    {BYTES(STREAM "end\n"), TW_E_FORMAT,
     "f:7:1: found 'end', expected an op, '}', 'words', 'stage=', 'stream' or 'program'"},
    {BYTES(STREAM "attn_init c@0[0]\n"), TW_E_FORMAT, "f:7:11: found c@0, expected b@0"},
    {BYTES(STREAM "attn_init -@0[0]\n"), TW_E_FORMAT,
     "f:7:11: found '-@0[0]', expected a buffer, name@id"},
    {BYTES(STREAM "attn_init b[0]\n"), TW_E_FORMAT, "f:7:12: found '[0]', expected '@'"},
    {BYTES(STREAM "attn_init b@0[]\n"), TW_E_FORMAT,
     "f:7:15: found ']', expected a constant, terms, or both, as in 64+v1*256"},
    {BYTES(STREAM "attn_init b@0[v8*1]\n"), TW_E_RANGE, "f:7:16: the variable is more than 7"},
    {BYTES(STREAM "attn_init b@0[v1*1+v1*1+v1*1+v1*1+v1*1]\n"), TW_E_RANGE,
     "f:7:35: more than 4 terms"},
    {BYTES(STREAM "attn_init b@0[v1*9223372036854775808]\n"), TW_E_RANGE,
     "f:7:18: the step is more than 9223372036854775807"},
    {BYTES(STREAM "attn_init b@0[-v1*9223372036854775809]\n"), TW_E_RANGE,
     "f:7:19: the step is more than 9223372036854775808"},
    {BYTES(STREAM "attn_init b@0[0] head=1\n"), TW_E_FORMAT,
     "f:7:18: found 'head=1', expected 'heads='"},
    {BYTES(STREAM "attn_init b@0[0] heads=1\n"), TW_E_FORMAT,
     "f:7:25: found the end of the line, expected 'head_dim='"},
    {BYTES(STREAM "attn_init b@0[0] heads=1 head_dim=2 rows=n@0(1)\n"), TW_E_FORMAT,
     "f:7:42: found n@0, expected @0 or one of the 0 trips above"},
    {BYTES(STREAM "attn_init b@0[0] heads=1 head_dim=2 rows=1 {\n"), TW_E_FORMAT,
     "f:7:44: found '{', expected the end of the line"},
    {BYTES(STREAM "dram_copy t@0[0, 0, @4294967295[0]] s=4 -> t@0[0, 0] s=4 b=4 rows=1\n"),
     TW_E_FORMAT, "f:7:21: found @4294967295, which is no id, expected a page table, name@id"},
    {BYTES(STREAM "loop v0 < 2 {\n"), TW_E_RANGE, "f:7:6: found v0, expected v1 to v7"},
    {BYTES(STREAM "loop v1 < 2\n"), TW_E_FORMAT, "f:7:12: found the end of the line, expected '{'"},
    {BYTES(STREAM "words\n"), TW_E_FORMAT,
     "f:7:6: found the end of the line, expected words of the form 0x00000000"},
    {BYTES(STREAM "words 0x123\n"), TW_E_FORMAT,
     "f:7:12: found the end of the line, expected eight hexadecimal digits"},
    {BYTES(STREAM "words 0x123456789\n"), TW_E_FORMAT, "f:7:17: found '9', expected a space"},
    {BYTES(STREAM "stage=x\n"), TW_E_FORMAT, "f:7:7: found 'x', expected a stage or '-'"},
    {BYTES(STREAM "rms_norm b@0[0] s=4 b@0[0] -> b@0[0] s=4 cols=1 1e39 rows=1\n"), TW_E_RANGE,
     "f:7:49: the number exceeds the largest float"},
    {BYTES(STREAM "rms_norm b@0[0] s=4 b@0[0] -> b@0[0] s=4 cols=1 1e9999 rows=1\n"), TW_E_RANGE,
     "f:7:51: the exponent is more than 999"},
    {BYTES(STREAM "rms_norm b@0[0] s=4 b@0[0] -> b@0[0] s=4 cols=1 nan rows=1\n"), TW_E_FORMAT,
     "f:7:49: found 'nan', expected a number"},
    {BYTES(STREAM "matmul b@0[0] s=4 b@0[0] s=64 f64 k=1\n"), TW_E_FORMAT,
     "f:7:31: found 'f64', expected 'dtype='"},
    {BYTES(HEAD HEAD), TW_E_FORMAT,
     "f:2:1: found 'program', expected the end of the text after one program"},
};

static void each_mistake_is_reported_with_its_place_and_what_was_expected(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        struct tw_program_text *text = NULL;
        tw_error err = {0};
        int rc = tw_program_parse("f", mistakes[i].text, mistakes[i].size, &text, &err);
        if (rc != mistakes[i].code || text || strcmp(err.message, mistakes[i].message) != 0) {
            fail_msg("mistake %zu: expected %d \"%s\", got %d \"%s\"", i, mistakes[i].code,
                     mistakes[i].message, rc, err.message);
        }
    }
}

/* ---- free form ---- */

static void comments_blanks_and_order_are_free(void **state) {
    static const char loose[] =
        "\r\n # made by hand\n\tprogram   \"p\" sram=64  chips=1 mesh=1x1 sites=1 rows=1 ; all "
        "fields\r\n"
        "semaphore 0 \"s\" group=0 role=0#0 is ready\n"
        "tensor 0 t bind=0+1 bytes=064 packing=row shape=1x16 dtype=0 role=param init=none\n"
        "  buffer 0 b offset=0 pages=1x64 dtype=f32 kind=scratch site=0 siblings=- of=-\n"
        "group 0 chips=1 chip=0 x=0..1 y=0..1\n"
        "stream 1 engine=1 site=0\n"
        "stage=-\n"
        "attn_init\t@0[0+v1*0]  heads=1 head_dim=2 rows=1;done";
    static const char tight[] = STREAM "    attn_init b@0[v1*0] heads=1 head_dim=2 rows=1\n";
    struct tw_program_text *text = NULL;
    struct text printed = {0};
    tw_error err = {0};
    (void)state;
    if (tw_program_parse("f", loose, sizeof loose - 1, &text, &err) != 0) {
        fail_msg("%s", err.message);
        return;
    }
    assert_int_equal(text->line, 3);
    text_print(&printed, &text->program);
    assert_string_equal(printed.bytes, tight);
    text_free(&printed);
    tw_program_text_free(text);
}

static void a_text_may_hold_several_programs(void **state) {
    static const char three[] = HEAD "; one\n" STREAM "\n\n  " HEAD "; the end";
    struct tw_text_position at = {0, 0};
    struct tw_program_text *text = NULL;
    tw_error err = {0};
    const uint32_t lines[] = {1, 3, 11}, buffers[] = {0, 1, 0};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(tw_program_parse_next("f", three, sizeof three - 1, &at, &text, &err), 0);
        assert_non_null(text);
        assert_int_equal(text->line, lines[i]);
        assert_int_equal(text->program.n_buffers, buffers[i]);
        tw_program_text_free(text);
    }
    assert_int_equal(tw_program_parse_next("f", three, sizeof three - 1, &at, &text, &err), 0);
    assert_null(text);
}

static void references_without_names_may_name_missing_records(void **state) {
    static const char wild[] = STREAM "copy @7[0] s=0 -> @4294967295[0] s=0 b=0 rows=@9(1)\n";
    struct tw_program_text *text = NULL;
    tw_error err = {0};
    (void)state;
    assert_int_equal(tw_program_parse("f", wild, sizeof wild - 1, &text, &err), 0);
    assert_int_equal(tw_verify_program(&text->program, NULL, &err), TW_E_VERIFY);
    tw_program_text_free(text);
}

/* ---- hostile ---- */

/* Parses any bytes: a failure has one of two codes and a message, and what is accepted survives
 * printing and parsing. Returns true if the bytes are accepted. */
static bool survives(const char *bytes, size_t size) {
    char *exact = exact_clone(bytes, size);
    struct tw_program_text *text = NULL;
    tw_error err = {0};
    int rc = tw_program_parse("f", exact, size, &text, &err);
    assert_true(rc == 0 || rc == TW_E_FORMAT || rc == TW_E_RANGE);
    assert_true((rc == 0) == (text != NULL) && (rc == 0) == (err.message[0] == 0));
    if (rc == 0) {
        struct text once = {0}, twice = {0};
        struct tw_program_text *again = NULL;
        text_print(&once, &text->program);
        assert_int_equal(tw_program_parse("f", once.bytes, once.used, &again, &err), 0);
        text_print(&twice, &again->program);
        assert_string_equal(once.bytes, twice.bytes);
        tw_program_text_free(again);
        text_free(&once);
        text_free(&twice);
        (void)tw_verify_program(&text->program, NULL, &err);
    }
    tw_program_text_free(text);
    free(exact);
    return rc == 0;
}

static void a_text_truncated_anywhere_is_handled(void **state) {
    (void)state;
    struct pb *b = small_program();
    struct text t = {0};
    uint32_t accepted = 0;
    text_print(&t, &b->p);
    for (size_t n = 0; n <= t.used; n += 7) {
        accepted += survives(t.bytes, n);
    }
    assert_true(accepted > 10 && survives(t.bytes, t.used));
    text_free(&t);
    pb_free(b);
}

static void changed_bytes_are_handled(void **state) {
    static const char bytes[] = "\0\n\r \"\\@[](){}+-*,.;#=<>x0919v_\x7f\xff";
    (void)state;
    struct pb *b = small_program();
    struct text t = {0};
    uint64_t seed = 99;
    uint32_t accepted = 0;
    text_print(&t, &b->p);
    for (uint32_t i = 0; i < 3000; i++) {
        size_t at = mutate_random(&seed) % t.used;
        char old = t.bytes[at];
        t.bytes[at] = bytes[mutate_random(&seed) % sizeof bytes];
        accepted += survives(t.bytes, t.used);
        t.bytes[at] = old;
    }
    assert_true(accepted > 10 && accepted < 2900);
    text_free(&t);
    pb_free(b);
}

static void lines_of_a_megabyte_are_handled(void **state) {
    static const struct {
        const char *before;
        char fill;
        const char *after;
        bool ok;
    } lines[] = {
        {HEAD "semaphore 0 ", 'n', " role=ready group=0\n", true},
        {HEAD "semaphore 0 \"", '\\', "\" role=ready group=0\n", true},
        {HEAD "semaphore 0 \"", '\xC3', "\" role=ready group=0\n", true},
        {HEAD "semaphore 0 ", '-', "", false},
        {HEAD "; ", '\0', "\n", true},
        {HEAD, ' ', "\n", true},
        {HEAD, '\n', "", true},
        {HEAD "group ", '0', " chip=0 x=0..1 y=0..1\n", true},
        {HEAD "group 0 chip=", '9', "\n", false},
        {STREAM, '}', "", false},
        {STREAM "attn_init b@0[", '0', "+v1*1] heads=1 head_dim=2 rows=1", true},
        {STREAM "attn_init b@0[v1*1", '+', "]", false},
        {STREAM "rms_norm b@0[0] s=4 b@0[0] -> b@0[0] s=4 cols=1 ", '1', " rows=1\n", false},
    };
    enum { MEGABYTE = 1 << 20 };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        size_t before = strlen(lines[i].before), after = strlen(lines[i].after);
        char *text = malloc(before + MEGABYTE + after);
        assert_non_null(text);
        memcpy(text, lines[i].before, before);
        memset(text + before, lines[i].fill, MEGABYTE);
        memcpy(text + before + MEGABYTE, lines[i].after, after);
        if (survives(text, before + MEGABYTE + after) != lines[i].ok) {
            fail_msg("line %zu was%s accepted", i, lines[i].ok ? " not" : "");
        }
        free(text);
    }
}

static void loops_nest_as_deep_as_the_text_is_long(void **state) {
    enum { DEPTH = 100000 };
    static const char head[] = STREAM, open[] = "loop v1 < 2 {\n";
    (void)state;
    char *text = malloc(sizeof head + DEPTH * sizeof open), *at = text + sizeof head - 1;
    assert_non_null(text);
    memcpy(text, head, sizeof head);
    for (uint32_t i = 0; i < DEPTH; i++, at += sizeof open - 1) {
        memcpy(at, open, sizeof open);
    }
    assert_true(survives(text, (size_t)(at - text)));
    free(text);
}

/* Seconds of processor time that a text of n stages with different names, each as long as `length`,
 * takes. */
static double parse_names(uint32_t n, uint32_t length) {
    static const char head[] = HEAD;
    size_t room = sizeof head + (size_t)n * (length + 80), used = sizeof head - 1;
    struct tw_program_text *text = NULL;
    tw_error err = {0};
    char *bytes = malloc(room);
    assert_non_null(bytes);
    memcpy(bytes, head, sizeof head);
    for (uint32_t i = 0; i < n; i++) {
        used += (size_t)snprintf(bytes + used, room - used,
                                 "stage %u s%0*u kind=sync site=0 engine=load section=0\n", i,
                                 (int)length, i * 2654435761u);
    }
    clock_t start = clock();
    assert_int_equal(tw_program_parse("f", bytes, used, &text, &err), 0);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    assert_int_equal(text->program.n_stages, n);
    assert_true(text->program.strings_bytes == 1 + n * (length + 2));
    tw_program_text_free(text);
    free(bytes);
    return seconds;
}

/* Twenty times as much text may take a hundred times as long before this fails; a quadratic search
 * would take 400 times. */
static void time_and_memory_grow_with_the_text(void **state) {
    (void)state;
    double few = parse_names(10000, 10), many = parse_names(200000, 10);
    print_message("%.4f s for 10,000 names, %.4f s for 200,000\n", few, many);
    assert_true(many < (few > 0.002 ? few : 0.002) * 100);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_mistake_is_reported_with_its_place_and_what_was_expected),
        cmocka_unit_test(comments_blanks_and_order_are_free),
        cmocka_unit_test(a_text_may_hold_several_programs),
        cmocka_unit_test(references_without_names_may_name_missing_records),
        cmocka_unit_test(a_text_truncated_anywhere_is_handled),
        cmocka_unit_test(changed_bytes_are_handled),
        cmocka_unit_test(lines_of_a_megabyte_are_handled),
        cmocka_unit_test(loops_nest_as_deep_as_the_text_is_long),
        cmocka_unit_test(time_and_memory_grow_with_the_text),
    };
    return cmocka_run_group_tests_name("parse_program_hostile", tests, NULL, NULL);
}
