/* SPDX-License-Identifier: Apache-2.0
 *
 * Pinning of Params (compiler/low/pin_params.h). A pinned Param saves a load in every step, but no
 * program can use its bytes for anything else. So pinning gets a small part of the SRAM, and the
 * rest is left to pages of weights. The decision depends on graph and target alone, so it is the
 * same for every program.
 */
#include "compiler/low/pin_params.h"

#define SRAM_DIVISOR 8u

/* Vectors that MATH reads whole or in part; LAYER_NORM takes two in one go, from pages. */
static bool is_vector(const struct tw_gop *op, const struct tw_gvalue *v) {
    bool taken = op->kind == TW_GOP_RMS_NORM || op->kind == TW_GOP_ROPE_TABLE ||
                 op->kind == TW_GOP_BIAS || op->kind == TW_GOP_POS_SCALE;
    return taken && v->kind == TW_GV_WEIGHT && v->dtype == TW_DT_F32 && v->packing == TW_PACK_ROW;
}

static uint64_t params_limit(const struct tw_target *t) {
    uint32_t own = t->class_of[TW_HOLDS_PARAMS];
    bool alone = own != t->class_of[TW_HOLDS_PRIVATE] && own != t->class_of[TW_HOLDS_ACTIVATIONS] &&
                 own != t->class_of[TW_HOLDS_STATE];
    return alone ? t->class_bytes[own] : t->class_bytes[own] / SRAM_DIVISOR;
}

uint64_t tw_pin_params(struct tw_graph *graph, const struct tw_target *target) {
    uint64_t used = 0, limit = params_limit(target);
    for (uint32_t i = 0; i < graph->ops.n; i++) {
        const struct tw_gop *op = &graph->ops.items[i];
        struct tw_gvalue *v = op->in[1] == TW_NONE ? NULL : &graph->values.items[op->in[1]];
        if (!v || !is_vector(op, v) || v->resident) {
            continue;
        }
        uint64_t bytes = tw_pinned_stride(v) * v->instances;
        if (bytes <= limit - used) {
            v->resident = 1;
            used += bytes;
        }
    }
    return used;
}

uint64_t tw_pin_shared_bytes(const struct tw_graph *graph, const struct tw_target *target,
                             uint32_t mem_class, uint32_t rows) {
    bool params = target->class_of[TW_HOLDS_PARAMS] == mem_class,
         values = target->class_of[TW_HOLDS_ACTIVATIONS] == mem_class;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < graph->values.n; i++) {
        const struct tw_gvalue *v = &graph->values.items[i];
        if (v->resident) {
            bytes += params ? tw_pinned_stride(v) * v->instances : 0;
        } else if (v->shared && values) {
            uint64_t stride = (tw_row_bytes(v->dtype, (v->cols + 31) / 32 * 32) + 63) / 64 * 64;
            bytes += stride * (v->token_rows ? rows : 1);
        }
    }
    return bytes;
}
