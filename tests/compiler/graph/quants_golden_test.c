/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of quantised blocks (tilewright/quants.h) against a second description of each format,
 * written as the format's own: a walk over a block's bytes in the order of its elements. All blocks
 * of the shared models, and blocks of random bytes; every bit.
 */
#include "compiler/import/ggml_type.h"
#include "compiler/import/gguf.h"
#include "loader/base/file_map.h"
#include "tests/support/kernel_fixture.h"
#include "tests/support/test.h"
#include "tilewright/quants.h"

#include <dirent.h>
#include <math.h>

static float half_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return tw_f16_to_f32(h);
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

static void q4_0(const uint8_t *p, float *y) {
    for (int i = 0; i < 16; i++) {
        y[i] = half_at(p) * (float)((p[2 + i] & 15) - 8);
        y[i + 16] = half_at(p) * (float)((p[2 + i] >> 4) - 8);
    }
}

static void q8_0(const uint8_t *p, float *y) {
    for (int i = 0; i < 32; i++) {
        y[i] = half_at(p) * (float)(int8_t)p[2 + i];
    }
}

static void q4_1(const uint8_t *p, float *y) {
    for (int i = 0; i < 16; i++) {
        y[i] = half_at(p) * (float)(p[4 + i] & 15) + half_at(p + 2);
        y[i + 16] = half_at(p) * (float)(p[4 + i] >> 4) + half_at(p + 2);
    }
}

static int fifth(const uint8_t *high, int i) {
    uint32_t bits;
    memcpy(&bits, high, sizeof bits);
    return (int)(bits >> i & 1) * 16;
}

static void q5_0(const uint8_t *p, float *y) {
    for (int i = 0; i < 16; i++) {
        y[i] = half_at(p) * (float)((p[6 + i] & 15) + fifth(p + 2, i) - 16);
        y[i + 16] = half_at(p) * (float)((p[6 + i] >> 4) + fifth(p + 2, i + 16) - 16);
    }
}

static void q5_1(const uint8_t *p, float *y) {
    for (int i = 0; i < 16; i++) {
        y[i] = half_at(p) * (float)((p[8 + i] & 15) + fifth(p + 4, i)) + half_at(p + 2);
        y[i + 16] = half_at(p) * (float)((p[8 + i] >> 4) + fifth(p + 4, i + 16)) + half_at(p + 2);
    }
}

static void iq4_nl(const uint8_t *p, float *y) {
    for (int i = 0; i < 16; i++) {
        y[i] = half_at(p) * (float)iq4_values[p[2 + i] & 15];
        y[i + 16] = half_at(p) * (float)iq4_values[p[2 + i] >> 4];
    }
}

