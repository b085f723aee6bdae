/* SPDX-License-Identifier: Apache-2.0
 *
 * The strict interpreter: engines run one op at a time under a chosen scheduler, and every access
 * is checked. It is the oracle that the replay of a plan must equal bit for bit.
 */
#include "firmware/core/strict/strict.h"

#include "firmware/core/machine_arena.h"
#include "loader/base/assert.h"
#include "tilewright/range.h"

static void take_sram(struct tw_strict *s, struct tw_arena *arena) {
    const struct tw_program *p = s->config.program;
    for (uint64_t site = 0; site < (uint64_t)p->n_sites * TW_MEM_CLASSES; site++) {
        uint64_t end = 0;
        for (uint32_t i = 0; i < p->n_buffers; i++) {
            const struct tw_buffer *b = &p->buffers[i];
            uint64_t e = b->offset + b->pages * b->page_bytes;
            end = strict_class(b) == site && e > end ? e : end;
        }
        uint8_t *bytes = tw_arena_take(arena, end, 64);
        uint64_t *shadow = tw_arena_zeroed(arena, tw_shadow_words(end), 8, 8);
        uint64_t *in_flight = tw_arena_zeroed(arena, tw_shadow_words(end), 8, 8);
        if (s->sram) {
            s->in_flight[site] = in_flight;
            s->sram[site] = bytes;
            s->sram_shadow[site] = shadow;
            s->sram_bytes[site] = end;
        }
    }
}

/* State and Output without an initial value are undefined until this machine writes them. Inputs
 * belong to the host. */
static void take_dram_shadow(struct tw_strict *s, struct tw_arena *arena) {
    const struct tw_program *p = s->config.program;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct tw_tensor *t = &p->tensors[i];
        bool tracked =
            t->init == TW_INIT_NONE && (t->role == TW_ROLE_STATE || t->role == TW_ROLE_OUTPUT);
        uint64_t *bits = NULL;
        if (tracked) {
            uint64_t n;
            n = tw_mul_u64(t->bind_count, tw_shadow_words(t->bytes), &n) ? n : UINT64_MAX;
            bits = tw_arena_zeroed(arena, n, 8, 8);
        }
        if (s->dram_shadow) {
            s->dram_shadow[i] = bits;
        }
    }
}

static uint64_t count_pages(const struct tw_program *p) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        n += p->buffers[i].kind == TW_BUF_FIFO ? p->buffers[i].pages : 0;
    }
    return n;
}

static void take_tables(struct tw_strict *s, uint32_t n_page_uses, struct tw_arena *arena) {
    const struct tw_program *p = s->config.program;
    uint64_t sites = p->n_sites;
    s->n_page_flags = count_pages(p);
    s->engines = tw_arena_zeroed(arena, sites * TW_ENGINE_COUNT, sizeof *s->engines, 8);
    s->buffers = tw_arena_zeroed(arena, p->n_buffers, sizeof *s->buffers, 8);
    s->page_written = tw_arena_zeroed(arena, s->n_page_flags, 1, 8);
    s->sram = tw_arena_zeroed(arena, sites * TW_MEM_CLASSES, sizeof *s->sram, 8);
    s->sram_shadow = tw_arena_zeroed(arena, sites * TW_MEM_CLASSES, sizeof *s->sram_shadow, 8);
    s->in_flight = tw_arena_zeroed(arena, sites * TW_MEM_CLASSES, sizeof *s->in_flight, 8);
    s->outboxes = tw_arena_zeroed(arena, sites, sizeof *s->outboxes, 8);
    s->sram_bytes = tw_arena_zeroed(arena, sites * TW_MEM_CLASSES, sizeof *s->sram_bytes, 8);
    s->dram_shadow = tw_arena_zeroed(arena, p->n_tensors, sizeof *s->dram_shadow, 8);
    s->words = tw_arena_zeroed(arena, p->n_semaphores * sites, sizeof *s->words, 8);
    s->trips = tw_arena_zeroed(arena, p->n_trips, sizeof *s->trips, 8);
    s->trip_min = tw_arena_zeroed(arena, p->n_trips, sizeof *s->trip_min, 8);
    s->inputs = tw_bind_take_inputs(p, arena);
    tw_pages_take(p, n_page_uses, arena, &s->pages);
    s->ready = tw_arena_zeroed(arena, sites * TW_ENGINE_COUNT, sizeof *s->ready, 8);
    s->slot = tw_arena_zeroed(arena, sites * TW_ENGINE_COUNT, sizeof *s->slot, 8);
    take_sram(s, arena);
    take_dram_shadow(s, arena);
}

