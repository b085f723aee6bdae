/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of several sessions: one row of a program "decode.N" for each token. If it faults it is
 * made again session by session, so that only one that is at fault fails.
 */
#include "driver/session/batch.h"

#include "loader/base/assert.h"
#include "tilewright/numerics.h"

/* Takes a session out of the step, and ends its turn. */
static void leave(struct joint *j, uint32_t i, int code, const tw_error *err) {
    struct tw_session *s = j->session[i];
    j->n_rows -= s->turn.rows;
    j->n_sessions--;
    memmove(&j->session[i], &j->session[i + 1], (j->n_sessions - i) * sizeof j->session[0]);
    tw_turn_finish(j->list, s, code, err);
}

static void end_all(struct joint *j, int code, const tw_error *err) {
    while (j->n_sessions) {
        leave(j, 0, code, err);
    }
}

/* Gives each row a lane, if it can that whose table on the device is the session's. */
static void take_lanes(struct joint *j) {
    const struct session_program *p = j->program;
    uint32_t taken[TW_BATCH_MAX] = {0};
    memset(j->lane, 0, sizeof j->lane);
    for (uint32_t again = 0; again < 2; again++) {
        uint32_t lane = 0;
        for (uint32_t i = 0; i < j->n_sessions; i++) {
            struct tw_session *s = j->session[i];
            for (lane = again ? lane : 0; lane < p->lanes && taken[i] < s->turn.rows; lane++) {
                bool own = p->table[lane] && p->table[lane]->owner == s;
                if (!j->lane[lane].session && (again || own)) {
                    j->lane[lane].session = s;
                    j->lane[lane].token = taken[i]++;
                }
            }
            TW_ASSERT(!again || taken[i] == s->turn.rows);
        }
    }
}

/* Moves the windows, and checks what the step would do; whoever cannot take part leaves. */
static void slide_and_check(struct joint *j) {
    for (uint32_t i = 0; i < j->n_sessions;) {
        struct tw_session *s = j->session[i];
        uint32_t from = s->position, to = from + s->turn.rows;
        tw_error err = {0};
        int code = tw_session_slide(s, from, to, &err);
        code = code ? code : tw_session_check_pages(s, from, to, &err);
        if (code) {
            leave(j, i, tw_session_break(s, code, &err), &err);
        } else {
            i++;
        }
    }
}

static int write_tables(struct joint *j, tw_error *err) {
    int code = 0;
    for (uint32_t i = 0; i < j->program->lanes && !code; i++) {
        if (j->lane[i].session) {
            code = tw_session_write_table(j->lane[i].session, j->program->table[i], err);
        }
    }
    return code;
}

static void set_lane(const struct joint *j, uint32_t lane) {
    const struct session_program *p = j->program;
    const struct tw_session *s = j->lane[lane].session;
    uint32_t token = j->lane[lane].token, pos = s ? s->position + token : 0;
    uint32_t origin = s ? s->window.first * TW_KV_BLOCK : 0;
    const uint32_t value[IN_WINDOW_PAGES] = {
        s ? s->turn.ids[token] : 0, pos, s != NULL, s ? pos + 1 : 0, pos - origin,
        s ? pos + 1 - origin : 0};
    for (uint32_t i = 0; i < IN_WINDOW_PAGES; i++) {
        if (p->input[i] != TW_NONE) {
            memcpy(p->request + p->input[i] + lane * sizeof value[i], &value[i], sizeof value[i]);
        }
    }
    if (s && p->input[IN_WINDOW_PAGES] != TW_NONE) {
        const struct session_pages *w = &s->window;
        TW_ASSERT(w->n <= p->window_slots);
        memcpy(p->request + p->input[IN_WINDOW_PAGES] +
                   (size_t)lane * p->window_slots * sizeof *w->page,
               w->page, w->n * sizeof *w->page);
    }
}

