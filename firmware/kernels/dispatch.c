/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects, at run time, the kernel tables that this processor can run.
 */
#include "firmware/kernels/internal.h"

#if TW_KERNELS_X86
#include <cpuid.h>

/* clang 14 does not know "f16c" in __builtin_cpu_supports. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

#if TW_KERNELS_ARM64_DOT
/* The identification register; Linux emulates it for user programs, too (since 4.11). */
static bool has_dot(void) {
    uint64_t features = 0;
#if defined(__linux__) || !__STDC_HOSTED__
    __asm__("mrs %0, id_aa64isar0_el1" : "=r"(features));
#endif
    return (features >> 44 & 15) != 0;
}
#endif

/* NULL if this build or this processor does not support the instruction set. */
const struct tw_kernel_table *tw_kernel_table(enum tw_isa isa) {
    switch (isa) {
    case TW_ISA_SCALAR:
        return &tw_kernels_scalar;
    case TW_ISA_AVX2:
#if TW_KERNELS_X86
        __builtin_cpu_init();
        return has_avx2() ? &tw_kernels_avx2 : NULL;
#else
        break;
#endif
    case TW_ISA_AVX512:
#if TW_KERNELS_X86
        __builtin_cpu_init();
        return has_avx512() ? &tw_kernels_avx512 : NULL;
#else
        break;
#endif
    case TW_ISA_NEON:
#if TW_KERNELS_ARM64
        return &tw_kernels_neon; /* every processor of the architecture has it */
#else
        break;
#endif
    case TW_ISA_NEON_DOT:
#if TW_KERNELS_ARM64_DOT
        return has_dot() ? &tw_kernels_neon_dot : NULL;
#else
        break;
#endif
    case TW_ISA_COUNT:
        break;
    }
    return NULL;
}

const struct tw_kernel_table *tw_kernel_table_best(void) {
    for (int isa = TW_ISA_COUNT - 1; isa > TW_ISA_SCALAR; isa--) {
        const struct tw_kernel_table *t = tw_kernel_table((enum tw_isa)isa);
        if (t) {
            return t;
        }
    }
    return &tw_kernels_scalar;
}