/* Adds what first_epoch steps would have added to the semaphores that this op increments. */
static int advance_words(void *ctx, const struct tw_text_place *at, const struct tw_op *op,
                         struct tw_fault *fault) {
    struct tw_strict *s = ctx;
    if (op->code != TW_OP_SEM_INC && op->code != TW_OP_MCAST_SET) {
        return 0;
    }
    bool one = op->code == TW_OP_SEM_INC;
    uint32_t id = tw_op_object(op);
    if (at->dynamic > 0) { /* how much a step adds depends on its trips */
        return tw_fault_fail(fault, "EpochStep", id, s->config.first_epoch, 0);
    }
    uint32_t by = (uint32_t)at->times * (one ? op->operand[TW_SEM_INC_by].id : 1);
    for (uint32_t site = 0; site < s->config.program->n_sites; site++) {
        bool hit = one ? site == op->operand[TW_SEM_INC_site].id
                       : tw_group_has(s->config.program, op->operand[TW_MCAST_SET_group].id, site);
        *strict_word(s, id, site) += hit ? s->config.first_epoch * by : 0;
    }
    return 0;
}

static void set_up(struct tw_strict *s) {
    const struct tw_program *p = s->config.program;
    uint32_t flag = 0;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        s->buffers[i].first_flag = flag;
        flag += p->buffers[i].kind == TW_BUF_FIFO ? p->buffers[i].pages : 0;
    }
    TW_ASSERT(flag == s->n_page_flags);
    for (uint32_t i = 0; i < p->n_semaphores; i++) {
        for (uint32_t site = 0; site < p->n_sites; site++) {
            *strict_word(s, i, site) = p->semaphores[i].initial;
        }
    }
    for (uint32_t i = 0; i < strict_n_engines(s); i++) {
        struct strict_engine *e = &s->engines[i];
        e->stream = i;
        e->site = tw_stream_site(i);
        e->engine = tw_stream_engine(i);
        e->words = p->streams[i].words;
        e->n_words = p->streams[i].n_words;
    }
}

int tw_strict_init(const struct tw_machine_config *config, struct tw_arena *arena,
                   struct tw_strict **out, struct tw_fault *fault) {
    struct tw_fault ignored = {0};
    fault = fault ? fault : &ignored;
    uint32_t n_page_uses;
    int rc = tw_pages_count(config, &n_page_uses, fault);
    if (rc != 0) {
        return rc;
    }
    struct tw_strict counting;
    memset(&counting, 0, sizeof counting);
    struct tw_strict *s = tw_arena_zeroed(arena, 1, sizeof *s, 64);
    bool kept = s != NULL;
    s = kept ? s : &counting;
    s->config = *config;
    take_tables(s, n_page_uses, arena);
    if (!kept || arena->used > arena->size) {
        return tw_fault_nomem(fault, arena->size, arena->used);
    }
    TW_ASSERT(s->engines && s->buffers && s->words && s->ready && s->slot);
    set_up(s);
    rc = tw_bind_trip_minima(config, s->trip_min, fault);
    rc = rc ? rc : tw_pages_find(config, &s->pages, fault);
    if (rc != 0) {
        return rc;
    }
    *out = s;
    s->epoch = config->first_epoch;
    return s->epoch ? tw_text_walk(config, advance_words, s, fault) : 0;
}

static void update_watch(struct tw_watch *w, const struct tw_fault *op) {
    atomic_store_explicit(&w->engine, op->engine, memory_order_relaxed);
    atomic_store_explicit(&w->op_index, op->op_index, memory_order_relaxed);
    atomic_store_explicit(&w->opcode, op->opcode, memory_order_relaxed);
    atomic_store_explicit(&w->site, op->site, memory_order_relaxed);
    atomic_fetch_add_explicit(&w->progress, 1, memory_order_relaxed);
}

int tw_strict_execute(struct tw_strict *s, struct strict_engine *e, struct tw_op *op,
                      struct tw_fault *fault) {
    TW_ASSERT(e->at < e->n_words && e->stream < strict_n_engines(s));
    strict_fetch(e, op);
    fault->site = e->site;
    fault->engine = e->engine;
    fault->op_index = e->index;
    fault->opcode = op->code;
    fault->stage = op->stage;
    if (s->cut || tw_cancelled(s->config.cancel)) {
        return tw_fault_cancelled(fault);
    }
    s->ops++;
    e->ops++;
    if (s->config.watch) {
        update_watch(s->config.watch, fault);
    }
    if (!tw_op_is_data(op->code)) {
        return tw_strict_sync(s, e, op, fault);
    }
    int rc = tw_strict_data(s, e, op, fault);
    TW_ASSERT(op->n_words > 0 && e->at + op->n_words <= e->n_words);
    e->at += op->n_words;
    e->index++;
    return rc;
}

static int report_deadlock(struct tw_strict *s, struct tw_fault *fault) {
    struct strict_block why = {TW_NONE, 0, 0};
    struct tw_op op;
    for (uint32_t i = 0; i < strict_n_engines(s); i++) {
        const struct strict_engine *e = &s->engines[i];
        if (e->at < e->n_words && tw_strict_blocked(s, e, &why)) {
            strict_fetch(e, &op);
            fault->site = e->site;
            fault->engine = e->engine;
            fault->op_index = e->index;
            fault->opcode = op.code;
            fault->stage = op.stage;
            return tw_fault_fail(fault, "Deadlock", why.object, why.have, why.need);
        }
    }
    return 0;
}

