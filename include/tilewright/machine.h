/* SPDX-License-Identifier: Apache-2.0
 *
 * The tile machine: the objects of a program, as the compiler writes them, the bundle stores them,
 * the loader checks them and the firmware executes them. There is one representation: every record
 * below is fixed-width, little-endian, contains ids and never pointers, and is used in place.
 *
 * An id is the index of a record in its table; TW_NONE means "no such object". Sites are ordered by
 * (chip, y, x), engines within a site by number.
 */
#ifndef TILEWRIGHT_MACHINE_H
#define TILEWRIGHT_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__cplusplus)
#define TW_STATIC_ASSERT(cond, msg) static_assert(cond, msg)
#else
#define TW_STATIC_ASSERT(cond, msg) _Static_assert(cond, msg)
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Tilewright's records are little-endian and used in place: the processor must be, too"
#endif

#define TW_NONE 0xFFFFFFFFu

/* The machine ABI: what a firmware must support to run a program. A reader accepts exactly its own
 * major version. */
#define TW_MACHINE_ABI_MAJOR 2u
#define TW_MACHINE_ABI_MINOR 1u

/* ---- element types ---- */

/* X(name, value, text, elements per block, bytes per block) for row-major storage: blocks are those
 * of model files, as ggml writes them (tilewright/quants.h defines them). Q8S and Q8K are the
 * machine's forms of activations, never stored in a file: value = d*q (struct tw_q8s, tw_q8k). */
#define TW_DTYPES(X)                  \
    X(F32, 0, "f32", 1, 4)            \
    X(F16, 1, "f16", 1, 2)            \
    X(BF16, 2, "bf16", 1, 2)          \
    X(I32, 3, "i32", 1, 4)            \
    X(Q8_0, 4, "q8_0", 32, 34)        \
    X(Q4_0, 5, "q4_0", 32, 18)        \
    X(Q8S, 6, "q8s", 32, 40)          \
    X(U8, 7, "u8", 1, 1)              \
    X(Q4_1, 8, "q4_1", 32, 20)        \
    X(Q5_0, 9, "q5_0", 32, 22)        \
    X(Q5_1, 10, "q5_1", 32, 24)       \
    X(IQ4_NL, 11, "iq4_nl", 32, 18)   \
    X(MXFP4, 12, "mxfp4", 32, 17)     \
    X(Q2_K, 13, "q2_k", 256, 84)      \
    X(Q3_K, 14, "q3_k", 256, 110)     \
    X(Q4_K, 15, "q4_k", 256, 144)     \
    X(Q5_K, 16, "q5_k", 256, 176)     \
    X(Q6_K, 17, "q6_k", 256, 210)     \
    X(IQ4_XS, 18, "iq4_xs", 256, 136) \
    X(Q8K, 19, "q8k", 256, 292)

enum tw_dtype {
#define TW_X(name, value, text, elems, bytes) TW_DT_##name = value,
    TW_DTYPES(TW_X)
#undef TW_X
        TW_DT_COUNT = 20
};

/* 32 activations: `sum` is that of the quants. */
struct tw_q8s {
    float d;
    int32_t sum;
    int8_t q[32];
};
TW_STATIC_ASSERT(sizeof(struct tw_q8s) == 40, "q8s block");

/* 256 activations: sum[j] is that of quants 16j .. 16j + 15. */
struct tw_q8k {
    float d;
    int16_t sum[16];
    int8_t q[256];
};
TW_STATIC_ASSERT(sizeof(struct tw_q8k) == 292, "q8k block");

/* An entry of a list of TOPK: a value and the id of its column. An entry that is missing, because a
 * row has fewer numbers than the list has entries, is after all others: the value is a NaN (bits
 * 0x7FC00000) and the id TW_NONE. */
#define TW_MAX_TOPS 1024u /* entries of a list */
struct tw_top {
    float value;
    uint32_t id;
};
TW_STATIC_ASSERT(sizeof(struct tw_top) == 8, "entry of a list");

