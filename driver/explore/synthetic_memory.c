/* SPDX-License-Identifier: Apache-2.0
 *
 * All binding rows lie in one block, one after the other. Tensors that name the same row share it;
 * it is as large as the largest of them.
 */
#include "driver/explore/synthetic_memory.h"

#include "loader/base/assert.h"
#include "tilewright/footprint.h"
#include "tilewright/range.h"

#include <stdlib.h>

enum { ALIGN = 64 };

/* ---- layout ---- */

static uint32_t count_rows(const struct tw_program *p) {
    uint64_t n = 0;
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        uint64_t end = (uint64_t)p->tensors[t].bind_first + p->tensors[t].bind_count;
        n = p->tensors[t].bind_count && end > n ? end : n;
    }
    return (uint32_t)n; /* the verifier has checked that it is below TW_NONE */
}

static void size_rows(struct synthetic_memory *m) {
    const struct tw_program *p = m->program;
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        for (uint32_t i = 0; i < p->tensors[t].bind_count; i++) {
            uint64_t *bytes = &m->bytes[p->tensors[t].bind_first + i];
            *bytes = p->tensors[t].bytes > *bytes ? p->tensors[t].bytes : *bytes;
        }
    }
}

/* Returns false if the rows need more than the limit. */
static bool place_rows(struct synthetic_memory *m, uint64_t limit, uint64_t *size) {
    *size = 0;
    for (uint32_t r = 0; r < m->n_rows; r++) {
        m->address[r] = *size;
        if (m->bytes[r] > limit || *size > limit) {
            return false;
        }
        *size += (m->bytes[r] + ALIGN - 1) / ALIGN * ALIGN;
    }
    *size += ALIGN; /* so that even an empty row at the end has an address inside the block */
    return *size <= limit;
}

static uint8_t *row_data(const struct synthetic_memory *m, const struct tw_tensor *t, uint32_t i) {
    TW_ASSERT(i < t->bind_count && t->bind_first + i < m->n_rows);
    return (uint8_t *)(uintptr_t)m->address[t->bind_first + i];
}

/* ---- contents ---- */

/* Fills memory with 16-bit floats of either sign and a magnitude of about 2^-6 to 2^-3: `mask`
 * selects the random bits (sign and mantissa), the exponent is one of three from `exponent` on. */
static void fill_16bit(uint8_t *at, uint64_t n, uint64_t seed, uint16_t mask, uint16_t exponent,
                       unsigned exponent_shift) {
    for (uint64_t i = 0; i < n; i++) {
        uint64_t r = (seed + i) * 0x9E3779B97F4A7C15u >> 32;
        uint64_t e = exponent + (r >> 17) % 3;
        uint16_t x = (uint16_t)((r & mask) | e << exponent_shift);
        memcpy(at + i * 2, &x, 2);
    }
}

static void fill_floats(uint8_t *at, uint64_t n, uint64_t seed) {
    for (uint64_t i = 0; i < n; i++) {
        float x = (float)((seed + i) * 0x9E3779B97F4A7C15u >> 40) / (1 << 24) - 0.5f;
        memcpy(at + i * 4, &x, 4);
    }
}

static void fill_tensor(const struct tw_tensor *t, uint8_t *at, uint64_t seed) {
    switch (t->dtype) {
    case TW_DT_F32:
        fill_floats(at, t->bytes / 4, seed);
        break;
    case TW_DT_BF16:
        fill_16bit(at, t->bytes / 2, seed, 0x807F, 121, 7);
        break;
    case TW_DT_MXFP4: /* a scale is a byte, at most 2^-1 */
        fill_16bit(at, t->bytes / 2, seed, 0x7F7C, 0, 0);
        break;
    case TW_DT_I32:
    case TW_DT_U8:
        break;
    default: /* the scales of blocks are F16, too, and any byte is a valid quant */
        fill_16bit(at, t->bytes / 2, seed, 0x83FF, 9, 10);
        break;
    }
}

/* Returns `want`, or the nearest value that the trips which read the tensor accept. */
static uint32_t trip_value(const struct tw_program *p, uint32_t tensor, uint32_t want) {
    int64_t value = want;
    for (uint32_t i = 0; i < p->n_trips; i++) {
        const struct tw_trip *t = &p->trips[i];
        int64_t max = (int64_t)t->max * t->div - t->add, min = -(int64_t)t->add;
        if (t->input == tensor && !t->clamp) { /* others accept any value */
            value = value < max ? value : max;
            value = value > min ? value : min;
        }
    }
    return value < 0 ? 0 : (uint32_t)(value < INT32_MAX ? value : INT32_MAX);
}

static bool trip_reads(const struct tw_program *p, uint32_t trip, uint32_t tensor) {
    return trip != TW_NONE && p->trips[trip].input == tensor;
}

/* Limits the value to what `op` accepts, if it reads the Input: as the position where it writes, 0
 * is always valid; as row ids, values below *limit are; as numbers of pages, those below *pages. */
