/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds and checks the bytes of packets (tilewright/link.h) for both ends of a link; a pipe
 * carries them. All functions are legal from any thread.
 */
#ifndef TW_FIRMWARE_LINK_PACKET_H
#define TW_FIRMWARE_LINK_PACKET_H

#include "firmware/link/pipe.h"

/* Returns the same as tw_wire_crc32c, using the processor's CRC32C instruction if it has one. */
uint32_t tw_packet_crc32c(uint32_t crc, const void *bytes, size_t n);
/* Returns the same by tables, for processors without the instruction. */
uint32_t tw_packet_crc32c_plain(uint32_t crc, const void *bytes, size_t n);

/* Returns the packet flag of the checksum that is fastest here: 0 (CRC32C) where the processor has
 * the instruction, else TW_LINK_CHECKSUM. */
uint16_t tw_packet_check(void);

/* A message: its header and its payload; or the payload of a packet of another kind than DATA, with
 * `header` NULL. */
struct tw_packet_data {
    const uint8_t *header; /* TW_WIRE_HEADER_BYTES */
    const void *payload;
    uint32_t payload_bytes;
};

/* Builds a packet in `bytes` (room for TW_LINK_HEADER_BYTES + chunk) from the part of `data` at
 * h->offset, at most `chunk` bytes of it. Sets h's length, total and checksums (of the kind that
 * h->flags select). Returns the packet's size in bytes. */
size_t tw_packet_build(struct tw_link_header *h, const struct tw_packet_data *data, uint32_t chunk,
                       uint8_t *bytes);

/* Returns true if the n bytes are one packet whose checksums match, and decodes its header into
 * *h. */
bool tw_packet_good(const uint8_t *bytes, size_t n, struct tw_link_header *h);

#endif