/* Properties of an element type. They accept any number and return 1 or "?" for one that is not a
 * type. */
static inline uint32_t tw_dtype_block_elems(unsigned dtype) {
    static const uint16_t elems_of[TW_DT_COUNT] = {
#define TW_X(name, value, text, elems, bytes) elems,
        TW_DTYPES(TW_X)
#undef TW_X
    };
    return dtype < TW_DT_COUNT ? elems_of[dtype] : 1;
}
static inline uint32_t tw_dtype_block_bytes(unsigned dtype) {
    static const uint16_t bytes_of[TW_DT_COUNT] = {
#define TW_X(name, value, text, elems, bytes) bytes,
        TW_DTYPES(TW_X)
#undef TW_X
    };
    return dtype < TW_DT_COUNT ? bytes_of[dtype] : 1;
}
static inline const char *tw_dtype_name(unsigned dtype) {
    static const char *const name_of[TW_DT_COUNT] = {
#define TW_X(name, value, text, elems, bytes) text,
        TW_DTYPES(TW_X)
#undef TW_X
    };
    return dtype < TW_DT_COUNT ? name_of[dtype] : "?";
}
/* Returns 1 for the types of quantised activations, which no tensor is stored in. */
static inline int tw_dtype_is_activation(unsigned dtype) {
    return dtype == TW_DT_Q8S || dtype == TW_DT_Q8K;
}
/* Returns the type of the activations that weights of a type are multiplied with: that of blocks as
 * long as theirs, F32 for weights without blocks. */
static inline unsigned tw_dtype_activation(unsigned dtype) {
    uint32_t elems = tw_dtype_block_elems(dtype);
    return elems == 1    ? (unsigned)TW_DT_F32
           : elems == 32 ? (unsigned)TW_DT_Q8S
                         : (unsigned)TW_DT_Q8K;
}
/* Returns the bytes of one row-major row of `cols` elements (a multiple of the block). */
static inline uint64_t tw_row_bytes(unsigned dtype, uint64_t cols) {
    return cols / tw_dtype_block_elems(dtype) * tw_dtype_block_bytes(dtype);
}

/* Weights in blocks. X(name, bits of a quant, its offset, elements of a sub-block, minima, bytes
 * of the scales of 16 blocks side by side in a panel): see tilewright/quants.h. */
#define TW_BLOCK_TYPES(X)        \
    X(Q8_0, 8, 128, 32, 0, 32)   \
    X(Q4_0, 4, 8, 32, 0, 32)     \
    X(Q4_1, 4, 0, 32, 1, 64)     \
    X(Q5_0, 5, 16, 32, 0, 32)    \
    X(Q5_1, 5, 0, 32, 1, 64)     \
    X(IQ4_NL, 4, 128, 32, 0, 32) \
    X(MXFP4, 4, 128, 32, 0, 16)  \
    X(Q2_K, 2, 0, 16, 1, 320)    \
    X(Q3_K, 3, 4, 16, 0, 224)    \
    X(Q4_K, 4, 0, 32, 1, 320)    \
    X(Q5_K, 5, 0, 32, 1, 320)    \
    X(Q6_K, 6, 32, 16, 0, 288)   \
    X(IQ4_XS, 4, 128, 32, 0, 160)

/* What TW_BLOCK_TYPES says of a type; all zero for a type that is not in it. */
struct tw_block_type {
    uint32_t bits, offset, sub_elems, minima, scale_bytes;
};

static inline struct tw_block_type tw_block_type(unsigned dtype) {
    struct tw_block_type t = {0, 0, 0, 0, 0};
    switch (dtype) {
#define TW_X(name, bits_, offset_, sub_elems_, minima_, scale_bytes_) \
    case TW_DT_##name:                                                \
        t.bits = bits_;                                               \
        t.offset = offset_;                                           \
        t.sub_elems = sub_elems_;                                     \
        t.minima = minima_;                                           \
        t.scale_bytes = scale_bytes_;                                 \
        break;
        TW_BLOCK_TYPES(TW_X)
#undef TW_X
    default:
        break;
    }
    return t;
}

