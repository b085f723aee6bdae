/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier's rendezvous (rule 15). A section's rendezvous is, on every engine that has ops,
 *     sem_inc local(own site) by 1;  [the site's gatherer]  ;  sem_wait release
 * where one engine of each site gathers, and the gatherer of the root site releases everyone:
 *     sem_wait local;  sem_inc gather(root) by 1;
 *     [on the root]  sem_wait gather;  (sem_inc | mcast_set) release ...
 * with no other op in between. A small state machine follows each stream. Each threshold must be
 * unit * (earlier passes + 1) above the initial value, where the unit is the engines of the
 * site (local), the sites (gather) or 1 (release), in every iteration of every loop: the number of
 * earlier passes is counted like a FIFO's pages.
 */
#include "loader/verify/verify_internal.h"

#include <stdio.h>

enum { IDLE, ARRIVED, GATHERED, SENT, ROOT, RELEASING };

static const char *const use_name[] = {"plain", "local", "gather", "release"};

uint32_t tw_vf_rendezvous_unit(const struct tw_verifier *v, uint32_t sem) {
    switch (v->sems[sem].use) {
    case TW_VF_LOCAL:
        return v->site_engines;
    case TW_VF_GATHER:
        return v->n_active_sites;
    case TW_VF_RELEASE:
        return 1;
    case TW_VF_PLAIN:
        break;
    }
    return 0;
}

/* Fails for an op on a semaphore that may not come now. */
static int fail_order(struct tw_verifier *v, uint32_t sem) {
    static const char *const after[] = {"outside a rendezvous", "after arriving",
                                        "after gathering",      "after notifying the root",
                                        "before any release",   "while releasing"};
    const struct tw_vf_sem *s = &v->sems[sem];
    char section[24] = "", rendezvous[48] = "";
    if (s->use != TW_VF_PLAIN) {
        snprintf(section, sizeof section, " of section %u", s->section);
    }
    if (v->rendezvous_state != IDLE) {
        snprintf(rendezvous, sizeof rendezvous, " in the rendezvous of section %u",
                 v->rendezvous_section);
    }
    return tw_vf_fail(v, TW_RULE_rendezvous_shape, "uses %s semaphore %u%s %s%s", use_name[s->use],
                      sem, section, after[v->rendezvous_state], rendezvous);
}

/* ---- one op ---- */

static int notify_root(struct tw_verifier *v, struct tw_vf_section *s) {
    uint64_t iterations = v->n_loops ? v->loop[v->n_loops - 1].iterations : 1;
    uint32_t target = v->op.operand[TW_SEM_INC_site].id;
    if (s->root == TW_NONE) {
        s->root = target;
    }
    if (s->root != target) {
        return tw_vf_fail(v, TW_RULE_rendezvous_shape, "gathers at site %u, others at site %u",
                          target, s->root);
    }
    if (s->arrivals == 0) {
        v->arrived[v->n_arrived++] = v->rendezvous_section;
    }
    s->arrivals += iterations; /* bounded by the semaphore sums */
    return 0;
}

static int end_pass(struct tw_verifier *v, struct tw_vf_section *s) {
    int rc = tw_vf_touch(v, &v->rendezvous_log, &s->passes, v->rendezvous_section);
    if (rc) {
        return rc;
    }
    if (s->passes.level == 0) {
        s->passes.level = 1;
        v->seen[v->n_seen++] = v->rendezvous_section;
    }
    s->passes.count++;
    v->rendezvous_state = IDLE;
    v->closed = v->rendezvous_section == v->program->n_sections - 1;
    return 0;
}

/* Returns the state after an increment (threshold NULL) or wait, or IDLE - 1 if it is out of
 * order. */
static int next_state(int state, enum tw_vf_sem_use use, bool waits) {
    static const struct {
        enum tw_vf_sem_use use;
        bool waits;
        int from, to;
    } step[] = {
        {TW_VF_LOCAL, false, IDLE, ARRIVED},     {TW_VF_LOCAL, true, ARRIVED, GATHERED},
        {TW_VF_GATHER, false, GATHERED, SENT},   {TW_VF_GATHER, true, SENT, ROOT},
        {TW_VF_RELEASE, false, ROOT, RELEASING}, {TW_VF_RELEASE, false, RELEASING, RELEASING},
        {TW_VF_RELEASE, true, ARRIVED, IDLE},    {TW_VF_RELEASE, true, SENT, IDLE},
        {TW_VF_RELEASE, true, RELEASING, IDLE},
    };
    for (size_t i = 0; i < sizeof step / sizeof step[0]; i++) {
        if (step[i].use == use && step[i].waits == waits && step[i].from == state) {
            return step[i].to;
        }
    }
    return IDLE - 1;
}

static int check_base(struct tw_verifier *v, uint32_t sem, const struct tw_affine *threshold) {
    uint64_t unit = tw_vf_rendezvous_unit(v, sem);
    uint64_t passes = v->sections[v->sems[sem].section].passes.count;
    uint64_t expected = v->program->semaphores[sem].initial + unit * (passes + 1);
    if (threshold->base != expected) {
        return tw_vf_fail(v, TW_RULE_rendezvous_shape, "%s threshold begins at %llu, expected %llu",
                          use_name[v->sems[sem].use], (unsigned long long)threshold->base,
                          (unsigned long long)expected);
    }
    return 0;
}

static int check_increment(struct tw_verifier *v, enum tw_vf_sem_use use) {
    if (v->op.code == TW_OP_MCAST_SET && use != TW_VF_RELEASE) {
        return tw_vf_fail(v, TW_RULE_rendezvous_shape, "%s is incremented by multicast",
                          use_name[use]);
    }
    if (v->op.code == TW_OP_SEM_INC && v->op.operand[TW_SEM_INC_by].id != 1) {
        return tw_vf_fail(v, TW_RULE_rendezvous_shape, "%s is incremented by %u", use_name[use],
                          v->op.operand[TW_SEM_INC_by].id);
    }
    uint32_t site = v->op.operand[TW_SEM_INC_site].id;
    if (use == TW_VF_LOCAL && site != v->place.site) {
        return tw_vf_fail(v, TW_RULE_rendezvous_shape, "arrives at site %u", site);
    }
    return use == TW_VF_GATHER ? notify_root(v, &v->sections[v->rendezvous_section]) : 0;
}

int tw_vf_rendezvous_op(struct tw_verifier *v, uint32_t sem, const struct tw_affine *threshold) {
    const struct tw_vf_sem *s = &v->sems[sem];
    if (s->use == TW_VF_PLAIN) {
        return v->rendezvous_state == IDLE ? 0 : fail_order(v, sem);
    }
    int next = next_state(v->rendezvous_state, s->use, threshold != NULL);
    tw_vf_count(v, TW_RULE_rendezvous_shape);
    uint32_t in =
        v->op.stage < v->program->n_stages ? v->program->stages[v->op.stage].section : TW_NONE;
    if (in != TW_NONE && in != s->section) {
        return tw_vf_fail(v, TW_RULE_rendezvous_shape,
                          "belongs to section %u, but is about the rendezvous of section %u", in,
                          s->section);
    }
    if (next < IDLE || (v->rendezvous_state != IDLE && s->section != v->rendezvous_section)) {
        return fail_order(v, sem);
    }
    v->rendezvous_section = s->section;
    v->rendezvous_state = next;
    if (next == ROOT && v->sections[s->section].root != v->place.site) {
        return tw_vf_fail(v, TW_RULE_rendezvous_shape,
                          "waits for the arrivals of all sites, but the root is site %u",
                          v->sections[s->section].root);
    }
    int rc = threshold ? check_base(v, sem, threshold) : check_increment(v, s->use);
    return rc || next != IDLE ? rc : end_pass(v, &v->sections[s->section]);
}

/* ---- loops ---- */

static uint64_t step_of(const struct tw_affine *a, uint32_t var) {
    uint64_t step = 0;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        step += a->term[i].var == var ? a->term[i].step : 0;
    }
    return step;
}

