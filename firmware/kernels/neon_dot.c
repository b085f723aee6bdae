/* SPDX-License-Identifier: Apache-2.0
 *
 * The NEON table for processors with the dot product of Armv8.2 (Cortex-A55 and A76, Neoverse N1, Apple M1, and later):
 * neon.c with another quantised product. The target is set by pragma, so that the file needs no flags of its own; it
 * must not run before dispatch.c has asked the processor.
 */
#include "firmware/kernels/internal.h"

#if TW_KERNELS_ARM64_DOT

#include <arm_neon.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif

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

#include "firmware/kernels/quant_neon_dot.h"

#include "firmware/kernels/vector_matmul.h"

const struct tw_kernel_table tw_kernels_neon_dot = {"neon-dot", {TW_VECTOR_KERNELS}};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
