/* SPDX-License-Identifier: Apache-2.0
 *
 * What both NEON tables have in common, that is, all but the quantised product: the sizes of tiles,
 * the lanes, and the vector kernels over them. Included by neon.c and neon_dot.c after their target
 * is set; there is no include guard because each compiles it for its own target.
 */
#define FLOAT_ROWS 6
#define FLOAT_MID_ROWS 2
#define FLOAT_PANELS 1
#define FLOAT_ROW_PANELS 2
#define QUANT_ROWS 4
#define QUANT_MID_ROWS 2
#define QUANT_PANELS 1
#define QUANT_ROW_PANELS 2
#define BLOCK_ROWS 4
#define BLOCK_MID_ROWS 2
#define BLOCK_PANELS 1
#define BLOCK_ROW_PANELS 2
#define ROW_PREFETCH 1024
#define ATTN_QUERIES 2
#define ATTN_GROUPS 2
#define ATTN_DIMS 2

#include "firmware/kernels/lanes_neon.h"

#include "firmware/kernels/vector_rows.h"

#include "firmware/kernels/vector_attn.h"

#include "firmware/kernels/vector_tile.h"

#include "firmware/kernels/ints_neon.h"

#include "firmware/kernels/planes_neon.h"
