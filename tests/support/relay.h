/* SPDX-License-Identifier: Apache-2.0
 *
 * A socket between a host and a device that forwards all bytes and counts them.
 */
#ifndef TW_TESTS_SUPPORT_RELAY_H
#define TW_TESTS_SUPPORT_RELAY_H

#include <stdint.h>

struct relay; /* opaque */

/* Bytes on the link, headers of packets and messages included. */
struct relay_count {
    uint64_t data;   /* requests and answers */
    uint64_t others; /* cost of waiting: PING, PROGRESS */
};

/* Starts a thread that serves the socket NAME in the folder of sockets to one host after the other.
 * Aborts on failure. */
struct relay *relay_start(const char *name, const char *device_path);
void relay_end(struct relay *r);
/* Returns the bytes counted since the last call. */
struct relay_count relay_take_count(struct relay *r);

#endif
