/* SPDX-License-Identifier: Apache-2.0
 *
 * Exact copies of programs, and seeded changes of single words in their tables and streams.
 */
#ifndef TW_TESTS_SUPPORT_PROGRAM_MUTATE_H
#define TW_TESTS_SUPPORT_PROGRAM_MUTATE_H

#include "tilewright/machine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Returns a copy whose tables are allocations of their exact sizes, so that a sanitizer sees an
 * access past the end. */
static inline void *exact_clone(const void *from, size_t bytes) {
    void *to = malloc(bytes ? bytes : 1);
    assert(to);
    memcpy(to, from, bytes);
    return to;
}

struct exact {
    struct tw_program p;
    struct {
        void *bytes;
        size_t size;
    } part[16];
    uint32_t n_parts;
};

static inline void *exact_part(struct exact *x, const void *from, size_t size) {
    x->part[x->n_parts].bytes = exact_clone(from, size);
    x->part[x->n_parts].size = size;
    return x->part[x->n_parts++].bytes;
}

static inline struct exact *exact_copy(const struct tw_program *p) {
    struct exact *x = calloc(1, sizeof *x);
    assert(x);
    x->p = *p;
    x->p.tensors = exact_part(x, p->tensors, p->n_tensors * sizeof *p->tensors);
    x->p.buffers = exact_part(x, p->buffers, p->n_buffers * sizeof *p->buffers);
    x->p.semaphores = exact_part(x, p->semaphores, p->n_semaphores * sizeof *p->semaphores);
    x->p.groups = exact_part(x, p->groups, p->n_groups * sizeof *p->groups);
    x->p.trips = exact_part(x, p->trips, p->n_trips * sizeof *p->trips);
    x->p.stages = exact_part(x, p->stages, p->n_stages * sizeof *p->stages);
    x->p.sections = exact_part(x, p->sections, p->n_sections * sizeof *p->sections);
    x->p.strings = exact_part(x, p->strings, p->strings_bytes);
    struct tw_stream *streams =
        exact_clone(p->streams, p->n_sites * TW_ENGINE_COUNT * sizeof *p->streams);
    for (uint32_t i = 0; i < p->n_sites * TW_ENGINE_COUNT; i++) {
        streams[i].words = exact_part(x, p->streams[i].words, (size_t)p->streams[i].n_words * 4);
    }
    x->p.streams = streams;
    return x;
}

static inline void exact_free(struct exact *x) {
    for (uint32_t i = 0; i < x->n_parts; i++) {
        free(x->part[i].bytes);
    }
    free((void *)(uintptr_t)x->p.streams);
    free(x);
}

static inline uint64_t mutate_random(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Streams are the last parts and most of the bytes; half of the changes go to the tables. */
static inline void exact_mutate(struct exact *x, uint64_t *seed) {
    static const uint32_t values[] = {0, 1, 0x7FFFFFFF, 0x80000000, TW_NONE, 64, 4096};
    uint64_t r = mutate_random(seed);
    uint32_t n =
        r & 1 ? (uint32_t)(r >> 8) % x->n_parts : 8 + (uint32_t)(r >> 8) % (x->n_parts - 8);
    size_t words = x->part[n].size / 4;
    if (words == 0) {
        return;
    }
    uint8_t *at = (uint8_t *)x->part[n].bytes + mutate_random(seed) % words * 4;
    uint32_t word;
    memcpy(&word, at, 4);
    r = mutate_random(seed);
    switch (r % 3) {
    case 0:
        word ^= 1u << (r >> 8) % 32;
        break;
    case 1:
        word += r & 16 ? 1 : (uint32_t)-1;
        break;
    default:
        word = values[(r >> 8) % 7];
        break;
    }
    memcpy(at, &word, 4);
}

#endif
