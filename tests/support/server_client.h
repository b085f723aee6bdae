/* SPDX-License-Identifier: Apache-2.0
 *
 * A command server over malloced memory, and a client that exchanges whole messages with it.
 */
#ifndef TW_TESTS_SUPPORT_SERVER_CLIENT_H
#define TW_TESTS_SUPPORT_SERVER_CLIENT_H

#include "firmware/core/server/server.h"
#include "tests/support/bigram.h"

struct client {
    struct tw_server server;
    uint32_t sequence;
    int64_t live; /* allocations of the port that were not freed yet */
    bool no_memory;
    struct tw_server_answer answer;
    struct tw_wire_header header; /* of the last answer */
};

void client_init(struct client *c, uint64_t memory_bytes);
void client_finish(struct client *c);

/* Sends one request; returns the answer's status. */
int client_call(struct client *c, enum tw_wire_opcode opcode, uint64_t address, const void *payload,
                uint32_t bytes);
/* Returns the failure in the last answer. */
const struct tw_wire_failure *client_failure(const struct client *c);
/* Returns the address, or 0 if the request was refused. */
uint64_t client_alloc(struct client *c, uint64_t bytes);

/* The bigram program in the server's memory. */
struct client_bigram {
    struct bigram b;
    uint64_t address[BIGRAM_BINDS], blob, bind;
    uint32_t program, blob_bytes;
};
/* Allocates and fills its memory, except for the binding rows. */
void client_place_bigram(struct client *c, struct client_bigram *out);
/* Writes the binding rows from `address`, which the caller may have changed, and sends LOAD.
 * Returns its status. */
int client_bind_bigram(struct client *c, enum tw_wire_mode mode, struct client_bigram *out);
/* Does both. */
int client_load_bigram(struct client *c, enum tw_wire_mode mode, struct client_bigram *out);
/* Runs n steps with these tokens, then reads logits[BIGRAM_COLS]. */
int client_run_bigram(struct client *c, const struct client_bigram *g, const uint32_t *ids,
                      uint32_t rows, uint32_t n_steps, float *logits);

#endif
