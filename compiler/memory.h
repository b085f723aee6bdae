/* SPDX-License-Identifier: Apache-2.0
 *
 * The bound on a compilation's memory (memory.c).
 */
#ifndef TW_COMPILER_MEMORY_H
#define TW_COMPILER_MEMORY_H

#include "compiler/import/model.h"
#include "tilewright/target.h"

/* Returns the maximum bytes of the compile arena (arena.h) that a model of that shape can take on
 * that target, with so many layers in the bodies of the graph's regions (arch/layers.h), and with
 * programs of batches of up to so many rows (0: none). A model that may need more than the arena
 * has is refused with NOMEM before planning starts. */
uint64_t tw_compile_memory(const struct tw_hparams *h, const struct tw_target *t, uint32_t n_bodies,
                           uint32_t batch_rows);

#endif
