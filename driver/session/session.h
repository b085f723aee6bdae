/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: one sequence. It owns its state, inputs and outputs on the device, its binding rows,
 * and the programs prepared with them.
 */
#ifndef TW_DRIVER_SESSION_SESSION_H
#define TW_DRIVER_SESSION_SESSION_H

#include "driver/device/deploy.h"
#include "driver/tokenizer/utf8_stream.h"

#include <stdatomic.h>

/* The i32 inputs that every program may read, in the order of the request. */
enum session_input { IN_IDS = 0, IN_POS = 1, IN_ROWS = 2, IN_END = 3, IN_COUNT = 4 };

/* One prepared program and the request that steps it, laid out once: struct tw_wire_run, n_inputs
 * struct tw_wire_input, data. */
struct session_program {
    const struct tw_program *program; /* NULL: the bundle has none of that kind */
    uint32_t number;                  /* on the device */
    bool loaded;
    uint32_t rows;
    uint64_t logits_address;
    const float *logits_mapped; /* where the device shares its memory */
    /* 8-byte aligned; TW_DEVICE_IN_FLIGHT of them, `stride` bytes apart, so that steps can be under
     * way together. */
    uint8_t *request;
    uint32_t request_bytes, stride;
    uint32_t input[IN_COUNT]; /* offsets in a request; TW_NONE: the program does not have it */
    /* behind the first request: its tail if the device feeds its own tokens back */
    struct tw_wire_greedy *greedy;
};

/* Where tw_generate left off: the bytes of a character that is not complete, and what must be fed
 * next, at which position, to go on with it. */
struct session_text {
    struct tw_utf8_stream utf8;
    uint32_t id, position;
};

struct tw_session {
    struct tw_deployment *deployment;
    struct session_text text;
    enum tw_mode mode;
    uint32_t n_vocab, n_ctx, chunk, n_threads;
    uint32_t position;
    uint64_t steps;
    bool broken;
    uint64_t *segment_address; /* n_segments: the deployment's and ours */
    uint64_t bind_address;
    uint64_t *bind; /* host copy of the rows */
    struct session_program decode, prefill;
    const float *logits; /* of the last step, or NULL */
    float *logits_copy;  /* n_vocab; for devices that do not share memory */
    /* Not 0: greedy runs end. In device memory where that is shared, so that the device sees it. */
    uint64_t interrupt_address;
    _Atomic uint32_t *interrupt, own_interrupt;
    struct {
        struct tw_wire_tokens head;
        uint32_t id[TW_WIRE_MAX_TOKENS];
    } tokens; /* the answer to a greedy run */
};

/* Builds the session's side of a program: finds its tensors, lays the request out, prepares it on
 * the device. */
int tw_session_load_program(struct tw_session *s, const char *prefix,
                            const struct tw_session_options *options, struct session_program *out,
                            tw_error *err);
void tw_session_unload_program(struct tw_session *s, struct session_program *p);

/* USAGE: the device was reset after the session's deployment; nothing of it is there any more. */
static inline int tw_session_check_reset(const struct tw_session *s, tw_error *err) {
    return tw_device_check_reset(s->deployment->device, s->deployment->resets, err);
}
/* What feeding n of these tokens is refused for, before anything has run. */
int tw_session_check_feed(const struct tw_session *s, const uint32_t *ids, size_t n, tw_error *err);
/* Puts the inputs of a step into the program's request number `copy`, and returns it. */
uint8_t *tw_session_set_inputs(const struct session_program *p, uint32_t copy, uint32_t position,
                               const uint32_t *ids, uint32_t rows);
/* Turns a refusal, or a step that does not end, into a line that names section and graph operation;
 * returns its code. */
int tw_session_explain(const struct tw_session *s, const struct session_program *p,
                       const struct tw_wire_failure *f, int code, tw_error *err);

/* Why a step's logits are no numbers: runs n requests of the session again, in their order, with a
 * look at each operation's result, and tells of the first that is infinite or not a number. The
 * requests are of steps that were run last, so the session stays where it is. Returns FAULT. */
int tw_session_explain_numbers(struct tw_session *s, const struct session_program *const *programs,
                               uint8_t *const *requests, size_t n, tw_error *err);
/* Makes s->logits those of the last step. */
int tw_session_fetch_logits(struct tw_session *s, const struct session_program *p, tw_error *err);

/* Tells the status page of n tokens that were fed in so many steps, up to the session's
 * position. */
void tw_session_tell(const struct tw_session *s, uint32_t n, uint32_t steps, bool prompt);
/* Ends the session: its state is not known any more. Returns code. */
int tw_session_break(struct tw_session *s, int code, const tw_error *err);

#endif