static int check_drained(const struct tw_strict *s, struct tw_fault *fault) {
    for (uint32_t i = 0; i < s->config.program->n_buffers; i++) {
        if (s->buffers[i].level != 0) {
            fault->site = s->config.program->buffers[i].site;
            fault->engine = s->config.program->buffers[i].producer;
            fault->op_index = fault->stage = TW_NONE;
            fault->opcode = 0;
            return tw_fault_fail(fault, "FifoOverrun", i, s->buffers[i].level, 0);
        }
    }
    return 0;
}

/* Copies the window of an instance of a Param to its page. */
static void fill_page(struct tw_strict *s, const struct tw_buffer *b, const struct tw_tensor *t,
                      uint32_t page) {
    const uint8_t *from = tw_bind_tensor(&s->config, b->tensor, page);
    struct tw_window w = tw_buffer_window(t, b);
    uint64_t at = b->offset + page * b->page_bytes, bytes = tw_window_bytes(&w);
    TW_ASSERT(tw_range_ok(at, bytes, s->sram_bytes[strict_class(b)]));
    if (from) { /* otherwise it stays undefined, and reading it is a fault */
        tw_bind_copy_window(&w, from, s->sram[strict_class(b)] + at);
        tw_shadow_mark(s->sram_shadow[strict_class(b)], at, bytes, true);
    }
}

/* Copies the resident Params to SRAM. They may be all the weights, so that this takes as long as a
 * step. */
static void fill_params(struct tw_strict *s) {
    const struct tw_program *p = s->config.program;
    s->cut = false;
    for (uint32_t i = 0; i < p->n_buffers && !s->cut; i++) {
        s->cut = tw_cancelled(s->config.cancel);
        const struct tw_buffer *b = &p->buffers[i];
        const struct tw_tensor *t = tw_buffer_param(p, b);
        for (uint32_t k = 0; t && k < b->pages; k++) {
            fill_page(s, b, t, k);
        }
    }
}

/* All SRAM except Params and State is undefined when a step begins: each step writes what it
 * reads. */
void tw_strict_begin(struct tw_strict *s) {
    const struct tw_program *p = s->config.program;
    memset(s->outboxes, 0, p->n_sites * sizeof *s->outboxes);
    for (uint64_t site = 0; site < (uint64_t)p->n_sites * TW_MEM_CLASSES; site++) {
        size_t shadow_bytes = (size_t)tw_shadow_words(s->sram_bytes[site]) * 8;
        memset(s->sram_shadow[site], 0, shadow_bytes);
        memset(s->in_flight[site], 0, shadow_bytes);
    }
    fill_params(s);
    memset(s->page_written, 0, (size_t)s->n_page_flags);
    for (uint32_t i = 0; i < strict_n_engines(s); i++) {
        struct strict_engine *e = &s->engines[i];
        e->at = e->index = e->depth = 0;
        e->ops = e->since = e->ran_at = 0;
        memset(e->vars, 0, sizeof e->vars);
        e->vars[0] = s->epoch;
    }
    s->ops = 0;
}

/* Nothing may be on its way when a step ends: the next one would find it in its SRAM. */
static int check_arrived(const struct tw_strict *s, struct tw_fault *fault) {
    for (uint32_t site = 0; site < s->config.program->n_sites; site++) {
        const struct strict_outbox *out = &s->outboxes[site];
        if (out->n > 0) {
            fault->site = site;
            fault->engine = TW_ENGINE_STORE;
            fault->op_index = fault->stage = TW_NONE;
            fault->opcode = 0;
            return tw_fault_fail(fault, "InFlight", TW_NONE, out->n, 0);
        }
    }
    return 0;
}

int tw_strict_end(struct tw_strict *s, struct tw_fault *fault) {
    int rc = report_deadlock(s, fault);
    rc = rc != 0 ? rc : check_drained(s, fault);
    return rc != 0 ? rc : check_arrived(s, fault);
}

int tw_strict_step(struct tw_strict *s, enum tw_scheduler scheduler, uint64_t seed,
                   struct tw_fault *fault) {
    struct tw_fault ignored = {0};
    fault = fault ? fault : &ignored;
    memset(fault, 0, sizeof *fault);
    if (s->faulted) {
        return tw_fault_fail(fault, "Faulted", TW_NONE, 0, 0);
    }
    int rc = tw_bind_trips(&s->config, s->inputs, s->trip_min, s->trips, &s->pages, fault);
    if (rc != 0) {
        return rc; /* nothing has run: the step may be retried */
    }
    tw_strict_begin(s);
    rc = tw_strict_run(s, scheduler, seed, fault);
    if (rc == 0) {
        rc = tw_strict_end(s, fault);
    }
    s->faulted = rc != 0;
    s->epoch++;
    return rc;
}

void tw_strict_check_numbers(struct tw_strict *s, bool check) {
    s->check_numbers = check;
}

uint64_t tw_strict_ops(const struct tw_strict *s) {
    return s->ops;
}
