/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a plan as text, one line per entry, without a C library.
 */
#include "tests/support/plan_describe.h"

#include "firmware/core/plan/plan.h"

struct line {
    char *at;
    size_t left; /* without the terminator */
};

static void put_char(struct line *l, char c) {
    if (l->left > 0) {
        *l->at++ = c;
        l->left--;
    }
}

static void put(struct line *l, const char *s) {
    for (; *s; s++) {
        put_char(l, *s);
    }
}

static void put_number(struct line *l, uint64_t v, unsigned radix) {
    char digits[20];
    unsigned n = 0;
    do {
        digits[n++] = "0123456789abcdef"[v % radix];
        v /= radix;
    } while (v != 0);
    while (n > 0) {
        put_char(l, digits[--n]);
    }
}

static void put_field(struct line *l, const char *name, uint64_t v) {
    put(l, name);
    put_number(l, v, 10);
}

static void put_count(struct line *l, const char *name, uint16_t trip, uint32_t constant) {
    put(l, name);
    if (trip != PLAN_NO_TRIP) {
        put(l, "trip");
    }
    put_number(l, trip == PLAN_NO_TRIP ? constant : trip, 10);
}

static void put_call(struct line *l, const struct plan_thread *t, const struct plan_entry *e) {
    const struct tw_kargs *k = &e->u.call.args;
    put_count(l, " rows ", e->rows_trip, k->rows);
    put_count(l, " pos ", e->pos_trip, k->pos);
    for (uint32_t i = 0; i < TW_KARGS_REGIONS && k->p[i]; i++) {
        put(l, i ? " 0x" : " at 0x");
        put_number(l, (uintptr_t)k->p[i], 16);
    }
    for (uint32_t i = 0; i < e->n; i++) {
        const struct plan_patch *p = &t->patches[e->first_patch + i];
        put_field(l, p->target == PLAN_PATCH_BLOCK ? " block+" : " p",
                  p->target == PLAN_PATCH_BLOCK ? p->step : p->target);
        if (p->target != PLAN_PATCH_BLOCK) {
            put_field(l, "+", p->step);
        }
        put_field(l, "*i", p->level);
    }
}

static void put_loop(struct line *l, const struct plan_entry *e) {
    put_count(l, e->kind == PLAN_LOOP ? " times " : " begin ",
              e->kind == PLAN_LOOP ? (uint16_t)e->u.loop.trip : PLAN_NO_TRIP, e->u.loop.other);
    put_field(l, " max ", e->u.loop.max);
    put_field(l, " level ", e->u.loop.level);
}

static void put_waits(struct line *l, const struct plan_entry *e) {
    for (uint32_t i = 0; i < e->n; i++) {
        put_field(l, " thread ", e->u.wait[i].thread);
        put_field(l, " passes ", e->u.wait[i].count);
    }
}

uint32_t plan_describe(const struct tw_plan *plan, uint32_t thread, uint32_t index, char *buf,
                       size_t size) {
    if (size > 0) {
        buf[0] = '\0';
    }
    if (thread >= plan->n_threads || index >= plan->threads[thread].n_entries || size == 0) {
        return 0;
    }
    const struct plan_thread *t = &plan->threads[thread];
    const struct plan_entry *e = &t->entries[index];
    struct line l = {buf, size - 1};
    put_number(&l, index, 10);
    put_field(&l, " site ", e->site);
    put_char(&l, ' ');
    put(&l, e->kind == PLAN_WAIT ? "await" : tw_op_info(e->code).name);
    if (e->kind == PLAN_WAIT) {
        put_waits(&l, e);
    } else if (e->kind == PLAN_LOOP || e->kind == PLAN_END) {
        put_loop(&l, e);
    } else {
        put_call(&l, t, e);
    }
    put(&l, e->flags & PLAN_POST ? " post" : "");
    *l.at = '\0';
    return index + 1 < t->n_entries ? index + 1 : 0;
}

struct tw_plan_stats plan_stats(const struct tw_plan *plan) {
    return plan->stats;
}
