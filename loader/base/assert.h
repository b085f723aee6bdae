/* SPDX-License-Identifier: Apache-2.0
 *
 * TW_ASSERT(condition): what must hold unless we have made a mistake. What comes from outside (a
 * file, a packet, a caller's argument) is checked and answered with an error (tilewright/error.h),
 * never asserted.
 *
 * On where TW_ASSERTS is defined: make DEBUG=1, every sanitized and fuzzing build, the builds that
 * run in QEMU. A condition that does not hold ends the process there, with its place on standard
 * error; in freestanding code it traps. Off otherwise: the condition is compiled, so that it stays
 * correct, but not evaluated; it must have no side effect. The analysers take it for granted. Any
 * thread.
 */
#ifndef TW_LOADER_BASE_ASSERT_H
#define TW_LOADER_BASE_ASSERT_H

#if defined(TW_ASSERTS) || defined(__clang_analyzer__)

#if __STDC_HOSTED__
#include <stdio.h>
#include <stdlib.h>
#endif

__attribute__((noreturn, cold, unused)) static void
tw_assert_failed(const char *condition, const char *file, int line, const char *function) {
#if __STDC_HOSTED__
    fprintf(stderr, "%s:%d: %s: assertion failed: %s\n", file, line, function, condition);
    abort();
#else
    (void)condition;
    (void)file;
    (void)line;
    (void)function;
    __builtin_trap();
#endif
}

#define TW_ASSERT(condition) \
    ((condition) ? (void)0 : tw_assert_failed(#condition, __FILE__, __LINE__, __func__))
#else
#define TW_ASSERT(condition) ((void)(0 && (condition)))
#endif

#endif
