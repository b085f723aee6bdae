/* SPDX-License-Identifier: Apache-2.0
 *
 * The NEON table for processors with the dot product of Armv8.2 (Cortex-A55 and A76, Neoverse N1,
 * Apple M1, and later): neon.c with a different quantised product. A pragma sets the target, so
 * that the file needs no compiler flags of its own; its code must not run before dispatch.c has
 * checked the processor.
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

#include "tilewright/quants.h"

#include "firmware/kernels/table_neon.h"

#include "firmware/kernels/quant_neon_dot.h"

#include "firmware/kernels/vector_matmul.h"

const struct tw_kernel_table tw_kernels_neon_dot = {"neon-dot", {TW_VECTOR_KERNELS}};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
