/* SPDX-License-Identifier: Apache-2.0
 *
 * Unification of tensors (compiler/spatial/unify.h) in two passes: the first merges what all
 * sections declare about a name, the second checks each section against the result, so that the
 * order of the sections has no influence.
 */
#include "compiler/spatial/unify.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tw_refusal_error(tw_error *err, enum tw_refusal why, const char *format, ...) {
    static const char *const name[] = {
#define TW_X(id, number, text) [TW_REFUSE_##id] = #id,
        TW_REFUSALS(TW_X)
#undef TW_X
    };
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tw_error_set(err, tw_refusal_code(why), "compose: %s: %s", name[why], text);
}

static const char *role_name(unsigned role) {
    static const char *const name[TW_ROLE_COUNT] = {
#define TW_X(id, number, text) [number] = text,
        TW_ROLES(TW_X)
#undef TW_X
    };
    return role < TW_ROLE_COUNT ? name[role] : "?";
}

static const char *init_name(unsigned init) {
    return init == TW_INIT_NONE ? "nothing" : init == TW_INIT_ZERO ? "zero" : "a blob";
}

struct unify {
    const struct tw_composition *c;
    struct tw_unified *out;
    tw_error *err;
};

static const char *section_name(const struct unify *u, uint32_t section) {
    return u->c->sections[section]->name;
}

static const char *tensor_name(const struct unify *u, const struct tw_tensor *t) {
    return u->c->sections[0]->strings->bytes.items + t->name;
}

/* ---- types ---- */

static bool is_int(unsigned dtype) {
    return dtype == TW_DT_I32 || dtype == TW_DT_U8;
}

/* Returns true if type a can represent every value of type b. */
static bool is_wider(unsigned a, unsigned b) {
    static const uint8_t width[TW_DT_COUNT] = {
        [TW_DT_F32] = 4,    [TW_DT_F16] = 3,   [TW_DT_BF16] = 3, [TW_DT_Q8S] = 2,
        [TW_DT_Q8K] = 2,    [TW_DT_Q8_0] = 2,  [TW_DT_Q4_0] = 1, [TW_DT_Q4_1] = 1,
        [TW_DT_Q5_0] = 1,   [TW_DT_Q5_1] = 1,  [TW_DT_Q2_K] = 1, [TW_DT_Q3_K] = 1,
        [TW_DT_Q4_K] = 1,   [TW_DT_Q5_K] = 1,  [TW_DT_Q6_K] = 1, [TW_DT_MXFP4] = 1,
        [TW_DT_IQ4_NL] = 1, [TW_DT_IQ4_XS] = 1};
    return width[a] > width[b];
}

static int dtype_conflict(const struct unify *u, const struct tw_unified_tensor *t,
                          uint32_t section, const struct tw_tensor *other, const char *why) {
    return tw_refuse(
        u->err, TW_REFUSE_dtype_conflict, "tensor %s is %s in section %s and %s in section %s: %s",
        tensor_name(u, &t->record), tw_dtype_name(t->record.dtype), section_name(u, t->decider),
        tw_dtype_name(other->dtype), section_name(u, section), why);
}

/* Determines whether section `section`, which declares the tensor as `t`, defines its record from
 * now on. */
static int check_decider(const struct unify *u, struct tw_unified_tensor *known, uint32_t section,
                         const struct tw_tensor *t, const struct tw_use *use, bool *decides) {
    *decides = known->writer == TW_NONE && use->writes;
    if (known->record.dtype == t->dtype) {
        return 0;
    }
    if (is_int(t->dtype) || is_int(known->record.dtype)) {
        return dtype_conflict(u, known, section, t, "one is an integer, the other a float");
    }
    if (known->writer != TW_NONE && use->writes) {
        return dtype_conflict(u, known, section, t, "both write it");
    }
    if (known->writer != TW_NONE || use->writes) {
        return 0;
    }
    *decides = is_wider(t->dtype, known->record.dtype);
    if (!*decides && !is_wider(known->record.dtype, t->dtype)) {
        return dtype_conflict(u, known, section, t,
                              "neither can represent all values of the other");
    }
    return 0;
}

/* Refuses a section that declares another type than the tensor's, unless its reads convert. */
static int check_reader(const struct unify *u, const struct tw_unified_tensor *t, uint32_t section,
                        const struct tw_tensor *declared, const struct tw_use *use) {
    if (declared->dtype == t->record.dtype || use->converts || !(use->reads || use->writes)) {
        return 0;
    }
    return dtype_conflict(u, t, section, declared, "the machine cannot convert when reading");
}

/* ---- first pass: join ---- */

