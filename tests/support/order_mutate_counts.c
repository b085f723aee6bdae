/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of mutations of numbers that have to agree (order_mutate_family.h): groups and
 * increments with the thresholds that wait for them, trips with the counts that are bounded by
 * them, loop counts.
 */
#include "tests/support/order_mutate_family.h"

#include "tests/support/order_mutate_number.h"
#include "tests/support/random_model.h"
#include "tilewright/op_schema.h"

#include <stdlib.h>

/* ---- thresholds ---- */

/* The waits for a semaphore on a site, from a threshold on, are for `by` more. */
struct shift {
    uint32_t semaphore, site;
    uint64_t from, by;
};

/* `by` more in each iteration and step: steps of variables are multiples of what arrives in one. */
static bool shift_wait(void *ctx, uint32_t stream, struct tw_op *op) {
    const struct shift *x = ctx;
    struct tw_affine *a = &op->operand[1].offset;
    if (op->code != TW_OP_SEM_WAIT || op->operand[0].id != x->semaphore ||
        stream / TW_ENGINE_COUNT != x->site) {
        return false;
    }
    uint64_t each = 0, repeat = 1;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        each = a->term[i].var ? a->term[i].step : each;
    }
    for (uint32_t i = 0; i < a->n_terms; i++) {
        repeat = !a->term[i].var && each ? a->term[i].step / each : repeat;
    }
    for (uint32_t i = 0; i < a->n_terms; i++) {
        a->term[i].step += a->term[i].var ? x->by : x->by * repeat;
    }
    a->base += a->base >= x->from ? x->by : 0;
    return true;
}

static void shift_waits(struct order_mutant *m, uint32_t semaphore, uint32_t site, uint64_t by,
                        uint64_t *seed) {
    struct shift x = {semaphore, site, random_below(seed, 2) ? 0 : 1 + random_below(seed, 4), by};
    order_each_op(m, shift_wait, &x);
    order_describe(m, " [waits of semaphore %u on site %u from %u on by %d]", semaphore, site,
                   (uint32_t)x.from, (int)by);
}

/* ---- increments and waits ---- */

static void put_twice(struct order_mutant *m, uint32_t stream, uint32_t at, uint64_t *seed) {
    const struct tw_stream *s = &m->streams[stream];
    uint32_t op[TW_MAX_OP_WORDS], n = order_size_at(s, at);
    memcpy(op, s->words + at, (size_t)n * 4);
    uint32_t to = random_below(seed, 2) ? at : order_word_of(s, random_below(seed, 20));
    order_splice(m, stream, to, 0, op, n);
}

/* An increment is changed, removed, doubled, or sent elsewhere, and the waits with it. */
bool order_family_handshake(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    static const uint32_t codes[] = {TW_OP_SEM_INC, TW_OP_MCAST_SET};
    struct order_place p;
    struct tw_op op;
    if (!order_choose_code(x, codes, 2, &p, seed)) {
        return false;
    }
    uint32_t at = order_word_of(&m->streams[p.stream], p.op), action = random_below(seed, 4);
    tw_op_decode(m->streams[p.stream].words, m->streams[p.stream].n_words, at, &op);
    bool inc = op.code == TW_OP_SEM_INC;
    uint32_t semaphore = op.operand[0].id, site = inc ? op.operand[1].id : 0,
             last = inc ? site : m->p.n_sites - 1;
    uint64_t was = inc ? op.operand[TW_SEM_INC_by].id : 1, now = was;
    order_describe(m, " [stream %u op %u semaphore %u, action %u]", p.stream, p.op, semaphore,
                   action);
    if (action == 0 || (action == 3 && !inc)) {
        order_splice(m, p.stream, at, op.n_words, NULL, 0);
        now = 0;
    } else if (action == 1) {
        put_twice(m, p.stream, at, seed);
        now = 2 * was;
    } else if (inc && action == 2) {
        now = random_below(seed, 4) ? 1 + random_below(seed, 4) : order_tweak(was, seed);
        op.operand[TW_SEM_INC_by].id = (uint32_t)now;
        order_put_op(m, p.stream, at, &op);
    } else if (inc) {
        op.operand[TW_SEM_INC_site].id = random_below(seed, m->p.n_sites);
        order_put_op(m, p.stream, at, &op);
        shift_waits(m, semaphore, op.operand[TW_SEM_INC_site].id, was, seed);
        now = 0;
    }
    for (uint32_t s = site; s <= last; s++) {
        bool reached = inc || op.operand[1].id >= m->p.n_groups ||
                       tw_group_holds(&m->p, &m->p.groups[op.operand[1].id], s);
        if (reached && now != was && random_below(seed, 8)) {
            shift_waits(m, semaphore, s, now - was, seed);
        }
    }
    return true;
}