/* ---- packing ---- */

/* Weights of a matrix product are packed in panels of 16 rows, so that a vector lane is an output
 * row and every output element is summed in the same order in every instruction set. Rows beyond
 * the matrix are zero weights. Panel p holds rows 16p .. 16p+15; panels follow each other without
 * gaps. A panel is cut in segments of TW_SUM_SEGMENT columns, which follow each other, too; the
 * last one may be shorter. So a window of columns that starts at a multiple of TW_SUM_SEGMENT, and
 * ends at one or with the matrix, is a panel itself, tw_panel_offset() bytes further. A segment:
 *   F32, F16, BF16:  [k][16 rows]
 *   blocks: the scales, block after block; zero padding to a multiple of 64 bytes; then the planes
 *           of the quants, 32 columns after 32, so that all is read in the order of addresses
 * The quants of 32 columns, as stored in the file, but those of Q8_0 as q + 128, in planes of lines
 * [16 rows][4]; element k is in group k / 4, at byte k % 4 of its row:
 *   8 bits:     8 lines, one for each group
 *   4, 5, 6:    4 lines of nibbles: line g has group g in the low ones, g + 4 in the high ones
 *   2, 3:       2 lines: line h has groups 4h .. 4h + 3, the first in the lowest bits
 *   then 5:     1 line: bit g is the fifth bit of group g
 *        6:     2 lines as those of 2 bits: bits 4 and 5
 *        3:     1 line: bit g is the third bit of group g
 * The scales of a block:
 *   [16 rows] f16 d (MXFP4: a byte); with minima [16 rows] f16 base; then in blocks of 256
 *   Q4_K, Q5_K: [8][16 rows] signed bytes of scales, then [8][16 rows] bytes of minima
 *   Q6_K: [16][16 rows] signed bytes of scales; IQ4_XS: [8][16 rows]
 *   Q2_K: [16][16 rows] bytes, the scale in the low nibble, the minimum in the high one
 *   Q3_K: scale + 32 of sub-block j: [8][16 rows] bytes, line j / 2 with low nibbles, that of an
 *         even j in the low half; then [4][16 rows], line j / 4 with the next two bits, from bit
 *         2 * (j % 4) on
 * KEYS:   the key cache, in pages of TW_KV_BLOCK positions that follow each other without gaps, so
 *         that a page holds all heads of its positions: [page][head][position/16][head_dim][16
 *         positions] f32 or f16, position counting from the page's first; rows = positions (a
 *         multiple of TW_KV_BLOCK), cols = heads*head_dim.
 * VALUES: the value cache, [page][head][position][head_dim] f32 or f16. */
#define TW_PACKINGS(X)       \
    X(ROW, 0, "row")         \
    X(PANEL16, 1, "panel16") \
    X(KEYS, 2, "keys")       \
    X(VALUES, 3, "values")

enum tw_packing {
#define TW_X(name, value, text) TW_PACK_##name = value,
    TW_PACKINGS(TW_X)
#undef TW_X
        TW_PACK_COUNT = 4
};

#define TW_PANEL_ROWS 16u
/* Positions in one key block of the online softmax. Blocks are cut by position, never by query or
 * chunk, so a token's logits do not depend on how it was fed. */
#define TW_KV_BLOCK 64u
/* Positions in one segment of keys, which has a softmax state of its own: a multiple of a block,
 * and cut by position, too. */
#define TW_KEY_SEGMENT 512u

/* Elements of a segment: the unit in which sums are cut (tilewright/numerics.h), panels are packed
 * and windows of columns start. A whole number of blocks of every type that is packed. */
#define TW_SUM_SEGMENT 256u

/* Returns the bytes of the quants of `elems` columns of a panel; 0 for a dtype without blocks. */
static inline uint64_t tw_segment_quants_bytes(unsigned dtype, uint64_t elems) {
    return elems * tw_block_type(dtype).bits * (TW_PANEL_ROWS / 8);
}
/* Returns how far into a segment of `elems` columns its quants begin, after the scales; 0 for a
 * dtype without blocks. */
