/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedulers of the strict interpreter. Canonical runs each engine in turn; random and the
 * adversaries choose before every op from a list of runnable engines, which is updated for the
 * engines that the last op can have enabled.
 */
#include "firmware/core/strict/strict.h"

#include "loader/base/assert.h"

static int run_canonical(struct tw_strict *s, struct tw_fault *fault) {
    bool progressed = true;
    while (progressed) {
        progressed = false;
        for (uint32_t i = 0; i < strict_n_engines(s); i++) {
            while (strict_runnable(s, &s->engines[i])) {
                struct tw_op op;
                int rc = tw_strict_execute(s, &s->engines[i], &op, fault);
                if (rc != 0) {
                    return rc;
                }
                progressed = true;
            }
        }
    }
    return 0;
}

/* ---- the list ---- */

static void refresh(struct tw_strict *s, uint32_t i) {
    struct strict_engine *e = &s->engines[i];
    bool can = strict_runnable(s, e);
    if (can && s->slot[i] == TW_NONE) {
        TW_ASSERT(s->n_ready < strict_n_engines(s));
        s->slot[i] = s->n_ready;
        s->ready[s->n_ready++] = i;
        e->since = s->ops;
    } else if (!can && s->slot[i] != TW_NONE) {
        TW_ASSERT(s->n_ready > 0 && s->slot[i] < s->n_ready && s->ready[s->slot[i]] == i);
        uint32_t last = s->ready[--s->n_ready];
        s->ready[s->slot[i]] = last;
        s->slot[last] = s->slot[i];
        s->slot[i] = TW_NONE;
    }
}

static void refresh_site(struct tw_strict *s, uint32_t site) {
    for (uint32_t n = 0; n < TW_ENGINE_COUNT; n++) {
        refresh(s, site * TW_ENGINE_COUNT + n);
    }
}

static void fill_list(struct tw_strict *s) {
    s->n_ready = 0;
    for (uint32_t i = 0; i < strict_n_engines(s); i++) {
        s->slot[i] = TW_NONE;
        refresh(s, i);
    }
}

/* Updates the list after an op of engine e. */
static void wake(struct tw_strict *s, const struct strict_engine *e, const struct tw_op *op) {
    const struct tw_program *p = s->config.program;
    if (op->code == TW_OP_MCAST_SET) {
        for (uint32_t site = 0; site < p->n_sites; site++) {
            if (tw_group_has(p, op->operand[TW_MCAST_SET_group].id, site)) {
                refresh_site(s, site);
            }
        }
    } else if (op->code == TW_OP_SEM_INC) {
        refresh_site(s, op->operand[TW_SEM_INC_site].id);
    }
    if (op->code == TW_OP_PUSH || op->code == TW_OP_POP) {
        refresh_site(s, e->site);
    } else {
        refresh(s, e->stream);
    }
}

/* Runs one op of engine i, if it is still runnable: in a faulty program an op of another engine may
 * have blocked it. */
static int run_one(struct tw_strict *s, uint32_t i, struct tw_fault *fault) {
    TW_ASSERT(i < strict_n_engines(s));
    struct strict_engine *e = &s->engines[i];
    struct tw_op op;
    if (!strict_runnable(s, e)) {
        refresh(s, i);
        return 0;
    }
    int rc = tw_strict_execute(s, e, &op, fault);
    if (rc == 0) {
        e->ran_at = s->ops;
        wake(s, e, &op);
    }
    return rc;
}

/* ---- random ---- */

/* splitmix64 */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static int run_random(struct tw_strict *s, uint64_t seed, struct tw_fault *fault) {
    int rc = 0;
    fill_list(s);
    while (s->n_ready > 0 && rc == 0) {
        rc = run_one(s, s->ready[next_random(&seed) % s->n_ready], fault);
    }
    return rc;
}

/* ---- adversaries ---- */

/* Returns the opcode of entry `number` of the op table, modulo its size. */
static uint32_t op_of_table(uint64_t number) {
    static const uint8_t code[] = {
#define TW_OP(NAME, n, name, engines, part) n,
#include "tilewright/ops.def"
#undef TW_OP
    };
    return code[number % sizeof code];
}

struct adversary {
    enum tw_starve kind;
    uint32_t victim;
};

static struct adversary make_adversary(const struct tw_strict *s, uint64_t seed) {
    struct adversary a = {(enum tw_starve)(seed % TW_STARVE_COUNT), 0};
    uint64_t number = seed / TW_STARVE_COUNT;
    switch (a.kind) {
    case TW_STARVE_ENGINE:
    case TW_STARVE_FAVOUR:
        a.victim = (uint32_t)(number % strict_n_engines(s));
        break;
    case TW_STARVE_SITE:
        a.victim = (uint32_t)(number % s->config.program->n_sites);
        break;
    case TW_STARVE_KIND:
        a.victim = (uint32_t)(number % TW_ENGINE_COUNT);
        break;
    case TW_STARVE_OP:
        a.victim = op_of_table(number);
        break;
    case TW_STARVE_NEWEST:
    case TW_STARVE_TURNS:
    case TW_STARVE_BACKWARD:
    case TW_STARVE_LEADER:
    case TW_STARVE_LAGGARD:
    case TW_STARVE_COUNT:
        break;
    }
    return a;
}

/* Returns an engine's rank; the engine with the lowest rank runs. */
static uint64_t rank_of(const struct adversary *a, const struct strict_engine *e) {
    switch (a->kind) {
    case TW_STARVE_ENGINE:
        return e->stream == a->victim;
    case TW_STARVE_SITE:
        return e->site == a->victim;
    case TW_STARVE_KIND:
        return e->engine == a->victim;
    case TW_STARVE_OP:
        return (e->words[e->at] & 0xFFFFu) == a->victim;
    case TW_STARVE_FAVOUR:
        return e->stream != a->victim;
    case TW_STARVE_NEWEST:
        return UINT64_MAX - e->since;
    case TW_STARVE_TURNS:
        return e->ran_at;
    case TW_STARVE_BACKWARD:
        return UINT64_MAX - e->stream;
    case TW_STARVE_LEADER:
        return UINT64_MAX - e->ops;
    case TW_STARVE_LAGGARD:
        return e->ops;
    case TW_STARVE_COUNT:
        break;
    }
    return 0;
}

static uint32_t choose(const struct tw_strict *s, const struct adversary *a) {
    TW_ASSERT(s->n_ready > 0);
    uint32_t best = s->ready[0];
    uint64_t best_rank = rank_of(a, &s->engines[best]);
    for (uint32_t n = 1; n < s->n_ready; n++) {
        uint32_t i = s->ready[n];
        uint64_t rank = rank_of(a, &s->engines[i]);
        if (rank < best_rank || (rank == best_rank && i < best)) {
            best = i;
            best_rank = rank;
        }
    }
    return best;
}

static int run_starving(struct tw_strict *s, uint64_t seed, struct tw_fault *fault) {
    struct adversary a = make_adversary(s, seed);
    int rc = 0;
    fill_list(s);
    while (s->n_ready > 0 && rc == 0) {
        rc = run_one(s, choose(s, &a), fault);
    }
    return rc;
}

int tw_strict_run(struct tw_strict *s, enum tw_scheduler scheduler, uint64_t seed,
                  struct tw_fault *fault) {
    switch (scheduler) {
    case TW_SCHED_RANDOM:
        return run_random(s, seed, fault);
    case TW_SCHED_STARVE:
        return run_starving(s, seed, fault);
    case TW_SCHED_CANONICAL:
    case TW_SCHED_COUNT:
        break;
    }
    return run_canonical(s, fault);
}
