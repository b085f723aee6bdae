/* SPDX-License-Identifier: Apache-2.0
 *
 * The certificate's checker: follows the turns, once through the text and twice through each loop
 * body. Two iterations are enough: state is compared where the body ends, and everything that
 * depends on a loop variable is affine in it, so two points fix it.
 */
#include "loader/order/check_internal.h"

#include "loader/base/assert.h"
#include "loader/base/grow.h"

#include <stdio.h>
#include <stdlib.h>

/* Max. engines. The checker's tables have an item for each engine, even one without ops, so a small
 * file could otherwise make them large. */
#define MAX_ENGINES (TW_ENGINE_COUNT * 4096u)

static const char *rule_name(enum tw_order_rule rule) {
    switch (rule) {
#define TW_X(number, name, text) \
    case TW_ORDER_##name:        \
        return #name;
        TW_ORDER_RULES(TW_X)
#undef TW_X
    }
    return "?";
}

void tw_ck_error(struct tw_checker *c, enum tw_order_rule rule, const char *format, ...) {
    char text[300], where[128] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (c->stream < c->n_streams && c->streams) {
        const struct tw_stream *s = &c->p->streams[c->stream];
        struct tw_op_info info = tw_op_info(c->op.code);
        uint32_t origin = c->op.stage < c->p->n_stages ? c->p->stages[c->op.stage].origin : 0;
        snprintf(where, sizeof where, " site %u %s op %u (%s, %.40s)", s->site,
                 tw_engine_name(s->engine), c->streams[c->stream].at, info.name ? info.name : "end",
                 tw_program_string(c->p, origin));
    }
    c->report->failed_rule = (int)rule;
    tw_error_set(c->err, TW_E_VERIFY, "rule %d %s: %.60s%s: %s", (int)rule, rule_name(rule),
                 c->p->name, where, text);
}

int tw_ck_grow(struct tw_checker *c, void *items, size_t *cap, size_t n, size_t item_bytes) {
    return tw_grow(items, cap, n + 1, item_bytes)
               ? 0
               : tw_fail(c->err, TW_E_NOMEM, "out of memory to check %s: %zu items of %zu bytes",
                         c->p->name, n + 1, item_bytes);
}

/* ---- streams ---- */

/* Decodes the stream's next op; 0 words at its end. */
static void peek(struct tw_checker *c, uint32_t stream) {
    TW_ASSERT(stream < c->n_streams);
    const struct tw_stream *s = &c->p->streams[stream];
    c->stream = stream;
    c->op.code = 0;
    c->op.stage = TW_NONE;
    if (c->streams[stream].words_at < s->n_words) {
        bool decodes = tw_op_decode(s->words, s->n_words, c->streams[stream].words_at, &c->op);
        TW_ASSERT(decodes); /* the verifier has decoded it */
    }
}

/* Returns true for ops that access data or FIFOs, or raise the flag of a multicast: all of a
 * section's must be over before the next one begins. The rendezvous itself may continue while other
 * engines are already released. */
static bool is_data(uint32_t code) {
    return code != TW_OP_SEM_INC && code != TW_OP_SEM_WAIT && code != TW_OP_LOOP &&
           code != TW_OP_END;
}

static void step_over(struct tw_checker *c) {
    struct tw_ck_stream *s = &c->streams[c->stream];
    s->words_at += c->op.n_words;
    s->at++;
    TW_ASSERT(s->words_at <= c->p->streams[c->stream].n_words && s->at <= s->n_ops);
    c->executed++;
    if (is_data(c->op.code)) {
        s->last_data = (int32_t)s->at + c->offset[c->stream];
    }
}

/* Returns the number of a stream's section end: bodies that were repeated in later sections have
 * not moved it. */
static int32_t end_number(const struct tw_checker *c, uint32_t t,
                          const struct tw_ck_section_end *e) {
    const struct tw_ck_stream *s = &c->streams[t];
    bool left = s->section != TW_NONE && s->section > e->section;
    return e->end + (left ? e->left : c->offset[t]);
}

