/* SPDX-License-Identifier: Apache-2.0
 *
 * The content of a replay plan: for each host thread a straight array of entries, resolved to
 * pointers. Written by the plan builder, read by replay.c.
 */
#ifndef TW_FIRMWARE_CORE_PLAN_PLAN_H
#define TW_FIRMWARE_CORE_PLAN_PLAN_H

#include "firmware/core/pages.h"

#include <stdatomic.h>

#define PLAN_MAX_THREADS 256u
#define PLAN_NO_TRIP 0xFFFFu
#define PLAN_WAITS 12u  /* maximum number of other threads that one entry waits for */
#define PLAN_CHECKS 64u /* maximum number of distinct checks of input values before a step */

enum plan_kind {
    PLAN_CALL = 0, /* a kernel call, complete */
    /* a kernel call with counts or addresses that depend on trips or dynamic loops */
    PLAN_PATCHED = 1,
    PLAN_WAIT = 2, /* waits until other threads have completed some of their entries */
    /* dynamic loop: the entries up to its PLAN_END are repeated as often as the trip says */
    PLAN_LOOP = 3,
    PLAN_END = 4
};

/* flag: publish the thread's progress after this entry because another thread waits for it */
#define PLAN_POST 1u
/* flags of calls that take long: check for cancellation before the call; run it in parts
 * (kernel_parts.h) */
#define PLAN_LOOK 2u
#define PLAN_PARTS 4u

/* One condition of a PLAN_WAIT. */
struct plan_wait {
    uint32_t thread, count; /* until `thread` has completed its first `count` entries */
};

/* Content of PLAN_LOOP and PLAN_END. */
struct plan_loop {
    uint32_t trip, max, level, other; /* other: index of the matching PLAN_END or PLAN_LOOP */
};

/* One entry of a thread: two cache lines where pointers have 64 bits. */
struct plan_entry {
    uint8_t kind, flags, code, n; /* n: number of waits, or of address patches */
    uint32_t site;
    uint32_t first_patch;
    uint16_t rows_trip, pos_trip; /* PLAN_NO_TRIP: use the number in the arguments */
    union {
        struct {
            tw_kernel *fn;
            struct tw_kargs args;
        } call;
        struct plan_wait wait[PLAN_WAITS];
        struct plan_loop loop;
    } u;
};
TW_STATIC_ASSERT(sizeof(void *) != 8 || sizeof(struct plan_entry) == 128, "plan entry");

/* target += step * iteration of the dynamic loop at nesting level `level`. A target is a pointer
 * (below TW_KARGS_REGIONS), args.block, or the element of a page table, which ELEMENT_BASE has set
 * to `step` before; then PAGE + n adds step, the bytes of a page, times the page number at that
 * element of the latched table `level` to pointer n. */
#define PLAN_PATCH_BLOCK TW_KARGS_REGIONS
#define PLAN_PATCH_ELEMENT_BASE (TW_KARGS_REGIONS + 1u)
#define PLAN_PATCH_ELEMENT (TW_KARGS_REGIONS + 2u)
#define PLAN_PATCH_PAGE (TW_KARGS_REGIONS + 3u)
struct plan_patch {
    uint32_t target, level;
    uint64_t step;
};

/* The op that an entry came from, for observers; engine TW_NONE: none. */
struct plan_origin {
    uint32_t engine, op_index;
};

/* The entries of one host thread. */
struct plan_thread {
    struct plan_entry *entries;
    struct plan_origin *origins; /* [n_entries] */
    struct plan_patch *patches;
    uint32_t n_entries, n_patches;
};

/* A thread's count of completed entries, which other threads wait for, and the entry that it is
 * executing, for observers; each in a cache line of its own. */
struct plan_progress {
    _Atomic uint32_t count;
    uint8_t pad[60];
    _Atomic uint32_t at;
    uint8_t pad_at[60];
};

/* Position of a thread's entries when one host thread runs all of them in turns
 * (tw_plan_check_numbers). */
struct plan_cursor {
    uint32_t at, iteration[TW_MAX_VARS];
};

/* Check before a step that ids[0 .. rows) < limit. */
struct plan_id_check {
    const uint8_t *ids;
    uint32_t rows, limit, object;
    uint16_t rows_trip;
};
/* Check before a step that pos + rows <= limit. */
struct plan_pos_check {
    uint32_t pos, rows, limit, object;
    uint16_t pos_trip, rows_trip;
};
struct plan_checks {
    uint32_t n_ids, n_pos;
    struct plan_id_check ids[PLAN_CHECKS];
    struct plan_pos_check pos[PLAN_CHECKS];
};

/* A plan. Only tw_plan_begin() changes it between steps; during a step each thread writes its own
 * progress, and `cut` if it is cancelled. */
struct tw_plan {
    struct tw_machine_config config;
    _Atomic uint32_t cut; /* 1: a thread has left the step before its end, and all others must */
    uint32_t n_threads;
    /* progress counts start at `base` in this step, and `stride` later in each following step */
    uint32_t base, stride;
    struct plan_thread *threads;
    struct plan_progress *progress;
    struct plan_cursor *cursors; /* [n_threads] */
    uint32_t *trips, *trip_min;  /* latched; the minimum of each */
    uint8_t **inputs;            /* tw_bind_take_inputs */
    struct tw_pages pages;
    struct plan_checks checks;
    struct tw_plan_stats stats;
};

#endif
