/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator with faults: every fault plan, with several seeds, ends in a correct result or a
 * clean error within the deadline, and the next open works.
 */
#include "driver/device/device.h"
#include "loader/base/clock.h"
#include "tests/support/model_bundle.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"
#include "tilewright/emulate.h"

#include <signal.h>
#include <unistd.h>

#define DEADLINE_MS 1500u /* for plans that end with a lost device */
#define PATIENT_MS 8000u  /* for plans that must succeed, however busy this machine is */
#define LONG_S 60         /* no call may take so long, on any machine */
#define BYTES 140000u     /* three packets */
#define ROUNDS 4
#define AT_ONCE 36

/* How each plan must end. 0: with the correct result, however bad the link is. */
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
    {"tail", 0, ""},
    {"hundredth", 0, ""},
    {"ghost", 0, ""},
    {"stall", 0, ""},
    {"slow", 0, ""},
    {"crawl", 0, ""}, /* a_slow_machine_does_not_time_out */
    {"freeze", TW_E_TIMEOUT, "its progress counter stays at"},
    {"flood", TW_E_TIMEOUT, "its progress counter stays at"},
    {"backwards", TW_E_TIMEOUT, "its progress counter stays at"},
    {"site", 0, ""}, /* runs no program here: a_frozen_site_is_named */
    {"silent", TW_E_DEVICE_LOST, "no answer for"},
    {"ones", TW_E_DEVICE_LOST, "0xFF"},
    {"zeros", TW_E_DEVICE_LOST, "only damaged packets"},
    {"vanish", TW_E_DEVICE_LOST, "closed the connection"},
    /* a_device_that_returns_with_another_identity_is_refused */
    {"identity", TW_E_DEVICE_LOST, "closed the connection"},
    {"reset", TW_E_DEVICE_LOST, "it was reset in the meantime"},
    {"midrun", 0, ""}, /* a_reset_in_the_middle_of_a_run_is_reported */
    {"stale", TW_E_DEVICE_LOST, "it was reset in the meantime"},
    {"other", TW_E_PROTOCOL, "found one to"},
    {"twice", TW_E_PROTOCOL, "found one to"},
    {"lengths", TW_E_PROTOCOL, "an invalid length"},
    {"credits", TW_E_PROTOCOL, "0 credits"},
    {"nomem", 0, ""}, /* a_device_without_memory_for_programs_reports_it */
    {"rot", 0, ""},   /* kept_bytes_are_compared */
    {"version", TW_E_VERSION, "upgrade the driver"},
    {"older", TW_E_VERSION, "upgrade the device's firmware"},
    {"newer_abi", TW_E_VERSION, "upgrade the driver"},
    {"older_abi", TW_E_VERSION, "upgrade the device's firmware"},
    {"fewer_ops", 0, ""}, /* a_device_without_an_op_or_a_type_is_refused_by_name */
    {"fewer_types", 0, ""},
    {"link", TW_E_VERSION, "upgrade the driver"},
};
#define N_PLANS (sizeof expected / sizeof expected[0])

static void every_plan_has_a_test(void **state) {
    (void)state;
    uint32_t n = 0;
    const char *name;
    while ((name = tw_fault_plan(n, NULL))) {
        assert_true(n < N_PLANS);
        assert_string_equal(name, expected[n].plan);
        n++;
    }
    assert_int_equal(n, N_PLANS);
}

/* ---- work without programs, in processes of their own: most of the time is waiting ---- */

