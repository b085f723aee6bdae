/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules for loops over trips (rule 12) and for semaphores (rule 14). The increments of a word
 * are added up over the whole step, loops multiplied out; a threshold must grow by exactly that
 * total each epoch and must not exceed it within one. The words of a semaphore form a rectangle,
 * its group's, on each chip of the group; increments are kept as differences in both directions
 * until all streams are walked, so that an increment of a rectangle costs four additions.
 */
#include "loader/base/assert.h"
#include "loader/verify/verify_internal.h"

/* ---- loops over trips ---- */

/* Records the loop just opened. Ids ascend along each stream, so all engines enter shared loops in
 * the same order. */
int tw_vf_dynamic_loop(struct tw_verifier *v, uint32_t engine) {
    size_t n = v->n_dynamic[engine];
    uint32_t id = v->loop[v->n_loops - 1].id;
    if (n > 0 && v->dynamic[engine][n - 1].id >= id) {
        return tw_vf_fail(v, TW_RULE_loops_agree,
                          "loop id %u comes after %u, but ids must ascend along a stream", id,
                          v->dynamic[engine][n - 1].id);
    }
    int rc = tw_vf_grow(v, &v->dynamic[engine], &v->cap_dynamic[engine], n,
                        sizeof v->dynamic[engine][0]);
    if (rc) {
        return rc;
    }
    struct tw_vf_dynamic *d = &v->dynamic[engine][v->n_dynamic[engine]++];
    memset(d, 0, sizeof *d);
    d->id = id;
    d->depth = v->n_loops;
    d->place = v->place;
    for (uint32_t i = 0; i < v->n_loops; i++) {
        d->trip[i] = v->loop[i].trip;
        d->max[i] = v->loop[i].max;
    }
    return 0;
}

static int compare_pair(struct tw_verifier *v, const struct tw_vf_dynamic *a,
                        const struct tw_vf_dynamic *b) {
    tw_vf_count(v, TW_RULE_loops_agree);
    if (a->depth == b->depth && memcmp(a->trip, b->trip, sizeof a->trip) == 0 &&
        memcmp(a->max, b->max, sizeof a->max) == 0) {
        return 0;
    }
    v->place = b->place;
    return tw_vf_fail(v, TW_RULE_loops_agree,
                      "loop id %u: trip %d at depth %u, but %s op %u has trip %d at depth %u%s",
                      b->id, (int)b->trip[b->depth - 1], b->depth, tw_engine_name(a->place.engine),
                      a->place.op, (int)a->trip[a->depth - 1], a->depth,
                      a->depth == b->depth ? "; their nests or maxima differ" : "");
}

static int compare_engines(struct tw_verifier *v, unsigned a, unsigned b) {
    size_t i = 0, k = 0;
    int rc = 0;
    while (i < v->n_dynamic[a] && k < v->n_dynamic[b] && !rc) {
        const struct tw_vf_dynamic *da = &v->dynamic[a][i], *db = &v->dynamic[b][k];
        if (da->id == db->id) {
            rc = compare_pair(v, da, db);
        }
        i += da->id <= db->id;
        k += db->id <= da->id;
    }
    return rc;
}

int tw_vf_dynamic_compare(struct tw_verifier *v) {
    int rc = compare_engines(v, TW_ENGINE_LOAD, TW_ENGINE_MATH);
    rc = rc ? rc : compare_engines(v, TW_ENGINE_MATH, TW_ENGINE_STORE);
    return rc ? rc : compare_engines(v, TW_ENGINE_LOAD, TW_ENGINE_STORE);
}

/* ---- increments ---- */

/* A rectangle of sites of one chip. */
struct rect {
    uint32_t chip, x0, y0, x1, y1;
};

static const struct tw_group *group_of(const struct tw_verifier *v, uint32_t sem) {
    return &v->program->groups[v->program->semaphores[sem].group];
}

static struct rect rect_of_group(const struct tw_group *g) {
    struct rect r = {g->chip, g->x0, g->y0, g->x1, g->y1};
    return r;
}