static inline uint64_t tw_segment_quants(unsigned dtype, uint64_t elems) {
    uint64_t blocks = elems / tw_dtype_block_elems(dtype);
    return (blocks * tw_block_type(dtype).scale_bytes + 63) / 64 * 64;
}
/* Returns the bytes of a segment of `elems` columns of a panel, at most TW_SUM_SEGMENT; 0 for a
 * dtype that is not packed in panels. */
static inline uint64_t tw_segment_bytes(unsigned dtype, uint64_t elems) {
    switch (dtype) {
    case TW_DT_F32:
        return elems * 64;
    case TW_DT_F16:
    case TW_DT_BF16:
        return elems * 32;
    default:
        return tw_segment_quants(dtype, elems) + tw_segment_quants_bytes(dtype, elems);
    }
}
/* Returns how far into a panel column k begins, a multiple of TW_SUM_SEGMENT. */
static inline uint64_t tw_panel_offset(unsigned dtype, uint64_t k) {
    return k / TW_SUM_SEGMENT * tw_segment_bytes(dtype, TW_SUM_SEGMENT);
}
/* Returns the bytes of one PANEL16 panel of a matrix, or of a window of one, with `k` columns; 0
 * for a dtype that is not packed in panels. */
static inline uint64_t tw_panel_bytes(unsigned dtype, uint64_t k) {
    return tw_panel_offset(dtype, k) + tw_segment_bytes(dtype, k % TW_SUM_SEGMENT);
}
/* Returns the number of panels of a matrix with that many rows. */
static inline uint64_t tw_panels(uint64_t rows) {
    return (rows + TW_PANEL_ROWS - 1) / TW_PANEL_ROWS;
}

/* ---- objects ---- */

#define TW_ROLES(X)        \
    X(INPUT, 0, "input")   \
    X(PARAM, 1, "param")   \
    X(OUTPUT, 2, "output") \
    X(STATE, 3, "state")   \
    X(ACTIVATION, 4, "activation")

enum tw_role {
#define TW_X(name, value, text) TW_ROLE_##name = value,
    TW_ROLES(TW_X)
#undef TW_X
        TW_ROLE_COUNT = 5
};

enum tw_init { TW_INIT_NONE = 0, TW_INIT_ZERO = 1, TW_INIT_BLOB = 2 };

/* A named tensor. Param, State, Input and Output are in device DRAM and addressed through binding
 * rows: instance i (one per layer) is at binding row bind_first + i. An Activation is in the SRAM
 * buffers that name it (bind_count 0). `head_dim` is used by KEYS and VALUES. `bytes` is the size
 * of one instance. `page_rows`: of a State packed as ROW, the rows of one page, of which `rows` is
 * a multiple; 0 if it has no pages. KEYS and VALUES always have pages, of TW_KV_BLOCK rows, and 0
 * here (tw_tensor_pages). */
struct tw_tensor {
    uint32_t name; /* offset in the string table */
    uint32_t rows, cols;
    uint8_t dtype, packing, role, init;
    uint32_t bind_first, bind_count;
    uint32_t head_dim;
    uint32_t page_rows;
    uint64_t bytes;
};
TW_STATIC_ASSERT(sizeof(struct tw_tensor) == 40, "tensor record");

/* Return the number of pages of an instance and the bytes of one; 0 if the tensor has none. Accept
 * any record. */
static inline uint32_t tw_tensor_pages(const struct tw_tensor *t) {
    int cache = t->packing == TW_PACK_KEYS || t->packing == TW_PACK_VALUES;
    uint32_t rows = cache ? TW_KV_BLOCK : t->page_rows;
    return rows ? t->rows / rows : 0;
}
static inline uint64_t tw_tensor_page_bytes(const struct tw_tensor *t) {
    uint32_t pages = tw_tensor_pages(t);
    return pages ? t->bytes / pages : 0;
}

