/* SPDX-License-Identifier: Apache-2.0
 *
 * A served device does not trust its host: the programs of a driver run, those of a hostile host
 * are refused with the number of the rule that they break, or run without harm, and the device
 * serves the next host as before. The programs are those of attack_bundles.h, as blobs, sent by a
 * host that checks nothing.
 */
#include "driver/device/deploy.h"
#include "loader/bundle/bundle_parts.h"
#include "tests/support/attack_bundles.h"
#include "tests/support/model_bundle.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"
#include "tilewright/progblob.h"

#include <stdlib.h>
#include <unistd.h>

static struct socket_device served;

static int start(void **state) {
    (void)state;
    socket_folder_make();
    socket_device_start(&served, "verifies", NULL, 0);
    return 0;
}

static int end(void **state) {
    (void)state;
    int status = socket_device_end(&served);
    model_bundle_cleanup();
    socket_folder_remove();
    return status;
}

static tw_device *open_device(void) {
    tw_error err = {0};
    tw_device *device = NULL;
    if (socket_open(served.selector, 0, &device, &err)) {
        fail_msg("%s", err.message);
    }
    return device;
}

/* ---- the driver ---- */

static int deploy(struct rig *r) {
    int code = tw_decoder_open(model_bundle("host"), 0, &r->decoder, &r->err);
    code = code ? code : tw_deploy(r->device, r->decoder, &r->deployment, &r->err);
    return code ? code : tw_session_create(r->deployment, NULL, &r->session, &r->err);
}

static void assert_served(void) {
    struct rig r = {.device = open_device()};
    const uint32_t prompt[] = {1, 403, 407};
    struct tw_generate_options g = {.size = sizeof g, .n_predict = 4};
    if (deploy(&r) || tw_generate(r.session, prompt, 3, &g, NULL, &r.err)) {
        fail_msg("%s", r.err.message);
    }
    rig_close(&r);
}

static void an_honest_host_runs(void **state) {
    (void)state;
    struct tw_device_info info = {.size = sizeof info};
    tw_device *device = open_device();
    assert_true(device->identity.capabilities & TW_WIRE_CAN_VERIFY);
    assert_int_equal(tw_device_get_info(device, &info, NULL), 0);
    assert_int_equal(info.trusts_host, 0);
    assert_int_equal(tw_device_selftest(device, NULL, NULL, NULL), 0);
    tw_device_close(device);
    assert_served();
}

/* A device that does not say that it verifies is shown as one that trusts its host, and gets the
 * short LOAD, which this one refuses. */
static void a_driver_that_sends_no_certificate_is_refused(void **state) {
    (void)state;
    struct rig r = {.device = open_device()};
    struct tw_device_info info = {.size = sizeof info};
    r.device->identity.capabilities &= ~(uint32_t)TW_WIRE_CAN_VERIFY;
    assert_int_equal(tw_device_get_info(r.device, &info, NULL), 0);
    assert_int_equal(info.trusts_host, 1);
    assert_int_equal(deploy(&r), TW_E_VERIFY);
    assert_non_null(strstr(r.err.message, "LOAD: rule 18 certificate: LOAD carries none"));
    rig_close(&r);
    assert_served();
}

static void the_emulator_of_this_process_trusts_nobody_else(void **state) {
    (void)state;
    tw_device *device;
    struct tw_device_info info = {.size = sizeof info};
    assert_int_equal(tw_device_open("emu", NULL, &device, NULL), 0);
    assert_false(device->identity.capabilities & TW_WIRE_CAN_VERIFY);
    assert_int_equal(tw_device_get_info(device, &info, NULL), 0);
    assert_int_equal(info.trusts_host, 0);
    tw_device_close(device);
}

/* ---- a host that checks nothing ---- */

/* The words of a program's certificate, whatever they are. */
static const uint32_t *certificate_of(const struct tw_bundle *b, uint32_t program, uint32_t *n) {
    uint64_t size;
    const uint8_t *at = tw_elf_content(&tw_owner(b)->elf, TW_SEC_CERT, &size);
    struct tw_cert_entry e;
    assert_non_null(at);
    assert_int_equal(((const struct tw_cert_header *)(const void *)at)->magic, TW_CERT_MAGIC);
    at += sizeof(struct tw_cert_header);
    memcpy(&e, at + program * sizeof e, sizeof e);
    *n = e.n_words;
    return (const uint32_t *)(const void *)(at + b->n_programs * sizeof e) + e.first_word;
}

struct host {
    tw_device *device;
    struct tw_bundle bundle;
    struct tw_wire_load load;
    struct tw_wire_loaded loaded;
    tw_error err;
};

static uint64_t send(struct host *h, const void *bytes, uint64_t size) {
    uint64_t at = 0;
    int code = tw_device_alloc(h->device, size, 65536, true, &at, &h->err);
    code = code || !bytes ? code : tw_device_write(h->device, at, bytes, size, &h->err);
    if (code) {
        fail_msg("%s", h->err.message);
    }
    return at;
}

static void send_segments(struct host *h) {
    const struct tw_bundle *b = &h->bundle;
    uint64_t *segments = calloc(b->n_segments + 1, sizeof *segments),
             *rows = calloc(b->n_bind_rows + 1, sizeof *rows);
    for (uint32_t i = 0; i < b->n_segments; i++) {
        segments[i] = b->segments[i].size ? send(h, b->segments[i].bytes, b->segments[i].size) : 0;
    }
    tw_bundle_relocate(b, segments, rows);
    h->load.bind = send(h, rows, b->n_bind_rows * 8);
    h->load.n_bind = b->n_bind_rows;
    free(segments);
    free(rows);
}

