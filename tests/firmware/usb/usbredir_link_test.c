/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole device on USB as QEMU has it: a link through usbredir, medium and device, with the
 * driver's end in this test.
 */
#include "driver/device/device.h"
#include "driver/transport/link/link_client.h"
#include "firmware/serve/device_server.h"
#include "firmware/usb/usbredir.h"
#include "tests/support/model_bundle.h"
#include "tests/support/test.h"
#include "tests/support/usbredir_peer.h"

#include <sys/socket.h>
#include <unistd.h>

static void fill(uint8_t *bytes, size_t n, uint32_t seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
}

struct bed {
    struct tw_device_server *socket;
    struct tw_pipe *medium;
    pthread_t thread;
};

static void *run_socket(void *arg) {
    tw_device_server_run(arg, NULL);
    return NULL;
}

static void bed_progress(void *ctx, struct tw_link_progress *p, uint32_t *generation) {
    tw_device_server_progress(ctx, p, generation);
}

static void bed_open(struct bed *b, enum tw_usb_speed speed) {
    tw_error err = {0};
    struct tw_device_server_options so = {
        .emu = {.n_threads = 1, .memory_bytes = 256u << 20, .target = ""}};
    assert_int_equal(tw_device_server_create(&so, &b->socket, &err), 0);
    const struct tw_usb_options o = {
        .speed = speed, .serial = "B", .progress = bed_progress, .ctx = b->socket};
    assert_int_equal(tw_usbredir_create(peer_path, &o, &b->medium, &err), 0);
    struct tw_medium *line = tw_medium_create(b->medium);
    assert_non_null(line);
    assert_int_equal(tw_device_server_add_medium(b->socket, line, &err), 0);
    assert_int_equal(pthread_create(&b->thread, NULL, run_socket, b->socket), 0);
}

static void bed_close(struct bed *b) {
    tw_device_server_stop(b->socket);
    pthread_join(b->thread, NULL);
    tw_device_server_destroy(b->socket);
}

static void close_link(struct tw_transport *t) {
    tw_link_close(t);
}

static const struct tw_transport_ops link_ops = {
    .name = "usbredir", .submit = tw_link_submit, .receive = tw_link_receive, .close = close_link};

/* A device over a link over the peer's pipe; `room`: of its reads. */
static tw_device *device_open(struct usbredir_peer *p, uint32_t room) {
    struct tw_link *link;
    tw_error err = {0};
    if (tw_link_open("usbredir", peer_pipe(p, room), 60000, &link, &err)) {
        fail_msg("%s", err.message);
    }
    link->base.ops = &link_ops;
    tw_device *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->transport = &link->base;
    pthread_mutex_init(&d->lock, NULL);
    snprintf(d->selector, sizeof d->selector, "usbredir");
    struct tw_wire_hello hello = {
        .protocol_min = 1, .protocol_max = 1, .abi_major = TW_MACHINE_ABI_MAJOR};
    struct tw_device_call call = {.opcode = TW_WIRE_HELLO,
                                  .payload = &hello,
                                  .bytes = sizeof hello,
                                  .out = &d->identity,
                                  .out_bytes = sizeof d->identity};
    memset(&d->limits, 0xFF, sizeof d->limits); /* as of a device that does not say */
    if (tw_device_call(d, &call, &err)) {
        fail_msg("%s", err.message);
    }
    return d;
}

static void memory_is_written_and_read_over_the_bus(void **state) {
    (void)state;
    static const struct {
        enum tw_usb_speed speed;
        uint32_t room;
    } cases[] = {
        {TW_USB_HIGH, 66560}, {TW_USB_SUPER, 66560}, {TW_USB_SUPER, 2048}, {TW_USB_FULL, 16384}};
    const size_t size = (2u << 20) + 4711;
    uint8_t *sent = malloc(size), *got = malloc(size);
    assert_true(sent && got);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bed b;
        static struct usbredir_peer p;
        uint64_t address;
        tw_error err = {0};
        bed_open(&b, cases[i].speed);
        peer_open(&p, peer_path);
        assert_int_equal(peer_configure(&p, 1), usb_redir_success);
        tw_device *d = device_open(&p, cases[i].room);
        fill(sent, size, (uint32_t)i);
        memset(got, 0, size);
        assert_int_equal(tw_device_alloc(d, size, 64, false, &address, &err), 0);
        assert_int_equal(tw_device_write(d, address, sent, size, &err), 0);
        assert_int_equal(tw_device_read(d, address, got, size, &err), 0);
        assert_memory_equal(got, sent, size);
        /* sizes around a whole number of bus packets, with and without the headers of message and
         * packet */
        for (uint32_t n = 900; n < 1100; n++) {
            assert_int_equal(tw_device_write(d, address, sent + n, n, &err), 0);
            assert_int_equal(tw_device_read(d, address, got, n, &err), 0);
            assert_memory_equal(got, sent + n, n);
        }
        tw_device_close(d);
        peer_close(&p);
        bed_close(&b);
    }
    free(sent);
    free(got);
}

