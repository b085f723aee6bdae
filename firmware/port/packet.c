/* SPDX-License-Identifier: Apache-2.0
 *
 * Packets over a socket. A packet is built in one buffer, because the kernel takes it whole or not at all.
 */
#include "firmware/port/packet.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t c = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = __builtin_ia32_crc32di(c, word);
    }
    uint32_t low = (uint32_t)c;
    for (; n; n--, p++) {
        low = __builtin_ia32_crc32qi(low, *p);
    }
    return ~low;
}
#endif

uint32_t tw_packet_crc32c(uint32_t crc, const void *bytes, size_t n) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) {
        return crc_by_instruction(crc, bytes, n);
    }
#endif
    return tw_wire_crc32c(crc, bytes, n);
}

size_t tw_packet_build(struct tw_link_header *h, const struct tw_packet_data *data, uint8_t *bytes) {
    uint32_t head = data->header ? TW_WIRE_HEADER_BYTES : 0;
    h->total = head + data->payload_bytes;
    uint32_t left = h->total - h->offset;
    h->length = left < TW_LINK_CHUNK ? left : TW_LINK_CHUNK;
    uint8_t *to = bytes + TW_LINK_HEADER_BYTES;
    uint32_t n = 0;
    if (h->offset < head) {
        n = head - h->offset < h->length ? head - h->offset : h->length;
        memcpy(to, data->header + h->offset, n);
    }
    if (h->length > n) {
        memcpy(to + n, (const uint8_t *)data->payload + (h->offset + n - head), h->length - n);
    }
    h->data_crc = tw_packet_crc32c(0, to, h->length);
    tw_link_encode(h, bytes);
    return TW_LINK_HEADER_BYTES + h->length;
}

enum tw_packet_result tw_packet_send(int fd, const uint8_t *bytes, size_t n) {
    for (;;) {
        ssize_t r = send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (r >= 0) {
            return TW_PACKET_OK;
        }
        if (errno != EINTR) {
            return errno == EAGAIN || errno == ENOBUFS ? TW_PACKET_AGAIN : TW_PACKET_GONE;
        }
    }
}

enum tw_packet_result tw_packet_take(int fd, uint8_t *bytes, size_t *n) {
    for (;;) {
        ssize_t r = recv(fd, bytes, TW_PACKET_BYTES, MSG_DONTWAIT);
        if (r > 0) {
            *n = (size_t)r;
            return TW_PACKET_OK;
        }
        if (r == 0 || errno != EINTR) {
            return r < 0 && errno == EAGAIN ? TW_PACKET_AGAIN : TW_PACKET_GONE;
        }
    }
}

bool tw_packet_good(const uint8_t *bytes, size_t n, struct tw_link_header *h) {
    const char *why;
    return tw_link_decode(bytes, n, h, &why) == 0 &&
           h->data_crc == tw_packet_crc32c(0, bytes + TW_LINK_HEADER_BYTES, h->length);
}

bool tw_packet_wait(int fd, bool write, int ms) {
    struct pollfd p = {.fd = fd, .events = write ? POLLOUT : POLLIN};
    uint64_t end = tw_packet_now() + (uint64_t)(ms > 0 ? ms : 0);
    for (;;) {
        int n = poll(&p, 1, ms);
        if (n > 0) {
            return true;
        }
        if (n == 0 || errno != EINTR) {
            return false;
        }
        if (ms >= 0) { /* a signal: what is left of the time */
            uint64_t now = tw_packet_now();
            ms = now < end ? (int)(end - now) : 0;
        }
    }
}

uint64_t tw_packet_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}