/* Of KEYS and VALUES: the bytes of one head in a page, which are together, and the index of element
 * (position, 0) among them; position < TW_KV_BLOCK. The head's next element is *next further. */
static inline uint64_t tw_cache_head_bytes(const struct tw_tensor *t) {
    return (uint64_t)TW_KV_BLOCK * t->head_dim * tw_dtype_block_bytes(t->dtype);
}
static inline uint64_t tw_cache_element(const struct tw_tensor *t, uint32_t position,
                                        uint32_t *next) {
    int keys = t->packing == TW_PACK_KEYS;
    *next = keys ? 16 : 1;
    return keys ? (uint64_t)(position / 16) * 16 * t->head_dim + position % 16
                : (uint64_t)position * t->head_dim;
}

enum tw_buffer_kind {
    TW_BUF_FIFO = 0, /* ring of pages; one producer engine, one consumer engine on its site */
    /* one page (a Param or State: one per instance); accesses are ordered by program order, flags,
     * rendezvous */
    TW_BUF_RESIDENT = 1,
    TW_BUF_SCRATCH = 2 /* one page, used by one engine only */
};

/* A site's SRAM is divided into memory classes (plain, interleaved: the target names them), each
 * with addresses of its own from 0 on. Class 0 exists everywhere. */
#define TW_MEM_CLASSES 4u

/* Bytes of one memory class of a site's SRAM: [offset, offset + pages*page_bytes). If
 * `sibling_base` is not TW_NONE, the buffer belongs to a set with one member on each site of
 * `group`: the members have consecutive ids from sibling_base on, in order of the group's sites
 * (tw_buffer_sibling), and equal class, offset, dtype and size, so that a multicast can address
 * them by one number; otherwise `group` is 0.
 *
 * `tensor` is the Activation of which the buffer holds a copy, or a Param or State that is pinned:
 * the buffer is then RESIDENT, with one page per instance of the tensor, and a page holds the
 * window of the instance that the window_ fields describe, without gaps, then padding:
 *   window_rows rows of window_row_bytes bytes, the first at byte window_first of the instance, the
 *   next one window_stride bytes further; all 0: the whole instance.
 * The device fills a pinned Param when it loads the program, and no op writes it. The bytes of a
 * pinned State live in the buffer, have the State's initial value when the memory that its binding
 * rows name is new, and stay from step to step; its window is contiguous, no other buffer holds the
 * same bytes, and no op names the tensor itself. The memory of the rows is where a device keeps the
 * State of a session while programs of another one run. */
struct tw_buffer {
    uint32_t name;
    uint32_t site;
    /* producer, consumer: engines of a FIFO */
    uint8_t kind, dtype, mem_class, producer, consumer, pad;
    uint16_t group;
    uint32_t pages;
    uint64_t page_bytes;
    uint64_t offset;
    uint32_t sibling_base;
    uint32_t tensor;
    uint64_t window_first;
    uint64_t window_stride; /* 0 if there is one row */
    uint32_t window_rows, window_row_bytes;
};
TW_STATIC_ASSERT(sizeof(struct tw_buffer) == 72, "buffer record");

enum tw_sem_role { TW_SEM_READY = 0, TW_SEM_VALID = 1, TW_SEM_GATHER = 2, TW_SEM_RELEASE = 3 };

/* A semaphore has one 32-bit word on each site of its group, which may span chips. Words are only
 * incremented, wrap safely, and are never reset; waits use thresholds that grow with the epoch
 * (variable 0). */
struct tw_semaphore {
    uint32_t name;
    uint32_t group; /* sites that have a word */
    uint32_t role;
    uint32_t initial;
};
TW_STATIC_ASSERT(sizeof(struct tw_semaphore) == 16, "semaphore record");

/* The same rectangle of sites, x0 <= x < x1, y0 <= y < y1, on each of the chips chip .. chip +
 * chips - 1; site = (chip*height + y)*width + x. The group of a multicast is on one chip (chips 1),
 * the sender's or another; in the latter case the data crosses a chip link. */
