/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of the machine's data ops, one table per instruction set. Every kernel of every table
 * gives the same bits as the scalar one (tests/firmware/kernels/kernels_test.c); the formulas are
 * in tilewright/numerics.h.
 *
 * Kernels take their op's operands in one uniform structure, so that the strict interpreter and the
 * replay plan bind ops to calls by the same table-driven code. Freestanding: no malloc, and of libc
 * only memcpy and memset. Kernels keep no state and may run on any number of threads, on disjoint
 * outputs.
 */
#ifndef TW_FIRMWARE_KERNELS_KERNELS_H
#define TW_FIRMWARE_KERNELS_KERNELS_H

#include "tilewright/machine.h"
#include "tilewright/opcode.h"

#define TW_KARGS_REGIONS 5u
#define TW_KARGS_IMMS 8u

/* Operands of a kernel. p: the regions and tensor regions of the op (letters R W M T U) as
 * addresses, in order; for GATHER table, ids, destination; for MCAST source and one destination per
 * call. i: the immediates (I), in order. rows: the last X; pos: the first X if an op has two. f: E.
 * block: A. Regions must not overlap unless the op works in place. All pointers are at least 4-byte
 * aligned, weight pages 64-byte. */
struct tw_kargs {
    void *p[TW_KARGS_REGIONS];
    uint32_t i[TW_KARGS_IMMS];
    uint32_t rows, pos, block;
    float f;
    uint32_t x_dtype; /* MATMUL: dtype of x's buffer (F32 or Q8S) */
    /* the T or U tensor (GATHER: the table): dtype, packing, rows, cols, head_dim */
    const struct tw_tensor *tensor;
};

typedef void tw_kernel(const struct tw_kargs *);

/* X(name, number, text): instruction sets; on one processor, a later one is faster. */
#define TW_ISAS(X)         \
    X(SCALAR, 0, "scalar") \
    X(AVX2, 1, "avx2")     \
    X(AVX512, 2, "avx512") \
    X(NEON, 3, "neon")     \
    X(NEON_DOT, 4, "neon-dot")

enum tw_isa {
#define TW_X(name, number, text) TW_ISA_##name = number,
    TW_ISAS(TW_X)
#undef TW_X
        TW_ISA_COUNT = 5
};

/* Returns the name of an instruction set; `isa` must be below TW_ISA_COUNT. */
static inline const char *tw_isa_name(enum tw_isa isa) {
    static const char *const name[TW_ISA_COUNT] = {
#define TW_X(name, number, text) text,
        TW_ISAS(TW_X)
#undef TW_X
    };
    return name[isa];
}

/* One kernel for each data op (READ, GATHER, WRITE, KEY_WRITE, VALUE_WRITE, MCAST and all compute
 * ops); NULL for control and synchronisation. */
struct tw_kernel_table {
    const char *name; /* that of tw_isa_name() */
    tw_kernel *fn[TW_OP_LIMIT];
};

/* Returns the table of an instruction set, or NULL if this build or this processor does not support
 * it. Static. */
const struct tw_kernel_table *tw_kernel_table(enum tw_isa isa);

/* Returns the fastest table of this processor. The environment variable TILEWRIGHT_ISA (a name as
 * above) is evaluated by callers that have an environment, never here. */
const struct tw_kernel_table *tw_kernel_table_best(void);

#endif
