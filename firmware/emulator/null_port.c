/* SPDX-License-Identifier: Apache-2.0
 *
 * A port whose device has 0 bytes of memory, so the server never calls its hooks.
 */
#include "firmware/emulator/null_port.h"

static uint64_t no_alloc(void *ctx, uint64_t bytes, uint32_t align, bool zero) {
    (void)ctx;
    (void)bytes;
    (void)align;
    (void)zero;
    return 0;
}

static void no_free(void *ctx, uint64_t address, uint64_t bytes, bool adopted) {
    (void)ctx;
    (void)address;
    (void)bytes;
    (void)adopted;
}

static void *no_map(void *ctx, uint64_t address) {
    (void)ctx;
    (void)address;
    return NULL;
}

void tw_null_port_init(struct tw_server *server) {
    struct tw_server_port port = {
        .alloc = no_alloc, .free = no_free, .map = no_map, .max_threads = 1, .device = "null"};
    tw_server_init(server, &port);
}
