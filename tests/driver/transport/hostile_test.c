/* SPDX-License-Identifier: Apache-2.0
 *
 * A served device between hostile hosts, and a driver between hostile devices, over a socket,
 * usbredir and ivshmem. After each hostile peer an honest one gets the right logits, from the same
 * server process or with the same driver process; nothing dies, leaks or grows. `make hostile` runs
 * it under the sanitizers: TW_MINUTES for each of the two, else some seconds. TW_HOSTILE_SEED is
 * the number of the first peer; a failure names that of the last.
 */
#include "loader/base/clock.h"
#include "tests/support/hostile_peer.h"
#include "tests/support/pcie_bed.h"
#include "tests/support/random_model.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"
#include "tilewright/compile.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

enum { SHORT_MS = 4000, N_VOCAB = 64, N_IDS = 5, HONEST_MS = 60000, MORE_FDS = 8 };
/* What the server may grow by: freed memory that a sanitizer holds back. */
#define MORE_KIB (700ul << 10)

static struct world {
    struct hostile_bed bed;
    char model[120], bundle[120];
    tw_decoder *decoder;
    float expected[N_VOCAB];
    struct hostile_tape tape[2]; /* fast, strict */
    uint64_t seed, ms;
    uint32_t peers[HOSTILE_MEDIA], honest, opened, failed;
    unsigned fds;
    unsigned long kib, max_kib;
} w;

/* ---- an honest host ---- */

static int feed(tw_device *device, enum tw_mode mode, float *logits, tw_error *err) {
    static const uint32_t ids[N_IDS] = {1, 7, 3, 60, 11};
    tw_deployment *deployment = NULL;
    tw_session *session = NULL;
    struct tw_session_options o = {.size = sizeof o, .mode = mode};
    int code = tw_deploy(device, w.decoder, &deployment, err);
    code = code ? code : tw_session_create(deployment, &o, &session, err);
    code = code ? code : tw_session_feed(session, ids, N_IDS, err);
    if (!code) {
        memcpy(logits, tw_session_logits(session), sizeof w.expected);
    }
    tw_session_destroy(session);
    tw_deployment_destroy(deployment);
    return code;
}

/* While the server cleans up behind the last host, it is busy. */
static int open_over(enum hostile_medium medium, bool window, struct hostile_tape *tape,
                     struct hostile_line *line, tw_device **out, tw_error *err) {
    int code = TW_E_NO_DEVICE;
    for (uint64_t end = tw_clock_ms() + HONEST_MS; tw_clock_ms() < end;) {
        if (!hostile_line_open(&w.bed, medium, window, line)) {
            tw_error_set(err, TW_E_NO_DEVICE, "the medium does not answer");
            return TW_E_NO_DEVICE;
        }
        struct tw_pipe *pipe = tape ? hostile_recorder(line->pipe, tape) : line->pipe;
        code = device_over_pipe(hostile_medium_name[medium], pipe, 30000, out, err);
        if (code == 0) {
            return 0;
        }
        hostile_line_close(line);
        if (code != TW_E_DEVICE_BUSY) {
            return code;
        }
        usleep(2000);
    }
    return code;
}

static void an_honest_host_gets_its_logits(enum hostile_medium medium, uint64_t seed,
                                           struct hostile_tape *tape) {
    static struct hostile_line line;
    float logits[N_VOCAB];
    tw_device *device;
    tw_error err = {0};
    int code = open_over(medium, seed & 1, tape, &line, &device, &err);
    if (code) {
        fail_msg("seed %llu: an honest host on %s cannot open the device, server %s: %s",
                 (unsigned long long)seed, hostile_medium_name[medium],
                 hostile_bed_lives(&w.bed) ? "lives" : "is dead", err.message);
    }
    code = feed(device, seed & 2 ? TW_MODE_STRICT : TW_MODE_FAST, logits, &err);
    tw_device_close(device);
    hostile_line_close(&line);
    if (code) {
        fail_msg("seed %llu: an honest host on %s: %s", (unsigned long long)seed,
                 hostile_medium_name[medium], err.message);
    }
    assert_memory_equal(logits, w.expected, sizeof logits);
    w.honest++;
}

/* ---- the bed ---- */

