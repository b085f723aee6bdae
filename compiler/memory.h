/* SPDX-License-Identifier: Apache-2.0
 *
 * The bound of a compilation's memory (memory.c).
 */
#ifndef TW_COMPILER_MEMORY_H
#define TW_COMPILER_MEMORY_H

#include "compiler/import/model.h"
#include "tilewright/target.h"

/* Bytes of the compile arena (arena.h) that a model of that shape takes at most on that target;
 * what exceeds the arena is refused with NOMEM before planning starts. */
uint64_t tw_compile_memory(const struct tw_hparams *h, const struct tw_target *t);

#endif
