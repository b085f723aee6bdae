/* SPDX-License-Identifier: Apache-2.0
 *
 * Operands to kernel arguments, binding rows to addresses, trips to numbers (bind.h); driven by the
 * op table.
 */
#include "firmware/core/bind.h"

void tw_fault_set(struct tw_fault *fault, const char *what, uint32_t object, uint64_t have,
                  uint64_t need) {
    fault->code = TW_E_FAULT;
    fault->what = what;
    fault->object = object;
    fault->have = have;
    fault->need = need;
}

void tw_fault_set_nomem(struct tw_fault *fault, uint64_t have, uint64_t need) {
    memset(fault, 0, sizeof *fault);
    tw_fault_set(fault, "OutOfMemory", TW_NONE, have, need);
    fault->site = fault->engine = fault->op_index = fault->stage = TW_NONE;
    fault->code = TW_E_NOMEM;
}

bool tw_group_has(const struct tw_program *p, uint32_t group, uint32_t site) {
    return tw_group_holds(p, &p->groups[group], site);
}

bool tw_region_reads(const struct tw_op *op, uint32_t region) {
    char kind = tw_op_region(op, region)->kind;
    bool fresh = op->code == TW_OP_MATMUL && kind == 'M' && tw_op_imm(op, 5) == 0;
    return kind == 'R' || kind == 'T' || (kind == 'M' && !fresh);
}

void tw_bind_constants(const struct tw_program *p, const struct tw_op *op, struct tw_kargs *k) {
    uint32_t n_imm = 0, n_count = 0;
    memset(k, 0, sizeof *k);
    for (uint32_t n = 0; n < op->n_operands; n++) {
        const struct tw_operand *o = &op->operand[n];
        if (o->kind == 'I' && n_imm < TW_KARGS_IMMS) {
            k->i[n_imm++] = o->id;
        } else if (o->kind == 'E') {
            k->f = tw_operand_float(o);
        } else if (o->kind == 'X') {
            k->pos = n_count++ ? k->rows : 0;
            k->rows = o->max;
        } else if (tw_region_is_tensor(o->kind) && !k->tensor) {
            k->tensor = &p->tensors[o->id];
        }
    }
    if (op->code == TW_OP_MATMUL) {
        k->x_dtype = p->buffers[tw_op_region(op, 0)->id].dtype;
    }
}

uint8_t *tw_bind_tensor(const struct tw_machine_config *config, uint32_t tensor,
                        uint64_t instance) {
    const struct tw_tensor *t = &config->program->tensors[tensor];
    if (instance >= t->bind_count || (uint64_t)t->bind_first + instance >= config->n_bind) {
        return NULL;
    }
    return config->map(config->ctx, config->bind[t->bind_first + instance], t->bytes);
}

static int latch(const struct tw_machine_config *config, uint32_t index, uint32_t *out,
                 struct tw_fault *fault) {
    const struct tw_trip *t = &config->program->trips[index];
    const uint8_t *at = tw_bind_tensor(config, t->input, 0);
    int32_t x = -1;
    if (!at || t->div == 0) {
        return tw_fault_fail(fault, "InputRange", index, 0, 0);
    }
    memcpy(&x, at, sizeof x);
    uint64_t value = ((uint64_t)(uint32_t)x + t->add + t->div - 1) / t->div;
    if (x < 0 || value > t->max) {
        return tw_fault_fail(fault, "InputRange", index, x < 0 ? (uint64_t)(int64_t)x : value,
                             t->max);
    }
    *out = (uint32_t)value;
    return 0;
}

int tw_bind_trips(const struct tw_machine_config *config, uint32_t *trips, struct tw_fault *fault) {
    int rc = 0;
    for (uint32_t i = 0; i < config->program->n_trips && rc == 0; i++) {
        rc = latch(config, i, &trips[i], fault);
        if (rc != 0) {
            fault->site = fault->engine = fault->op_index = fault->stage = TW_NONE;
            fault->opcode = 0;
        }
    }
    return rc;
}
