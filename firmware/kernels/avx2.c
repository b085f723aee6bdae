/* SPDX-License-Identifier: Apache-2.0
 *
 * The AVX2 table (with FMA and F16C): the vector kernels over pairs of registers, quantised
 * products in 16-bit parts. A pragma sets the target, so that the file needs no compiler flags of
 * its own; its code must not run before dispatch.c has checked the processor.
 */
#include "firmware/kernels/internal.h"

#if TW_KERNELS_X86

#include <immintrin.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#include "tilewright/quants.h"

#define FLOAT_ROWS 6
#define FLOAT_MID_ROWS 2
#define FLOAT_PANELS 1
#define FLOAT_ROW_PANELS 4
#define QUANT_ROWS 8
#define QUANT_MID_ROWS 2
#define QUANT_PANELS 1
#define QUANT_ROW_PANELS 2
#define BLOCK_ROWS 4
#define BLOCK_MID_ROWS 2
#define BLOCK_PANELS 1
#define BLOCK_ROW_PANELS 2
#define ROW_PREFETCH 2048
#define ATTN_QUERIES 2
#define ATTN_GROUPS 2
#define ATTN_DIMS 2

#include "firmware/kernels/lanes_avx2.h"

#include "firmware/kernels/vector_rows.h"

#include "firmware/kernels/vector_attn.h"

#include "firmware/kernels/vector_tile.h"

#include "firmware/kernels/quant_avx2.h"

#include "firmware/kernels/planes_avx2.h"

#include "firmware/kernels/vector_matmul.h"

const struct tw_kernel_table tw_kernels_avx2 = {"avx2", {TW_VECTOR_KERNELS}};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
