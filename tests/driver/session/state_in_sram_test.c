/* SPDX-License-Identifier: Apache-2.0
 *
 * State in SRAM on devices: the emulator of this process and one behind a socket, strict and fast,
 * give over many steps the bits of the same program with its State in DRAM; two sessions take turns
 * on one device, each with its own State; a new session begins with zeros.
 */
#include "compiler/spatial/certify.h"
#include "driver/device/device.h"
#include "loader/order/certificate.h"
#include "loader/text/parse_program.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"
#include "tilewright/progblob.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 40, VALUES = 16, BYTES = VALUES * 4 };

static const char in_dram[] =
    "program p rows=1 sites=1 mesh=1x1 chips=1 sram=8192\n"
    "tensor 0 s role=state dtype=f32 shape=1x16 packing=row bytes=64 init=zero bind=0+1\n"
    "tensor 1 out role=output dtype=f32 shape=1x16 packing=row bytes=64 bind=1+1\n"
    "tensor 2 w role=param dtype=f32 shape=1x16 packing=row bytes=64 bind=2+1\n"
    "buffer 0 wf site=0 kind=fifo dtype=f32 pages=1x64 offset=0 ends=load>math\n"
    "buffer 1 rf site=0 kind=fifo dtype=f32 pages=1x64 offset=64 ends=math>store\n"
    "buffer 2 sf site=0 kind=fifo dtype=f32 pages=1x64 offset=128 ends=load>math\n"
    "group 0 chip=0 x=0..1 y=0..1\n"
    "semaphore 0 local role=gather group=0\n"
    "semaphore 1 gather role=gather group=0\n"
    "semaphore 2 release role=release group=0\n"
    "section 0 all repeat=1 buffers=0+3 semaphores=0+3 stages=0+3 local=0 gather=1 release=2\n"
    "stage 0 demo kind=compute site=0 engine=load section=0\n"
    "stage 1 demo kind=compute site=0 engine=math section=0\n"
    "stage 2 demo kind=compute site=0 engine=store section=0\n"
    "stream 0 site=0 engine=load\n"
    "    stage=0  ; demo\n"
    "    reserve wf@0 1\n"
    "    read w@2[0, 0] -> wf@0[0] n=1 b=64 s=64 s=64\n"
    "    push wf@0 1\n"
    "    reserve sf@2 1\n"
    "    read s@0[0, 0] -> sf@2[0] n=1 b=64 s=64 s=64\n"
    "    push sf@2 1\n"
    "    sem_inc local@0 site=0 1\n"
    "    sem_wait release@2 >= 1+v0*1\n"
    "stream 1 site=0 engine=math\n"
    "    stage=1  ; demo\n"
    "    wait wf@0 1\n"
    "    wait sf@2 1\n"
    "    reserve rf@1 1\n"
    "    add sf@2[0] s=64 wf@0[0] s=64 -> rf@1[0] s=64 cols=16 rows=1\n"
    "    push rf@1 1\n"
    "    pop wf@0 1\n"
    "    pop sf@2 1\n"
    "    sem_inc local@0 site=0 1\n"
    "    sem_wait local@0 >= 3+v0*3\n"
    "    sem_inc gather@1 site=0 1\n"
    "    sem_wait gather@1 >= 1+v0*1\n"
    "    sem_inc release@2 site=0 1\n"
    "    sem_wait release@2 >= 1+v0*1\n"
    "stream 2 site=0 engine=store\n"
    "    stage=2  ; demo\n"
    "    wait rf@1 1\n"
    "    write rf@1[0] s=64 -> out@1[0, 0] s=64 b=64 rows=1\n"
    "    write rf@1[0] s=64 -> s@0[0, 0] s=64 b=64 rows=1\n"
    "    pop rf@1 1\n"
    "    sem_inc local@0 site=0 1\n"
    "    sem_wait release@2 >= 1+v0*1\n";