/* Writes, reads back, compares, hashes. INTERNAL: a wrong byte. */
static int work_round(tw_device *device, uint32_t round, uint8_t *bytes, uint8_t *back,
                      tw_error *err) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < BYTES; i++) {
        bytes[i] = (uint8_t)(i * 7 + round * 13 + i / 256);
    }
    int code = tw_device_alloc(device, BYTES, 64, false, &at, err);
    code = code ? code : tw_device_write(device, at, bytes, BYTES, err);
    code = code ? code : tw_device_read(device, at, back, BYTES, err);
    if (!code && memcmp(bytes, back, BYTES) != 0) {
        return tw_fail(err, TW_E_INTERNAL, "bytes read are not those written");
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
    if (!code && hash.crc32c != tw_wire_crc32c(0, bytes, BYTES)) {
        return tw_fail(err, TW_E_INTERNAL, "the hash differs");
    }
    tw_device_free(device, at);
    return code;
}

static int work(const char *selector, uint32_t deadline_ms, uint32_t rounds, tw_error *err) {
    static uint8_t bytes[BYTES], back[BYTES];
    tw_device *device;
    int code = socket_open(selector, deadline_ms, &device, err);
    if (code) {
        return code;
    }
    for (uint32_t i = 0; !code && i < rounds; i++) {
        code = work_round(device, i, bytes, back, err);
    }
    tw_error again = {0};
    uint64_t at;
    if (code && (tw_device_alloc(device, 64, 64, false, &at, &again) != TW_E_DEVICE_LOST ||
                 !strstr(again.message, "open it again"))) {
        code = tw_fail(err, TW_E_INTERNAL, "a lost device still accepts calls: %s", again.message);
    }
    tw_device_close(device);
    return code;
}

/* The result of FREE is ignored, so if the device is lost in it the next call reports it, with the
 * same cause. */
static bool is_expected(size_t i, int code, const tw_error *err) {
    bool late = expected[i].code && code == TW_E_DEVICE_LOST;
    return (code == expected[i].code || late) && strstr(err->message, expected[i].words);
}

struct trial {
    size_t plan;
    uint64_t seed;
    bool here; /* the emulator of the process itself */
};

static int complain(const struct trial *t, const char *what, int code, const char *line) {
    fprintf(stderr, "# %s,%llu%s: %s: %d '%s'\n", expected[t->plan].plan,
            (unsigned long long)t->seed, t->here ? " here" : "", what, code, line);
    return 1;
}

/* The first open meets the fault; a fault that happens once is over by the second. Returns 0 if all
 * is as expected. */
static int try_plan(void *ctx) {
    const struct trial *t = ctx;
    struct socket_device d;
    tw_error err = {0};
    const char *plan = expected[t->plan].plan;
    char name[64];
    snprintf(name, sizeof name, "%s-%u", plan, (unsigned)t->seed);
    if (t->here) {
        snprintf(d.selector, sizeof d.selector, "emu:host?faults=%s,%u", plan, (unsigned)t->seed);
    } else {
        socket_device_start(&d, name, plan, t->seed);
    }
    double start = tw_clock_s();
    uint32_t rounds = strcmp(plan, "hundredth") == 0 ? 10 * ROUNDS : ROUNDS;
    int code = work(d.selector, expected[t->plan].code ? DEADLINE_MS : PATIENT_MS, rounds, &err);
    if (!is_expected(t->plan, code, &err)) {
        return complain(t, "not as expected", code, err.message);
    }
    if (code && !strstr(err.message, t->here ? plan : d.selector)) {
        return complain(t, "the error does not name the device", code, err.message);
    }
    if (tw_clock_s() - start > LONG_S) {
        return complain(t, "it took too long", code, err.message);
    }
    if (t->here) {
        return 0;
    }
    code = work(d.selector, PATIENT_MS, ROUNDS, &err);
    if (code) {
        return complain(t, "the next open failed", code, err.message);
    }
    return socket_device_end(&d);
}

static void try_all(struct trial *trials, size_t n) {
    pid_t child[AT_ONCE] = {0};
    int failed = 0;
    for (size_t i = 0; i < n + AT_ONCE; i++) {
        pid_t *place = &child[i % AT_ONCE];
        if (*place) {
            failed += child_wait(*place) != 0;
        }
        *place = i < n ? child_start(try_plan, &trials[i]) : 0;
    }
    assert_int_equal(failed, 0);
}

