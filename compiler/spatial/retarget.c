/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves and cuts sections (compiler/spatial/retarget.h). Copies the records with their sites moved;
 * then decodes each op, moves its operands by their kinds, and encodes it again.
 */
#include "compiler/spatial/retarget.h"

#include "compiler/spatial/unify.h"

struct rewriter {
    const struct tw_builder *from;
    const struct tw_retarget *how;
    struct tw_builder *out;
    uint32_t first, count; /* iterations */
    tw_error *err;
};

static uint32_t name(const struct rewriter *r, uint32_t at) {
    const char *text = r->from->strings->bytes.items + at;
    return tw_strpool_add(
        r->out->strings,
        *text && r->how->prefix ? tw_cmem_printf(r->out->mem, "%s%s", r->how->prefix, text) : text);
}

static uint32_t moved_site(const struct rewriter *r, uint32_t site) {
    const struct tw_target *a = r->from->target, *b = r->out->target;
    uint32_t x = site % a->width, y = site / a->width % a->height,
             chip = site / (a->width * a->height);
    return ((chip + r->how->chip) * b->height + y + r->how->y) * b->width + x + r->how->x;
}

static bool fits(uint32_t at, uint32_t n, uint32_t room) {
    return at <= room && n <= room - at;
}

static int check(const struct rewriter *r) {
    const struct tw_target *a = r->from->target, *b = r->out->target;
    const struct tw_retarget *h = r->how;
    if (!fits(h->x, a->width, b->width) || !fits(h->y, a->height, b->height) ||
        !fits(h->chip, a->n_chips, b->n_chips)) {
        return tw_refuse(r->err, TW_REFUSE_target_mismatch,
                         "section %s takes %u x %u sites on %u chips from (%u, %u) of chip %u on, "
                         "but target %s has %u x %u sites on %u chips",
                         r->from->name, a->width, a->height, a->n_chips, h->x, h->y, h->chip,
                         b->name, b->width, b->height, b->n_chips);
    }
    if (r->count == 0 || !fits(r->first, r->count, r->from->repeat)) {
        return tw_fail(r->err, TW_E_INTERNAL,
                       "section %s: cannot start at iteration %u and take %u: it has %u",
                       r->from->name, r->first, r->count, r->from->repeat);
    }
    return 0;
}

/* ---- records ---- */

/* The members of a set are on the sites of their group, in its order; both move, so sets stay
 * valid. */
static void move_buffers(struct rewriter *r) {
    const struct tw_builder *f = r->from;
    for (uint32_t i = 0; i < f->buffers.n; i++) {
        struct tw_buffer *b = TW_VEC_PUSH(r->out->mem, r->out->buffers);
        *b = f->buffers.items[i];
        b->name = name(r, b->name);
        b->site = moved_site(r, b->site);
    }
}

static void move_tensors(struct rewriter *r) {
    const struct tw_builder *f = r->from;
    for (uint32_t i = 0; i < f->tensors.n; i++) {
        struct tw_tensor *t = TW_VEC_PUSH(r->out->mem, r->out->tensors);
        *t = f->tensors.items[i];
        t->name = name(r, t->name);
        *TW_VEC_PUSH(r->out->mem, r->out->tensor_value) = f->tensor_value.items[i];
    }
    for (uint32_t i = 0; i < f->trips.n; i++) {
        struct tw_trip *t = TW_VEC_PUSH(r->out->mem, r->out->trips);
        *t = f->trips.items[i];
        t->name = name(r, t->name);
    }
}

static void move_semaphores(struct rewriter *r) {
    const struct tw_builder *f = r->from;
    for (uint32_t i = 0; i < f->groups.n; i++) {
        struct tw_group *g = TW_VEC_PUSH(r->out->mem, r->out->groups);
        *g = f->groups.items[i];
        g->chip = (uint16_t)(g->chip + r->how->chip);
        g->x0 = (uint16_t)(g->x0 + r->how->x);
        g->x1 = (uint16_t)(g->x1 + r->how->x);
        g->y0 = (uint16_t)(g->y0 + r->how->y);
        g->y1 = (uint16_t)(g->y1 + r->how->y);
    }
    for (uint32_t i = 0; i < f->semaphores.n; i++) {
        struct tw_semaphore *s = TW_VEC_PUSH(r->out->mem, r->out->semaphores);
        *s = f->semaphores.items[i];
        s->name = name(r, s->name);
    }
}