static void send_program(struct host *h, uint32_t program) {
    const struct tw_program *p = &h->bundle.programs[program];
    uint32_t bytes = tw_progblob_bytes(p, true), n;
    uint8_t *blob = aligned_alloc(64, (bytes + 63u) / 64 * 64);
    tw_progblob_write(p, true, blob);
    h->load.blob = send(h, blob, bytes);
    h->load.blob_bytes = bytes;
    const uint32_t *words = certificate_of(&h->bundle, program, &n);
    h->load.certificate = send(h, words, n * 4u);
    h->load.certificate_bytes = n * 4u;
    free(blob);
}

static int load(struct host *h) {
    struct tw_device_call call = {.opcode = TW_WIRE_LOAD,
                                  .payload = &h->load,
                                  .bytes = sizeof h->load,
                                  .out = &h->loaded,
                                  .out_bytes = sizeof h->loaded};
    return tw_device_call(h->device, &call, &h->err);
}

static void open_host(struct host *h, const char *path) {
    memset(h, 0, sizeof *h);
    h->device = open_device();
    if (tw_bundle_open(path, TW_BUNDLE_NO_RULES, &h->bundle, &h->err)) {
        fail_msg("%s", h->err.message);
    }
    send_segments(h);
}

static void close_host(struct host *h) {
    tw_bundle_close(&h->bundle);
    tw_device_close(h->device);
}

/* Loads a program and runs a step of it; returns the code. */
static int attack(struct host *h, uint32_t program, uint32_t mode) {
    struct tw_wire_done done;
    send_program(h, program);
    h->load.mode = mode;
    h->load.n_threads = 1;
    int code = load(h);
    if (code) {
        return code;
    }
    struct tw_wire_run q = {.program = h->loaded.program, .n_steps = 1};
    struct tw_device_call run = {.opcode = TW_WIRE_RUN,
                                 .payload = &q,
                                 .bytes = sizeof q,
                                 .out = &done,
                                 .out_bytes = sizeof done};
    code = tw_device_call(h->device, &run, &h->err);
    struct tw_device_call unload = {.opcode = TW_WIRE_UNLOAD, .address = h->loaded.program};
    return tw_device_call(h->device, &unload, NULL) ? TW_E_DEVICE_LOST : code;
}

static void attacks_are_refused_by_their_rule_and_the_device_lives_on(void **state) {
    (void)state;
    for (size_t i = 0; i < n_attack_bundles; i++) {
        const struct attack_bundle *a = &attack_bundles[i];
        const char *path = attack_bundle_make(a);
        struct host h;
        bool refused = false;
        open_host(&h, path);
        for (uint32_t k = 0; k < 2 * h.bundle.n_programs; k++) {
            int code = attack(&h, k / 2, k % 2);
            refused |= code && a->says && strstr(h.err.message, a->says);
            if (code && code != TW_E_VERIFY && code != TW_E_RANGE && code != TW_E_FAULT) {
                fail_msg("%s: program %u: %s", a->name, k / 2, h.err.message);
            }
        }
        if (refused != (a->says != NULL)) {
            fail_msg("%s: expected \"%s\", the last was: %s", a->name, a->says, h.err.message);
        }
        close_host(&h);
        unlink(path);
    }
    assert_served();
}

/* Each word of a certificate made one that is no turn and no number of ops, in one connection. */
static void broken_certificates_are_refused(void **state) {
    (void)state;
    tw_error err = {0};
    struct host h = {.device = open_device()};
    tw_decoder *decoder;
    assert_int_equal(tw_decoder_open(model_bundle("host"), 0, &decoder, &err), 0);
    h.bundle = decoder->bundle;
    send_segments(&h);
    const struct tw_program *p = &h.bundle.programs[0];
    const struct tw_certificate *c = &h.bundle.certificates[0];
    uint32_t bytes = tw_progblob_bytes(p, true);
    uint8_t *blob = aligned_alloc(64, (bytes + 63u) / 64 * 64);
    tw_progblob_write(p, true, blob);
    h.load.blob = send(&h, blob, bytes);
    h.load.blob_bytes = bytes;
    h.load.certificate = send(&h, c->words, c->n_words * 4u);
    h.load.certificate_bytes = c->n_words * 4u;
    for (uint32_t i = 0; i < c->n_words; i++) {
        uint32_t word = c->words[i] ^ 0x80000000u;
        assert_int_equal(tw_device_write(h.device, h.load.certificate + 4 * i, &word, 4, &err), 0);
        assert_int_equal(load(&h), TW_E_VERIFY);
        assert_non_null(strstr(h.err.message, ": LOAD: rule "));
        assert_int_equal(
            tw_device_write(h.device, h.load.certificate + 4 * i, &c->words[i], 4, &err), 0);
    }
    assert_int_equal(load(&h), 0);
    tw_decoder_close(decoder);
    tw_device_close(h.device);
    free(blob);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_honest_host_runs),
        cmocka_unit_test(a_driver_that_sends_no_certificate_is_refused),
        cmocka_unit_test(the_emulator_of_this_process_trusts_nobody_else),
        cmocka_unit_test(attacks_are_refused_by_their_rule_and_the_device_lives_on),
        cmocka_unit_test(broken_certificates_are_refused),
    };
    return cmocka_run_group_tests_name("socket verifies", tests, start, end);
}