static void leave_sections(struct tw_checker *c, uint32_t t, uint32_t section) {
    uint32_t from = c->streams[t].section == TW_NONE ? 0 : c->streams[t].section;
    for (size_t i = c->ends_first[t]; i < c->ends_first[t + 1]; i++) {
        struct tw_ck_section_end *e = &c->section_ends[i];
        e->left = e->section >= from && e->section < section ? c->offset[t] : e->left;
    }
}

/* Returns the demand that everything up to a section is over. Streams enter sections in nearly the
 * same order, so it is made once for all of them. */
static const struct tw_ck_demand *ends_demand(struct tw_checker *c, uint32_t section) {
    if (c->ends_section == section) {
        return &c->ends_demand;
    }
    uint32_t n = 0;
    for (uint32_t t = 0; t < c->n_streams; t++) {
        size_t from = c->ends_first[t], to = c->ends_first[t + 1];
        while (from < to) { /* the first one of a later section */
            size_t middle = from + (to - from) / 2;
            if (c->section_ends[middle].section > section) {
                to = middle;
            } else {
                from = middle + 1;
            }
        }
        if (c->slot[t] != TW_NONE) {
            c->ends_over[n++] =
                from > c->ends_first[t] ? end_number(c, t, &c->section_ends[from - 1]) : INT32_MIN;
        }
    }
    c->ends_section = section;
    c->ends_demand = (struct tw_ck_demand){tw_ck_demand_id(c), n, NULL, c->ends_over};
    return &c->ends_demand;
}

/* Rule 23: a section begins where every engine is known to have left the ones before. */
static int enter_section(struct tw_checker *c) {
    struct tw_ck_stream *s = &c->streams[c->stream];
    TW_ASSERT(c->op.stage < c->p->n_stages); /* count_ops has looked at every op */
    uint32_t section = c->p->stages[c->op.stage].section;
    TW_ASSERT(section < c->p->n_sections);
    /* a later iteration would enter it unchecked */
    if (c->depth && section != c->frames[0].section) {
        return tw_ck_fail(c, TW_ORDER_section_order, "an op of section %u in a loop of section %u",
                          section, c->frames[0].section);
    }
    if (section == s->section) {
        return 0;
    }
    tw_ck_count(c, TW_ORDER_section_order);
    if (s->section != TW_NONE && section < s->section) {
        return tw_ck_fail(c, TW_ORDER_section_order, "an op of section %u after section %u",
                          section, s->section);
    }
    leave_sections(c, c->stream, section);
    s->section = section;
    if (section == 0) {
        return 0;
    }
    int rc = tw_ck_all_known(c, c->stream, ends_demand(c, section - 1), "its section begins",
                             TW_ORDER_section_order);
    if (rc == 0) {
        tw_ck_memory_section(c, section);
    }
    return rc;
}

static int execute(struct tw_checker *c) {
    if (c->executed % TW_VERIFY_INTERRUPT_OPS == 0 && tw_interrupted(c->interrupt)) {
        return tw_fail(c->err, TW_E_INTERRUPTED, "the check of %s was interrupted", c->p->name);
    }
    int rc = enter_section(c);
    if (rc == 0 && tw_op_object(&c->op) != TW_NONE) {
        rc = tw_ck_sync_op(c);
    } else if (rc == 0 && !c->again) {
        rc = tw_ck_memory_op(c);
    }
    if (rc == 0) {
        step_over(c);
    }
    return rc;
}

/* ---- turns ---- */

static int fail_word(struct tw_checker *c, const char *what) {
    c->stream = TW_NONE;
    return tw_ck_fail(c, TW_ORDER_witness, "word %u of %u: %s", c->at, c->cert->n_words, what);
}

static int turn_run(struct tw_checker *c, uint32_t stream) {
    if (stream >= c->n_streams || c->at + 1 >= c->cert->n_words) {
        return fail_word(c, "RUN names no stream, or has no length");
    }
    uint32_t n = c->cert->words[c->at + 1];
    if (c->frame_of[stream] != c->depth) {
        return fail_word(c, "RUN of a stream that is not in the open loop");
    }
    for (uint32_t d = 0; d < c->depth; d++) {
        TW_ASSERT(c->streams[stream].loop_var[d] < TW_MAX_VARS);
        c->vars[c->streams[stream].loop_var[d]] = c->frames[d].pass;
    }
    for (uint32_t i = 0; i < n; i++) {
        peek(c, stream);
        if (c->op.code == 0 || c->op.code == TW_OP_LOOP || c->op.code == TW_OP_END) {
            return fail_word(c, "RUN goes past a LOOP, an END or the end of the stream");
        }
        int rc = execute(c);
        if (rc) {
            return rc;
        }
    }
    c->at += 2;
    return 0;
}

