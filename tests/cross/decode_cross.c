/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole model on the firmware alone, without driver and loader: reads an image (image.h) from
 * standard input, writes it to a command server, and decodes some tokens greedily on the device, in
 * strict mode and in fast mode with each kernel table of this processor. Prints "ok"/"not ok"
 * lines, and a line "same decode ..." that is the same on every machine.
 */
#include "tests/cross/image.h"
#include "tests/support/server_client.h"

#include <stdlib.h>
#include <string.h>

static struct client client;

/* Returns the next part of the image. */
static void *take(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p || fread(p, 1, bytes, stdin) != bytes) {
        printf("not ok the image is truncated, or does not fit into memory\n");
        exit(1);
    }
    return p;
}

static void require(int code, const char *what) {
    if (code) {
        printf("not ok %s: status %d, %s\n", what, code, client_failure(&client)->what);
        exit(1);
    }
}

struct placed {
    struct cross_image head;
    struct cross_segment *segments;
    struct cross_bind *bind;
    uint64_t *address, *rows; /* of segments; of binding rows, as the device gets them */
    uint64_t blob, bind_address;
    uint8_t *request; /* as in the image: with binding rows in place of addresses */
};

static uint64_t place(const void *bytes, uint64_t n) {
    uint64_t address = client_alloc(&client, n);
    require(address ? 0 : client.header.status, "alloc");
    if (bytes) {
        require(client_call(&client, TW_WIRE_WRITE, address, bytes, (uint32_t)n), "write");
    }
    return address;
}

static void read_image(struct placed *p) {
    struct cross_image *head = take(sizeof *head);
    p->head = *head;
    free(head);
    if (p->head.magic != CROSS_MAGIC) {
        printf("not ok standard input is not an image of tests/cross/image_dump\n");
        exit(1);
    }
    p->segments = take(p->head.n_segments * sizeof *p->segments);
    p->bind = take(p->head.n_bind * sizeof *p->bind);
    void *blob = take(p->head.blob_bytes);
    p->request = take(p->head.request_bytes);
    p->blob = place(blob, p->head.blob_bytes);
    free(blob);
}

static void place_segments(struct placed *p) {
    p->address = malloc(p->head.n_segments * sizeof *p->address);
    p->rows = malloc(p->head.n_bind * sizeof *p->rows);
    if (!p->address || !p->rows) {
        abort();
    }
    for (uint32_t i = 0; i < p->head.n_segments; i++) {
        void *content =
            p->segments[i].kind == CROSS_CONTENT ? take((size_t)p->segments[i].bytes) : NULL;
        p->address[i] = place(content, p->segments[i].bytes);
        free(content);
    }
    for (uint32_t i = 0; i < p->head.n_bind; i++) {
        p->rows[i] = p->address[p->bind[i].segment] + p->bind[i].offset;
    }
    p->bind_address = place(p->rows, p->head.n_bind * sizeof *p->rows);
}

/* The request for a program, with addresses. */
static uint8_t *request(const struct placed *p, uint32_t program) {
    uint8_t *q = malloc(p->head.request_bytes);
    if (!q) {
        abort();
    }
    memcpy(q, p->request, p->head.request_bytes);
    struct tw_wire_run *run = (struct tw_wire_run *)(void *)q;
    struct tw_wire_input *in = (struct tw_wire_input *)(void *)(run + 1);
    struct tw_wire_greedy *greedy =
        (struct tw_wire_greedy *)(void *)(q + p->head.request_bytes -
                                          sizeof(struct tw_wire_greedy));
    run->program = program;
    run->n_steps = CROSS_TOKENS;
    for (uint32_t i = 0; i < run->n_inputs; i++) {
        in[i].address = p->rows[in[i].address];
    }
    greedy->logits = p->rows[greedy->logits];
    return q;
}

static uint64_t hash_memory(uint64_t hash, uint64_t address, uint64_t bytes) {
    struct tw_wire_range q = {.bytes = bytes};
    require(client_call(&client, TW_WIRE_READ, address, &q, sizeof q), "read");
    return cross_hash(hash, client.answer.payload, client.answer.length);
}

struct result {
    uint32_t ids[CROSS_TOKENS];
    uint64_t logits, state;
};

static void clear_state(const struct placed *p) {
    for (uint32_t i = 0; i < p->head.n_segments; i++) {
        struct tw_wire_range q = {.bytes = p->segments[i].bytes};
        if (p->segments[i].kind != CROSS_CONTENT) {
            require(client_call(&client, TW_WIRE_FILL, p->address[i], &q, sizeof q), "fill");
        }
    }
}

static struct result decode(const struct placed *p, enum tw_wire_mode mode) {
    struct result r = {.state = CROSS_HASH};
    clear_state(p);
    struct tw_wire_load load = {.blob = p->blob,
                                .blob_bytes = p->head.blob_bytes,
                                .bind = p->bind_address,
                                .n_bind = p->head.n_bind,
                                .mode = mode,
                                .n_threads = 1};
    require(client_call(&client, TW_WIRE_LOAD, 0, &load, sizeof load), "load");
    uint32_t program = ((const struct tw_wire_loaded *)client.answer.payload)->program;
    uint8_t *q = request(p, program);
    require(client_call(&client, TW_WIRE_RUN, 0, q, p->head.request_bytes), "run");
    const struct tw_wire_tokens *tokens = client.answer.payload;
    if (tokens->ended != TW_WIRE_ENDED_COUNT) {
        printf("not ok the run ended for reason %u: %s\n", tokens->ended, tokens->failure.what);
        exit(1);
    }
    memcpy(r.ids, tokens + 1, sizeof r.ids);
    const struct tw_wire_greedy *greedy =
        (const void *)(q + p->head.request_bytes - sizeof *greedy);
    r.logits = hash_memory(CROSS_HASH, greedy->logits, (uint64_t)p->head.n_vocab * 4);
    for (uint32_t i = 0; i < p->head.n_segments; i++) {
        if (p->segments[i].kind == CROSS_STATE) {
            r.state = hash_memory(r.state, p->address[i], p->segments[i].bytes);
        }
    }
    require(client_call(&client, TW_WIRE_UNLOAD, program, NULL, 0), "unload");
    free(q);
    return r;
}

static bool expect(const struct result *r, const struct result *expected, const char *mode,
                   const char *isa) {
    bool same = memcmp(r, expected, sizeof *r) == 0;
    printf("%sok decode %s, %s\n", same ? "" : "not ", mode, isa);
    return same;
}

int main(void) {
    struct placed p = {0};
    client_init(&client, UINT64_C(1) << 40);
    read_image(&p);
    place_segments(&p);
    struct result strict = decode(&p, TW_WIRE_STRICT);
    cross_print(strict.ids, strict.logits, strict.state);
    bool good = true;
    for (int isa = 0; isa < TW_ISA_COUNT; isa++) {
        const struct tw_kernel_table *table = tw_kernel_table((enum tw_isa)isa);
        if (table) {
            client.server.port.kernels = table;
            struct result fast = decode(&p, TW_WIRE_FAST), again = decode(&p, TW_WIRE_STRICT);
            good &= expect(&fast, &strict, "fast", table->name);
            good &= expect(&again, &strict, "strict", table->name);
        }
    }
    client_finish(&client);
    return !good;
}