static void plans_end_as_expected(void **state) {
    (void)state;
    struct trial trials[3 * N_PLANS];
    for (size_t i = 0; i < 3 * N_PLANS; i++) {
        uint64_t seed = i % 3 + 1;
        trials[i] = (struct trial){i / 3, seed, seed == 3};
    }
    try_all(trials, 3 * N_PLANS);
}

static void unknown_plans_are_refused_with_their_names(void **state) {
    (void)state;
    tw_error err = {0};
    tw_device *device;
    assert_int_equal(socket_open("emu:?faults=nonsense", 0, &device, &err), TW_E_USAGE);
    assert_non_null(strstr(err.message, "older_abi, fewer_ops, fewer_types, link"));
    assert_int_equal(socket_open("emu:?faults=drop,x", 0, &device, &err), TW_E_NO_DEVICE);
}

/* ---- work with programs ---- */

static int decode(const char *selector, uint32_t ids[24]) {
    struct rig r = {.err = {0}};
    const uint32_t begin[] = {1, 403, 407};
    int code = socket_open(selector, PATIENT_MS, &r.device, &r.err);
    code = code ? code : tw_decoder_open(model_bundle("host"), 0, &r.decoder, &r.err);
    code = code ? code : tw_deploy(r.device, r.decoder, &r.deployment, &r.err);
    code = code ? code : tw_session_create(r.deployment, NULL, &r.session, &r.err);
    code = code ? code : tw_session_feed(r.session, begin, 3, &r.err);
    struct tw_decoder_info info = {.size = sizeof info};
    if (!code) {
        tw_decoder_get_info(r.decoder, &info, NULL);
    }
    for (uint32_t i = 0; !code && i < 24; i++) {
        const float *logits = tw_session_logits(r.session);
        ids[i] = 0;
        for (uint32_t k = 1; k < info.n_vocab; k++) {
            ids[i] = logits[k] > logits[ids[i]] ? k : ids[i];
        }
        code = tw_session_feed(r.session, &ids[i], 1, &r.err);
    }
    if (code) {
        fprintf(stderr, "# %s: %s\n", selector, r.err.message);
    }
    rig_close(&r);
    return code;
}

static int decodes_the_same(void *selector) {
    uint32_t good_ids[24], ids[24];
    return decode("emu", good_ids) || decode(selector, ids) ||
           memcmp(good_ids, ids, sizeof ids) != 0;
}

static int open_session(const char *selector, uint32_t deadline_ms, enum tw_mode mode,
                        struct rig *r) {
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
    double start = tw_clock_s();
    int code = 0;
    for (uint32_t i = 0; !code && i < 4; i++) {
        code = tw_session_feed(r.session, &ids[i], 1, &r.err);
    }
    assert_int_equal(code, TW_E_TIMEOUT);
    assert_true(tw_clock_s() - start < LONG_S);
    assert_non_null(strstr(r.err.message, "in RUN at site "));
    assert_non_null(strstr(r.err.message, "(matmul)"));
    assert_non_null(strstr(r.err.message, " is in section "));
    rig_close(&r);
    assert_int_equal(open_session(d.selector, 0, TW_MODE_FAST, &r),
                     0); /* the reset released the frozen site */
    assert_int_equal(tw_session_feed(r.session, ids, 4, &r.err), 0);
    rig_close(&r);
    assert_int_equal(socket_device_end(&d), 0);
}

/* Runs one step of 20 tokens, which takes some seconds on a machine that crawls. Returns 0 if the
 * result is correct and it was as slow as it should be. */
