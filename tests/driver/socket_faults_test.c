/* SPDX-License-Identifier: Apache-2.0
 * The emulator that lies: every fault plan, with several seeds, ends in a right result or a clean error within the
 * deadline, and the next open works. */
#include "driver/device.h"
#include "tests/support/model_bundle.h"
#include "tests/support/socket_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEADLINE_MS 400u
#define BYTES 140000u /* three packets */
#define ROUNDS 4

/* How each plan has to end. 0: in the right result, however bad the link is. */
static const struct {
    const char *plan;
    int code;
    const char *words;
} expected[] = {
    {"drop", 0, ""},
    {"delay", 0, ""},
    {"duplicate", 0, ""},
    {"truncate", 0, ""},
    {"corrupt", 0, ""},
    {"mess", 0, ""},
    {"stall", 0, ""},
    {"slow", 0, ""},
    {"crawl", 0, ""}, /* a_slow_machine_is_no_hang */
    {"freeze", TW_E_TIMEOUT, "its progress word stays at"},
    {"site", 0, ""}, /* runs no program here: a_frozen_site_is_named */
    {"silent", TW_E_DEVICE_LOST, "no sign of life"},
    {"ones", TW_E_DEVICE_LOST, "0xFF"},
    {"version", TW_E_VERSION, "upgrade the driver"},
    {"vanish", TW_E_DEVICE_LOST, "closed the connection"},
};
#define N_PLANS (sizeof expected / sizeof expected[0])

static void every_plan_has_a_test(void **state) {
    (void)state;
    uint32_t n = 0;
    const char *name;
    while ((name = tw_fault_plan(n, NULL))) {
        assert_string_equal(name, expected[n].plan);
        n++;
    }
    assert_int_equal(n, N_PLANS);
}

/* Writes, reads back, compares, hashes; a wrong byte fails the test. */
static int work_round(tw_device *device, uint32_t round, uint8_t *bytes, uint8_t *back, tw_error *err) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < BYTES; i++) {
        bytes[i] = (uint8_t)(i * 7 + round * 13 + i / 256);
    }
    int code = tw_device_alloc(device, BYTES, 64, false, &at, err);
    code = code ? code : tw_device_write(device, at, bytes, BYTES, err);
    code = code ? code : tw_device_read(device, at, back, BYTES, err);
    if (!code) {
        assert_memory_equal(bytes, back, BYTES);
    }
    struct tw_wire_range all = {.bytes = BYTES};
    struct tw_wire_hash hash = {0};
    struct tw_device_call call = {.opcode = TW_WIRE_HASH,
                                  .address = at,
                                  .payload = &all,
                                  .bytes = sizeof all,
                                  .out = &hash,
                                  .out_bytes = sizeof hash};
    code = code ? code : tw_device_call(device, &call, err);
    if (!code) {
        assert_int_equal(hash.crc32c, tw_wire_crc32c(0, bytes, BYTES));
    }
    tw_device_free(device, at);
    return code;
}

static int work(const char *selector, tw_error *err) {
    static uint8_t bytes[BYTES], back[BYTES];
    tw_device *device;
    int code = socket_open(selector, DEADLINE_MS, &device, err);
    if (code) {
        return code;
    }
    for (uint32_t i = 0; !code && i < ROUNDS; i++) {
        code = work_round(device, i, bytes, back, err);
    }
    if (code) {
        tw_error again = {0};
        uint64_t at;
        assert_int_equal(tw_device_alloc(device, 64, 64, false, &at, &again), TW_E_DEVICE_LOST);
        assert_non_null(strstr(again.message, "open it again"));
    }
    tw_device_close(device);
    return code;
}

/* The first open meets the fault; what happened once is over for the second. */
/* A FREE has no result, so a device lost in it is noticed by the next call, which tells the same cause. */
static bool is_expected(size_t i, int code, const tw_error *err) {
    bool late = expected[i].code == TW_E_TIMEOUT && code == TW_E_DEVICE_LOST;
    return (code == expected[i].code || late) && strstr(err->message, expected[i].words);
}

static void run_plan(size_t i, uint64_t seed) {
    struct socket_device d;
    tw_error err = {0};
    socket_device_start(&d, expected[i].plan, expected[i].plan, seed);
    double start = seconds();
    int code = work(d.selector, &err);
    double took = seconds() - start;
    if (!is_expected(i, code, &err)) {
        fail_msg("%s, seed %llu: %d '%s'", expected[i].plan, (unsigned long long)seed, code, err.message);
    }
    assert_true(code == 0 || strstr(err.message, d.selector) != NULL);
    assert_true(took < (expected[i].code ? 3 : 30));
    assert_int_equal(work(d.selector, &err), 0);
    assert_int_equal(socket_device_end(&d), 0);
}

static void plans_end_as_expected(void **state) {
    (void)state;
    for (size_t i = 0; i < N_PLANS; i++) {
        for (uint64_t seed = 1; seed <= 2; seed++) {
            run_plan(i, seed);
        }
    }
}

