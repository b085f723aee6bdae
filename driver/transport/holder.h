/* SPDX-License-Identifier: Apache-2.0
 *
 * Who has a device that the kernel gives to one process: the lock file that names him, and where
 * there is none, whoever has its node open.
 */
#ifndef TW_DRIVER_TRANSPORT_HOLDER_H
#define TW_DRIVER_TRANSPORT_HOLDER_H

#include <stdbool.h>
#include <stdint.h>

/* The lock file of a device, "usb-1-4" or "pcie-0000:00:02.0"; every user's processes find the
 * same. */
void tw_holder_lock(const char *device, char file[160]);
/* A process other than `but` (0: any) that has the node ("/dev/vfio/12") open, and its program.
 * False: nobody whose files we may see. */
bool tw_holder_of_node(const char *node, uint32_t but, uint32_t *pid, char name[32]);

#endif