static void limit_for_op(const struct tw_program *p, const struct tw_op *op, uint32_t tensor,
                         uint32_t *want, uint32_t *limit, uint32_t *pages) {
    const struct tw_operand *position = tw_op_position(op);
    if (position && trip_reads(p, position->id, tensor)) {
        *want = 0;
    }
    if (op->code == TW_OP_GATHER && tw_op_region(op, TW_GATHER_REGION_ids)->id == tensor) {
        uint32_t rows = p->tensors[tw_op_region(op, TW_GATHER_REGION_table)->id].rows;
        *limit = rows < *limit ? rows : *limit;
    }
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (op->operand[i].paged && op->operand[i].table == tensor) {
            uint32_t n = tw_tensor_pages(&p->tensors[op->operand[i].id]);
            *pages = n < *pages ? n : *pages;
        }
    }
}

/* Row ids step through the table, page numbers count; everything else is one value. */
static void fill_input(const struct synthetic_memory *m, uint32_t tensor, uint32_t input) {
    const struct tw_program *p = m->program;
    const struct tw_tensor *t = &p->tensors[tensor];
    uint32_t want = input, limit = UINT32_MAX, pages = UINT32_MAX;
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        const struct tw_stream *stream = &p->streams[s];
        struct tw_op op;
        for (uint32_t at = 0;
             at < stream->n_words && tw_op_decode(stream->words, stream->n_words, at, &op);
             at += op.n_words) {
            limit_for_op(p, &op, tensor, &want, &limit, &pages);
        }
    }
    want = trip_value(p, tensor, want);
    for (uint32_t i = 0; i < t->bytes / 4; i++) {
        uint32_t value = pages != UINT32_MAX && pages > 0 ? i % pages
                         : limit != UINT32_MAX            ? (i * 7 + 1) % limit
                                                          : want;
        memcpy(row_data(m, t, 0) + (size_t)i * 4, &value, 4);
    }
}

static void fill(const struct synthetic_memory *m, uint32_t input) {
    const struct tw_program *p = m->program;
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        const struct tw_tensor *x = &p->tensors[t];
        bool zero = x->role == TW_ROLE_STATE && x->init == TW_INIT_ZERO;
        for (uint32_t i = 0; i < x->bind_count && !zero; i++) {
            fill_tensor(x, row_data(m, x, i), t * 1009u + i);
        }
    }
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        const struct tw_tensor *x = &p->tensors[t];
        if (x->role == TW_ROLE_INPUT && x->dtype == TW_DT_I32 && x->bind_count) {
            fill_input(m, t, input);
        }
    }
}

/* Allocates the tables and the block. Returns false if the limit is too small or malloc fails. */
static bool allocate(struct synthetic_memory *m, uint64_t limit) {
    uint64_t size;
    if ((uint64_t)m->n_rows * sizeof *m->address > limit / 4) {
        return false;
    }
    m->address = calloc((size_t)m->n_rows + 1, sizeof *m->address);
    m->bytes = calloc((size_t)m->n_rows + 1, sizeof *m->bytes);
    if (!m->address || !m->bytes) {
        return false;
    }
    size_rows(m);
    if (!place_rows(m, limit, &size)) {
        return false;
    }
    m->memory = aligned_alloc(ALIGN, (size_t)size);
    if (!m->memory) {
        return false;
    }
    memset(m->memory, 0, (size_t)size);
    for (uint32_t r = 0; r < m->n_rows; r++) {
        m->address[r] += (uint64_t)(uintptr_t)m->memory;
    }
    return true;
}

int synthetic_memory_init(struct synthetic_memory *m, const struct tw_program *program,
                          uint32_t input, uint64_t limit_bytes, tw_error *err) {
    *m = (struct synthetic_memory){.program = program, .n_rows = count_rows(program)};
    if (!allocate(m, limit_bytes)) {
        synthetic_memory_finish(m);
        return tw_fail(err, TW_E_NOMEM,
                       "program %s: its tensors do not fit in %llu bytes of device memory",
                       program->name, (unsigned long long)limit_bytes);
    }
    fill(m, input);
    return 0;
}

void synthetic_memory_finish(struct synthetic_memory *m) {
    free(m->address);
    free(m->bytes);
    free(m->memory);
    *m = (struct synthetic_memory){0};
}

/* ---- the machine ---- */

/* Finds the row that holds an address by binary search; the addresses of the rows ascend. */
static void *map(void *ctx, uint64_t address, uint64_t size) {
    const struct synthetic_memory *m = ctx;
    uint32_t from = 0, to = m->n_rows;
    while (to - from > 1) {
        uint32_t middle = from + (to - from) / 2;
        if (m->address[middle] <= address) {
            from = middle;
        } else {
            to = middle;
        }
    }
    bool ok = m->n_rows && address >= m->address[from] &&
              tw_range_ok(address - m->address[from], size, m->bytes[from]);
    return ok ? (void *)(uintptr_t)address : NULL;
}

struct tw_machine_config synthetic_memory_machine(struct synthetic_memory *m) {
    return (struct tw_machine_config){.program = m->program,
                                      .bind = m->address,
                                      .n_bind = m->n_rows,
                                      .map = map,
                                      .ctx = m,
                                      .kernels = tw_kernel_table(TW_ISA_SCALAR)};
}
