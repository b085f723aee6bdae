/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict control flow, FIFO credit and semaphores. Blocking ops are tested first
 * (tw_strict_blocked) and executed only when they do not block, so executing one only records the
 * pages that it grants.
 */
#include "firmware/core/strict/strict.h"

#include "loader/base/assert.h"

static const struct tw_buffer *fifo_of(const struct tw_strict *s, uint32_t id) {
    return &s->config.program->buffers[id];
}

static bool is_fifo_op(uint32_t code) {
    return code >= TW_OP_RESERVE && code <= TW_OP_POP;
}

bool tw_strict_blocked(struct tw_strict *s, const struct strict_engine *e,
                       struct strict_block *why) {
    TW_ASSERT(e->at < e->n_words);
    uint32_t code = e->words[e->at] & 0xFFFFu;
    struct tw_op op;
    if (code != TW_OP_RESERVE && code != TW_OP_WAIT && code != TW_OP_SEM_WAIT) {
        return false;
    }
    strict_fetch(e, &op);
    why->object = tw_op_object(&op);
    if (code == TW_OP_SEM_WAIT) {
        uint32_t word = *strict_word(s, why->object, e->site);
        uint32_t need =
            (uint32_t)tw_affine_value(&op.operand[TW_SEM_WAIT_threshold].offset, e->vars);
        why->have = word;
        why->need = need;
        return tw_group_has(s->config.program, s->config.program->semaphores[why->object].group,
                            e->site) &&
               (int32_t)(word - need) < 0;
    }
    const struct tw_buffer *b = fifo_of(s, why->object);
    const struct strict_buffer *f = &s->buffers[why->object];
    TW_ASSERT(f->level <= b->pages);
    why->need = op.operand[TW_RESERVE_pages].id; /* WAIT has the operands of RESERVE */
    why->have = code == TW_OP_WAIT ? f->level : b->pages - f->level;
    /* More pages than the capacity are a fault, which execution reports. */
    return why->need <= b->pages && why->have < why->need;
}

static int push(struct tw_strict *s, uint32_t id, uint32_t n, struct tw_fault *fault) {
    const struct tw_buffer *b = fifo_of(s, id);
    struct strict_buffer *f = &s->buffers[id];
    if (n > f->reserved) {
        return tw_fault_fail(fault, "FifoOverrun", id, f->reserved, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!s->page_written[f->first_flag + (f->head + f->level + i) % b->pages]) {
            return tw_fault_fail(fault, "Undefined", id, i, n);
        }
    }
    f->reserved -= n;
    f->level += n;
    TW_ASSERT(strict_fifo_sound(f, b));
    return 0;
}

/* A freed page becomes undefined, so that a later read of it is detected. */
static int pop(struct tw_strict *s, uint32_t id, uint32_t n, struct tw_fault *fault) {
    const struct tw_buffer *b = fifo_of(s, id);
    struct strict_buffer *f = &s->buffers[id];
    if (n > f->waited) {
        return tw_fault_fail(fault, "FifoUnderrun", id, f->waited, n);
    }
    TW_ASSERT(n <= f->level);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = (f->head + i) % b->pages;
        s->page_written[f->first_flag + page] = 0;
        tw_shadow_mark(s->sram_shadow[strict_class(b)], b->offset + page * b->page_bytes,
                       b->page_bytes, false);
    }
    f->waited -= n;
    f->level -= n;
    f->head = (f->head + n) % b->pages;
    TW_ASSERT(strict_fifo_sound(f, b));
    return 0;
}

static int fifo_op(struct tw_strict *s, const struct strict_engine *e, const struct tw_op *op,
                   struct tw_fault *fault) {
    uint32_t id = op->operand[TW_RESERVE_fifo].id, n = op->operand[TW_RESERVE_pages].id;
    const struct tw_buffer *b = fifo_of(s, id);
    struct strict_buffer *f = &s->buffers[id];
    bool produces = op->code == TW_OP_RESERVE || op->code == TW_OP_PUSH;
    if (b->kind != TW_BUF_FIFO || b->site != e->site ||
        (produces ? b->producer : b->consumer) != e->engine) {
        return tw_fault_fail(fault, "Role", id, e->engine, produces ? b->producer : b->consumer);
    }
    if (n > b->pages) {
        return tw_fault_fail(fault, produces ? "FifoOverrun" : "FifoUnderrun", id, b->pages, n);
    }
    TW_ASSERT(strict_fifo_sound(f, b));
    if (op->code == TW_OP_RESERVE) {
        TW_ASSERT(n <= b->pages - f->level); /* tw_strict_blocked() was false */
        f->reserved = n > f->reserved ? n : f->reserved;
    } else if (op->code == TW_OP_WAIT) {
        TW_ASSERT(n <= f->level);
        f->waited = n > f->waited ? n : f->waited;
    } else {
        return op->code == TW_OP_PUSH ? push(s, id, n, fault) : pop(s, id, n, fault);
    }
    return 0;
}