static int check_shape(const struct unify *u, const struct tw_unified_tensor *known,
                       uint32_t section, const struct tw_tensor *t) {
    const struct tw_tensor *k = &known->record;
    if (k->rows == t->rows && k->cols == t->cols && k->packing == t->packing &&
        k->bind_count == t->bind_count && k->head_dim == t->head_dim) {
        return 0;
    }
    return tw_refuse(u->err, TW_REFUSE_shape_conflict,
                     "tensor %s of section %s is %u x %u, packing %u, %u instances, heads of %u, "
                     "but in section %s it is %u x %u, packing %u, %u instances, heads of %u",
                     tensor_name(u, t), section_name(u, section), t->rows, t->cols, t->packing,
                     t->bind_count, t->head_dim, section_name(u, known->decider), k->rows, k->cols,
                     k->packing, k->bind_count, k->head_dim);
}

/* Binds the initial value of a State, at most once; a section that binds none accepts any. */
static int bind_initial(const struct unify *u, struct tw_unified_tensor *known, uint32_t section,
                        const struct tw_tensor *t, uint32_t value) {
    if (t->init == TW_INIT_NONE) {
        return 0;
    }
    if (known->binder == TW_NONE) {
        known->binder = section;
        known->record.init = t->init;
        return 0;
    }
    if (known->record.init == t->init && (t->init != TW_INIT_BLOB || known->value == value)) {
        return 0;
    }
    return tw_refuse(u->err, TW_REFUSE_initial_conflict,
                     "tensor %s is bound to %s by section %s and to %s by section %s",
                     tensor_name(u, t), init_name(known->record.init),
                     section_name(u, known->binder), init_name(t->init), section_name(u, section));
}

static int join(struct unify *u, struct tw_unified_tensor *known, uint32_t section,
                uint32_t index) {
    const struct tw_builder *s = u->c->sections[section];
    const struct tw_tensor *t = &s->tensors.items[index];
    const struct tw_use *use = &u->out->uses[section][index];
    bool decides;
    int rc = check_shape(u, known, section, t);
    rc = rc ? rc : check_decider(u, known, section, t, use, &decides);
    rc = rc ? rc : bind_initial(u, known, section, t, s->tensor_value.items[index]);
    if (rc) {
        return rc;
    }
    if (decides) {
        uint8_t init = known->record.init;
        known->record = *t;
        known->record.init = init;
        known->value = s->tensor_value.items[index];
        known->decider = section;
    }
    known->writer = known->writer == TW_NONE && use->writes ? section : known->writer;
    known->reader = known->reader == TW_NONE && use->reads ? section : known->reader;
    known->carried = known->carried || (t->role == TW_ROLE_STATE && t->bind_count > 0);
    if (use->reads || use->writes) {
        known->from = known->from == TW_NONE ? tw_phase_of(u->c, section) : known->from;
        known->to = tw_phase_of(u->c, section);
    }
    return 0;
}

static uint32_t find(const struct tw_unified *n, uint32_t name) {
    for (uint32_t i = 0; i < n->tensors.n; i++) {
        if (n->tensors.items[i].record.name == name) {
            return i;
        }
    }
    return TW_NONE;
}

static int join_section(struct unify *u, uint32_t section) {
    const struct tw_builder *s = u->c->sections[section];
    u->out->map[section] = tw_cmem_alloc(s->mem, (s->tensors.n + 1) * sizeof **u->out->map);
    int rc = tw_builder_tensor_uses(s, &u->out->uses[section], u->err);
    for (uint32_t i = 0; i < s->tensors.n && rc == 0; i++) {
        uint32_t id = find(u->out, s->tensors.items[i].name);
        if (id == TW_NONE) {
            id = u->out->tensors.n;
            struct tw_unified_tensor *fresh = TW_VEC_PUSH(s->mem, u->out->tensors);
            *fresh = (struct tw_unified_tensor){.record = s->tensors.items[i],
                                                .value = s->tensor_value.items[i],
                                                .writer = TW_NONE,
                                                .reader = TW_NONE,
                                                .decider = section,
                                                .binder = TW_NONE,
                                                .from = TW_NONE};
            fresh->record.init = TW_INIT_NONE;
        }
        u->out->map[section][i] = id;
        rc = join(u, &u->out->tensors.items[id], section, i);
    }
    return rc;
}

/* ---- roles ---- */

/* Returns the role that follows from a tensor's use; without any use, the declared one. */
static enum tw_role role_of(const struct unify *u, const struct tw_unified_tensor *t) {
    bool reads = t->reader != TW_NONE, writes = t->writer != TW_NONE;
    if (t->carried && (reads || writes)) {
        return TW_ROLE_STATE;
    }
    if (reads && writes) {
        return TW_ROLE_ACTIVATION;
    }
    if (t->record.bind_count == 0 && (reads || writes) && u->c->part) {
        return TW_ROLE_ACTIVATION; /* its writer or reader is in another part */
    }
    if (writes) {
        return TW_ROLE_OUTPUT;
    }
    if (reads && t->record.role != TW_ROLE_INPUT && t->record.role != TW_ROLE_PARAM) {
        return TW_ROLE_INPUT; /* Param would be possible too; either contradicts the declaration */
    }
    return (enum tw_role)t->record.role;
}

