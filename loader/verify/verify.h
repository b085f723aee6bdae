/* SPDX-License-Identifier: Apache-2.0
 *
 * The structural rules that every program obeys before it may run: rules 1 to 17 of
 * tilewright-machine(7). Each rule has a number and a name; the refusal names rule, place and the
 * numbers compared. Linear in the size of the program; does not depend on the compiler.
 */
#ifndef TW_LOADER_VERIFY_VERIFY_H
#define TW_LOADER_VERIFY_VERIFY_H

#include "loader/base/interrupt.h"
#include "tilewright/error.h"
#include "tilewright/machine.h"

/* X(number, name, what it requires) */
#define TW_RULES(X)                                                                                \
    X(1, table_sizes,                                                                              \
      "counts and ids are inside their tables; enums are known; strings are terminated")           \
    X(2, stream_decodes,                                                                           \
      "every op decodes; loops nest and close; variables belong to one open loop; epoch only in "  \
      "waits")                                                                                     \
    X(3, engine_runs_op, "the engine may run the op")                                              \
    X(4, buffer_placed,                                                                            \
      "buffers lie inside their memory class, aligned to 64; siblings agree, one on each site of " \
      "their group; windows lie inside their tensor")                                              \
    X(5, fifo_ends,                                                                                \
      "one producer and one consumer engine per FIFO, both on its site; one engine per scratch "   \
      "buffer")                                                                                    \
    X(6, fifo_balance,                                                                             \
      "pushes equal pops over each loop iteration and each step, within the capacity")             \
    X(7, region_in_buffer,                                                                         \
      "affine regions stay inside pages held by the engine up to each loop's maximum")             \
    X(8, region_in_tensor,                                                                         \
      "affine regions and instances stay inside the tensor up to each loop's maximum")             \
    X(9, roles_kept,                                                                               \
      "Param and Input are never written; Output is written; ids are an Input; an Activation has " \
      "no binding rows")                                                                           \
    X(10, operand_types, "dtypes, packings, strides and alignments fit the op")                    \
    X(11, trips_sound,                                                                             \
      "trips read elements of i32 Inputs, div > 0, and counts stay below their bounds")            \
    X(12, loops_agree,                                                                             \
      "engines of one site that share a loop id share trip and nest; ids ascend; no flags inside") \
    X(13, groups_on_chip,                                                                          \
      "groups are rectangles on chips that exist; multicasts go to resident siblings on one "      \
      "chip, "                                                                                     \
      "sends to a resident buffer of another site")                                                \
    X(14, thresholds_reachable,                                                                    \
      "each semaphore threshold equals the increments that reach it in its epoch")                 \
    X(15, rendezvous_shape,                                                                        \
      "a closing section's rendezvous gathers every site and releases every engine")               \
    X(16, sections_partition,                                                                      \
      "sections partition the ids of buffers, semaphores and stages; the last section closes")     \
    X(17, regions_apart,                                                                           \
      "what an op writes overlaps nothing else it touches, unless it works in place")

enum tw_rule {
#define TW_X(number, name, text) TW_RULE_##name = number,
    TW_RULES(TW_X)
#undef TW_X
};

/* Objects checked per rule, for `verify --json`; index = rule number. */
struct tw_verify_report {
    uint64_t checked[32];
    int failed_rule; /* 0: none */
};

/* Checks a program against all rules. Fills in `report`, which may be NULL. Legal from any thread.
 * Errors: VERIFY ("rule 7 region_in_buffer: prefill.64 site 3 math op 12 (matmul, layer.attn_q):
 * ..."), NOMEM. */
int tw_verify_program(const struct tw_program *program, struct tw_verify_report *report,
                      tw_error *err);
/* The same; asks `interrupt` (may be NULL) about once in TW_VERIFY_INTERRUPT_OPS ops, and ends with
 * INTERRUPTED when it is requested. */
#define TW_VERIFY_INTERRUPT_OPS 1024u
int tw_verify_program_until(const struct tw_program *program, const struct tw_interrupt *interrupt,
                            struct tw_verify_report *report, tw_error *err);

#endif