static int increment(struct tw_strict *s, uint32_t semaphore, uint32_t site, uint32_t by,
                     struct tw_fault *fault) {
    if (!tw_group_has(s->config.program, s->config.program->semaphores[semaphore].group, site)) {
        return tw_fault_fail(fault, "BadOp", semaphore, site, TW_NONE);
    }
    *strict_word(s, semaphore, site) += by;
    return 0;
}

static int sem_op(struct tw_strict *s, const struct strict_engine *e, const struct tw_op *op,
                  struct tw_fault *fault) {
    const struct tw_program *p = s->config.program;
    uint32_t id = tw_op_object(op);
    if (op->code == TW_OP_SEM_INC) {
        return increment(s, id, op->operand[TW_SEM_INC_site].id, op->operand[TW_SEM_INC_by].id,
                         fault);
    }
    if (op->code == TW_OP_SEM_WAIT) {
        return increment(s, id, e->site, 0,
                         fault); /* checks only that the site has the semaphore */
    }
    int rc = 0;
    for (uint32_t site = 0; site < p->n_sites && rc == 0; site++) {
        if (tw_group_has(p, op->operand[TW_MCAST_SET_group].id, site)) {
            rc = increment(s, id, site, 1, fault);
        }
    }
    return rc;
}

/* Skips the body of a loop with 0 iterations, to the op after its END. */
static void skip_body(struct strict_engine *e) {
    for (uint32_t depth = 1; depth > 0; e->index++) {
        uint32_t code = e->words[e->at] & 0xFFFFu;
        depth += code == TW_OP_LOOP ? 1u : 0u;
        depth -= code == TW_OP_END ? 1u : 0u;
        TW_ASSERT(e->words[e->at] >> 16 > 0);
        e->at += e->words[e->at] >> 16;
        TW_ASSERT(e->at <= e->n_words);
    }
}

static void loop_begin(const struct tw_strict *s, struct strict_engine *e, const struct tw_op *op) {
    uint32_t count = tw_bind_count(&op->operand[TW_LOOP_times], s->trips);
    e->at += op->n_words;
    e->index++;
    if (count == 0) {
        skip_body(e);
        return;
    }
    TW_ASSERT(e->depth < TW_MAX_VARS && op->operand[TW_LOOP_var].id < TW_MAX_VARS);
    struct strict_loop *loop = &e->loop[e->depth++];
    loop->var = op->operand[TW_LOOP_var].id;
    loop->count = count;
    loop->word = e->at;
    loop->index = e->index;
    e->vars[loop->var] = 0;
}

static void loop_end(struct strict_engine *e, const struct tw_op *op) {
    TW_ASSERT(e->depth > 0 && e->depth <= TW_MAX_VARS);
    struct strict_loop *loop = &e->loop[e->depth - 1];
    TW_ASSERT(loop->count > 0 && e->vars[loop->var] < loop->count && loop->word <= e->at);
    if (++e->vars[loop->var] < loop->count) {
        e->at = loop->word;
        e->index = loop->index;
        return;
    }
    e->vars[loop->var] = 0;
    e->depth--;
    e->at += op->n_words;
    e->index++;
}

int tw_strict_sync(struct tw_strict *s, struct strict_engine *e, const struct tw_op *op,
                   struct tw_fault *fault) {
    if (op->code == TW_OP_LOOP) {
        loop_begin(s, e, op);
        return 0;
    }
    if (op->code == TW_OP_END) {
        loop_end(e, op);
        return 0;
    }
    if (op->code == TW_OP_SEM_INC || op->code == TW_OP_MCAST_SET) {
        tw_strict_arrive(s, e);
    }
    int rc = is_fifo_op(op->code) ? fifo_op(s, e, op, fault) : sem_op(s, e, op, fault);
    e->at += op->n_words;
    e->index++;
    return rc;
}
