/* SPDX-License-Identifier: Apache-2.0
 *
 * The structural verifier of programs. It does not trust the program, and what it accepts
 * the firmware runs without checks in fast mode. How it works:
 *
 *   1. verify_tables.c checks the tables alone: ids, enums, sizes, placement, groups, trips,
 *      sections.
 *   2. verify_streams.c walks every stream once, site by site and engine by engine, with an
 *      open-loop stack. For each op verify_operands.c checks ids, variables and types,
 *      verify_regions.c that each region stays inside its page or tensor for all values of the
 *      loop variables. Affine numbers are linear, so their minimum and maximum over the box of
 *      loop ranges are exact, and no loop is ever unrolled.
 *   3. verify_fifo.c tracks how many pages an engine has waited for (or reserved) and how many
 *      it moved. A body must end with the level it began with, so one walk through it is valid for
 *      any number of iterations. Counters are saved in a log at their first change inside a loop;
 *      closing the loop multiplies what the body added.
 *   4. verify_sync.c adds up increments per semaphore word (rectangles as differences, so that
 *      a multicast flag costs four additions) and keeps the waits; when all streams are walked it
 *      compares each threshold with its total. verify_rendezvous.c follows each engine through the
 *      rendezvous that close sections.
 *
 * All of it is linear in the words of the streams plus the records of the tables plus the semaphore
 * words. The order between engines (deadlock, races) is checked with the certificate, not here.
 */
#include "loader/verify/verify_internal.h"

#include "loader/base/grow.h"

#include <stdio.h>
#include <stdlib.h>

static const char *rule_name(enum tw_rule rule) {
    switch (rule) {
#define TW_X(number, name, text) \
    case TW_RULE_##name:         \
        return #name;
        TW_RULES(TW_X)
#undef TW_X
    }
    return "?";
}

static const char *origin_of(const struct tw_program *p, uint32_t stage) {
    return stage < p->n_stages ? tw_program_string(p, p->stages[stage].origin) : "-";
}

void tw_vf_error(struct tw_verifier *v, enum tw_rule rule, const char *format, ...) {
    const struct tw_program *p = v->program;
    const struct tw_vf_place *at = &v->place;
    char text[320], where[160];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!at->object) {
        struct tw_op_info info = tw_op_info(at->code);
        snprintf(where, sizeof where, "site %u %s op %u (%s, %.60s)", at->site,
                 tw_engine_name(at->engine), at->op, info.name ? info.name : "?",
                 origin_of(p, at->stage));
    } else if (at->id == TW_NONE) {
        snprintf(where, sizeof where, "%s", at->object);
    } else {
        snprintf(where, sizeof where, "%s %u (%.60s)", at->object, at->id, at->name);
    }
    v->report->failed_rule = (int)rule;
    tw_error_set(v->err, TW_E_VERIFY, "rule %d %s: %.60s %s: %s", (int)rule, rule_name(rule),
                 p->name ? p->name : "?", where, text);
}

void tw_vf_at_object(struct tw_verifier *v, const char *object, uint32_t id, uint32_t name) {
    v->place.object = object;
    v->place.id = id;
    v->place.name = tw_program_string(v->program, name);
}

int tw_vf_grow(struct tw_verifier *v, void *items, size_t *cap, size_t n, size_t item_bytes) {
    return tw_grow(items, cap, n + 1, item_bytes)
               ? 0
               : tw_fail(v->err, TW_E_NOMEM, "out of memory to verify %s: %zu items of %zu bytes",
                         v->program->name, n + 1, item_bytes);
}

int tw_vf_touch(struct tw_verifier *v, struct tw_vf_log *log, struct tw_vf_counter *counter,
                uint32_t item) {
    if (counter->mark == v->n_loops) {
        return 0;
    }
    int rc = tw_vf_grow(v, &log->entry, &log->cap, log->n, sizeof log->entry[0]);
    if (rc) {
        return rc;
    }
    struct tw_vf_saved saved = {item, counter->mark, counter->level, 0, counter->count};
    log->entry[log->n++] = saved;
    counter->mark = v->n_loops;
    return 0;
}

uint32_t tw_vf_stream_words(const struct tw_verifier *v, uint32_t site, unsigned engine) {
    return v->program->streams[(size_t)site * TW_ENGINE_COUNT + engine].n_words;
}

static void *zeroed(size_t n, size_t bytes) {
    return calloc(n ? n : 1, bytes);
}

static int allocate(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    v->buffers = zeroed(p->n_buffers, sizeof v->buffers[0]);
    v->sems = zeroed(p->n_semaphores, sizeof v->sems[0]);
    v->sections = zeroed(p->n_sections, sizeof v->sections[0]);
    v->written = zeroed(p->n_tensors, 1);
    v->in_sram = zeroed(p->n_tensors, 1);
    v->windows = zeroed(p->n_buffers, sizeof v->windows[0]);
    v->seen = zeroed(p->n_sections, sizeof v->seen[0]);
    v->arrived = zeroed(p->n_sections, sizeof v->arrived[0]);
    if (!v->buffers || !v->sems || !v->sections || !v->written || !v->in_sram || !v->windows ||
        !v->seen || !v->arrived) {
        return tw_fail(v->err, TW_E_NOMEM, "out of memory to verify %s", p->name);
    }
    return 0;
}

static void release(struct tw_verifier *v) {
    free(v->buffers);
    free(v->sems);
    free(v->sections);
    free(v->words);
    free(v->written);
    free(v->in_sram);
    free(v->windows);
    free(v->fifo_log.entry);
    free(v->rendezvous_log.entry);
    for (unsigned e = 0; e < TW_ENGINE_COUNT; e++) {
        free(v->dynamic[e]);
    }
    free(v->moves);
    free(v->waits);
    free(v->seen);
    free(v->arrived);
}

static int allocate_words(struct tw_verifier *v) {
    v->words = zeroed(v->n_words, sizeof v->words[0]);
    return v->words
               ? 0
               : tw_fail(v->err, TW_E_NOMEM, "out of memory for %u semaphore words", v->n_words);
}

int tw_verify_program(const struct tw_program *program, struct tw_verify_report *report,
                      tw_error *err) {
    return tw_verify_program_until(program, NULL, report, err);
}

int tw_verify_program_until(const struct tw_program *program, const struct tw_interrupt *interrupt,
                            struct tw_verify_report *report, tw_error *err) {
    struct tw_verifier v;
    memset(&v, 0, sizeof v);
    v.program = program;
    v.interrupt = interrupt;
    v.err = err;
    v.report = report ? report : &v.own_report;
    memset(v.report, 0, sizeof *v.report);
    int rc = tw_vf_header(&v);
    rc = rc ? rc : allocate(&v);
    rc = rc ? rc : tw_vf_tables(&v);
    rc = rc ? rc : allocate_words(&v);
    rc = rc ? rc : tw_vf_streams(&v);
    rc = rc ? rc : tw_vf_regions_finish(&v);
    rc = rc ? rc : tw_vf_fifo_finish(&v);
    rc = rc ? rc : tw_vf_sync_finish(&v);
    rc = rc ? rc : tw_vf_rendezvous_finish(&v);
    release(&v);
    return rc;
}
