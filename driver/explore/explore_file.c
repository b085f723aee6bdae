/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the exhaustive explorer (firmware/explore) on the programs of a text file: each program gets
 * synthetic device memory and is run in every order of its ops that can matter; every finding is
 * described in words.
 */
#include "driver/decoder/program_file.h"
#include "driver/explore/synthetic_memory.h"
#include "firmware/explore/explore.h"
#include "loader/base/assert.h"
#include "loader/base/sized.h"
#include "loader/verify/verify.h"
#include "tilewright/footprint.h"
#include "tilewright/program.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_BYTES ((uint64_t)1 << 30)
/* Maximum number of ops of a step, loops unrolled: the time for one order grows with its square. */
#define MAX_OPS 4096u

enum { MAX_FINDINGS = 5, WHAT_BYTES = 360 };

/* The exploration of one program with one input value. */
struct exploration {
    const char *path;
    const struct tw_program_text *text;
    struct synthetic_memory memory;
    uint32_t input; /* what its Inputs hold: see synthetic_memory_init() */
    void *arena;
    struct tw_explore_result r;
    struct tw_schedules_finding finding[MAX_FINDINGS];
    uint32_t n_findings;
    char what[MAX_FINDINGS][WHAT_BYTES];
    char *schedule[MAX_FINDINGS][2];
};

/* The exploration of a file. */
struct explore_job {
    const char *path;
    uint32_t max_states;
    uint64_t limit;
    void (*each)(void *ctx, const struct tw_schedules_info *info);
    void *ctx;
    uint32_t n_found, n_limited;
    /* the error of the first program with a finding, and of the first that hit a limit */
    char first[WHAT_BYTES + 300], limited[200];
};

/* ---- describing findings ---- */

static void describe_op(const struct tw_program *p, uint32_t stream, uint32_t op_index, char *out,
                        size_t room) {
    const struct tw_stream *s = &p->streams[stream];
    struct tw_op op = {0};
    uint32_t at = 0;
    for (uint32_t i = 0; at < s->n_words && tw_op_decode(s->words, s->n_words, at, &op); i++) {
        if (i == op_index) {
            break;
        }
        at += op.n_words;
    }
    const char *name = at < s->n_words ? tw_op_info(op.code).name : NULL;
    const char *origin =
        op.stage < p->n_stages ? tw_program_string(p, p->stages[op.stage].origin) : "-";
    snprintf(out, room, "site %u %s op %u (%s, %.40s)", s->site, tw_engine_name(s->engine),
             op_index, name ? name : "?", origin);
}

/* Formats a schedule as "SITE:ENGINE*OPS ...", such as "0:load*3 0:math 1:load*2". The caller frees
 * it. Returns NULL if out of memory. */
static char *print_schedule(const struct tw_explore_schedule *s) {
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    for (uint32_t i = 0, n; f && i < s->n; i += n) {
        for (n = 1; i + n < s->n && s->engine[i + n] == s->engine[i]; n++) {
        }
        fprintf(f, "%s%u:%s", i ? " " : "", (unsigned)s->engine[i] / TW_ENGINE_COUNT,
                tw_engine_name(s->engine[i] % TW_ENGINE_COUNT));
        if (n > 1) {
            fprintf(f, "*%u", n);
        }
    }
    if (f && fclose(f) != 0) {
        free(text);
        text = NULL;
    }
    return text;
}

/* Appends a finding and returns the buffer for its text. */
static char *add_finding(struct exploration *x, enum tw_schedules_found kind,
                         const struct tw_explore_schedule *a, const struct tw_explore_schedule *b) {
    TW_ASSERT(x->n_findings < MAX_FINDINGS);
    const struct tw_explore_schedule *of[2] = {a, b};
    struct tw_schedules_finding *f = &x->finding[x->n_findings];
    *f = (struct tw_schedules_finding){.kind = kind, .what = x->what[x->n_findings]};
    for (int i = 0; i < 2; i++) {
        f->schedule[i] = x->schedule[x->n_findings][i] = of[i] ? print_schedule(of[i]) : NULL;
    }
    return x->what[x->n_findings++];
}

static void describe_race(struct exploration *x) {
    char a[128], b[128];
    const struct tw_program *p = &x->text->program;
    describe_op(p, x->r.race[0].engine, x->r.race[0].op_index, a, sizeof a);
    describe_op(p, x->r.race[1].engine, x->r.race[1].op_index, b, sizeof b);
    char *what = add_finding(x, TW_FOUND_RACE, NULL, NULL);
    snprintf(what, WHAT_BYTES,
             "%s and %s can run in either order and touch the same bytes, and one of them writes",
             a, b);
}

