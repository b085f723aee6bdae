/* SPDX-License-Identifier: Apache-2.0
 *
 * Sections made anew from sections: moved to other sites (everything that names a site, a group or a sibling moves with it), under
 * qualified names, or cut to some of their iterations. What comes out is checked like any section, by the verifier.
 */
#ifndef TW_SPATIAL_REWRITE_H
#define TW_SPATIAL_REWRITE_H

#include "compiler/spatial/unit.h"

struct tw_rewrite {
    const struct tw_target *target; /* of the result; NULL: the section's */
    uint32_t chip, x, y;            /* where the section's first site goes */
    const char *prefix;             /* of every name; NULL: none */
    uint32_t first, count;          /* iterations; count 0: all */
};

/* Ids stay what they are. Errors: target_mismatch (compose.h),
 * INTERNAL (code that does not decode, iterations that the section does not have). */
int tw_section_rewrite(const struct tw_unit *section, const struct tw_rewrite *how, struct tw_cmem *mem,
                       struct tw_strpool *strings, struct tw_unit *out, tw_error *err);

#endif