static void move_stages(struct rewriter *r) {
    const struct tw_builder *f = r->from;
    for (uint32_t i = 0; i < f->stages.n; i++) {
        struct tw_stage *s = TW_VEC_PUSH(r->out->mem, r->out->stages);
        *s = f->stages.items[i];
        s->site = moved_site(r, s->site);
        s->origin = name(r, s->origin);
    }
}

/* ---- code ---- */

/* Rewrites an address at iteration first + i in terms of i. */
static void cut_affine(const struct rewriter *r, struct tw_affine *a) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        if (a->term[i].var == TW_VAR_INSTANCE) {
            a->base += a->term[i].step * r->first;
        }
        if (a->term[i].var != TW_VAR_INSTANCE || r->count > 1) {
            a->term[kept++] = a->term[i];
        }
    }
    a->n_terms = kept;
}

/* Recomputes a threshold, which depends on the number of iterations, with tw_builder_threshold()
 * for the part. */
static void cut_threshold(const struct rewriter *r, struct tw_affine *a) {
    uint64_t count = a->base;
    struct tw_builder part = {.repeat = r->count};
    if (r->count != r->from->repeat) {
        *a = tw_builder_threshold(&part, (uint32_t)count);
    }
}

static void map_operand(const struct rewriter *r, struct tw_operand *o) {
    switch (o->kind) {
    case 'R':
    case 'W':
    case 'M':
    case 'D':
        cut_affine(r, &o->offset);
        break;
    case 'T':
    case 'U':
        cut_affine(r, &o->instance);
        cut_affine(r, &o->offset);
        cut_affine(r, &o->element);
        break;
    case 'C':
        o->id = moved_site(r, o->id);
        break;
    default: /* ids do not change: FIFOs, semaphores, groups, trips; numbers */
        break;
    }
}

static bool id_in_table(const struct rewriter *r, const struct tw_operand *o) {
    bool buffer = tw_letter_in("RWMDF", o->kind);
    return buffer ? o->id < r->from->buffers.n : o->kind != 'C' || o->id < r->from->n_sites;
}

static int rewrite_stream(struct rewriter *r, uint32_t site, uint32_t engine) {
    uint32_t from = site * TW_ENGINE_COUNT + engine, to = moved_site(r, site);
    struct tw_op op = {0};
    for (uint32_t at = 0; at < r->from->code[from].n; at += op.n_words) {
        bool ok = tw_op_decode(r->from->code[from].items, r->from->code[from].n, at, &op);
        uint32_t n_words = op.n_words;
        for (uint32_t i = 0; ok && i < op.n_operands; i++) {
            ok = id_in_table(r, &op.operand[i]);
            if (ok && op.operand[i].kind == 'A' && op.code == TW_OP_SEM_WAIT) {
                cut_threshold(r, &op.operand[i].offset);
            } else if (ok && op.operand[i].kind == 'A') {
                cut_affine(r, &op.operand[i].offset);
            } else if (ok) {
                map_operand(r, &op.operand[i]);
            }
        }
        if (!ok) {
            return tw_fail(r->err, TW_E_INTERNAL, "section %s stream %u word %u does not decode",
                           r->from->name, from, at);
        }
        tw_builder_emit(r->out, to, (enum tw_engine)engine, &op);
        op.n_words = n_words;
    }
    return 0;
}

int tw_section_retarget(const struct tw_builder *section, const struct tw_retarget *how,
                        struct tw_cmem *mem, struct tw_strpool *strings, struct tw_builder *out,
                        tw_error *err) {
    struct rewriter r = {.from = section, .how = how, .out = out, .first = how->first, .err = err};
    r.count = how->count ? how->count : section->repeat;
    const char *prefix = how->prefix ? how->prefix : "";
    tw_builder_init(out, mem, strings, how->target ? how->target : section->target,
                    tw_cmem_printf(mem, "%s%s", prefix, section->name), section->rows);
    int rc = check(&r);
    if (rc) {
        return rc;
    }
    out->repeat = r.count;
    out->private_bytes = section->private_bytes;
    out->shared_bytes = section->shared_bytes;
    out->approx = section->approx;
    move_buffers(&r);
    move_tensors(&r);
    move_semaphores(&r);
    move_stages(&r);
    for (uint32_t i = 0; i < section->n_sites * TW_ENGINE_COUNT && rc == 0; i++) {
        rc = rewrite_stream(&r, i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT);
    }
    return rc;
}