static void describe_difference(struct exploration *x) {
    const struct tw_program *p = &x->text->program;
    char *what =
        add_finding(x, TW_FOUND_DIFFERS, &x->r.differs_schedule[0], &x->r.differs_schedule[1]);
    snprintf(what, WHAT_BYTES,
             "two orders leave different bytes: tensor %u (%.60s), instance %u, byte %llu",
             x->r.tensor, tw_program_string(p, p->tensors[x->r.tensor].name), x->r.instance,
             (unsigned long long)x->r.offset);
}

static void describe_fault(struct exploration *x, enum tw_schedules_found kind,
                           const struct tw_fault *f, const struct tw_explore_schedule *s) {
    char at[128] = "", object[32] = "";
    if (f->site < x->text->program.n_sites && f->engine < TW_ENGINE_COUNT &&
        f->op_index != TW_NONE) {
        describe_op(&x->text->program, f->site * TW_ENGINE_COUNT + f->engine, f->op_index, at,
                    sizeof at);
    }
    if (f->object != TW_NONE) {
        snprintf(object, sizeof object, ", object %u", f->object);
    }
    char *what = add_finding(x, kind, s, NULL);
    snprintf(what, WHAT_BYTES, "%s%s%s%s: have %llu, need %llu", f->what ? f->what : "fault",
             at[0] ? " at " : "", at, object, (unsigned long long)f->have,
             (unsigned long long)f->need);
}

static void describe_limit(struct exploration *x, uint32_t max_states) {
    char *what = add_finding(x, TW_FOUND_LIMIT, NULL, NULL);
    snprintf(what, WHAT_BYTES,
             "not every order was run: the limit of %u states was reached after %llu orders, so "
             "there may be more to find; raise it with --max-states",
             max_states, (unsigned long long)x->r.ends);
}

static void describe(struct exploration *x, uint32_t max_states) {
    const struct tw_explore_result *r = &x->r;
    if (r->found & TW_EXPLORE_RACE) {
        describe_race(x);
    }
    if (r->found & TW_EXPLORE_DIFFERS) {
        describe_difference(x);
    }
    if (r->found & TW_EXPLORE_FAULT) {
        describe_fault(x, TW_FOUND_FAULT, &r->fault, &r->fault_schedule);
    }
    if (r->found & TW_EXPLORE_DEADLOCK) {
        describe_fault(x, TW_FOUND_DEADLOCK, &r->deadlock, &r->deadlock_schedule);
    }
    if (r->found & TW_EXPLORE_LIMIT) {
        describe_limit(x, max_states);
    }
}

/* ---- running ---- */

/* Counts the ops of a step, loops unrolled. Stops counting above MAX_OPS. */
static uint64_t count_ops(const struct tw_program *p) {
    uint64_t n = 0;
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        const struct tw_stream *t = &p->streams[s];
        uint64_t times[TW_MAX_VARS + 1] = {1};
        uint32_t depth = 0;
        struct tw_op op;
        for (uint32_t at = 0;
             at < t->n_words && n <= MAX_OPS && tw_op_decode(t->words, t->n_words, at, &op);
             at += op.n_words) {
            n += times[depth];
            if (op.code == TW_OP_LOOP && depth < TW_MAX_VARS) {
                uint64_t more = times[depth] * op.operand[TW_LOOP_times].max;
                times[depth + 1] = more < MAX_OPS ? more : MAX_OPS + 1;
                depth++;
            }
            depth -= op.code == TW_OP_END && depth > 0;
        }
    }
    return n;
}

static int check_size(const struct exploration *x, tw_error *err) {
    const struct tw_program *p = &x->text->program;
    return count_ops(p) <= MAX_OPS
               ? 0
               : tw_fail(err, TW_E_NOMEM,
                         "%s:%u: program %s is too large to be run in every order: a step has more "
                         "than %u ops",
                         x->path, x->text->line, p->name, MAX_OPS);
}

/* Calls the explorer again with more memory while it asks for more, which it does twice at most. */
static int run(struct exploration *x, uint32_t max_states, uint64_t limit, tw_error *err) {
    const struct tw_program *p = &x->text->program;
    struct tw_machine_config config = synthetic_memory_machine(&x->memory);
    const struct tw_explore_options o = {.max_states = max_states};
    struct tw_arena arena = {NULL, 0, 0};
    struct tw_fault fault = {0};
    int code;
    while ((code = tw_explore(&config, &arena, &o, &x->r, &fault)) == TW_E_NOMEM) {
        size_t bytes = arena.used;
        free(x->arena);
        x->arena = bytes <= limit ? malloc(bytes) : NULL;
        if (!x->arena) {
            return tw_fail(err, TW_E_NOMEM,
                           "%s:%u: program %s is too large to be run in every order: that takes "
                           "%zu bytes, the limit is %llu",
                           x->path, x->text->line, p->name, bytes, (unsigned long long)limit);
        }
        arena = (struct tw_arena){x->arena, bytes, 0};
    }
    return code ? tw_fail(err, code, "%s:%u: program %s: %s (object %u: have %llu, need %llu)",
                          x->path, x->text->line, p->name, fault.what ? fault.what : "fault",
                          fault.object, (unsigned long long)fault.have,
                          (unsigned long long)fault.need)
                : 0;
}

