/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions: creating and destroying a sequence, and its simple operations. Its pages are in
 * session_pages.c, steps in session_steps.c, what they run on in executor.c.
 */
#include "driver/session/session.h"

#include "loader/base/assert.h"
#include "loader/base/sized.h"
#include "loader/bundle/vocab_open.h"

#include <stdlib.h>

static int check_options(const struct tw_deployment *d, const struct tw_session_options *o,
                         tw_error *err) {
    const struct tw_bundle_note *note = d->decoder->bundle.note;
    if (o->n_ctx > note->n_ctx) {
        return tw_fail(err, TW_E_USAGE,
                       "context of %u positions: %s was compiled for %u; compile it with -c %u",
                       o->n_ctx, d->decoder->bundle.path, note->n_ctx, o->n_ctx);
    }
    if (o->mode != TW_MODE_FAST && o->mode != TW_MODE_STRICT) {
        return tw_fail(err, TW_E_USAGE, "session mode is %u, expected fast (0) or strict (1)",
                       (unsigned)o->mode);
    }
    if (o->prefix_cache > 1 || (o->prefix_salt && !o->prefix_cache)) {
        return tw_fail(err, TW_E_USAGE, "session: %s",
                       o->prefix_cache ? "prefix_cache is neither 0 nor 1"
                                       : "prefix_salt is given, but prefix_cache is 0");
    }
    return 0;
}

int tw_session_check_usable(const struct tw_session *s, tw_error *err) {
    int code = tw_session_check_reset(s, err);
    return code || !s->broken
               ? code
               : tw_fail(
                     err, TW_E_FAULT,
                     "session: an earlier step failed or was interrupted; create a new session");
}

/* Begins a session of these checked options; *out is complete enough to be destroyed. */
static int begin(tw_deployment *d, const struct tw_session_options *o, struct tw_session **out,
                 tw_error *err) {
    const struct tw_bundle_note *note = d->decoder->bundle.note;
    struct tw_session *s = calloc(1, sizeof *s);
    *out = s;
    if (!s) {
        return tw_fail(err, TW_E_NOMEM, "session: out of memory");
    }
    s->deployment = d;
    tw_deployment_retain(d);
    s->mode = o->mode;
    s->options = *o;
    s->stop[0] = o->stop;
    s->n_vocab = note->n_vocab;
    tw_session_begin_prefix(s);
    s->n_ctx = o->n_ctx ? o->n_ctx : note->n_ctx;
    s->logits_copy = calloc(s->n_vocab, sizeof *s->logits_copy);
    int code = s->logits_copy ? tw_session_make_pages(s, err)
                              : tw_fail(err, TW_E_NOMEM, "session: out of memory");
    s->ids = code ? NULL : calloc(s->n_ctx, sizeof *s->ids);
    if (!code && !s->ids) {
        code = tw_fail(err, TW_E_NOMEM, "session: out of memory");
    }
    return code ? code : tw_executor_get(s, err);
}

int tw_session_create(tw_deployment *deployment, const struct tw_session_options *options,
                      tw_session **out, tw_error *err) {
    struct tw_session_options given;
    const struct tw_session_options *o = &given;
    int code = TW_NEED_2(err, deployment, out);
    code = code ? code : tw_sized_read(__func__, &given, sizeof given, options, err);
    code = code ? code : check_options(deployment, o, err);
    code = code ? code : tw_device_check_reset(deployment->device, deployment->resets, err);
    if (code) {
        return code;
    }
    struct tw_session *s;
    code = begin(deployment, o, &s, err);
    if (code) {
        tw_session_destroy(s);
        return code;
    }
    *out = s;
    return 0;
}

