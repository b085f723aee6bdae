/* SPDX-License-Identifier: Apache-2.0
 *
 * Certification by greedy execution. The engines that enter a loop together are derived from the
 * loop's body: engines whose loops have the same count, engines at the other ends of its FIFOs,
 * those that raise or wait for its flags in a loop of their own (certify_partners.c), and all
 * engines if the body is a rendezvous.
 */
#include "compiler/spatial/certify_internal.h"

#include "tilewright/op_schema.h"

#include <string.h>

static bool peek(struct certifier *c, uint32_t stream) {
    const struct tw_stream *s = &c->p->streams[stream];
    c->op.code = 0;
    return tw_op_decode(s->words, s->n_words, c->cursors[stream].words_at, &c->op);
}

static void emit(struct certifier *c, uint32_t word) {
    *TW_VEC_PUSH(c->mem, c->turns) = word;
}

static void flush(struct certifier *c, uint32_t stream) {
    if (c->cursors[stream].run) {
        emit(c, TW_TURN_WORD(TW_TURN_RUN, stream));
        emit(c, c->cursors[stream].run);
        c->cursors[stream].run = 0;
    }
}

/* ---- who may run ---- */

static void set_ready(struct certifier *c, uint32_t stream) {
    struct ready *r = &c->ready[c->cursors[stream].depth];
    r->bits[stream / 64] |= UINT64_C(1) << stream % 64;
    r->any[stream / 4096] |= UINT64_C(1) << stream / 64 % 64;
}

static void clear_ready(struct ready *r, uint32_t stream) {
    r->bits[stream / 64] &= ~(UINT64_C(1) << stream % 64);
    if (r->bits[stream / 64] == 0) {
        r->any[stream / 4096] &= ~(UINT64_C(1) << stream / 64 % 64);
    }
}

/* Returns the first ready stream from `from` on, or TW_NONE. */
static uint32_t next_ready(const struct certifier *c, const struct ready *r, uint32_t from) {
    if (from >= c->n_streams) {
        return TW_NONE;
    }
    uint64_t bits = r->bits[from / 64] >> from % 64;
    if (bits) {
        return from + (uint32_t)__builtin_ctzll(bits);
    }
    for (uint32_t k = from / 64 + 1; k <= c->n_streams / 64;) {
        uint64_t any = r->any[k / 64] >> k % 64;
        if (any) {
            k += (uint32_t)__builtin_ctzll(any);
            return k * 64 + (uint32_t)__builtin_ctzll(r->bits[k]);
        }
        k = (k / 64 + 1) * 64;
    }
    return TW_NONE;
}

/* Counts the stream among those at a LOOP, if it is at one now, and lets those look again that may
 * have waited for it: of its site, or one that needs all. */
static void note_loop(struct certifier *c, uint32_t stream) {
    uint32_t first = stream / TW_ENGINE_COUNT * TW_ENGINE_COUNT;
    bool was = c->cursors[stream].at_loop, is = peek(c, stream) && c->op.code == TW_OP_LOOP;
    c->n_at_loop += is;
    c->n_at_loop -= was;
    c->cursors[stream].at_loop = is;
    for (uint32_t s = first; is && s < first + TW_ENGINE_COUNT; s++) {
        if (s != stream && c->cursors[s].at_loop) {
            set_ready(c, s);
        }
    }
    if (is && c->n_at_loop == c->n_active && c->wants_all != TW_NONE) {
        set_ready(c, c->wants_all);
    }
}

static void wake(struct certifier *c, uint32_t stream, enum waiting what, uint32_t object) {
    struct cursor *at = &c->cursors[stream];
    if (at->waiting == what && at->object == object) {
        at->waiting = FOR_NOTHING;
        set_ready(c, stream);
    }
}

static void wake_flag(struct certifier *c, struct flag *f) {
    if (f->count.n < f->need) {
        return;
    }
    for (uint32_t i = 0; i < f->waiting.n; i++) {
        struct cursor *at = &c->cursors[f->waiting.items[i]];
        if (at->waiting == FOR_WORD) {
            at->waiting = FOR_NOTHING;
            set_ready(c, f->waiting.items[i]);
        }
    }
    f->waiting.n = 0;
    f->need = UINT64_MAX;
}

