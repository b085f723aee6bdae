/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps. While two or more tokens are left, a prefill step takes as many as it can; a single one is
 * fed by the decode program. The steps of a batch, and the read of the last one's logits, are sent
 * without waiting for each other's answers.
 */
#include "driver/session/session.h"

#include "loader/base/assert.h"
#include "loader/base/sized.h"
#include "tilewright/numerics.h"

struct step {
    struct session_program *program;
    uint8_t *request;
    uint32_t rows;
    struct tw_wire_done done;
    struct tw_wire_failure failure;
};

/* Steps that are sent together. */
struct batch {
    struct step step[TW_DEVICE_IN_FLIGHT];
    uint64_t n_steps;
    bool prompt; /* the tokens were given, not generated */
    const volatile sig_atomic_t *const *stop;
    struct tw_device_read logits; /* after the steps */
};

uint8_t *tw_session_set_inputs(const struct tw_session *s, const struct session_program *p,
                               uint32_t copy, uint32_t position, const uint32_t *ids,
                               uint32_t rows) {
    const struct session_pages *w = &s->window;
    const uint32_t origin = w->first * TW_KV_BLOCK, end = position + rows;
    const uint32_t value[IN_WINDOW_PAGES] = {0,   position,          rows,
                                             end, position - origin, end - origin};
    uint8_t *request = p->request + (size_t)copy * p->stride;
    uint8_t *to = request + p->input[IN_IDS];
    struct tw_wire_run *run = (struct tw_wire_run *)(void *)request;
    run->scheduler = s->options.random_schedule ? 1 : 0;
    run->seed = s->options.seed;
    memcpy(to, ids, rows * sizeof *ids);
    memset(to + rows * sizeof *ids, 0, (p->rows - rows) * sizeof *ids);
    for (uint32_t i = IN_POS; i < IN_WINDOW_PAGES; i++) {
        if (p->input[i] != TW_NONE) {
            memcpy(request + p->input[i], &value[i], sizeof value[i]);
        }
    }
    if (p->input[IN_WINDOW_PAGES] != TW_NONE) {
        TW_ASSERT(w->n <= p->window_slots);
        memcpy(request + p->input[IN_WINDOW_PAGES], w->page, w->n * sizeof *w->page);
    }
    return request;
}

int tw_session_fetch_logits(struct tw_session *s, const struct session_program *p, tw_error *err) {
    uint64_t bytes = (uint64_t)s->n_vocab * sizeof *s->logits_copy;
    int code = 0;
    if (!p->logits_mapped) {
        code = tw_device_read(s->deployment->device, p->logits_address, s->logits_copy, bytes, err);
    } else if (s->executor->shared) { /* the next step may be another session's */
        memcpy(s->logits_copy, p->logits_mapped, (size_t)bytes);
    }
    s->logits = code                                       ? NULL
                : p->logits_mapped && !s->executor->shared ? p->logits_mapped
                                                           : s->logits_copy;
    return code;
}

static void fill(void *ctx, uint64_t i, struct tw_device_call *call) {
    struct batch *r = ctx;
    if (i >= r->n_steps) {
        tw_device_read_fill(&r->logits, i - r->n_steps, call);
        call->stop = r->stop;
        return;
    }
    struct step *t = &r->step[i];
    *call = (struct tw_device_call){.opcode = TW_WIRE_RUN,
                                    .payload = t->request,
                                    .bytes = t->program->request_bytes,
                                    .out = &t->done,
                                    .out_bytes = sizeof t->done,
                                    .failure = &t->failure,
                                    .stop = r->stop};
}

/* Plans the next steps for n tokens, and moves the window through them. *taken: how many tokens
 * they take. Errors: those of tw_session_slide(). */
