/* SPDX-License-Identifier: Apache-2.0
 *
 * The link: how messages of tilewright/wire.h cross a medium that preserves packet boundaries (a
 * SEQPACKET UNIX socket, USB transfers, slots of a ring) and may lose, repeat, truncate or damage
 * packets. A message is sent as its bytes (header, then payload) in DATA packets of at most
 * TW_LINK_CHUNK bytes, each with the CRC32C of its bytes. Both sides number their messages from 1;
 * a receiver accepts only the next byte that it expects, drops duplicates and answers a gap or
 * damage with RESEND, so each message arrives exactly once, in order and complete. An answer has
 * the number of its request. While a host waits it sends PING; the device answers with PROGRESS
 * immediately, even in the middle of a request, which shows each side what the other has received.
 * A PING of an earlier generation is answered as well: the higher generation in the answer shows
 * that host that the device was reset. Freestanding.
 */
#ifndef TILEWRIGHT_LINK_H
#define TILEWRIGHT_LINK_H

#include "tilewright/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TW_LINK_MAGIC 0x4B4C5754u /* "TWLK" */
#define TW_LINK_VERSION 1u
#define TW_LINK_HEADER_BYTES 40u
/* Maximum data bytes per packet; chosen so that the longest message takes two packets. */
#define TW_LINK_CHUNK ((512u << 10) + TW_WIRE_HEADER_BYTES)
#define TW_LINK_MAX_PAYLOAD (1u << 20) /* of one message */
#define TW_LINK_MAX_MESSAGE (TW_WIRE_HEADER_BYTES + TW_LINK_MAX_PAYLOAD)
#define TW_LINK_CREDITS 8u /* maximum unanswered requests */

/* X(name, number, who sends it: what it does; payload) */
#define TW_LINK_KINDS(X)                                                                      \
    X(OPEN, 1, "host: opens the device; tw_link_open")                                        \
    X(OPENED, 2, "device: it is open, or which process is using it; tw_link_opened")          \
    X(DATA, 3,                                                                                \
      "both: bytes [offset, offset + length) of message `sequence`, which has `total` bytes") \
    X(RESEND, 4, "both: resend messages from `sequence` on; tw_link_resend")                  \
    X(PING, 5, "host: asks for progress")                                                     \
    X(PROGRESS, 6, "device: answer to PING; tw_link_progress")                                \
    X(CLOSE, 7, "host: closes the device: kept weights stay, everything else is freed")       \
    X(CANCEL, 8, "host: ends requests up to number `sequence` that take long, executing or not")

enum tw_link_kind {
#define TW_X(name, number, text) TW_LINK_##name = number,
    TW_LINK_KINDS(TW_X)
#undef TW_X
        TW_LINK_KIND_LIMIT = 9
};

/* X(field, type, offset). generation: of the open, 0 before OPENED; ack: number of the last message
 * of the other side that was received completely; crc: CRC32C of the bytes before it. */
#define TW_LINK_HEADER(X)      \
    X(magic, uint32_t, 0)      \
    X(version, uint8_t, 4)     \
    X(kind, uint8_t, 5)        \
    X(flags, uint16_t, 6)      \
    X(generation, uint32_t, 8) \
    X(sequence, uint32_t, 12)  \
    X(ack, uint32_t, 16)       \
    X(offset, uint32_t, 20)    \
    X(length, uint32_t, 24)    \
    X(total, uint32_t, 28)     \
    X(data_crc, uint32_t, 32)  \
    X(crc, uint32_t, 36)

struct tw_link_header {
#define TW_X(field, type, offset) type field;
    TW_LINK_HEADER(TW_X)
#undef TW_X
};

/* Offsets and sizes of the fields of an encoded header: TW_LINK_AT_kind, TW_LINK_SIZE_kind ... */
enum tw_link_header_layout {
#define TW_X(field, type, offset) TW_LINK_AT_##field = offset, TW_LINK_SIZE_##field = sizeof(type),
    TW_LINK_HEADER(TW_X)
#undef TW_X
};
/* Read or write one field of an encoded header, by name; writing does not update the header's
 * crc. */
