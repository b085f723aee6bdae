/* SPDX-License-Identifier: Apache-2.0
 *
 * Composition: sections become one persistent step of the decoder. Names unify tensors, ids shift, a repeated section is wrapped in
 * its loop, and a rendezvous of all engines closes every section. Sections are joined without being derived again.
 */
#ifndef TW_SPATIAL_COMPOSE_H
#define TW_SPATIAL_COMPOSE_H

#include "compiler/spatial/unit.h"

/* Joins `sections` into `out` (named `name`) over the same target and rows. Errors: PLACEMENT (activations and private memory exceed the
 * SRAM: names the section, need and have), INTERNAL (names that do not unify). */
int tw_compose(struct tw_unit *const *sections, uint32_t n, const char *name, struct tw_unit *out, tw_error *err);

#endif
