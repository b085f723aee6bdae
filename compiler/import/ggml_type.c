/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of GGUF tensor types (ggml_type.h), indexed by the number that files store.
 */
#include "compiler/import/ggml_type.h"

#include "tilewright/machine.h"

#include <stddef.h>

static const struct tw_ggml_type types[] = {
    [0] = {"F32", 1, 4, TW_DT_F32},
    [1] = {"F16", 1, 2, TW_DT_F16},
    [2] = {"Q4_0", 32, 18, TW_DT_Q4_0},
    [3] = {"Q4_1", 32, 20, TW_DT_Q4_1},
    [4] = {"Q4_2 (removed)", 0, 0, -1},
    [5] = {"Q4_3 (removed)", 0, 0, -1},
    [6] = {"Q5_0", 32, 22, TW_DT_Q5_0},
    [7] = {"Q5_1", 32, 24, TW_DT_Q5_1},
    [8] = {"Q8_0", 32, 34, TW_DT_Q8_0},
    [9] = {"Q8_1", 32, 36, -1},
    [10] = {"Q2_K", 256, 84, TW_DT_Q2_K},
    [11] = {"Q3_K", 256, 110, TW_DT_Q3_K},
    [12] = {"Q4_K", 256, 144, TW_DT_Q4_K},
    [13] = {"Q5_K", 256, 176, TW_DT_Q5_K},
    [14] = {"Q6_K", 256, 210, TW_DT_Q6_K},
    [15] = {"Q8_K", 256, 292, -1},
    [16] = {"IQ2_XXS", 256, 66, -1},
    [17] = {"IQ2_XS", 256, 74, -1},
    [18] = {"IQ3_XXS", 256, 98, -1},
    [19] = {"IQ1_S", 256, 50, -1},
    [20] = {"IQ4_NL", 32, 18, TW_DT_IQ4_NL},
    [21] = {"IQ3_S", 256, 110, -1},
    [22] = {"IQ2_S", 256, 82, -1},
    [23] = {"IQ4_XS", 256, 136, TW_DT_IQ4_XS},
    [24] = {"I8", 1, 1, -1},
    [25] = {"I16", 1, 2, -1},
    [26] = {"I32", 1, 4, -1},
    [27] = {"I64", 1, 8, -1},
    [28] = {"F64", 1, 8, -1},
    [29] = {"IQ1_M", 256, 56, -1},
    [30] = {"BF16", 1, 2, TW_DT_BF16},
    [31] = {"Q4_0_4_4 (removed)", 0, 0, -1},
    [32] = {"Q4_0_4_8 (removed)", 0, 0, -1},
    [33] = {"Q4_0_8_8 (removed)", 0, 0, -1},
    [34] = {"TQ1_0", 256, 54, -1},
    [35] = {"TQ2_0", 256, 66, -1},
    [36] = {"IQ4_NL_4_4 (removed)", 0, 0, -1},
    [37] = {"IQ4_NL_4_8 (removed)", 0, 0, -1},
    [38] = {"IQ4_NL_8_8 (removed)", 0, 0, -1},
    [39] = {"MXFP4", 32, 17, TW_DT_MXFP4},
    [40] = {"NVFP4", 64, 36, -1},
    [41] = {"Q1_0", 0, 0, -1},
    [42] = {"Q2_0", 0, 0, -1},
};

const struct tw_ggml_type *tw_ggml_type_of(uint32_t number) {
    return number < sizeof types / sizeof types[0] ? &types[number] : NULL;
}