#define TW_LINK_GET(bytes, field) tw_wire_get((bytes) + TW_LINK_AT_##field, TW_LINK_SIZE_##field)
#define TW_LINK_PUT(bytes, field, value) \
    tw_wire_put((bytes) + TW_LINK_AT_##field, (value), TW_LINK_SIZE_##field)

enum tw_link_flags {
    /* data_crc is tw_link_checksum of the data instead of its CRC32C; a device uses what its host
     * uses */
    TW_LINK_CHECKSUM = 1
};

/* Computes the checksum of a packet's data that is used on processors without a CRC32C instruction,
 * where a table-driven CRC costs many times the copying. Each 64-bit word is mixed into the state
 * by reversible operations (xor, rotation, multiplication by an odd number), the last one padded
 * with zeros, so a difference in a single word survives until the final fold to 32 bits. */
static inline uint64_t tw_link_checksum_word(uint64_t h, uint64_t word) {
    h ^= word;
    return (h << 29 | h >> 35) * 0xD6E8FEB86659FD93u;
}
static inline uint32_t tw_link_checksum_from(uint64_t h, const void *rest, size_t n) {
    const uint8_t *p = (const uint8_t *)rest;
    uint64_t word;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8); /* little-endian machines only, as everywhere */
        h = tw_link_checksum_word(h, word);
    }
    word = 0;
    memcpy(&word, p, n);
    h = tw_link_checksum_word(h, word);
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(h >> 32);
}
/* Returns the initial state for n bytes. */
static inline uint64_t tw_link_checksum_begin(size_t n) {
    return 0x9E3779B97F4A7C15u ^ n;
}
static inline uint32_t tw_link_checksum(const void *bytes, size_t n) {
    return tw_link_checksum_from(tw_link_checksum_begin(n), bytes, n);
}

enum tw_link_open_flags {
    TW_LINK_QUERY = 1 /* only report the state: does not open the device or affect its holder */
};
struct tw_link_open {
    uint32_t flags;
    uint32_t pid;
    /* identifies this open, never 0: on a medium for one host, another nonce means another host */
    uint64_t nonce;
    char command[32]; /* the host's program, reported to others while the device is busy */
};
TW_STATIC_ASSERT(sizeof(struct tw_link_open) == 48, "link open");

struct tw_link_opened {
    int32_t status; /* 0, or DEVICE_BUSY: the next two name the holder */
    uint32_t holder_pid;
    char holder[32];
    uint32_t generation; /* of this open */
    uint32_t credits, max_payload;
    uint32_t was_dirty; /* 1: the last holder did not close it, and the device was reset */
    char target[64], device[32];
    char faults[32]; /* fault plan of an emulator that injects faults, or "" */
};
TW_STATIC_ASSERT(sizeof(struct tw_link_opened) == 184, "link opened");

struct tw_link_resend {
    uint32_t offset; /* into the first of these messages; the bytes before it were received */
    uint32_t reserved;
};
TW_STATIC_ASSERT(sizeof(struct tw_link_resend) == 8, "link resend");

struct tw_link_progress {
    uint32_t received;       /* last request received completely */
    uint32_t answered;       /* last request answered */
    uint32_t executing;      /* opcode of the request being executed, or 0 */
    uint32_t program;        /* RUN: the program's number */
    uint64_t counter;        /* progress counter: changes whenever the device makes progress */
    struct tw_place at;      /* an op that has begun and not ended */
    struct tw_place waiting; /* an op that waits for that one to end */
};
TW_STATIC_ASSERT(sizeof(struct tw_link_progress) == 56, "link progress");

static inline void tw_link_encode(struct tw_link_header *header,
                                  uint8_t bytes[TW_LINK_HEADER_BYTES]) {
    header->magic = TW_LINK_MAGIC;
    header->version = TW_LINK_VERSION;
    header->crc = 0;
#define TW_X(field, type, offset) \
    tw_wire_put(bytes + offset, (uint64_t)header->field, sizeof(type));
    TW_LINK_HEADER(TW_X)
#undef TW_X
    header->crc = tw_wire_crc32c(0, bytes, TW_LINK_AT_crc);
    TW_LINK_PUT(bytes, crc, header->crc);
}

/* Decodes and checks the header of a packet of n bytes, not its data. Returns 0, PROTOCOL or
 * VERSION and stores what is wrong in *why, a static string ("": nothing). */
static inline int tw_link_decode(const uint8_t *bytes, size_t n, struct tw_link_header *header,
                                 const char **why) {
    *why = "length";
    if (n < TW_LINK_HEADER_BYTES) {
        return TW_E_PROTOCOL;
    }
#define TW_X(field, type, offset) header->field = (type)tw_wire_get(bytes + offset, sizeof(type));
    TW_LINK_HEADER(TW_X)
#undef TW_X
    if (header->magic != TW_LINK_MAGIC) {
        *why = "magic";
        return TW_E_PROTOCOL;
    }
    if (header->crc != tw_wire_crc32c(0, bytes, TW_LINK_AT_crc)) {
        *why = "checksum";
        return TW_E_PROTOCOL;
    }
    if (header->version != TW_LINK_VERSION) {
        *why = "version";
        return TW_E_VERSION;
    }
    if (header->kind == 0 || header->kind >= TW_LINK_KIND_LIMIT) {
        *why = "kind";
        return TW_E_PROTOCOL;
    }
    if (header->length > TW_LINK_CHUNK || header->length != n - TW_LINK_HEADER_BYTES ||
        header->total > TW_LINK_MAX_MESSAGE || header->offset > header->total ||
        header->length > header->total - header->offset) {
        *why = "length";
        return TW_E_PROTOCOL;
    }
    *why = "";
    return TW_OK;
}

#ifdef __cplusplus
}
#endif
#endif
