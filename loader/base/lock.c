/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock file contains "PID NAME" of its holder. In a folder that all users share anybody may
 * write anything into it, so the kernel's list of locks is read first. The file is removed on
 * release, so after taking the lock a process checks that its file still has that name, and retries
 * if not.
 */
#include "loader/base/lock.h"

#include "loader/base/file_limit.h"
#include "loader/base/text_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static void read_name(const char *path, char name[32]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, name, 31);
    if (fd >= 0) {
        close(fd);
    }
    name[n > 0 ? n : 0] = 0;
    name[strcspn(name, "\n")] = 0;
    if (!name[0]) {
        memcpy(name, "?", 2);
    }
}

void tw_lock_own_name(char name[32]) {
    read_name("/proc/self/comm", name);
}

void tw_lock_process_name(uint32_t pid, char name[32]) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    read_name(path, name);
}

/* The state follows the last ')', because the name may contain anything. */
void tw_lock_note_stopped(uint32_t pid, char text[64]) {
    char path[40], line[128];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
    if (fd >= 0) {
        close(fd);
    }
    line[n > 0 ? n : 0] = 0;
    const char *end = strrchr(line, ')');
    bool stopped = end && (strncmp(end, ") T", 3) == 0 || strncmp(end, ") t", 3) == 0);
    text[0] = 0;
    if (stopped) {
        snprintf(text, 64, " and is stopped (to resume it: kill -CONT %u)", pid);
    }
}

/* Returns the process that holds the flock on an open file, by the kernel's list; 0: none that this
 * process can see; UINT32_MAX: not known (no /proc). */
static uint32_t read_proc_locks(int fd) {
    struct stat st;
    char line[128], kind[16];
    unsigned major_number, minor_number;
    unsigned long long inode;
    long pid;
    uint32_t found = 0;
    FILE *f = fstat(fd, &st) == 0 ? fopen("/proc/locks", "re") : NULL;
    if (!f) {
        return UINT32_MAX;
    }
    while (!found &&
           fgets(line, sizeof line, f)) { /* "1: FLOCK  ADVISORY  WRITE 30486 fe:00:1105 0 EOF" */
        if (sscanf(line, "%*u: %15s %*s %*s %ld %x:%x:%llu", kind, &pid, &major_number,
                   &minor_number, &inode) == 5 &&
            strcmp(kind, "FLOCK") == 0 && inode == st.st_ino && pid > 0 &&
            makedev(major_number, minor_number) == st.st_dev) {
            found = (uint32_t)pid;
        }
    }
    fclose(f);
    return found;
}

static uint32_t read_label(int fd, char name[32]) {
    char text[64];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    char *rest;
    unsigned long pid = strtoul(text, &rest, 10);
    snprintf(name, 32, "%.31s", *rest == ' ' ? rest + 1 : "?");
    name[strcspn(name, "\n")] = 0;
    tw_clean_text(name); /* in a shared folder anybody can write it */
    return pid && pid < UINT32_MAX ? (uint32_t)pid : UINT32_MAX;
}

/* Returns the holder of the lock, and its program's name; UINT32_MAX: not known. */
static uint32_t read_holder(int fd, char name[32]) {
    uint32_t pid = read_proc_locks(fd);
    if (pid == UINT32_MAX) {
        return read_label(fd, name);
    }
    tw_lock_process_name(pid, name);
    return pid ? pid : UINT32_MAX;
}

static void write_holder(int fd) {
    char name[32], text[64];
    tw_lock_own_name(name);
    int n = snprintf(text, sizeof text, "%u %s\n", (unsigned)getpid(), name);
    if (!tw_file_size_allowed((uint64_t)n) || ftruncate(fd, 0) ||
        pwrite(fd, text, (size_t)n, 0) != n) {
        return; /* the lock works without its label */
    }
}

static int refuse(int fd, const char *what, tw_error *err) {
    char name[32];
    uint32_t pid = read_holder(fd, name);
    close(fd);
    if (pid == UINT32_MAX) {
        return tw_fail(err, TW_E_DEVICE_BUSY, "%s: another process is using it", what);
    }
    char stopped[64];
    tw_lock_note_stopped(pid, stopped);
    return tw_fail(err, TW_E_DEVICE_BUSY, "%s: process %u (%s) is using it%s", what, pid, name,
                   stopped);
}

/* Creates the file only if it is missing: in a folder that all users share, the kernel refuses
 * O_CREAT for a file of another user (fs.protected_regular). Everybody may lock the file. */
static int open_lock(const char *path) {
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int fd = open(path, flags);
    if (fd < 0 && errno == ENOENT) {
        fd = open(path, flags | O_CREAT, 0666);
        if (fd >= 0) {
            fchmod(
                fd,
                0666); /* whatever the umask; fails harmlessly if another user created it first */
        }
    }
    return fd;
}

int tw_lock_take(const char *path, const char *what, int *out, tw_error *err) {
    for (;;) {
        int fd = open_lock(path);
        if (fd < 0) {
            return tw_fail(err, TW_E_IO, "%s: lock file %s: %s", what, path, strerror(errno));
        }
        if (flock(fd, LOCK_EX | LOCK_NB)) {
            return refuse(fd, what, err);
        }
        struct stat a, b;
        if (fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
            a.st_dev == b.st_dev) {
            write_holder(fd);
            *out = fd;
            return 0;
        }
        close(fd); /* the last holder removed it */
    }
}

bool tw_lock_label(const char *path, uint32_t *pid, char name[32]) {
    char alive[32];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return false;
    }
    *pid = read_holder(fd, name);
    close(fd);
    tw_lock_process_name(*pid, alive);
    return *pid != UINT32_MAX && strcmp(alive, name) == 0;
}

void tw_lock_release(const char *path, int fd) {
    if (fd >= 0) {
        unlink(path);
        close(fd);
    }
}
