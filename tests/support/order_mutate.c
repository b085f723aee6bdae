/* SPDX-License-Identifier: Apache-2.0
 *
 * Mutants (order_mutate.h): ops are cut out of and put into copies of their streams; records are
 * changed in copies of their tables.
 */
#include "tests/support/order_mutate.h"

#include "loader/base/compiler.h"
#include "tests/support/order_mutate_family.h"
#include "tests/support/order_mutate_number.h"
#include "tests/support/random_model.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char *action_name(uint32_t action) {
    static const char *const actions[] = {
#define TW_X(id, name) name,
        ORDER_ACTIONS(TW_X)
#undef TW_X
    };
    return actions[action];
}

const char *order_kind_name(uint32_t kind) {
    static const char *const classes[] = {
#define TW_X(id, name) name,
        ORDER_OP_CLASSES(TW_X)};
    static const char *const records[] = {ORDER_RECORDS(TW_X)
#undef TW_X
    };
    static char text[64];
    if (kind < ORDER_KIND_RECORDS) {
        snprintf(text, sizeof text, "%s %s", classes[kind / ORDER_N_ACTIONS],
                 action_name(kind % ORDER_N_ACTIONS));
        return text;
    }
    static const char *const families[] = {
#define TW_X(id, name, function) name,
        ORDER_FAMILIES(TW_X)
#undef TW_X
    };
    return kind < ORDER_KIND_ALL_SITES    ? records[kind - ORDER_KIND_RECORDS]
           : kind == ORDER_KIND_ALL_SITES ? "an op, on all sites"
           : kind == ORDER_KIND_PAIR      ? "two changes"
                                          : families[kind - ORDER_KIND_FAMILIES];
}

/* ---- where ops are ---- */

static bool serves_rendezvous(const struct tw_program *p, uint32_t semaphore) {
    for (uint32_t i = 0; i < p->n_sections; i++) {
        const struct tw_section *s = &p->sections[i];
        if (s->local == semaphore || s->gather == semaphore || s->release == semaphore) {
            return true;
        }
    }
    return false;
}

static enum order_op_class class_of(const struct tw_program *p, const uint32_t *words) {
    uint32_t code = words[0] & 0xFFFFu;
    switch (code) {
    case TW_OP_SEM_INC:
    case TW_OP_SEM_WAIT:
    case TW_OP_MCAST_SET:
        return serves_rendezvous(p, words[2]) ? ORDER_RENDEZVOUS : ORDER_HANDSHAKE;
    case TW_OP_MCAST:
    case TW_OP_SEND:
        return ORDER_HANDSHAKE;
    case TW_OP_LOOP:
    case TW_OP_END:
        return ORDER_LOOP;
    default:
        return code >= TW_OP_RESERVE && code <= TW_OP_POP ? ORDER_FIFO : ORDER_DATA;
    }
}

void order_index_make(struct order_index *x, const struct tw_program *p) {
    uint32_t room[ORDER_N_OP_CLASSES] = {0};
    memset(x, 0, sizeof *x);
    x->program = p;
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        const struct tw_stream *t = &p->streams[s];
        for (uint32_t at = 0, op = 0; at < t->n_words; at += t->words[at] >> 16, op++) {
            enum order_op_class c = class_of(p, t->words + at);
            if (x->n[c] == room[c]) {
                room[c] = room[c] ? room[c] * 2 : 64;
                x->places[c] = realloc(x->places[c], room[c] * sizeof *x->places[c]);
                assert(x->places[c]);
            }
            x->places[c][x->n[c]++] = (struct order_place){s, op};
        }
    }
}

void order_index_free(struct order_index *x) {
    for (uint32_t c = 0; c < ORDER_N_OP_CLASSES; c++) {
        free(x->places[c]);
    }
    memset(x, 0, sizeof *x);
}

/* ---- mutants ---- */