static int plan(struct tw_session *s, const uint32_t *ids, size_t n, struct batch *r, size_t *taken,
                tw_error *err) {
    size_t at = 0;
    for (r->n_steps = 0; at < n && r->n_steps < TW_DEVICE_IN_FLIGHT; r->n_steps++) {
        struct step *t = &r->step[r->n_steps];
        size_t left = n - at;
        bool chunked = left > 1 && s->chunk > 1;
        uint32_t position = s->position + (uint32_t)at;
        if (r->n_steps && tw_session_leaves_behind(s, position)) {
            break; /* pages that an earlier step needs would be free before it has run */
        }
        t->program = chunked ? &s->executor->prefill : &s->executor->decode;
        t->rows = !chunked ? 1 : left < s->chunk ? (uint32_t)left : s->chunk;
        int code = tw_session_slide(s, position, position + t->rows, err);
        if (code) {
            return code;
        }
        t->request =
            tw_session_set_inputs(s, t->program, (uint32_t)r->n_steps, position, ids + at, t->rows);
        t->failure = (struct tw_wire_failure){.site = TW_NONE, .stage = TW_NONE};
        at += t->rows;
    }
    *taken = at;
    return 0;
}

void tw_session_report(const struct tw_session *s, uint32_t n, uint32_t steps, bool prompt) {
    const struct tw_status_step step = {
        .tokens = n, .steps = steps, .prompt = prompt, .position = s->position, .n_ctx = s->n_ctx};
    tw_status_step(&s->deployment->device->status, &step);
}

int tw_session_break(struct tw_session *s, int code, const tw_error *err) {
    struct tw_device *device = s->deployment->device;
    struct tw_executor *x = s->executor;
    s->broken = x->decode.broken = x->prefill.broken = x->score.broken = true;
    s->logits = NULL;
    if (err) {
        /* more specific than the device's own message */
        tw_status_fail(&device->status, device->lost != 0, err->message);
    }
    return code;
}

/* Counts the first n steps, which were done. */
static void count_steps(struct tw_session *s, const struct batch *r, uint64_t n) {
    uint32_t tokens = 0;
    for (uint64_t i = 0; i < n; i++) {
        const struct step *t = &r->step[i];
        memmove(s->ids + s->position + tokens, t->request + t->program->input[IN_IDS],
                t->rows * sizeof *s->ids);
        tokens += t->rows;
    }
    s->position += tokens;
    s->steps += n;
    if (n) {
        tw_session_report(s, tokens, (uint32_t)n, r->prompt);
    }
}

static int explain_numbers(struct tw_session *s, const struct batch *r, tw_error *err) {
    const struct session_program *programs[TW_DEVICE_IN_FLIGHT];
    uint8_t *requests[TW_DEVICE_IN_FLIGHT];
    for (uint64_t i = 0; i < r->n_steps; i++) {
        programs[i] = r->step[i].program;
        requests[i] = r->step[i].request;
    }
    return tw_session_explain_numbers(s, programs, requests, r->n_steps, err);
}

static bool best_is_finite(const struct tw_top *lists, uint32_t n) {
    uint32_t at = tw_top_first(lists, n);
    return at < n && tw_first_not_finite(&lists[at].value, 1) == 1;
}

/* Sees to it that the programs of the steps can run, with this session's pages. */
static int make_ready(struct tw_session *s, const struct batch *r, tw_error *err) {
    int code = 0;
    for (uint64_t i = 0; i < r->n_steps && !code; i++) {
        struct session_program *p = r->step[i].program;
        code = i > 0 && p == r->step[i - 1].program ? 0 : tw_executor_mend(s->executor, p, err);
        code = code ? code : tw_session_write_table(s, p->table[0], err);
    }
    return code;
}

/* Prepares to read what is wanted of the last step, as part of the batch; returns how many requests
 * that takes. */
static uint64_t begin_reads(struct tw_session *s, struct batch *r, bool lists) {
    const struct session_program *last = r->step[r->n_steps - 1].program;
    struct tw_device *device = s->deployment->device;
    if (lists) {
        s->n_lists = last->n_choices;
        return tw_device_read_begin(&r->logits, device, last->choice_address, s->lists,
                                    s->n_lists * sizeof *s->lists);
    }
    return tw_device_read_begin(&r->logits, device, last->logits_address, s->logits_copy,
                                (uint64_t)s->n_vocab * 4);
}

/* Runs the steps, and fetches the logits of the last one, or the lists of the best, if
 * `wanted`. */
