/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the error object: what tw_fail stores in it and returns.
 */
#include "loader/base/assert.h"
#include "tilewright/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int refuse(tw_error *err, int number) {
    return tw_fail(err, TW_E_RANGE, "number %d of %s", number, "a\nfile");
}

static void fail_returns_the_code_and_fills_one_printable_line(void **state) {
    (void)state;
    tw_error err = {0};
    assert_int_equal(refuse(&err, 7), TW_E_RANGE);
    assert_int_equal(err.code, TW_E_RANGE);
    assert_string_equal(err.message, "number 7 of a?file");
}

static void fail_returns_the_code_to_a_caller_without_an_error_object(void **state) {
    (void)state;
    assert_int_equal(refuse(NULL, 7), TW_E_RANGE);
}

static void fail_evaluates_each_argument_except_the_code_once(void **state) {
    (void)state;
    tw_error err[2] = {{0}}, *at = err;
    int n = 0;
    assert_int_equal(tw_fail(at++, TW_E_IO, "%d", ++n), TW_E_IO);
    assert_ptr_equal(at, err + 1);
    assert_int_equal(n, 1);
    assert_string_equal(err[0].message, "1");
}

static void a_prefix_and_a_suffix_keep_the_code(void **state) {
    (void)state;
    tw_error err = {0};
    tw_error_set(&err, TW_E_FORMAT, "line %d", 3);
    tw_error_prefix(&err, "file");
    tw_error_append(&err, "; %s", "see\tabove");
    assert_int_equal(err.code, TW_E_FORMAT);
    assert_string_equal(err.message, "file: line 3; see?above");
    tw_error_prefix(NULL, "file");
    tw_error_append(NULL, "more");
}

static void what_does_not_fit_is_cut_and_terminated(void **state) {
    (void)state;
    char text[2 * sizeof((tw_error *)0)->message];
    tw_error err = {0};
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    tw_error_set(&err, TW_E_IO, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    tw_error_prefix(&err, "p");
    tw_error_append(&err, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_memory_equal(err.message, "p: x", 4);
}

/* With assertions off, the condition is compiled but not evaluated; on, a true one does nothing. */
static void an_assertion_that_holds_has_no_effect(void **state) {
    (void)state;
    int evaluated = 0;
    TW_ASSERT(++evaluated);
#ifdef TW_ASSERTS
    assert_int_equal(evaluated, 1);
#else
    assert_int_equal(evaluated, 0);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_returns_the_code_and_fills_one_printable_line),
        cmocka_unit_test(fail_returns_the_code_to_a_caller_without_an_error_object),
        cmocka_unit_test(fail_evaluates_each_argument_except_the_code_once),
        cmocka_unit_test(a_prefix_and_a_suffix_keep_the_code),
        cmocka_unit_test(what_does_not_fit_is_cut_and_terminated),
        cmocka_unit_test(an_assertion_that_holds_has_no_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
