/* SPDX-License-Identifier: Apache-2.0
 *
 * Saved states in the verb run (tools/saved_run.h).
 */
#include "tools/saved_run.h"

#include "tilewright/state.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <stdlib.h>

/* Makes the last token of the sequence the prompt. */
static int feed_last_again(struct engine *e, struct prompt *prompt, uint32_t *restored,
                           tw_error *err) {
    uint32_t *ids = malloc((size_t)*restored * sizeof *ids);
    if (!ids) {
        return tw_fail(err, TW_E_NOMEM, "no memory for the restored tokens");
    }
    tw_session_tokens(e->session, ids, *restored);
    ids[0] = ids[--*restored];
    free(prompt->ids);
    prompt->ids = ids;
    prompt->n = 1;
    return tw_session_rewind(e->session, *restored, err);
}

int saved_run_load(struct engine *e, const char *path, struct prompt *prompt, uint32_t *restored,
                   tw_error *err) {
    int code = tw_session_restore(e->session, path, restored, err);
    if (code) {
        return code;
    }
    ui_note("%s: restored %u token%s", path, *restored, text_s(*restored));
    return prompt->n > 0 ? 0 : feed_last_again(e, prompt, restored, err);
}

int saved_run_history(const struct engine *e, struct tw_generate_options *g, uint32_t **history,
                      tw_error *err) {
    size_t n = tw_session_tokens(e->session, NULL, 0);
    *history = n ? malloc(n * sizeof **history) : NULL;
    if (n && !*history) {
        return tw_fail(err, TW_E_NOMEM, "no memory for the restored tokens");
    }
    g->history = *history;
    g->n_history = (uint32_t)tw_session_tokens(e->session, *history, n);
    return 0;
}

int saved_run_save(struct engine *e, const char *path, const uint32_t *last, size_t end,
                   tw_error *err) {
    struct tw_session_saved saved = {.size = sizeof saved};
    uint32_t position = tw_session_position(e->session);
    char bytes[32];
    int code = 0;
    if (last && position + (size_t)1 == end && position < e->session_info.n_ctx) {
        code = tw_session_feed(e->session, last, 1, err);
    }
    code = code ? code : tw_session_save(e->session, path, &saved, err);
    if (!code) {
        ui_note("%s: saved %u token%s; %s %s", path, saved.n_tokens, text_s(saved.n_tokens),
                saved.appended ? "appended" : "wrote", ui_bytes(saved.written_bytes, bytes));
    }
    return code;
}