void *order_own(struct order_mutant *m, const void *from, size_t bytes) {
    void *to = malloc(bytes + 1);
    assert(to && m->n_owned < ORDER_MAX_OWNED);
    if (bytes) {
        memcpy(to, from, bytes);
    }
    m->owned[m->n_owned++] = to;
    return to;
}

static void begin(struct order_mutant *m, const struct order_index *x,
                  const struct tw_certificate *certificate) {
    memset(m, 0, sizeof *m);
    m->p = *x->program;
    m->owned = malloc(ORDER_MAX_OWNED * sizeof *m->owned);
    assert(m->owned);
    m->streams =
        order_own(m, m->p.streams, (size_t)m->p.n_sites * TW_ENGINE_COUNT * sizeof *m->streams);
    m->p.streams = m->streams;
    if (certificate->n_words) {
        m->words = malloc((certificate->n_words + 2 * (size_t)ORDER_MAX_OWNED) * sizeof *m->words);
        assert(m->words);
        memcpy(m->words, certificate->words, certificate->n_words * sizeof *m->words);
        m->n_words = certificate->n_words;
    }
}

void order_mutant_free(struct order_mutant *m) {
    for (uint32_t i = 0; i < m->n_owned; i++) {
        free(m->owned[i]);
    }
    free(m->owned);
    free(m->words);
    memset(m, 0, sizeof *m);
}

void order_describe(struct order_mutant *m, const char *format, ...) {
    size_t n = strlen(m->text);
    va_list args;
    va_start(args, format);
    vsnprintf(m->text + n, sizeof m->text - n, format, args);
    va_end(args);
}

/* ---- the certificate along with it ---- */

/* Op number `at` of the stream is removed (delta -1), or one more is inserted after it (+1). */
static void adapt(struct order_mutant *m, uint32_t stream, uint32_t at, int delta) {
    uint32_t *w = m->words, pos = 0, depth = 0, in[TW_MAX_VARS + 1] = {0};
    for (uint32_t i = 0; i < m->n_words;) {
        uint32_t turn = w[i] >> 28, value = w[i] & 0x0FFFFFFFu;
        if (turn == TW_TURN_RUN) {
            if (value == stream && at >= pos && at - pos < w[i + 1]) {
                w[i + 1] += (uint32_t)delta;
                return;
            }
            pos += value == stream ? w[i + 1] : 0;
            i += 2;
        } else if (turn == TW_TURN_LOOP) {
            in[depth] = 0;
            for (uint32_t k = 0; k < value; k++) {
                in[depth] |= w[i + 1 + k] == stream;
            }
            pos += in[depth++];
            i += 1 + value;
        } else {
            pos += depth ? in[--depth] : 0;
            i++;
        }
    }
    free(m->words); /* the change is at the border of a loop: the certificate cannot be adapted */
    m->words = NULL;
    m->n_words = 0;
}

/* ---- ops ---- */

uint32_t order_word_of(const struct tw_stream *s, uint32_t op) {
    uint32_t at = 0;
    for (; op > 0 && at < s->n_words; op--) {
        at += s->words[at] >> 16;
    }
    return at;
}

uint32_t order_size_at(const struct tw_stream *s, uint32_t at) {
    return at < s->n_words ? s->words[at] >> 16 : 0;
}

void order_splice(struct order_mutant *m, uint32_t stream, uint32_t at, uint32_t cut,
                  const uint32_t *put, uint32_t n) {
    struct tw_stream *s = &m->streams[stream];
    uint32_t *words = order_own(m, NULL, 0);
    m->owned[m->n_owned - 1] = words = realloc(words, ((size_t)s->n_words + n + 1) * sizeof *words);
    assert(words);
    memcpy(words, s->words, (size_t)at * 4);
    if (n) {
        memcpy(words + at, put, (size_t)n * 4);
    }
    memcpy(words + at + n, s->words + at + cut, (size_t)(s->n_words - at - cut) * 4);
    s->words = words;
    s->n_words += n - cut;
}

