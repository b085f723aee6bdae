/* SPDX-License-Identifier: Apache-2.0
 *
 * Saved states in the verb run: continuing one, and saving what was generated.
 */
#ifndef TW_TOOLS_SAVED_RUN_H
#define TW_TOOLS_SAVED_RUN_H

#include "tools/engine.h"
#include "tools/prompt.h"

/* Restores the sequence saved at `path`, and says so on standard error. If there is no prompt (n
 * 0), its last token becomes the prompt and is fed again, since the logits after it are not saved.
 * *restored: the tokens before the prompt. Errors: those of tw_session_restore(). */
int saved_run_load(struct engine *e, const char *path, struct prompt *prompt, uint32_t *restored,
                   tw_error *err);

/* Makes the tokens that the session has the history of what is generated; the caller frees
 * *history afterwards. Errors: NOMEM. */
int saved_run_history(const struct engine *e, struct tw_generate_options *g, uint32_t **history,
                      tw_error *err);

/* Saves the session's sequence at `path`, and says so. `last`: the last token generated, or NULL;
 * `end`: the sequence's length with it. tw_generate() does not feed the last token that it chooses,
 * so it is fed first, if there is room. Errors: those of tw_session_save(). */
int saved_run_save(struct engine *e, const char *path, const uint32_t *last, size_t end,
                   tw_error *err);

#endif
