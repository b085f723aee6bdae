/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions: creating and destroying a sequence's memory on the device, and its simple operations.
 * Steps are in session_steps.c.
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
    if (note->n_vocab == 0 || note->n_vocab > TW_MAX_VOCAB || note->n_ctx == 0) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: its note has a vocabulary of %u tokens and a context of %u positions, "
                       "expected 1 to %u tokens and at least 1 position",
                       d->decoder->bundle.path, note->n_vocab, note->n_ctx, TW_MAX_VOCAB);
    }
    return 0;
}

/* State and scratch are the session's own, so that sessions share nothing but weights. */
static int make_segments(struct tw_session *s, tw_error *err) {
    const struct tw_bundle *b = &s->deployment->decoder->bundle;
    s->segment_address = calloc(b->n_segments + 1, sizeof *s->segment_address);
    if (!s->segment_address) {
        return tw_fail(err, TW_E_NOMEM, "session: out of memory");
    }
    for (uint32_t i = 0; i < b->n_segments; i++) {
        if (b->segments[i].kind == TW_SEG_PARAM) {
            s->segment_address[i] = s->deployment->segment_address[i];
            continue;
        }
        int code = tw_device_alloc(s->deployment->device, b->segments[i].size, 64, true,
                                   &s->segment_address[i], err);
        if (code) {
            return code;
        }
    }
    return 0;
}

static int make_bindings(struct tw_session *s, tw_error *err) {
    const struct tw_bundle *b = &s->deployment->decoder->bundle;
    size_t n = (size_t)b->n_bind_rows;
    s->bind = calloc(n + 1, sizeof *s->bind);
    s->logits_copy = calloc(s->n_vocab, sizeof *s->logits_copy);
    if (!s->bind || !s->logits_copy) {
        return tw_fail(err, TW_E_NOMEM, "session: out of memory");
    }
    tw_bundle_relocate(b, s->segment_address, s->bind);
    int code = tw_device_alloc(s->deployment->device, n * sizeof *s->bind, 64, false,
                               &s->bind_address, err);
    return code ? code
                : tw_device_write(s->deployment->device, s->bind_address, s->bind,
                                  n * sizeof *s->bind, err);
}

static int make_interrupt(struct tw_session *s, tw_error *err) {
    struct tw_device *device = s->deployment->device;
    s->interrupt = &s->own_interrupt;
    if (!tw_device_map(device, s->bind_address, 8)) {
        return 0; /* the device does not share memory, so it could not see the word */
    }
    int code = tw_device_alloc(device, sizeof *s->interrupt, 64, true, &s->interrupt_address, err);
    if (!code) {
        s->interrupt = tw_device_map(device, s->interrupt_address, sizeof *s->interrupt);
    }
    return code;
}

static int make_programs(struct tw_session *s, const struct tw_session_options *o, tw_error *err) {
    static const struct session_output logits = {"logits", false};
    int code = tw_session_load_program(s, "decode", &logits, &s->decode, err);
    if (!code && !s->decode.program) {
        return tw_fail(err, TW_E_FORMAT, "%s: it has no program \"decode\"",
                       s->deployment->decoder->bundle.path);
    }
    if (!code && o->chunk != 1) {
        code = tw_session_load_program(s, "prefill", &logits, &s->prefill, err);
    }
    uint32_t max = s->prefill.program ? s->prefill.rows : 1;
    s->chunk = o->chunk && o->chunk < max ? o->chunk : max;
    return code;
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
    struct tw_session *s = calloc(1, sizeof *s);
    if (!s) {
        return tw_fail(err, TW_E_NOMEM, "session: out of memory");
    }
    const struct tw_bundle_note *note = deployment->decoder->bundle.note;
    s->deployment = deployment;
    tw_deployment_retain(deployment);
    s->mode = o->mode;
    s->options = *o;
    s->stop[0] = o->stop;
    s->n_vocab = note->n_vocab;
    s->n_ctx = o->n_ctx ? o->n_ctx : note->n_ctx;
    code = make_segments(s, err);
    code = code ? code : make_bindings(s, err);
    code = code ? code : make_interrupt(s, err);
    code = code ? code : make_programs(s, o, err);
    if (code) {
        tw_session_destroy(s);
        return code;
    }
    *out = s;
    return 0;
}

/* Frees nothing after a reset: the addresses may belong to another session by now. */
static void free_device_memory(struct tw_session *s) {
    const struct tw_bundle *b = &s->deployment->decoder->bundle;
    struct tw_device *device = s->deployment->device;
    if (tw_session_check_reset(s, NULL)) {
        return;
    }
    tw_device_free(device, s->bind_address);
    tw_device_free(device, s->interrupt_address);
    for (uint32_t i = 0; s->segment_address && i < b->n_segments; i++) {
        if (b->segments[i].kind != TW_SEG_PARAM) {
            tw_device_free(device, s->segment_address[i]);
        }
    }
}

void tw_session_destroy(tw_session *s) {
    if (!s) {
        return;
    }
    tw_session_unload_program(s, &s->score);
    tw_session_unload_program(s, &s->prefill);
    tw_session_unload_program(s, &s->decode);
    free_device_memory(s);
    tw_deployment_destroy(s->deployment);
    free(s->segment_address);
    free(s->bind);
    free(s->logits_copy);
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
                                .n_threads = s->n_threads,
                                .position = s->position,
                                .steps = s->steps,
                                .mode = s->mode == TW_MODE_STRICT ? "strict" : "fast",
                                .target = s->deployment->decoder->bundle.note->target,
                                .device = s->deployment->device->selector};
    tw_sized_write(info, &i, sizeof i);
    return 0;
}

int tw_session_check_feed(const struct tw_session *s, const uint32_t *ids, size_t n,
                          tw_error *err) {
    int code = tw_session_check_reset(s, err);
    if (code) {
        return code;
    }
    if (s->broken) {
        return tw_fail(err, TW_E_FAULT,
                       "session: an earlier step failed or was interrupted; create a new session");
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
    s->logits = NULL;
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
    tw_session_drop_tokens(s, position);
    memset(&s->text.utf8, 0, sizeof s->text.utf8);
    return 0;
}