int tw_session_fork(const tw_session *session, tw_session **out, tw_error *err) {
    const struct tw_session *from = session;
    struct tw_session *s;
    int code = TW_NEED_2(err, session, out);
    code = code ? code : tw_session_check_usable(from, err);
    if (code) {
        return code;
    }
    if (!from->executor->shared) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "%s: its state is not in pages, so that a session cannot be forked; compile "
                       "the model again",
                       from->deployment->decoder->bundle.path);
    }
    code = begin(from->deployment, &from->options, &s, err);
    if (code) {
        tw_session_destroy(s);
        return code;
    }
    tw_session_share_pages(s, from);
    memcpy(s->prefix_root, from->prefix_root, sizeof s->prefix_root);
    s->foreign = from->foreign;
    s->position = from->position;
    memcpy(s->ids, from->ids, from->position * sizeof *s->ids);
    s->text = from->text;
    if (from->logits) {
        memcpy(s->logits_copy, from->logits, s->n_vocab * sizeof *s->logits_copy);
        s->logits = s->logits_copy;
    }
    *out = s;
    return 0;
}

void tw_session_destroy(tw_session *s) {
    if (!s) {
        return;
    }
    tw_session_leave_prefix(s, true);
    tw_session_free_pages(s);
    tw_executor_put(s);
    tw_deployment_destroy(s->deployment);
    free(s->logits_copy);
    free(s->ids);
    free(s);
}

int tw_session_get_info(const tw_session *session, struct tw_session_info *info, tw_error *err) {
    const struct tw_session *s = session;
    int code = TW_NEED(err, session);
    code = code ? code : tw_sized_check(__func__, info, err);
    if (code) {
        return code;
    }
    struct tw_session_info i = {.size = sizeof i,
                                .n_vocab = s->n_vocab,
                                .n_ctx = s->n_ctx,
                                .chunk = s->chunk,
                                .n_threads = s->executor->n_threads,
                                .position = s->position,
                                .pages = s->pages.n,
                                .n_reused = s->n_reused,
                                .batch = s->executor->batch_rows,
                                .steps = s->steps,
                                .mode = s->mode == TW_MODE_STRICT ? "strict" : "fast",
                                .target = s->deployment->decoder->bundle.note->target,
                                .device = s->deployment->device->selector};
    tw_sized_write(info, &i, sizeof i);
    return 0;
}

int tw_session_check_feed(const struct tw_session *s, const uint32_t *ids, size_t n,
                          tw_error *err) {
    int code = tw_session_check_usable(s, err);
    if (code) {
        return code;
    }
    if (n == 0) {
        return tw_fail(err, TW_E_USAGE, "session: no tokens to feed");
    }
    if (n > s->n_ctx - s->position) {
        return tw_fail(
            err, TW_E_CONTEXT_FULL,
            "the context is full: %zu more token%s at position %u of %u; use a larger context (-c)",
            n, n == 1 ? "" : "s", s->position, s->n_ctx);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= s->n_vocab) {
            return tw_fail(err, TW_E_RANGE,
                           "token id %u at index %zu: expected an id below %u, the size of the "
                           "vocabulary",
                           ids[i], i, s->n_vocab);
        }
    }
    return 0;
}

const float *tw_session_logits(const tw_session *s) {
    return s && !tw_session_check_reset(s, NULL) ? s->logits : NULL;
}

uint32_t tw_session_position(const tw_session *s) {
    return s ? s->position : 0;
}

void tw_session_drop_tokens(struct tw_session *s, uint32_t position) {
    TW_ASSERT(position <= s->position);
    /* Attention reads only positions below the step's end, so later ones need not be cleared. */
    s->position = position;
    s->foreign = s->foreign && position > 0;
    s->logits = NULL;
    tw_session_drop_pages(s, position);
}

int tw_session_rewind(tw_session *session, uint32_t position, tw_error *err) {
    struct tw_session *s = session;
    int code = TW_NEED(err, session);
    if (code) {
        return code;
    }
    if (position > s->position) {
        return tw_fail(err, TW_E_USAGE, "rewind to position %u: the session is at %u", position,
                       s->position);
    }
    if (position / TW_KV_BLOCK < s->position / TW_KV_BLOCK) {
        tw_session_leave_prefix(s, false); /* a whole page would be lost */
    }
    tw_session_drop_tokens(s, position);
    memset(&s->text.utf8, 0, sizeof s->text.utf8);
    return 0;
}
