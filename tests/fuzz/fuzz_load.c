/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes a device that does not trust its host: the command server with the check that served
 * devices run at LOAD. The host has sent a lawful program (a tiny llama) with its certificate and
 * bindings; the input is what it does then. A byte chooses the program, then come records, each a
 * byte that chooses one of
 *   WRITE part u8, word u16, value u32     changes a word of blob, certificate, rows or memory
 *   AIM   row u16, other u16, offset u8    binds a row to another row's memory, 4 * offset further
 *   LOAD  how u8, bytes u8                 mode, plain form, sizes of blob and certificate
 *   RUN   program u8, flags u8
 *   UNLOAD program u8, FREE part u8, KEEP part u8
 * Whatever is loaded must run without an error of a sanitizer, and a reset gives everything back.
 */
#include "firmware/serve/verify_load.h"
#include "tests/support/fuzz_input.h"
#include "tests/support/load_program.h"
#include "tests/support/order_programs.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEMORY (UINT64_C(64) << 20)
/* A step with more ops takes the fuzzer's time and shows nothing new. */
#define MAX_OPS (UINT64_C(1) << 18)

enum record { WRITE, AIM, LOAD, RUN, UNLOAD, FREE, KEEP, RECORDS };
enum part { BLOB, CERTIFICATE, ROWS, DATA, PARTS };
enum { N_PROGRAMS = 3 };

/* Small ones, so that many are tried: one site and two with quantised weights, three with f32. */
static const uint32_t chosen[N_PROGRAMS] = {1, 2, 5};
static struct order_program programs[N_PROGRAMS];
static struct client client;
static struct tw_wire_load good; /* as the honest host would send it */
static uint64_t address[PARTS], bytes[PARTS];

static void require(bool ok) {
    if (!ok) {
        abort();
    }
}

static void make_programs(void) {
    for (uint32_t i = 0; i < N_PROGRAMS; i++) {
        tw_error err = {0};
        require(order_program_make(chosen[i], &programs[i], &err));
    }
}

static void place(const struct order_program *x) {
    require(load_program_place(&client, &x->program, &x->certificate, &good));
    address[BLOB] = good.blob;
    bytes[BLOB] = good.blob_bytes;
    address[CERTIFICATE] = good.certificate;
    bytes[CERTIFICATE] = good.certificate_bytes;
    address[ROWS] = good.bind;
    bytes[ROWS] = good.n_bind * 8;
    const struct tw_server_allocation *a =
        tw_server_find(&client.server, *(const uint64_t *)(uintptr_t)good.bind, 1);
    require(a != NULL);
    address[DATA] = a->address;
    bytes[DATA] = a->bytes;
}

static void change_word(struct fuzz_input *in) {
    uint32_t part = fuzz_u8(in) % PARTS, word = fuzz_u16(in), value = fuzz_u32(in);
    client_call(&client, TW_WIRE_WRITE, address[part] + word % (bytes[part] / 4) * 4, &value, 4);
}

static void aim_row(struct fuzz_input *in) {
    uint64_t row = fuzz_u16(in) % good.n_bind, other = fuzz_u16(in) % good.n_bind;
    struct tw_wire_range q = {.bytes = 8};
    uint64_t at;
    if (client_call(&client, TW_WIRE_READ, good.bind + other * 8, &q, sizeof q) == 0) {
        memcpy(&at, client.answer.payload, sizeof at);
        at += fuzz_u8(in) * 4u;
        client_call(&client, TW_WIRE_WRITE, good.bind + row * 8, &at, sizeof at);
    }
}

static void load(uint32_t how, uint32_t less) {
    struct tw_wire_load q = good;
    q.mode = how & 1u;
    q.blob_bytes -= how & 2u ? less : 0;
    q.certificate_bytes -= how & 4u ? less & ~3u : 0;
    q.step_ops = how & 8u ? 0 : q.step_ops;
    q.certificate += how & 16u ? less : 0;
    q.n_bind -= how & 32u ? less : 0;
    client_call(&client, TW_WIRE_LOAD, 0, &q, how & 128u ? TW_WIRE_LOAD_PLAIN_BYTES : sizeof q);
}

static void run(uint32_t number, uint32_t flags) {
    const struct tw_server_program *p = &client.server.programs[number % TW_SERVER_PROGRAMS];
    if (!p->used || tw_program_step_ops(&p->program) > MAX_OPS) {
        return;
    }
    struct tw_wire_run q = {.program = number % TW_SERVER_PROGRAMS,
                            .n_steps = 1u + (flags >> 7),
                            .scheduler = (uint16_t)(flags % TW_SCHED_COUNT),
                            .flags = (uint16_t)(flags & 4u ? TW_WIRE_RUN_CHECK : 0)};
    int code = client_call(&client, TW_WIRE_RUN, 0, &q, sizeof q);
    require(code == 0 || code == TW_E_FAULT || code == TW_E_NOMEM);
}

static void keep(uint32_t part) {
    struct tw_wire_content q = {.hash = {(uint8_t)part}};
    const struct tw_server_allocation *a = tw_server_find(&client.server, address[part], 1);
    if (a) {
        q.bytes = a->bytes;
        client_call(&client, TW_WIRE_KEEP, a->address, &q, sizeof q);
    }
}

static void take_record(struct fuzz_input *in) {
    switch ((enum record)(fuzz_u8(in) % RECORDS)) {
    case WRITE:
        change_word(in);
        return;
    case AIM:
        aim_row(in);
        return;
    case LOAD: {
        uint32_t how = fuzz_u8(in);
        load(how, fuzz_u8(in));
        return;
    }
    case RUN: {
        uint32_t number = fuzz_u8(in);
        run(number, fuzz_u8(in));
        return;
    }
    case UNLOAD:
        client_call(&client, TW_WIRE_UNLOAD, fuzz_u8(in) % TW_SERVER_PROGRAMS, NULL, 0);
        return;
    case FREE:
        client_call(&client, TW_WIRE_FREE, address[fuzz_u8(in) % PARTS], NULL, 0);
        return;
    case KEEP:
    case RECORDS:
        keep(fuzz_u8(in) % PARTS);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size, 0};
    if (!programs[0].program.name) {
        make_programs();
    }
    client_init(&client, MEMORY);
    client.server.port.verify = tw_serve_verify;
    place(&programs[fuzz_u8(&in) % N_PROGRAMS]);
    while (fuzz_more(&in)) {
        take_record(&in);
    }
    for (uint32_t mode = 0; mode < 2; mode++) { /* what it has made of the program */
        load(mode, 0);
        run(mode, 0);
    }
    client_finish(&client);
    require(client.live == 0 && client.server.counters.memory_used == 0);
    return 0;
}
