/* SPDX-License-Identifier: Apache-2.0
 *
 * Operands to kernel arguments, binding rows to addresses, trips to numbers (bind.h); driven by the
 * op table.
 */
#include "firmware/core/bind.h"

#include "firmware/core/machine_arena.h"
#include "firmware/core/pages.h"
#include "tilewright/range.h"

void tw_fault_set(struct tw_fault *fault, const char *what, uint32_t object, uint64_t have,
                  uint64_t need) {
    fault->code = TW_E_FAULT;
    fault->what = what;
    fault->object = object;
    fault->have = have;
    fault->need = need;
    fault->element = 0;
}

void tw_fault_set_nomem(struct tw_fault *fault, uint64_t have, uint64_t need) {
    memset(fault, 0, sizeof *fault);
    tw_fault_set(fault, "OutOfMemory", TW_NONE, have, need);
    fault->site = fault->engine = fault->op_index = fault->stage = TW_NONE;
    fault->code = TW_E_NOMEM;
}

void tw_fault_set_cancelled(struct tw_fault *fault) {
    tw_fault_set(fault, "Cancelled", TW_NONE, 0, 0);
    fault->code = TW_E_INTERRUPTED;
}

bool tw_group_has(const struct tw_program *p, uint32_t group, uint32_t site) {
    return tw_group_holds(p, &p->groups[group], site);
}

void tw_bind_constants(const struct tw_program *p, const struct tw_op *op, struct tw_kargs *k) {
    const struct tw_operand *rows = tw_op_rows(op), *pos = tw_op_position(op);
    uint32_t n_imm = 0, n_float = 0;
    memset(k, 0, sizeof *k);
    for (uint32_t n = 0; n < op->n_operands; n++) {
        const struct tw_operand *o = &op->operand[n];
        if (o->kind == 'I' && n_imm < TW_KARGS_IMMS) {
            k->i[n_imm++] = o->id;
        } else if (o->kind == 'E' && n_float < TW_KARGS_FLOATS) {
            k->f[n_float++] = tw_operand_float(o);
        } else if (tw_region_is_tensor(o->kind) && !k->tensor) {
            k->tensor = &p->tensors[o->id];
        }
    }
    k->rows = rows ? rows->max : 0;
    k->pos = pos ? pos->max : 0;
    if (op->code == TW_OP_MATMUL) {
        k->x_dtype = p->buffers[op->operand[TW_MATMUL_x].id].dtype;
    }
}

static bool is_bad(const uint8_t *at, bool state) {
    uint32_t bits;
    memcpy(&bits, at, sizeof bits);
    return (bits & 0x7F800000u) == 0x7F800000u && !(state && bits == 0xFF800000u);
}

/* Attention's state begins with a maximum of -infinity. Data that is only moved was checked where
 * it was computed. Blocks (struct tw_q8s, tw_q8k) begin with their scale. */
bool tw_bad_row(const struct tw_program *p, const struct tw_op *op, uint32_t n,
                struct tw_extent extent, const uint8_t *at, uint64_t *row) {
    const struct tw_operand *o = tw_op_region(op, n);
    bool computed = op->code == TW_OP_GATHER || op->code >= TW_OP_RMS_NORM;
    if (!computed || op->code == TW_OP_ATTN_INIT || (o->kind != 'W' && o->kind != 'M')) {
        return false;
    }
    bool state = op->code == TW_OP_ATTN_STEP || op->code == TW_OP_ATTN_WINDOW ||
                 op->code == TW_OP_ATTN_MERGE;
    uint32_t dtype = p->buffers[o->id].dtype;
    uint64_t step =
        dtype == TW_DT_F32 || tw_dtype_is_activation(dtype) ? tw_dtype_block_bytes(dtype) : 0;
    for (uint64_t r = 0; step && r < extent.rows; r++) {
        for (uint64_t i = 0; i + step <= extent.row_bytes; i += step) {
            if (is_bad(at + r * extent.stride + i, state)) {
                *row = r;
                return true;
            }
        }
    }
    return false;
}

uint8_t *tw_bind_tensor(const struct tw_machine_config *config, uint32_t tensor,
                        uint64_t instance) {
    const struct tw_tensor *t = &config->program->tensors[tensor];
    if (instance >= t->bind_count || (uint64_t)t->bind_first + instance >= config->n_bind) {
        return NULL;
    }
    return config->map(config->ctx, config->bind[t->bind_first + instance], t->bytes);
}

void tw_bind_copy_window(const struct tw_window *w, const uint8_t *instance, uint8_t *page) {
    for (uint64_t i = 0; i < w->rows; i++) {
        memcpy(page + i * w->row_bytes, instance + w->first + i * w->stride, (size_t)w->row_bytes);
    }
}

