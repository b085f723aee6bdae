/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory for any program, hand-made, compiled or invalid, and strict runs on it: a number of
 * steps under a scheduler, keeping what each leaves in Output and State.
 */
#ifndef TW_TESTS_SUPPORT_ORDER_DEVICE_H
#define TW_TESTS_SUPPORT_ORDER_DEVICE_H

#include "firmware/core/tile_machine.h"
#include "firmware/explore/explore.h"

/* What the host writes before a step: Inputs by their names. "ids" counts through 0 .. n_ids - 1;
 * an input of another name gets `rows`. */
struct order_inputs {
    uint32_t pos, rows, end, n_ids;
};

struct order_device {
    const struct tw_program *program;
    uint64_t *address, *bytes; /* by binding row */
    uint32_t n_rows;
    uint8_t *memory, *initial;
    size_t size;
    size_t kept_bytes; /* total size of Output and State */
    uint8_t *arena;
    size_t arena_bytes;
};

/* Creates the memory. Params hold small numbers, the same for a tensor of the same id in every
 * program. False if the program needs more memory than a test has; the tables must have passed the
 * verifier. */
bool order_device_open(struct order_device *d, const struct tw_program *p);
void order_device_close(struct order_device *d);

/* Returns to the state before the first step. */
void order_device_rewind(struct order_device *d);
void order_device_set(struct order_device *d, const struct order_inputs *in);
struct tw_machine_config order_device_config(struct order_device *d);

struct order_run {
    int rc;     /* of the last step */
    bool taken; /* false: the machine refuses the program before any op */
    uint32_t steps;
    struct tw_fault fault;
};

/* Runs n steps from the start; kept_bytes per step go to `kept`, which may be NULL. */
struct order_run order_device_run(struct order_device *d, const struct order_inputs *in, uint32_t n,
                                  enum tw_scheduler scheduler, uint64_t seed, uint8_t *kept);

/* Explores n steps with the inputs `in`. Errors: NOMEM (max_bytes is not enough). */
int order_device_explore(struct order_device *d, const struct order_inputs *in,
                         struct tw_explore_options options, size_t max_bytes,
                         struct tw_explore_result *result, struct tw_fault *fault);

/* True for faults that the host causes: inputs outside of their range. */
bool order_fault_is_input(const struct tw_fault *fault);

/* The host's promise that the checker relies on: a trip that counts the rows of a LAST_ROW is never
 * 0. */
bool order_inputs_keep_promise(const struct tw_program *p, const struct order_inputs *in);

#endif