/* ---- ops ---- */

uint32_t tw_certify_word(const struct certifier *c, uint32_t semaphore, uint32_t site) {
    return c->word_first[semaphore] +
           tw_group_number(c->p, &c->p->groups[c->p->semaphores[semaphore].group], site);
}

static struct flag *flag_of(const struct certifier *c, uint32_t semaphore, uint32_t chip) {
    return &c->flags[c->flag_first[semaphore] + chip -
                     c->p->groups[c->p->semaphores[semaphore].group].chip];
}

/* Finds whether a wait is over; otherwise notes what the stream waits for. */
static bool wait_for_word(struct certifier *c, uint32_t stream) {
    uint32_t semaphore = c->op.operand[TW_SEM_WAIT_semaphore].id, site = c->p->streams[stream].site,
             index = tw_certify_word(c, semaphore, site);
    struct flag *f = flag_of(c, semaphore, site / (c->p->mesh_width * c->p->mesh_height));
    uint64_t arrived = c->p->semaphores[semaphore].initial + c->words[index].n,
             threshold = tw_affine_value(&c->op.operand[TW_SEM_WAIT_threshold].offset, c->vars);
    if (arrived + f->count.n >= threshold) {
        return true;
    }
    c->cursors[stream].waiting = FOR_WORD;
    c->cursors[stream].object = index;
    *TW_VEC_PUSH(c->mem, f->waiting) = stream;
    f->need = threshold - arrived < f->need ? threshold - arrived : f->need;
    return false;
}

static bool is_enabled(struct certifier *c, uint32_t stream) {
    if (c->op.code == TW_OP_SEM_WAIT) {
        return wait_for_word(c, stream);
    }
    if (c->op.code != TW_OP_RESERVE && c->op.code != TW_OP_WAIT) {
        return true;
    }
    uint32_t fifo = c->op.operand[TW_RESERVE_fifo].id; /* WAIT, PUSH and POP have the same */
    uint64_t level = c->levels[fifo],
             pages = c->op.code == TW_OP_WAIT ? level : c->p->buffers[fifo].pages - level;
    bool enabled = pages >= c->op.operand[TW_RESERVE_pages].id;
    if (!enabled) {
        c->cursors[stream].waiting = FOR_FIFO;
        c->cursors[stream].object = fifo;
    }
    return enabled;
}

static void add_to(struct certifier *c, struct counter *counter, uint64_t by) {
    if (c->n_logging) {
        *TW_VEC_PUSH(c->mem, c->log) = (struct saved){counter, counter->n};
    }
    counter->n += by;
}

static void increment(struct certifier *c, uint32_t semaphore, uint32_t site, uint32_t by) {
    uint32_t index = tw_certify_word(c, semaphore, site);
    add_to(c, &c->words[index], by);
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        wake(c, site * TW_ENGINE_COUNT + e, FOR_WORD, index);
    }
}

static void multicast(struct certifier *c, uint32_t semaphore, const struct tw_group *g) {
    const struct tw_group *all = &c->p->groups[c->p->semaphores[semaphore].group];
    if (g->x0 == all->x0 && g->x1 == all->x1 && g->y0 == all->y0 && g->y1 == all->y1) {
        struct flag *f = flag_of(c, semaphore, g->chip);
        add_to(c, &f->count, 1);
        wake_flag(c, f);
        return;
    }
    for (uint32_t i = 0; i < tw_group_size(g); i++) {
        increment(c, semaphore, tw_group_site(c->p, g, i), 1);
    }
}

static void apply_effect(struct certifier *c, uint32_t site) {
    const struct tw_operand *o = c->op.operand;
    if (c->op.code == TW_OP_PUSH) {
        uint32_t fifo = o[TW_PUSH_fifo].id;
        c->levels[fifo] += o[TW_PUSH_pages].id;
        wake(c, site * TW_ENGINE_COUNT + c->p->buffers[fifo].consumer, FOR_FIFO, fifo);
    } else if (c->op.code == TW_OP_POP) {
        uint32_t fifo = o[TW_POP_fifo].id;
        c->levels[fifo] -= o[TW_POP_pages].id;
        wake(c, site * TW_ENGINE_COUNT + c->p->buffers[fifo].producer, FOR_FIFO, fifo);
    } else if (c->op.code == TW_OP_SEM_INC) {
        increment(c, o[TW_SEM_INC_semaphore].id, o[TW_SEM_INC_site].id, o[TW_SEM_INC_by].id);
    } else if (c->op.code == TW_OP_MCAST_SET) {
        multicast(c, o[TW_MCAST_SET_semaphore].id, &c->p->groups[o[TW_MCAST_SET_group].id]);
    }
}

