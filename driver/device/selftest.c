/* SPDX-License-Identifier: Apache-2.0
 *
 * Self-test and reset of an open device: memory with patterns at unaligned addresses, the device's
 * hash against the host's, and a small program whose result is known, in every mode the device has.
 */
#include "driver/device/device.h"

#include "loader/base/clock.h"
#include "loader/base/sized.h"
#include "loader/order/certificate.h"
#include "loader/text/parse_program.h"
#include "tilewright/progblob.h"

#include <stdlib.h>

#define PATTERN_BYTES (3u << 20) /* several messages */
#define VOCAB 8u
#define COLS 16u
#define ROWS 4u
enum { BIND_IDS, BIND_ROWS, BIND_TABLE, BIND_LOGITS, BINDS };

/* Gives as logits the table row of the last token. In the language of tws(5). */
static const char program_text[] =
    "program selftest rows=4 sites=1 mesh=1x1 chips=1 sram=4096\n"
    "tensor 0 ids role=input dtype=i32 shape=1x4 packing=row bytes=16 bind=0+1\n"
    "tensor 1 rows role=input dtype=i32 shape=1x1 packing=row bytes=4 bind=1+1\n"
    "tensor 2 table role=param dtype=f32 shape=8x16 packing=row bytes=512 bind=2+1\n"
    "tensor 3 logits role=output dtype=f32 shape=1x16 packing=row bytes=64 bind=3+1\n"
    "group 0 chip=0 x=0..1 y=0..1\n"
    "buffer 0 row site=0 kind=fifo dtype=f32 pages=1x256 offset=0 ends=load>math\n"
    "buffer 1 out site=0 kind=fifo dtype=f32 pages=1x64 offset=256 ends=math>store\n"
    "semaphore 0 local role=gather group=0\n"
    "semaphore 1 gather role=gather group=0\n"
    "semaphore 2 release role=release group=0\n"
    "trip 0 rows input=rows@1 add=0 div=1 max=4\n"
    "section 0 step repeat=1 buffers=0+2 semaphores=0+3 stages=0+6 local=0 gather=1 "
    "release=2\n"
    "stage 0 lookup kind=compute site=0 engine=load section=0 cols=0+16\n"
    "stage 1 lookup kind=compute site=0 engine=math section=0 cols=0+16\n"
    "stage 2 lookup kind=compute site=0 engine=store section=0 cols=0+16\n"
    "stage 3 end kind=sync site=0 engine=load section=0\n"
    "stage 4 end kind=sync site=0 engine=math section=0\n"
    "stage 5 end kind=sync site=0 engine=store section=0\n"
    "stream 0 site=0 engine=load\n"
    "    stage=0  ; lookup\n"
    "    reserve row@0 1\n"
    "    gather table@2[0, 0] ids@0[0, 0] -> row@0[0] s=64 cols=16 rows=rows@0(4)\n"
    "    push row@0 1\n"
    "    stage=3  ; end\n"
    "    sem_inc local@0 site=0 1\n"
    "    sem_wait release@2 >= 1+v0*1\n"
    "stream 1 site=0 engine=math\n"
    "    stage=1  ; lookup\n"
    "    wait row@0 1\n"
    "    reserve out@1 1\n"
    "    last_row row@0[0] s=64 -> out@1[0] b=64 rows=rows@0(4)\n"
    "    push out@1 1\n"
    "    pop row@0 1\n"
    "    stage=4  ; end\n"
    "    sem_inc local@0 site=0 1\n"
    "    sem_wait local@0 >= 3+v0*3\n"
    "    sem_inc gather@1 site=0 1\n"
    "    sem_wait gather@1 >= 1+v0*1\n"
    "    sem_inc release@2 site=0 1\n"
    "    sem_wait release@2 >= 1+v0*1\n"
    "stream 2 site=0 engine=store\n"
    "    stage=2  ; lookup\n"
    "    wait out@1 1\n"
    "    write out@1[0] s=64 -> logits@3[0, 0] s=64 b=64 rows=1\n"
    "    pop out@1 1\n"
    "    stage=5  ; end\n"
    "    sem_inc local@0 site=0 1\n"
    "    sem_wait release@2 >= 1+v0*1\n";

