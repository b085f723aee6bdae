/* SPDX-License-Identifier: Apache-2.0
 *
 * The NEON table, for every 64-bit Arm processor: the vector kernels over four registers, quantised
 * products by widening multiplication.
 */
#include "firmware/kernels/internal.h"

#if TW_KERNELS_ARM64

#include <arm_neon.h>
#include <string.h>

#include "tilewright/quants.h"

#include "firmware/kernels/table_neon.h"

#include "firmware/kernels/quant_neon.h"

#include "firmware/kernels/vector_matmul.h"

const struct tw_kernel_table tw_kernels_neon = {"neon", {TW_VECTOR_KERNELS}};

#endif
