/* SPDX-License-Identifier: Apache-2.0
 *
 * Packets of a link: built and parsed, any damage detected; checksums by instruction and by
 * table; locks.
 */
#include "firmware/link/packet.h"
#include "loader/base/lock.h"
#include "tests/support/test.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK 65536u

static uint8_t packet[TW_PACKET_BYTES + 8], bytes[200000];

static void set_up_bytes(void) {
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 31 + i / 7);
    }
}

static void all_checksums_agree(void **state) {
    (void)state;
    assert_int_equal(tw_packet_crc32c(0, "123456789", 9), 0xE3069283);
    for (size_t at = 0; at < 9; at++) {
        for (size_t n = 0; n < 200; n++) {
            uint32_t crc = tw_wire_crc32c(5, bytes + at, n);
            assert_int_equal(tw_packet_crc32c(5, bytes + at, n), crc);
            assert_int_equal(tw_packet_crc32c_plain(5, bytes + at, n), crc);
        }
        for (size_t n = 3000; n < 100000; n += n / 5 + at) { /* in parts */
            uint32_t crc = tw_wire_crc32c((uint32_t)~n, bytes + at, n);
            assert_int_equal(tw_packet_crc32c((uint32_t)~n, bytes + at, n), crc);
        }
    }
}

/* A message of header and payload, cut into packets and put together again. */
static void messages_survive_being_split(void **state) {
    (void)state;
    static const uint32_t sizes[] = {0, 1, 8, CHUNK - 33, 65504, 65505, 131072, sizeof bytes};
    static uint8_t got[TW_WIRE_HEADER_BYTES + sizeof bytes];
    uint8_t head[TW_WIRE_HEADER_BYTES] = "the header of a message, 32 byte";
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        const struct tw_packet_data data = {head, bytes, sizes[k]};
        struct tw_link_header h = {.kind = TW_LINK_DATA,
                                   .flags = k % 2,
                                   .generation = 3,
                                   .sequence = 9},
                              back;
        for (h.offset = 0; h.offset < 32 + sizes[k]; h.offset += h.length) {
            size_t n = tw_packet_build(&h, &data, CHUNK, packet);
            assert_true(n <= TW_PACKET_BYTES);
            assert_true(tw_packet_good(packet, n, &back));
            assert_int_equal(back.sequence, 9);
            assert_int_equal(back.total, 32 + sizes[k]);
            memcpy(got + back.offset, packet + TW_LINK_HEADER_BYTES, back.length);
        }
        assert_memory_equal(got, head, 32);
        assert_memory_equal(got + 32, bytes, sizes[k]);
    }
}

/* With either checksum of the data. */
static void every_flipped_bit_and_every_truncation_is_detected(void **state) {
    (void)state;
    const struct tw_packet_data data = {NULL, bytes, 100};
    for (uint16_t flags = 0; flags <= TW_LINK_CHECKSUM; flags++) {
        struct tw_link_header h = {.kind = TW_LINK_PROGRESS, .flags = flags}, back;
        size_t n = tw_packet_build(&h, &data, CHUNK, packet);
        for (size_t bit = 0; bit < n * 8; bit++) {
            packet[bit / 8] = (uint8_t)(packet[bit / 8] ^ 1u << bit % 8);
            assert_false(tw_packet_good(packet, n, &back));
            packet[bit / 8] = (uint8_t)(packet[bit / 8] ^ 1u << bit % 8);
        }
        for (size_t cut = 0; cut < n; cut++) {
            assert_false(tw_packet_good(packet, cut, &back));
        }
        assert_false(tw_packet_good(packet, n + 1, &back));
        assert_true(tw_packet_good(packet, n, &back));
        memset(packet, 0xFF, n);
        assert_false(tw_packet_good(packet, n, &back));
    }
}

/* What a plain sum would not detect: the same change in two words, words in another order, more or
 * fewer zeros at the end. */