static int check_steps(struct tw_verifier *v, const struct tw_vf_loop *loop) {
    for (size_t i = loop->wait_base; i < v->n_waits && loop->max > 1; i++) {
        const struct tw_vf_wait *w = &v->waits[i];
        if (w->unit == 0) {
            continue;
        }
        uint64_t expected = w->unit * v->sections[v->sems[w->sem].section].body;
        if (step_of(&w->threshold, loop->var) != expected) {
            v->place = w->place;
            return tw_vf_fail(v, TW_RULE_rendezvous_shape,
                              "%s threshold grows by %lld per iteration of v%u, expected %llu",
                              use_name[v->sems[w->sem].use],
                              (long long)step_of(&w->threshold, loop->var), loop->var,
                              (unsigned long long)expected);
        }
    }
    return 0;
}

int tw_vf_rendezvous_end_loop(struct tw_verifier *v, const struct tw_vf_loop *loop) {
    struct tw_vf_log *log = &v->rendezvous_log;
    size_t top = log->n;
    for (size_t i = loop->rendezvous_base; i < top; i++) {
        struct tw_vf_section *s = &v->sections[log->entry[i].item];
        s->body = s->passes.count - log->entry[i].count;
    }
    int rc = check_steps(v, loop);
    log->n = loop->rendezvous_base;
    for (size_t i = loop->rendezvous_base; i < top && !rc; i++) {
        struct tw_vf_saved at_start = log->entry[i];
        struct tw_vf_section *s = &v->sections[at_start.item];
        s->passes.count = at_start.count;
        s->passes.mark = at_start.mark;
        rc = tw_vf_touch(v, log, &s->passes, at_start.item);
        s->passes.count += s->body * loop->max; /* passes need increments, whose sums are bounded */
    }
    return rc;
}

