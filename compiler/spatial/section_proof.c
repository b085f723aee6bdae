/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof of one section (section_proof.h).
 */
#include "compiler/spatial/section_proof.h"

#include "compiler/spatial/certify.h"
#include "compiler/spatial/compose.h"

#include <stdio.h>

int tw_section_prove(struct tw_builder *section, tw_error *err) {
    struct tw_builder alone;
    struct tw_builder *list[1] = {section};
    struct tw_certificate certificate;
    int rc = tw_compose(list, 1, section->name, &alone, err);
    if (rc) {
        return rc;
    }
    struct tw_program p = tw_builder_program(&alone);
    rc = tw_verify_program(&p, NULL, err);
    rc = rc ? rc : tw_certify(alone.mem, &p, &certificate, err);
    rc = rc ? rc : tw_check_section(&p, &certificate, NULL, err);
    if (rc == TW_E_VERIFY) {
        char name[100];
        snprintf(name, sizeof name, "section %.80s", section->name);
        tw_error_prefix(err, name);
    }
    return rc;
}
