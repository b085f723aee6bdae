/* SPDX-License-Identifier: Apache-2.0
 *
 * Lifetimes of buffers (loader/order/buffer_lifetimes.h), by one walk over all ops; a multicast
 * accesses the sibling on every site of its group.
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

static void touch_siblings(const struct tw_program *p, struct tw_life *lifetimes,
                           const struct tw_op *op, uint32_t buffer, uint32_t section) {
    uint32_t group = op->operand[TW_MCAST_group].id;
    if (group >= p->n_groups || buffer >= p->n_buffers ||
        p->buffers[buffer].sibling_base == TW_NONE) {
        return;
    }
    const struct tw_group *g = &p->groups[group];
    bool sound = p->mesh_width && p->mesh_height && p->buffers[buffer].group < p->n_groups;
    for (uint32_t site = 0; site < p->n_sites && sound; site++) {
        if (tw_group_holds(p, g, site)) {
            touch(p, lifetimes, tw_buffer_sibling(p, &p->buffers[buffer], site), section);
        }
    }
}

void tw_buffer_lifetimes(const struct tw_program *p, struct tw_life *lifetimes) {
    struct tw_op op;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        bool always = p->n_sections && tw_buffer_param(p, &p->buffers[i]);
        lifetimes[i] =
            always ? (struct tw_life){0, p->n_sections - 1} : (struct tw_life){TW_NONE, TW_NONE};
    }
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        const struct tw_stream *stream = &p->streams[s];
        for (uint32_t at = 0; tw_op_decode(stream->words, stream->n_words, at, &op);
             at += op.n_words) {
            uint32_t section = op.stage < p->n_stages ? p->stages[op.stage].section : TW_NONE;
            for (uint32_t i = 0; i < op.n_operands && section < p->n_sections; i++) {
                const struct tw_operand *o = &op.operand[i];
                if (!strchr("RWMF", o->kind)) {
                    continue;
                }
                touch(p, lifetimes, o->id, section);
                if (op.code == TW_OP_MCAST && o->kind == 'W') {
                    touch_siblings(p, lifetimes, &op, o->id, section);
                }
            }
        }
    }
}