uint32_t order_op_count(const struct tw_stream *s) {
    uint32_t n = 0;
    for (uint32_t at = 0; at < s->n_words; at += s->words[at] >> 16) {
        n++;
    }
    return n;
}

uint32_t order_other_border(const struct tw_stream *s, uint32_t op) {
    uint32_t open[TW_MAX_VARS + 1], depth = 0, i = 0;
    for (uint32_t at = 0; at < s->n_words; at += s->words[at] >> 16, i++) {
        uint32_t code = s->words[at] & 0xFFFFu;
        if (code == TW_OP_LOOP && depth < TW_MAX_VARS) {
            open[depth++] = i;
        } else if (code == TW_OP_END && depth) {
            depth--;
            if (open[depth] == op || i == op) {
                return open[depth] == op ? i : open[depth];
            }
        }
    }
    return op;
}

static void delete_op(struct order_mutant *m, struct order_place p) {
    const struct tw_stream *s = &m->streams[p.stream];
    uint32_t at = order_word_of(s, p.op);
    order_splice(m, p.stream, at, order_size_at(s, at), NULL, 0);
    if (m->words) {
        adapt(m, p.stream, p.op, -1);
    }
}

static void move_op(struct order_mutant *m, struct order_place p, uint32_t to) {
    const struct tw_stream *s = &m->streams[p.stream];
    uint32_t at = order_word_of(s, p.op), n = order_size_at(s, at), op[TW_MAX_OP_WORDS];
    if (n == 0 || n > TW_MAX_OP_WORDS) {
        return;
    }
    memcpy(op, s->words + at, (size_t)n * 4);
    order_splice(m, p.stream, at, n, NULL, 0);
    order_splice(m, p.stream, order_word_of(&m->streams[p.stream], to), 0, op, n);
}

static void double_op(struct order_mutant *m, struct order_place p) {
    const struct tw_stream *s = &m->streams[p.stream];
    uint32_t at = order_word_of(s, p.op), n = order_size_at(s, at), op[TW_MAX_OP_WORDS];
    memcpy(op, s->words + at, (size_t)n * 4);
    order_splice(m, p.stream, at, 0, op, n);
    if (m->words) {
        adapt(m, p.stream, p.op, 1);
    }
}

static void alter_op(struct order_mutant *m, struct order_place p, uint64_t *seed) {
    const struct tw_stream *s = &m->streams[p.stream];
    uint32_t at = order_word_of(s, p.op), words[TW_MAX_OP_WORDS];
    struct tw_op op;
    if (!tw_op_decode(s->words, s->n_words, at, &op)) {
        return;
    }
    uint32_t old = op.n_words;
    char what[80];
    order_alter_op(&m->p, p.stream, &op, seed, what, sizeof what);
    order_describe(m, " %s", what);
    order_splice(m, p.stream, at, old, words, tw_op_encode(&op, words));
}

static void change_op(struct order_mutant *m, struct order_place p, enum order_action action,
                      uint64_t *seed) {
    const struct tw_stream *s = &m->streams[p.stream];
    uint32_t n = order_op_count(s), at = order_word_of(s, p.op);
    if (at >= s->n_words) {
        return; /* an earlier change has shortened the stream */
    }
    uint32_t code = s->words[at] & 0xFFFFu, delta = 1 + random_below(seed, 12);
    bool border = code == TW_OP_LOOP || code == TW_OP_END;
    order_describe(m, " [%s site %u %s op %u %s", action_name((uint32_t)action), s->site,
                   tw_engine_name(s->engine), p.op, tw_op_info(code).name);
    switch (action) {
    case ORDER_DELETE:
        if (border && random_below(seed, 4)) { /* both borders: the body runs once */
            uint32_t other = order_other_border(s, p.op), first = other < p.op ? other : p.op;
            delete_op(m, (struct order_place){
                             p.stream, first + (other > p.op ? other - p.op : p.op - other)});
            delete_op(m, (struct order_place){p.stream, first});
        } else {
            delete_op(m, p);
        }
        break;
    case ORDER_DOUBLE:
        double_op(m, p);
        break;
    case ORDER_SWAP:
        move_op(m, p, p.op + 1 < n ? p.op + 1 : p.op);
        break;
    case ORDER_MOVE:
        delta = random_below(seed, 2) ? p.op + delta : p.op > delta ? p.op - delta : 0;
        order_describe(m, " to %u", delta);
        move_op(m, p, delta < n ? delta : n - 1);
        break;
    case ORDER_ALTER:
        alter_op(m, p, seed);
        break;
    case ORDER_N_ACTIONS:
        break;
    }
    order_describe(m, "]");
}

