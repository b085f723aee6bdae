/* SPDX-License-Identifier: Apache-2.0
 *
 * state save, state load (state_model.h).
 */
#include "tools/state_model.h"

#include "loader/base/clock.h"
#include "tilewright/state.h"
#include "tools/text.h"
#include "tools/ui.h"

static int print_saved(const char *path, const struct tw_session_saved *s, bool json,
                       tw_error *err) {
    char bytes[32];
    if (json) {
        return ui_print_json(
            json_pack("{s:o, s:I, s:b, s:I, s:I}", "path", text_json(path), "tokens",
                      (json_int_t)s->n_tokens, "appended", (int)s->appended, "written_bytes",
                      (json_int_t)s->written_bytes, "bytes", (json_int_t)s->file_bytes),
            err);
    }
    printf("%s: saved %u token%s; %s %s\n", text_clean(path).text, s->n_tokens, text_s(s->n_tokens),
           s->appended ? "appended" : "wrote", ui_bytes(s->written_bytes, bytes));
    return ui_flush(err);
}

int state_model_save(const char *model, const char *path, const struct engine_options *o,
                     const struct prompt_options *given, bool special, bool json, tw_error *err) {
    struct tw_session_saved saved = {.size = sizeof saved};
    struct prompt prompt;
    struct engine e;
    int code = engine_open(&e, model, o, err);
    if (code) {
        return code;
    }
    code = prompt_read(given, special, e.source.decoder, &prompt, err);
    ui_catch_interrupts();
    code = code ? code : tw_session_feed(e.session, prompt.ids, prompt.n, err);
    code = code ? code : tw_session_save(e.session, path, &saved, err);
    code = code ? code : print_saved(path, &saved, json, err);
    prompt_finish(&prompt);
    engine_close(&e);
    return code;
}

static int print_restored(const struct engine *e, const char *path, uint32_t n, double seconds,
                          bool json, tw_error *err) {
    uint32_t n_ctx = e->session_info.n_ctx;
    if (json) {
        return ui_print_json(json_pack("{s:o, s:s, s:s, s:I, s:I, s:f}", "path", text_json(path),
                                       "model", e->info.model, "target", e->session_info.target,
                                       "tokens", (json_int_t)n, "n_ctx", (json_int_t)n_ctx,
                                       "restore_s", seconds),
                             err);
    }
    printf("%s: restored %u token%s in %.1f ms; %u more fit the context of %u\n",
           text_clean(path).text, n, text_s(n), 1e3 * seconds, n_ctx - n, n_ctx);
    return ui_flush(err);
}

int state_model_load(const char *model, const char *path, const struct engine_options *o, bool json,
                     tw_error *err) {
    uint32_t n = 0;
    struct engine e;
    int code = engine_open(&e, model, o, err);
    if (code) {
        return code;
    }
    double start = tw_clock_s();
    code = tw_session_restore(e.session, path, &n, err);
    code = code ? code : print_restored(&e, path, n, tw_clock_s() - start, json, err);
    engine_close(&e);
    return code;
}
