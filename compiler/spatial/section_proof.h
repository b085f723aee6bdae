/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof of one section, before it is composed with others: an error is found where it was made,
 * and a section that is repeated for every layer is judged once.
 */
#ifndef TW_COMPILER_SPATIAL_SECTION_PROOF_H
#define TW_COMPILER_SPATIAL_SECTION_PROOF_H

#include "compiler/spatial/program_builder.h"

/* Composes a section with nothing but itself, and checks that it obeys the structural rules, has a
 * certificate, and keeps the rules of the order (tw_check_section). Memory is taken from the
 * section's arena. Errors: those of composition; VERIFY, naming the rule and the section. */
int tw_section_prove(struct tw_builder *section, tw_error *err);

#endif
