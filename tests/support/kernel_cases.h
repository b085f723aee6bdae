/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments for every kernel: random, ragged, hostile, with infinities and NaNs; the same on every
 * machine. The caller's function checks them.
 */
#ifndef TW_TESTS_SUPPORT_KERNEL_CASES_H
#define TW_TESTS_SUPPORT_KERNEL_CASES_H

#include "tests/support/kernel_fixture.h"

/* p[out], `bytes` long, is the op's destination. Leaves the scalar kernel's result there. */
typedef void kernel_check(uint32_t op, const struct tw_kargs *args, unsigned out, size_t bytes,
                          enum fixture_kind kind, const char *what);

struct kernel_case {
    const char *name;
    void (*run)(kernel_check *check);
};

#define KERNEL_CASES 24u
extern const struct kernel_case kernel_cases[KERNEL_CASES];

#endif