static int run(struct tw_session *s, struct batch *r, bool wanted, tw_error *err) {
    const struct session_program *last = r->step[r->n_steps - 1].program;
    uint64_t reads = 0, n_good = 0;
    bool lists = wanted && s->lists;
    wanted = wanted && !lists;
    s->logits = NULL;
    int code = make_ready(s, r, err);
    if (code) {
        return code; /* nothing has run */
    }
    if (lists || (wanted && !last->logits_mapped)) {
        reads = begin_reads(s, r, lists);
        s->logits = lists ? NULL : s->logits_copy;
    }
    code = tw_device_call_many(s->deployment->device, r->n_steps + reads, fill, r, &n_good, err);
    count_steps(s, r, n_good < r->n_steps ? n_good : r->n_steps);
    if (!code) {
        code = tw_bundle_intact(&s->deployment->decoder->bundle, err);
    } else if (n_good < r->n_steps) {
        code = tw_session_explain(s, r->step[n_good].program, &r->step[n_good].failure, code, err);
    }
    if (!code && wanted && last->logits_mapped) {
        code = tw_session_fetch_logits(s, last, err);
    }
    bool bad = !code && (lists    ? !best_is_finite(s->lists, s->n_lists)
                         : wanted ? tw_first_not_finite(s->logits, s->n_vocab) < s->n_vocab
                                  : false);
    if (bad) {
        code = explain_numbers(s, r, err);
    }
    if (code == TW_E_INTERRUPTED && !s->deployment->device->lost && n_good < r->n_steps &&
        !tw_session_was_cut(&r->step[n_good].failure)) {
        s->logits = NULL; /* between two steps: the session can continue */
        return code;
    }
    return code ? tw_session_break(s, code, err) : 0;
}

int tw_session_take_pages(struct tw_session *s, size_t n, tw_error *err) {
    pthread_mutex_lock(&s->executor->lock);
    int code = tw_session_own_pages(s, s->position, s->position + (uint32_t)n, err);
    pthread_mutex_unlock(&s->executor->lock);
    return code;
}

/* Feeds as many tokens as a batch takes; returns how many in *taken. */
static int feed_batch(struct tw_session *s, const uint32_t *ids, size_t n, bool prompt, bool wanted,
                      size_t *taken, tw_error *err) {
    struct batch r = {.prompt = prompt, .stop = s->stop};
    pthread_mutex_lock(&s->executor->lock);
    int code = plan(s, ids, n, &r, taken, err);
    code = code ? tw_session_break(s, code, err) : run(s, &r, wanted && *taken == n, err);
    pthread_mutex_unlock(&s->executor->lock);
    return code;
}

int tw_session_feed_alone(struct tw_session *s, const uint32_t *ids, size_t n, bool prompt,
                          bool wanted, tw_error *err) {
    int code = 0;
    while (!code && n) {
        size_t taken = 0;
        if (tw_session_stopped(s)) {
            code =
                tw_fail(err, TW_E_INTERRUPTED, "session: interrupted at position %u", s->position);
        } else {
            code = feed_batch(s, ids, n, prompt, wanted, &taken, err);
        }
        ids += taken;
        n -= taken;
    }
    return code;
}

/* Feeds checked tokens. */
static int feed(struct tw_session *s, const uint32_t *ids, size_t n, bool prompt, tw_error *err) {
    int code = tw_session_take_pages(s, n, err);
    if (!code) {
        code = tw_session_feed_alone(s, ids, n, prompt, true, err);
        tw_session_drop_pages(s, s->position);
    }
    return code;
}

int tw_session_restore_window(struct tw_session *s, tw_error *err) {
    uint32_t n = s->position;
    if (!s->window_lost) {
        return 0;
    }
    s->position = 0;
    tw_session_drop_pages(s, 0);
    int code = feed(s, s->ids, n, true, err);
    if (code) { /* no page may be taken for one of all positions up to n */
        tw_session_drop_pages(s, 0);
    } else {
        s->foreign = false;
    }
    s->window_lost = code != 0;
    s->position = n;
    return code;
}

int tw_session_feed(tw_session *session, const uint32_t *ids, size_t n, tw_error *err) {
    struct tw_session *s = session;
    int code = TW_NEED(err, session);
    code = code || n == 0 ? code : TW_NEED(err, ids);
    code = code ? code : tw_session_check_feed(s, ids, n, err);
    code = code ? code : tw_session_restore_window(s, err);
    return code ? code : feed(s, ids, n, n > 1, err);
}

