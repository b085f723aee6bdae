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

/* 1 in a build with that sanitizer: such a test does less, or does not count memory. */
#ifdef __has_feature /* clang */
#define TEST_HAS(feature) __has_feature(feature)
#else
#define TEST_HAS(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || TEST_HAS(address_sanitizer)
#define TEST_ASAN 1
#else
#define TEST_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || TEST_HAS(thread_sanitizer)
#define TEST_TSAN 1
#else
#define TEST_TSAN 0
#endif

#endif
