/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding of ops. A stream is a sequence of 32-bit words. Each op is
 *   word 0: number | total words << 16      word 1: stage id      then the operands of ops.def in
 *   order, by the letter of their kind:
 *   R W M D buffer, affine
 *   T U     tensor, table or TW_NONE, affine instance, affine byte offset; with a table: affine
 *           element
 *   F S G I C V  one word                   X     trip, max        E   float bits        A  affine
 *   affine: constant low, constant high, number of terms, then for each term variable, step low,
 *   step high
 * Loops are closed by END. The decoder is total: it checks every word against the end of the
 * stream.
 */
#ifndef TILEWRIGHT_OPCODE_H
#define TILEWRIGHT_OPCODE_H

#include "tilewright/machine.h"

#include <stdbool.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Loop variables and the epoch: variable 0 is the number of steps executed before this one. */
#define TW_MAX_VARS 8u
/* Maximum ops that one step may execute, over all engines, loops multiplied out. */
#define TW_MAX_STEP_OPS (UINT64_C(1) << 28)
#define TW_MAX_TERMS 4u /* terms of one affine number */
#define TW_MAX_OPERANDS 18u

enum tw_opcode {
#define TW_OP(NAME, number, name, engines, part) TW_OP_##NAME = number,
#include "tilewright/ops.def"
#undef TW_OP
    TW_OP_LIMIT = 64
};

/* The kinds of operands that ops.def names, by the letters that stand for them in code. */
enum tw_operand_kind {
    TW_KIND_READ = 'R',
    TW_KIND_WRITE = 'W',
    TW_KIND_UPDATE = 'M',
    TW_KIND_REMOTE = 'D', /* destination */
    TW_KIND_TENSOR_READ = 'T',
    TW_KIND_TENSOR_WRITE = 'U',
    TW_KIND_FIFO = 'F',
    TW_KIND_SEMAPHORE = 'S',
    TW_KIND_GROUP = 'G',
    TW_KIND_SITE = 'C',
    TW_KIND_VARIABLE = 'V',
    TW_KIND_COUNT = 'X',
    TW_KIND_AFFINE = 'A',
    TW_KIND_IMMEDIATE = 'I',
    TW_KIND_FLOAT = 'E'
};

/* Returns true if the letter is in the set. */
static inline bool tw_letter_in(const char *set, char letter) {
    while (*set && *set != letter) {
        set++;
    }
    return *set != 0;
}

/* One row of ops.def. */
struct tw_op_info {
    const char *name;     /* NULL: no such op */
    const char *engines;  /* letters L, M, S */
    const char *operands; /* the letters of its operands, in order */
};

