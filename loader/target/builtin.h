/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON text of the built-in targets, in the order of tw_target_names().
 */
#ifndef TW_LOADER_TARGET_BUILTIN_H
#define TW_LOADER_TARGET_BUILTIN_H

#include "tilewright/target.h"

/* Returns the JSON text of target number `index`; NULL if there are fewer. */
const char *tw_target_builtin(unsigned index);

#endif
