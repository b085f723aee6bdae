/* SPDX-License-Identifier: Apache-2.0
 *
 * Random buffers and comparisons for the kernel tests.
 */
#include "tests/support/kernel_fixture.h"
#include "tests/support/panel_layout.h"
#include "tilewright/quants.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t fixture_next(struct fixture_random *r) {
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    uint32_t high = (uint32_t)(r->state >> 32);
    return high ^ high >> 15;
}

uint32_t fixture_below(struct fixture_random *r, uint32_t n) {
    return (uint32_t)(((uint64_t)fixture_next(r) * n) >> 32);
}

float fixture_unit(struct fixture_random *r) {
    return (float)(fixture_next(r) >> 8) / 8388608.0f - 1.0f;
}

void *fixture_alloc(size_t bytes) {
    void *p = memalign(64, bytes ? bytes : 1);
    if (!p) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        abort();
    }
    return p;
}

float *fixture_floats(struct fixture_random *r, size_t n) {
    float *f = (float *)fixture_alloc(n * sizeof *f);
    for (size_t i = 0; i < n; i++) {
        f[i] = fixture_unit(r);
    }
    return f;
}

uint8_t *fixture_bytes(struct fixture_random *r, size_t n) {
    uint8_t *b = (uint8_t *)fixture_alloc(n);
    for (size_t i = 0; i < n; i++) {
        b[i] = (uint8_t)fixture_next(r);
    }
    return b;
}

void *fixture_activations(struct fixture_random *r, unsigned dtype, uint32_t rows, uint32_t cols) {
    size_t n = (size_t)rows * cols;
    float *x = fixture_floats(r, n);
    if (dtype == TW_DT_F32) {
        return x;
    }
    uint32_t elems = tw_dtype_block_elems(dtype), bytes = tw_dtype_block_bytes(dtype);
    char *blocks = (char *)fixture_alloc(n / elems * bytes);
    for (size_t b = 0; b < n / elems; b++) {
        void *to = blocks + b * bytes;
        if (dtype == TW_DT_Q8S) {
            tw_quant_block(x + b * elems, (struct tw_q8s *)to);
        } else {
            tw_quant_block_q8k(x + b * elems, (struct tw_q8k *)to);
        }
    }
    free(x);
    return blocks;
}

static void store_u16(uint8_t *p, uint16_t v) {
    memcpy(p, &v, sizeof v);
}

uint8_t *fixture_panels(struct fixture_random *r, unsigned dtype, uint32_t k, uint32_t panels) {
    size_t panel_bytes = (size_t)tw_panel_bytes(dtype, k), n = panel_bytes * panels;
    uint8_t *w = fixture_bytes(r, n);
    if (dtype == TW_DT_F32) {
        for (size_t i = 0; i < n; i += 4) {
            float f = fixture_unit(r);
            memcpy(w + i, &f, sizeof f);
        }
        return w;
    }
    if (tw_dtype_block_elems(dtype) == 1) {
        for (size_t i = 0; i < n; i += 2) {
            float f = fixture_unit(r);
            store_u16(w + i, dtype == TW_DT_BF16 ? tw_f32_to_bf16(f) : tw_f32_to_f16(f));
        }
        return w;
    }
    uint32_t blocks = k / tw_dtype_block_elems(dtype);
    for (uint32_t b = 0; b < panels * blocks; b++) {
        uint8_t *scales = w + panel_bytes * (b / blocks) + panel_scales_at(dtype, b % blocks);
        for (uint32_t i = 0; i < panel_halves(dtype); i++) {
            store_u16(scales + (size_t)i * 2, tw_f32_to_f16(0.01f * fixture_unit(r)));
        }
        for (uint32_t i = 0; dtype == TW_DT_MXFP4 && i < TW_PANEL_ROWS; i++) {
            scales[i] = (uint8_t)(110 + fixture_below(r, 20));
        }
    }
    return w;
}

void fixture_scalar(uint32_t op, const struct tw_kargs *args) {
    tw_kernel_table(TW_ISA_SCALAR)->fn[op](args);
}

static bool is_nan_bits(uint32_t u) {
    return (u & 0x7FFFFFFFu) > 0x7F800000u;
}

/* Index of the first word that differs, or bytes / 4. */
static size_t first_difference(const void *found, const void *expected, size_t bytes,
                               enum fixture_kind kind) {
    size_t i = 0;
    for (; i < bytes / 4; i++) {
        uint32_t f, e;
        memcpy(&f, (const char *)found + i * 4, 4);
        memcpy(&e, (const char *)expected + i * 4, 4);
        if (f != e && !(kind == FIXTURE_FLOATS && is_nan_bits(f) && is_nan_bits(e))) {
            break;
        }
    }
    return i;
}

static bool describe(const void *found, const void *expected, size_t bytes, enum fixture_kind kind,
                     const char *isa, const char *what, char message[FIXTURE_MESSAGE]) {
    size_t i =
        memcmp(found, expected, bytes) ? first_difference(found, expected, bytes, kind) : bytes / 4;
    if (i == bytes / 4) {
        return false;
    }
    uint32_t f, e;
    memcpy(&f, (const char *)found + i * 4, 4);
    memcpy(&e, (const char *)expected + i * 4, 4);
    snprintf(message, FIXTURE_MESSAGE,
             "%s: %s: word %zu of %zu is 0x%08lx (%g), scalar has 0x%08lx (%g)", what, isa, i,
             bytes / 4, (unsigned long)f, (double)tw_bits_float(f), (unsigned long)e,
             (double)tw_bits_float(e));
    return true;
}

bool fixture_differs(uint32_t op, const struct tw_kargs *args, unsigned out, size_t bytes,
                     enum fixture_kind kind, const char *what, char message[FIXTURE_MESSAGE]) {
    void *before = fixture_alloc(bytes), *copy = fixture_alloc(bytes);
    bool differs = false;
    memcpy(before, args->p[out], bytes);
    fixture_scalar(op, args);
    for (int isa = TW_ISA_SCALAR + 1; isa < TW_ISA_COUNT && !differs; isa++) {
        const struct tw_kernel_table *table = tw_kernel_table((enum tw_isa)isa);
        if (!table) {
            continue;
        }
        struct tw_kargs a = *args;
        memcpy(copy, before, bytes);
        a.p[out] = copy;
        table->fn[op](&a);
        differs = describe(copy, args->p[out], bytes, kind, table->name, what, message);
    }
    free(copy);
    free(before);
    return differs;
}