static int crawl_on(const char *selector, enum tw_mode mode, uint32_t deadline_ms) {
    struct rig r;
    uint32_t ids[20];
    for (uint32_t i = 0; i < 20; i++) {
        ids[i] = 1 + i;
    }
    int code = open_session(selector, deadline_ms, mode, &r);
    double start = tw_clock_s();
    code = code ? code : tw_session_feed(r.session, ids, 20, &r.err);
    if (code) {
        fprintf(stderr, "# %s\n", r.err.message);
    }
    bool many = tw_clock_s() - start > 1.5e-3 * deadline_ms;
    rig_close(&r);
    return code || !many;
}

/* The step takes many times the deadline, but makes progress all the time. */
static int crawl(void *mode) {
    struct socket_device d;
    char name[32];
    snprintf(name, sizeof name, "crawl-%d", (int)getpid());
    socket_device_start(&d, name, "crawl", 1);
    int code = crawl_on(d.selector, *(enum tw_mode *)mode, 800);
    return code || socket_device_end(&d);
}

static int crawl_patiently(void *selector) {
    return crawl_on(selector, TW_MODE_FAST, 1200);
}

/* The host is stopped for longer than its deadline in the middle of a step, and the device a little
 * before, so that no packet from it is waiting when the host wakes. The device must not be blamed
 * for that. */
static int crawl_and_be_stopped(void *ctx) {
    struct socket_device d;
    (void)ctx;
    socket_device_start(&d, "crawl-stopped", "crawl", 1);
    pid_t host = child_start(crawl_patiently, d.selector);
    usleep(300000); /* it may be anywhere; most of the time it waits for its step */
    child_stop(d.pid);
    usleep(100000);
    child_stop(host);
    usleep(1500000);
    kill(host, SIGCONT);
    usleep(50000);
    kill(d.pid, SIGCONT);
    int code = child_wait(host);
    return code || socket_device_end(&d);
}

/* These take long but hardly any processor time, so they begin before the other tests. */
static pid_t on_bad_link[4], crawling[2], stopped;

static void start_slow_ones(void) {
    static char bad[4][32] = {"emu:?faults=mess,3", "emu:?faults=corrupt,4", "emu:?faults=stall,5",
                              "emu:?faults=tail,6"};
    static enum tw_mode modes[2] = {TW_MODE_FAST, TW_MODE_STRICT};
    model_bundle("host");
    model_bundle("sim4x4");
    for (int i = 0; i < 4; i++) {
        on_bad_link[i] = child_start(decodes_the_same, bad[i]);
    }
    for (int i = 0; i < 2; i++) {
        crawling[i] = child_start(crawl, &modes[i]);
    }
    stopped = child_start(crawl_and_be_stopped, NULL);
}

static void a_bad_link_changes_no_token(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(child_wait(on_bad_link[i]), 0);
    }
}

static void a_slow_machine_does_not_time_out(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(child_wait(crawling[i]), 0);
    }
}

static void a_host_that_was_stopped_does_not_blame_the_device(void **state) {
    (void)state;
    assert_int_equal(child_wait(stopped), 0);
}

static const uint32_t prompt[] = {1, 403, 407, 300};

static void must_decode(const char *selector) {
    struct rig r;
    if (open_session(selector, 0, TW_MODE_FAST, &r) ||
        tw_session_feed(r.session, prompt, 4, &r.err)) {
        fail_msg("%s", r.err.message);
    }
    rig_close(&r);
}

static void a_device_without_memory_for_programs_reports_it(void **state) {
    (void)state;
    struct socket_device d;
    struct rig r;
    socket_device_start(&d, "nomem", "nomem", 1);
    assert_int_equal(open_session(d.selector, 0, TW_MODE_FAST, &r), TW_E_NOMEM);
    assert_non_null(strstr(r.err.message, d.selector));
    assert_non_null(
        strstr(r.err.message, "LOAD: no memory for the program (have 0, need 1048576)"));
    rig_close(&r);
    must_decode(d.selector);
    assert_int_equal(socket_device_end(&d), 0);
}

