/* SPDX-License-Identifier: Apache-2.0
 *
 * Packets of tilewright/link.h over a SEQPACKET socket, for both ends: one call sends or takes one whole packet. Never
 * raises SIGPIPE.
 */
#ifndef TW_FIRMWARE_PORT_PACKET_H
#define TW_FIRMWARE_PORT_PACKET_H

#include "tilewright/link.h"

#include <stdbool.h>

#define TW_PACKET_BYTES (TW_LINK_HEADER_BYTES + TW_LINK_CHUNK)

/* As tw_wire_crc32c, by the processor's instruction where it has one. */
uint32_t tw_packet_crc32c(uint32_t crc, const void *bytes, size_t n);

/* A message: its header and its payload, or the payload of a packet that is no DATA (then `header` is NULL). */
struct tw_packet_data {
    const uint8_t *header; /* TW_WIRE_HEADER_BYTES */
    const void *payload;
    uint32_t payload_bytes;
};

/* Puts a packet together in `bytes` (TW_PACKET_BYTES): sets h's length, total and checksums for the part of `data` at
 * h->offset. Returns its size. */
size_t tw_packet_build(struct tw_link_header *h, const struct tw_packet_data *data, uint8_t *bytes);

enum tw_packet_result {
    TW_PACKET_OK,
    TW_PACKET_AGAIN, /* nothing there, or no room */
    TW_PACKET_GONE   /* the other end is closed */
};
/* Does not wait. */
enum tw_packet_result tw_packet_send(int fd, const uint8_t *bytes, size_t n);
/* *n: bytes of the packet, at most TW_PACKET_BYTES; a longer one is cut and so fails its checks. */
enum tw_packet_result tw_packet_take(int fd, uint8_t *bytes, size_t *n);
/* Header and data are whole. */
bool tw_packet_good(const uint8_t *bytes, size_t n, struct tw_link_header *h);

/* Waits until fd can be read (or written to), or is closed by the other end; at most ms (-1: for ever). False when the
 * time is up. */
bool tw_packet_wait(int fd, bool write, int ms);

/* The one clock of deadlines: milliseconds, monotonic. */
uint64_t tw_packet_now(void);

#endif
