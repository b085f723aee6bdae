/* SPDX-License-Identifier: Apache-2.0
 *
 * Which process is using a device that the kernel gives to one process at a time: the one named in
 * its lock file, or, if there is none, the one that has its node open. Any thread.
 */
#ifndef TW_DRIVER_TRANSPORT_HOLDER_H
#define TW_DRIVER_TRANSPORT_HOLDER_H

#include <stdbool.h>
#include <stdint.h>

/* Stores the path of a device's lock file ("usb-1-4" or "pcie-0000:00:02.0"), which is the same for
 * all users. */
void tw_holder_lock(const char *device, char file[160]);
/* Finds a process other than `except` (0: any) that has the node ("/dev/vfio/12") open, and its
 * program. Returns false if there is none whose open files this user may see. */
bool tw_holder_of_node(const char *node, uint32_t except, uint32_t *pid, char name[32]);

#endif
