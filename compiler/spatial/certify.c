/* SPDX-License-Identifier: Apache-2.0
 *
 * Certification by greedy execution. The engines that enter a loop together are derived from the
 * loop's body: engines whose loops have the same count, engines at the other ends of its FIFOs, and
 * all engines if the body uses semaphores.
 */
#include "compiler/spatial/certify.h"

#include "tilewright/op_schema.h"

#include <string.h>

struct cursor {
    uint32_t words_at, index;
    uint32_t run;  /* ops executed since the last turn was written */
    uint8_t depth; /* loop depth of the group it runs in */
};

struct certifier {
    struct tw_cmem *mem;
    const struct tw_program *p;
    tw_error *err;
    uint32_t n_streams;
    struct cursor *cursors;
    uint64_t *levels; /* by FIFO: published pages */
    uint64_t *words;  /* [semaphore][site]: increments so far */
    uint32_t vars[TW_MAX_VARS];
    TW_VEC(uint32_t) turns;
    struct tw_op op;
};

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

static uint64_t *word(struct certifier *c, uint32_t semaphore, uint32_t site) {
    return &c->words[(size_t)semaphore * c->p->n_sites + site];
}

static bool is_enabled(struct certifier *c, uint32_t site) {
    const struct tw_operand *o = c->op.operand;
    switch (c->op.code) {
    case TW_OP_RESERVE:
        return c->p->buffers[o[0].id].pages - c->levels[o[0].id] >= o[1].id;
    case TW_OP_WAIT:
        return c->levels[o[0].id] >= o[1].id;
    case TW_OP_SEM_WAIT:
        return c->p->semaphores[o[0].id].initial + *word(c, o[0].id, site) >=
               tw_affine_value(&o[1].offset, c->vars);
    default:
        return true;
    }
}

static void apply_effect(struct certifier *c) {
    const struct tw_operand *o = c->op.operand;
    if (c->op.code == TW_OP_PUSH) {
        c->levels[o[0].id] += o[1].id;
    } else if (c->op.code == TW_OP_POP) {
        c->levels[o[0].id] -= o[1].id;
    } else if (c->op.code == TW_OP_SEM_INC) {
        *word(c, o[0].id, o[1].id) += o[2].id;
    } else if (c->op.code == TW_OP_MCAST_SET) {
        const struct tw_group *g = &c->p->groups[o[1].id];
        for (uint32_t i = 0; i < tw_group_size(g); i++) {
            *word(c, o[0].id, tw_group_site(c->p, g, i)) += 1;
        }
    }
}

/* Runs a stream up to a loop's border, its end, or an op that must wait. Returns true if it
 * executed anything. */
static bool advance(struct certifier *c, uint32_t stream) {
    struct cursor *at = &c->cursors[stream];
    uint32_t before = at->index;
    while (peek(c, stream) && c->op.code != TW_OP_LOOP && c->op.code != TW_OP_END &&
           is_enabled(c, c->p->streams[stream].site)) {
        apply_effect(c);
        at->words_at += c->op.n_words;
        at->index++;
        at->run++;
    }
    flush(c, stream);
    return at->index != before;
}

/* Marks in `engines` the engines of the site to which the loop at the stream's cursor is connected
 * by FIFOs. Returns true if the loop uses semaphores. */
static bool scan_body(struct certifier *c, uint32_t stream, uint8_t engines[TW_ENGINE_COUNT]) {
    const struct tw_stream *s = &c->p->streams[stream];
    uint32_t at = c->cursors[stream].words_at, depth = 0;
    bool semaphores = false;
    struct tw_op op;
    while (tw_op_decode(s->words, s->n_words, at, &op)) {
        depth += op.code == TW_OP_LOOP;
        bool flag =
            op.code == TW_OP_SEM_INC || op.code == TW_OP_SEM_WAIT || op.code == TW_OP_MCAST_SET;
        uint32_t fifo = flag ? TW_NONE : tw_op_object(&op);
        if (fifo != TW_NONE) {
            engines[c->p->buffers[fifo].producer] = 1;
            engines[c->p->buffers[fifo].consumer] = 1;
        }
        semaphores |= flag;
        at += op.n_words;
        if (op.code == TW_OP_END && --depth == 0) {
            break;
        }
    }
    return semaphores;
}

/* Returns true if the stream is at a LOOP with the given trip or count. */
static bool at_same_loop(struct certifier *c, uint32_t stream, const struct tw_operand *count) {
    return peek(c, stream) && c->op.code == TW_OP_LOOP &&
           c->op.operand[TW_LOOP_times].id == count->id &&
           c->op.operand[TW_LOOP_times].max == count->max;
}

/* Finds the streams that must enter the loop together with `stream`, which is at a LOOP. Returns
 * false while one of them has not reached it. */