/* Writes the request, and prepares to read the logits that are wanted. */
static void set_request(struct joint *j) {
    const struct session_program *p = j->program;
    const struct tw_session_options *o = &j->session[0]->options;
    struct tw_wire_run *run = (struct tw_wire_run *)(void *)p->request;
    run->scheduler = o->random_schedule ? 1 : 0;
    run->seed = o->seed;
    j->failure = (struct tw_wire_failure){.site = TW_NONE, .stage = TW_NONE};
    j->n_calls = 1;
    for (uint32_t i = 0; i < j->n_sessions; i++) {
        j->session[i]->logits = NULL;
        j->session[i]->turn.first_read = j->session[i]->turn.end_read = 0;
    }
    for (uint32_t i = 0; i < p->lanes; i++) {
        struct tw_session *s = j->lane[i].session;
        set_lane(j, i);
        if (!s || j->lane[i].token + 1 < s->turn.n) {
            continue;
        }
        s->turn.lane = i;
        if (!p->logits_mapped) {
            s->turn.first_read = j->n_calls;
            j->n_calls += tw_device_read_begin(&s->turn.read, s->deployment->device,
                                               p->logits_address + i * p->logits_stride,
                                               s->logits_copy, (uint64_t)s->n_vocab * 4);
            s->turn.end_read = j->n_calls;
        }
    }
}

/* The stop words that all sessions of the step have. */
static void find_stop_words(struct joint *j) {
    for (uint32_t w = 0; w < TW_STOP_WORDS; w++) {
        const volatile sig_atomic_t *word = j->session[0]->stop[w];
        for (uint32_t i = 1; i < j->n_sessions && word; i++) {
            const struct tw_session *s = j->session[i];
            word = s->stop[0] == word || s->stop[1] == word ? word : NULL;
        }
        j->stop[w] = word;
    }
}

static void fill(void *ctx, uint64_t i, struct tw_device_call *call) {
    struct joint *j = ctx;
    *call = (struct tw_device_call){.opcode = TW_WIRE_RUN,
                                    .payload = j->program->request,
                                    .bytes = j->program->request_bytes,
                                    .out = &j->done,
                                    .out_bytes = sizeof j->done,
                                    .failure = &j->failure};
    for (uint32_t k = 0; k < j->n_sessions && i; k++) {
        const struct session_turn *t = &j->session[k]->turn;
        if (i >= t->first_read && i < t->end_read) {
            tw_device_read_fill(&t->read, i - t->first_read, call);
            break;
        }
    }
    call->stop = j->stop;
}

/* Finds out why a session's logits are not finite, by running its tokens alone again; its position
 * is that after them. Returns FAULT. */
static int explain_numbers(struct tw_session *s, const uint32_t *ids, uint32_t n, tw_error *err) {
    struct session_program *p = n > 1 ? &s->executor->prefill : &s->executor->decode;
    const struct session_program *programs = p;
    int code = tw_executor_mend(s->executor, p, err);
    code = code ? code : tw_session_write_table(s, p->table[0], err);
    if (code) {
        return code;
    }
    uint8_t *request = tw_session_set_inputs(s, p, 0, s->position - n, ids, n);
    return tw_session_explain_numbers(s, &programs, &request, 1, err);
}

/* Copies all logits that are wanted from where the device has them: what explains those that are no
 * numbers runs other programs, which may put theirs there. */
static void copy_logits(const struct joint *j) {
    const struct session_program *p = j->program;
    for (uint32_t i = 0; i < j->n_sessions && p->logits_mapped; i++) {
        const struct tw_session *s = j->session[i];
        if (s->turn.rows == s->turn.n) {
            memcpy(s->logits_copy,
                   (const uint8_t *)p->logits_mapped + s->turn.lane * p->logits_stride,
                   s->n_vocab * sizeof *s->logits_copy);
        }
    }
}

/* Takes the logits of a session's last token, which the step has fed. */
static int take_logits(struct tw_session *s, tw_error *err) {
    s->logits = s->logits_copy;
    return tw_first_not_finite(s->logits, s->n_vocab) == s->n_vocab
               ? 0
               : explain_numbers(s, s->turn.ids, s->turn.rows, err);
}

/* Counts the tokens of the step, which is done. The first n_good requests have succeeded, the next
 * one, if it is not the last, as `code` and `err` say. */