static const char in_sram[] =
    "program p rows=1 sites=1 mesh=1x1 chips=1 sram=8192\n"
    "tensor 0 s role=state dtype=f32 shape=1x16 packing=row bytes=64 init=zero bind=0+1\n"
    "tensor 1 out role=output dtype=f32 shape=1x16 packing=row bytes=64 bind=1+1\n"
    "tensor 2 w role=param dtype=f32 shape=1x16 packing=row bytes=64 bind=2+1\n"
    "buffer 0 wf site=0 kind=fifo dtype=f32 pages=1x64 offset=0 ends=load>math\n"
    "buffer 1 rf site=0 kind=fifo dtype=f32 pages=1x64 offset=64 ends=math>store\n"
    "buffer 2 s site=0 kind=resident dtype=f32 pages=1x64 offset=128 of=s@0\n"
    "group 0 chip=0 x=0..1 y=0..1\n"
    "semaphore 0 local role=gather group=0\n"
    "semaphore 1 gather role=gather group=0\n"
    "semaphore 2 release role=release group=0\n"
    "section 0 all repeat=1 buffers=0+3 semaphores=0+3 stages=0+3 local=0 gather=1 release=2\n"
    "stage 0 demo kind=compute site=0 engine=load section=0\n"
    "stage 1 demo kind=compute site=0 engine=math section=0\n"
    "stage 2 demo kind=compute site=0 engine=store section=0\n"
    "stream 0 site=0 engine=load\n"
    "    stage=0  ; demo\n"
    "    reserve wf@0 1\n"
    "    read w@2[0, 0] -> wf@0[0] n=1 b=64 s=64 s=64\n"
    "    push wf@0 1\n"
    "    sem_inc local@0 site=0 1\n"
    "    sem_wait release@2 >= 1+v0*1\n"
    "stream 1 site=0 engine=math\n"
    "    stage=1  ; demo\n"
    "    wait wf@0 1\n"
    "    reserve rf@1 1\n"
    "    add s@2[0] s=64 wf@0[0] s=64 -> s@2[0] s=64 cols=16 rows=1\n"
    "    copy s@2[0] s=64 -> rf@1[0] s=64 b=64 rows=1\n"
    "    push rf@1 1\n"
    "    pop wf@0 1\n"
    "    sem_inc local@0 site=0 1\n"
    "    sem_wait local@0 >= 3+v0*3\n"
    "    sem_inc gather@1 site=0 1\n"
    "    sem_wait gather@1 >= 1+v0*1\n"
    "    sem_inc release@2 site=0 1\n"
    "    sem_wait release@2 >= 1+v0*1\n"
    "stream 2 site=0 engine=store\n"
    "    stage=2  ; demo\n"
    "    wait rf@1 1\n"
    "    write rf@1[0] s=64 -> out@1[0, 0] s=64 b=64 rows=1\n"
    "    pop rf@1 1\n"
    "    sem_inc local@0 site=0 1\n"
    "    sem_wait release@2 >= 1+v0*1\n";

static struct socket_device served;

static int start(void **state) {
    (void)state;
    socket_folder_make();
    socket_device_start(&served, "state", NULL, 0);
    return 0;
}

static int end(void **state) {
    (void)state;
    int status = socket_device_end(&served);
    socket_folder_remove();
    return status;
}

/* One program in a device's memory. */
struct text {
    struct tw_cmem mem;
    struct tw_program_text *parsed;
    struct tw_certificate certificate;
    uint64_t blob, certificate_at;
    uint32_t blob_bytes;
};

static void check(int code, const tw_error *err) {
    if (code) {
        fail_msg("%s", err->message);
    }
}

static uint64_t send(tw_device *d, const void *bytes, uint64_t n) {
    tw_error err = {0};
    uint64_t at = 0;
    check(tw_device_alloc(d, n, 64, true, &at, &err), &err);
    check(bytes ? tw_device_write(d, at, bytes, n, &err) : 0, &err);
    return at;
}

static void send_program(tw_device *d, const char *text, struct text *t) {
    tw_error err = {0};
    check(tw_program_parse("text", text, strlen(text), &t->parsed, &err), &err);
    check(tw_cmem_init(&t->mem, &err), &err);
    const struct tw_program *p = &t->parsed->program;
    check(tw_verify_program(p, NULL, &err), &err);
    check(tw_certify(&t->mem, p, &t->certificate, &err), &err);
    t->blob_bytes = tw_progblob_bytes(p, true);
    uint8_t *blob = aligned_alloc(64, (t->blob_bytes + 63) / 64 * 64);
    assert_non_null(blob);
    tw_progblob_write(p, true, blob);
    t->blob = send(d, blob, t->blob_bytes);
    t->certificate_at = send(d, t->certificate.words, (uint64_t)t->certificate.n_words * 4);
    free(blob);
}

