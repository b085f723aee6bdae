/* SPDX-License-Identifier: Apache-2.0
 *
 * A bundle whose decode step takes minutes and breaks no rule: a copy of another bundle in which
 * one op of its "decode" program is repeated by a loop over a trip, just within the step budget
 * (rule 29). Its prefill program is as before.
 */
#ifndef TW_TESTS_SUPPORT_LONG_STEP_H
#define TW_TESTS_SUPPORT_LONG_STEP_H

#include "tilewright/error.h"

/* Copies the bundle `from` to the file `to`. Errors: those of opening, certifying and writing a
 * bundle; FORMAT (there is no op to repeat). */
int long_step_write(const char *from, const char *to, tw_error *err);

#endif