static void make_bundle(void) {
    static const struct random_shape shape = {.dim = 32,
                                              .hidden = 64,
                                              .n_layers = 2,
                                              .n_heads = 2,
                                              .n_kv_heads = 2,
                                              .head_dim = 16,
                                              .n_vocab = N_VOCAB,
                                              .n_ctx = 128,
                                              .seed = 3};
    struct random_model model;
    struct tw_compile_options o = {
        .size = sizeof o, .host_sites = 2, .prefill_rows = 4, .target = "host"};
    tw_error err = {0};
    const char *folder = getenv("XDG_RUNTIME_DIR");
    snprintf(w.model, sizeof w.model, "%.80s/model.gguf", folder);
    snprintf(w.bundle, sizeof w.bundle, "%.80s/model.twb", folder);
    assert_true(random_model_init(&model, &shape) && random_model_save(&model, w.model));
    random_model_finish(&model);
    if (tw_compile_file(w.model, w.bundle, &o, NULL, &err) ||
        tw_decoder_open(w.bundle, 0, &w.decoder, &err)) {
        fail_msg("%s", err.message);
    }
}

static void expect_logits(void) {
    struct tw_device_options o = {.size = sizeof o, .n_threads = 1};
    tw_device *device;
    tw_error err = {0};
    if (tw_device_open("emu", &o, &device, &err) || feed(device, TW_MODE_FAST, w.expected, &err)) {
        fail_msg("%s", err.message);
    }
    tw_device_close(device);
}

static int set_up(void **state) {
    const char *minutes = getenv("TW_MINUTES"), *seed = getenv("TW_HOSTILE_SEED");
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    w.ms = minutes && atof(minutes) > 0 ? (uint64_t)(atof(minutes) * 60000) : SHORT_MS;
    w.seed = seed ? strtoull(seed, NULL, 10) : 1;
    socket_folder_make();
    make_bundle();
    hostile_bed_start(&w.bed); /* before this process has threads */
    expect_logits();
    for (uint32_t strict = 0; strict < 2; strict++) {
        an_honest_host_gets_its_logits(HOSTILE_SOCKET, 2 * strict, &w.tape[strict]);
        assert_true(w.tape[strict].n > 10);
    }
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    int status = hostile_bed_end(&w.bed);
    hostile_tape_free(&w.tape[0]);
    hostile_tape_free(&w.tape[1]);
    tw_decoder_close(w.decoder);
    unlink(w.model);
    unlink(w.bundle);
    socket_folder_remove();
    if (status) {
        print_error("the server's exit status: %d\n", status);
    }
    return status;
}

/* ---- bounds ---- */

static void watch_the_server(uint64_t seed, bool first) {
    if (!hostile_bed_lives(&w.bed)) {
        fail_msg("seed %llu: the server has died", (unsigned long long)seed);
    }
    unsigned fds = process_fds(w.bed.pid);
    unsigned long kib = process_kib(w.bed.pid);
    w.fds = first ? fds : w.fds;
    w.kib = first ? kib : w.kib;
    w.max_kib = first || kib > w.max_kib ? kib : w.max_kib;
    if (fds > w.fds + MORE_FDS || kib > w.kib + MORE_KIB) {
        fail_msg("seed %llu: the server has %u descriptors, first %u; %lu KiB, first %lu",
                 (unsigned long long)seed, fds, w.fds, kib, w.kib);
    }
}

static void tell(const char *who, uint64_t seed) {
    print_message("%s, last seed %llu: %u over the socket, %u usbredir, %u ivshmem; honest ones "
                  "served: %u; server: %u descriptors, %lu MiB at the start, %lu at most\n",
                  who, (unsigned long long)seed, w.peers[HOSTILE_SOCKET], w.peers[HOSTILE_USBREDIR],
                  w.peers[HOSTILE_IVSHMEM], w.honest, w.fds, w.kib >> 10, w.max_kib >> 10);
    fflush(NULL);
}

static bool time_to_tell(uint64_t *next) {
    bool now = tw_clock_ms() >= *next;
    *next = now ? tw_clock_ms() + 60000 : *next;
    return now;
}

/* ---- hostile hosts ---- */

struct attack {
    enum hostile_medium medium;
    uint64_t seed;
};

