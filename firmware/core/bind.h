/* SPDX-License-Identifier: Apache-2.0
 *
 * What strict execution and the plan builder share: the walk over a program's text, the binding of
 * an op's operands to kernel arguments, the addresses of binding rows, and the latching of
 * trips.
 */
#ifndef TW_FIRMWARE_CORE_BIND_H
#define TW_FIRMWARE_CORE_BIND_H

#include "firmware/core/tile_machine.h"
#include "loader/base/assert.h"
#include "tilewright/footprint.h"

/* Sets a fault's name and the numbers compared; the caller sets the place. The value of
 * tw_fault_fail is TW_E_FAULT, that of tw_fault_nomem TW_E_NOMEM (have, need: bytes), that of
 * tw_fault_cancelled TW_E_INTERRUPTED (what = Cancelled), as in `return tw_fault_fail(...)`
 * (tilewright/error.h). */
void tw_fault_set(struct tw_fault *fault, const char *what, uint32_t object, uint64_t have,
                  uint64_t need);
void tw_fault_set_nomem(struct tw_fault *fault, uint64_t have, uint64_t need);
void tw_fault_set_cancelled(struct tw_fault *fault);
#define tw_fault_fail(fault, what, object, have, need) \
    (tw_fault_set((fault), (what), (object), (have), (need)), TW_E_FAULT)
#define tw_fault_nomem(fault, have, need) (tw_fault_set_nomem((fault), (have), (need)), TW_E_NOMEM)
#define tw_fault_cancelled(fault) (tw_fault_set_cancelled(fault), TW_E_INTERRUPTED)

/* Streams are numbered by site, then by engine. */
static inline uint32_t tw_stream_site(uint32_t stream) {
    return stream / TW_ENGINE_COUNT;
}
static inline uint32_t tw_stream_engine(uint32_t stream) {
    return stream % TW_ENGINE_COUNT;
}

/* Returns true if the group has the site as a member. */
bool tw_group_has(const struct tw_program *p, uint32_t group, uint32_t site);
static inline uint32_t tw_chip_of(const struct tw_program *p, uint32_t site) {
    return site / p->mesh_width / p->mesh_height;
}

/* Position of an op in the text of its stream. */
struct tw_text_place {
    uint32_t stream, index, word; /* index counts ops, word words */
    uint32_t depth, dynamic;      /* open loops around it; how many of them have a trip */
    uint32_t match;               /* END: index of its LOOP */
    /* executions per step: the product of the constant loops around it */
    uint64_t times;
};

/* Checks the tables of the program and every op of its text: that it decodes, may run on its
 * engine, names only ids inside their tables, that loops nest and do not reuse variables, and that
 * data ops have a kernel. Calls visit (may be NULL) for each op in order of (site, engine, text).
 * Returns 0, what visit returned if not 0, or FAULT with what = BadOp or BadTable. */
typedef int tw_text_visit(void *ctx, const struct tw_text_place *place, const struct tw_op *op,
                          struct tw_fault *fault);
int tw_text_walk(const struct tw_machine_config *config, tw_text_visit *visit, void *ctx,
                 struct tw_fault *fault);

static inline bool tw_region_writes(char kind) {
    return kind == 'W' || kind == 'M' || kind == 'D' || kind == 'U';
}
static inline bool tw_region_is_tensor(char kind) {
    return kind == 'T' || kind == 'U';
}

/* Fills in the kernel arguments that do not depend on loop variables or trips: immediates, float,
 * dtype of x, tensor, and constant counts (of others the maximum). */
void tw_bind_constants(const struct tw_program *p, const struct tw_op *op, struct tw_kargs *k);

/* Returns true if an op has just written an infinity or NaN to its n-th region, and sets *row to
 * the first row with one. Checks only results of computations, in buffers of F32, Q8S or Q8K. */
bool tw_bad_row(const struct tw_program *p, const struct tw_op *op, uint32_t n,
                struct tw_extent extent, const uint8_t *at, uint64_t *row);

/* Returns the value of a count. */
static inline uint32_t tw_bind_count(const struct tw_operand *x, const uint32_t *trips) {
    TW_ASSERT(x && (x->id == TW_NONE || trips));
    return x->id == TW_NONE ? x->max : trips[x->id];
}

/* Returns the host address of one instance of a tensor, or NULL if there is no such binding row or
 * it does not lie in device memory. */
uint8_t *tw_bind_tensor(const struct tw_machine_config *config, uint32_t tensor, uint64_t instance);

/* Copies the window of an instance to a page, without gaps. */
void tw_bind_copy_window(const struct tw_window *w, const uint8_t *instance, uint8_t *page);

/* Finds the minimum of each trip that the program's ops allow: 1 where it is the row count of a
 * LAST_ROW, which needs a last row, else 0. `min` has an entry for each trip. Faults as
 * tw_text_walk. */
int tw_bind_trip_minima(const struct tw_machine_config *config, uint32_t *min,
                        struct tw_fault *fault);
/* Allocates room for copies of the Inputs, which control a step (ids, positions, counts). The host
 * can change the device's memory at any time, so a step checks and uses only the copies made at its
 * begin. Returns an array by tensor: all instances one after the other, each aligned as in device
 * memory, or NULL if it is not an Input. Returns NULL while the arena only counts. */
uint8_t **tw_bind_take_inputs(const struct tw_program *program, struct tw_arena *arena);
/* Returns the copy of what lies at `at`, inside an instance of the tensor, or `at` if there is
 * none. */
uint8_t *tw_bind_input(const struct tw_machine_config *config, uint8_t *const *inputs,
                       uint32_t tensor, uint8_t *at);

/* Copies the Inputs of the coming step, then reads its trips from the copies and checks them
 * against their minima and maxima, and the page numbers that the step uses (pages.h). Faults:
 * InputRange, PageOutOfRange, PageShared. */
struct tw_pages;
int tw_bind_trips(const struct tw_machine_config *config, uint8_t *const *inputs,
                  const uint32_t *min, uint32_t *trips, struct tw_pages *pages,
                  struct tw_fault *fault);

#endif