struct tw_group {
    uint16_t chip, x0, y0, x1, y1, chips;
};
TW_STATIC_ASSERT(sizeof(struct tw_group) == 12, "group record");

/* A number that is computed from x, an element of an Input (i32), when the step starts, before any
 * engine runs, and is constant during the step: ceil((x + add) / div). With clamp 1 the result is
 * limited to 0 .. max, whatever x is: an engine's part of work that is cut into ranges, which may
 * be none of it. With clamp 0 the step is refused if x or the result is negative, or the result
 * exceeds max: positions and row counts, which the step must be able to hold. */
struct tw_trip {
    uint32_t name;
    uint32_t input; /* tensor */
    uint32_t element;
    int32_t add;
    uint32_t div, max;
    uint32_t clamp; /* 0 or 1 */
};
TW_STATIC_ASSERT(sizeof(struct tw_trip) == 28, "trip record");

/* Returns ceil((x + add) / div), not limited yet; 0 if div is 0. */
static inline int64_t tw_trip_result(const struct tw_trip *t, int32_t x) {
    int64_t n = (int64_t)x + t->add, div = t->div;
    if (div == 0) {
        return 0;
    }
    return n > 0 ? (n - 1) / div + 1 : -(-n / div);
}

/* Maximum number of different uses of page tables in one program; ops that use the same elements
 * for the same tensor, such as those of all layers and heads, are one use. */
#define TW_MAX_PAGE_USES 1024u

enum tw_stage_kind {
    TW_STAGE_LOAD = 0,
    TW_STAGE_STORE = 1,
    TW_STAGE_RECV = 2,
    TW_STAGE_COMPUTE = 3,
    TW_STAGE_SYNC = 4
};

/* Describes consecutive ops of one engine: what they do, for which output block, and where they
 * come from. */
struct tw_stage {
    uint32_t kind;
    uint32_t site;
    uint32_t engine;
    uint32_t section;
    uint32_t origin;            /* string: the graph operation, e.g. "layer.attn_q" */
    uint32_t first_col, n_cols; /* output block (work item) */
    uint32_t k;                 /* reduction depth; 0 if there is none */
};
TW_STATIC_ASSERT(sizeof(struct tw_stage) == 32, "stage record");

/* The ids that belong to a section, and the semaphores of the rendezvous that closes it (TW_NONE:
 * not closed). `repeat` is the number of iterations of the section's loop, one per binding row of
 * its instances; 1: no loop. */
struct tw_section {
    uint32_t name;
    uint32_t repeat;
    uint32_t first_buffer, n_buffers;
    uint32_t first_semaphore, n_semaphores;
    uint32_t first_stage, n_stages;
    uint32_t local, gather, release; /* rendezvous semaphores */
    uint32_t reserved;
};
TW_STATIC_ASSERT(sizeof(struct tw_section) == 48, "section record");

enum tw_engine { TW_ENGINE_LOAD = 0, TW_ENGINE_MATH = 1, TW_ENGINE_STORE = 2, TW_ENGINE_COUNT = 3 };

static inline const char *tw_engine_name(unsigned engine) {
    static const char *const name[TW_ENGINE_COUNT] = {"load", "math", "store"};
    return engine < TW_ENGINE_COUNT ? name[engine] : "?";
}

/* One engine's program: n_words words of encoded ops (tilewright/opcode.h). */
struct tw_stream {
    uint32_t site, engine;
    const uint32_t *words;
    uint32_t n_words;
};

/* An op of a program that is running; site TW_NONE: there is none, or it is not known. */
struct tw_place {
    uint32_t site, engine, op_index, opcode;
};

