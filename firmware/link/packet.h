/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of packets of tilewright/link.h: built, and checked, for both ends; what carries them
 * is a pipe.
 */
#ifndef TW_FIRMWARE_LINK_PACKET_H
#define TW_FIRMWARE_LINK_PACKET_H

#include "firmware/link/pipe.h"

/* As tw_wire_crc32c, by the processor's instruction where it has one. */
uint32_t tw_packet_crc32c(uint32_t crc, const void *bytes, size_t n);
/* The same on a processor that has none. */
uint32_t tw_packet_crc32c_plain(uint32_t crc, const void *bytes, size_t n);

/* How this processor checks data best: TW_LINK_MIXED, or 0 (CRC32C, where it has the
 * instruction). */
uint16_t tw_packet_check(void);

/* A message: its header and its payload, or the payload of a packet that is no DATA (then `header`
 * is NULL). */
struct tw_packet_data {
    const uint8_t *header; /* TW_WIRE_HEADER_BYTES */
    const void *payload;
    uint32_t payload_bytes;
};

/* Puts a packet together in `bytes` (TW_LINK_HEADER_BYTES + chunk): sets h's length, total and
 * checksums (as h->flags say) for the part of `data` at h->offset, at most `chunk` bytes of it.
 * Returns its size. */
size_t tw_packet_build(struct tw_link_header *h, const struct tw_packet_data *data, uint32_t chunk,
                       uint8_t *bytes);

/* Header and data are whole. */
bool tw_packet_good(const uint8_t *bytes, size_t n, struct tw_link_header *h);

#endif
