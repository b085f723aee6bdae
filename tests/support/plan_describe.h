/* SPDX-License-Identifier: Apache-2.0
 *
 * The contents of a plan, for tests: its figures, and its entries as text.
 */
#ifndef TW_TESTS_SUPPORT_PLAN_DESCRIBE_H
#define TW_TESTS_SUPPORT_PLAN_DESCRIBE_H

#include "firmware/core/tile_machine.h"

struct tw_plan_stats plan_stats(const struct tw_plan *plan);
/* Writes the line of the entry `index` of a thread's plan into buf. Returns the entry after it, or
 * 0 at the end. */
uint32_t plan_describe(const struct tw_plan *plan, uint32_t thread, uint32_t index, char *buf,
                       size_t size);

#endif