/* Returns true if the loop at which the stream is contains semaphore ops. Visits each op once for
 * each loop around it. */
static bool body_has_flags(struct tw_checker *c, uint32_t stream) {
    const struct tw_stream *s = &c->p->streams[stream];
    uint32_t at = c->streams[stream].words_at, depth = 0;
    do {
        uint32_t code = s->words[at] & 0xFFFFu;
        if (code == TW_OP_SEM_INC || code == TW_OP_SEM_WAIT || code == TW_OP_MCAST_SET) {
            return true;
        }
        depth += code == TW_OP_LOOP ? 1u : 0u;
        depth -= code == TW_OP_END ? 1u : 0u;
        TW_ASSERT(s->words[at] >> 16 > 0);
        at += s->words[at] >> 16;
        TW_ASSERT(at <= s->n_words);
    } while (depth);
    return false;
}

/* Lets a stream enter the loop of frame f. The first stream fills in the frame; the others' loops
 * must agree with it. */
static int join_loop(struct tw_checker *c, struct tw_ck_frame *f, uint32_t stream, bool first) {
    if (stream >= c->n_streams || c->frame_of[stream] != c->depth) {
        return fail_word(c, "a stream enters a loop that it is not at");
    }
    peek(c, stream);
    struct tw_ck_stream *s = &c->streams[stream];
    if (c->op.code != TW_OP_LOOP) {
        return fail_word(c, "LOOP of a stream that is not at a loop");
    }
    const struct tw_operand *count = &c->op.operand[TW_LOOP_times];
    bool dynamic = count->id != TW_NONE;
    uint32_t section = c->p->stages[c->op.stage].section;
    if (first) {
        f->section = section;
        f->dynamic = dynamic;
        f->count = count->max;
        f->trip = count->id;
    } else if (dynamic != f->dynamic || count->id != f->trip || count->max != f->count) {
        return tw_ck_fail(c, TW_ORDER_witness,
                          "loops of another trip or count (%u, not %u) are entered together",
                          count->max, f->count);
    } else if (section != f->section) {
        return tw_ck_fail(c, TW_ORDER_section_order,
                          "a loop of section %u is entered with one of section %u", section,
                          f->section);
    }
    int rc = enter_section(c);
    if (rc) {
        return rc;
    }
    f->flags = body_has_flags(c, stream) || f->flags;
    s->loop_var[c->depth] = c->op.operand[TW_LOOP_var].id;
    s->loop_count[c->depth] = count->max;
    step_over(c);
    s->open_from[c->depth] = s->at;
    s->loop_words[c->depth] = s->words_at;
    TW_ASSERT(c->n_members < c->n_streams * TW_CK_MAX_DEPTH);
    c->members[c->n_members++] = stream;
    return 0;
}

static uint32_t streams_with_ops(const struct tw_checker *c) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_streams; i++) {
        n += c->streams[i].n_ops > 0;
    }
    return n;
}

static int turn_loop(struct tw_checker *c, uint32_t n) {
    if (c->depth == TW_CK_MAX_DEPTH || n == 0 || n > c->n_streams ||
        n > c->cert->n_words - c->at - 1) {
        return fail_word(c, "LOOP of no streams, or too deep");
    }
    struct tw_ck_frame *f = &c->frames[c->depth];
    memset(f, 0, sizeof *f);
    f->first = c->n_members;
    for (uint32_t i = 0; i < n; i++) {
        int rc = join_loop(c, f, c->cert->words[c->at + 1 + i], i == 0);
        if (rc) {
            return rc;
        }
        c->frame_of[c->cert->words[c->at + 1 + i]] = (uint8_t)(c->depth + 1);
        f->n++;
    }
    if (f->flags && f->dynamic) {
        return tw_ck_fail(c, TW_ORDER_closed_loop, "flags in a loop over a trip");
    }
    TW_ASSERT(f->n == n && f->first + n == c->n_members);
    f->fifo_log = c->fifo_log.n;
    f->word_log = c->word_log.n;
    f->flag_log = c->flag_log.n;
    f->pending = c->n_pending;
    f->waits = c->n_waits;
    c->at += 1 + n;
    f->body = c->at;
    c->depth++;
    return tw_ck_sync_enter(c, f);
}