/* Runs a stream up to a loop's border, its end, or an op that must wait. */
static void advance(struct certifier *c, uint32_t stream) {
    struct cursor *at = &c->cursors[stream];
    uint32_t before = at->index;
    while (peek(c, stream) && c->op.code != TW_OP_LOOP && c->op.code != TW_OP_END &&
           is_enabled(c, stream)) {
        at->words_at += c->op.n_words;
        at->index++;
        at->run++;
        apply_effect(c, c->p->streams[stream].site);
    }
    flush(c, stream);
    if (at->index != before) {
        note_loop(c, stream);
    }
}

/* ---- loops ---- */

/* What the body of a loop synchronises with. */
enum body { NO_FLAGS, FLAGS, RENDEZVOUS };

/* Marks in `engines` the engines of the site to which the loop at the stream's cursor is connected
 * by FIFOs. */
static enum body scan_body(struct certifier *c, uint32_t stream, uint8_t engines[TW_ENGINE_COUNT]) {
    const struct tw_stream *s = &c->p->streams[stream];
    uint32_t at = c->cursors[stream].words_at, depth = 0;
    enum body body = NO_FLAGS;
    struct tw_op op;
    while (tw_op_decode(s->words, s->n_words, at, &op)) {
        uint32_t object = tw_op_object(&op);
        depth += op.code == TW_OP_LOOP;
        if (op.code == TW_OP_SEM_INC || op.code == TW_OP_SEM_WAIT || op.code == TW_OP_MCAST_SET) {
            enum body uses = c->of_rendezvous[object] ? RENDEZVOUS : FLAGS;
            body = uses > body ? uses : body;
        } else if (object != TW_NONE) {
            engines[c->p->buffers[object].producer] = 1;
            engines[c->p->buffers[object].consumer] = 1;
        }
        at += op.n_words;
        if (op.code == TW_OP_END && --depth == 0) {
            break;
        }
    }
    return body;
}

/* Returns true if the stream is at a LOOP with the given trip or count. */
static bool at_same_loop(struct certifier *c, uint32_t stream, const struct tw_operand *count) {
    return peek(c, stream) && c->op.code == TW_OP_LOOP &&
           c->op.operand[TW_LOOP_times].id == count->id &&
           c->op.operand[TW_LOOP_times].max == count->max;
}

/* Finds the engines of the stream's site that must enter the loop together with it. */
static enum body gather_site(struct certifier *c, uint32_t stream, const struct tw_operand *count,
                             uint8_t engines[TW_ENGINE_COUNT]) {
    uint8_t known[TW_ENGINE_COUNT];
    uint32_t first = c->p->streams[stream].site * TW_ENGINE_COUNT;
    engines[c->p->streams[stream].engine] = 1;
    enum body body = scan_body(c, stream, engines);
    do { /* the engines at the other ends may be connected to more engines */
        memcpy(known, engines, sizeof known);
        for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
            if (engines[e] && at_same_loop(c, first + e, count)) {
                enum body other = scan_body(c, first + e, engines);
                body = other > body ? other : body;
            }
        }
    } while (memcmp(known, engines, sizeof known) != 0);
    return body;
}

/* Adds a stream to the members that this gathering has. Returns false if it is not at the loop. */
static bool add_member(struct certifier *c, uint32_t stream, uint32_t depth,
                       const struct tw_operand *count) {
    if (c->member_of[stream] == c->gathering) {
        return true;
    }
    if (c->cursors[stream].depth != depth || !at_same_loop(c, stream, count)) {
        return false;
    }
    c->member_of[stream] = c->gathering;
    *TW_VEC_PUSH(c->mem, c->members) = stream;
    return true;
}

