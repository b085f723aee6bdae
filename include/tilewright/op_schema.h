/* SPDX-License-Identifier: Apache-2.0
 *
 * What ops.def says of operands, as C: where each of an op's operands is (enumerations), what it is
 * called and may be (tw_op_operands, tw_demand_*), and one typed function per op that makes it
 * (tw_make_*). Everything is generated; nothing here knows one op from another.
 */
#ifndef TILEWRIGHT_OP_SCHEMA_H
#define TILEWRIGHT_OP_SCHEMA_H

#include "tilewright/opcode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- where operands are ---- */

/* Of each op, here of MATMUL:
 *   TW_MATMUL_k          index of k in tw_op.operand            TW_MATMUL_COUNT         of operands
 *   TW_MATMUL_REGION_x   which of the regions x is              TW_MATMUL_REGION_COUNT
 *   TW_MATMUL_IMM_k      which of the immediates k is           TW_MATMUL_IMM_COUNT
 *   TW_RMS_NORM_FLOAT_epsilon   which of the floats             TW_RMS_NORM_FLOAT_COUNT
 * Regions, immediates and floats are numbered from 0 in the order of the operands, as tw_op_region,
 * tw_op_extent and a kernel's arguments take them. */
#define TW_IF_REGION_READ(x) x,
#define TW_IF_REGION_WRITE(x) x,
#define TW_IF_REGION_UPDATE(x) x,
#define TW_IF_REGION_REMOTE(x) x,
#define TW_IF_REGION_TENSOR_READ(x) x,
#define TW_IF_REGION_TENSOR_WRITE(x) x,
#define TW_IF_REGION_FIFO(x)
#define TW_IF_REGION_SEMAPHORE(x)
#define TW_IF_REGION_GROUP(x)
#define TW_IF_REGION_SITE(x)
#define TW_IF_REGION_VARIABLE(x)
#define TW_IF_REGION_COUNT(x)
#define TW_IF_REGION_AFFINE(x)
#define TW_IF_REGION_IMMEDIATE(x)
#define TW_IF_REGION_FLOAT(x)

#define TW_IF_IMM_READ(x)
#define TW_IF_IMM_WRITE(x)
#define TW_IF_IMM_UPDATE(x)
#define TW_IF_IMM_REMOTE(x)
#define TW_IF_IMM_TENSOR_READ(x)
#define TW_IF_IMM_TENSOR_WRITE(x)
#define TW_IF_IMM_FIFO(x)
#define TW_IF_IMM_SEMAPHORE(x)
#define TW_IF_IMM_GROUP(x)
#define TW_IF_IMM_SITE(x)
#define TW_IF_IMM_VARIABLE(x)
#define TW_IF_IMM_COUNT(x)
#define TW_IF_IMM_AFFINE(x)
#define TW_IF_IMM_IMMEDIATE(x) x,
#define TW_IF_IMM_FLOAT(x)

#define TW_IF_FLOAT_READ(x)
#define TW_IF_FLOAT_WRITE(x)
#define TW_IF_FLOAT_UPDATE(x)
#define TW_IF_FLOAT_REMOTE(x)
#define TW_IF_FLOAT_TENSOR_READ(x)
#define TW_IF_FLOAT_TENSOR_WRITE(x)
#define TW_IF_FLOAT_FIFO(x)
#define TW_IF_FLOAT_SEMAPHORE(x)
#define TW_IF_FLOAT_GROUP(x)
#define TW_IF_FLOAT_SITE(x)
#define TW_IF_FLOAT_VARIABLE(x)
#define TW_IF_FLOAT_COUNT(x)
#define TW_IF_FLOAT_AFFINE(x)
#define TW_IF_FLOAT_IMMEDIATE(x)
#define TW_IF_FLOAT_FLOAT(x) x,

#define TW_OPERAND_INDEX(OP, KIND, name, DEMAND, text) TW_##OP##_##name,
#define TW_OPERAND_REGION(OP, KIND, name, DEMAND, text) TW_IF_REGION_##KIND(TW_##OP##_REGION_##name)
#define TW_OPERAND_IMM(OP, KIND, name, DEMAND, text) TW_IF_IMM_##KIND(TW_##OP##_IMM_##name)
#define TW_OPERAND_FLOAT(OP, KIND, name, DEMAND, text) TW_IF_FLOAT_##KIND(TW_##OP##_FLOAT_##name)

