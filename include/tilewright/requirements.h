/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program needs of a device, and what a device has: the same numbers on both sides, so that
 * one comparison says what is missing. The compiler stores a program's requirements in the bundle,
 * the loader derives them again from the program's tables, the driver holds them against the
 * device's HELLO before it uploads anything, and the device against itself at LOAD. Freestanding.
 */
#ifndef TILEWRIGHT_REQUIREMENTS_H
#define TILEWRIGHT_REQUIREMENTS_H

#include "tilewright/machine.h"
#include "tilewright/op_schema.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_REQ_OP_WORDS 8u /* ops up to number 255 */

/* X(id, bit, text) */
#define TW_FEATURES(X)                          \
    X(WINDOWS, 0, "windows of a param in SRAM") \
    X(STATE_IN_SRAM, 1, "state in SRAM")        \
    X(CHIP_LINKS, 2, "links between chips")     \
    X(CLASSES, 3, "several memory classes")

enum tw_feature {
#define TW_X(id, bit, text) TW_FEATURE_##id = 1 << (bit),
    TW_FEATURES(TW_X)
#undef TW_X
        TW_FEATURE_ALL = (1 << 4) - 1
};

/* Of a program: what it uses. Of a device: what it has, at most; UINT32_MAX and UINT64_MAX where it
 * sets no limit. Stored and sent as it is. */
struct tw_requirements {
    uint32_t ops[TW_REQ_OP_WORDS]; /* bit n % 32 of word n / 32: op number n */
    uint32_t dtypes;               /* bit n: element type n */
    uint32_t packings;             /* bit n: packing n */
    uint32_t features;             /* enum tw_feature */
    uint32_t rows;                 /* tokens of a step */
    uint32_t chips, sites;
    uint32_t words; /* semaphore words on a site */
    uint32_t trips;
    uint64_t sram_bytes[TW_MEM_CLASSES]; /* of a site, by memory class */
};
TW_STATIC_ASSERT(sizeof(struct tw_requirements) == 96, "requirements");

/* What one of them is about; TW_LACK_NOTHING: nothing is missing. */
enum tw_lack_kind {
    TW_LACK_NOTHING,
    TW_LACK_OP,      /* number: the op */
    TW_LACK_DTYPE,   /* number: the type */
    TW_LACK_PACKING, /* number: the packing */
    TW_LACK_FEATURE, /* number: the bit */
    TW_LACK_ROWS,
    TW_LACK_CHIPS,
    TW_LACK_SITES,
    TW_LACK_WORDS,
    TW_LACK_TRIPS,
    TW_LACK_SRAM /* number: the memory class */
};
struct tw_lack {
    enum tw_lack_kind kind;
    uint32_t number;
    uint64_t have, need;
};

static inline bool tw_require_op(struct tw_requirements *r, uint32_t code) {
    if (code >= 32 * TW_REQ_OP_WORDS) {
        return false;
    }
    r->ops[code / 32] |= (uint32_t)1 << code % 32;
    return true;
}

static inline void tw_require_bit(uint32_t *set, uint32_t number) {
    *set |= number < 32 ? (uint32_t)1 << number : 0;
}

static inline void tw_require_buffers(const struct tw_program *p, struct tw_requirements *r) {
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const struct tw_buffer *b = &p->buffers[i];
        uint64_t *top = &r->sram_bytes[b->mem_class % TW_MEM_CLASSES];
        uint64_t end = b->offset + b->pages * b->page_bytes;
        *top = end > *top ? end : *top;
        tw_require_bit(&r->dtypes, b->dtype);
        r->features |= b->mem_class ? (uint32_t)TW_FEATURE_CLASSES : 0;
        r->features |= tw_buffer_state(p, b) ? (uint32_t)TW_FEATURE_STATE_IN_SRAM : 0;
        r->features |= b->window_rows && tw_buffer_param(p, b) ? (uint32_t)TW_FEATURE_WINDOWS : 0;
    }
}

