/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs sent to a command server (load_program.h).
 */
#include "tests/support/load_program.h"

#include "tilewright/progblob.h"

#include <stdlib.h>

static uint64_t round_up(uint64_t bytes) {
    return (bytes + TW_WIRE_BIND_ALIGN - 1) / TW_WIRE_BIND_ALIGN * TW_WIRE_BIND_ALIGN;
}

/* Returns the number of binding rows that the program names. */
static uint64_t count_rows(const struct tw_program *p) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        uint64_t end = (uint64_t)p->tensors[i].bind_first + p->tensors[i].bind_count;
        n = p->tensors[i].bind_count && end > n ? end : n;
    }
    return n;
}

/* Gives each row as much memory as the largest tensor that names it. rows[] gets sizes, then the
 * offsets; returns the sum. */
static uint64_t lay_out(const struct tw_program *p, uint64_t *rows, uint64_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct tw_tensor *t = &p->tensors[i];
        for (uint32_t k = 0; k < t->bind_count; k++) {
            uint64_t *row = &rows[t->bind_first + k];
            *row = t->bytes > *row ? t->bytes : *row;
        }
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t bytes = rows[i];
        rows[i] = sum;
        sum += round_up(bytes);
    }
    return sum;
}

static void fill_inputs(struct client *c, const struct tw_program *p, const uint64_t *rows) {
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct tw_tensor *t = &p->tensors[i];
        for (uint32_t k = 0; t->role == TW_ROLE_INPUT && k < t->bind_count; k++) {
            for (uint64_t at = 0; at + 4 <= t->bytes; at += 4) {
                static const uint32_t one = 1;
                client_call(c, TW_WIRE_WRITE, rows[t->bind_first + k] + at, &one, 4);
            }
        }
    }
}

static uint64_t send(struct client *c, const void *bytes, uint64_t n) {
    uint64_t at = client_alloc(c, n ? n : 4);
    return at && (n == 0 || client_call(c, TW_WIRE_WRITE, at, bytes, (uint32_t)n) == 0) ? at : 0;
}

bool load_program_place(struct client *c, const struct tw_program *p,
                        const struct tw_certificate *certificate, struct tw_wire_load *q) {
    uint64_t n = count_rows(p), *rows = calloc(n + 1, sizeof *rows);
    uint32_t bytes = tw_progblob_bytes(p, true);
    uint8_t *blob = aligned_alloc(64, round_up(bytes));
    tw_progblob_write(p, true, blob);
    uint64_t memory = client_alloc(c, lay_out(p, rows, n));
    for (uint64_t i = 0; i < n; i++) {
        rows[i] += memory;
    }
    fill_inputs(c, p, rows);
    *q =
        (struct tw_wire_load){.blob = send(c, blob, bytes),
                              .blob_bytes = bytes,
                              .bind = send(c, rows, n * sizeof *rows),
                              .n_bind = n,
                              .certificate = send(c, certificate->words, certificate->n_words * 4u),
                              .certificate_bytes = certificate->n_words * 4u,
                              .step_ops = certificate->step_ops};
    free(blob);
    free(rows);
    return memory && q->blob && q->bind && q->certificate;
}

int load_program_load(struct client *c, const struct tw_wire_load *q, uint32_t *number) {
    int code = client_call(c, TW_WIRE_LOAD, 0, q, sizeof *q);
    if (!code) {
        struct tw_wire_loaded loaded;
        memcpy(&loaded, c->answer.payload, sizeof loaded);
        *number = loaded.program;
    }
    return code;
}

int load_program_step(struct client *c, uint32_t number) {
    struct tw_wire_run run = {.program = number, .n_steps = 1};
    return client_call(c, TW_WIRE_RUN, 0, &run, sizeof run);
}
