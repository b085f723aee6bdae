/* SPDX-License-Identifier: Apache-2.0
 *
 * The structural verifier: a program that uses every op obeys every rule, legal variants pass, a
 * refusal names its place, and ten thousand mutants cause no crash. verify_*_test.c cover the rules
 * one by one.
 */
#include "loader/text/print_program.h"
#include "tests/support/program_mutate.h"
#include "tests/support/verify_kit.h"

static void assert_sound(struct pb *b) {
    tw_error err = {0};
    if (tw_verify_program(&b->p, NULL, &err) != 0) {
        fail_msg("refused: %s", err.message);
    }
    pb_free(b);
}

static void the_small_program_obeys_every_rule(void **state) {
    (void)state;
    struct pb *b = small_program();
    struct tw_verify_report report;
    tw_error err = {0};
    int rc = tw_verify_program(&b->p, &report, &err);
    assert_string_equal(err.message, "");
    assert_int_equal(rc, 0);
    assert_int_equal(report.failed_rule, 0);
#define TW_X(number, name, text) \
    assert_true(number == TW_RULE_buffer_placed || report.checked[number] > 0);
    TW_RULES(TW_X)
#undef TW_X
    assert_true(report.checked[TW_RULE_buffer_placed] >= b->p.n_buffers);
    pb_free(b);
}

static void a_refusal_names_rule_program_place_and_numbers(void **state) {
    (void)state;
    struct pb *b = small_program();
    tw_error err = {0};
    CHANGE(b, MATH, QUANT, 0, op.operand[5].max = 5);
    assert_int_equal(tw_verify_program(&b->p, NULL, &err), TW_E_VERIFY);
    assert_string_equal(err.message,
                        "rule 7 region_in_buffer: decode site 0 math op 19 (quant, layer.attn): "
                        "x spans [0, 640) of a page of 512 bytes");
    pb_free(b);
}

/* MATH fills both pages of `of` in a loop over them; the loop runs `times`. */
static struct pb *with_page_loop(uint32_t times) {
    struct pb *b = small_program();
    CHANGE(b, MATH, RESERVE, 0, op.operand[1].id = 2);
    CHANGE(b, MATH, COPY, 1, op.operand[2].offset = pb_v(0, 4, 256));
    INSERT(b, MATH, COPY, 1, LOOP, pb_id(4), pb_rows(TW_NONE, times), pb_id(TW_NONE));
    pb_insert_end(b, 0, MATH, TW_OP_PUSH, 0);
    return b;
}

static void a_loop_may_step_through_the_pages_it_holds_and_no_further(void **state) {
    (void)state;
    tw_error err = {0};
    assert_sound(with_page_loop(2));
    struct pb *b = with_page_loop(3);
    assert_int_equal(tw_verify_program(&b->p, NULL, &err), TW_E_VERIFY);
    assert_non_null(strstr(err.message, "rule 7 region_in_buffer"));
    assert_non_null(
        strstr(err.message, "y spans [0, 768), but only 2 pages of 256 bytes are reserved"));
    pb_free(b);
}

static void columns_side_by_side_in_one_buffer_are_apart(void **state) {
    (void)state;
    struct pb *b = small_program();
    INSERT(b, MATH, QUANT, 0, COPY, pb_on(SMALL_BUF(SMALL_XN, 0), 0), pb_id(128),
           pb_on(SMALL_BUF(SMALL_XN, 0), 64), pb_id(128), pb_id(64), pb_rows(SMALL_ROWS, 4));
    assert_sound(b);
}

static void an_addition_may_be_in_place(void **state) {
    (void)state;
    struct pb *b = small_program();
    INSERT(b, MATH, QUANT, 0, ADD, pb_on(SMALL_BUF(SMALL_XN, 0), 0), pb_id(128),
           pb_on(SMALL_BUF(SMALL_X, 0), 0), pb_id(128), pb_on(SMALL_BUF(SMALL_XN, 0), 0),
           pb_id(128), pb_id(32), pb_rows(SMALL_ROWS, 4));
    assert_sound(b);
}

static void a_falling_offset_is_checked_at_its_lowest_value(void **state) {
    (void)state;
    struct pb *b = small_program();
    CHANGE(b, MATH, QUANT, 0, op.operand[0].offset = pb_v(4, 1, (uint64_t)-4),
           op.operand[4].id = 32);
    CHANGE(b, MATH, QUANT, 0, op.operand[5] = pb_rows(TW_NONE, 3), op.operand[5].kind = 'X');
    assert_sound(b);
}

static void a_site_without_ops_does_not_join_the_rendezvous(void **state) {
    (void)state;
    struct pb *b = small_program();
    tw_error err = {0};
    b->streams[3].n_words = b->streams[4].n_words = b->streams[5].n_words = 0;
    /* The other site now waits for arrivals that never come. */
    assert_int_equal(tw_verify_program(&b->p, NULL, &err), TW_E_VERIFY);
    pb_free(b);
}

/* ---- mutation ---- */

static int count_line(void *ctx, const char *line, size_t bytes) {
    (void)line;
    *(size_t *)ctx += bytes;
    return 0;
}

static void ten_thousand_mutants_are_refused_or_accepted_but_never_crash(void **state) {
    (void)state;
    uint64_t seed = 20240611;
    uint32_t refused = 0, mutants = 0;
    struct pb *b = small_program();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint32_t i = 0; i < 10000; i++) {
        struct exact *x = exact_copy(&b->p);
        tw_error err = {0};
        size_t text = 0;
        for (uint64_t n = 1 + mutate_random(&seed) % 3; n > 0; n--) {
            exact_mutate(x, &seed);
        }
        int rc = tw_verify_program(&x->p, NULL, &err);
        assert_true(rc == 0 || (rc == TW_E_VERIFY && strncmp(err.message, "rule ", 5) == 0));
        if (i % 16 == 0) {
            assert_int_equal(tw_program_print(&x->p, TW_PRINT_ALL, count_line, &text), 0);
            assert_true(text > 0);
        }
        refused += rc != 0;
        mutants++;
        exact_free(x);
    }
    pb_free(b);
    print_message("%u of %u mutants refused\n", refused, mutants);
    assert_true(refused > mutants / 2);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_small_program_obeys_every_rule),
        cmocka_unit_test(a_refusal_names_rule_program_place_and_numbers),
        cmocka_unit_test(a_loop_may_step_through_the_pages_it_holds_and_no_further),
        cmocka_unit_test(columns_side_by_side_in_one_buffer_are_apart),
        cmocka_unit_test(an_addition_may_be_in_place),
        cmocka_unit_test(a_falling_offset_is_checked_at_its_lowest_value),
        cmocka_unit_test(a_site_without_ops_does_not_join_the_rendezvous),
        cmocka_unit_test(ten_thousand_mutants_are_refused_or_accepted_but_never_crash),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