/* ---- credits and distances ---- */

struct distance {
    uint32_t semaphore;
    uint64_t base, step, only, seed;
};

/* Waits for more or less, from the first iteration on or by more in each. */
static bool set_distance(void *ctx, uint32_t stream, struct tw_op *op) {
    struct distance *x = ctx;
    (void)stream;
    if (op->code != TW_OP_SEM_WAIT || op->operand[0].id != x->semaphore ||
        random_below(&x->seed, (uint32_t)x->only)) {
        return false;
    }
    struct tw_affine *a = &op->operand[1].offset;
    a->base += x->base;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        a->term[i].step += a->term[i].var ? x->step : 0;
    }
    return true;
}

/* What an engine may be ahead of another one: a word's initial value, the thresholds that wait for
 * it, or both, so that they still agree. */
bool order_family_credit(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    static const uint32_t wait = TW_OP_SEM_WAIT;
    struct order_place p;
    struct tw_op op;
    if (!order_choose_code(x, &wait, 1, &p, seed)) {
        return false;
    }
    const struct tw_stream *stream = &m->streams[p.stream];
    tw_op_decode(stream->words, stream->n_words, order_word_of(stream, p.op), &op);
    struct tw_semaphore *semaphores =
        order_own(m, m->p.semaphores, m->p.n_semaphores * sizeof *semaphores);
    uint64_t by = 1 + random_below(seed, 2);
    by = random_below(seed, 2) ? by : 0 - by;
    struct distance d = {.semaphore = op.operand[0].id, .only = 1 + random_below(seed, 3)};
    uint32_t action = random_below(seed, 4);
    semaphores[d.semaphore].initial += action < 2 ? (uint32_t)by : 0;
    d.base = action == 1 || action == 2 ? by : 0;
    d.step = action == 3 ? by : 0;
    d.seed = random_next(seed);
    uint32_t n = action == 0 ? 0 : order_each_op(m, set_distance, &d);
    m->p.semaphores = semaphores;
    order_describe(m, " [semaphore %u: initial %u, %u thresholds by %d, %d in each iteration]",
                   d.semaphore, semaphores[d.semaphore].initial, n, (int)d.base, (int)d.step);
    return true;
}

/* ---- groups and counts ---- */

/* A multicast and the flags of the same engine to the same group are for another group. */
struct regroup {
    uint32_t stream, from, to, semaphores[8], n;
};

static bool set_group(void *ctx, uint32_t stream, struct tw_op *op) {
    struct regroup *x = ctx;
    bool changed = false;
    for (uint32_t i = 0; stream == x->stream && i < op->n_operands; i++) {
        if (op->operand[i].kind == 'G' && op->operand[i].id == x->from) {
            op->operand[i].id = x->to;
            changed = true;
        }
    }
    if (changed && op->code == TW_OP_MCAST_SET && x->n < 8) {
        x->semaphores[x->n++] = op->operand[0].id;
    }
    return changed;
}

/* Another rectangle: a part of its chip, or all of it; now and then one side is moved by one,
 * whatever is there. */
static void resize(const struct tw_program *p, struct tw_group *g, uint64_t *seed) {
    uint16_t *const field[] = {&g->x0, &g->x1, &g->y0, &g->y1, &g->chip};
    uint32_t width = p->mesh_width ? p->mesh_width : 1,
             height = p->mesh_height ? p->mesh_height : 1;
    if (random_below(seed, 6) == 0) {
        uint16_t *f = field[random_below(seed, 5)];
        *f = (uint16_t)(*f + (random_below(seed, 2) ? 1 : -1));
        return;
    }
    g->x0 = (uint16_t)random_below(seed, width);
    g->y0 = (uint16_t)random_below(seed, height);
    g->x1 = (uint16_t)(g->x0 + 1 + random_below(seed, width - g->x0));
    g->y1 = (uint16_t)(g->y0 + 1 + random_below(seed, height - g->y0));
}

