/* SPDX-License-Identifier: Apache-2.0
 *
 * A port and a minimal driver for the tests of the server (server_client.h).
 */
#include "tests/support/server_client.h"

#include <malloc.h>
#include <stdlib.h>

static uint64_t port_alloc(void *ctx, uint64_t bytes, uint32_t align, bool zero) {
    struct client *c = ctx;
    void *p =
        c->no_memory || bytes > SIZE_MAX ? NULL : memalign(align < 64 ? 64 : align, (size_t)bytes);
    if (!p) {
        return 0;
    }
    memset(p, zero ? 0 : 0xA5, (size_t)bytes);
    c->live++;
    return (uintptr_t)p;
}

static void port_free(void *ctx, uint64_t address, uint64_t bytes, bool adopted) {
    struct client *c = ctx;
    (void)bytes;
    if (!adopted) {
        free((void *)(uintptr_t)address);
        c->live--;
    }
}

static void *port_map(void *ctx, uint64_t address) {
    (void)ctx;
    return (void *)(uintptr_t)address;
}

static uint32_t port_team(void *ctx, uint32_t n) {
    (void)ctx;
    (void)n;
    return 1;
}

static void port_run(void *ctx, struct tw_plan *plan, uint32_t n_threads) {
    (void)ctx;
    (void)n_threads;
    tw_plan_run(plan, 0, NULL, NULL);
}

void client_init(struct client *c, uint64_t memory_bytes) {
    memset(c, 0, sizeof *c);
    struct tw_server_port port = {.ctx = c,
                                  .alloc = port_alloc,
                                  .free = port_free,
                                  .map = port_map,
                                  .team = port_team,
                                  .run = port_run,
                                  .kernels = tw_kernel_table(TW_ISA_SCALAR),
                                  .memory_bytes = memory_bytes,
                                  .max_threads = 1,
                                  .target = "t",
                                  .device = "test"};
    tw_server_init(&c->server, &port);
}

void client_finish(struct client *c) {
    tw_server_reset(&c->server);
}

int client_call(struct client *c, enum tw_wire_opcode opcode, uint64_t address, const void *payload,
                uint32_t bytes) {
    uint8_t header[TW_WIRE_HEADER_BYTES];
    struct tw_wire_header h = {.version = 1,
                               .opcode = (uint8_t)opcode,
                               .sequence = ++c->sequence,
                               .address = address,
                               .length = bytes};
    tw_wire_encode(&h, header);
    tw_server_handle(&c->server, header, payload, bytes, &c->answer);
    const char *why;
    int bad = tw_wire_decode(c->answer.header, &c->header, &why);
    if (bad || c->header.sequence != h.sequence || c->header.opcode != opcode ||
        c->header.length != c->answer.length || c->header.flags != TW_WIRE_ANSWER) {
        abort(); /* an answer that no driver could accept */
    }
    return c->header.status;
}

const struct tw_wire_failure *client_failure(const struct client *c) {
    return c->answer.payload;
}

uint64_t client_alloc(struct client *c, uint64_t bytes) {
    struct tw_wire_alloc q = {.bytes = bytes, .align = 64, .flags = TW_WIRE_ALLOC_ZERO};
    return client_call(c, TW_WIRE_ALLOC, 0, &q, sizeof q) ? 0 : c->header.address;
}

void client_place_bigram(struct client *c, struct client_bigram *out) {
    static const uint32_t bytes[BIGRAM_BINDS] = {BIGRAM_ROWS * 4, 4, sizeof out->b.table,
                                                 BIGRAM_COLS * 4};
    bigram_init(&out->b);
    for (uint32_t i = 0; i < BIGRAM_BINDS; i++) {
        out->address[i] = client_alloc(c, bytes[i]);
    }
    client_call(c, TW_WIRE_WRITE, out->address[BIGRAM_TABLE], out->b.table, sizeof out->b.table);
    uint8_t *blob = bigram_blob(&out->b, &out->blob_bytes);
    out->blob = client_alloc(c, out->blob_bytes);
    out->bind = client_alloc(c, sizeof out->address);
    client_call(c, TW_WIRE_WRITE, out->blob, blob, out->blob_bytes);
    free(blob);
}

int client_bind_bigram(struct client *c, enum tw_wire_mode mode, struct client_bigram *out) {
    client_call(c, TW_WIRE_WRITE, out->bind, out->address, sizeof out->address);
    struct tw_wire_load q = {.blob = out->blob,
                             .blob_bytes = out->blob_bytes,
                             .bind = out->bind,
                             .n_bind = BIGRAM_BINDS,
                             .mode = mode};
    int code = client_call(c, TW_WIRE_LOAD, 0, &q, sizeof q);
    if (!code) {
        struct tw_wire_loaded loaded;
        memcpy(&loaded, c->answer.payload, sizeof loaded);
        out->program = loaded.program;
    }
    return code;
}

int client_load_bigram(struct client *c, enum tw_wire_mode mode, struct client_bigram *out) {
    client_place_bigram(c, out);
    return client_bind_bigram(c, mode, out);
}

int client_run_bigram(struct client *c, const struct client_bigram *g, const uint32_t *ids,
                      uint32_t rows, uint32_t n_steps, float *logits) {
    struct {
        struct tw_wire_run run;
        struct tw_wire_input in[2];
        uint32_t ids[BIGRAM_ROWS], rows;
        uint32_t pad;
    } q = {.run = {.program = g->program, .n_steps = n_steps, .n_inputs = 2},
           .in = {{.address = g->address[BIGRAM_IDS], .bytes = sizeof q.ids},
                  {.address = g->address[BIGRAM_VALID], .bytes = 4}},
           .rows = rows};
    memcpy(q.ids, ids, (rows < BIGRAM_ROWS ? rows : BIGRAM_ROWS) * sizeof *ids);
    int code = client_call(c, TW_WIRE_RUN, 0, &q, sizeof q - sizeof q.pad);
    if (code) {
        return code;
    }
    struct tw_wire_range r = {.bytes = BIGRAM_COLS * 4};
    code = client_call(c, TW_WIRE_READ, g->address[BIGRAM_LOGITS], &r, sizeof r);
    if (!code) {
        memcpy(logits, c->answer.payload, BIGRAM_COLS * 4);
    }
    return code;
}
