/* SPDX-License-Identifier: Apache-2.0
 *
 * Unification: which tensors of the sections are the same, and the program's shape, type, role and
 * initial value of each. Equal names are one tensor. The section that writes it determines its
 * type; a reader with a narrower type must convert while reading. Among readers only, the wider
 * float wins. Roles follow from use: carried names are State, written and read Activation, written
 * only Output, and what is only read is what it was declared to be, Input or Param.
 */
#ifndef TW_COMPILER_SPATIAL_UNIFY_H
#define TW_COMPILER_SPATIAL_UNIFY_H

#include "compiler/spatial/compose.h"
#include "compiler/spatial/tensor_uses.h"
#include "loader/base/compiler.h"

/* One tensor of the program. Sections are named by their index in the composition; TW_NONE:
 * none. */
struct tw_unified_tensor {
    struct tw_tensor record;
    uint32_t value;    /* graph value */
    uint32_t writer;   /* section that writes it first */
    uint32_t reader;   /* section that reads it first */
    uint32_t decider;  /* section whose record it has */
    uint32_t binder;   /* section that binds its initial value */
    uint32_t from, to; /* first and last phase that touch it */
    bool carried;
};

/* All tensors of a program, and how the sections' tensors map to them. */
struct tw_unified {
    TW_VEC(struct tw_unified_tensor) tensors;
    uint32_t **map;       /* [section][tensor of that section] */
    struct tw_use **uses; /* [section][tensor of that section] */
};

/* Unifies the tensors of all sections; the result is in the sections' arena. Errors:
 * shape_conflict, dtype_conflict, role_conflict, initial_conflict, not_scheduled, phase_crossing;
 * INTERNAL (code that does not decode). */
int tw_unify(const struct tw_composition *c, struct tw_unified *out, tw_error *err);

/* Returns the phase of a section. */
static inline uint32_t tw_phase_of(const struct tw_composition *c, uint32_t section) {
    return c->phases ? c->phases[section] : section;
}

enum tw_refusal {
#define TW_X(name, code, text) TW_REFUSE_##name,
    TW_REFUSALS(TW_X)
#undef TW_X
};
static inline int tw_refusal_code(enum tw_refusal why) {
    switch (why) {
#define TW_X(name, code, text) \
    case TW_REFUSE_##name:     \
        return TW_E_##code;
        TW_REFUSALS(TW_X)
#undef TW_X
    }
    return TW_E_INTERNAL;
}
/* Fills the error with "compose: NAME: ..."; the value of tw_refuse(err, TW_REFUSE_x, "...", ...)
 * is the refusal's code (tilewright/error.h). */
void tw_refusal_error(tw_error *err, enum tw_refusal why, const char *format, ...) TW_PRINTF(3, 4);
#define tw_refuse(err, why, ...) (tw_refusal_error((err), (why), __VA_ARGS__), tw_refusal_code(why))

#endif