/* In a process of its own, of which nothing is expected. */
static int attack(void *ctx) {
    const struct attack *a = ctx;
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDERR_FILENO);
    hostile_host(&w.bed, a->medium, &w.tape[a->seed / 3 % 2], a->seed);
    return 0;
}

static void a_server_survives_hostile_hosts(void **state) {
    uint64_t end = tw_clock_ms() + w.ms, seed = w.seed, next = tw_clock_ms() + 60000;
    (void)state;
    memset(w.peers, 0, sizeof w.peers);
    w.honest = 0;
    for (bool first = true; first || tw_clock_ms() < end; first = false, seed++) {
        struct attack a = {(enum hostile_medium)(seed % HOSTILE_MEDIA), seed};
        child_wait(child_start(attack, &a));
        w.peers[a.medium]++;
        watch_the_server(seed, first);
        an_honest_host_gets_its_logits((enum hostile_medium)(seed / 2 % HOSTILE_MEDIA), seed, NULL);
        watch_the_server(seed, false);
        if (time_to_tell(&next)) {
            tell("hostile hosts", seed);
        }
    }
    tell("hostile hosts", seed - 1);
}

/* Its process ends in the middle of a conversation; nobody says that it has. */
static int die_with_the_device(void *ctx) {
    static struct hostile_line line;
    uint32_t how = *(const uint32_t *)ctx;
    tw_device *device;
    tw_error err = {0};
    _exit(open_over((enum hostile_medium)(how / 2), how & 1, NULL, &line, &device, &err) != 0);
}

static void a_killed_host_frees_the_device_for_every_medium(void **state) {
    (void)state;
    for (uint32_t how = 0; how < 2 * HOSTILE_MEDIA; how++) {
        uint64_t begin = tw_clock_ms();
        assert_int_equal(child_wait(child_start(die_with_the_device, &how)), 0);
        an_honest_host_gets_its_logits((enum hostile_medium)((how / 2 + 1) % HOSTILE_MEDIA), how,
                                       NULL);
        assert_in_range(tw_clock_ms() - begin, 0, HONEST_MS / 2);
    }
}

/* ---- hostile devices ---- */

/* Whatever it answers, every call returns. */
static void meet_a_hostile_device(enum hostile_medium medium, uint64_t seed) {
    static struct hostile_line line;
    float logits[N_VOCAB];
    tw_device *device;
    tw_error err = {0};
    if (!hostile_line_open(&w.bed, medium, seed & 1, &line)) {
        fail_msg("seed %llu: %s does not answer", (unsigned long long)seed,
                 hostile_medium_name[medium]);
    }
    struct tw_pipe *pipe = hostile_device(&line, seed);
    if (device_over_pipe("hostile", pipe, 300, &device, &err) == 0) {
        w.opened++;
        w.failed += feed(device, seed & 2 ? TW_MODE_STRICT : TW_MODE_FAST, logits, &err) != 0;
        tw_device_close(device);
    }
    hostile_line_close(&line);
}

static void a_driver_survives_hostile_devices(void **state) {
    uint64_t end = tw_clock_ms() + w.ms, seed = w.seed, next = tw_clock_ms() + 60000;
    unsigned fds = 0;
    (void)state;
    memset(w.peers, 0, sizeof w.peers);
    w.honest = 0;
    for (bool first = true; first || tw_clock_ms() < end; first = false, seed++) {
        enum hostile_medium medium = (enum hostile_medium)(seed % HOSTILE_MEDIA);
        meet_a_hostile_device(medium, seed);
        w.peers[medium]++;
        an_honest_host_gets_its_logits((enum hostile_medium)(seed / 2 % HOSTILE_MEDIA), seed, NULL);
        watch_the_server(seed, first);
        fds = first ? process_fds(getpid()) : fds;
        assert_in_range(process_fds(getpid()), 0, fds + 1);
        if (time_to_tell(&next)) {
            tell("hostile devices", seed);
        }
    }
    tell("hostile devices", seed - 1);
    print_message("of them opened: %u, then failed: %u\n", w.opened, w.failed);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_host_frees_the_device_for_every_medium),
        cmocka_unit_test(a_server_survives_hostile_hosts),
        cmocka_unit_test(a_driver_survives_hostile_devices),
    };
    return cmocka_run_group_tests_name("hostile", tests, set_up, tear_down);
}
