/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel lets one process claim an interface and releases it when that process dies, but does
 * not say which process it is. Therefore Tilewright first takes a lock file that names its process;
 * other programs can only be found by the node they have open.
 */
#include "driver/transport/usb/usb_holder.h"

#include "driver/transport/holder.h"
#include "loader/base/lock.h"

#include <stdio.h>
#include <unistd.h>

void tw_usb_node(const struct tw_usb_found *d, char node[48]) {
    snprintf(node, 48, "/dev/bus/usb/%03u/%03u", libusb_get_bus_number(d->device),
             libusb_get_device_address(d->device));
}

void tw_usb_lock_path(const char *path, char file[160]) {
    char device[40];
    snprintf(device, sizeof device, "usb-%.35s", path);
    tw_holder_lock(device, file);
}

bool tw_usb_claimed(const struct tw_usb_found *d) {
    char link[128], driver[256];
    snprintf(link, sizeof link, "/sys/bus/usb/devices/%s:%u.%u/driver", d->path,
             d->place.configuration, d->place.interface);
    ssize_t n = readlink(link, driver, sizeof driver - 1);
    driver[n > 0 ? n : 0] = 0;
    const char *name = strrchr(driver, '/');
    return name && strcmp(name, "/usbfs") == 0;
}

void tw_usb_holder(const struct tw_usb_found *d, bool locked, char text[80]) {
    char file[160], node[48], name[32];
    uint32_t pid;
    tw_usb_lock_path(d->path, file);
    if (locked || !tw_lock_label(file, &pid, name)) {
        tw_usb_node(d, node);
        tw_holder_of_node(node, (uint32_t)getpid(), &pid, name);
    }
    if (pid) {
        snprintf(text, 80, "process %u (%s) is using it", pid, name);
    } else {
        snprintf(text, 80, "another user's process is using it");
    }
}
