/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory for any program, hand-made, compiled or invalid, and strict runs on it: a number of
 * steps under a scheduler, keeping what each leaves in Output and State.
 */
#ifndef TW_TESTS_SUPPORT_ORDER_DEVICE_H
#define TW_TESTS_SUPPORT_ORDER_DEVICE_H

#include "firmware/core/tile_machine.h"
#include "firmware/explore/explore.h"
#include "loader/bundle/loader.h"

/* What the host writes before a step: Inputs by their names. "ids" counts through 0 .. n_ids - 1;
 * "pages" has numbers below ORDER_PAGES, the first ORDER_PAGES of them all different; an input of
 * another name gets `rows`. Of a batch, whose inputs have more rows, `rows` rows are used, at
 * consecutive positions of one sequence. */
enum { ORDER_PAGES = 7 };
struct order_inputs {
    uint32_t pos, rows, end, n_ids;
    /* not 0: a seed. Inputs that trips read get values from the whole range that these admit, its
     * ends more often than others, but "ids" and "pos", which stays where `rows` more fit. */
    uint64_t draw;
};

struct order_device {
    const struct tw_program *program;
    uint64_t *address, *bytes; /* by binding row */
    uint32_t n_rows;
    bool placed; /* by order_device_open_at */
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
/* The same with the rows where `rows` says, n of them, in segments 0, 1 and 2 of one memory:
 * tensors share the bytes that their rows share. False also if a tensor claims a row that is not
 * there. */
bool order_device_open_at(struct order_device *d, const struct tw_program *p,
                          const struct tw_bind_target *rows, uint64_t n);
void order_device_close(struct order_device *d);

/* Returns to the state before the first step. */
void order_device_rewind(struct order_device *d);
void order_device_set(struct order_device *d, const struct order_inputs *in);
struct tw_machine_config order_device_config(struct order_device *d);
/* Copies what Output and State hold now: kept_bytes. */
void order_device_keep(const struct order_device *d, uint8_t *to);

struct order_run {
    int rc;     /* of the last step */
    bool taken; /* false: the machine refuses the program before any op */
    uint32_t steps;
    uint64_t ops; /* of the last step */
    struct tw_fault fault;
};

/* Runs n steps from the start; kept_bytes per step go to `kept`, which may be NULL. */
struct order_run order_device_run(struct order_device *d, const struct order_inputs *in, uint32_t n,
                                  enum tw_scheduler scheduler, uint64_t seed, uint8_t *kept);

/* Explores n steps with the inputs `in`. Errors: NOMEM (max_bytes is not enough). */
int order_device_explore(struct order_device *d, const struct order_inputs *in,
                         struct tw_explore_options options, size_t max_bytes,
                         struct tw_explore_result *result, struct tw_fault *fault);

/* True for faults that the host causes: inputs outside of their range, positions past a cache. */
bool order_fault_is_input(const struct order_device *d, const struct tw_fault *fault);

#endif
