/* SPDX-License-Identifier: Apache-2.0
 *
 * What every unit test begins with: cmocka, the headers that it wants before it, and those of the C
 * library that nearly all tests use.
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
