/* SPDX-License-Identifier: Apache-2.0
 *
 * The AVX-512 table (F, BW, VL, DQ, VNNI): the vector kernels over one register of 16 lanes, with
 * VNNI for quantised products. A pragma sets the target, so that the file needs no compiler flags
 * of its own; its code must not run before dispatch.c has checked the processor.
 */
#include "firmware/kernels/internal.h"

#if TW_KERNELS_X86

#include <immintrin.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(                                                               \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#endif

#include "tilewright/quants.h"

#define FLOAT_ROWS 12
#define FLOAT_MID_ROWS 4
#define FLOAT_PANELS 2
#define FLOAT_ROW_PANELS 4
#define QUANT_ROWS 8
#define QUANT_MID_ROWS 4
#define QUANT_PANELS 2
#define QUANT_ROW_PANELS 4
#define BLOCK_ROWS 8
#define BLOCK_MID_ROWS 4
#define BLOCK_PANELS 1
#define BLOCK_ROW_PANELS 4
#define ROW_PREFETCH 2048
#define ATTN_QUERIES 4
#define ATTN_GROUPS 4
#define ATTN_DIMS 4

#include "firmware/kernels/lanes_avx512.h"

#include "firmware/kernels/vector_rows.h"

#include "firmware/kernels/vector_attn.h"

#include "firmware/kernels/vector_tile.h"

#include "firmware/kernels/quant_avx512.h"

#include "firmware/kernels/planes_avx512.h"

#include "firmware/kernels/vector_matmul.h"

const struct tw_kernel_table tw_kernels_avx512 = {"avx512", {TW_VECTOR_KERNELS}};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