/* ---- the logits of all rows ---- */

static int load_score(struct tw_session *s, tw_error *err) {
    static const struct session_output scores = {"scores", true, false};
    struct tw_executor *x = s->executor;
    pthread_mutex_lock(&x->lock);
    int code = tw_session_load_program(x, "score", &scores, &x->score, err);
    bool missing = !x->score.program;
    pthread_mutex_unlock(&x->lock);
    return code || !missing
               ? code
               : tw_fail(err, TW_E_UNSUPPORTED,
                         "%s: it has no program that gives the logits of all tokens; compile the "
                         "model with --logits all",
                         s->deployment->decoder->bundle.path);
}

/* Copies the rows of the last step. */
static int take_rows(struct tw_session *s, uint32_t rows, float *logits, tw_error *err) {
    const struct session_program *p = &s->executor->score;
    size_t row_bytes = (size_t)s->n_vocab * sizeof *logits;
    for (uint32_t i = 0; i < rows; i++) {
        float *to = logits + (size_t)i * s->n_vocab;
        uint64_t at = i * p->logits_stride;
        if (p->logits_mapped) {
            memcpy(to, (const uint8_t *)p->logits_mapped + at, row_bytes);
            continue;
        }
        int code =
            tw_device_read(s->deployment->device, p->logits_address + at, to, row_bytes, err);
        if (code) {
            return tw_session_break(s, code, err);
        }
    }
    return 0;
}

static int score_step(struct tw_session *s, const uint32_t *ids, uint32_t rows, float *logits,
                      tw_error *err) {
    struct batch r = {.n_steps = 1, .prompt = true, .stop = s->stop};
    struct step *t = &r.step[0];
    t->program = &s->executor->score;
    t->rows = rows;
    int code = tw_session_slide(s, s->position, s->position + rows, err);
    if (code) {
        return tw_session_break(s, code, err);
    }
    t->request = tw_session_set_inputs(s, t->program, 0, s->position, ids, rows);
    t->failure = (struct tw_wire_failure){.site = TW_NONE, .stage = TW_NONE};
    code = run(s, &r, false, err);
    code = code ? code : take_rows(s, rows, logits, err);
    if (code) {
        return code;
    }
    for (uint32_t i = 0; i < rows; i++) {
        const float *row = logits + (size_t)i * s->n_vocab;
        if (tw_first_not_finite(row, s->n_vocab) < s->n_vocab) {
            return tw_session_break(s, explain_numbers(s, &r, err), err);
        }
    }
    memcpy(s->logits_copy, logits + (size_t)(rows - 1) * s->n_vocab,
           s->n_vocab * sizeof *s->logits_copy);
    s->logits = s->logits_copy;
    return 0;
}

int tw_session_score(tw_session *session, const uint32_t *ids, size_t n, float *logits,
                     tw_error *err) {
    struct tw_session *s = session;
    int code = TW_NEED_3(err, session, ids, logits);
    code = code ? code : tw_session_check_feed(s, ids, n, err);
    code = code ? code : load_score(s, err);
    code = code ? code : tw_session_restore_window(s, err);
    if (code) {
        return code;
    }
    uint32_t most = s->executor->score.rows, chunk = s->options.chunk;
    most = chunk && chunk < most ? chunk : most;
    code = tw_session_take_pages(s, n, err);
    if (code) {
        return code;
    }
    memcpy(s->ids + s->position, ids, n * sizeof *ids);
    while (!code && n) {
        uint32_t rows = n < most ? (uint32_t)n : most;
        if (tw_session_stopped(s)) {
            code =
                tw_fail(err, TW_E_INTERRUPTED, "session: interrupted at position %u", s->position);
            break;
        }
        pthread_mutex_lock(&s->executor->lock);
        code = score_step(s, ids, rows, logits, err);
        pthread_mutex_unlock(&s->executor->lock);
        ids += rows;
        logits += (size_t)rows * s->n_vocab;
        n -= rows;
    }
    tw_session_drop_pages(s, s->position);
    return code;
}
