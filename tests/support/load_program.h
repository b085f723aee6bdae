/* SPDX-License-Identifier: Apache-2.0
 *
 * Any program with its certificate in the memory of a command server, as a host would send it,
 * ready for LOAD: blob, certificate, and binding rows that name zeroed memory, the Inputs filled
 * with ones.
 */
#ifndef TW_TESTS_SUPPORT_LOAD_PROGRAM_H
#define TW_TESTS_SUPPORT_LOAD_PROGRAM_H

#include "loader/order/certificate.h"
#include "tests/support/server_client.h"

/* Fills in *q. Returns false if the server has no memory for it. */
bool load_program_place(struct client *c, const struct tw_program *p,
                        const struct tw_certificate *certificate, struct tw_wire_load *q);
/* LOAD; returns the status, and the program's number in *number. */
int load_program_load(struct client *c, const struct tw_wire_load *q, uint32_t *number);
/* One step with the inputs as they are in memory; returns the status. */
int load_program_step(struct client *c, uint32_t number);

#endif
