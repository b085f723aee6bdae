/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures MATMUL: for each instruction set and type of weights, and several k and numbers of rows,
 * the least ns of a call over weights that fit a core's cache, and with one row over weights that
 * fit no cache. Usage: kernel_bench [ISA [TYPE]]. tools/bench/kernels compares two builds.
 */
#include "firmware/kernels/kernels.h"
#include "loader/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CACHED ((size_t)192 << 10)
#define LARGE ((size_t)96 << 20)
#define ROWS 64u
#define HUGE_PAGE ((size_t)2 << 20)

struct product {
    unsigned dtype, x_dtype;
    uint32_t k, rows;
};

static size_t x_row(struct product p) {
    return (size_t)tw_row_bytes(p.x_dtype, p.k);
}

/* Huge pages, so that which lines share a set of the cache does not depend on luck. */
static char *huge(size_t bytes) {
    char *at = aligned_alloc(HUGE_PAGE, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (!at) {
        perror("kernel_bench");
        exit(1);
    }
    madvise(at, bytes, MADV_HUGEPAGE);
    memset(at, 0, bytes);
    return at;
}

static double call_ns(tw_kernel *kernel, const struct tw_kargs *a, unsigned calls) {
    uint64_t begin = tw_clock_ns();
    for (unsigned i = 0; i < calls; i++) {
        kernel(a);
    }
    return (double)(tw_clock_ns() - begin) / calls;
}

static double least_ns(tw_kernel *kernel, const struct tw_kargs *a, unsigned times) {
    double once = call_ns(kernel, a, 2), least = once;
    unsigned calls = (unsigned)(3e5 / once) + 1;
    for (unsigned i = 0; i < times; i++) {
        double ns = call_ns(kernel, a, calls);
        least = ns < least ? ns : least;
    }
    return least;
}

/* Prints a line for a product over about `bytes` of weights. */
static void measure(const struct tw_kernel_table *t, struct product p, const char *where,
                    size_t bytes, char *w, char *x, char *y) {
    size_t panel = (size_t)tw_panel_bytes(p.dtype, p.k);
    uint32_t panels = (uint32_t)(bytes / panel / 8 * 8);
    panels = panels < 8 ? 8 : panels;
    struct tw_kargs a = {.p = {x, w, y}, .rows = p.rows, .x_dtype = p.x_dtype};
    a.i[TW_MATMUL_IMM_x_stride] = (uint32_t)x_row(p);
    a.i[TW_MATMUL_IMM_w_stride] = (uint32_t)panel;
    a.i[TW_MATMUL_IMM_dtype] = p.dtype;
    a.i[TW_MATMUL_IMM_k] = p.k;
    a.i[TW_MATMUL_IMM_panels] = panels;
    a.i[TW_MATMUL_IMM_y_stride] = panels * TW_PANEL_ROWS * (uint32_t)sizeof(float);
    double ns = least_ns(t->fn[TW_OP_MATMUL], &a, bytes == CACHED ? 25 : 5);
    printf("%-8s %-7s k %-5u rows %-3u %-6s %12.0f ns %8.2f GB/s\n", t->name,
           tw_dtype_name(p.dtype), p.k, p.rows, where, ns, (double)panel * panels / ns);
    fflush(stdout);
}

static void measure_type(const struct tw_kernel_table *t, unsigned dtype, char *w, char *x,
                         char *y) {
    static const uint32_t ks[] = {256, 288, 768, 2048}, rows[] = {1, 4, 8, ROWS};
    uint32_t elems = tw_dtype_block_elems(dtype);
    unsigned x_dtype = elems == 1 ? TW_DT_F32 : elems == 32 ? TW_DT_Q8S : TW_DT_Q8K;
    for (size_t k = 0; k < sizeof ks / sizeof *ks; k++) {
        for (size_t r = 0; ks[k] % elems == 0 && r < sizeof rows / sizeof *rows; r++) {
            measure(t, (struct product){dtype, x_dtype, ks[k], rows[r]}, "cache", CACHED, w, x, y);
        }
        if (ks[k] % elems == 0) {
            measure(t, (struct product){dtype, x_dtype, ks[k], 1}, "memory", LARGE, w, x, y);
        }
    }
}

int main(int argc, char **argv) {
    static const unsigned dtypes[] = {TW_DT_F32,  TW_DT_F16,    TW_DT_BF16,   TW_DT_Q8_0,
                                      TW_DT_Q4_0, TW_DT_Q4_1,   TW_DT_Q5_0,   TW_DT_Q5_1,
                                      TW_DT_Q2_K, TW_DT_Q3_K,   TW_DT_Q4_K,   TW_DT_Q5_K,
                                      TW_DT_Q6_K, TW_DT_IQ4_NL, TW_DT_IQ4_XS, TW_DT_MXFP4};
    char *w = huge(LARGE + HUGE_PAGE), *x = huge(ROWS * 2048 * sizeof(float)), *y = huge(LARGE);
    for (unsigned isa = TW_ISA_AVX2; isa < TW_ISA_COUNT; isa++) {
        const struct tw_kernel_table *t = tw_kernel_table((enum tw_isa)isa);
        if (!t || (argc > 1 && strcmp(argv[1], t->name) != 0)) {
            continue;
        }
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
            if (argc < 3 || !strcmp(argv[2], tw_dtype_name(dtypes[i]))) {
                measure_type(t, dtypes[i], w, x, y);
            }
        }
    }
    free(w);
    free(x);
    free(y);
    return 0;
}