/* Returns the table's entry for an op number; its name is NULL if there is none. */
static inline struct tw_op_info tw_op_info(uint32_t code) {
    struct tw_op_info none = {NULL, "", ""};
    switch (code) {
#define TW_LETTER(OP, KIND, name, DEMAND, text) TW_KIND_##KIND,
#define TW_OP(NAME, number, name, engines, part)                                  \
    case number: {                                                                \
        static const char letters[] = {TW_OPERANDS_##NAME(TW_LETTER, NAME) '\0'}; \
        struct tw_op_info info = {#name, engines, letters};                       \
        return info;                                                              \
    }
#include "tilewright/ops.def"
#undef TW_OP
#undef TW_LETTER
    default:
        return none;
    }
}

enum tw_op_part { TW_PART_CONTROL = 0, TW_PART_DATA = 1 };

/* Returns true for the ops that move or compute data, i.e. that have a kernel. */
static inline bool tw_op_is_data(uint32_t code) {
    const uint64_t data = 0
#define TW_OP(NAME, number, name, engines, part) | ((uint64_t)TW_PART_##part << number)
#include "tilewright/ops.def"
#undef TW_OP
        ;
    return code < TW_OP_LIMIT && (data >> code & 1u) != 0;
}

/* An affine number: constant + sum of step*variable, modulo 2^64 (steps are two's complement). */
struct tw_affine {
    uint64_t base;
    uint32_t n_terms;
    struct {
        uint32_t var;
        uint64_t step;
    } term[TW_MAX_TERMS];
};

/* Returns the number's value for these values of the TW_MAX_VARS variables. */
static inline uint64_t tw_affine_value(const struct tw_affine *a, const uint32_t *vars) {
    uint64_t v = a->base;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        v += a->term[i].step * vars[a->term[i].var];
    }
    return v;
}

static inline struct tw_affine tw_affine_const(uint64_t base) {
    struct tw_affine a;
    memset(&a, 0, sizeof a);
    a.base = base;
    return a;
}

/* Returns a + step*var; a.n_terms must be less than TW_MAX_TERMS. */
static inline struct tw_affine tw_affine_plus(struct tw_affine a, uint32_t var, uint64_t step) {
    if (step != 0 && a.n_terms < TW_MAX_TERMS) {
        a.term[a.n_terms].var = var;
        a.term[a.n_terms].step = step;
        a.n_terms++;
    }
    return a;
}

/* One decoded operand; which fields are used depends on its kind. */
struct tw_operand {
    char kind; /* enum tw_operand_kind, a letter */
    /* buffer, tensor, semaphore, group, site, variable, trip, immediate, float bits */
    uint32_t id;
    uint32_t max;              /* of X */
    struct tw_affine offset;   /* R W M D T U: bytes; A: the number */
    struct tw_affine instance; /* of T, U */
    /* T, U: if `paged`, the region is in the page whose number is that element of the table, an
     * Input, and the offset counts from the page's begin. A KEY_WRITE or VALUE_WRITE uses the page
     * of position p from element + p / TW_KV_BLOCK. */
    bool paged;
    uint32_t table;
    struct tw_affine element;
};

/* One decoded op. */
struct tw_op {
    uint32_t code, stage;
    uint32_t n_operands;
    uint32_t n_words; /* words of its encoding */
    struct tw_operand operand[TW_MAX_OPERANDS];
};

static inline float tw_operand_float(const struct tw_operand *o) {
    float f;
    memcpy(&f, &o->id, sizeof f);
    return f;
}

static inline bool tw_decode_affine(const uint32_t *w, uint32_t n, uint32_t *at,
                                    struct tw_affine *out) {
    if (n - *at < 3 || w[*at + 2] > TW_MAX_TERMS || n - *at - 3 < 3 * w[*at + 2]) {
        return false;
    }
    out->base = w[*at] | (uint64_t)w[*at + 1] << 32;
    out->n_terms = w[*at + 2];
    *at += 3;
    for (uint32_t i = 0; i < out->n_terms; i++, *at += 3) {
        if (w[*at] >= TW_MAX_VARS) {
            return false;
        }
        out->term[i].var = w[*at];
        out->term[i].step = w[*at + 1] | (uint64_t)w[*at + 2] << 32;
    }
    return true;
}

static inline bool tw_decode_operand(const uint32_t *w, uint32_t n, uint32_t *at,
                                     struct tw_operand *o) {
    if (o->kind == 'A') {
        return tw_decode_affine(w, n, at, &o->offset);
    }
    if (*at >= n) {
        return false;
    }
    o->id = w[(*at)++];
    switch (o->kind) {
    case 'T':
    case 'U':
        if (*at >= n) {
            return false;
        }
        o->table = w[(*at)++];
        o->paged = o->table != TW_NONE;
        return tw_decode_affine(w, n, at, &o->instance) && tw_decode_affine(w, n, at, &o->offset) &&
               (!o->paged || tw_decode_affine(w, n, at, &o->element));
    case 'R':
    case 'W':
    case 'M':
    case 'D':
        return tw_decode_affine(w, n, at, &o->offset);
    case 'X':
        if (*at >= n) {
            return false;
        }
        o->max = w[(*at)++];
        return true;
    case 'V':
        return o->id >= 1 && o->id < TW_MAX_VARS;
    default:
        return true;
    }
}

/* Decodes the op at words[at]. Returns false if the number is unknown or the words are not exactly
 * its operands; does not check ids. */
static inline bool tw_op_decode(const uint32_t *words, uint32_t n_words, uint32_t at,
                                struct tw_op *op) {
    /* operands and terms beyond their counts are left unset */
    memset(op, 0, offsetof(struct tw_op, operand));
    if (at >= n_words || n_words - at < 2) {
        return false;
    }
    op->code = words[at] & 0xFFFFu;
    op->n_words = words[at] >> 16;
    op->stage = words[at + 1];
    struct tw_op_info info = tw_op_info(op->code);
    if (!info.name || op->n_words < 2 || op->n_words > n_words - at) {
        return false;
    }
    uint32_t i = at + 2, end = at + op->n_words;
    for (const char *k = info.operands; *k; k++) {
        if (op->n_operands >= TW_MAX_OPERANDS) {
            return false;
        }
        struct tw_operand *o = &op->operand[op->n_operands++];
        o->kind = *k;
        o->id = o->max = o->offset.n_terms = o->instance.n_terms = o->element.n_terms = 0;
        o->offset.base = o->instance.base = o->element.base = 0;
        o->paged = false;
        o->table = TW_NONE;
        if (!tw_decode_operand(words, end, &i, o)) {
            return false;
        }
    }
    return i == end;
}

static inline uint32_t tw_encode_affine(const struct tw_affine *a, uint32_t *w) {
    uint32_t n = 0;
    w[n++] = (uint32_t)a->base;
    w[n++] = (uint32_t)(a->base >> 32);
    w[n++] = a->n_terms;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        w[n++] = a->term[i].var;
        w[n++] = (uint32_t)a->term[i].step;
        w[n++] = (uint32_t)(a->term[i].step >> 32);
    }
    return n;
}

#define TW_MAX_OP_WORDS (2u + TW_MAX_OPERANDS * (2u + 3u * (3u + 3u * TW_MAX_TERMS)))

/* Encodes an op whose operand kinds are those of the table; `w` has room for TW_MAX_OP_WORDS words.
 * Returns the number of words used and sets op->n_words. */
static inline uint32_t tw_op_encode(struct tw_op *op, uint32_t *w) {
    uint32_t n = 2;
    for (uint32_t i = 0; i < op->n_operands; i++) {
        const struct tw_operand *o = &op->operand[i];
        if (o->kind != 'A') {
            w[n++] = o->id;
        }
        if (o->kind == 'X') {
            w[n++] = o->max;
        }
        if (o->kind == 'T' || o->kind == 'U') {
            w[n++] = o->paged ? o->table : TW_NONE;
            n += tw_encode_affine(&o->instance, w + n);
        }
        if (tw_letter_in("RWMDTUA", o->kind)) {
            n += tw_encode_affine(&o->offset, w + n);
        }
        if (o->paged && (o->kind == 'T' || o->kind == 'U')) {
            n += tw_encode_affine(&o->element, w + n);
        }
    }
    op->n_words = n;
    w[0] = op->code | n << 16;
    w[1] = op->stage;
    return n;
}

#ifdef __cplusplus
}
#endif
#endif
