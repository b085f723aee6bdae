/* SPDX-License-Identifier: Apache-2.0
 *
 * Sections derived from sections: moved to other sites (everything that names a site, a group or a
 * sibling moves with it), under qualified names, or cut to some of their iterations. The result is
 * verified like any other section.
 */
#ifndef TW_COMPILER_SPATIAL_RETARGET_H
#define TW_COMPILER_SPATIAL_RETARGET_H

#include "compiler/spatial/program_builder.h"

/* What to change. */
struct tw_retarget {
    const struct tw_target *target; /* target of the result; NULL: the section's */
    uint32_t chip, x, y;            /* where the section's first site goes */
    const char *prefix;             /* of every name; NULL: none */
    uint32_t first, count;          /* iterations to keep; count 0: all */
};

/* Stores the derived section in *out, allocated in `mem`, with its names in `strings`; `section` is
 * unchanged. Ids of records do not change. Errors: target_mismatch (compose.h), INTERNAL (code that
 * does not decode, iterations that the section does not have). */
int tw_section_retarget(const struct tw_builder *section, const struct tw_retarget *how,
                        struct tw_cmem *mem, struct tw_strpool *strings, struct tw_builder *out,
                        tw_error *err);

#endif
