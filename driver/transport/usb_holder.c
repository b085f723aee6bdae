/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel gives an interface to one process, and takes it back when that dies; it does not say to whom. So whoever
 * opens a device first takes a lock file that names him. Of other programs we only see who has the node open.
 */
#include "driver/transport/usb_holder.h"

#include "firmware/port/lock.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOCK_FOLDER "/run/lock"

void tw_usb_node(const struct tw_usb_found *d, char node[48]) {
    snprintf(node, 48, "/dev/bus/usb/%03u/%03u", libusb_get_bus_number(d->device),
             libusb_get_device_address(d->device));
}

void tw_usb_lock_path(const char *path, char file[160]) {
    const char *folder = getenv("TW_LOCK_FOLDER"); /* for containers that share another one, and for tests */
    folder = folder && *folder && strlen(folder) < 90 ? folder : LOCK_FOLDER;
    snprintf(file, 160, "%s/tilewright-usb-%s.lock", folder, path);
}

bool tw_usb_claimed(const struct tw_usb_found *d) {
    char link[128], driver[256];
    snprintf(link, sizeof link, "/sys/bus/usb/devices/%s:%u.%u/driver", d->path, d->place.configuration,
             d->place.interface);
    ssize_t n = readlink(link, driver, sizeof driver - 1);
    driver[n > 0 ? n : 0] = 0;
    const char *name = strrchr(driver, '/');
    return name && strcmp(name, "/usbfs") == 0;
}

static bool has_open(const char *pid, const char *node) {
    char path[300], target[64];
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *dir = opendir(path);
    bool found = false;
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        ssize_t n = readlinkat(dirfd(dir), e->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        found = strcmp(target, node) == 0;
    }
    if (dir) {
        closedir(dir);
    }
    return found;
}

/* Another process; 0: nobody whose files we may see. */
static uint32_t find_opener(const char *node) {
    DIR *dir = opendir("/proc");
    uint32_t pid = 0;
    for (struct dirent *e; dir && !pid && (e = readdir(dir));) {
        unsigned long n = strtoul(e->d_name, NULL, 10); /* 0: no process */
        if (n && n != (unsigned long)getpid() && has_open(e->d_name, node)) {
            pid = (uint32_t)n;
        }
    }
    if (dir) {
        closedir(dir);
    }
    return pid;
}

void tw_usb_holder(const struct tw_usb_found *d, bool locked, char text[80]) {
    char file[160], node[48], name[32];
    uint32_t pid;
    tw_usb_lock_path(d->path, file);
    if (locked || !tw_lock_label(file, &pid, name)) {
        tw_usb_node(d, node);
        pid = find_opener(node);
        tw_lock_process_name(pid, name);
    }
    if (pid) {
        snprintf(text, 80, "process %u (%s) has it", pid, name);
    } else {
        snprintf(text, 80, "another user's process has it");
    }
}
