/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest home of the firmware: a command server without memory, threads or kernels. It says
 * who it is, counts, and refuses the rest by name. A new port starts as a copy of it.
 */
#ifndef TW_FIRMWARE_EMULATOR_NULL_PORT_H
#define TW_FIRMWARE_EMULATOR_NULL_PORT_H

#include "firmware/core/server/server.h"

/* Makes `server` a device without anything. Nothing has to be released. */
void tw_null_port_init(struct tw_server *server);

#endif