/* A program, as tables of records: a step of a decoder. The Inputs that it has, all i32, say what
 * the step is:
 *
 *   decode             the token ids[0] of one sequence, at position pos; end is pos + 1
 *   prefill.N score.N  the tokens ids[0 .. rows - 1] from position pos on; end is pos + rows
 *   decode.N           a batch of N rows: row r is the token ids[r] at position pos[r], end[r] is
 *                      pos[r] + 1, and rows[r] is 1. Rows are of any sequences at any positions,
 *                      also several of one sequence, each at another position. A row that is not
 *                      used has rows[r] = 0, end[r] = 0, and any ids[r] and pos[r] that a used one
 *                      might have: it writes no state and has logits without meaning.
 *
 * pages[i] is the page of the State of positions 64 * i and following; in a batch row r has
 * pages[r * cols + i], where cols are the columns of the table, and rows of one sequence have equal
 * pages. States of windows have pos.window, end.window and pages.window, which are counted from an
 * origin. A row sees all positions of its sequence up to its own, those that other rows of the step
 * write included. The Output `logits` has the logits of the last token, of a batch those of row r
 * in its row r; `scores` has those of all tokens of score.N. A row's logits do not depend on the
 * program that computes it, nor on the rows beside it.
 *
 * All pointers belong to the creator of the view (the compiler's arena, the loader's bundle, the
 * firmware's memory) and stay constant while it is in use. Streams are sorted by (site, engine) and
 * there are n_sites * TW_ENGINE_COUNT of them, empty ones included: stream index = site *
 * TW_ENGINE_COUNT + engine. */
struct tw_program {
    const char *name;    /* "decode", "prefill.64", "decode.8" */
    const char *strings; /* string table: NUL-terminated strings, offset 0 is "" */
    uint32_t strings_bytes;
    uint32_t rows; /* maximum number of tokens per step */
    uint32_t n_sites, mesh_width, mesh_height, n_chips;
    uint64_t sram_bytes[TW_MEM_CLASSES]; /* of one site, by memory class; 0: there is none */
    uint32_t n_tensors, n_buffers, n_semaphores, n_groups, n_trips, n_stages, n_sections;
    const struct tw_tensor *tensors;
    const struct tw_buffer *buffers;
    const struct tw_semaphore *semaphores;
    const struct tw_group *groups;
    const struct tw_trip *trips;
    const struct tw_stage *stages;
    const struct tw_section *sections;
    const struct tw_stream *streams;
};

/* Returns the number of sites of a group. Accepts any record, even one that the verifier would
 * refuse. */
static inline uint64_t tw_group_size(const struct tw_group *g) {
    uint32_t width = g->x1 > g->x0 ? (uint32_t)(g->x1 - g->x0) : 0,
             height = g->y1 > g->y0 ? (uint32_t)(g->y1 - g->y0) : 0;
    return (uint64_t)width * height * g->chips;
}
/* Returns 1 if the group contains the site. */
static inline int tw_group_holds(const struct tw_program *p, const struct tw_group *g,
                                 uint32_t site) {
    uint32_t x = site % p->mesh_width, y = site / p->mesh_width % p->mesh_height;
    uint32_t chip = site / p->mesh_width / p->mesh_height;
    return chip >= g->chip && chip - g->chip < g->chips && x >= g->x0 && x < g->x1 && y >= g->y0 &&
           y < g->y1;
}
/* Sites of a group are numbered in order of (chip, y, x). Returns the site with a number below the
 * group's size, and the number of a site in the group. */
static inline uint32_t tw_group_site(const struct tw_program *p, const struct tw_group *g,
                                     uint32_t number) {
    uint32_t width = (uint32_t)(g->x1 - g->x0), height = (uint32_t)(g->y1 - g->y0);
    uint32_t chip = g->chip + number / width / height, y = g->y0 + number / width % height;
    return (chip * p->mesh_height + y) * p->mesh_width + g->x0 + number % width;
}
static inline uint32_t tw_group_number(const struct tw_program *p, const struct tw_group *g,
                                       uint32_t site) {
    uint32_t width = (uint32_t)(g->x1 - g->x0), height = (uint32_t)(g->y1 - g->y0);
    uint32_t x = site % p->mesh_width, y = site / p->mesh_width % p->mesh_height;
    uint32_t chip = site / p->mesh_width / p->mesh_height;
    return ((chip - g->chip) * height + (y - g->y0)) * width + (x - g->x0);
}

