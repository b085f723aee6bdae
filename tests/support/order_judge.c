/* SPDX-License-Identifier: Apache-2.0
 *
 * Verdicts and trial runs (order_judge.h).
 */
#include "tests/support/order_judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- verdict ---- */

static void refuse(struct order_verdict *v, const struct tw_verify_report *r, const tw_error *err) {
    if (v->rule == 0) {
        v->rule = r->failed_rule;
        snprintf(v->message, sizeof v->message, "%s", err->message);
    }
}

struct order_verdict order_judge(struct tw_cmem *mem, const struct tw_program *p,
                                 const struct tw_certificate *given) {
    struct order_verdict v;
    struct tw_verify_report report = {.failed_rule = 0};
    struct tw_certificate own;
    tw_error err = {0};
    size_t used = mem->used;
    memset(&v, 0, sizeof v);
    if (tw_verify_program(p, &report, &err) != 0) {
        v.structural = true;
        refuse(&v, &report, &err);
        v.rule = v.rule ? v.rule : -1; /* no memory */
        return v;
    }
    memset(&report, 0, sizeof report);
    if (tw_certify(mem, p, &own, &err) != 0) {
        v.stuck = true;
        report.failed_rule = TW_ORDER_no_deadlock;
        refuse(&v, &report, &err);
    } else if (tw_check_order(p, &own, &report, &err) != 0) {
        refuse(&v, &report, &err);
    } else {
        v.own = true;
    }
    memset(&report, 0, sizeof report);
    if (given && given->n_words && tw_check_order(p, given, &report, &err) == 0) {
        v.given = true;
    }
    if (v.own || v.given) {
        v.rule = 0;
    } else {
        v.rule = v.rule ? v.rule : -1;
    }
    tw_cmem_release(mem, used);
    return v;
}

/* ---- trial ---- */

static const uint64_t adversaries[] = {
    TW_STARVE_SEED(TW_STARVE_BACKWARD, 0),
    TW_STARVE_SEED(TW_STARVE_KIND, TW_ENGINE_MATH),
    TW_STARVE_SEED(TW_STARVE_KIND, TW_ENGINE_LOAD),
    TW_STARVE_SEED(TW_STARVE_KIND, TW_ENGINE_STORE),
    TW_STARVE_SEED(TW_STARVE_SITE, 0),
    TW_STARVE_SEED(TW_STARVE_NEWEST, 0),
    TW_STARVE_SEED(TW_STARVE_TURNS, 0),
    TW_STARVE_SEED(TW_STARVE_LEADER, 0),
    TW_STARVE_SEED(TW_STARVE_LAGGARD, 0),
    TW_STARVE_SEED(TW_STARVE_FAVOUR, 2),
    TW_STARVE_SEED(TW_STARVE_FAVOUR, 4),
    TW_STARVE_SEED(TW_STARVE_ENGINE, 1),
    TW_STARVE_SEED(TW_STARVE_OP, 4),
};
#define N_ADVERSARIES ((uint32_t)(sizeof adversaries / sizeof *adversaries))

static const char *schedule_text(enum tw_scheduler scheduler, uint64_t seed) {
    static char text[64];
    snprintf(text, sizeof text, "%s %llu",
             scheduler == TW_SCHED_CANONICAL ? "canonical"
             : scheduler == TW_SCHED_RANDOM  ? "random"
                                             : "adversary",
             (unsigned long long)seed);
    return text;
}

static void tell_fault(struct order_trial *t, const struct order_run *r,
                       enum tw_scheduler scheduler, uint64_t seed) {
    struct tw_op_info info = tw_op_info(r->fault.opcode);
    snprintf(t->what, sizeof t->what,
             "%s: step %u: %s at site %u %s op %u (%s), object %u, have %llu need %llu",
             schedule_text(scheduler, seed), r->steps, r->fault.what ? r->fault.what : "?",
             r->fault.site, tw_engine_name(r->fault.engine), r->fault.op_index,
             info.name ? info.name : "?", r->fault.object, (unsigned long long)r->fault.have,
             (unsigned long long)r->fault.need);
}

struct order_trial order_try(struct order_device *d, const struct order_scenario *s,
                             uint32_t n_random, uint32_t n_adversaries, uint64_t seed,
                             const uint8_t *expected, size_t expected_bytes) {
    struct order_trial t = {.safe = true};
    size_t bytes = d->kept_bytes * s->n;
    uint8_t *first = calloc(2, bytes + 1), *other = first ? first + bytes : NULL;
    if (!first) {
        return t;
    }
    struct order_run r = order_device_run(d, s->in, s->n, TW_SCHED_CANONICAL, 0, first);
    if (r.rc != 0 && (!r.taken || order_fault_is_input(d, &r.fault))) {
        free(first);
        return t;
    }
    t.ran = true;
    if (r.rc != 0) {
        t.safe = false;
        tell_fault(&t, &r, TW_SCHED_CANONICAL, 0);
    } else if (r.ops > tw_program_step_ops(d->program)) {
        t.safe = false;
        snprintf(t.what, sizeof t.what, "a step executed %llu ops of at most %llu",
                 (unsigned long long)r.ops, (unsigned long long)tw_program_step_ops(d->program));
    }
    t.same = t.safe && expected && expected_bytes == bytes && memcmp(first, expected, bytes) == 0;
    n_adversaries = n_adversaries < N_ADVERSARIES ? n_adversaries : N_ADVERSARIES;
    for (uint32_t i = 0; i < n_random + n_adversaries && t.safe; i++) {
        enum tw_scheduler scheduler = i < n_adversaries ? TW_SCHED_STARVE : TW_SCHED_RANDOM;
        uint64_t which = i < n_adversaries ? adversaries[i] : seed + i * 1000003u;
        r = order_device_run(d, s->in, s->n, scheduler, which, other);
        t.schedules++;
        if (r.rc != 0) {
            t.safe = false;
            tell_fault(&t, &r, scheduler, which);
        } else if (memcmp(first, other, bytes) != 0) {
            size_t at = 0;
            while (first[at] == other[at]) {
                at++;
            }
            t.safe = false;
            snprintf(t.what, sizeof t.what, "%s: other bytes than canonical, step %zu, byte %zu",
                     schedule_text(scheduler, which), at / d->kept_bytes, at % d->kept_bytes);
        }
    }
    free(first);
    return t;
}