/* Adds the engines of a site that are marked and have ops. */
static bool add_engines(struct certifier *c, uint32_t site, const uint8_t engines[TW_ENGINE_COUNT],
                        uint32_t depth, const struct tw_operand *count) {
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        uint32_t stream = site * TW_ENGINE_COUNT + e;
        if (engines[e] && c->p->streams[stream].n_words && !add_member(c, stream, depth, count)) {
            return false;
        }
    }
    return true;
}

/* Adds everybody with whom the members exchange flags in loops. */
static bool gather_partners(struct certifier *c, uint32_t kept, uint32_t depth,
                            const struct tw_operand *count) {
    for (uint32_t i = kept; i < c->members.n; i++) { /* members are added meanwhile */
        uint32_t stream = c->members.items[i];
        uint8_t engines[TW_ENGINE_COUNT] = {0};
        c->partners.n = 0;
        if (gather_site(c, stream, count, engines) == RENDEZVOUS ||
            !add_engines(c, c->p->streams[stream].site, engines, depth, count) ||
            !tw_certify_partners(c, stream)) {
            return false;
        }
        for (uint32_t k = 0; k < c->partners.n; k++) {
            if (!add_member(c, c->partners.items[k], depth, count)) {
                return false;
            }
        }
    }
    return true;
}

/* Finds the streams that must enter the loop together with `stream`, which is at a LOOP, and adds
 * them to c->members. Returns false while one of them has not reached it. */
static bool gather(struct certifier *c, uint32_t stream, uint32_t *n, bool *semaphores) {
    uint8_t engines[TW_ENGINE_COUNT] = {0};
    uint32_t kept = c->members.n, depth = c->cursors[stream].depth;
    (void)peek(c, stream);
    struct tw_operand count = c->op.operand[TW_LOOP_times];
    c->gathering++;
    enum body body = gather_site(c, stream, &count, engines);
    bool all = body == RENDEZVOUS, here = true;
    c->wants_all = all && stream < c->wants_all ? stream : c->wants_all;
    if (all && c->n_at_loop < c->n_active) { /* so that the search below is made once */
        return false;
    }
    if (body == FLAGS) {
        here = add_member(c, stream, depth, &count) && gather_partners(c, kept, depth, &count);
    } else if (!all) {
        here = add_engines(c, c->p->streams[stream].site, engines, depth, &count);
    }
    for (uint32_t s = 0; s < c->n_streams && all && here; s++) {
        if (c->p->streams[s].n_words) {
            here = c->cursors[s].depth == depth && at_same_loop(c, s, &count);
            *TW_VEC_PUSH(c->mem, c->members) = s;
        }
    }
    *n = c->members.n - kept;
    *semaphores = body != NO_FLAGS;
    c->members.n = here ? c->members.n : kept;
    return here;
}

static int run_group(struct certifier *c, uint32_t first, uint32_t n, bool body);

/* Moves the last n members over a LOOP or END. */
static void pass_border(struct certifier *c, uint32_t first, uint32_t n, int deeper) {
    for (uint32_t i = first; i < first + n; i++) {
        struct cursor *at = &c->cursors[c->members.items[i]];
        (void)peek(c, c->members.items[i]);
        at->words_at += c->op.n_words;
        at->index++;
        at->depth = (uint8_t)(at->depth + deeper);
        at->waiting = FOR_NOTHING;
        set_ready(c, c->members.items[i]);
        note_loop(c, c->members.items[i]);
    }
}

/* Computes the words after all iterations of a body that was run once. */
static void multiply_words(struct certifier *c, uint32_t from, uint32_t count) {
    for (uint32_t i = c->log.n; i > from; i--) { /* the first entry of a word is applied last */
        struct counter *x = c->log.items[i - 1].counter;
        x->before = c->log.items[i - 1].value;
        x->has_before = true;
    }
    for (uint32_t i = from; i < c->log.n; i++) {
        struct counter *x = c->log.items[i].counter;
        if (x->has_before) {
            x->n = x->before + (x->n - x->before) * count;
            x->has_before = false;
        }
    }
}

