/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of a list of sessions (tw_step()). Sessions of one executor share steps of its programs
 * "decode.N", whose rows are of any sequences: those with one token to feed, and the rests of
 * prompts. What is left of a prompt, and sessions that can share with nobody, take steps of their
 * own.
 */
#include "driver/session/batch.h"

#include "loader/base/sized.h"

/* ---- entries ---- */

/* Notes what became of an entry. */
static void note(struct step_list *l, struct tw_step_entry *e, int code, const tw_error *err) {
    e->code = code;
    if (code && e->err) {
        *e->err = *err;
    }
    if (code && (!l->failed || e < l->failed)) {
        l->failed = e;
        if (l->err) {
            *l->err = *err;
        }
    }
}

void tw_turn_finish(struct step_list *l, struct tw_session *s, int code, const tw_error *err) {
    struct tw_step_entry *e = s->turn.entry;
    s->turn.entry = NULL;
    tw_session_drop_pages(s, s->position);
    note(l, e, code, err);
}

static int check_entry(const struct tw_step_entry *e, tw_error *err) {
    if (!e->session || !e->ids) {
        return tw_fail(err, TW_E_USAGE, "tw_step: %s is NULL", e->session ? "ids" : "session");
    }
    if (e->session->turn.entry) {
        return tw_fail(err, TW_E_USAGE,
                       "tw_step: the session is in the list twice, expected all its tokens in one "
                       "entry");
    }
    int code = tw_known_flags("tw_step", e->flags, 0, err);
    return code ? code : tw_session_check_feed(e->session, e->ids, e->n, err);
}

/* Sees to it that the session can feed the tokens. */
static void begin(struct step_list *l, struct tw_step_entry *e) {
    tw_error err = {0};
    struct tw_session *s = e->session;
    int code = check_entry(e, &err);
    code = code ? code : tw_session_restore_window(s, &err);
    code = code ? code : tw_session_take_pages(s, e->n, &err);
    if (code) {
        note(l, e, code, &err);
        return;
    }
    s->turn = (struct session_turn){.entry = e, .ids = e->ids, .n = e->n};
}

/* Returns the entry's session if its turn has not ended; and if its executor is x, unless NULL. */
static struct tw_session *waiting(const struct tw_step_entry *e, const struct tw_executor *x) {
    struct tw_session *s = e->session;
    return s && s->turn.entry == e && (!x || s->executor == x) ? s : NULL;
}

/* ---- steps of one session ---- */

void tw_turn_count(struct step_list *l, struct tw_session *s, uint32_t n) {
    s->turn.ids += n;
    s->turn.n -= n;
    if (s->turn.n == 0) {
        tw_turn_finish(l, s, 0, NULL);
    }
}

int tw_turn_feed_alone(struct step_list *l, struct tw_session *s, size_t n) {
    tw_error err = {0};
    int code = tw_session_feed_alone(s, s->turn.ids, n, s->turn.entry->n > 1, n == s->turn.n, &err);
    if (code) {
        tw_turn_finish(l, s, code, &err);
    } else {
        tw_turn_count(l, s, (uint32_t)n);
    }
    return code;
}

/* ---- which tokens share steps ---- */

static uint64_t steps_of(uint64_t rows, uint32_t most) {
    return (rows + most - 1) / most;
}

/* Returns how many tokens of a session would ride: those that do not fill a step of its own. */
static size_t rest_of(const struct tw_session *s) {
    return s->chunk > 1 ? s->turn.n % s->chunk : s->turn.n;
}

/* Decides who rides, so that there are as few steps as there can be: riding is never more of them
 * than a step for each. Whoever makes no difference, the longest first, has a step of its own,
 * which takes less time than rows do. */
static void choose_riders(const struct step_list *l, const struct tw_executor *x) {
    uint32_t most = x->batch_rows;
    uint64_t rows = 0;
    struct tw_session *s;
    for (size_t i = 0; i < l->n; i++) {
        if ((s = waiting(&l->entry[i], x))) {
            size_t rest = rest_of(s);
            s->turn.rides = most > 1 && rest > 0 && (rest <= most || s->chunk == 1);
            rows += s->turn.rides ? rest : 0;
        }
    }
    for (uint32_t rest = most; rest > 0 && rows > 0; rest--) {
        for (size_t i = 0; i < l->n; i++) {
            s = waiting(&l->entry[i], x);
            if (s && s->turn.rides && s->chunk > 1 && rest_of(s) == rest &&
                steps_of(rows - rest, most) + 1 <= steps_of(rows, most)) {
                s->turn.rides = false;
                rows -= rest;
            }
        }
    }
}

/* Chooses the sessions of the next joint step, in the list's order. */
static void gather(struct joint *j) {
    uint32_t most = j->x->batch_rows;
    j->n_sessions = j->n_rows = 0;
    for (size_t i = 0; i < j->list->n && j->n_rows < most; i++) {
        struct tw_session *s = waiting(&j->list->entry[i], j->x);
        if (!s) {
            continue;
        }
        if (tw_session_stopped(s)) {
            tw_error err = {0};
            int code =
                tw_fail(&err, TW_E_INTERRUPTED, "session: interrupted at position %u", s->position);
            tw_turn_finish(j->list, s, code, &err);
            continue;
        }
        uint32_t room = most - j->n_rows,
                 rows = s->turn.n < s->chunk ? (uint32_t)s->turn.n : s->chunk;
        s->turn.rows = rows < room ? rows : room;
        j->session[j->n_sessions++] = s;
        j->n_rows += s->turn.rows;
    }
}

/* ---- the list ---- */

/* Feeds the tokens of all sessions of an executor. */
static void feed_executor(struct step_list *l, struct tw_executor *x) {
    struct joint j = {.list = l, .x = x};
    choose_riders(l, x);
    for (size_t i = 0; i < l->n; i++) {
        struct tw_session *s = waiting(&l->entry[i], x);
        size_t alone = !s ? 0 : s->turn.rides ? s->turn.n - rest_of(s) : s->turn.n;
        if (s && (s->chunk > 1 || !s->turn.rides) && alone) {
            tw_turn_feed_alone(l, s, alone);
        }
    }
    for (gather(&j); j.n_sessions; gather(&j)) {
        if (j.n_sessions > 1) {
            tw_joint_step(&j);
        } else {
            tw_turn_feed_alone(l, j.session[0], j.session[0]->turn.rows);
        }
    }
}

int tw_step(struct tw_step_entry *entries, size_t n_entries, tw_error *err) {
    struct step_list l = {.entry = entries, .n = n_entries, .err = err};
    int code = TW_NEED(err, entries);
    if (!code && n_entries == 0) {
        code = tw_fail(err, TW_E_USAGE, "tw_step: the list is empty");
    }
    if (code) {
        return code;
    }
    for (size_t i = 0; i < n_entries; i++) {
        begin(&l, &entries[i]);
    }
    for (size_t i = 0; i < n_entries; i++) {
        const struct tw_session *s = waiting(&entries[i], NULL);
        if (s) {
            feed_executor(&l, s->executor);
        }
    }
    return l.failed ? l.failed->code : 0;
}
