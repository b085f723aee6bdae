/* SPDX-License-Identifier: Apache-2.0
 *
 * Fault plans: a table of probabilities for faults of single packets, and a trigger for faults that
 * happen once.
 */
#include "firmware/faults/faults_internal.h"

#include <stdio.h>

static const struct {
    const char *name, *text;
} plans[] = {
#define TW_X(name, text) {#name, text},
    TW_FAULT_PLANS(TW_X)
#undef TW_X
};
#define N_PLANS (sizeof plans / sizeof plans[0])

/* splitmix64 */
static uint64_t draw(struct tw_faults *f) {
    uint64_t z = f->random += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static bool one_in(struct tw_faults *f, uint32_t n) {
    return n && draw(f) % n == 0;
}

int tw_faults_init(struct tw_faults *f, const char *name, uint64_t seed, tw_error *err) {
    memset(f, 0, sizeof *f);
    f->plan = PLAN_none;
    f->random = seed;
    for (size_t i = 0; i < N_PLANS; i++) {
        f->plan = name && strcmp(name, plans[i].name) == 0 ? (int)i : f->plan;
    }
    if (f->plan < 0 && name && *name) {
        char known[400] = "";
        for (size_t i = 0; i < N_PLANS; i++) {
            size_t at = strlen(known);
            snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", plans[i].name);
        }
        return tw_fail(err, TW_E_USAGE, "no such fault plan: '%.40s'; known plans: %s", name,
                       known);
    }
    /* After the open and HELLO, so that the fault hits real work. */
    f->trigger = 6 + (uint32_t)(draw(f) % 12);
    pthread_mutex_init(&f->lock, NULL);
    return 0;
}

void tw_faults_finish(struct tw_faults *f) {
    pthread_mutex_destroy(&f->lock);
}

const char *tw_faults_name(const struct tw_faults *f) {
    return f->plan < 0 ? "" : plans[f->plan].name;
}

const char *tw_faults_list(unsigned i, const char **text) {
    *text = i < N_PLANS ? plans[i].text : NULL;
    return i < N_PLANS ? plans[i].name : NULL;
}

void tw_faults_new_host(struct tw_faults *f) {
    pthread_mutex_lock(&f->lock);
    f->over = f->fired;
    pthread_mutex_unlock(&f->lock);
}

bool tw_faults_triggered(struct tw_faults *f, uint32_t count) {
    if (f->over || count < f->trigger) {
        return false;
    }
    f->fired = true;
    return true;
}

/* Each fault hits one packet in this many; 0: none. */
struct chances {
    uint32_t drop, delay, duplicate, truncate, corrupt, ghost;
};

static struct chances chances_of(int plan) {
    switch (plan) {
    case PLAN_drop:
        return (struct chances){.drop = 8};
    case PLAN_delay:
        return (struct chances){.delay = 4};
    case PLAN_duplicate:
        return (struct chances){.duplicate = 4};
    case PLAN_truncate:
        return (struct chances){.truncate = 8};
    case PLAN_corrupt:
        return (struct chances){.corrupt = 8};
    case PLAN_mess:
        return (struct chances){16, 16, 16, 16, 16, 0};
    case PLAN_ghost:
        return (struct chances){.ghost = 8};
    default:
        return (struct chances){0};
    }
}

static void damage(struct tw_faults *f, const struct chances *c, uint8_t *bytes, size_t *n) {
    if (one_in(f, c->truncate) && *n > 1) {
        *n = 1 + (size_t)(draw(f) % (*n - 1));
    }
    if (one_in(f, c->corrupt)) {
        uint64_t bit = draw(f) % (*n * 8);
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
    }
}

/* Changes fields of a packet's header and recomputes the header's checksum. */
static void forge(uint8_t *bytes, size_t n, unsigned version, int32_t generation) {
    if (n >= TW_LINK_HEADER_BYTES) {
        uint64_t forged = TW_LINK_GET(bytes, generation) + (uint64_t)(int64_t)generation;
        TW_LINK_PUT(bytes, version, version);
        TW_LINK_PUT(bytes, generation, forged);
        TW_LINK_PUT(bytes, crc, tw_wire_crc32c(0, bytes, TW_LINK_AT_crc));
    }
}

/* Returns true for the last packet of a message of several packets. */
static bool is_tail(const uint8_t *bytes, size_t n) {
    struct tw_link_header h;
    const char *why;
    return tw_link_decode(bytes, n, &h, &why) == 0 && h.kind == TW_LINK_DATA && h.offset > 0 &&
           h.offset + h.length == h.total;
}

/* Makes every hundredth packet late, short or lost, in turn. */
static void damage_hundredth(const struct tw_faults *f, size_t *n, struct tw_faults_packet *v) {
    if (f->packets % 100 == 0) {
        uint32_t turn = f->packets / 100 % 3;
        v->late_ms = turn == 0 ? 20 : 0;
        *n = turn == 1 ? 1 : *n;
        v->copies = turn == 2 ? 0 : 1;
    }
}

/* Applies the plans that act once, or on certain packets by rule. */
static void follow_plan(struct tw_faults *f, uint8_t *bytes, size_t *n, bool out,
                        struct tw_faults_packet *v) {
    switch (f->plan) {
    case PLAN_ones:
    case PLAN_zeros:
        if (tw_faults_triggered(f, f->packets)) {
            memset(bytes, f->plan == PLAN_ones ? 0xFF : 0, *n);
        }
        break;
    case PLAN_silent:
        v->copies = tw_faults_triggered(f, f->packets) ? 0 : 1;
        break;
    case PLAN_vanish:
    case PLAN_identity:
        v->vanish = tw_faults_triggered(f, f->packets);
        break;
    case PLAN_stale:
        if (out && tw_faults_triggered(f, f->packets)) {
            forge(bytes, *n, TW_LINK_VERSION, 1);
        }
        break;
    case PLAN_link:
        if (out && tw_faults_triggered(f, f->trigger)) {
            forge(bytes, *n, TW_LINK_VERSION + 1, 0);
        }
        break;
    case PLAN_tail:
        v->copies = is_tail(bytes, *n) && one_in(f, 3) ? 0 : 1;
        break;
    case PLAN_hundredth:
        damage_hundredth(f, n, v);
        break;
    default:
        break;
    }
}

struct tw_faults_packet tw_faults_pass(struct tw_faults *f, uint8_t *bytes, size_t *n, bool out) {
    struct tw_faults_packet v = {.copies = 1};
    struct chances c = chances_of(f->plan);
    pthread_mutex_lock(&f->lock);
    f->packets++;
    follow_plan(f, bytes, n, out, &v);
    v.copies = one_in(f, c.drop) ? 0 : one_in(f, c.duplicate) ? 2 : v.copies;
    v.late_ms = one_in(f, c.delay) ? 1 + (uint32_t)(draw(f) % 20) : v.late_ms;
    if (one_in(f, c.ghost)) {
        forge(bytes, *n, TW_LINK_VERSION, -1);
    }
    damage(f, &c, bytes, n);
    pthread_mutex_unlock(&f->lock);
    return v;
}

struct tw_faults_request tw_faults_handle(struct tw_faults *f, unsigned opcode) {
    struct tw_faults_request v = {0};
    pthread_mutex_lock(&f->lock);
    f->requests++;
    f->runs += opcode == TW_WIRE_RUN;
    switch (f->plan) {
    case PLAN_stall:
        v.wait_ms = one_in(f, 8) ? 150 : 0;
        break;
    case PLAN_slow:
        v.wait_ms = 10;
        v.moving = true;
        break;
    case PLAN_freeze:
    case PLAN_flood:
    case PLAN_backwards:
        v.freeze = tw_faults_triggered(f, f->requests);
        v.flood = v.freeze && f->plan == PLAN_flood;
        break;
    case PLAN_reset:
        v.reset = !f->fired && tw_faults_triggered(f, f->requests);
        break;
    case PLAN_midrun:
        v.reset = opcode == TW_WIRE_RUN && !f->fired && tw_faults_triggered(f, f->runs);
        break;
    case PLAN_rot:
        v.rot = opcode == TW_WIRE_KEEP && !f->fired && tw_faults_triggered(f, f->trigger);
        break;
    default:
        break;
    }
    pthread_mutex_unlock(&f->lock);
    return v;
}

bool tw_faults_kernels(const struct tw_faults *f, struct tw_slow_kernels *how) {
    *how = (struct tw_slow_kernels){0};
    how->hang_at = f->plan == PLAN_site ? f->trigger * 16 : 0;
    how->late_ms = f->plan == PLAN_crawl ? 5 : 0;
    return how->hang_at || how->late_ms;
}