/* Runs a loop whose members are the last n. */
static int run_loop(struct certifier *c, uint32_t n, bool semaphores) {
    uint32_t first = c->members.n - n, from = c->log.n;
    (void)peek(c, c->members.items[first]);
    uint32_t count = c->op.operand[TW_LOOP_times].max;
    emit(c, TW_TURN_WORD(TW_TURN_LOOP, n));
    for (uint32_t i = first; i < first + n; i++) {
        emit(c, c->members.items[i]);
    }
    c->n_logging += semaphores;
    c->wants_all = semaphores ? TW_NONE : c->wants_all;
    pass_border(c, first, n, 1);
    int rc = run_group(c, first, n, true);
    c->n_logging -= semaphores;
    if (rc == 0) {
        emit(c, TW_TURN_WORD(TW_TURN_END, 0));
        pass_border(c, first, n, -1);
        if (semaphores) {
            multiply_words(c, from, count);
        }
        c->log.n = c->n_logging ? c->log.n : 0;
        c->members.n = first;
    }
    return rc;
}

static int fail_stuck(struct certifier *c, uint32_t stream) {
    const struct tw_stream *s = &c->p->streams[stream];
    (void)peek(c, stream);
    uint32_t origin = c->op.stage < c->p->n_stages ? c->p->stages[c->op.stage].origin : 0,
             id = tw_op_object(&c->op);
    const char *object =
        c->op.code == TW_OP_LOOP || c->op.code == TW_OP_END ? "the engines of its loop"
        : c->op.code == TW_OP_SEM_WAIT ? tw_program_string(c->p, c->p->semaphores[id].name)
                                       : tw_program_string(c->p, c->p->buffers[id].name);
    return tw_fail(
        c->err, TW_E_VERIFY,
        "rule 20 no_deadlock: %.60s site %u %s op %u (%s, %.40s): waits forever for %.60s",
        c->p->name, s->site, tw_engine_name(s->engine), c->cursors[stream].index,
        tw_op_info(c->op.code).name, tw_program_string(c->p, origin), object);
}

/* Advances a stream, through a loop if all are there that must enter it. */
static int visit(struct certifier *c, uint32_t stream) {
    uint32_t n;
    bool semaphores;
    advance(c, stream);
    return c->cursors[stream].at_loop && gather(c, stream, &n, &semaphores)
               ? run_loop(c, n, semaphores)
               : 0;
}

static bool is_over(struct certifier *c, uint32_t stream, bool body) {
    bool more = peek(c, stream);
    return body ? more && c->op.code == TW_OP_END : !more;
}

/* Tries again to enter loops where nobody is ready: a stream may have come to one of them that did
 * not need those which wait there. */
static int visit_loops(struct certifier *c, uint32_t first, uint32_t n, bool *entered) {
    uint32_t turns = c->turns.n;
    int rc = 0;
    for (uint32_t i = first; i < first + n && rc == 0; i++) {
        uint32_t stream = c->members.items[i];
        rc = c->cursors[stream].at_loop ? visit(c, stream) : 0;
    }
    *entered = c->turns.n != turns;
    return rc;
}

/* Runs n members from the first on until all are at the end of the body (or of their streams). All
 * of them are ready in the beginning; later a stream is ready when what it waits for may have
 * happened. Sweeps in the order of streams, so that the certificate has few turns. */
static int run_group(struct certifier *c, uint32_t first, uint32_t n, bool body) {
    struct ready *r = &c->ready[c->cursors[c->members.items[first]].depth];
    for (bool entered = true; entered;) {
        for (uint32_t at = next_ready(c, r, 0); at != TW_NONE;) {
            clear_ready(r, at);
            int rc = visit(c, at);
            if (rc) {
                return rc;
            }
            at = next_ready(c, r, at + 1);
            at = at == TW_NONE ? next_ready(c, r, 0) : at;
        }
        int rc = visit_loops(c, first, n, &entered);
        if (rc) {
            return rc;
        }
    }
    for (uint32_t i = first; i < first + n; i++) {
        if (!is_over(c, c->members.items[i], body)) {
            return fail_stuck(c, c->members.items[i]);
        }
    }
    return 0;
}

