/* SPDX-License-Identifier: Apache-2.0
 *
 * The shipped model on the tile machine (model_machine.h).
 */
#include "tests/support/model_machine.h"

#include "driver/session/session.h"
#include "tests/support/model_fixture.h"

#include <stdlib.h>

static void *map(void *ctx, uint64_t address, uint64_t size) {
    const struct model_machine *m = ctx;
    return tw_device_map(m->rig.device, address, size);
}

static void *tensor_data(const struct model_machine *m, uint32_t t, uint32_t instance) {
    const struct tw_tensor *x = &m->config.program->tensors[t];
    void *p = map((void *)(uintptr_t)m, m->config.bind[x->bind_first + instance], x->bytes);
    if (!p) {
        fprintf(stderr, "model machine: tensor %u has no memory\n", t);
        abort();
    }
    return p;
}

static void *named(const struct model_machine *m, const char *name) {
    const struct tw_program *p = m->config.program;
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        if (strcmp(tw_program_string(p, p->tensors[t].name), name) == 0) {
            return tensor_data(m, t, 0);
        }
    }
    return NULL;
}

/* Page i of the caches is number i. */
static void set_pages(const struct model_machine *m) {
    uint32_t *page = named(m, TW_PAGE_TABLE);
    for (uint32_t i = 0; page && i < m->n_pages; i++) {
        page[i] = i;
    }
}

/* Copies all bytes of a role to `to`, or clears them where it is NULL; how many they are. */
static size_t each_byte(const struct model_machine *m, enum tw_role role, uint8_t *to, bool clear) {
    const struct tw_program *p = m->config.program;
    size_t n = 0;
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        for (uint32_t i = 0; p->tensors[t].role == role && i < p->tensors[t].bind_count; i++) {
            if (clear) {
                memset(tensor_data(m, t, i), 0, (size_t)p->tensors[t].bytes);
            } else if (to) {
                memcpy(to + n, tensor_data(m, t, i), (size_t)p->tensors[t].bytes);
            }
            n += (size_t)p->tensors[t].bytes;
        }
    }
    return n;
}

void model_machine_open(struct model_machine *m, const char *target) {
    memset(m, 0, sizeof *m);
    rig_open(&m->rig, target, 1, NULL);
    const struct tw_session *s = m->rig.session;
    const struct tw_executor *x = s->executor;
    m->config = (struct tw_machine_config){.program = x->decode.program,
                                           .bind = x->bind,
                                           .n_bind = m->rig.decoder->bundle.n_bind_rows,
                                           .map = map,
                                           .ctx = m,
                                           .kernels = tw_kernel_table_best()};
    m->n_vocab = s->n_vocab;
    m->ids = named(m, "ids");
    m->pos = named(m, "pos");
    m->rows = named(m, "rows");
    m->end = named(m, "end");
    m->logits = named(m, "logits");
    m->n_pages = (m->rig.decoder->bundle.note->n_ctx + TW_KV_BLOCK - 1) / TW_KV_BLOCK;
    set_pages(m);
    m->output_bytes = each_byte(m, TW_ROLE_OUTPUT, NULL, false);
    m->state_bytes = each_byte(m, TW_ROLE_STATE, NULL, false);
    if (!m->ids || !m->logits || m->state_bytes == 0) {
        fprintf(stderr, "model machine: a tensor is missing\n");
        abort();
    }
}

void model_machine_close(struct model_machine *m) {
    rig_close(&m->rig);
}

void model_trace_finish(struct model_trace *t) {
    free(t->ids);
    free(t->outputs);
    free(t->state);
    memset(t, 0, sizeof *t);
}

static void set(uint32_t *input, uint32_t value) {
    if (input) {
        *input = value;
    }
}

int model_machine_decode(struct model_machine *m, model_step *step, void *ctx, uint32_t n,
                         struct model_trace *out) {
    *out = (struct model_trace){n, malloc(n * sizeof *out->ids), malloc(n * m->output_bytes),
                                malloc(m->state_bytes)};
    each_byte(m, TW_ROLE_STATE, NULL, true);
    each_byte(m, TW_ROLE_OUTPUT, NULL, true);
    uint32_t id = 1;
    for (uint32_t i = 0; i < n; i++) {
        set(m->ids, id);
        set(m->pos, i);
        set(m->rows, 1);
        set(m->end, i + 1);
        int rc = step(ctx, i);
        if (rc != 0) {
            return rc;
        }
        id = best_token(m->logits, m->n_vocab);
        out->ids[i] = id;
        each_byte(m, TW_ROLE_OUTPUT, out->outputs + i * m->output_bytes, false);
    }
    each_byte(m, TW_ROLE_STATE, out->state, false);
    return 0;
}

uint32_t model_trace_compare(const struct model_machine *m, const struct model_trace *a,
                             const struct model_trace *b) {
    for (uint32_t i = 0; i < a->n; i++) {
        size_t at = i * m->output_bytes;
        if (a->ids[i] != b->ids[i] ||
            memcmp(a->outputs + at, b->outputs + at, m->output_bytes) != 0) {
            return i;
        }
    }
    return memcmp(a->state, b->state, m->state_bytes) == 0 ? UINT32_MAX : a->n;
}
