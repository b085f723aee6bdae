/* SPDX-License-Identifier: Apache-2.0
 *
 * Page tables: which elements of its tables a program uses, found once in its text, and the check
 * of their page numbers when a step begins. Freestanding; memory comes from an arena.
 */
#ifndef TW_FIRMWARE_CORE_PAGES_H
#define TW_FIRMWARE_CORE_PAGES_H

#include "firmware/core/bind.h"

/* The kernel argument with which a KEY_WRITE or VALUE_WRITE finds its pages (kernels.h). */
#define TW_PAGES_ARG TW_KEY_WRITE_REGION_COUNT

/* The elements that an op uses: base + sum of step * iteration of the loops around it, all of them
 * or, if a loop or the op has a trip that is 0, none; of a cache write, those of the positions pos
 * .. pos + rows - 1 from there on. */
struct tw_page_use {
    uint32_t tensor, table;
    uint64_t base;
    uint32_t writes, is_cache, n_loops;
    struct {
        uint32_t trip, max; /* the trip, or TW_NONE and the count */
        uint64_t step;
    } loop[TW_MAX_VARS];
    struct {
        uint32_t trip, max;
    } pos, rows;
    /* of the first op that has this use; not compared */
    uint32_t site, engine, op_index, opcode, stage;
};

/* Who has a page of a tensor in the current step: the last element of a table that a write uses,
 * and which of the page's positions the writes of all its elements use: bit i is position i; all,
 * in pages of rows. */
struct tw_page_owner {
    uint32_t step, table;
    uint64_t element, positions;
};

struct tw_pages {
    struct tw_page_use *uses;
    uint32_t n, room;
    struct tw_page_owner **owners; /* by tensor; NULL: it has no pages */
    uint32_t step;
};

/* Counts the operands of the text that name pages, at most TW_MAX_PAGE_USES. Faults: those of
 * tw_text_walk. */
int tw_pages_count(const struct tw_machine_config *config, uint32_t *n, struct tw_fault *fault);
/* Takes memory for that many uses; while the arena only counts, *out is not usable. */
void tw_pages_take(const struct tw_program *program, uint32_t n, struct tw_arena *arena,
                   struct tw_pages *out);
/* Fills in the uses. Fault: TooManyChecks. */
int tw_pages_find(const struct tw_machine_config *config, struct tw_pages *pages,
                  struct tw_fault *fault);
/* Checks the elements that the coming step uses against the latched tables. Faults, with the place
 * of an op that uses the element: PageOutOfRange (have: the page number, need: the number of pages;
 * or the element does not exist in its row of the table: have: its place there, need: the row's
 * length) and PageShared (two elements, of which a write uses one, name one page of a tensor, and
 * are not in one column of one table, or writes of both use one position: have: the page, need: the
 * other element). Linear in the elements used; changes nothing but the owners. */
int tw_pages_check(const struct tw_program *program, struct tw_pages *pages, uint8_t *const *inputs,
                   const uint32_t *trips, struct tw_fault *fault);

/* Stores the page number at an element of a latched table, after the same checks as above, which
 * strict execution repeats for each op. Fault: PageOutOfRange. */
int tw_pages_look_up(const struct tw_program *program, uint8_t *const *inputs, uint32_t tensor,
                     uint32_t table, uint64_t element, uint32_t *page, struct tw_fault *fault);

#endif
