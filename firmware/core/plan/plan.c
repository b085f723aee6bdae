/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds a replay plan: bounds from the program text, memory, the passes of the walk. What stays is
 * allocated from the low end of the arena, what only the walk needs from the high end, so that
 * afterwards everything beyond `used` is free again.
 */
#include "firmware/core/plan/plan.h"

#include "firmware/core/plan/plan_walk.h"
#include "loader/base/assert.h"
#include "tilewright/range.h"

/* The memory classes of all sites, in order of (site, class). */
static uint64_t n_classes(const struct tw_program *p) {
    return (uint64_t)p->n_sites * TW_MEM_CLASSES;
}
static uint64_t class_of(const struct tw_buffer *b) {
    return (uint64_t)b->site * TW_MEM_CLASSES + b->mem_class;
}

static uint64_t class_end(const struct walk *w, uint64_t number) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < w->program->n_buffers; i++) {
        const struct tw_buffer *b = &w->program->buffers[i];
        if (class_of(b) == number && b->offset + b->pages * b->page_bytes > end) {
            end = b->offset + b->pages * b->page_bytes;
        }
    }
    return end;
}

/* ---- memory of the walk ---- */

static void alloc_scratch(struct walk *w, struct tw_arena *a) {
    const struct tw_program *p = w->program;
    uint64_t t = w->n_threads;
    w->ops = tw_arena_take(a, w->bounds.ops * sizeof *w->ops, 8);
    w->engines = tw_arena_zeroed(a, (uint64_t)p->n_sites * TW_ENGINE_COUNT, sizeof *w->engines, 8);
    w->buffers = tw_arena_zeroed(a, p->n_buffers, sizeof *w->buffers, 8);
    w->pages = tw_arena_zeroed(a, w->bounds.pages, sizeof *w->pages, 8);
    w->rows = tw_arena_zeroed(a, w->config.n_bind, sizeof *w->rows, 8);
    w->uses = tw_arena_zeroed(a, w->config.n_bind, (size_t)t * sizeof *w->uses, 8);
    w->words = tw_arena_zeroed(a, (uint64_t)p->n_semaphores * p->n_sites, sizeof *w->words, 8);
    w->events = tw_arena_take(a, w->bounds.events * sizeof *w->events, 8);
    w->snapshots = tw_arena_take(a, w->bounds.snapshots * t * sizeof *w->snapshots, 8);
    w->snapshot_thread = tw_arena_take(a, w->bounds.snapshots * sizeof *w->snapshot_thread, 8);
    w->last_snapshot = tw_arena_zeroed(a, t, sizeof *w->last_snapshot, 8);
    w->clocks = tw_arena_zeroed(a, t * t, sizeof *w->clocks, 8);
    w->direct = tw_arena_zeroed(a, t, sizeof *w->direct, 8);
    w->sram = tw_arena_zeroed(a, n_classes(p), sizeof *w->sram, 8);
    w->n_entries = tw_arena_zeroed(a, t, sizeof *w->n_entries, 8);
    w->n_patches = tw_arena_zeroed(a, t, sizeof *w->n_patches, 8);
}

/* ---- memory of the plan ---- */

static void alloc_sram(struct walk *w, struct tw_arena *a) {
    for (uint64_t i = 0; i < n_classes(w->program); i++) {
        uint8_t *bytes = tw_arena_take(a, class_end(w, i), 64);
        if (w->sram) {
            w->sram[i] = bytes;
        }
    }
}

static struct tw_plan *alloc_plan(struct walk *w, struct tw_arena *a) {
    struct tw_plan *plan = tw_arena_zeroed(a, 1, sizeof *plan, 64);
    struct plan_progress *progress = tw_arena_zeroed(a, w->n_threads, sizeof *progress, 128);
    struct plan_thread *threads = tw_arena_zeroed(a, w->n_threads, sizeof *threads, 64);
    struct plan_cursor *cursors = tw_arena_zeroed(a, w->n_threads, sizeof *cursors, 8);
    uint32_t *trips = tw_arena_zeroed(a, w->program->n_trips, sizeof *trips, 8);
    uint32_t *trip_min = tw_arena_zeroed(a, w->program->n_trips, sizeof *trip_min, 8);
    struct tw_pages pages;
    w->inputs = tw_bind_take_inputs(w->program, a);
    tw_pages_take(w->program, w->bounds.page_uses, a, &pages);
    if (plan) {
        plan->pages = pages;
        plan->config = w->config;
        plan->n_threads = w->n_threads;
        plan->progress = progress;
        plan->threads = threads;
        plan->cursors = cursors;
        plan->trips = trips;
        plan->trip_min = trip_min;
        plan->inputs = w->inputs;
    }
    return plan;
}