#define TW_OP(NAME, number, name, engines, part)                                   \
    enum { TW_OPERANDS_##NAME(TW_OPERAND_INDEX, NAME) TW_##NAME##_COUNT };         \
    enum { TW_OPERANDS_##NAME(TW_OPERAND_REGION, NAME) TW_##NAME##_REGION_COUNT }; \
    enum { TW_OPERANDS_##NAME(TW_OPERAND_IMM, NAME) TW_##NAME##_IMM_COUNT };       \
    enum { TW_OPERANDS_##NAME(TW_OPERAND_FLOAT, NAME) TW_##NAME##_FLOAT_COUNT };
#include "tilewright/ops.def"
#undef TW_OP

/* ---- what operands may be ---- */

#define TW_DTYPE_BIT(name) (1u << TW_DT_##name)
#define TW_WEIGHT_DTYPES \
    (TW_DTYPE_BIT(F32) | TW_DTYPE_BIT(F16) | TW_DTYPE_BIT(BF16) | TW_BLOCK_TYPES(TW_BLOCK_BIT) 0u)
#define TW_BLOCK_BIT(name, bits, offset, sub_elems, minima, scale_bytes) TW_DTYPE_BIT(name) |

/* X(NAME, dtypes): regions. WEIGHTS, CACHE: the dtype that the op's WEIGHT_DTYPE or CACHE_DTYPE
 * names, or untyped pages. F32_PAGE: f32, or untyped pages. IDS: row numbers, which the host gives:
 * an Input. LIST: entries of TOPK (struct tw_top), as untyped bytes. */
#define TW_REGION_DEMANDS(X)                                             \
    X(ANY, ~0u)                                                          \
    X(F32, TW_DTYPE_BIT(F32))                                            \
    X(F32_PAGE, TW_DTYPE_BIT(F32) | TW_DTYPE_BIT(U8))                    \
    X(Q8S, TW_DTYPE_BIT(Q8S))                                            \
    X(Q8K, TW_DTYPE_BIT(Q8K))                                            \
    X(FACTOR, TW_DTYPE_BIT(F32) | TW_DTYPE_BIT(Q8S) | TW_DTYPE_BIT(Q8K)) \
    X(WEIGHTS, TW_DTYPE_BIT(U8))                                         \
    X(LIST, TW_DTYPE_BIT(U8))                                            \
    X(CACHE, TW_DTYPE_BIT(U8))                                           \
    X(IDS, TW_DTYPE_BIT(I32))

/* X(NAME, min, max, multiple of, what it is called): numbers. WEIGHT_DTYPE: one of
 * TW_WEIGHT_DTYPES. The bounds keep every product of an extent below 2^63. */
#define TW_NUMBER_DEMANDS(X)                                         \
    X(STRIDE, 0u, 0xFFFFFFFCu, 4u, "stride (a multiple of 4)")       \
    X(ROW_BYTES, 4u, 0xFFFFFFFCu, 4u, "row bytes (a multiple of 4)") \
    X(ROWS, 1u, 0x7FFFFFFFu, 1u, "rows")                             \
    X(COLS, 1u, 1u << 26, 1u, "columns or depth")                    \
    X(WEIGHT_DTYPE, 0u, 31u, 1u, "weight dtype")                     \
    X(PANELS, 1u, 1u << 22, 1u, "panels")                            \
    X(W_STRIDE, 0u, 0xFFFFFFC0u, 64u, "stride (a multiple of 64)")   \
    X(PARTS, 1u, 1u << 18, 1u, "parts")                              \
    X(CACHE_DTYPE, 0u, 1u, 1u, "cache dtype (f32 or f16)")           \
    X(HEADS, 1u, 1u << 16, 1u, "heads")                              \
    X(FIRST_HEAD, 0u, (1u << 16) - 1u, 1u, "heads")                  \
    X(HEAD_DIM, 2u, 512u, 2u, "head_dim (even, 2..512)")             \
    X(ROTATED, 2u, 512u, 2u, "rotated dims (even, 2..512)")          \
    X(TOPS, 1u, TW_MAX_TOPS, 1u, "entries of a list (1..1024)")      \
    X(SEGMENTS, 1u, 1u << 12, 1u, "segments")                        \
    X(FIRST_SEGMENT, 0u, (1u << 22) - 1u, 1u, "segments")            \
    X(FLAG, 0u, 1u, 1u, "mode (0 or 1)")

enum tw_demand {
    TW_DEMAND_OWN,      /* a rule of the op alone */
    TW_DEMAND_ID,       /* inside its table */
    TW_DEMAND_FINITE,   /* a float */
    TW_DEMAND_TIMES,    /* a count of iterations: as ROWS */
    TW_DEMAND_POSITION, /* a count: as ROWS, or 0 */
#define TW_X(name, dtypes) TW_DEMAND_##name,
    TW_REGION_DEMANDS(TW_X)
#undef TW_X
#define TW_X(name, min, max, multiple, text) TW_DEMAND_##name,
        TW_NUMBER_DEMANDS(TW_X)
#undef TW_X
            TW_DEMAND_COUNT
};

/* Returns true for numbers that name the dtype of the op's WEIGHTS or CACHE regions. */
static inline bool tw_demand_names_dtype(uint32_t demand) {
    return demand == TW_DEMAND_WEIGHT_DTYPE || demand == TW_DEMAND_CACHE_DTYPE;
}

/* Returns true if a region of that dtype meets the demand; `named` is the op's WEIGHT_DTYPE or
 * CACHE_DTYPE, if it has one. True for demands on other than regions. */
static inline bool tw_demand_dtype(uint32_t demand, uint32_t dtype, uint32_t named) {
    switch (demand) {
#define TW_X(name, dtypes)                                                           \
    case TW_DEMAND_##name: {                                                         \
        uint32_t set = dtypes;                                                       \
        bool page = demand == TW_DEMAND_WEIGHTS || demand == TW_DEMAND_CACHE;        \
        return (dtype < 32 && (set >> dtype & 1u) != 0) || (page && dtype == named); \
    }
        TW_REGION_DEMANDS(TW_X)
#undef TW_X
    default:
        return true;
    }
}

/* Returns true if a region of that kind with that demand may be of a tensor of that role: the
 * operand of a tensor, or a buffer that keeps one in SRAM. */
static inline bool tw_demand_role(char kind, uint32_t demand, uint32_t role) {
    switch (kind) {
    case TW_KIND_TENSOR_WRITE:
        return role == TW_ROLE_OUTPUT || role == TW_ROLE_STATE;
    case TW_KIND_TENSOR_READ:
        return demand == TW_DEMAND_IDS ? role == TW_ROLE_INPUT : role != TW_ROLE_ACTIVATION;
    default:
        return kind == TW_KIND_READ || role != TW_ROLE_PARAM;
    }
}

/* Returns true if a number meets the demand. True for demands on other than numbers. */
static inline bool tw_demand_number(uint32_t demand, uint32_t value) {
    switch (demand) {
#define TW_X(name, min, max, multiple, text)                                \
    case TW_DEMAND_##name:                                                  \
        return value - (min) <= (max) - (min) && value % (multiple) == 0 && \
               (demand != TW_DEMAND_WEIGHT_DTYPE || (TW_WEIGHT_DTYPES >> value & 1u) != 0);
        TW_NUMBER_DEMANDS(TW_X)
#undef TW_X
    default:
        return true;
    }
}

/* Returns what a demanded number is called, with its bounds: "stride (a multiple of 4)"; "number"
 * for demands on other than numbers. */
static inline const char *tw_demand_text(uint32_t demand) {
    switch (demand) {
#define TW_X(name, min, max, multiple, text) \
    case TW_DEMAND_##name:                   \
        return text;
        TW_NUMBER_DEMANDS(TW_X)
#undef TW_X
    default:
        return "number";
    }
}

/* ---- the operands of an op ---- */

struct tw_operand_info {
    const char *name; /* NULL ends a list */
    const char *text; /* printed before it in the text form; "": nothing */
    char kind;        /* enum tw_operand_kind, a letter */
    uint8_t demand;   /* enum tw_demand */
};

#define TW_OPERAND_INFO(OP, KIND, name, DEMAND, text) \
    {#name, text, TW_KIND_##KIND, TW_DEMAND_##DEMAND},

/* Returns the operands in order, ended by one without a name; only that one if no op has the
 * number. Static. */
static inline const struct tw_operand_info *tw_op_operands(uint32_t code) {
    static const struct tw_operand_info none = {NULL, NULL, 0, 0};
    switch (code) {
#define TW_OP(NAME, number, name, engines, part)                          \
    case number: {                                                        \
        static const struct tw_operand_info list[] = {                    \
            TW_OPERANDS_##NAME(TW_OPERAND_INFO, NAME){NULL, NULL, 0, 0}}; \
        return list;                                                      \
    }
#include "tilewright/ops.def"
#undef TW_OP
    default:
        return &none;
    }
}

/* The FIFO or semaphore that an op is about; TW_NONE for ops that have neither. */
static inline uint32_t tw_op_object(const struct tw_op *op) {
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (op->operand[i].kind == TW_KIND_FIFO || op->operand[i].kind == TW_KIND_SEMAPHORE) {
            return op->operand[i].id;
        }
    }
    return TW_NONE;
}

/* ---- making ops ---- */

struct tw_buffer_at {
    uint32_t buffer;
    struct tw_affine offset;
};
struct tw_tensor_at {
    uint32_t tensor;
    struct tw_affine instance, offset;
    bool paged; /* then offset counts in the page that the element of the table names */
    uint32_t table;
    struct tw_affine element;
};
struct tw_count {
    uint32_t trip, max;
};

static inline struct tw_buffer_at tw_in_buffer(uint32_t buffer, struct tw_affine offset) {
    struct tw_buffer_at at = {buffer, offset};
    return at;
}

static inline struct tw_tensor_at tw_in_tensor(uint32_t tensor, struct tw_affine instance,
                                               struct tw_affine offset) {
    struct tw_tensor_at at = {tensor, instance, offset, false, TW_NONE, {0, 0, {{0, 0}}}};
    return at;
}

/* The same in the page that an element of a table names. */
static inline struct tw_tensor_at tw_in_page(struct tw_tensor_at at, uint32_t table,
                                             struct tw_affine element) {
    at.paged = true;
    at.table = table;
    at.element = element;
    return at;
}

/* Returns an element of a table as its place in its row, which is `cols` elements long: terms that
 * step by whole rows choose the row. */
static inline struct tw_affine tw_in_row(const struct tw_affine *element, uint32_t cols) {
    struct tw_affine in_row = tw_affine_const(element->base % cols);
    for (uint32_t i = 0; i < element->n_terms; i++) {
        uint64_t step = element->term[i].step;
        if ((step >> 63 ? 0 - step : step) % cols != 0) {
            in_row = tw_affine_plus(in_row, element->term[i].var, step);
        }
    }
    return in_row;
}

/* As often as the trip says, at most max. */
static inline struct tw_count tw_count_of(uint32_t trip, uint32_t max) {
    struct tw_count count = {trip, max};
    return count;
}

static inline struct tw_count tw_count_const(uint32_t n) {
    return tw_count_of(TW_NONE, n);
}

/* Fill an operand that is all zero. */
static inline void tw_set_buffer(struct tw_operand *o, char kind, struct tw_buffer_at value) {
    o->kind = kind;
    o->id = value.buffer;
    o->offset = value.offset;
}

static inline void tw_set_tensor(struct tw_operand *o, char kind, struct tw_tensor_at value) {
    o->kind = kind;
    o->id = value.tensor;
    o->instance = value.instance;
    o->offset = value.offset;
    o->paged = value.paged;
    o->table = value.table;
    o->element = value.element;
}

static inline void tw_set_number(struct tw_operand *o, char kind, uint32_t value) {
    o->kind = kind;
    o->id = value;
}

static inline void tw_set_count(struct tw_operand *o, char kind, struct tw_count value) {
    o->kind = kind;
    o->id = value.trip;
    o->max = value.max;
}

static inline void tw_set_affine(struct tw_operand *o, char kind, struct tw_affine value) {
    o->kind = kind;
    o->offset = value;
}

static inline void tw_set_float(struct tw_operand *o, char kind, float value) {
    o->kind = kind;
    memcpy(&o->id, &value, sizeof value);
}

/* Of each kind, the C type of its argument and the function above that takes it. */
#define TW_TYPE_READ struct tw_buffer_at
#define TW_TYPE_WRITE struct tw_buffer_at
#define TW_TYPE_UPDATE struct tw_buffer_at
#define TW_TYPE_REMOTE struct tw_buffer_at
#define TW_TYPE_TENSOR_READ struct tw_tensor_at
#define TW_TYPE_TENSOR_WRITE struct tw_tensor_at
#define TW_TYPE_FIFO uint32_t
#define TW_TYPE_SEMAPHORE uint32_t
#define TW_TYPE_GROUP uint32_t
#define TW_TYPE_SITE uint32_t
#define TW_TYPE_VARIABLE uint32_t
#define TW_TYPE_COUNT struct tw_count
#define TW_TYPE_AFFINE struct tw_affine
#define TW_TYPE_IMMEDIATE uint32_t
#define TW_TYPE_FLOAT float

#define TW_SET_READ tw_set_buffer
#define TW_SET_WRITE tw_set_buffer
#define TW_SET_UPDATE tw_set_buffer
#define TW_SET_REMOTE tw_set_buffer
#define TW_SET_TENSOR_READ tw_set_tensor
#define TW_SET_TENSOR_WRITE tw_set_tensor
#define TW_SET_FIFO tw_set_number
#define TW_SET_SEMAPHORE tw_set_number
#define TW_SET_GROUP tw_set_number
#define TW_SET_SITE tw_set_number
#define TW_SET_VARIABLE tw_set_number
#define TW_SET_COUNT tw_set_count
#define TW_SET_AFFINE tw_set_affine
#define TW_SET_IMMEDIATE tw_set_number
#define TW_SET_FLOAT tw_set_float

/* Returns the minor version of the machine with which an op of a verified program came, or the form
 * of it: products of floats with weights in blocks. */
static inline uint32_t tw_op_abi_minor(const struct tw_op *op, const struct tw_buffer *buffers) {
    bool floats = op->code == TW_OP_MATMUL &&
                  buffers[op->operand[TW_MATMUL_x].id].dtype == TW_DT_F32 &&
                  tw_dtype_block_elems(op->operand[TW_MATMUL_dtype].id) > 1;
    return floats || op->code >= TW_OP_LAYER_NORM ? 1 : 0;
}

/* For headers that generate a function per op: ", type name" and ", name" of each operand. */
#define TW_OPERAND_PARAMETER(OP, KIND, name, DEMAND, text) , TW_TYPE_##KIND name
#define TW_OPERAND_ARGUMENT(OP, KIND, name, DEMAND, text) , name
#define TW_OPERAND_SET(OP, KIND, name, DEMAND, text) \
    TW_SET_##KIND(&op.operand[TW_##OP##_##name], TW_KIND_##KIND, name);

/* tw_make_NAME(stage, operands...): the op, ready to be encoded. A wrong type or count of operands
 * does not compile. */
#define TW_OP(NAME, number, name, engines, part)                         \
    static inline struct tw_op tw_make_##name(                           \
        uint32_t stage TW_OPERANDS_##NAME(TW_OPERAND_PARAMETER, NAME)) { \
        struct tw_op op;                                                 \
        memset(&op, 0, sizeof op);                                       \
        op.code = number;                                                \
        op.stage = stage;                                                \
        op.n_operands = TW_##NAME##_COUNT;                               \
        TW_OPERANDS_##NAME(TW_OPERAND_SET, NAME) return op;              \
    }
#include "tilewright/ops.def"
#undef TW_OP

#ifdef __cplusplus
}
#endif
#endif
