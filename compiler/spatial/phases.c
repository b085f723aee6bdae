/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts a phase whose sections repeat different numbers of times: each part ends where the first of
 * its sections ends.
 */
#include "compiler/spatial/phases.h"

#include "compiler/spatial/retarget.h"

uint32_t tw_phase_size(const struct tw_composition *c, uint32_t first) {
    uint32_t n = 1;
    while (first + n < c->n && tw_phase_of(c, first + n) == tw_phase_of(c, first)) {
        n++;
    }
    return n;
}

struct expansion {
    TW_VEC(struct tw_builder *) sections;
    TW_VEC(uint32_t) phases;
};

static int add_cut(struct tw_builder *section, uint32_t done, uint32_t count, uint32_t phase,
                   struct expansion *out, tw_error *err) {
    struct tw_builder *part = section;
    int rc = 0;
    if (count != section->repeat) {
        struct tw_retarget how = {.first = done, .count = count};
        part = tw_cmem_alloc(section->mem, sizeof *part);
        rc = tw_section_retarget(section, &how, section->mem, section->strings, part, err);
    }
    *TW_VEC_PUSH(section->mem, out->sections) = part;
    *TW_VEC_PUSH(section->mem, out->phases) = phase;
    return rc;
}

/* Cuts sections [first, first + n) of one phase into phases. Each runs until the first of its
 * sections is finished; the next one continues with the others. */
static int cut_phase(const struct tw_composition *c, uint32_t first, uint32_t n, uint32_t *phase,
                     struct expansion *out, tw_error *err) {
    uint32_t done = 0, next;
    int rc = 0;
    do {
        next = UINT32_MAX;
        for (uint32_t i = first; i < first + n; i++) {
            uint32_t repeat = c->sections[i]->repeat;
            next = repeat > done && repeat < next ? repeat : next;
        }
        for (uint32_t i = first; i < first + n && next != UINT32_MAX && rc == 0; i++) {
            if (c->sections[i]->repeat > done) {
                rc = add_cut(c->sections[i], done, next - done, *phase, out, err);
            }
        }
        *phase += next != UINT32_MAX;
        done = next;
    } while (next != UINT32_MAX && rc == 0);
    return rc;
}

int tw_phases_cut(const struct tw_composition *c, struct tw_composition *out, tw_error *err) {
    struct expansion e = {.sections = {.n = 0}};
    uint32_t phase = 0;
    int rc = 0;
    for (uint32_t first = 0; first < c->n && rc == 0;) {
        uint32_t n = tw_phase_size(c, first);
        rc = cut_phase(c, first, n, &phase, &e, err);
        first += n;
    }
    *out = *c;
    out->sections = e.sections.items;
    out->phases = e.phases.items;
    out->n = e.sections.n;
    return rc;
}