static void take_results(struct joint *j, uint64_t n_good, int code, const tw_error *err) {
    copy_logits(j);
    for (uint32_t i = 0; i < j->n_sessions; i++) {
        struct tw_session *s = j->session[i];
        struct session_turn *t = &s->turn;
        tw_error own = {0};
        int rc = 0;
        memcpy(s->ids + s->position, t->ids, t->rows * sizeof *s->ids);
        s->position += t->rows;
        s->steps++;
        tw_session_report(s, t->rows, i == 0, t->entry->n > 1);
        if (t->end_read > n_good) {
            own = err ? *err : own;
            rc = code;
        } else if (t->rows == t->n) {
            rc = take_logits(s, &own);
        }
        if (rc) {
            tw_turn_finish(j->list, s, tw_session_break(s, rc, &own), &own);
        } else {
            tw_turn_count(j->list, s, t->rows);
        }
    }
}

/* Ends the turns of all sessions of a step that cannot be made again. */
static void break_all(struct joint *j, int code, const tw_error *err) {
    j->program->broken = true;
    while (j->n_sessions) {
        struct tw_session *s = j->session[0];
        tw_error own = *err;
        int rc = code == TW_E_TRUNCATED
                     ? code
                     : tw_session_explain(s, j->program, &j->failure, code, &own);
        leave(j, 0, tw_session_break(s, rc, &own), &own);
    }
}

/* Has the tables written anew, in case that they are what is wrong. */
static void forget_tables(struct session_program *p) {
    for (uint32_t i = 0; i < p->lanes && p->table[i]; i++) {
        p->table[i]->owner = NULL;
    }
}

/* Whether the step's sessions can go on after that failure, one by one. */
static bool can_go_on(const struct joint *j, int code) {
    return !j->session[0]->deployment->device->lost && code != TW_E_INTERRUPTED &&
           code != TW_E_TRUNCATED;
}

/* Makes the step. Returns false if it has failed, and each session must make a step of its own. */
static bool run(struct joint *j, tw_error *err) {
    struct tw_device *device = j->session[0]->deployment->device;
    uint64_t n_good = 0;
    set_request(j);
    find_stop_words(j);
    int code = tw_device_call_many(device, j->n_calls, fill, j, &n_good, err);
    int intact = code ? 0 : tw_bundle_intact(&j->session[0]->deployment->decoder->bundle, err);
    if (intact) {
        break_all(j, intact, err);
    } else if (n_good > 0) {
        take_results(j, n_good, code, err);
    } else if (can_go_on(j, code)) {
        j->program->broken = true;
        forget_tables(j->program);
        tw_session_explain(j->session[0], j->program, &j->failure, code, err);
        tw_status_fail(&device->status, false, err->message);
        return false;
    } else if (code == TW_E_INTERRUPTED && !device->lost && !tw_session_was_cut(&j->failure)) {
        end_all(j, code, err); /* nothing has run */
    } else {
        break_all(j, code, err);
    }
    return true;
}

/* Makes the step, under the executor's lock. Returns what run() does. */
static bool prepare_and_run(struct joint *j) {
    tw_error err = {0};
    int code = tw_executor_batch(j->x, j->n_rows, &j->program, &err);
    code = code ? code : tw_executor_mend(j->x, j->program, &err);
    if (code) {
        end_all(j, code, &err);
        return true;
    }
    slide_and_check(j);
    if (j->n_sessions == 0) {
        return true;
    }
    take_lanes(j);
    code = write_tables(j, &err);
    if (code) {
        end_all(j, code, &err);
        return true;
    }
    return run(j, &err);
}

/* Steps that faulted one after the other although no row of them does: the program is at fault. */
#define MANY_FAULTS 3u

void tw_joint_step(struct joint *j) {
    pthread_mutex_lock(&j->x->lock);
    bool done = prepare_and_run(j);
    pthread_mutex_unlock(&j->x->lock);
    bool innocent = true;
    for (uint32_t i = 0; i < j->n_sessions && !done; i++) {
        innocent =
            tw_turn_feed_alone(j->list, j->session[i], j->session[i]->turn.rows) == 0 && innocent;
    }
    pthread_mutex_lock(&j->x->lock);
    j->x->joint_faults = done || !innocent ? 0 : j->x->joint_faults + 1;
    if (j->x->joint_faults == MANY_FAULTS) {
        j->x->batch_rows = 1;
    }
    pthread_mutex_unlock(&j->x->lock);
}
