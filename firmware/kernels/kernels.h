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
#include "tilewright/op_schema.h"

#define TW_KARGS_REGIONS 4u
#define TW_KARGS_IMMS 9u
#define TW_KARGS_FLOATS 2u

/* Operands of a kernel. p: the regions of the op, of buffers and tensors, as addresses, in order
 * (TW_MATMUL_REGION_x). i: its immediates, in order (TW_MATMUL_IMM_k). f: its floats, in order.
 * rows: the last COUNT; pos: the first COUNT if an op has two. block: the AFFINE. Regions must not
 * overlap unless the op works in place. All pointers are at least 4-byte aligned, weight pages
 * 64-byte. MCAST is called once for each destination. KEY_WRITE and VALUE_WRITE: p[2], int32_t
 * page numbers, is that of position 0, or NULL: page i is number i. */
struct tw_kargs {
    void *p[TW_KARGS_REGIONS];
    uint32_t i[TW_KARGS_IMMS];
    uint32_t rows, pos, block;
    float f[TW_KARGS_FLOATS];
    uint32_t x_dtype; /* MATMUL: dtype of x's buffer (F32, Q8S or Q8K) */
    /* the T or U tensor (GATHER: the table): dtype, packing, rows, cols, head_dim */
    const struct tw_tensor *tensor;
};

typedef void tw_kernel(const struct tw_kargs *);

/* The same by the names of ops.def, for each data op: struct tw_args_matmul and
 * tw_args_matmul(args). Regions that are only read are const; groups are not a kernel's business.
 */
#define TW_ARG_READ(name) const void *name;
#define TW_ARG_WRITE(name) void *name;
#define TW_ARG_UPDATE(name) void *name;
#define TW_ARG_REMOTE(name) void *name;
#define TW_ARG_TENSOR_READ(name) const void *name;
#define TW_ARG_TENSOR_WRITE(name) void *name;
#define TW_ARG_GROUP(name)
#define TW_ARG_COUNT(name) uint32_t name;
#define TW_ARG_AFFINE(name) uint32_t name;
#define TW_ARG_IMMEDIATE(name) uint32_t name;
#define TW_ARG_FLOAT(name) float name;

#define TW_TAKE_READ(OP, name, DEMAND) v.name = a->p[TW_##OP##_REGION_##name];
#define TW_TAKE_WRITE(OP, name, DEMAND) TW_TAKE_READ(OP, name, DEMAND)
#define TW_TAKE_UPDATE(OP, name, DEMAND) TW_TAKE_READ(OP, name, DEMAND)
#define TW_TAKE_REMOTE(OP, name, DEMAND) TW_TAKE_READ(OP, name, DEMAND)
#define TW_TAKE_TENSOR_READ(OP, name, DEMAND) TW_TAKE_READ(OP, name, DEMAND)
#define TW_TAKE_TENSOR_WRITE(OP, name, DEMAND) TW_TAKE_READ(OP, name, DEMAND)
#define TW_TAKE_GROUP(OP, name, DEMAND)
#define TW_TAKE_COUNT(OP, name, DEMAND) v.name = TW_TAKE_COUNT_##DEMAND;
#define TW_TAKE_COUNT_ROWS a->rows
#define TW_TAKE_COUNT_POSITION a->pos
#define TW_TAKE_AFFINE(OP, name, DEMAND) v.name = a->block;
#define TW_TAKE_IMMEDIATE(OP, name, DEMAND) v.name = a->i[TW_##OP##_IMM_##name];
#define TW_TAKE_FLOAT(OP, name, DEMAND) v.name = a->f[TW_##OP##_FLOAT_##name];

#define TW_ARGS_FIELD(OP, KIND, name, DEMAND, text) TW_ARG_##KIND(name)
#define TW_ARGS_TAKE(OP, KIND, name, DEMAND, text) TW_TAKE_##KIND(OP, name, DEMAND)
#define TW_ARGS_CONTROL(NAME, name)
#define TW_ARGS_DATA(NAME, name)                                                   \
    _Static_assert((unsigned)TW_##NAME##_REGION_COUNT <= TW_KARGS_REGIONS &&       \
                       (unsigned)TW_##NAME##_IMM_COUNT <= TW_KARGS_IMMS &&         \
                       (unsigned)TW_##NAME##_FLOAT_COUNT <= TW_KARGS_FLOATS,       \
                   "struct tw_kargs holds the operands of " #name);                \
    struct tw_args_##name {                                                        \
        TW_OPERANDS_##NAME(TW_ARGS_FIELD, NAME)                                    \
    };                                                                             \
    static inline struct tw_args_##name tw_args_##name(const struct tw_kargs *a) { \
        struct tw_args_##name v;                                                   \
        TW_OPERANDS_##NAME(TW_ARGS_TAKE, NAME) return v;                           \
    }
#define TW_OP(NAME, number, name, engines, part) TW_ARGS_##part(NAME, name)
#include "tilewright/ops.def"
#undef TW_OP

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

/* One kernel for each data op; NULL for control and synchronisation. */
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
