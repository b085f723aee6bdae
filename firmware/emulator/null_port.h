/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest port of the firmware: a command server without memory, threads or kernels. It
 * answers HELLO, counts requests, and refuses the others with a reason. Start a new port as a copy
 * of it.
 */
#ifndef TW_FIRMWARE_EMULATOR_NULL_PORT_H
#define TW_FIRMWARE_EMULATOR_NULL_PORT_H

#include "firmware/core/server/server.h"

/* Initialises `server` as a device without memory, threads or kernels. It need not be released. */
void tw_null_port_init(struct tw_server *server);

#endif
