/* SPDX-License-Identifier: Apache-2.0
 *
 * Built as the compiler builds sections, without a graph.
 */
#include "tests/support/mesh_boundary.h"

#include <string.h>

static void add_site(struct mesh_boundary *b, uint32_t site) {
    *TW_VEC_PUSH(&b->mem, b->section.buffers) = (struct tw_buffer){.site = site,
                                                                   .kind = TW_BUF_SCRATCH,
                                                                   .dtype = TW_DT_F32,
                                                                   .pages = 1,
                                                                   .page_bytes = 64,
                                                                   .sibling_base = TW_NONE,
                                                                   .tensor = TW_NONE};
    *TW_VEC_PUSH(&b->mem, b->section.stages) =
        (struct tw_stage){.kind = TW_STAGE_COMPUTE, .site = site, .engine = TW_ENGINE_MATH};
    tw_builder_attn_init(&b->section, site, TW_ENGINE_MATH, site,
                         tw_in_buffer(site, tw_affine_const(0)), 1u, 14u, tw_count_const(1u));
}

int mesh_boundary_make(struct mesh_boundary *b, uint32_t width, uint32_t height, tw_error *err) {
    struct tw_builder *list[1] = {&b->section};
    memset(b, 0, sizeof *b);
    int code = tw_target_open("grid8x8", 0, &b->target, err);
    code = code ? code : tw_cmem_init(&b->mem, err);
    if (code) {
        return code;
    }
    b->target.width = width;
    b->target.height = height;
    b->strings.mem = &b->mem;
    tw_builder_init(&b->section, &b->mem, &b->strings, &b->target, "empty", 1);
    tw_builder_all_sites(&b->section);
    for (uint32_t site = 0; site < width * height; site++) {
        add_site(b, site);
    }
    b->section.private_bytes = 64;
    code = tw_compose(list, 1, "boundary", &b->out, err);
    if (!code) {
        b->program = tw_builder_program(&b->out);
    }
    return code;
}

void mesh_boundary_finish(struct mesh_boundary *b) {
    tw_cmem_finish(&b->mem);
}
