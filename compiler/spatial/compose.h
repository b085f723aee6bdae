/* SPDX-License-Identifier: Apache-2.0
 *
 * Composition: joins sections into one persistent step of the decoder. Tensors are unified by name
 * (unify.h), ids are shifted, and a rendezvous of all engines closes every phase: a section, or
 * several that run at the same time. A repeated phase is wrapped in its loop, rendezvous included.
 * The sections' code is copied, not derived again; the result carries no certificate.
 *
 * A phase becomes one section of the program: its sections share a loop and a rendezvous, their ops
 * follow each other on each engine, and the private memory of those that share a site is disjoint.
 * Sections of one phase that repeat a different number of times are cut: one phase for the
 * iterations that all of them have, and so on for the rest.
 */
#ifndef TW_COMPILER_SPATIAL_COMPOSE_H
#define TW_COMPILER_SPATIAL_COMPOSE_H

#include "compiler/spatial/program_builder.h"

#include <stdbool.h>

/* X(name, code, when). The message of a refusal begins with "compose: NAME: ". */
#define TW_REFUSALS(X)                                                                           \
    X(no_sections, INTERNAL, "there are no sections to join")                                    \
    X(shape_conflict, INTERNAL,                                                                  \
      "one name has two shapes, packings, numbers of instances, or sizes of buffers")            \
    X(dtype_conflict, INTERNAL,                                                                  \
      "writers differ, or the tensor's type cannot be converted to a reader's")                  \
    X(role_conflict, INTERNAL, "a tensor's declared role contradicts its use")                   \
    X(initial_conflict, INTERNAL, "two sections bind a State to different initial values")       \
    X(not_scheduled, INTERNAL, "a section has no code, or reads what no earlier section writes") \
    X(phase_crossing, INTERNAL, "data crosses between sections that run at the same time")       \
    X(participant_limit, PLACEMENT,                                                              \
      "a rendezvous exceeds a semaphore word or the machine's tables")                           \
    X(phase_overflow, PLACEMENT,                                                                 \
      "sections that run at the same time need more of a memory class than a site has")          \
    X(residency_overflow, PLACEMENT,                                                             \
      "a section and the activations together need more SRAM than a site has")                   \
    X(no_chip_links, UNSUPPORTED,                                                                \
      "the program spans chips but its target has no links between them")                        \
    X(target_mismatch, INTERNAL, "sections were built for different targets or rows")            \
    X(invalid, VERIFY, "the result breaks a rule of the machine")

/* What to join, and how. */
struct tw_composition {
    const char *name;
    struct tw_builder *const *sections;
    uint32_t n;
    /* of each section, ascending: sections with equal numbers run at the same time. NULL: each
     * section is a phase of its own */
    const uint32_t *phases;
    /* true: a part of a program, so an activation may be written or read elsewhere, and the result
     * is not verified */
    bool part;
    /* true: reuse the bytes of activations where no phase between needs them (residency.h) */
    bool colour;
};

/* Joins the sections of a composition into `out`, which has their target and rows and shares their
 * strings and arena. Errors: the refusals above; INTERNAL (code that does not decode). */
int tw_compose_program(const struct tw_composition *c, struct tw_builder *out, tw_error *err);

/* Does the same for a part of a program in which every section is a phase of its own. */
int tw_compose(struct tw_builder *const *sections, uint32_t n, const char *name,
               struct tw_builder *out, tw_error *err);

#endif
