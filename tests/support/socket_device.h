/* SPDX-License-Identifier: Apache-2.0
 *
 * Emulated devices on sockets, in child processes: to open, to kill, to stop.
 */
#ifndef TW_TESTS_SUPPORT_SOCKET_DEVICE_H
#define TW_TESTS_SUPPORT_SOCKET_DEVICE_H

#include "tilewright/tilewright.h"

#include <sys/types.h>

/* Creates a private folder as $XDG_RUNTIME_DIR; the second removes it with its contents. */
void socket_folder_make(void);
void socket_folder_remove(void);
/* The same as set-up and tear-down of a group of tests. */
int socket_folder_set_up(void **state);
int socket_folder_tear_down(void **state);
/* Number of sockets, locks and other files in it. */
unsigned socket_folder_entries(void);

struct socket_device {
    pid_t pid;
    char selector[80]; /* "socket:NAME" */
    char path[108];
};

/* Serves in a child process that dies with this one; returns when hosts can connect. Aborts the
 * test if it cannot. */
void socket_device_start(struct socket_device *d, const char *name, const char *faults,
                         uint64_t seed);
/* Sends SIGTERM; returns the exit status. */
int socket_device_end(struct socket_device *d);
/* Sends SIGKILL. */
void socket_device_kill(struct socket_device *d);

/* Starts a child process that runs `work` and exits with its result; it dies with this one. */
pid_t child_start(int (*work)(void *ctx), void *ctx);
/* Waits for it; returns the exit status, or 128 + signal. */
int child_wait(pid_t pid);

/* Sends SIGSTOP and waits until it is stopped. The second only waits until it has stopped
 * itself. */
void child_stop(pid_t pid);
void child_wait_stopped(pid_t pid);

/* Number of open descriptors, resident KiB, threads of a process. */
unsigned process_fds(pid_t pid);
unsigned long process_kib(pid_t pid);

/* Opens the device with that deadline; returns the code. */
int socket_open(const char *selector, uint32_t deadline_ms, tw_device **out, tw_error *err);

#endif