static int find_minimum(void *ctx, const struct tw_text_place *at, const struct tw_op *op,
                        struct tw_fault *fault) {
    uint32_t *min = ctx;
    (void)at;
    (void)fault;
    if (op->code == TW_OP_LAST_ROW && op->operand[TW_LAST_ROW_rows].id != TW_NONE) {
        min[op->operand[TW_LAST_ROW_rows].id] = 1;
    }
    return 0;
}

int tw_bind_trip_minima(const struct tw_machine_config *config, uint32_t *min,
                        struct tw_fault *fault) {
    memset(min, 0, config->program->n_trips * sizeof *min);
    return tw_text_walk(config, find_minimum, min, fault);
}

/* Copies are aligned as instances in device memory are (TW_WIRE_BIND_ALIGN): a READ of an Input may
 * be done in place, and then kernels work on the copy. */
#define COPY_ALIGN 64u

static uint64_t copy_bytes(const struct tw_tensor *t) {
    uint64_t bytes;
    return tw_align_u64(t->bytes, COPY_ALIGN, &bytes) ? bytes : UINT64_MAX;
}

uint8_t **tw_bind_take_inputs(const struct tw_program *program, struct tw_arena *arena) {
    uint8_t **inputs = tw_arena_zeroed(arena, program->n_tensors, sizeof *inputs, 8);
    for (uint32_t i = 0; i < program->n_tensors; i++) {
        const struct tw_tensor *t = &program->tensors[i];
        if (t->role == TW_ROLE_INPUT) {
            uint64_t bytes;
            bytes = tw_mul_u64(copy_bytes(t), t->bind_count, &bytes) ? bytes : UINT64_MAX;
            uint8_t *copy = tw_arena_take(arena, bytes, COPY_ALIGN);
            if (inputs) {
                inputs[i] = copy;
            }
        }
    }
    return inputs;
}

uint8_t *tw_bind_input(const struct tw_machine_config *config, uint8_t *const *inputs,
                       uint32_t tensor, uint8_t *at) {
    const struct tw_tensor *t = &config->program->tensors[tensor];
    for (uint32_t k = 0; inputs && inputs[tensor] && k < t->bind_count; k++) {
        const uint8_t *from = tw_bind_tensor(config, tensor, k);
        if (from && at >= from && at < from + t->bytes) {
            return inputs[tensor] + k * copy_bytes(t) + (at - from);
        }
    }
    return at;
}

static void copy_inputs(const struct tw_machine_config *config, uint8_t *const *inputs) {
    for (uint32_t i = 0; i < config->program->n_tensors; i++) {
        const struct tw_tensor *t = &config->program->tensors[i];
        for (uint32_t k = 0; inputs[i] && k < t->bind_count; k++) {
            const uint8_t *from = tw_bind_tensor(config, i, k);
            if (from) { /* else it has no address, and no op reads it */
                memcpy(inputs[i] + k * copy_bytes(t), from, (size_t)t->bytes);
            }
        }
    }
}

static int latch(const struct tw_machine_config *config, uint8_t *const *inputs, uint32_t index,
                 uint32_t min, uint32_t *out, struct tw_fault *fault) {
    const struct tw_trip *t = &config->program->trips[index];
    uint8_t *at = tw_bind_tensor(config, t->input, 0);
    at = at ? tw_bind_input(config, inputs, t->input, at) : NULL;
    int32_t x = -1;
    if (!at || t->div == 0) {
        return tw_fault_fail(fault, "InputRange", index, 0, 0);
    }
    memcpy(&x, at + (size_t)t->element * 4, sizeof x);
    int64_t value = tw_trip_result(t, x);
    if (t->clamp) {
        value = value < 0 ? 0 : value > t->max ? t->max : value;
    } else if (x < 0 || value < 0 || value > t->max) {
        return tw_fault_fail(fault, "InputRange", index, (uint64_t)(x < 0 ? x : value), t->max);
    }
    if (value < min) {
        return tw_fault_fail(fault, "InputRange", index, (uint64_t)value, min);
    }
    *out = (uint32_t)value;
    return 0;
}

int tw_bind_trips(const struct tw_machine_config *config, uint8_t *const *inputs,
                  const uint32_t *min, uint32_t *trips, struct tw_pages *pages,
                  struct tw_fault *fault) {
    int rc = 0;
    copy_inputs(config, inputs);
    for (uint32_t i = 0; i < config->program->n_trips && rc == 0; i++) {
        rc = latch(config, inputs, i, min[i], &trips[i], fault);
        if (rc != 0) {
            fault->site = fault->engine = fault->op_index = fault->stage = TW_NONE;
            fault->opcode = 0;
        }
    }
    return rc ? rc : tw_pages_check(config->program, pages, inputs, trips, fault);
}