/* ---- kinds ---- */

static bool change_some_op(const struct order_index *x, struct order_mutant *m, uint32_t kind,
                           uint64_t *seed) {
    uint32_t c = kind / ORDER_N_ACTIONS;
    if (x->n[c] == 0) {
        return false;
    }
    change_op(m, x->places[c][random_below(seed, x->n[c])],
              (enum order_action)(kind % ORDER_N_ACTIONS), seed);
    return true;
}

/* Makes the same random choices on each site whose engine has an op of the same code there. */
static bool change_all_sites(const struct order_index *x, struct order_mutant *m, uint64_t *seed) {
    uint32_t kind = random_below(seed, ORDER_KIND_RECORDS), c = kind / ORDER_N_ACTIONS;
    if (x->n[c] == 0) {
        return false;
    }
    struct order_place p = x->places[c][random_below(seed, x->n[c])];
    uint32_t engine = p.stream % TW_ENGINE_COUNT,
             from = order_word_of(&x->program->streams[p.stream], p.op);
    uint32_t code = x->program->streams[p.stream].words[from] & 0xFFFFu;
    uint64_t same = random_next(seed);
    for (uint32_t site = 0; site < m->p.n_sites; site++) {
        struct order_place here = {site * TW_ENGINE_COUNT + engine, p.op};
        const struct tw_stream *s = &m->streams[here.stream];
        uint32_t at = order_word_of(s, p.op);
        uint64_t copy = same;
        if (at < s->n_words && (s->words[at] & 0xFFFFu) == code &&
            m->n_owned + 4 < ORDER_MAX_OWNED) {
            change_op(m, here, (enum order_action)(kind % ORDER_N_ACTIONS), &copy);
        }
    }
    return true;
}

static bool change_record(struct order_mutant *m, enum order_record record, uint64_t *seed) {
    char what[160];
    size_t bytes = 0;
    const void *table = order_record_table(&m->p, record, &bytes);
    if (table && bytes == 0) {
        return false;
    }
    void *copy = order_own(m, table, bytes);
    order_alter_record(&m->p, record, copy, seed, what, sizeof what);
    order_describe(m, " [%s]", what);
    return true;
}

static bool change(const struct order_index *x, struct order_mutant *m, uint32_t kind,
                   uint64_t *seed) {
    if (kind < ORDER_KIND_RECORDS) {
        return change_some_op(x, m, kind, seed);
    }
    if (kind < ORDER_KIND_ALL_SITES) {
        return change_record(m, (enum order_record)(kind - ORDER_KIND_RECORDS), seed);
    }
    if (kind == ORDER_KIND_ALL_SITES) {
        return change_all_sites(x, m, seed);
    }
    if (kind >= ORDER_KIND_FAMILIES) {
        return order_change_family(x, m, kind - ORDER_KIND_FAMILIES, seed);
    }
    return change(x, m, random_below(seed, ORDER_KIND_ALL_SITES), seed) &&
           change(x, m, random_below(seed, ORDER_KIND_ALL_SITES), seed);
}

bool order_mutate(const struct order_index *x, const struct tw_certificate *certificate,
                  uint32_t kind, uint64_t *seed, struct order_mutant *out) {
    begin(out, x, certificate);
    out->kind = kind;
    if (!change(x, out, kind, seed)) {
        order_mutant_free(out);
        return false;
    }
    return true;
}