/* One more group, like one that is there. */
static uint32_t add_group(struct order_mutant *m, uint32_t like, uint64_t *seed) {
    struct tw_group *groups = order_own_table(m, m->p.groups, m->p.n_groups, 1, sizeof *groups);
    groups[m->p.n_groups] = groups[like];
    resize(&m->p, &groups[m->p.n_groups], seed);
    m->p.groups = groups;
    return m->p.n_groups++;
}

/* Waits on the sites that leave or join a group. */
static void count_members(struct order_mutant *m, uint32_t semaphore, const struct tw_group *before,
                          const struct tw_group *after, uint64_t *seed) {
    for (uint32_t site = 0; site < m->p.n_sites; site++) {
        int was = tw_group_holds(&m->p, before, site), now = tw_group_holds(&m->p, after, site);
        if (was != now && random_below(seed, 8) && m->n_owned + 64 < ORDER_MAX_OWNED) {
            shift_waits(m, semaphore, site, (uint64_t)(int64_t)(now - was), seed);
        }
    }
}

static bool regroup_sends(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    static const uint32_t codes[] = {TW_OP_MCAST, TW_OP_MCAST_SET};
    struct order_place p;
    struct tw_op op;
    if (!order_choose_code(x, codes, 2, &p, seed)) {
        return false;
    }
    const struct tw_stream *s = &m->streams[p.stream];
    tw_op_decode(s->words, s->n_words, order_word_of(s, p.op), &op);
    struct regroup r = {.stream = p.stream, .from = op.operand[op.n_operands - 1].id};
    if (r.from >= m->p.n_groups) {
        return false;
    }
    r.to = random_below(seed, 3) ? random_below(seed, m->p.n_groups) : add_group(m, r.from, seed);
    order_each_op(m, set_group, &r);
    order_describe(m, " [groups of stream %u: %u now %u]", p.stream, r.from, r.to);
    for (uint32_t i = 0; i < r.n; i++) {
        count_members(m, r.semaphores[i], &m->p.groups[r.from], &m->p.groups[r.to], seed);
    }
    return true;
}

static void resize_group(struct order_mutant *m, uint64_t *seed) {
    struct tw_group *groups = order_own_table(m, m->p.groups, m->p.n_groups, 0, sizeof *groups);
    uint32_t n = random_below(seed, m->p.n_groups);
    struct tw_group before = groups[n];
    resize(&m->p, &groups[n], seed);
    m->p.groups = groups;
    order_describe(m, " [group %u resized]", n);
    for (uint32_t i = 0; i < m->p.n_semaphores; i++) {
        if (m->p.semaphores[i].group == n && random_below(seed, 2)) {
            count_members(m, i, &before, &groups[n], seed);
        }
    }
}

bool order_family_group(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    if (m->p.n_groups == 0) {
        return false;
    }
    if (random_below(seed, 3) == 0 || !regroup_sends(x, m, seed)) {
        resize_group(m, seed);
    }
    if (random_below(seed, 4) == 0 && m->p.n_semaphores) { /* the words are elsewhere, too */
        struct tw_semaphore *semaphores =
            order_own(m, m->p.semaphores, m->p.n_semaphores * sizeof *semaphores);
        uint32_t n = random_below(seed, m->p.n_semaphores);
        semaphores[n].group = random_below(seed, m->p.n_groups);
        m->p.semaphores = semaphores;
        order_describe(m, " [semaphore %u of group %u]", n, semaphores[n].group);
    }
    return true;
}

/* ---- trips ---- */

/* Counts that were of one trip, or of a number, are of another. */
struct recount {
    uint32_t trip, max;         /* which */
    uint32_t new_trip, new_max; /* what they become */
    uint32_t only;              /* of one in so many */
    uint64_t seed;
};

static bool set_count(void *ctx, uint32_t stream, struct tw_op *op) {
    struct recount *x = ctx;
    bool changed = false;
    (void)stream;
    for (uint32_t i = 0; i < op->n_operands; i++) {
        struct tw_operand *o = &op->operand[i];
        if (o->kind == 'X' && o->id == x->trip && (x->trip != TW_NONE || o->max == x->max) &&
            random_below(&x->seed, x->only) == 0) {
            o->id = x->new_trip;
            o->max = x->new_max;
            changed = true;
        }
    }
    if (changed && op->code == TW_OP_LOOP) {
        op->operand[TW_LOOP_id].id = x->new_trip == TW_NONE ? TW_NONE : 500 + x->trip % 64;
    }
    return changed;
}