/* Its certificate (tilewright-machine(7), CERTIFICATE): the turns of load, math and store. */
#define TURN(stream, ops) TW_TURN_WORD(TW_TURN_RUN, stream), ops
static const uint32_t program_certificate[] = {TURN(0, 4), TURN(1, 6), TURN(2, 4),
                                               TURN(1, 5), TURN(0, 1), TURN(2, 1)};

struct test {
    tw_device *device;
    uint64_t memory; /* PATTERN_BYTES */
    uint8_t *out, *in;
    uint64_t bind[BINDS], blob, rows, certificate;
    uint8_t *image;
    uint32_t image_bytes;
};

/* ---- memory ---- */

static void fill_pattern(uint8_t *bytes, uint32_t n, uint32_t seed) {
    uint32_t x = seed * 2654435761u + 1;
    for (uint32_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(x >> 24);
    }
}

static int compare(const struct test *t, const char *what, uint64_t at, uint32_t n, tw_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        if (t->out[i] != t->in[i]) {
            return tw_fail(err, TW_E_FAULT, "device %s: %s: byte %llu is 0x%02x, expected 0x%02x",
                           t->device->selector, what, (unsigned long long)(at + i), t->in[i],
                           t->out[i]);
        }
    }
    return 0;
}

static int check_hash(const struct test *t, uint64_t at, uint32_t n, tw_error *err) {
    struct tw_wire_range q = {.bytes = n};
    struct tw_wire_hash h = {0};
    struct tw_device_call call = {.opcode = TW_WIRE_HASH,
                                  .address = t->memory + at,
                                  .payload = &q,
                                  .bytes = sizeof q,
                                  .out = &h,
                                  .out_bytes = sizeof h};
    int code = tw_device_call(t->device, &call, err);
    uint32_t expected = tw_wire_crc32c(0, t->out, n);
    return code || h.crc32c == expected
               ? code
               : tw_fail(err, TW_E_FAULT, "device %s: hash of %u bytes is %08x, expected %08x",
                         t->device->selector, n, h.crc32c, expected);
}

static int check_range(const struct test *t, uint64_t at, uint32_t n, tw_error *err) {
    fill_pattern(t->out, n, (uint32_t)at * 31 + n);
    int code = tw_device_write(t->device, t->memory + at, t->out, n, err);
    code = code ? code : tw_device_read(t->device, t->memory + at, t->in, n, err);
    code = code ? code : compare(t, "memory", at, n, err);
    return code ? code : check_hash(t, at, n, err);
}

static int test_memory(struct test *t, tw_error *err) {
    int code = tw_device_alloc(t->device, PATTERN_BYTES, 64, true, &t->memory, err);
    for (uint32_t at = 0; !code && at < 9; at++) {
        for (uint32_t n = 1; !code && n < 70000; n = n * 5 + at) {
            code = check_range(t, at, n, err);
        }
    }
    return code ? code : check_range(t, 0, PATTERN_BYTES, err);
}

static int test_fill(struct test *t, tw_error *err) {
    struct tw_wire_range q = {.bytes = 1001, .value = 0xA5};
    struct tw_device_call call = {
        .opcode = TW_WIRE_FILL, .address = t->memory + 7, .payload = &q, .bytes = sizeof q};
    int code = tw_device_read(t->device, t->memory, t->out, 2048, err);
    code = code ? code : tw_device_call(t->device, &call, err);
    memset(t->out + 7, 0xA5, 1001);
    code = code ? code : tw_device_read(t->device, t->memory, t->in, 2048, err);
    return code ? code : compare(t, "fill", 0, 2048, err);
}

static int test_write(struct test *t, tw_error *err) {
    return tw_device_write(t->device, t->memory, t->out, PATTERN_BYTES, err);
}

static int test_read(struct test *t, tw_error *err) {
    return tw_device_read(t->device, t->memory, t->in, PATTERN_BYTES, err);
}

/* ---- program ---- */

