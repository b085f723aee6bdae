/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier's bookkeeping of FIFOs. Each side of a FIFO has a level (pages waited for or
 * reserved and not yet popped or pushed) and a count of pages moved. A loop body must restore the
 * level; its pages are multiplied by a constant count, or, in a loop over a trip, added to the
 * FIFO's list of moves, which must be the same, loop by loop, on both sides: so pushes equal pops
 * for every trip value.
 */
#include "loader/verify/verify_internal.h"

#include <stdio.h>

enum { PRODUCER = 0, CONSUMER = 1 };

static struct tw_vf_counter *side_of(struct tw_verifier *v, uint32_t item) {
    return &v->buffers[item / 2].side[item % 2];
}

static const char *buffer_name(const struct tw_verifier *v, uint32_t id) {
    return tw_program_string(v->program, v->program->buffers[id].name);
}

static int add_pages(struct tw_verifier *v, struct tw_vf_counter *side, uint64_t pages,
                     uint64_t times) {
    uint64_t moved;
    if (!tw_mul_u64(pages, times, &moved) || !tw_add_u64(side->count, moved, &side->count)) {
        return tw_vf_fail(v, TW_RULE_fifo_balance, "moves 2^64 pages or more");
    }
    return 0;
}

static int check_ends(struct tw_verifier *v, uint32_t id, unsigned side) {
    const struct tw_buffer *b = &v->program->buffers[id];
    tw_vf_count(v, TW_RULE_fifo_ends);
    if (b->kind != TW_BUF_FIFO) {
        return tw_vf_fail(v, TW_RULE_fifo_ends, "buffer %u (%s) is not a FIFO", id,
                          buffer_name(v, id));
    }
    unsigned engine = side == PRODUCER ? b->producer : b->consumer;
    if (engine != v->place.engine) {
        return tw_vf_fail(v, TW_RULE_fifo_ends, "FIFO %u (%s) is %s by engine %s, not %s", id,
                          buffer_name(v, id), side == PRODUCER ? "produced" : "consumed",
                          tw_engine_name(engine), tw_engine_name(v->place.engine));
    }
    return 0;
}

int tw_vf_fifo_op(struct tw_verifier *v) {
    uint32_t id = v->op.operand[TW_RESERVE_fifo].id, n = v->op.operand[TW_RESERVE_pages].id,
             code = v->op.code; /* all four FIFO ops have the operands of RESERVE */
    const struct tw_buffer *b = &v->program->buffers[id];
    unsigned side = code == TW_OP_RESERVE || code == TW_OP_PUSH ? PRODUCER : CONSUMER;
    struct tw_vf_counter *c = &v->buffers[id].side[side];
    int rc = check_ends(v, id, side);
    if (rc) {
        return rc;
    }
    tw_vf_count(v, TW_RULE_fifo_balance);
    if (n < 1 || n > b->pages) {
        return tw_vf_fail(v, TW_RULE_fifo_balance, "moves %u pages of FIFO %u (%s), which has %u",
                          n, id, buffer_name(v, id), b->pages);
    }
    rc = tw_vf_touch(v, &v->fifo_log, c, id * 2 + side);
    if (rc) {
        return rc;
    }
    if (code == TW_OP_RESERVE || code == TW_OP_WAIT) {
        c->level = n > c->level ? n : c->level;
        return 0;
    }
    if (n > c->level) {
        return tw_vf_fail(
            v, TW_RULE_fifo_balance, "moves %u pages of FIFO %u (%s), of which only %u are %s", n,
            id, buffer_name(v, id), c->level, side == PRODUCER ? "reserved" : "waited for");
    }
    c->level -= n;
    return add_pages(v, c, n, 1);
}

/* Fails for a loop over a trip whose iteration does not move the same pages as the next loop over a
 * trip of the other engine (`other`; NULL: it has none). */
static int fail_move(struct tw_verifier *v, uint32_t item, uint32_t loop, uint64_t pages,
                     const struct tw_vf_move *other) {
    char found[64] = "the other engine moves none in a loop over a trip";
    if (other) {
        snprintf(found, sizeof found, "the other engine moves %llu in loop %u",
                 (unsigned long long)other->pages, other->loop);
    }
    return tw_vf_fail(v, TW_RULE_fifo_balance,
                      "FIFO %u (%s): an iteration of loop %u %s %llu pages, but %s", item / 2,
                      buffer_name(v, item / 2), loop, item % 2 == PRODUCER ? "pushes" : "pops",
                      (unsigned long long)pages, found);
}