static int at_end(struct tw_checker *c, const struct tw_ck_frame *f) {
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t stream = c->members[f->first + i];
        if (c->frame_of[stream] != c->depth) {
            return fail_word(c, "END while a stream is in an inner loop");
        }
        peek(c, stream);
        if (c->op.code != TW_OP_END) {
            return tw_ck_fail(c, TW_ORDER_witness, "the loop is left before its end");
        }
    }
    return 0;
}

/* Begins the next iteration. That of a closed loop, or of one without flags, is the last that is
 * followed. */
static int repeat_body(struct tw_checker *c, struct tw_ck_frame *f) {
    memset(c->back, 0, c->n_streams * sizeof *c->back);
    for (uint32_t i = 0; i < f->n; i++) {
        struct tw_ck_stream *s = &c->streams[c->members[f->first + i]];
        TW_ASSERT(s->at >= s->open_from[c->depth - 1]);
        c->back[c->members[f->first + i]] = (int32_t)(s->at - s->open_from[c->depth - 1]);
        s->at = s->open_from[c->depth - 1];
        s->words_at = s->loop_words[c->depth - 1];
    }
    f->pass++;
    c->at = f->body;
    if (!f->flags) {
        return tw_ck_sync_again(c, f);
    }
    tw_ck_sync_repeat(c, c->back);
    if (f->closed) {
        tw_ck_memory_forget(c);
        tw_ck_words_forget(c);
    }
    return 0;
}

static int leave_loop(struct tw_checker *c, struct tw_ck_frame *f) {
    TW_ASSERT(c->depth > 0 && f == tw_ck_top(c));
    int rc = tw_ck_memory_leave(c, f);
    if (rc == 0) {
        rc = tw_ck_sync_leave(c, f);
    }
    if (rc) {
        return rc;
    }
    c->depth--;
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t stream = c->members[f->first + i];
        peek(c, stream);
        step_over(c);
        c->frame_of[stream] = (uint8_t)c->depth;
    }
    TW_ASSERT(c->n_members == f->first + f->n);
    c->n_members = f->first;
    c->at++;
    if (f->closed) {
        tw_ck_memory_forget(c);
    }
    return 0;
}

static int turn_end(struct tw_checker *c) {
    if (c->depth == 0) {
        return fail_word(c, "END outside any loop");
    }
    struct tw_ck_frame *f = tw_ck_top(c);
    int rc = at_end(c, f);
    if (rc) {
        return rc;
    }
    rc = tw_ck_sync_balanced(c, f);
    bool settled = f->pass > 0 || f->count == 1;
    if (rc == 0 && f->flags && f->pass == 0) {
        rc = tw_ck_loop_first(c, f, streams_with_ops(c));
        rc = rc ? rc : tw_ck_words_pace(c, f);
    } else if (rc == 0 && f->flags && !f->closed) {
        rc = tw_ck_loop_settle(c, f, &settled);
        settled = settled || f->pass + 1 == f->count;
    }
    return rc ? rc : settled ? leave_loop(c, f) : repeat_body(c, f);
}

static int follow(struct tw_checker *c) {
    while (c->at < c->cert->n_words) {
        uint32_t word = c->cert->words[c->at], value = word & 0x0FFFFFFFu;
        int rc;
        tw_ck_count(c, TW_ORDER_witness);
        switch (word >> 28) {
        case TW_TURN_RUN:
            rc = turn_run(c, value);
            break;
        case TW_TURN_LOOP:
            rc = turn_loop(c, value);
            break;
        case TW_TURN_END:
            rc = turn_end(c);
            break;
        default:
            rc = fail_word(c, "unknown turn");
            break;
        }
        if (rc) {
            return rc;
        }
    }
    if (c->depth) {
        return fail_word(c, "the certificate ends inside a loop");
    }
    return 0;
}

