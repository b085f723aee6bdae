/* SPDX-License-Identifier: Apache-2.0
 *
 * Packets. Each is built in one buffer, because a pipe takes it whole or not at all.
 */
#include "firmware/link/packet.h"

#include "loader/base/assert.h"
#include "loader/base/compiler.h"

#include <pthread.h>
#include <time.h>

#if defined(__x86_64__)
TW_TARGET("sse4.2") TW_INLINE uint64_t add_word(uint64_t c, const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return __builtin_ia32_crc32di(c, word);
}

/* The instruction takes one word a cycle but three cycles for each, so three parts of a block are
 * summed at once. A part's sum, moved past the next part, is its sum with that many zeros behind
 * it: a linear function of 32 bits, looked up by bytes. */
#define PART 1024u

static uint32_t past_part[4][256];

TW_TARGET("sse4.2") static void make_past_part(void) {
    uint32_t of_bit[32];
    for (uint32_t i = 0; i < 32; i++) {
        uint64_t c = 1u << i;
        for (uint32_t k = 0; k < PART / 8; k++) {
            c = __builtin_ia32_crc32di(c, 0);
        }
        of_bit[i] = (uint32_t)c;
    }
    for (uint32_t i = 0; i < 4 * 256; i++) {
        uint32_t sum = 0;
        for (uint32_t bit = 0; bit < 8; bit++) {
            sum ^= i >> bit & 1 ? of_bit[i / 256 * 8 + bit] : 0;
        }
        past_part[i / 256][i % 256] = sum;
    }
}

static uint32_t move_past_part(uint64_t c) {
    return past_part[0][c & 255] ^ past_part[1][c >> 8 & 255] ^ past_part[2][c >> 16 & 255] ^
           past_part[3][c >> 24 & 255];
}

TW_TARGET("sse4.2") static uint64_t add_block(uint64_t c, const uint8_t *p) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < PART; i += 8) {
        c = add_word(c, p + i);
        second = add_word(second, p + PART + i);
        third = add_word(third, p + 2 * PART + i);
    }
    return move_past_part(move_past_part(c) ^ second) ^ third;
}

TW_TARGET("sse4.2") static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *p, size_t n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t c = ~crc;
    if (n >= 3 * PART) {
        pthread_once(&once, make_past_part);
    }
    for (; n >= 3 * PART; n -= 3 * PART, p += 3 * PART) {
        c = add_block(c, p);
    }
    for (; n >= 8; n -= 8, p += 8) {
        c = add_word(c, p);
    }
    uint32_t low = (uint32_t)c;
    for (; n; n--, p++) {
        low = __builtin_ia32_crc32qi(low, *p);
    }
    return ~low;
}
#endif

/* Tables for eight bytes at a time: table[k][i] is the effect of byte i when k more bytes
 * follow. */
static uint32_t table[8][256];

static void make_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        const uint8_t bytes[8] = {(uint8_t)i};
        for (size_t k = 0; k < 8; k++) {
            table[k][i] = ~tw_wire_crc32c(~0u, bytes, k + 1);
        }
    }
}

uint32_t tw_packet_crc32c_plain(uint32_t crc, const void *bytes, size_t n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint8_t *p = bytes;
    uint32_t c = ~crc;
    pthread_once(&once, make_table);
    for (; n >= 8; n -= 8, p += 8) {
        c = table[7][(c ^ p[0]) & 255] ^ table[6][(c >> 8 ^ p[1]) & 255] ^
            table[5][(c >> 16 ^ p[2]) & 255] ^ table[4][c >> 24 ^ p[3]] ^ table[3][p[4]] ^
            table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    }
    return tw_wire_crc32c(~c, p, n);
}

uint16_t tw_packet_check(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("sse4.2") ? 0 : TW_LINK_CHECKSUM;
#else
    return TW_LINK_CHECKSUM;
#endif
}

static uint32_t check_data(const struct tw_link_header *h, const uint8_t *data) {
    return h->flags & TW_LINK_CHECKSUM ? tw_link_checksum(data, h->length)
                                       : tw_packet_crc32c(0, data, h->length);
}

uint32_t tw_packet_crc32c(uint32_t crc, const void *bytes, size_t n) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) {
        return crc_by_instruction(crc, bytes, n);
    }
#endif
    return tw_packet_crc32c_plain(crc, bytes, n);
}

/* Copies whole words and adds them to the checksum in the same pass over memory. */
static uint64_t copy_and_sum(uint64_t h, uint8_t *to, const uint8_t *from, size_t n) {
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, from + i, 8);
        memcpy(to + i, &word, 8);
        h = tw_link_checksum_word(h, word);
    }
    return h;
}

static uint32_t fill_sum(uint8_t *to, size_t length, const uint8_t *head, size_t n,
                         const uint8_t *payload) {
    TW_ASSERT(n <= length);
    size_t rest = length - n, words = rest / 8 * 8;
    if (n % 8) { /* a message resent from an offset that is not a multiple of 8 */
        memcpy(to, head, n);
        memcpy(to + n, payload, rest);
        return tw_link_checksum(to, length);
    }
    uint64_t h = copy_and_sum(tw_link_checksum_begin(length), to, head, n);
    h = copy_and_sum(h, to + n, payload, words);
    memcpy(to + n + words, payload + words, rest - words);
    return tw_link_checksum_from(h, to + n + words, rest - words);
}

static uint32_t fill_crc(uint8_t *to, size_t length, const uint8_t *head, size_t n,
                         const uint8_t *payload) {
    TW_ASSERT(n <= length);
    memcpy(to, head, n);
    memcpy(to + n, payload, length - n);
    return tw_packet_crc32c(0, to, length);
}

size_t tw_packet_build(struct tw_link_header *h, const struct tw_packet_data *data, uint32_t chunk,
                       uint8_t *bytes) {
    static const uint8_t none[1];
    TW_ASSERT(chunk > 0 && chunk <= TW_LINK_CHUNK);
    TW_ASSERT(data->payload || data->payload_bytes == 0);
    TW_ASSERT(data->payload_bytes <= TW_LINK_MAX_PAYLOAD);
    uint32_t head = data->header ? TW_WIRE_HEADER_BYTES : 0;
    h->total = head + data->payload_bytes;
    TW_ASSERT(h->offset <= h->total);
    uint32_t left = h->total - h->offset;
    h->length = left < chunk ? left : chunk;
    uint32_t in_head = h->offset < head ? head - h->offset : 0,
             n = in_head < h->length ? in_head : h->length;
    const uint8_t *from = n ? data->header + h->offset : none;
    const uint8_t *payload =
        h->length > n ? (const uint8_t *)data->payload + (h->offset + n - head) : none;
    uint8_t *to = bytes + TW_LINK_HEADER_BYTES;
    TW_ASSERT(n <= h->length && h->length <= chunk && h->offset + h->length <= h->total);
    h->data_crc =
        (h->flags & TW_LINK_CHECKSUM ? fill_sum : fill_crc)(to, h->length, from, n, payload);
    tw_link_encode(h, bytes);
    return TW_LINK_HEADER_BYTES + h->length;
}

bool tw_packet_good(const uint8_t *bytes, size_t n, struct tw_link_header *h) {
    const char *why;
    return tw_link_decode(bytes, n, h, &why) == 0 &&
           h->data_crc == check_data(h, bytes + TW_LINK_HEADER_BYTES);
}