static void a_device_without_an_op_or_a_type_is_refused_by_name(void **state) {
    (void)state;
    static const char *const plan[] = {"fewer_ops", "fewer_types"};
    static const char *const words[] = {"needs the op matmul (number 34), which device socket:",
                                        "needs the element type q8_0 (number 4), which device "
                                        "socket:"};
    for (int i = 0; i < 2; i++) {
        struct socket_device d;
        struct rig r;
        socket_device_start(&d, plan[i], plan[i], 1);
        assert_int_equal(open_session(d.selector, 0, TW_MODE_FAST, &r), TW_E_UNSUPPORTED);
        assert_non_null(strstr(r.err.message, words[i]));
        rig_close(&r);
        assert_int_equal(socket_device_end(&d), 0);
    }
}

static void kept_bytes_are_compared(void **state) {
    (void)state;
    struct socket_device d;
    struct rig r;
    socket_device_start(&d, "rot", "rot", 1);
    assert_int_equal(open_session(d.selector, 0, TW_MODE_FAST, &r), 0);
    rig_close(&r);
    assert_int_equal(open_session(d.selector, 0, TW_MODE_FAST, &r), TW_E_PROTOCOL);
    assert_non_null(strstr(r.err.message, "tilewright reset --device socket:rot"));
    assert_int_equal(tw_device_reset(r.device, &r.err), 0);
    rig_close(&r);
    must_decode(d.selector);
    assert_int_equal(socket_device_end(&d), 0);
}

static void a_device_that_returns_with_another_identity_is_refused(void **state) {
    (void)state;
    struct socket_device d;
    struct rig r;
    socket_device_start(&d, "identity", "identity", 1);
    assert_int_equal(open_session(d.selector, 0, TW_MODE_FAST, &r), TW_E_DEVICE_LOST);
    rig_close(&r);
    assert_int_equal(open_session(d.selector, 0, TW_MODE_FAST, &r), TW_E_TARGET);
    assert_non_null(strstr(
        r.err.message, "compiled for target sim4x4, but device socket:identity is a changeling"));
    rig_close(&r);
    assert_int_equal(socket_device_end(&d), 0);
}

static void a_reset_in_the_middle_of_a_run_is_reported(void **state) {
    (void)state;
    struct socket_device d;
    struct rig r;
    int code = 0;
    socket_device_start(&d, "midrun", "midrun", 1);
    assert_int_equal(open_session(d.selector, 0, TW_MODE_FAST, &r), 0);
    for (uint32_t i = 0; !code && i < 100; i++) {
        code = tw_session_feed(r.session, prompt, 1, &r.err);
    }
    assert_int_equal(code, TW_E_DEVICE_LOST);
    assert_non_null(strstr(r.err.message, "device socket:midrun: it was reset in the meantime"));
    rig_close(&r);
    must_decode(d.selector);
    assert_int_equal(socket_device_end(&d), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_has_a_test),
        cmocka_unit_test(plans_end_as_expected),
        cmocka_unit_test(unknown_plans_are_refused_with_their_names),
        cmocka_unit_test(a_frozen_site_is_named),
        cmocka_unit_test(a_device_without_memory_for_programs_reports_it),
        cmocka_unit_test(a_device_without_an_op_or_a_type_is_refused_by_name),
        cmocka_unit_test(kept_bytes_are_compared),
        cmocka_unit_test(a_device_that_returns_with_another_identity_is_refused),
        cmocka_unit_test(a_reset_in_the_middle_of_a_run_is_reported),
        cmocka_unit_test(a_host_that_was_stopped_does_not_blame_the_device),
        cmocka_unit_test(a_bad_link_changes_no_token),
        cmocka_unit_test(a_slow_machine_does_not_time_out),
    };
    socket_folder_make();
    start_slow_ones();
    int failed = cmocka_run_group_tests_name("socket_faults", tests, NULL, NULL);
    model_bundle_cleanup();
    socket_folder_remove();
    return failed;
}