/* ---- streams, sites, the program ---- */

static int check_passes(struct tw_verifier *v, uint32_t section) {
    struct tw_vf_section *s = &v->sections[section];
    uint64_t repeat = v->program->sections[section].repeat;
    if (s->passes_per_step == 0) {
        s->passes_per_step = s->passes.count;
    }
    if (s->passes.count != s->passes_per_step || s->passes.count % repeat != 0) {
        return tw_vf_fail(
            v, TW_RULE_rendezvous_shape,
            "passes the rendezvous of section %u %llu times, others %llu, repeat %llu", section,
            (unsigned long long)s->passes.count, (unsigned long long)s->passes_per_step,
            (unsigned long long)repeat);
    }
    return 0;
}

int tw_vf_rendezvous_end_stream(struct tw_verifier *v) {
    tw_vf_count(v, TW_RULE_rendezvous_shape);
    if (v->rendezvous_state != IDLE) {
        return tw_vf_fail(v, TW_RULE_rendezvous_shape, "the stream ends inside a rendezvous");
    }
    if (!v->closed) {
        return tw_vf_fail(v, TW_RULE_sections_partition,
                          "the stream does not end with the last section's rendezvous");
    }
    if (v->n_seen != v->n_closing) {
        return tw_vf_fail(v, TW_RULE_rendezvous_shape,
                          "the stream passes the rendezvous of %zu sections, but %u close",
                          v->n_seen, v->n_closing);
    }
    int rc = 0;
    for (size_t i = 0; i < v->n_seen && !rc; i++) {
        struct tw_vf_counter *passes = &v->sections[v->seen[i]].passes;
        rc = check_passes(v, v->seen[i]);
        passes->count = passes->level = 0;
    }
    v->n_seen = 0;
    return rc;
}

int tw_vf_rendezvous_end_site(struct tw_verifier *v) {
    if (v->n_arrived != v->n_closing) {
        return tw_vf_fail(v, TW_RULE_rendezvous_shape,
                          "site %u notifies the root of %zu sections, but %u close", v->place.site,
                          v->n_arrived, v->n_closing);
    }
    for (size_t i = 0; i < v->n_arrived; i++) {
        struct tw_vf_section *s = &v->sections[v->arrived[i]];
        if (s->arrivals != s->passes_per_step) {
            return tw_vf_fail(v, TW_RULE_rendezvous_shape,
                              "site %u arrives %llu times for %llu passes of section %u",
                              v->place.site, (unsigned long long)s->arrivals,
                              (unsigned long long)s->passes_per_step, v->arrived[i]);
        }
        s->arrivals = 0;
    }
    v->n_arrived = 0;
    return 0;
}

static int check_released(struct tw_verifier *v, uint32_t section) {
    const struct tw_program *p = v->program;
    for (uint32_t site = 0; site < p->n_sites; site++) {
        uint64_t *word = tw_vf_word(v, p->sections[section].release, site);
        bool active = false;
        for (unsigned e = 0; e < TW_ENGINE_COUNT; e++) {
            active |= tw_vf_stream_words(v, site, e) > 0;
        }
        tw_vf_count(v, TW_RULE_rendezvous_shape);
        if (active && (!word || *word != v->sections[section].passes_per_step)) {
            tw_vf_at_object(v, "section", section, p->sections[section].name);
            return tw_vf_fail(v, TW_RULE_rendezvous_shape,
                              "site %u is released %llu times in %llu passes", site,
                              word ? (unsigned long long)*word : 0,
                              (unsigned long long)v->sections[section].passes_per_step);
        }
    }
    return 0;
}

int tw_vf_rendezvous_finish(struct tw_verifier *v) {
    int rc = 0;
    if (v->n_active_sites == 0) {
        v->place.object = "program";
        v->place.id = TW_NONE;
        return tw_vf_fail(v, TW_RULE_sections_partition, "no engine has an op");
    }
    for (uint32_t i = 0; i < v->program->n_sections && !rc; i++) {
        if (v->program->sections[i].release != TW_NONE) {
            rc = check_released(v, i);
        }
    }
    return rc;
}