static struct rect rect_of_site(const struct tw_program *p, uint32_t site) {
    uint32_t x = site % p->mesh_width, y = site / p->mesh_width % p->mesh_height;
    struct rect r = {site / (p->mesh_width * p->mesh_height), x, y, x + 1, y + 1};
    return r;
}

static bool holds(const struct tw_group *g, const struct rect *r) {
    return g->chip <= r->chip && r->chip - g->chip < g->chips && g->x0 <= r->x0 && r->x1 <= g->x1 &&
           g->y0 <= r->y0 && r->y1 <= g->y1;
}

uint64_t *tw_vf_word(const struct tw_verifier *v, uint32_t sem, uint32_t site) {
    const struct tw_group *g = group_of(v, sem);
    if (!tw_group_holds(v->program, g, site)) {
        return NULL;
    }
    return &v->words[v->sems[sem].first_word + tw_group_number(v->program, g, site)];
}

/* Adds `by` to the words of a rectangle inside the semaphore's group, as differences. */
static void add_rect(struct tw_verifier *v, uint32_t sem, const struct rect *r, uint64_t by) {
    const struct tw_group *g = group_of(v, sem);
    uint32_t width = (uint32_t)(g->x1 - g->x0), height = (uint32_t)(g->y1 - g->y0);
    uint32_t x0 = r->x0 - g->x0, y0 = r->y0 - g->y0, x1 = r->x1 - g->x0, y1 = r->y1 - g->y0;
    uint64_t *w = &v->words[v->sems[sem].first_word + (r->chip - g->chip) * width * height];
    w[y0 * width + x0] += by;
    if (x1 < width) {
        w[y0 * width + x1] -= by;
    }
    if (y1 < height) {
        w[y1 * width + x0] -= by;
        if (x1 < width) {
            w[y1 * width + x1] += by;
        }
    }
}

/* Computes the words of one chip from their differences. */
static void sum_rect(uint64_t *w, uint32_t width, uint32_t height) {
    TW_ASSERT(width > 0 && height > 0);
    for (uint32_t i = 0; i < width * height; i++) {
        uint64_t left = i % width ? w[i - 1] : 0, up = i >= width ? w[i - width] : 0;
        uint64_t corner = i % width && i >= width ? w[i - width - 1] : 0;
        w[i] += left + up - corner;
    }
}

static void sum_words(struct tw_verifier *v, uint32_t sem) {
    const struct tw_group *g = group_of(v, sem);
    uint32_t width = (uint32_t)(g->x1 - g->x0), height = (uint32_t)(g->y1 - g->y0);
    for (uint32_t chip = 0; chip < g->chips; chip++) {
        sum_rect(&v->words[v->sems[sem].first_word + chip * width * height], width, height);
    }
}

static int increment(struct tw_verifier *v, uint32_t sem, const struct rect *where, uint64_t by) {
    const struct tw_program *p = v->program;
    uint64_t iterations = v->n_loops ? v->loop[v->n_loops - 1].iterations : 1;
    if (!holds(group_of(v, sem), where)) {
        return tw_vf_fail(
            v, TW_RULE_thresholds_reachable,
            "semaphore %u (%s) does not have words on all of chip %u, x %u..%u, y %u..%u", sem,
            tw_program_string(p, p->semaphores[sem].name), where->chip, where->x0, where->x1,
            where->y0, where->y1);
    }
    /* below 2^63: both factors fit 32 bits and the sum is bounded next */
    v->sems[sem].sum += by * iterations;
    if (by < 1 || by > TW_VF_MAX_COUNT || v->sems[sem].sum > TW_VF_MAX_COUNT) {
        return tw_vf_fail(
            v, TW_RULE_thresholds_reachable,
            "semaphore %u (%s): increments by %llu, %llu per step in all, the maximum is %u", sem,
            tw_program_string(p, p->semaphores[sem].name), (unsigned long long)by,
            (unsigned long long)v->sems[sem].sum, TW_VF_MAX_COUNT);
    }
    add_rect(v, sem, where, by * iterations);
    return 0;
}

/* ---- waits ---- */