/* Returns the bytes of a plan in which everything is at its bound. Per thread this includes the
 * alignment of three tables. */
static uint64_t plan_bound(const struct walk *w) {
    struct walk copy = *w;
    struct tw_arena counter = {NULL, 0, 0};
    copy.sram = NULL;
    (void)alloc_plan(&copy, &counter);
    alloc_sram(&copy, &counter);
    tw_arena_take(&counter, w->bounds.shared_bytes, 64);
    for (uint32_t t = 0; t < w->n_threads; t++) {
        tw_arena_take(&counter, 3 * 64, 1);
    }
    tw_arena_take(&counter, w->bounds.entries * sizeof(struct plan_entry), 64);
    tw_arena_take(&counter, w->bounds.entries * sizeof(struct plan_origin), 64);
    tw_arena_take(&counter, w->bounds.patches * sizeof(struct plan_patch), 64);
    return counter.used;
}

/* ---- passes ---- */

static void place_buffers(struct walk *w, struct tw_arena *a) {
    const struct tw_program *p = w->program;
    uint32_t page = 0;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const struct tw_buffer *b = &p->buffers[i];
        struct walk_buffer *state = &w->buffers[i];
        state->first_page = page;
        page += b->pages;
        TW_ASSERT(page <= w->bounds.pages && b->site < p->n_sites);
        state->base = w->sram[class_of(b)] + b->offset;
        if (state->flags & WALK_BUF_SHARED) {
            uint32_t first = tw_walk_storage(w, i);
            TW_ASSERT(first <= i && b->sibling_base <= first);
            state->base = first == i ? tw_arena_take(a, b->pages * b->page_bytes, 64)
                                     : w->buffers[first].base;
        }
    }
}

static void reset_engines(struct walk *w) {
    for (uint32_t i = 0; i < w->program->n_sites * TW_ENGINE_COUNT; i++) {
        struct walk_engine *e = &w->engines[i];
        e->pc = e->first;
        memset(e->vars, 0, sizeof e->vars);
        memset(e->level, 0, sizeof e->level);
    }
}

static void reset_objects(struct walk *w) {
    for (uint32_t i = 0; i < w->program->n_buffers; i++) {
        w->buffers[i].head = w->buffers[i].level = w->buffers[i].touched = 0;
    }
    memset(w->pages, 0, (size_t)w->bounds.pages * sizeof *w->pages);
    for (uint64_t i = 0; i < w->bounds.pages; i++) {
        w->pages[i].op = w->pages[i].row = w->pages[i].next = TW_NONE;
    }
    for (uint64_t i = 0; i < w->config.n_bind; i++) {
        w->rows[i].live = TW_NONE;
    }
    memset(w->uses, 0, (size_t)w->config.n_bind * w->n_threads * sizeof *w->uses);
    uint64_t n_words = (uint64_t)w->program->n_semaphores * w->program->n_sites;
    memset(w->words, 0, (size_t)n_words * sizeof *w->words);
    for (uint64_t i = 0; i < n_words; i++) {
        w->words[i].first = w->words[i].last = TW_NONE;
    }
}

static void reset(struct walk *w) {
    size_t per_thread = w->n_threads * sizeof(uint32_t);
    reset_engines(w);
    reset_objects(w);
    memset(w->last_snapshot, 0xFF, per_thread);
    memset(w->clocks, 0, per_thread * w->n_threads);
    memset(w->n_entries, 0, per_thread);
    memset(w->n_patches, 0, per_thread);
    memset(&w->checks, 0, sizeof w->checks);
    memset(&w->stats, 0, sizeof w->stats);
    w->n_events = w->n_snapshots = w->marks = 0;
    w->dynamic_depth = w->dynamic_serial = w->dynamic_pages = 0;
}

static int count_until_stable(struct walk *w) {
    int rc;
    /* terminates: every repetition marks at least one more READ, row or buffer, of which there are
     * finitely many */
    do {
        reset(w);
        rc = tw_walk_place_pinned(w);
        rc = rc ? rc : tw_walk_step(w);
    } while (rc == 0 && w->marks > 0);
    return rc;
}