static inline bool tw_require_stream(const struct tw_stream *s, struct tw_requirements *r) {
    struct tw_op op;
    for (uint32_t at = 0; at < s->n_words; at += op.n_words) {
        if (!tw_op_decode(s->words, s->n_words, at, &op) || !tw_require_op(r, op.code)) {
            return false;
        }
        const struct tw_operand_info *info = tw_op_operands(op.code);
        for (uint32_t i = 0; i < op.n_operands; i++) {
            if (info[i].demand == TW_DEMAND_WEIGHT_DTYPE) {
                tw_require_bit(&r->dtypes, op.operand[i].id);
            }
        }
    }
    return true;
}

/* Derives what a program needs from its tables and its code. Accepts any program whose tables lie
 * in memory. Returns false if its code does not decode, or names an op that no device could
 * have. */
static inline bool tw_requirements_of(const struct tw_program *p, struct tw_requirements *r) {
    memset(r, 0, sizeof *r);
    r->rows = p->rows;
    r->chips = p->n_chips;
    r->sites = p->n_sites;
    r->trips = p->n_trips;
    r->words = p->n_semaphores; /* on a site that all of their groups have */
    r->features = p->n_chips > 1 ? (uint32_t)TW_FEATURE_CHIP_LINKS : 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        tw_require_bit(&r->dtypes, p->tensors[i].dtype);
        tw_require_bit(&r->packings, p->tensors[i].packing);
    }
    tw_require_buffers(p, r);
    bool ok = true;
    for (uint32_t i = 0; i < p->n_sites * TW_ENGINE_COUNT && ok; i++) {
        ok = tw_require_stream(&p->streams[i], r);
    }
    return ok;
}

static inline bool tw_lack_bits(uint32_t have, uint32_t need, enum tw_lack_kind kind,
                                uint32_t first, struct tw_lack *out) {
    for (uint32_t n = 0; n < 32; n++) {
        if ((need & ~have) >> n & 1) {
            struct tw_lack l = {kind, first + n, 0, 1};
            *out = l;
            return true;
        }
    }
    return false;
}

static inline bool tw_lack_number(uint64_t have, uint64_t need, enum tw_lack_kind kind,
                                  uint32_t number, struct tw_lack *out) {
    struct tw_lack l = {kind, number, have, need};
    *out = need > have ? l : *out;
    return need > have;
}

/* Returns the first requirement that a device does not meet. */
static inline struct tw_lack tw_requirements_lack(const struct tw_requirements *need,
                                                  const struct tw_requirements *have) {
    struct tw_lack l = {TW_LACK_NOTHING, 0, 0, 0};
    for (uint32_t w = 0; w < TW_REQ_OP_WORDS; w++) {
        if (tw_lack_bits(have->ops[w], need->ops[w], TW_LACK_OP, 32 * w, &l)) {
            return l;
        }
    }
    if (tw_lack_bits(have->dtypes, need->dtypes, TW_LACK_DTYPE, 0, &l) ||
        tw_lack_bits(have->packings, need->packings, TW_LACK_PACKING, 0, &l) ||
        tw_lack_bits(have->features, need->features, TW_LACK_FEATURE, 0, &l) ||
        tw_lack_number(have->rows, need->rows, TW_LACK_ROWS, 0, &l) ||
        tw_lack_number(have->chips, need->chips, TW_LACK_CHIPS, 0, &l) ||
        tw_lack_number(have->sites, need->sites, TW_LACK_SITES, 0, &l) ||
        tw_lack_number(have->words, need->words, TW_LACK_WORDS, 0, &l) ||
        tw_lack_number(have->trips, need->trips, TW_LACK_TRIPS, 0, &l)) {
        return l;
    }
    for (uint32_t c = 0; c < TW_MEM_CLASSES; c++) {
        if (tw_lack_number(have->sram_bytes[c], need->sram_bytes[c], TW_LACK_SRAM, c, &l)) {
            return l;
        }
    }
    return l;
}

#ifdef __cplusplus
}
#endif
#endif