/* Checks that every stream is at its end and knows that all others are past their data, so that
 * nothing of this step is in flight in the next one. */
static int check_ends(struct tw_checker *c) {
    for (uint32_t i = 0; i < c->n_streams; i++) {
        peek(c, i);
        if (c->op.code != 0) {
            return tw_ck_fail(c, TW_ORDER_witness, "the certificate ends before the stream does");
        }
    }
    const struct tw_ck_demand *ends = ends_demand(c, c->p->n_sections - 1);
    for (uint32_t i = 0; i < c->n_streams; i++) {
        peek(c, i);
        int rc = c->streams[i].n_ops
                     ? tw_ck_all_known(c, i, ends, "the step ends", TW_ORDER_section_order)
                     : 0;
        if (rc) {
            return rc;
        }
    }
    for (uint32_t i = 0; i < c->p->n_buffers; i++) {
        if (c->fifos[i].level) {
            c->stream = TW_NONE;
            return tw_ck_fail(c, TW_ORDER_closed_loop,
                              "FIFO %u (%s) holds %u pages where the step ends", i,
                              tw_program_string(c->p, c->p->buffers[i].name), c->fifos[i].level);
        }
    }
    return 0;
}

/* The step is the body of a loop over tokens: a second one, with the epoch one higher and every
 * word as the first one left it. Its accesses are those of the first: regions do not depend on the
 * epoch, what is known where it begins is the same (check_ends), FIFOs are empty, and rule 25 has
 * covered each read by writes of the same step. So only what synchronises is followed again. */
static void next_step(struct tw_checker *c) {
    TW_ASSERT(c->depth == 0 && c->n_members == 0 && c->n_pending == 0);
    for (uint32_t i = 0; i < c->n_streams; i++) {
        struct tw_ck_stream *s = &c->streams[i];
        TW_ASSERT(s->at == s->n_ops && s->words_at == c->p->streams[i].n_words);
        TW_ASSERT(s->inner_from == TW_NONE);
        c->back[i] = (int32_t)s->at;
        s->at = s->words_at = 0;
        s->last_data = 0;
        s->section = TW_NONE;
    }
    c->at = 0;
    c->vars[0] = 1;
    c->again = true;
    c->top_section = 0;
    tw_ck_memory_forget(c);
    tw_ck_sync_repeat(c, c->back);
    tw_ck_words_forget(c);
}

/* ---- set-up ---- */

/* Adds an op to the section ends of a stream, which begin at `first`. Both sections and ends ascend
 * in the list, so the new one replaces those of its own and of later sections. */
static int add_section_end(struct tw_checker *c, size_t first, uint32_t section, uint32_t end) {
    while (c->n_section_ends > first && c->section_ends[c->n_section_ends - 1].section >= section) {
        c->n_section_ends--;
    }
    int rc = tw_ck_grow(c, &c->section_ends, &c->cap_section_ends, c->n_section_ends,
                        sizeof *c->section_ends);
    if (rc == 0) {
        c->section_ends[c->n_section_ends++] = (struct tw_ck_section_end){section, (int32_t)end, 0};
    }
    return rc;
}

/* Counts the ops of each stream and finds where each section ends in it: after the last op that
 * must have run before the next section may begin. */
static int count_ops(struct tw_checker *c) {
    for (uint32_t i = 0; i < c->n_streams; i++) {
        struct tw_ck_stream *s = &c->streams[i];
        size_t first = c->ends_first[i] = c->n_section_ends;
        s->section = s->inner_from = TW_NONE;
        for (peek(c, i); c->op.code != 0; peek(c, i)) {
            s->words_at += c->op.n_words;
            s->n_ops++;
            uint32_t section =
                c->op.stage < c->p->n_stages ? c->p->stages[c->op.stage].section : TW_NONE;
            if (section >= c->p->n_sections) {
                return tw_ck_fail(c, TW_ORDER_section_order, "its stage is in no section");
            }
            int rc = is_data(c->op.code) ? add_section_end(c, first, section, s->n_ops) : 0;
            if (rc) {
                return rc;
            }
        }
        s->words_at = 0;
    }
    for (uint32_t i = 0; i < c->n_streams; i++) {
        c->bytes_of_streams += (uint64_t)c->p->streams[i].n_words * sizeof(uint32_t);
    }
    c->ends_first[c->n_streams] = c->n_section_ends;
    return 0;
}

