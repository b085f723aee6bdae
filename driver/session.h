/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: one sequence. It owns its state, inputs and outputs on the device, its binding rows, and the programs prepared
 * with them.
 */
#ifndef TW_DRIVER_SESSION_H
#define TW_DRIVER_SESSION_H

#include "driver/deploy.h"

/* The i32 inputs that every program may read, in the order of the request. */
enum session_input { IN_IDS = 0, IN_POS = 1, IN_ROWS = 2, IN_END = 3, IN_COUNT = 4 };

/* One prepared program and the request that steps it, laid out once: struct tw_wire_run, n_inputs struct tw_wire_input, data. */
struct session_program {
    const struct tw_program *program; /* NULL: the bundle has none of that kind */
    uint32_t number;                  /* on the device */
    bool loaded;
    uint32_t rows;
    uint64_t logits_address;
    const float *logits_mapped; /* where the device shares its memory */
    uint8_t *request;           /* 8-byte aligned */
    uint32_t request_bytes;
    uint32_t *input[IN_COUNT]; /* in the request; NULL: the program does not have it */
};

struct tw_session {
    struct tw_deployment *deployment;
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
};

/* Builds the session's side of a program: finds its tensors, lays the request out, prepares it on the device. */
int tw_session_load_program(struct tw_session *s, const char *prefix, const struct tw_session_options *options,
                            struct session_program *out, tw_error *err);
void tw_session_unload_program(struct tw_session *s, struct session_program *p);

/* One step of `rows` tokens at the session's position, and its logits. */
int tw_session_step(struct tw_session *s, struct session_program *p, const uint32_t *ids, uint32_t rows, tw_error *err);

#endif