/* The engines of a site are walked one after the other: the first side writes the list, the second
 * is compared with it. */
static int record_move(struct tw_verifier *v, uint32_t item, uint32_t loop, uint64_t pages) {
    struct tw_vf_buffer *state = &v->buffers[item / 2];
    const struct tw_buffer *b = &v->program->buffers[item / 2];
    bool first = (item % 2 == PRODUCER) == (b->producer < b->consumer);
    if (!first) {
        uint32_t at = state->first_move;
        const struct tw_vf_move *m = at == TW_NONE ? NULL : &v->moves[at];
        if (!m || m->loop != loop || m->pages != pages) {
            return fail_move(v, item, loop, pages, m);
        }
        state->first_move = m->next;
        return 0;
    }
    int rc = tw_vf_grow(v, &v->moves, &v->cap_moves, v->n_moves, sizeof v->moves[0]);
    if (rc) {
        return rc;
    }
    uint32_t at = (uint32_t)v->n_moves++;
    struct tw_vf_move move = {loop, TW_NONE, pages};
    v->moves[at] = move;
    if (state->first_move == TW_NONE) {
        state->first_move = at;
    } else {
        v->moves[state->last_move].next = at;
    }
    state->last_move = at;
    return 0;
}

static int close_side(struct tw_verifier *v, const struct tw_vf_saved *at_start,
                      const struct tw_vf_loop *loop) {
    struct tw_vf_counter *c = side_of(v, at_start->item);
    uint64_t body = c->count - at_start->count;
    if (c->level != at_start->level) {
        return tw_vf_fail(v, TW_RULE_fifo_balance,
                          "FIFO %u (%s): %u pages are %s at the end of the loop, %u at its start",
                          at_start->item / 2, buffer_name(v, at_start->item / 2), c->level,
                          at_start->item % 2 == PRODUCER ? "reserved" : "waited for",
                          at_start->level);
    }
    c->count = at_start->count;
    c->mark = at_start->mark;
    if (body == 0) {
        return 0;
    }
    if (loop->id != TW_NONE) {
        return record_move(v, at_start->item, loop->id, body);
    }
    int rc = tw_vf_touch(v, &v->fifo_log, c, at_start->item);
    return rc ? rc : add_pages(v, c, body, loop->max);
}

/* Called after the loop was removed from the stack. Moves entries down to the enclosing loop's part
 * of the log: at most one is written for each one read, and never past it. */
int tw_vf_fifo_end_loop(struct tw_verifier *v, const struct tw_vf_loop *loop) {
    size_t top = v->fifo_log.n;
    int rc = 0;
    v->fifo_log.n = loop->fifo_base;
    for (size_t i = loop->fifo_base; i < top && !rc; i++) {
        struct tw_vf_saved at_start = v->fifo_log.entry[i];
        rc = close_side(v, &at_start, loop);
    }
    return rc;
}

int tw_vf_fifo_finish(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        struct tw_vf_buffer *s = &v->buffers[i];
        if (p->buffers[i].kind != TW_BUF_FIFO) {
            continue;
        }
        tw_vf_at_object(v, "buffer", i, p->buffers[i].name);
        tw_vf_count(v, TW_RULE_fifo_balance);
        if (s->side[PRODUCER].count != s->side[CONSUMER].count) {
            return tw_vf_fail(v, TW_RULE_fifo_balance,
                              "%llu pages are pushed and %llu popped in a step",
                              (unsigned long long)s->side[PRODUCER].count,
                              (unsigned long long)s->side[CONSUMER].count);
        }
        if (s->side[PRODUCER].level || s->side[CONSUMER].level) {
            return tw_vf_fail(v, TW_RULE_fifo_balance,
                              "a step ends with %u pages reserved and %u waited for",
                              s->side[PRODUCER].level, s->side[CONSUMER].level);
        }
        if (s->first_move != TW_NONE) {
            return tw_vf_fail(v, TW_RULE_fifo_balance,
                              "an iteration of loop %u moves %llu pages on one side only",
                              v->moves[s->first_move].loop,
                              (unsigned long long)v->moves[s->first_move].pages);
        }
    }
    return 0;
}
