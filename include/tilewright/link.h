/* SPDX-License-Identifier: Apache-2.0
 *
 * The link: how messages of tilewright/wire.h cross a medium that keeps the borders of packets (a
 * UNIX socket of type SEQPACKET, USB transfers, slots of a ring) and may lose, repeat, cut or
 * damage them. A message travels as its bytes (header, then payload) in DATA packets of at most
 * TW_LINK_CHUNK bytes, each with the CRC32C of its bytes. Both directions number their messages
 * from 1 on; a receiver takes only the byte it expects next, drops what it has already and answers
 * a gap or damage with RESEND: so a message arrives once, in order and whole. An answer has the
 * number of its request. While a host waits it sends PING; the device answers with PROGRESS at
 * once, also in the middle of a request, which tells both sides what the other has. A PING of an
 * earlier generation is answered, too: from the higher number its host learns that the device was
 * reset. Freestanding.
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
/* Data bytes of a packet at most, so that the longest message is two packets. */
#define TW_LINK_CHUNK ((512u << 10) + TW_WIRE_HEADER_BYTES)
#define TW_LINK_MAX_PAYLOAD (1u << 20) /* of one message */
#define TW_LINK_MAX_MESSAGE (TW_WIRE_HEADER_BYTES + TW_LINK_MAX_PAYLOAD)
#define TW_LINK_CREDITS 8u /* requests that a device takes before it has answered the first */

/* X(name, number, who sends it: what it does; payload) */
#define TW_LINK_KINDS(X)                                                                      \
    X(OPEN, 1, "host: opens the device; tw_link_open")                                        \
    X(OPENED, 2, "device: it is open, or which process is using it; tw_link_opened")          \
    X(DATA, 3,                                                                                \
      "both: bytes [offset, offset + length) of message `sequence`, which has `total` bytes") \
    X(RESEND, 4, "both: resend messages from `sequence` on; tw_link_resend")                  \
    X(PING, 5, "host: asks for progress")                                                     \
    X(PROGRESS, 6, "device: answer to PING; tw_link_progress")                                \
    X(CLOSE, 7, "host: closes the device: kept weights stay, everything else is freed")

enum tw_link_kind {
#define TW_X(name, number, text) TW_LINK_##name = number,
    TW_LINK_KINDS(TW_X)
#undef TW_X
        TW_LINK_KIND_LIMIT = 8
};

/* X(field, type, offset). generation: of the open, 0 before OPENED; ack: the last message of the
 * other side that is complete here; crc: CRC32C of the bytes before it. */
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

/* Where the fields of an encoded header lie: TW_LINK_AT_kind, TW_LINK_SIZE_kind ... */
enum tw_link_header_layout {
#define TW_X(field, type, offset) TW_LINK_AT_##field = offset, TW_LINK_SIZE_##field = sizeof(type),
    TW_LINK_HEADER(TW_X)
#undef TW_X
};
/* One field of an encoded header, by name: read, or written without renewing the header's crc. */
#define TW_LINK_GET(bytes, field) tw_wire_get((bytes) + TW_LINK_AT_##field, TW_LINK_SIZE_##field)
#define TW_LINK_PUT(bytes, field, value) \
    tw_wire_put((bytes) + TW_LINK_AT_##field, (value), TW_LINK_SIZE_##field)

enum tw_link_flags {
    /* data_crc is tw_link_mix of the data, not its CRC32C; a device answers as it is asked */
    TW_LINK_MIXED = 1
};

/* A check of data for processors without an instruction for CRC32C, on which a table costs many
 * times the copying: each 64-bit word changes all bits of the state (xor, rotation, multiplication
 * by an odd number, each one reversible), the last one padded with zeros. A difference in one word
 * is never lost before the last fold to 32 bits. */
static inline uint64_t tw_link_mix_word(uint64_t h, uint64_t word) {
    h ^= word;
    return (h << 29 | h >> 35) * 0xD6E8FEB86659FD93u;
}
static inline uint32_t tw_link_mix_from(uint64_t h, const void *rest, size_t n) {
    const uint8_t *p = (const uint8_t *)rest;
    uint64_t word;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8); /* little-endian machines only, as everywhere */
        h = tw_link_mix_word(h, word);
    }
    word = 0;
    memcpy(&word, p, n);
    h = tw_link_mix_word(h, word);
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(h >> 32);
}
/* The state before the first of n bytes. */
static inline uint64_t tw_link_mix_begin(size_t n) {
    return 0x9E3779B97F4A7C15u ^ n;
}
static inline uint32_t tw_link_mix(const void *bytes, size_t n) {
    return tw_link_mix_from(tw_link_mix_begin(n), bytes, n);
}

enum tw_link_open_flags {
    TW_LINK_QUERY = 1 /* only tell the state: does not open, disturbs nobody */
};
struct tw_link_open {
    uint32_t flags;
    uint32_t pid;
    /* of this open, never 0: another one on a medium for one host is another host */
    uint64_t nonce;
    char command[32]; /* the host's program, for those who find the device busy */
};
TW_STATIC_ASSERT(sizeof(struct tw_link_open) == 48, "link open");

struct tw_link_opened {
    int32_t status; /* 0, or DEVICE_BUSY: the next two name the holder */
    uint32_t holder_pid;
    char holder[32];
    uint32_t generation; /* of this open */
    uint32_t credits, max_payload;
    uint32_t was_dirty; /* 1: the last holder died or lost it, and the device was reset */
    char target[64], device[32];
    char faults[32]; /* plan of an emulator that lies, or "" */
};
TW_STATIC_ASSERT(sizeof(struct tw_link_opened) == 184, "link opened");

struct tw_link_resend {
    uint32_t offset; /* into the first of them: what lies before it is here */
    uint32_t reserved;
};
TW_STATIC_ASSERT(sizeof(struct tw_link_resend) == 8, "link resend");

struct tw_link_progress {
    uint32_t received;       /* last request that is complete here */
    uint32_t answered;       /* last one answered */
    uint32_t executing;      /* opcode of the one at work, or 0 */
    uint32_t program;        /* RUN: its number */
    uint64_t beat;           /* changes whenever the device gets on with its work */
    struct tw_place at;      /* an op that has begun and not ended */
    struct tw_place waiting; /* one that cannot begin before that one has ended */
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

/* Reads and checks the header of a packet of n bytes, not its data: 0, PROTOCOL or VERSION, and
 * *why. */
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
