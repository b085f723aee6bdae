/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the command server with whole sessions of requests. Input: records of
 *   opcode u8, address selector u8, payload bytes u16, payload
 * Opcode 0: the payload's first 32 bytes are the header as it is. In payloads, an aligned u64 whose
 * top byte is 0xAD stands for the address of an allocation (low byte: which) plus an offset (next
 * byte), so that requests can name programs and inputs. The fuzzer may not change a program's blob
 * or bindings: by the contract those have passed the loader's verifier.
 */
#include "tests/support/server_client.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEMORY (UINT64_C(1) << 20)
#define MAX_PAYLOAD 4096u

static struct client client;
static struct client_bigram bigram;

static uint64_t pick(uint32_t selector, uint32_t offset) {
    const struct tw_server *s = &client.server;
    uint64_t base =
        s->n_allocations ? s->allocations[selector % s->n_allocations].address : selector;
    return base + offset;
}

static void substitute(uint8_t *payload, uint32_t n) {
    for (uint32_t i = 0; i + 8 <= n; i += 8) {
        uint64_t v;
        memcpy(&v, payload + i, 8);
        if (v >> 56 == 0xAD) {
            v = pick(v & 0xFF, v >> 8 & 0xFF);
            memcpy(payload + i, &v, 8);
        }
    }
}

static bool touches_program(uint64_t address) {
    return address - bigram.blob < 4096 || address - bigram.bind < 4096 ||
           bigram.blob - address < MAX_PAYLOAD || bigram.bind - address < MAX_PAYLOAD;
}

static void raw_request(const uint8_t *bytes, uint32_t n, const uint8_t *payload) {
    const char *why;
    struct tw_wire_header h, a;
    if (n < TW_WIRE_HEADER_BYTES) {
        return;
    }
    if (tw_wire_decode(bytes, &h, &why) == 0 &&
        (h.opcode == TW_WIRE_WRITE || h.opcode == TW_WIRE_FILL || h.opcode == TW_WIRE_COPY)) {
        return;
    }
    tw_server_handle(&client.server, bytes, payload, n - TW_WIRE_HEADER_BYTES, &client.answer);
    if (tw_wire_decode(client.answer.header, &a, &why) == TW_E_PROTOCOL &&
        strcmp(why, "opcode") != 0) {
        abort();
    }
}

static void request(uint8_t opcode, uint8_t selector, uint8_t *payload, uint32_t n) {
    uint64_t address = opcode == TW_WIRE_UNLOAD ? selector % 4 : pick(selector >> 2, selector & 3);
    if ((opcode == TW_WIRE_WRITE || opcode == TW_WIRE_FILL || opcode == TW_WIRE_COPY) &&
        touches_program(address)) {
        return;
    }
    substitute(payload, n);
    if (opcode == TW_WIRE_RUN && n >= sizeof(struct tw_wire_run)) {
        struct tw_wire_run *run = (void *)payload;
        run->n_steps %= 4; /* a device executes as many steps as it is told to */
    }
    if (opcode == TW_WIRE_FILL && n == sizeof(struct tw_wire_range)) {
        struct tw_wire_range *range = (void *)payload;
        range->bytes = range->bytes > MAX_PAYLOAD ? UINT64_MAX - range->bytes : range->bytes;
    }
    client_call(&client, (enum tw_wire_opcode)opcode, address, payload, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static union {
        uint8_t bytes[MAX_PAYLOAD];
        uint64_t align;
    } payload;
    client_init(&client, MEMORY);
    if (client_load_bigram(&client, TW_WIRE_STRICT, &bigram)) {
        abort();
    }
    for (size_t at = 0; at + 4 <= size;) {
        uint8_t opcode = data[at], selector = data[at + 1];
        uint32_t n = data[at + 2] | (uint32_t)data[at + 3] << 8;
        at += 4;
        n = n < size - at ? n : (uint32_t)(size - at);
        n = n < MAX_PAYLOAD ? n : MAX_PAYLOAD;
        memcpy(payload.bytes, data + at, n);
        if (opcode == 0) {
            raw_request(data + at, n, payload.bytes);
        } else if (opcode < TW_WIRE_OPCODE_LIMIT) {
            request(opcode, selector, payload.bytes, n);
        }
        at += n;
    }
    client_finish(&client);
    if (client.live != 0 || client.server.counters.memory_used != 0) {
        abort(); /* a reset gives everything back */
    }
    return 0;
}