/* Returns a string of the program, or "?" for an offset outside its string table. */
static inline const char *tw_program_string(const struct tw_program *p, uint32_t offset) {
    return offset < p->strings_bytes ? p->strings + offset : "?";
}

/* Returns 1 if group b contains every site of group a. */
static inline int tw_group_within(const struct tw_group *a, const struct tw_group *b) {
    return a->chip >= b->chip && a->chip + a->chips <= b->chip + b->chips && a->x0 >= b->x0 &&
           a->x1 <= b->x1 && a->y0 >= b->y0 && a->y1 <= b->y1;
}

/* Returns the member on `site` of the set to which the buffer belongs; TW_NONE if it belongs to
 * none or the set has no member there. */
static inline uint32_t tw_buffer_sibling(const struct tw_program *p, const struct tw_buffer *b,
                                         uint32_t site) {
    if (b->sibling_base == TW_NONE || !tw_group_holds(p, &p->groups[b->group], site)) {
        return TW_NONE;
    }
    return b->sibling_base + tw_group_number(p, &p->groups[b->group], site);
}

/* Returns the Param or State that a buffer holds in SRAM; the Param; the State; NULL if it holds
 * none. */
static inline const struct tw_tensor *tw_buffer_pinned(const struct tw_program *p,
                                                       const struct tw_buffer *b) {
    const struct tw_tensor *t = b->tensor < p->n_tensors ? &p->tensors[b->tensor] : NULL;
    return t && (t->role == TW_ROLE_PARAM || t->role == TW_ROLE_STATE) ? t : NULL;
}
static inline const struct tw_tensor *tw_buffer_param(const struct tw_program *p,
                                                      const struct tw_buffer *b) {
    const struct tw_tensor *t = tw_buffer_pinned(p, b);
    return t && t->role == TW_ROLE_PARAM ? t : NULL;
}
static inline const struct tw_tensor *tw_buffer_state(const struct tw_program *p,
                                                      const struct tw_buffer *b) {
    const struct tw_tensor *t = tw_buffer_pinned(p, b);
    return t && t->role == TW_ROLE_STATE ? t : NULL;
}

/* What a pinned buffer holds of each instance of its tensor: `rows` rows of row_bytes bytes, from
 * byte `first` on. */
struct tw_window {
    uint64_t first, stride, row_bytes, rows;
};
static inline struct tw_window tw_buffer_window(const struct tw_tensor *t,
                                                const struct tw_buffer *b) {
    struct tw_window whole = {0, 0, t->bytes, 1};
    struct tw_window part = {b->window_first, b->window_stride, b->window_row_bytes,
                             b->window_rows};
    return b->window_rows ? part : whole;
}
/* Returns the bytes of a window; UINT64_MAX if they are that many or more. */
static inline uint64_t tw_window_bytes(const struct tw_window *w) {
    return w->row_bytes && w->rows > UINT64_MAX / w->row_bytes ? UINT64_MAX
                                                               : w->rows * w->row_bytes;
}
/* Returns 1 if the window has bytes, and all of them are in an instance of that size. */
static inline int tw_window_inside(const struct tw_window *w, uint64_t bytes) {
    uint64_t steps = w->rows ? w->rows - 1 : 0;
    return w->rows > 0 && w->row_bytes > 0 && w->row_bytes <= bytes &&
           w->first <= bytes - w->row_bytes &&
           (steps == 0 || w->stride <= (bytes - w->row_bytes - w->first) / steps);
}
/* Returns 1 if the window's rows follow each other without gaps in the instance. */
static inline int tw_window_contiguous(const struct tw_window *w) {
    return w->rows == 1 || w->stride == w->row_bytes;
}

#ifdef __cplusplus
}
#endif
#endif