static int make_image(struct test *t, tw_error *err) {
    struct tw_program_text *text;
    int code = tw_program_parse("selftest", program_text, sizeof program_text - 1, &text, err);
    if (code) {
        return code;
    }
    t->image_bytes = tw_progblob_bytes(&text->program, true);
    t->image = aligned_alloc(64, ((size_t)t->image_bytes + 63) / 64 * 64);
    if (t->image) {
        tw_progblob_write(&text->program, true, t->image);
    }
    tw_program_text_free(text);
    return t->image ? 0 : tw_fail(err, TW_E_NOMEM, "self-test: out of memory");
}

static void make_table(float table[VOCAB][COLS]) {
    for (uint32_t i = 0; i < VOCAB * COLS; i++) {
        table[i / COLS][i % COLS] = (float)i * 0.25f - 7.0f;
    }
}

static int place_program(struct test *t, tw_error *err) {
    static const uint32_t bytes[BINDS] = {ROWS * 4, 4, VOCAB * COLS * 4, COLS * 4};
    float table[VOCAB][COLS];
    make_table(table);
    int code = make_image(t, err);
    for (uint32_t i = 0; i < BINDS && !code; i++) {
        code = tw_device_alloc(t->device, bytes[i], 64, true, &t->bind[i], err);
    }
    code = code ? code : tw_device_write(t->device, t->bind[BIND_TABLE], table, sizeof table, err);
    code = code ? code : tw_device_alloc(t->device, t->image_bytes, 64, false, &t->blob, err);
    code = code ? code : tw_device_write(t->device, t->blob, t->image, t->image_bytes, err);
    code = code ? code : tw_device_alloc(t->device, sizeof t->bind, 64, false, &t->rows, err);
    code = code ? code : tw_device_write(t->device, t->rows, t->bind, sizeof t->bind, err);
    if (code || !(t->device->identity.capabilities & TW_WIRE_CAN_VERIFY)) {
        return code;
    }
    code = tw_device_alloc(t->device, sizeof program_certificate, 64, false, &t->certificate, err);
    return code ? code
                : tw_device_write(t->device, t->certificate, program_certificate,
                                  sizeof program_certificate, err);
}

/* Runs a step of three tokens and checks that the logits are the table row of the last one. */
static int step(const struct test *t, uint32_t program, uint32_t token, tw_error *err) {
    struct {
        struct tw_wire_run run;
        struct tw_wire_input in[2];
        uint32_t ids[ROWS], rows, pad;
    } q = {.run = {.program = program, .n_steps = 1, .n_inputs = 2},
           .in = {{.address = t->bind[BIND_IDS], .bytes = sizeof q.ids},
                  {.address = t->bind[BIND_ROWS], .bytes = 4}},
           .ids = {VOCAB - 1 - token, 0, token},
           .rows = 3};
    struct tw_wire_done done;
    struct tw_device_call call = {.opcode = TW_WIRE_RUN,
                                  .payload = &q,
                                  .bytes = sizeof q - sizeof q.pad,
                                  .out = &done,
                                  .out_bytes = sizeof done};
    float table[VOCAB][COLS];
    make_table(table);
    int code = tw_device_call(t->device, &call, err);
    code = code ? code : tw_device_read(t->device, t->bind[BIND_LOGITS], t->in, COLS * 4, err);
    memcpy(t->out, table[token], COLS * 4);
    return code ? code : compare(t, "program's result", 0, COLS * 4, err);
}

static int run_mode(const struct test *t, uint32_t mode, tw_error *err) {
    struct tw_wire_load q = {.blob = t->blob,
                             .blob_bytes = t->image_bytes,
                             .bind = t->rows,
                             .n_bind = BINDS,
                             .mode = mode,
                             .n_threads = 1,
                             .certificate = t->certificate,
                             .certificate_bytes = sizeof program_certificate};
    struct tw_wire_loaded loaded = {0};
    struct tw_device_call load = {.opcode = TW_WIRE_LOAD,
                                  .payload = &q,
                                  .bytes = t->certificate ? sizeof q : TW_WIRE_LOAD_PLAIN_BYTES,
                                  .out = &loaded,
                                  .out_bytes = sizeof loaded};
    int code = tw_device_call(t->device, &load, err);
    if (code) {
        return code;
    }
    for (uint32_t token = 0; token < VOCAB && !code; token++) {
        code = step(t, loaded.program, token, err);
    }
    struct tw_device_call unload = {.opcode = TW_WIRE_UNLOAD, .address = loaded.program};
    return code ? code : tw_device_call(t->device, &unload, err);
}