static void init(struct certifier *c) {
    const struct tw_program *p = c->p;
    uint32_t n_words = 0, n_flags = 0;
    c->n_streams = p->n_sites * TW_ENGINE_COUNT;
    c->cursors = tw_cmem_alloc(c->mem, ((size_t)c->n_streams + 1) * sizeof *c->cursors);
    c->levels = tw_cmem_alloc(c->mem, ((size_t)p->n_buffers + 1) * sizeof *c->levels);
    c->word_first = tw_cmem_alloc(c->mem, ((size_t)p->n_semaphores + 1) * sizeof(uint32_t));
    c->flag_first = tw_cmem_alloc(c->mem, ((size_t)p->n_semaphores + 1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < p->n_semaphores; i++) {
        const struct tw_group *g = &p->groups[p->semaphores[i].group];
        c->word_first[i] = n_words;
        c->flag_first[i] = n_flags;
        n_words += (uint32_t)tw_group_size(g); /* the verifier bounds the sum */
        n_flags += g->chips;
    }
    c->n_words = n_words;
    c->member_of = tw_cmem_alloc(c->mem, ((size_t)c->n_streams + 1) * sizeof(uint32_t));
    c->words = tw_cmem_alloc(c->mem, ((size_t)n_words + 1) * sizeof *c->words);
    c->flags = tw_cmem_alloc(c->mem, ((size_t)n_flags + 1) * sizeof *c->flags);
    for (uint32_t i = 0; i < n_flags; i++) {
        c->flags[i].need = UINT64_MAX;
    }
    c->of_rendezvous = tw_cmem_alloc(c->mem, (size_t)p->n_semaphores + 1);
    for (uint32_t i = 0; i < p->n_sections; i++) {
        const struct tw_section *x = &p->sections[i];
        uint32_t ids[] = {x->local, x->gather, x->release};
        for (uint32_t k = 0; k < 3; k++) {
            if (ids[k] < p->n_semaphores) {
                c->of_rendezvous[ids[k]] = 1;
            }
        }
    }
    for (uint32_t d = 0; d <= TW_MAX_VARS; d++) {
        c->ready[d].bits = tw_cmem_alloc(c->mem, (c->n_streams / 64 + 1) * sizeof(uint64_t));
        c->ready[d].any = tw_cmem_alloc(c->mem, (c->n_streams / 4096 + 1) * sizeof(uint64_t));
    }
    for (uint32_t i = 0; i < c->n_streams; i++) {
        *TW_VEC_PUSH(c->mem, c->members) = i;
        c->n_active += p->streams[i].n_words > 0;
        set_ready(c, i);
        note_loop(c, i);
    }
}

int tw_certify(struct tw_cmem *mem, const struct tw_program *program, struct tw_certificate *out,
               tw_error *err) {
    struct certifier c = {.mem = mem, .p = program, .err = err, .wants_all = TW_NONE};
    init(&c);
    int rc = run_group(&c, 0, c.n_streams, false);
    *out = (struct tw_certificate){c.turns.items, c.turns.n, tw_program_step_ops(program)};
    return rc;
}

void *tw_certificate_pack(struct tw_cmem *mem, const struct tw_program *programs,
                          const struct tw_certificate *certificates, uint32_t n, size_t *size) {
    uint32_t words = 0;
    for (uint32_t i = 0; i < n; i++) {
        words += certificates[i].n_words;
    }
    *size = sizeof(struct tw_cert_header) + n * sizeof(struct tw_cert_entry) + (size_t)words * 4;
    uint8_t *blob = tw_cmem_alloc(mem, *size), *at = blob + sizeof(struct tw_cert_header);
    /* the bindings are hashed where their places are known (bundle_content.c) */
    struct tw_cert_header header = {TW_CERT_MAGIC, n, {0}};
    memcpy(blob, &header, sizeof header);
    uint8_t *content = at + n * sizeof(struct tw_cert_entry);
    for (uint32_t i = 0, first = 0; i < n; first += certificates[i].n_words, i++) {
        struct tw_cert_entry e = {.first_word = first,
                                  .n_words = certificates[i].n_words,
                                  .step_ops = tw_program_step_ops(&programs[i])};
        tw_program_hash(&programs[i], e.program_hash);
        memcpy(at + i * sizeof e, &e, sizeof e);
        memcpy(content + (size_t)first * 4, certificates[i].words, (size_t)e.n_words * 4);
    }
    return blob;
}
