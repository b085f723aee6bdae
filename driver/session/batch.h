/* SPDX-License-Identifier: Apache-2.0
 *
 * What tw_step() is made of: a list of sessions, whose turns end one by one (session_batch.c), and
 * steps that several of them share (joint_step.c).
 */
#ifndef TW_DRIVER_SESSION_BATCH_H
#define TW_DRIVER_SESSION_BATCH_H

#include "driver/session/session.h"

/* A list that is being worked through. */
struct step_list {
    struct tw_step_entry *entry;
    size_t n;
    const struct tw_step_entry *failed; /* the first one in the list; its error is in *err */
    tw_error *err;
};

/* A step of several sessions. */
struct joint {
    struct step_list *list;
    struct tw_executor *x;
    struct session_program *program;
    struct tw_session *session[TW_BATCH_MAX]; /* each with turn.rows tokens */
    uint32_t n_sessions, n_rows;
    struct {
        struct tw_session *session; /* NULL: the row is not used */
        uint32_t token;             /* of the session's */
    } lane[TW_BATCH_MAX];
    const volatile sig_atomic_t *stop[TW_STOP_WORDS];
    struct tw_wire_done done;
    struct tw_wire_failure failure;
    uint64_t n_calls;
};

/* Ends a session's turn, and gives back the pages that it did not need. */
void tw_turn_finish(struct step_list *l, struct tw_session *s, int code, const tw_error *err);
/* Notes that the session has the next n tokens of its turn, which ends with the last of them. */
void tw_turn_count(struct step_list *l, struct tw_session *s, uint32_t n);
/* Feeds the next n tokens in steps of their own. Returns the session's code; its turn then ends. */
int tw_turn_feed_alone(struct step_list *l, struct tw_session *s, size_t n);

/* Feeds the next turn.rows tokens of each session, n_rows together, in one step; if that faults,
 * each session in a step of its own. */
void tw_joint_step(struct joint *j);

#endif