static void the_checksum_detects_what_sums_miss(void **state) {
    (void)state;
    uint8_t copy[64];
    uint32_t right = tw_link_checksum(bytes, 64);
    for (size_t a = 0; a < 8; a++) {
        for (size_t b = 0; b < a; b++) {
            memcpy(copy, bytes, 64);
            copy[a * 8 + 7] ^= 0x80;
            copy[b * 8 + 7] ^= 0x80;
            assert_int_not_equal(tw_link_checksum(copy, 64), right);
            memcpy(copy, bytes, 64);
            memcpy(copy + a * 8, bytes + b * 8, 8);
            memcpy(copy + b * 8, bytes + a * 8, 8);
            assert_int_not_equal(tw_link_checksum(copy, 64), right);
        }
    }
    memset(copy, 0, 64);
    for (size_t n = 0; n < 64; n++) {
        assert_int_not_equal(tw_link_checksum(copy, n), tw_link_checksum(copy, n + 1));
    }
}

static void headers_out_of_bounds_are_refused(void **state) {
    (void)state;
    static const struct tw_link_header bad[] = {
        {.kind = 0},
        {.kind = TW_LINK_KIND_LIMIT},
        {.kind = TW_LINK_DATA, .total = TW_LINK_MAX_MESSAGE + 1},
        {.kind = TW_LINK_DATA, .offset = 5, .total = 4},
        {.kind = TW_LINK_DATA, .offset = UINT32_MAX, .total = 4},
        {.kind = TW_LINK_DATA, .length = 8, .total = 8},
    };
    const char *why;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tw_link_header h = bad[i], back;
        tw_link_encode(&h, packet);
        assert_int_equal(tw_link_decode(packet, TW_LINK_HEADER_BYTES, &back, &why), TW_E_PROTOCOL);
        assert_true(*why != 0);
    }
}

static void a_full_socket_returns_again_and_a_closed_one_gone(void **state) {
    (void)state;
    int fd[2];
    size_t n;
    uint8_t *got;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd), 0);
    struct tw_pipe *a = tw_pipe_socket(fd[0]), *b = tw_pipe_socket(fd[1]);
    assert_int_equal(a->ops->take(a, &got, &n), TW_PACKET_AGAIN);
    assert_false(a->ops->wait(a, false, 1));
    uint32_t sent = 0;
    while (a->ops->send(a, bytes, 1000) == TW_PACKET_OK) {
        sent++;
    }
    assert_true(sent > 10);
    for (; sent; sent--) {
        assert_int_equal(b->ops->take(b, &got, &n), TW_PACKET_OK);
        assert_int_equal(n, 1000);
    }
    b->ops->close(b);
    assert_true(a->ops->wait(a, false, 1000));
    assert_int_equal(a->ops->take(a, &got, &n), TW_PACKET_GONE);
    assert_int_equal(a->ops->send(a, bytes, 10), TW_PACKET_GONE);
    a->ops->close(a);
}

static void a_lock_names_its_holder_and_ends_with_it(void **state) {
    (void)state;
    char folder[] = "/tmp/tw-lock-XXXXXX", path[64], words[40];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.lock", folder);
    int ready[2], fd = -1;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        _exit(tw_lock_take(path, "thing", &fd, NULL) || write(ready[1], "x", 1) != 1 || pause());
    }
    char x;
    assert_int_equal(read(ready[0], &x, 1), 1);
    tw_error err = {0};
    assert_int_equal(tw_lock_take(path, "thing", &fd, &err), TW_E_DEVICE_BUSY);
    snprintf(words, sizeof words, "thing: process %d (", (int)child);
    assert_non_null(strstr(err.message, words));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    /* the file is still there, the lock is not */
    assert_int_equal(tw_lock_take(path, "thing", &fd, &err), 0);
    tw_lock_release(path, fd);
    assert_int_equal(access(path, F_OK), -1);
    close(ready[0]);
    close(ready[1]);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_checksums_agree),
        cmocka_unit_test(messages_survive_being_split),
        cmocka_unit_test(every_flipped_bit_and_every_truncation_is_detected),
        cmocka_unit_test(the_checksum_detects_what_sums_miss),
        cmocka_unit_test(headers_out_of_bounds_are_refused),
        cmocka_unit_test(a_full_socket_returns_again_and_a_closed_one_gone),
        cmocka_unit_test(a_lock_names_its_holder_and_ends_with_it),
    };
    set_up_bytes();
    return cmocka_run_group_tests_name("packet", tests, NULL, NULL);
}
