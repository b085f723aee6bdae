/* SPDX-License-Identifier: Apache-2.0
 *
 * Included first by every unit test: cmocka, the headers that it requires before it, and those of
 * the C library that nearly all tests use.
 */
#ifndef TW_TESTS_SUPPORT_TEST_H
#define TW_TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#endif
