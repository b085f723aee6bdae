/* SPDX-License-Identifier: Apache-2.0
 *
 * A device behind a medium: a host that vanishes in the middle of a run, as its medium reports,
 * does not keep the device running for it.
 */
#include "driver/device/device.h"
#include "driver/transport/link/link_client.h"
#include "firmware/serve/device_server.h"
#include "loader/base/clock.h"
#include "tests/support/model_bundle.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"
#include "tests/support/test_medium.h"

#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define LONG_S 120 /* longer than anything may take, on any machine */
#define TOKENS 200u

struct bed {
    struct tw_device_server *device;
    pthread_t server;
    struct test_medium *medium;
    int host_fd;
};

static void *serve(void *arg) {
    tw_device_server_run(arg, NULL);
    return NULL;
}

static void start(struct bed *b) {
    const struct tw_device_server_options o = {.path = "medium",
                                               .emu = {.n_threads = 1, .memory_bytes = 256u << 20},
                                               .faults = "crawl",
                                               .seed = 1};
    int fd[2];
    assert_int_equal(tw_device_server_create(&o, &b->device, NULL), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fd), 0);
    struct tw_pipe *inner = tw_pipe_socket(fd[1]);
    b->medium = test_medium_create(inner, inner->chunk, NULL);
    b->host_fd = fd[0];
    assert_int_equal(
        tw_device_server_add_medium(b->device, tw_medium_create(&b->medium->base), NULL), 0);
    assert_int_equal(pthread_create(&b->server, NULL, serve, b->device), 0);
}

static void end(struct bed *b) {
    tw_device_server_stop(b->device);
    pthread_join(b->server, NULL);
    tw_device_server_destroy(b->device);
}

static const struct tw_transport_ops ops = {.name = "medium",
                                            .submit = tw_link_submit,
                                            .receive = tw_link_receive,
                                            .stuck = tw_link_is_stuck,
                                            .close = tw_link_close};

static void open_session(struct rig *r, struct tw_device *device) {
    assert_int_equal(tw_decoder_open(model_bundle("host"), 0, &r->decoder, &r->err), 0);
    assert_int_equal(tw_deploy(device, r->decoder, &r->deployment, &r->err), 0);
    assert_int_equal(tw_session_create(r->deployment, NULL, &r->session, &r->err), 0);
}

/* A session over the medium. */
static void open_rig(struct rig *r, struct tw_device *device, int fd, uint32_t deadline_ms) {
    struct tw_link *link;
    *r = (struct rig){.err = {0}};
    assert_int_equal(tw_link_open("medium", tw_pipe_socket(fd), deadline_ms, &link, &r->err), 0);
    link->base.ops = &ops;
    *device = (struct tw_device){.transport = &link->base, .selector = "medium"};
    memset(&device->limits, 0xFF, sizeof device->limits); /* as of a device that does not say */
    device->identity = (struct tw_wire_identity){
        .abi_major = TW_MACHINE_ABI_MAJOR,
        .abi_minor = TW_MACHINE_ABI_MINOR,
        .capabilities = TW_WIRE_CAN_GREEDY | TW_WIRE_CAN_FAST | TW_WIRE_CAN_VERIFY,
        .max_payload = TW_LINK_MAX_PAYLOAD};
    pthread_mutex_init(&device->lock, NULL);
    open_session(r, device);
}

static void close_rig(struct rig *r, struct tw_device *device) {
    rig_close(r); /* it has no device of its own */
    device->transport->ops->close(device->transport);
    pthread_mutex_destroy(&device->lock);
}

struct runner {
    struct rig rig;
    int code;
};

static void *run_greedy(void *arg) {
    struct runner *r = arg;
    uint32_t tokens[TOKENS], n;
    enum tw_stop_reason reason;
    struct tw_greedy_options o = {.size = sizeof o, .n = TOKENS};
    r->code = tw_session_run_greedy(r->rig.session, 1, &o, tokens, &n, &reason, &r->rig.err);
    return NULL;
}

/* Waits until a host has the device open and it executes `opcode`; 0: until there is no host and it
 * executes nothing. */
static void wait_for(struct tw_device_server *device, uint32_t opcode) {
    struct tw_link_progress p;
    uint32_t generation;
    double stop = tw_clock_s() + LONG_S;
    do {
        assert_true(tw_clock_s() < stop);
        usleep(1000);
        tw_device_server_progress(device, &p, &generation);
    } while (p.executing != opcode || (generation != 0) != (opcode != 0));
}

static uint64_t steps_so_far(struct tw_device *device) {
    struct tw_wire_counters c = {0};
    struct tw_device_call call = {.opcode = TW_WIRE_COUNTERS, .out = &c, .out_bytes = sizeof c};
    assert_int_equal(tw_device_call(device, &call, NULL), 0);
    return c.steps;
}

static void a_run_ends_with_its_host(void **state) {
    (void)state;
    struct bed b;
    struct tw_device lost;
    struct runner runner = {.code = 0};
    struct rig next = {.err = {0}};
    pthread_t thread;
    start(&b);
    open_rig(&runner.rig, &lost, b.host_fd, 2000);
    assert_int_equal(pthread_create(&thread, NULL, run_greedy, &runner), 0);
    wait_for(b.device, TW_WIRE_RUN);
    atomic_store(&b.medium->host_gone, true);
    wait_for(b.device, 0);
    /* while the lost host still waits */
    assert_int_equal(socket_open("socket:medium", 0, &next.device, &next.err), 0);
    assert_in_range(steps_so_far(next.device), 0, TOKENS - 1); /* 0: in its first step */
    open_session(&next, next.device);
    const uint32_t id = 1;
    assert_int_equal(tw_session_feed(next.session, &id, 1, &next.err), 0);
    rig_close(&next);
    pthread_join(thread, NULL);
    assert_int_equal(runner.code, TW_E_DEVICE_LOST);
    close_rig(&runner.rig, &lost);
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_ends_with_its_host),
    };
    socket_folder_make();
    int failed = cmocka_run_group_tests_name("medium_run", tests, NULL, NULL);
    model_bundle_cleanup();
    socket_folder_remove();
    return failed;
}
