/* SPDX-License-Identifier: Apache-2.0
 *
 * Saved states in the verb state that need a model: making one of a prompt, and trying one.
 */
#ifndef TW_TOOLS_STATE_MODEL_H
#define TW_TOOLS_STATE_MODEL_H

#include "tools/engine.h"
#include "tools/prompt.h"

/* Feeds the prompt to the model and saves the sequence at `path`; says so on standard output.
 * Errors: those of engine_open(), prompt_read(), tw_session_feed() and tw_session_save(). */
int state_model_save(const char *model, const char *path, const struct engine_options *o,
                     const struct prompt_options *prompt, bool special, bool json, tw_error *err);
/* Restores the sequence saved at `path` on the model, and says how many tokens it has, how long
 * that took, and how many more fit the context. Errors: those of engine_open() and
 * tw_session_restore(). */
int state_model_load(const char *model, const char *path, const struct engine_options *o, bool json,
                     tw_error *err);

#endif