static float fp4_value(int nibble) {
    static const float magnitude[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    return nibble & 8 ? -magnitude[nibble & 7] : magnitude[nibble & 7];
}

static void mxfp4(const uint8_t *p, float *y) {
    for (int i = 0; i < 16; i++) {
        /* in double, as 2^128 is no float; + 0.0: the format has no negative zero */
        double d = ldexp(1.0, p[0] - 127);
        y[i] = (float)(d * (double)fp4_value(p[1 + i] & 15) + 0.0);
        y[i + 16] = (float)(d * (double)fp4_value(p[1 + i] >> 4) + 0.0);
    }
}

static void q2_k(const uint8_t *p, float *y) {
    const uint8_t *scale = p, *q = p + 16;
    for (int half = 0; half < 2; half++, q += 32) {
        for (int shift = 0; shift < 8; shift += 2) {
            for (int part = 0; part < 2; part++, scale++) {
                for (int l = 0; l < 16; l++) {
                    int v = q[16 * part + l] >> shift & 3;
                    *y++ = half_at(p + 80) * (float)(*scale & 15) * (float)v -
                           half_at(p + 82) * (float)(*scale >> 4);
                }
            }
        }
    }
}

/* The twelve bytes of scales as three words: four bytes at a time get their low nibbles from one of
 * two words and their high bits from the third. */
static void q3_k_scales(const uint8_t *p, int8_t scale[16]) {
    uint32_t in[3], out[4];
    memcpy(in, p, sizeof in);
    for (int w = 0; w < 4; w++) {
        uint32_t low = in[w & 1] >> (w < 2 ? 0 : 4) & 0x0F0F0F0Fu;
        out[w] = low | (in[2] >> (2 * w) & 0x03030303u) << 4;
    }
    memcpy(scale, out, sizeof out);
}

static void q3_k(const uint8_t *p, float *y) {
    const uint8_t *q = p + 32;
    int8_t scale[16];
    int j = 0, mask = 1;
    q3_k_scales(p + 96, scale);
    for (int half = 0; half < 2; half++, q += 32) {
        for (int shift = 0; shift < 8; shift += 2, mask <<= 1) {
            for (int part = 0; part < 2; part++, j++) {
                float d = half_at(p + 108) * (float)(scale[j] - 32);
                for (int l = 16 * part; l < 16 * part + 16; l++) {
                    *y++ = d * (float)((q[l] >> shift & 3) - (p[l] & mask ? 0 : 4));
                }
            }
        }
    }
}

static void scale_and_minimum(int j, const uint8_t *q, int *scale, int *minimum) {
    if (j < 4) {
        *scale = q[j] & 63;
        *minimum = q[j + 4] & 63;
    } else {
        *scale = (q[j + 4] & 15) | (q[j - 4] >> 6) << 4;
        *minimum = (q[j + 4] >> 4) | (q[j] >> 6) << 4;
    }
}

static void q45_k(const uint8_t *p, const uint8_t *high, const uint8_t *q, float *y) {
    for (int j = 0; j < 8; j++, q += j % 2 ? 0 : 32) {
        int scale, minimum;
        scale_and_minimum(j, p + 4, &scale, &minimum);
        for (int l = 0; l < 32; l++) {
            int v = (j % 2 ? q[l] >> 4 : q[l] & 15) + (high && high[l] >> j & 1 ? 16 : 0);
            *y++ = half_at(p) * (float)scale * (float)v - half_at(p + 2) * (float)minimum;
        }
    }
}

static void q4_k(const uint8_t *p, float *y) {
    q45_k(p, NULL, p + 16, y);
}

static void q5_k(const uint8_t *p, float *y) {
    q45_k(p, p + 16, p + 48, y);
}

static void q6_k(const uint8_t *p, float *y) {
    const uint8_t *low = p, *high = p + 128;
    const int8_t *scale = (const int8_t *)p + 192;
    for (int half = 0; half < 2; half++, y += 128, low += 64, high += 32, scale += 8) {
        for (int l = 0; l < 32; l++) {
            int v[4] = {
                (low[l] & 15) | (high[l] & 3) << 4, (low[l + 32] & 15) | (high[l] >> 2 & 3) << 4,
                low[l] >> 4 | (high[l] >> 4 & 3) << 4, low[l + 32] >> 4 | (high[l] >> 6 & 3) << 4};
            for (int n = 0; n < 4; n++) {
                y[l + 32 * n] =
                    half_at(p + 208) * (float)scale[l / 16 + 2 * n] * (float)(v[n] - 32);
            }
        }
    }
}

static void iq4_xs(const uint8_t *p, float *y) {
    const uint8_t *q = p + 8;
    for (int j = 0; j < 8; j++, q += 16, y += 32) {
        int low = p[4 + j / 2] >> (4 * (j % 2)) & 15, high = (p[2] | p[3] << 8) >> (2 * j) & 3;
        float d = half_at(p) * (float)((low | high << 4) - 32);
        for (int l = 0; l < 16; l++) {
            y[l] = d * (float)iq4_values[q[l] & 15];
            y[l + 16] = d * (float)iq4_values[q[l] >> 4];
        }
    }
}

static const struct {
    unsigned dtype;
    void (*floats)(const uint8_t *block, float *y);
} formats[] = {
    {TW_DT_Q8_0, q8_0},     {TW_DT_Q4_0, q4_0},     {TW_DT_Q4_1, q4_1},   {TW_DT_Q5_0, q5_0},
    {TW_DT_Q5_1, q5_1},     {TW_DT_IQ4_NL, iq4_nl}, {TW_DT_MXFP4, mxfp4}, {TW_DT_Q2_K, q2_k},
    {TW_DT_Q3_K, q3_k},     {TW_DT_Q4_K, q4_k},     {TW_DT_Q5_K, q5_k},   {TW_DT_Q6_K, q6_k},
    {TW_DT_IQ4_XS, iq4_xs},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

static bool both_nan(float a, float b) {
    return a != a && b != b;
}

static void check_block(size_t format, const uint8_t *bytes, const char *where) {
    struct tw_block block;
    float found[TW_SUPER_BLOCK], expected[TW_SUPER_BLOCK];
    tw_block_of_file(formats[format].dtype, bytes, &block);
    tw_block_floats(&block, block.elems, found);
    formats[format].floats(bytes, expected);
    for (uint32_t i = 0; i < block.elems; i++) {
        if (tw_float_bits(found[i]) != tw_float_bits(expected[i]) &&
            !both_nan(found[i], expected[i])) {
            fail_msg("%s, %s: element %u is %a, not %a", where,
                     tw_dtype_name(formats[format].dtype), i, (double)found[i],
                     (double)expected[i]);
        }
    }
}

static void random_blocks_have_the_values_of_their_format(void **state) {
    (void)state;
    struct fixture_random r = {51};
    for (size_t f = 0; f < N_FORMATS; f++) {
        uint32_t bytes = tw_dtype_block_bytes(formats[f].dtype);
        for (int n = 0; n < 2000; n++) {
            uint8_t *block = fixture_bytes(&r, bytes);
            check_block(f, block, "random bytes");
            free(block);
        }
    }
}

/* ---- the shared models ---- */

static size_t format_of(uint32_t ggml_type) {
    static const struct {
        uint32_t ggml_type;
        unsigned dtype;
    } numbers[] = {{2, TW_DT_Q4_0},  {3, TW_DT_Q4_1},  {6, TW_DT_Q5_0},    {7, TW_DT_Q5_1},
                   {8, TW_DT_Q8_0},  {10, TW_DT_Q2_K}, {11, TW_DT_Q3_K},   {12, TW_DT_Q4_K},
                   {13, TW_DT_Q5_K}, {14, TW_DT_Q6_K}, {20, TW_DT_IQ4_NL}, {23, TW_DT_IQ4_XS},
                   {39, TW_DT_MXFP4}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        for (size_t f = 0; numbers[i].ggml_type == ggml_type && f < N_FORMATS; f++) {
            if (formats[f].dtype == numbers[i].dtype) {
                return f;
            }
        }
    }
    return N_FORMATS;
}

static void check_file(const char *path, uint64_t blocks[N_FORMATS]) {
    struct tw_import_memory memory = {0};
    struct tw_file_map file = {0};
    struct tw_gguf gguf;
    tw_error err = {0};
    if (tw_file_map_open(path, &file, &err) ||
        tw_gguf_parse(path, file.bytes, file.size, &memory, &gguf, &err)) {
        fail_msg("%s: %s", path, err.message);
    }
    for (uint64_t t = 0; t < gguf.n_tensors; t++) {
        size_t f = format_of(gguf.tensors[t].type);
        uint64_t bytes = f < N_FORMATS ? tw_dtype_block_bytes(formats[f].dtype) : 0;
        for (uint64_t at = 0; bytes && at < gguf.tensors[t].bytes; at += bytes, blocks[f]++) {
            check_block(f, gguf.tensors[t].data + at, path);
        }
    }
    tw_import_free(&memory);
    tw_file_map_close(&file);
}

static void all_blocks_of_the_shared_models_have_the_values_of_their_format(void **state) {
    (void)state;
    uint64_t blocks[N_FORMATS] = {0};
    char folder[512], path[1024];
    const char *root = getenv("TW_SHARED");
    snprintf(folder, sizeof folder, "%s/data/arch", root ? root : "");
    DIR *dir = root ? opendir(folder) : NULL;
    if (!dir) {
        print_message("skipped: no $TW_SHARED/data/arch\n");
        skip();
    }
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        size_t length = strlen(e->d_name);
        if (length > 5 && strcmp(e->d_name + length - 5, ".gguf") == 0) {
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            check_file(path, blocks);
        }
    }
    closedir(dir);
    for (size_t f = 0; f < N_FORMATS; f++) {
        print_message("%s: %llu blocks\n", tw_dtype_name(formats[f].dtype),
                      (unsigned long long)blocks[f]);
        assert_true(blocks[f] > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_blocks_have_the_values_of_their_format),
        cmocka_unit_test(all_blocks_of_the_shared_models_have_the_values_of_their_format),
    };
    return cmocka_run_group_tests_name("quants golden", tests, NULL, NULL);
}