/* Allocates the tables of streams. */
static int init_streams(struct tw_checker *c) {
    size_t n = (size_t)c->n_streams + 1;
    c->streams = calloc(n, sizeof *c->streams);
    c->slot = calloc(n, sizeof *c->slot);
    c->stream_of = calloc(n, sizeof *c->stream_of);
    c->offset = calloc(n, sizeof *c->offset);
    c->ends_first = calloc(n, sizeof *c->ends_first);
    c->ends_over = calloc(n, sizeof *c->ends_over);
    c->loop_over = calloc(n, sizeof *c->loop_over);
    c->back = calloc(n, sizeof *c->back);
    c->members = calloc(n * TW_CK_MAX_DEPTH, sizeof *c->members);
    c->frame_of = calloc(n, sizeof *c->frame_of);
    bool ok = c->streams && c->slot && c->stream_of && c->offset && c->ends_first && c->ends_over &&
              c->loop_over && c->back && c->members && c->frame_of;
    return ok ? 0
              : tw_fail(c->err, TW_E_NOMEM, "out of memory to check the order of %s: %u engines",
                        c->p->name, c->n_streams);
}

static void finish_streams(struct tw_checker *c) {
    free(c->streams);
    free(c->slot);
    free(c->stream_of);
    free(c->offset);
    free(c->section_ends);
    free(c->ends_first);
    free(c->ends_over);
    free(c->loop_over);
    free(c->back);
    free(c->members);
    free(c->frame_of);
}

static int init(struct tw_checker *c) {
    c->n_streams = c->p->n_sites * TW_ENGINE_COUNT;
    c->stream = TW_NONE;
    if (c->n_streams > MAX_ENGINES) {
        return tw_ck_fail(c, TW_ORDER_certificate, "%u engines; the maximum is %u", c->n_streams,
                          MAX_ENGINES);
    }
    c->ends_section = TW_NONE;
    int rc = init_streams(c);
    rc = rc ? rc : count_ops(c);
    c->stream = TW_NONE; /* the following checks are not about an op */
    rc = rc ? rc : tw_ck_budget(c);
    rc = rc ? rc : tw_ck_bindings(c);
    rc = rc ? rc : tw_ck_clocks_init(c);
    rc = rc ? rc : tw_ck_sync_init(c);
    return rc ? rc : tw_ck_memory_init(c);
}

static int check(struct tw_checker *c) {
    int rc = init(c);
    for (int step = 0; step < 2 && rc == 0; step++) {
        rc = follow(c);
        rc = rc ? rc : check_ends(c);
        rc = rc || step ? rc : tw_ck_words_bounded(c);
        if (rc == 0) {
            next_step(c);
        }
    }
    tw_ck_memory_finish(c);
    tw_ck_sync_finish(c);
    tw_ck_clocks_finish(c);
    finish_streams(c);
    return rc;
}

int tw_check_order(const struct tw_program *program, const struct tw_certificate *certificate,
                   struct tw_verify_report *report, tw_error *err) {
    return tw_check_order_until(program, certificate, NULL, report, err);
}

int tw_check_order_until(const struct tw_program *program, const struct tw_certificate *certificate,
                         const struct tw_interrupt *interrupt, struct tw_verify_report *report,
                         tw_error *err) {
    struct tw_checker c = {.p = program, .cert = certificate, .interrupt = interrupt, .err = err};
    c.report = report ? report : &c.own_report;
    return check(&c);
}

int tw_check_section(const struct tw_program *section, const struct tw_certificate *certificate,
                     struct tw_verify_report *report, tw_error *err) {
    struct tw_checker c = {.p = section, .cert = certificate, .part = true, .err = err};
    c.report = report ? report : &c.own_report;
    return check(&c);
}
