/* SPDX-License-Identifier: Apache-2.0
 *
 * What both NEON tables are made of, but for the quantised product: the tiles' shapes, the lanes,
 * and the vector kernels over them. Included by neon.c and neon_dot.c behind their target, and no
 * guard: each compiles it for its own.
 */
#define FLOAT_ROWS 6
#define FLOAT_MID_ROWS 2
#define FLOAT_PANELS 1
#define FLOAT_ROW_PANELS 2
#define QUANT_ROWS 4
#define QUANT_MID_ROWS 2
#define QUANT_PANELS 1
#define QUANT_ROW_PANELS 2
#define ROW_PREFETCH 1024
#define ATTN_QUERIES 2
#define ATTN_GROUPS 2
#define ATTN_DIMS 2

#include "firmware/kernels/lanes_neon.h"

#include "firmware/kernels/vector_rows.h"

#include "firmware/kernels/vector_attn.h"

#include "firmware/kernels/vector_tile.h"

#include "firmware/kernels/ints_neon.h"