static int store(struct walk *w, struct tw_plan *plan, struct tw_arena *a) {
    plan->stride = 1;
    for (uint32_t t = 0; t < w->n_threads; t++) {
        struct plan_thread *thread = &plan->threads[t];
        thread->n_entries = w->n_entries[t];
        thread->n_patches = w->n_patches[t];
        thread->entries =
            tw_arena_take(a, (uint64_t)thread->n_entries * sizeof *thread->entries, 64);
        thread->origins =
            tw_arena_take(a, (uint64_t)thread->n_entries * sizeof *thread->origins, 8);
        thread->patches =
            tw_arena_take(a, (uint64_t)thread->n_patches * sizeof *thread->patches, 64);
        plan->stride = thread->n_entries >= plan->stride ? thread->n_entries + 1 : plan->stride;
        if (!thread->entries || !thread->origins || !thread->patches) {
            return tw_fault_nomem(w->fault, a->size, a->used);
        }
    }
    w->plan = plan;
    reset(w);
    int rc = tw_walk_place_pinned(w);
    rc = rc ? rc : tw_walk_step(w);
    for (uint32_t t = 0; t < w->n_threads && rc == 0; t++) { /* as the counting pass found */
        TW_ASSERT(w->n_entries[t] == plan->threads[t].n_entries);
        TW_ASSERT(w->n_patches[t] == plan->threads[t].n_patches);
    }
    return rc;
}

static void finish(const struct walk *w, struct tw_plan *plan) {
    plan->checks = w->checks;
    plan->stats = w->stats;
    TW_ASSERT(plan->stride > 0 && w->marks == 0);
    uint32_t first = plan->config.first_epoch * plan->stride;
    plan->base = first - plan->stride; /* the first step begins at `first` */
    for (uint32_t t = 0; t < plan->n_threads; t++) {
        atomic_init(&plan->progress[t].count, first);
        for (uint32_t i = 0; i < plan->threads[t].n_entries; i++) {
            plan->stats.posts += plan->threads[t].entries[i].flags & PLAN_POST ? 1u : 0u;
        }
    }
}

static int build(struct walk *w, struct tw_arena *low, struct tw_plan **out) {
    struct tw_plan *plan = alloc_plan(w, low);
    if (!plan) {
        return tw_fault_nomem(w->fault, low->size, low->used);
    }
    alloc_sram(w, low);
    int rc = tw_walk_decode_text(w);
    if (rc != 0) {
        return rc;
    }
    tw_walk_find_shared(w);
    place_buffers(w, low);
    if (low->used > low->size) {
        return tw_fault_nomem(w->fault, low->size, low->used);
    }
    rc = count_until_stable(w);
    if (rc == 0) {
        rc = store(w, plan, low);
    }
    if (rc == 0) {
        finish(w, plan);
        *out = plan;
    }
    return rc;
}

static int check_threads(const struct tw_machine_config *config, uint32_t n_threads,
                         struct tw_fault *fault) {
    memset(fault, 0, sizeof *fault);
    if (n_threads == 0 || n_threads > PLAN_MAX_THREADS) {
        tw_fault_set(fault, "BadThreads", TW_NONE, n_threads, PLAN_MAX_THREADS);
        fault->code = TW_E_USAGE;
        return TW_E_USAGE;
    }
    bool ok = config->program->n_trips < PLAN_NO_TRIP;
    return ok ? 0
              : tw_fault_fail(fault, "BadTable", TW_NONE, config->program->n_trips, PLAN_NO_TRIP);
}

int tw_plan_build(const struct tw_machine_config *config, uint32_t n_threads,
                  struct tw_arena *arena, struct tw_plan **out, struct tw_fault *fault) {
    struct tw_fault ignored = {0};
    struct walk w;
    fault = fault ? fault : &ignored;
    int rc = check_threads(config, n_threads, fault);
    memset(&w, 0, sizeof w);
    w.config = *config;
    w.program = config->program;
    w.n_threads = n_threads;
    w.fault = fault;
    if (rc == 0) {
        rc = tw_walk_count_text(&w);
    }
    if (rc != 0) {
        return rc;
    }
    struct tw_arena counter = {NULL, 0, 0};
    alloc_scratch(&w, &counter);
    uint64_t high = counter.used, need = 0;
    bool fits = tw_add_u64(high, plan_bound(&w), &need) && tw_add_u64(need, arena->used, &need);
    if (!fits || !arena->base || need > arena->size) {
        uint64_t have = arena->size;
        arena->used = fits && need < SIZE_MAX ? (size_t)need : SIZE_MAX;
        return tw_fault_nomem(fault, have, arena->used);
    }
    TW_ASSERT(need <= arena->size && high <= arena->size);
    struct tw_arena low = {arena->base, arena->size - (size_t)high, arena->used};
    struct tw_arena top = {arena->base + low.size, (size_t)high, 0};
    alloc_scratch(&w, &top);
    rc = build(&w, &low, out);
    if (rc == 0) {
        TW_ASSERT(low.used <= low.size && top.used <= top.size); /* neither exceeded its bound */
        arena->used = low.used;
        rc = tw_bind_trip_minima(config, (*out)->trip_min, fault);
        rc = rc ? rc : tw_pages_find(config, &(*out)->pages, fault);
    }
    return rc;
}
