/* SPDX-License-Identifier: Apache-2.0
 *
 * What the command requires of a model file before it is compiled.
 */
#ifndef TW_TOOLS_MODEL_H
#define TW_TOOLS_MODEL_H

#include "tilewright/compile.h"

/* Refuses a model without a tokenizer: says why, and what works without text. Errors:
 * UNSUPPORTED. */
int model_need_tokenizer(const char *path, const struct tw_model_info *model, tw_error *err);

#endif