static struct tw_link *link_of(tw_device *d) {
    return (struct tw_link *)d->transport;
}

static void hosts_come_and_go_and_the_device_stays(void **state) {
    (void)state;
    struct bed b;
    static struct usbredir_peer p;
    uint64_t address, before;
    tw_error err = {0};
    uint32_t generation;
    struct tw_link_progress progress;
    bed_open(&b, TW_USB_HIGH);
    peer_open(&p, peer_path);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    tw_device *d = device_open(&p, 66560);
    assert_int_equal(link_of(d)->opening.answer.was_dirty, 0);
    before = link_of(d)->conn.generation;
    assert_int_equal(tw_device_alloc(d, 100, 64, false, &address, &err), 0);
    tw_device_close(d); /* in order */
    d = device_open(&p, 66560);
    assert_int_equal(link_of(d)->opening.answer.was_dirty, 0);
    assert_int_equal(link_of(d)->conn.generation, before + 1);
    /* The cable is pulled. */
    p.gone = true;
    shutdown(p.fd, SHUT_RDWR);
    assert_int_equal(tw_device_write(d, address, &address, 8, &err), TW_E_DEVICE_LOST);
    tw_device_close(d);
    peer_close(&p);
    peer_open(&p, peer_path);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    d = device_open(&p, 66560);
    assert_int_equal(link_of(d)->opening.answer.was_dirty, 1);
    /* A reset beside the endpoints. */
    tw_device_server_progress(b.socket, &progress, &generation);
    assert_int_equal(generation, link_of(d)->conn.generation);
    assert_int_equal(peer_listen(&p, true), usb_redir_success);
    assert_int_equal(peer_control(&p, 0x41, TW_USB_RESET, 0, 0, 0), usb_redir_success);
    tw_device_server_progress(b.socket, &progress, &generation);
    assert_int_equal(generation, 0);
    tw_device_close(d); /* nobody reads its last packets */
    d = device_open(&p, 66560);
    assert_int_equal(link_of(d)->opening.answer.was_dirty, 1);
    assert_int_equal(tw_device_alloc(d, 100, 64, false, &address, &err), 0);
    tw_device_close(d);
    peer_close(&p);
    bed_close(&b);
}

#define TOKENS 8u

static void decode(tw_device *d, uint32_t ids[TOKENS], float **logits, uint32_t *n_vocab) {
    tw_decoder *decoder;
    tw_deployment *deployment;
    tw_session *session;
    tw_error err = {0};
    struct tw_session_info info = {.size = sizeof info};
    assert_int_equal(tw_decoder_open(model_bundle("host"), 0, &decoder, &err), 0);
    if (tw_deploy(d, decoder, &deployment, &err) ||
        tw_session_create(deployment, NULL, &session, &err)) {
        fail_msg("%s", err.message);
    }
    tw_session_get_info(session, &info, NULL);
    *n_vocab = info.n_vocab;
    *logits = calloc((size_t)TOKENS * info.n_vocab, sizeof **logits);
    uint32_t id = 1;
    for (uint32_t i = 0; i < TOKENS; i++) {
        if (tw_session_feed(session, &id, 1, &err)) {
            fail_msg("%s", err.message);
        }
        const float *row = tw_session_logits(session);
        memcpy(*logits + (size_t)i * info.n_vocab, row, info.n_vocab * sizeof *row);
        for (uint32_t k = 0; k < info.n_vocab; k++) {
            id = k == 0 || row[k] > row[id] ? k : id;
        }
        ids[i] = id;
    }
    tw_session_destroy(session);
    tw_deployment_destroy(deployment);
    tw_decoder_close(decoder);
}

static void a_model_decodes_with_the_bits_of_the_emulator(void **state) {
    (void)state;
    struct bed b;
    static struct usbredir_peer p;
    uint32_t here[TOKENS], there[TOKENS], n;
    float *here_logits, *there_logits;
    tw_device *emu;
    assert_int_equal(tw_device_open("emu", NULL, &emu, NULL), 0);
    decode(emu, here, &here_logits, &n);
    tw_device_close(emu);
    bed_open(&b, TW_USB_SUPER);
    peer_open(&p, peer_path);
    assert_int_equal(peer_configure(&p, 1), usb_redir_success);
    tw_device *d = device_open(&p, 66560);
    decode(d, there, &there_logits, &n);
    assert_memory_equal(here, there, sizeof here);
    assert_memory_equal(here_logits, there_logits, (size_t)TOKENS * n * sizeof(float));
    free(here_logits);
    free(there_logits);
    tw_device_close(d);
    peer_close(&p);
    bed_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_written_and_read_over_the_bus),
        cmocka_unit_test(hosts_come_and_go_and_the_device_stays),
        cmocka_unit_test(a_model_decodes_with_the_bits_of_the_emulator),
    };
    return cmocka_run_group_tests_name("usbredir link", tests, peer_folder_set_up,
                                       peer_folder_tear_down);
}