static int check_scheduled(const struct unify *u, const struct tw_unified_tensor *t) {
    bool local = t->record.bind_count == 0 && t->reader != TW_NONE && !u->c->part;
    if (!local || (t->writer != TW_NONE && t->writer <= t->reader)) {
        return 0;
    }
    return tw_refuse(u->err, TW_REFUSE_not_scheduled,
                     "section %s reads activation %s, which no earlier section writes",
                     section_name(u, t->reader), tensor_name(u, &t->record));
}

static const char *use_name(const struct tw_unified_tensor *t) {
    return t->carried && (t->reader != TW_NONE || t->writer != TW_NONE) ? "carried"
           : t->reader != TW_NONE && t->writer != TW_NONE               ? "written and read"
           : t->writer != TW_NONE                                       ? "only written"
                                                                        : "only read";
}

static int check_role(const struct unify *u, const struct tw_unified_tensor *t, uint32_t section,
                      const struct tw_tensor *declared) {
    enum tw_role role = role_of(u, t);
    if (declared->role == role) {
        return 0;
    }
    return tw_refuse(u->err, TW_REFUSE_role_conflict,
                     "tensor %s of section %s is declared %s, but it is %s, which makes it %s",
                     tensor_name(u, declared), section_name(u, section), role_name(declared->role),
                     use_name(t), role_name(role));
}

/* ---- second pass: check each section against the result ---- */

static int check_section(const struct unify *u, uint32_t section) {
    const struct tw_builder *s = u->c->sections[section];
    int rc = 0;
    for (uint32_t i = 0; i < s->tensors.n && rc == 0; i++) {
        const struct tw_unified_tensor *t = &u->out->tensors.items[u->out->map[section][i]];
        rc = check_reader(u, t, section, &s->tensors.items[i], &u->out->uses[section][i]);
        rc = rc ? rc : check_role(u, t, section, &s->tensors.items[i]);
    }
    return rc;
}

/* Sections a < b run at the same time: neither may touch what the other writes. */
static int check_crossing(const struct unify *u, uint32_t a, uint32_t b) {
    const struct tw_unified *n = u->out;
    for (uint32_t i = 0; i < u->c->sections[a]->tensors.n; i++) {
        const struct tw_use *x = &n->uses[a][i];
        for (uint32_t k = 0; k < u->c->sections[b]->tensors.n; k++) {
            const struct tw_use *y = &n->uses[b][k];
            bool conflict = (x->writes && (y->reads || y->writes)) || (y->writes && x->reads);
            if (n->map[a][i] == n->map[b][k] && conflict) {
                uint32_t writer = x->writes ? a : b;
                return tw_refuse(u->err, TW_REFUSE_phase_crossing,
                                 "tensor %s is written by section %s and touched by section %s, "
                                 "which runs at the same time",
                                 tensor_name(u, &u->c->sections[a]->tensors.items[i]),
                                 section_name(u, writer), section_name(u, writer == a ? b : a));
            }
        }
    }
    return 0;
}

static int check_phases(const struct unify *u) {
    int rc = 0;
    for (uint32_t b = 1; b < u->c->n && rc == 0; b++) {
        for (uint32_t a = b; a-- > 0 && tw_phase_of(u->c, a) == tw_phase_of(u->c, b) && rc == 0;) {
            rc = check_crossing(u, a, b);
        }
    }
    return rc;
}

int tw_unify(const struct tw_composition *c, struct tw_unified *out, tw_error *err) {
    struct unify u = {c, out, err};
    struct tw_cmem *mem = c->sections[0]->mem;
    memset(out, 0, sizeof *out);
    out->map = tw_cmem_alloc(mem, (c->n + 1) * sizeof *out->map);
    out->uses = tw_cmem_alloc(mem, (c->n + 1) * sizeof *out->uses);
    int rc = 0;
    for (uint32_t s = 0; s < c->n && rc == 0; s++) {
        rc = join_section(&u, s);
    }
    for (uint32_t i = 0; i < out->tensors.n && rc == 0; i++) {
        rc = check_scheduled(&u, &out->tensors.items[i]);
    }
    for (uint32_t s = 0; s < c->n && rc == 0; s++) {
        rc = check_section(&u, s);
    }
    rc = rc ? rc : check_phases(&u);
    for (uint32_t i = 0; i < out->tensors.n && rc == 0; i++) {
        out->tensors.items[i].record.role = (uint8_t)role_of(&u, &out->tensors.items[i]);
    }
    return rc;
}