static int add_wait(struct tw_verifier *v, uint32_t sem, const struct tw_affine *threshold) {
    const struct tw_program *p = v->program;
    uint64_t lo;
    if (!tw_vf_word(v, sem, v->place.site)) {
        return tw_vf_fail(v, TW_RULE_thresholds_reachable,
                          "semaphore %u (%s) has no word on this site", sem,
                          tw_program_string(p, p->semaphores[sem].name));
    }
    int rc = tw_vf_grow(v, &v->waits, &v->cap_waits, v->n_waits, sizeof v->waits[0]);
    if (rc) {
        return rc;
    }
    struct tw_vf_wait *w = &v->waits[v->n_waits++];
    w->threshold = *threshold;
    w->sem = sem;
    w->unit = tw_vf_rendezvous_unit(v, sem);
    w->place = v->place;
    tw_vf_range(v, threshold, &lo, &w->max);
    return 0;
}

/* A multicast goes to one chip, the sender's or another; several chips need several multicasts. */
int tw_vf_mcast_group(struct tw_verifier *v, uint32_t group) {
    const struct tw_group *g = &v->program->groups[group];
    if (g->chips == 1) {
        return 0;
    }
    return tw_vf_fail(v, TW_RULE_groups_on_chip,
                      "multicasts to group %u on %u chips, expected one chip", group, g->chips);
}

int tw_vf_sync_op(struct tw_verifier *v) {
    const struct tw_operand *o = v->op.operand;
    uint32_t sem = tw_op_object(&v->op), group = o[TW_MCAST_SET_group].id;
    struct rect where;
    int rc;
    tw_vf_count(v, TW_RULE_loops_agree);
    if (v->n_dynamic_open) {
        return tw_vf_fail(v, TW_RULE_loops_agree, "a flag or rendezvous inside a loop over a trip");
    }
    switch (v->op.code) {
    case TW_OP_SEM_INC:
        where = rect_of_site(v->program, o[TW_SEM_INC_site].id);
        rc = increment(v, sem, &where, o[TW_SEM_INC_by].id);
        return rc ? rc : tw_vf_rendezvous_op(v, sem, NULL);
    case TW_OP_MCAST_SET:
        where = rect_of_group(&v->program->groups[group]);
        rc = tw_vf_mcast_group(v, group);
        rc = rc ? rc : increment(v, sem, &where, 1);
        return rc ? rc : tw_vf_rendezvous_op(v, sem, NULL);
    default:
        rc = add_wait(v, sem, &o[TW_SEM_WAIT_threshold].offset);
        return rc ? rc : tw_vf_rendezvous_op(v, sem, &o[TW_SEM_WAIT_threshold].offset);
    }
}

static uint64_t epoch_step(const struct tw_affine *a) {
    uint64_t step = 0;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        step += a->term[i].var == 0 ? a->term[i].step : 0;
    }
    return step;
}

static int check_threshold(struct tw_verifier *v, const struct tw_vf_wait *w) {
    const struct tw_program *p = v->program;
    uint64_t total = *tw_vf_word(v, w->sem, w->place.site), initial = p->semaphores[w->sem].initial;
    const char *name = tw_program_string(p, p->semaphores[w->sem].name);
    v->place = w->place;
    tw_vf_count(v, TW_RULE_thresholds_reachable);
    if (epoch_step(&w->threshold) != total) {
        return tw_vf_fail(
            v, TW_RULE_thresholds_reachable,
            "semaphore %u (%s): the threshold grows by %llu per epoch, but %llu increments arrive",
            w->sem, name, (unsigned long long)epoch_step(&w->threshold), (unsigned long long)total);
    }
    if (w->max > initial + total) {
        return tw_vf_fail(v, TW_RULE_thresholds_reachable,
                          "semaphore %u (%s): the threshold reaches %llu in the first epoch, but "
                          "the word only %llu",
                          w->sem, name, (unsigned long long)w->max,
                          (unsigned long long)(initial + total));
    }
    return 0;
}

int tw_vf_sync_finish(struct tw_verifier *v) {
    int rc = 0;
    for (uint32_t i = 0; i < v->program->n_semaphores; i++) {
        sum_words(v, i);
    }
    for (size_t i = 0; i < v->n_waits && !rc; i++) {
        rc = check_threshold(v, &v->waits[i]);
    }
    return rc;
}
