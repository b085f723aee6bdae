/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that is little but a rendezvous: on each site of a mesh the MATH engine executes one
 * small op, then all engines meet.
 */
#ifndef TW_TESTS_SUPPORT_MESH_BOUNDARY_H
#define TW_TESTS_SUPPORT_MESH_BOUNDARY_H

#include "compiler/spatial/compose.h"
#include "loader/target/target_open.h"

/* *program refers to the rest, which must stay where it is. */
struct mesh_boundary {
    struct tw_target target;
    struct tw_cmem mem;
    struct tw_strpool strings;
    struct tw_builder section, out;
    struct tw_program program;
};

/* Makes it for width x height sites of one chip. Errors: those of opening a target and composing;
 * mesh_boundary_finish() is legal then, too. */
int mesh_boundary_make(struct mesh_boundary *b, uint32_t width, uint32_t height, tw_error *err);
void mesh_boundary_finish(struct mesh_boundary *b);

#endif
