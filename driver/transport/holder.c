/* SPDX-License-Identifier: Apache-2.0
 *
 * Lock files are in one folder for all users. /proc shows which files the processes of this user
 * have open, and to root those of all processes.
 */
#include "driver/transport/holder.h"

#include "loader/base/lock.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOCK_FOLDER "/run/lock"

void tw_holder_lock(const char *device, char file[160]) {
    /* for containers that share another folder, and for tests */
    const char *folder = getenv("TW_LOCK_FOLDER");
    folder = folder && *folder && strlen(folder) < 90 ? folder : LOCK_FOLDER;
    snprintf(file, 160, "%s/tilewright-%.40s.lock", folder, device);
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

bool tw_holder_of_node(const char *node, uint32_t except, uint32_t *pid, char name[32]) {
    DIR *dir = opendir("/proc");
    *pid = 0;
    for (struct dirent *e; dir && !*pid && (e = readdir(dir));) {
        unsigned long n = strtoul(e->d_name, NULL, 10); /* 0: not a process */
        if (n && n < UINT32_MAX && n != except && has_open(e->d_name, node)) {
            *pid = (uint32_t)n;
        }
    }
    if (dir) {
        closedir(dir);
    }
    tw_lock_process_name(*pid, name);
    return *pid != 0;
}