static uint32_t small(uint64_t *seed) {
    return random_below(seed, 6);
}

/* Any number of an Input, with any divisor and addend. */
static void draw_trip(const struct order_mutant *m, struct tw_trip *t, uint64_t *seed) {
    switch (random_below(seed, 7)) {
    case 0:
        t->add = (int32_t)(random_below(seed, 4) ? small(seed)
                                                 : (uint32_t)order_tweak((uint32_t)t->add, seed));
        break;
    case 1:
        t->div = random_below(seed, 4) ? 1 + small(seed) : (uint32_t)order_tweak(t->div, seed);
        break;
    case 2:
        t->max = random_below(seed, 4) ? small(seed) : (uint32_t)order_tweak(t->max, seed);
        break;
    case 3:
        t->input = random_below(seed, m->p.n_tensors);
        break;
    case 4:
        t->clamp = random_below(seed, 8) ? !t->clamp : (uint32_t)order_tweak(t->clamp, seed);
        break;
    case 5:
        t->element = random_below(seed, 2) ? small(seed) : (uint32_t)order_tweak(t->element, seed);
        break;
    default:
        t->add = (int32_t)small(seed) - (int32_t)small(seed);
        t->div = 1 + small(seed);
        t->clamp = random_below(seed, 2);
        break;
    }
}

/* A COPY keeps the last row only, of a number of rows that a trip counts, and another one reads
 * it. */
static void keep_last(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    static const uint32_t copy = TW_OP_COPY;
    uint32_t words[TW_MAX_OP_WORDS], n, trip = random_below(seed, m->p.n_trips);
    struct order_place p;
    struct tw_op op;
    if (!order_choose_code(x, &copy, 1, &p, seed)) {
        return;
    }
    uint32_t at = order_word_of(&m->streams[p.stream], p.op);
    tw_op_decode(m->streams[p.stream].words, m->streams[p.stream].n_words, at, &op);
    struct tw_operand bytes = op.operand[TW_COPY_row_bytes], rows = op.operand[TW_COPY_rows],
                      to = op.operand[TW_COPY_y];
    if (rows.id == TW_NONE && random_below(seed, 8)) { /* its one row becomes two */
        rows.id = trip;
        rows.max = m->p.trips[trip].max;
        bytes.id = rows.max ? bytes.id / rows.max : bytes.id;
    }
    op.code = TW_OP_LAST_ROW;
    op.operand[TW_LAST_ROW_x_stride].id = bytes.id;
    op.operand[TW_LAST_ROW_row_bytes] = bytes;
    op.operand[TW_LAST_ROW_rows] = rows;
    op.n_operands = 5;
    n = order_put_op(m, p.stream, at, &op);
    op.code = TW_OP_COPY;
    op.n_operands = 6;
    op.operand[TW_COPY_x] = to;
    op.operand[TW_COPY_x].kind = 'R';
    op.operand[TW_COPY_y] = to;
    op.operand[TW_COPY_y].offset.base += bytes.id;
    op.operand[TW_COPY_x_stride] = op.operand[TW_COPY_y_stride] = bytes;
    op.operand[TW_COPY_row_bytes] = bytes;
    op.operand[TW_COPY_rows] = rows;
    op.operand[TW_COPY_rows].id = TW_NONE;
    op.operand[TW_COPY_rows].max = 1;
    order_splice(m, p.stream, at + n, 0, words, tw_op_encode(&op, words));
    order_describe(m, " [last row at op %u of stream %u]", p.op, p.stream);
}

static bool count_by_trip(void *ctx, uint32_t stream, struct tw_op *op) {
    struct recount *x = ctx;
    (void)stream;
    if (op->code != TW_OP_LAST_ROW && op->code != TW_OP_GATHER && op->code != TW_OP_WRITE &&
        op->code != TW_OP_ATTN_INIT) {
        return false;
    }
    struct tw_operand *o = &op->operand[op->n_operands - 1];
    if (o->kind != 'X' || random_below(&x->seed, x->only)) {
        return false;
    }
    o->id = x->new_trip;
    o->max = random_below(&x->seed, 4) ? x->new_max : o->max;
    return true;
}

