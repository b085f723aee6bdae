/* SPDX-License-Identifier: Apache-2.0
 *
 * Composition: sections become one persistent step of the decoder. Names unify tensors (unify.h),
 * ids shift, and a rendezvous of all engines closes every phase: a section, or several that run at
 * once. A repeated phase is wrapped in its loop, rendezvous and all. Sections are joined without
 * being derived again; the result carries no certificate.
 *
 * A phase becomes one span of the program: its sections share a loop and a rendezvous, their ops
 * follow each other on each engine, and the private memory of those that share a site is disjoint.
 * Sections of one phase that repeat a different number of times are cut: a phase for the iterations
 * that all of them have, and so on for what is left.
 */
#ifndef TW_COMPILER_SPATIAL_COMPOSE_H
#define TW_COMPILER_SPATIAL_COMPOSE_H

#include "compiler/spatial/program_builder.h"

#include <stdbool.h>

/* X(name, code, when). A refusal's message begins with "compose: NAME: ". */
#define TW_REFUSALS(X)                                                                             \
    X(no_sections, INTERNAL, "there is nothing to join")                                           \
    X(shape_conflict, INTERNAL,                                                                    \
      "one name has two shapes, packings, numbers of instances, or sizes of buffers")              \
    X(dtype_conflict, INTERNAL,                                                                    \
      "writers differ, or a reader's type cannot be had from what is there")                       \
    X(role_conflict, INTERNAL, "a tensor is declared to be what its use denies")                   \
    X(initial_conflict, INTERNAL, "two sections bind a State to different initial values")         \
    X(not_scheduled, INTERNAL, "a section has no code, or reads what no section before it writes") \
    X(phase_crossing, INTERNAL, "data crosses between sections that run at once")                  \
    X(participant_limit, PLACEMENT,                                                                \
      "a rendezvous counts beyond what a semaphore word or the machine's tables hold")             \
    X(phase_overflow, PLACEMENT,                                                                   \
      "sections that run at once need more of a memory class than a site has")                     \
    X(residency_overflow, PLACEMENT,                                                               \
      "a section beside the activations needs more SRAM than a site has")                          \
    X(no_chip_links, UNSUPPORTED,                                                                  \
      "the program spans chips and its target has no links between them")                          \
    X(target_mismatch, INTERNAL, "sections were made for other targets or rows")                   \
    X(invalid, VERIFY, "the result breaks a rule of the machine")

struct tw_composition {
    const char *name;
    struct tw_builder *const *sections;
    uint32_t n;
    /* of each section, ascending: equal numbers run at once. NULL: each closes */
    const uint32_t *phases;
    /* of a program: an activation may be written or read elsewhere, and the result is not
     * verified */
    bool part;
    /* bytes of activations are used again where no phase between needs them (residency.h) */
    bool colour;
};

/* Joins the sections of a composition into `out`, which has their target and rows and shares their
 * strings and arena. Errors: the refusals above. */
int tw_compose_program(const struct tw_composition *c, struct tw_builder *out, tw_error *err);

/* The same for a part of a program whose sections all close. */
int tw_compose(struct tw_builder *const *sections, uint32_t n, const char *name,
               struct tw_builder *out, tw_error *err);

#endif