static void the_emulator_of_this_process_lies_the_same_way(void **state) {
    (void)state;
    for (size_t i = 0; i < N_PLANS; i++) {
        char selector[64];
        tw_error err = {0};
        snprintf(selector, sizeof selector, "emu:host?faults=%s,%u", expected[i].plan, 11);
        int code = work(selector, &err);
        if (!is_expected(i, code, &err)) {
            fail_msg("%s: %d '%s'", selector, code, err.message);
        }
    }
    tw_error err = {0};
    tw_device *device;
    assert_int_equal(socket_open("emu:?faults=nonsense", 0, &device, &err), TW_E_USAGE);
    assert_non_null(strstr(err.message, "vanish"));
    assert_int_equal(socket_open("emu:?faults=drop,x", 0, &device, &err), TW_E_NO_DEVICE);
}

static void decode(const char *selector, uint32_t ids[24]) {
    struct rig r = {.err = {0}};
    const uint32_t prompt[] = {1, 403, 407};
    assert_int_equal(socket_open(selector, 0, &r.device, &r.err), 0);
    assert_int_equal(tw_decoder_open(model_bundle("host"), 0, &r.decoder, &r.err), 0);
    assert_int_equal(tw_deploy(r.device, r.decoder, &r.deployment, &r.err), 0);
    assert_int_equal(tw_session_create(r.deployment, NULL, &r.session, &r.err), 0);
    assert_int_equal(tw_session_feed(r.session, prompt, 3, &r.err), 0);
    struct tw_decoder_info info = {.size = sizeof info};
    tw_decoder_get_info(r.decoder, &info);
    for (uint32_t i = 0; i < 24; i++) {
        const float *logits = tw_session_logits(r.session);
        ids[i] = 0;
        for (uint32_t k = 1; k < info.n_vocab; k++) {
            ids[i] = logits[k] > logits[ids[i]] ? k : ids[i];
        }
        assert_int_equal(tw_session_feed(r.session, &ids[i], 1, &r.err), 0);
    }
    rig_close(&r);
}

static void a_bad_link_changes_no_token(void **state) {
    (void)state;
    static const char *const bad[] = {"emu:?faults=mess,3", "emu:?faults=corrupt,4", "emu:?faults=stall,5"};
    uint32_t good_ids[24], ids[24];
    decode("emu", good_ids);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        decode(bad[i], ids);
        assert_memory_equal(good_ids, ids, sizeof ids);
    }
}

static int open_session(const char *selector, uint32_t deadline_ms, enum tw_mode mode, struct rig *r) {
    struct tw_session_options o = {.size = sizeof o, .mode = mode};
    *r = (struct rig){.err = {0}};
    int code = socket_open(selector, deadline_ms, &r->device, &r->err);
    code = code ? code : tw_decoder_open(model_bundle("sim4x4"), 0, &r->decoder, &r->err);
    code = code ? code : tw_deploy(r->device, r->decoder, &r->deployment, &r->err);
    return code ? code : tw_session_create(r->deployment, &o, &r->session, &r->err);
}

static void a_frozen_site_is_named(void **state) {
    (void)state;
    struct socket_device d;
    struct rig r;
    const uint32_t ids[] = {1, 403, 407, 300};
    socket_device_start(&d, "frozen", "site", 1);
    assert_int_equal(open_session(d.selector, DEADLINE_MS, TW_MODE_FAST, &r), 0);
    double start = seconds();
    int code = 0;
    for (uint32_t i = 0; !code && i < 4; i++) {
        code = tw_session_feed(r.session, &ids[i], 1, &r.err);
    }
    assert_int_equal(code, TW_E_TIMEOUT);
    assert_true(seconds() - start < 3);
    assert_non_null(strstr(r.err.message, "in RUN at site "));
    assert_non_null(strstr(r.err.message, "(matmul)"));
    assert_non_null(strstr(r.err.message, " is in section "));
    rig_close(&r);
    assert_int_equal(open_session(d.selector, 0, TW_MODE_FAST, &r), 0); /* the reset let it go */
    assert_int_equal(tw_session_feed(r.session, ids, 4, &r.err), 0);
    rig_close(&r);
    assert_int_equal(socket_device_end(&d), 0);
}

/* A step takes many times the deadline, but gets on all the while. */
static void a_slow_machine_is_no_hang(void **state) {
    (void)state;
    static const enum tw_mode modes[] = {TW_MODE_FAST, TW_MODE_STRICT};
    for (size_t m = 0; m < 2; m++) {
        struct socket_device d;
        struct rig r;
        uint32_t ids[20];
        for (uint32_t i = 0; i < 20; i++) {
            ids[i] = 1 + i;
        }
        socket_device_start(&d, "crawl", "crawl", 1);
        assert_int_equal(open_session(d.selector, 100, modes[m], &r), 0);
        double start = seconds();
        if (tw_session_feed(r.session, ids, 20, &r.err)) { /* one step */
            fail_msg("%s", r.err.message);
        }
        assert_true(seconds() - start > 0.5);
        rig_close(&r);
        assert_int_equal(socket_device_end(&d), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_has_a_test),
        cmocka_unit_test(plans_end_as_expected),
        cmocka_unit_test(the_emulator_of_this_process_lies_the_same_way),
        cmocka_unit_test(a_bad_link_changes_no_token),
        cmocka_unit_test(a_frozen_site_is_named),
        cmocka_unit_test(a_slow_machine_is_no_hang),
    };
    socket_folder_make();
    int failed = cmocka_run_group_tests_name("socket_faults", tests, NULL, NULL);
    model_bundle_cleanup();
    socket_folder_remove();
    return failed;
}