static uint32_t add_trip(struct order_mutant *m, uint64_t *seed) {
    struct tw_trip *trips = order_own_table(m, m->p.trips, m->p.n_trips, 1, sizeof *trips);
    uint32_t n = m->p.n_trips;
    trips[n] = n ? trips[random_below(seed, n)] : (struct tw_trip){.div = 1, .max = 2};
    draw_trip(m, &trips[n], seed);
    m->p.trips = trips;
    return m->p.n_trips++;
}

/* Trips of every kind, with minima of 0 and of 1 (LAST_ROW), counts of records and ops changed
 * together. */
bool order_family_trips(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    uint32_t n_before = m->p.n_trips, from = random_below(seed, n_before + 1), only = 1;
    bool last = n_before && random_below(seed, 2);
    if (last) {
        keep_last(x, m, seed);
        if (random_below(seed, 2)) {
            return true;
        }
    }
    uint32_t trip =
        random_below(seed, 3) && n_before ? random_below(seed, n_before) : add_trip(m, seed);
    if (random_below(seed, 2)) {
        struct tw_trip *trips = order_own(m, m->p.trips, m->p.n_trips * sizeof *trips);
        draw_trip(m, &trips[trip], seed);
        m->p.trips = trips;
    }
    only += random_below(seed, 3);
    struct recount r = {.trip = from < n_before ? from : TW_NONE,
                        .max = 1 + random_below(seed, 4),
                        .new_trip = random_below(seed, 8) ? trip : TW_NONE,
                        .new_max = m->p.trips[trip].max,
                        .only = only,
                        .seed = random_next(seed)};
    uint32_t n = random_below(seed, 3) ? order_each_op(m, set_count, &r)
                                       : order_each_op(m, count_by_trip, &r);
    const struct tw_trip *t = &m->p.trips[trip];
    order_describe(m, " [trip %u input %u[%u] add %d div %u max %u clamp %u; %u counts of trip %d]",
                   trip, t->input, t->element, t->add, t->div, t->max, t->clamp, n, (int)r.trip);
    return true;
}

/* ---- loop counts ---- */

struct times {
    struct tw_op like;
    uint32_t times, only;
    uint64_t seed;
};

static bool set_times(void *ctx, uint32_t stream, struct tw_op *op) {
    struct times *x = ctx;
    const struct tw_operand *a = op->operand, *b = x->like.operand;
    (void)stream;
    if (op->code != TW_OP_LOOP || a[TW_LOOP_times].id != b[TW_LOOP_times].id ||
        a[TW_LOOP_times].max != b[TW_LOOP_times].max || a[TW_LOOP_id].id != b[TW_LOOP_id].id ||
        random_below(&x->seed, x->only)) {
        return false;
    }
    op->operand[TW_LOOP_times].max = x->times;
    return true;
}

/* The loops that are entered together run for any number of iterations up to 2^31; where it is a
 * trip's, its maximum follows. */
bool order_family_times(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    static const uint32_t loop = TW_OP_LOOP;
    struct order_place p;
    struct times t = {.only = random_below(seed, 4) ? 1 : 2};
    if (!order_choose_code(x, &loop, 1, &p, seed)) {
        return false;
    }
    const struct tw_stream *s = &m->streams[p.stream];
    tw_op_decode(s->words, s->n_words, order_word_of(s, p.op), &t.like);
    t.times = (uint32_t)(random_next(seed) >> 1) >> random_below(seed, 31);
    t.times = random_below(seed, 4) ? t.times : t.like.operand[TW_LOOP_times].max + t.times % 3;
    t.seed = random_next(seed);
    uint32_t n = order_each_op(m, set_times, &t), trip = t.like.operand[TW_LOOP_times].id;
    if (trip < m->p.n_trips) {
        struct tw_trip *trips = order_own(m, m->p.trips, m->p.n_trips * sizeof *trips);
        trips[trip].max = t.times - random_below(seed, 2);
        m->p.trips = trips;
    }
    for (uint32_t i = 0; i < m->p.n_sections && m->p.sections[i].repeat > 1; i++) {
        if (m->p.sections[i].repeat == t.like.operand[TW_LOOP_times].max) {
            struct tw_section *sections =
                order_own(m, m->p.sections, m->p.n_sections * sizeof *sections);
            sections[i].repeat = t.times;
            m->p.sections = sections;
            break;
        }
    }
    order_describe(m, " [%u loops of %u run %u times]", n, t.like.operand[TW_LOOP_times].max,
                   t.times);
    return n > 0;
}