static void report(struct explore_job *j, const struct exploration *x) {
    struct tw_schedules_info info = {.size = sizeof info,
                                     .line = x->text->line,
                                     .program = x->text->program.name,
                                     .input = x->input,
                                     .found = x->r.found,
                                     .states = x->r.states,
                                     .ends = x->r.ends,
                                     .n_findings = x->n_findings,
                                     .findings = x->finding};
    bool limited = x->r.found == TW_EXPLORE_LIMIT;
    char *line = limited ? j->limited : j->first;
    if (x->r.found && !line[0]) {
        snprintf(line, limited ? sizeof j->limited : sizeof j->first, "%s:%u: program %.60s: %s",
                 x->path, info.line, info.program, x->finding[0].what);
    }
    j->n_limited += limited;
    j->n_found += x->r.found && !limited;
    if (j->each) {
        j->each(j->ctx, &info);
    }
}

static void finish(struct exploration *x) {
    for (uint32_t i = 0; i < x->n_findings; i++) {
        free(x->schedule[i][0]);
        free(x->schedule[i][1]);
    }
    free(x->arena);
    synthetic_memory_finish(&x->memory);
}

/* Returns whether the program may be run with 0 rows: LAST_ROW needs at least one. */
static bool allows_zero_rows(const struct tw_program *p) {
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        const struct tw_stream *t = &p->streams[s];
        struct tw_op op;
        for (uint32_t at = 0; at < t->n_words && tw_op_decode(t->words, t->n_words, at, &op);
             at += op.n_words) {
            if (op.code == TW_OP_LAST_ROW && tw_op_rows(&op)->id != TW_NONE) {
                return false;
            }
        }
    }
    return true;
}

/* Lists the input values to explore: those with which loops over a trip run as often as they can,
 * once, and not at all. */
static uint32_t list_inputs(const struct tw_program *p, uint32_t input[3]) {
    uint32_t n = 0;
    input[n++] = p->rows;
    if (p->n_trips && p->rows > 1) {
        input[n++] = 1;
    }
    if (p->n_trips && allows_zero_rows(p)) {
        input[n++] = 0;
    }
    return n;
}

/* Explores the program with one input value after another until one has a finding, and reports that
 * exploration, or the last one if none has. */
static int explore_inputs(struct explore_job *j, const struct tw_program_text *text,
                          tw_error *err) {
    uint32_t input[3], n = list_inputs(&text->program, input);
    uint64_t states = 0, ends = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct exploration x = {.path = j->path, .text = text, .input = input[i]};
        int code = check_size(&x, err);
        /* half of the limit is for the device memory; the explorer's own memory has all of it */
        code = code ? code
                    : synthetic_memory_init(&x.memory, &text->program, x.input, j->limit / 2, err);
        code = code ? code : run(&x, j->max_states, j->limit, err);
        states = x.r.states += states;
        ends = x.r.ends += ends;
        bool last = code || x.r.found || i + 1 == n;
        if (!code && last) {
            describe(&x, j->max_states);
            report(j, &x);
        }
        finish(&x);
        if (last) {
            return code;
        }
    }
    return 0;
}

static int explore_one(void *ctx, const struct tw_program_text *text, tw_error *err) {
    struct explore_job *j = ctx;
    char where[256];
    int code = tw_verify_program(&text->program, NULL, err);
    if (code) {
        snprintf(where, sizeof where, "%.200s:%u", j->path, text->line);
        tw_error_prefix(err, where);
        return code;
    }
    return explore_inputs(j, text, err);
}

int tw_program_file_explore(const char *path, uint32_t max_states, uint64_t limit_bytes,
                            void (*each)(void *ctx, const struct tw_schedules_info *info),
                            void *ctx, tw_error *err) {
    struct explore_job j = {.path = path,
                            .max_states = max_states ? max_states : 65536,
                            .limit = limit_bytes ? limit_bytes : LIMIT_BYTES,
                            .each = each,
                            .ctx = ctx};
    int code = TW_NEED(err, path);
    code = code ? code : tw_program_file_each(path, explore_one, &j, err);
    if (!code && j.n_found) {
        return tw_fail(err, TW_E_VERIFY, "%s", j.first);
    }
    return !code && j.n_limited ? tw_fail(err, TW_E_NOMEM, "%s", j.limited) : code;
}
