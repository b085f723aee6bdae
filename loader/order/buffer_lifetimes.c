/* SPDX-License-Identifier: Apache-2.0
 *
 * Lifetimes of buffers (loader/order/buffer_lifetimes.h), by two walks over all ops: a
 * multicast names every buffer of the set, the other ops those of their own site.
 */
#include "loader/order/buffer_lifetimes.h"

#include "tilewright/op_schema.h"

static void touch(const struct tw_program *p, struct tw_life *lifetimes, uint64_t buffer,
                  uint32_t section) {
    if (buffer >= p->n_buffers) {
        return;
    }
    struct tw_life *l = &lifetimes[buffer];
    l->last = l->first == TW_NONE || section > l->last ? section : l->last;
    l->first = section < l->first ? section : l->first;
}

/* Calls touch() for each buffer that an op names; or (sets) for the first buffer of each set that a
 * multicast writes. */
static void walk(const struct tw_program *p, struct tw_life *lifetimes, bool sets) {
    struct tw_op op;
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        const struct tw_stream *stream = &p->streams[s];
        for (uint32_t at = 0; tw_op_decode(stream->words, stream->n_words, at, &op);
             at += op.n_words) {
            uint32_t section = op.stage < p->n_stages ? p->stages[op.stage].section : TW_NONE;
            if (section >= p->n_sections || (sets && op.code != TW_OP_MCAST)) {
                continue;
            }
            for (uint32_t i = 0; i < op.n_operands; i++) {
                const struct tw_operand *o = &op.operand[i];
                if (!sets && tw_letter_in("RWMDF", o->kind)) {
                    touch(p, lifetimes, o->id, section);
                } else if (sets && o->kind == 'D' && o->id < p->n_buffers) {
                    touch(p, lifetimes, p->buffers[o->id].sibling_base, section);
                }
            }
        }
    }
}

void tw_buffer_lifetimes(const struct tw_program *p, struct tw_life *lifetimes) {
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        lifetimes[i] = (struct tw_life){TW_NONE, TW_NONE};
    }
    walk(p, lifetimes, true);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        uint32_t set = p->buffers[i].sibling_base;
        if (set < i) { /* else it is the first one, or none */
            lifetimes[i] = lifetimes[set];
        }
        if (p->n_sections && tw_buffer_pinned(p, &p->buffers[i])) {
            lifetimes[i] = (struct tw_life){0, p->n_sections - 1};
        }
    }
    walk(p, lifetimes, false);
}
