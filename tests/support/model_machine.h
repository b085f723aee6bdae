/* SPDX-License-Identifier: Apache-2.0
 *
 * The shipped model's decode program on the tile machine itself: a session provides the memory, the
 * test runs the machine step by step.
 */
#ifndef TW_TESTS_SUPPORT_MODEL_MACHINE_H
#define TW_TESTS_SUPPORT_MODEL_MACHINE_H

#include "firmware/core/tile_machine.h"
#include "tests/support/model_bundle.h"

struct model_machine {
    struct rig rig;
    struct tw_machine_config config;
    uint32_t n_vocab;
    uint32_t *ids, *pos, *rows, *end; /* Inputs; NULL: the program has none */
    const float *logits;
    uint32_t n_pages;                 /* entries of the page table */
    size_t output_bytes, state_bytes; /* of all tensors of the role */
};

/* Aborts the test if it cannot be created. The session must not be used otherwise. */
void model_machine_open(struct model_machine *m, const char *target);
void model_machine_close(struct model_machine *m);

/* The results of a decoding: the ids chosen, all of Output after each step, all of State at the
 * end. */
struct model_trace {
    uint32_t n;
    uint32_t *ids;
    uint8_t *outputs, *state;
};
void model_trace_finish(struct model_trace *t);

/* Runs one step with the current inputs. Returns 0 or a fault's code. */
typedef int model_step(void *ctx, uint32_t step);

/* Clears State and Output, then decodes n tokens greedily from token 1 on. */
int model_machine_decode(struct model_machine *m, model_step *step, void *ctx, uint32_t n,
                         struct model_trace *out);

/* Returns the first step whose id or Output bytes differ; n if only State differs; UINT32_MAX if
 * the traces are equal. */
uint32_t model_trace_compare(const struct model_machine *m, const struct model_trace *a,
                             const struct model_trace *b);

#endif