static bool gather(struct certifier *c, uint32_t stream, uint32_t *members, uint32_t *n) {
    uint8_t engines[TW_ENGINE_COUNT] = {0}, known[TW_ENGINE_COUNT];
    uint32_t site = c->p->streams[stream].site;
    (void)peek(c, stream);
    struct tw_operand count = c->op.operand[TW_LOOP_times];
    engines[c->p->streams[stream].engine] = 1;
    bool all = scan_body(c, stream, engines);
    *n = 0;
    do { /* the engines at the other ends may be connected to more engines */
        memcpy(known, engines, sizeof known);
        for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
            uint32_t other = site * TW_ENGINE_COUNT + e;
            if (engines[e] && at_same_loop(c, other, &count)) {
                all |= scan_body(c, other, engines);
            }
        }
    } while (memcmp(known, engines, sizeof known) != 0);
    for (uint32_t s = 0; s < c->n_streams; s++) {
        const struct tw_stream *other = &c->p->streams[s];
        if (other->n_words && (all || (other->site == site && engines[other->engine]))) {
            if (c->cursors[s].depth != c->cursors[stream].depth || !at_same_loop(c, s, &count)) {
                return false;
            }
            members[(*n)++] = s;
        }
    }
    return true;
}

static int run_group(struct certifier *c, const uint32_t *members, uint32_t n, bool body);

static void pass_border(struct certifier *c, const uint32_t *members, uint32_t n, int deeper) {
    for (uint32_t i = 0; i < n; i++) {
        (void)peek(c, members[i]);
        c->cursors[members[i]].words_at += c->op.n_words;
        c->cursors[members[i]].index++;
        c->cursors[members[i]].depth = (uint8_t)(c->cursors[members[i]].depth + deeper);
    }
}

/* Computes the words after all iterations of a body that was run once. */
static void multiply_words(struct certifier *c, const uint64_t *before, uint32_t count) {
    size_t n = (size_t)c->p->n_semaphores * c->p->n_sites;
    for (size_t i = 0; i < n; i++) {
        c->words[i] = before[i] + (c->words[i] - before[i]) * count;
    }
}

static int run_loop(struct certifier *c, const uint32_t *members, uint32_t n) {
    size_t n_words = (size_t)c->p->n_semaphores * c->p->n_sites;
    (void)peek(c, members[0]);
    uint32_t count = c->op.operand[TW_LOOP_times].max;
    bool semaphores = false;
    uint8_t engines[TW_ENGINE_COUNT];
    for (uint32_t i = 0; i < n && !semaphores; i++) {
        semaphores = scan_body(c, members[i], engines);
    }
    uint64_t *before = semaphores ? tw_cmem_alloc(c->mem, (n_words + 1) * sizeof *before) : NULL;
    if (semaphores) {
        memcpy(before, c->words, n_words * sizeof *before);
    }
    emit(c, TW_TURN_WORD(TW_TURN_LOOP, n));
    for (uint32_t i = 0; i < n; i++) {
        emit(c, members[i]);
    }
    pass_border(c, members, n, 1);
    int rc = run_group(c, members, n, true);
    if (rc == 0) {
        emit(c, TW_TURN_WORD(TW_TURN_END, 0));
        pass_border(c, members, n, -1);
        if (semaphores) {
            multiply_words(c, before, count);
        }
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

/* Runs the members until all are at the end of the body (or of their streams). */
static int run_group(struct certifier *c, const uint32_t *members, uint32_t n, bool body) {
    uint32_t *inner = tw_cmem_alloc(c->mem, (c->n_streams + 1) * sizeof *inner), n_inner;
    for (;;) {
        bool progressed = false, done = true;
        uint32_t waiting = TW_NONE;
        for (uint32_t i = 0; i < n; i++) {
            progressed |= advance(c, members[i]);
            if (peek(c, members[i]) && c->op.code == TW_OP_LOOP &&
                gather(c, members[i], inner, &n_inner)) {
                int rc = run_loop(c, inner, n_inner);
                if (rc) {
                    return rc;
                }
                progressed = true;
            }
            bool over =
                body ? peek(c, members[i]) && c->op.code == TW_OP_END : !peek(c, members[i]);
            if (!over) {
                done = false;
                waiting = waiting == TW_NONE ? members[i] : waiting;
            }
        }
        if (done) {
            return 0;
        }
        if (!progressed) {
            return fail_stuck(c, waiting);
        }
    }
}

int tw_certify(struct tw_cmem *mem, const struct tw_program *program, struct tw_certificate *out,
               tw_error *err) {
    struct certifier c = {
        .mem = mem, .p = program, .err = err, .n_streams = program->n_sites * TW_ENGINE_COUNT};
    c.cursors = tw_cmem_alloc(mem, (c.n_streams + 1) * sizeof *c.cursors);
    c.levels = tw_cmem_alloc(mem, (program->n_buffers + 1) * sizeof *c.levels);
    c.words = tw_cmem_alloc(mem, ((size_t)program->n_semaphores * program->n_sites + 1) *
                                     sizeof *c.words);
    uint32_t *all = tw_cmem_alloc(mem, (c.n_streams + 1) * sizeof *all);
    for (uint32_t i = 0; i < c.n_streams; i++) {
        all[i] = i;
    }
    int rc = run_group(&c, all, c.n_streams, false);
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