static int test_strict(struct test *t, tw_error *err) {
    return run_mode(t, TW_WIRE_STRICT, err);
}

static int test_fast(struct test *t, tw_error *err) {
    return run_mode(t, TW_WIRE_FAST, err);
}

/* ---- all ---- */

static const struct {
    const char *name;
    int (*run)(struct test *t, tw_error *err);
    uint32_t bytes;      /* transferred, if the step measures a throughput */
    uint32_t capability; /* required; 0: only memory */
} steps[] = {
    {"memory", test_memory, 0, 0},
    {"fill", test_fill, 0, 0},
    {"write", test_write, PATTERN_BYTES, 0},
    {"read", test_read, PATTERN_BYTES, 0},
    {"program placed", place_program, 0, TW_WIRE_CAN_STRICT},
    {"program, strict", test_strict, 0, TW_WIRE_CAN_STRICT},
    {"program, fast", test_fast, 0, TW_WIRE_CAN_FAST},
};

static int run_steps(struct test *t, void (*passed)(void *ctx, const struct tw_selftest_step *step),
                     void *ctx, tw_error *err) {
    const struct tw_wire_identity *id = &t->device->identity;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (id->memory_bytes < 2 * PATTERN_BYTES || (steps[i].capability & ~id->capabilities)) {
            continue;
        }
        double start = tw_clock_s();
        int code = steps[i].run(t, err);
        if (code) {
            tw_error_prefix(err, steps[i].name);
            return code;
        }
        struct tw_selftest_step s = {.size = sizeof s,
                                     .name = steps[i].name,
                                     .seconds = tw_clock_s() - start,
                                     .bytes = steps[i].bytes};
        if (passed) {
            passed(ctx, &s);
        }
    }
    return id->memory_bytes < 2 * PATTERN_BYTES
               ? tw_fail(err, TW_E_UNSUPPORTED,
                         "device %s: it has %llu bytes of memory, the self-test needs %u",
                         t->device->selector, (unsigned long long)id->memory_bytes,
                         2 * PATTERN_BYTES)
               : 0;
}

int tw_device_selftest(tw_device *device,
                       void (*passed)(void *ctx, const struct tw_selftest_step *step), void *ctx,
                       tw_error *err) {
    int code = TW_NEED(err, device);
    if (code) {
        return code;
    }
    struct test t = {.device = device, .out = malloc(PATTERN_BYTES), .in = malloc(PATTERN_BYTES)};
    code = t.out && t.in ? run_steps(&t, passed, ctx, err)
                         : tw_fail(err, TW_E_NOMEM, "self-test: out of memory");
    tw_device_free(device, t.certificate);
    tw_device_free(device, t.rows);
    tw_device_free(device, t.blob);
    for (uint32_t i = 0; i < BINDS; i++) {
        tw_device_free(device, t.bind[i]);
    }
    tw_device_free(device, t.memory);
    free(t.image);
    free(t.out);
    free(t.in);
    return code;
}

int tw_device_reset(tw_device *device, tw_error *err) {
    struct tw_device_call reset = {.opcode = TW_WIRE_RESET};
    struct tw_wire_hello hello = {.protocol_min = TW_WIRE_VERSION_MIN,
                                  .protocol_max = TW_WIRE_VERSION_MAX,
                                  .abi_major = TW_MACHINE_ABI_MAJOR,
                                  .abi_minor = TW_MACHINE_ABI_MINOR};
    struct tw_wire_identity id = {0};
    struct tw_device_call greet = {.opcode = TW_WIRE_HELLO,
                                   .payload = &hello,
                                   .bytes = sizeof hello,
                                   .out = &id,
                                   .out_bytes = sizeof id};
    int code = TW_NEED(err, device);
    if (code) {
        return code;
    }
    code = tw_device_call(device, &reset, err);
    if (!code) {
        atomic_fetch_add(&device->resets, 1);
        code = tw_device_call(device, &greet, err);
    }
    return !code && id.memory_used
               ? tw_fail(err, TW_E_FAULT, "device %s: %llu bytes are still in use after a reset",
                         device->selector, (unsigned long long)id.memory_used)
               : code;
}