/* A session: memory for State and output, and the program loaded with them. */
struct run {
    uint64_t row[3];
    uint32_t number;
};

static struct run load(tw_device *d, const struct text *t, uint64_t weights, uint32_t mode) {
    tw_error err = {0};
    struct run r = {.row = {send(d, NULL, BYTES), send(d, NULL, BYTES), weights}};
    struct tw_wire_load q = {.blob = t->blob,
                             .blob_bytes = t->blob_bytes,
                             .bind = send(d, r.row, sizeof r.row),
                             .n_bind = 3,
                             .mode = mode,
                             .n_threads = 1,
                             .certificate = t->certificate_at,
                             .certificate_bytes = (uint64_t)t->certificate.n_words * 4,
                             .step_ops = t->certificate.step_ops};
    struct tw_wire_loaded loaded = {0};
    struct tw_device_call call = {.opcode = TW_WIRE_LOAD,
                                  .payload = &q,
                                  .bytes = sizeof q,
                                  .out = &loaded,
                                  .out_bytes = sizeof loaded};
    check(tw_device_call(d, &call, &err), &err);
    r.number = loaded.program;
    return r;
}

static void step(tw_device *d, const struct run *r, float out[VALUES]) {
    tw_error err = {0};
    struct tw_wire_run q = {.program = r->number, .n_steps = 1};
    struct tw_wire_done done;
    struct tw_device_call call = {.opcode = TW_WIRE_RUN,
                                  .payload = &q,
                                  .bytes = sizeof q,
                                  .out = &done,
                                  .out_bytes = sizeof done};
    check(tw_device_call(d, &call, &err), &err);
    check(tw_device_read(d, r->row[1], out, BYTES, &err), &err);
}

static void compare(const char *selector, uint32_t mode) {
    tw_error err = {0};
    tw_device *d = NULL;
    struct text text[2];
    float w[VALUES], out[2][VALUES], sum[VALUES] = {0};
    check(tw_device_open(selector, NULL, &d, &err), &err);
    for (uint32_t i = 0; i < VALUES; i++) {
        w[i] = 0.1f * (float)(i + 1);
    }
    send_program(d, in_dram, &text[0]);
    send_program(d, in_sram, &text[1]);
    uint64_t weights = send(d, w, sizeof w);
    struct run dram = load(d, &text[0], weights, mode), sram = load(d, &text[1], weights, mode),
               other = load(d, &text[1], weights, mode);
    for (uint32_t n = 0; n < STEPS; n++) {
        step(d, &dram, out[0]);
        step(d, &sram, out[1]);
        assert_memory_equal(out[0], out[1], BYTES);
        for (uint32_t i = 0; i < VALUES; i++) {
            sum[i] += w[i];
        }
        assert_memory_equal(out[1], sum, BYTES);
        if (n == STEPS / 2) { /* another session takes a step: its State begins with zeros */
            step(d, &other, out[0]);
            assert_memory_equal(out[0], w, BYTES);
        }
    }
    /* and so it continues */
    step(d, &other, out[0]);
    for (uint32_t i = 0; i < VALUES; i++) {
        assert_true(out[0][i] == w[i] + w[i]);
    }
    for (int i = 0; i < 2; i++) {
        tw_program_text_free(text[i].parsed);
        tw_cmem_finish(&text[i].mem);
    }
    tw_device_close(d);
}

static void state_in_sram_has_the_bits_of_state_in_dram(void **state) {
    (void)state;
    compare("emu", TW_WIRE_STRICT);
    compare("emu", TW_WIRE_FAST);
}

static void it_has_them_behind_a_socket(void **state) {
    (void)state;
    compare(served.selector, TW_WIRE_STRICT);
    compare(served.selector, TW_WIRE_FAST);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_in_sram_has_the_bits_of_state_in_dram),
        cmocka_unit_test(it_has_them_behind_a_socket),
    };
    return cmocka_run_group_tests_name("state in SRAM", tests, start, end);
}
