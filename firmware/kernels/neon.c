/* SPDX-License-Identifier: Apache-2.0
 *
 * The NEON table, for every 64-bit Arm processor: the vector kernels over four registers, quantised products by
 * widening multiplication.
 */
#include "firmware/kernels/internal.h"

#if TW_KERNELS_ARM64

#include <arm_neon.h>
#include <string.h>

#include "tilewright/numerics.h"

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

#include "firmware/kernels/quant_neon.h"

#include "firmware/kernels/vector_matmul.h"

const struct tw_kernel_table tw_kernels_neon = {"neon", {TW_VECTOR_KERNELS}};

#endif
