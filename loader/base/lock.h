/* SPDX-License-Identifier: Apache-2.0
 *
 * A lock that the kernel releases when its holder dies: flock on a file that names its holder.
 */
#ifndef TW_LOADER_BASE_LOCK_H
#define TW_LOADER_BASE_LOCK_H

#include "tilewright/error.h"

#include <stdbool.h>
#include <stdint.h>

/* Takes the lock; *fd holds it until tw_lock_release. Errors: DEVICE_BUSY (the message begins with
 * `what` and names the holder, by the kernel's list of locks; the file's text is used only where
 * there is no /proc), IO (the file cannot be created). */
int tw_lock_take(const char *path, const char *what, int *fd, tw_error *err);
/* Returns the holder of a lock without trying to take it. Returns false if there is none, or none
 * that this process can see. */
bool tw_lock_label(const char *path, uint32_t *pid, char name[32]);
/* Removes the file and releases the lock. -1 is legal. */
void tw_lock_release(const char *path, int fd);
/* Writes a text to append to a message about a process of this machine: that it is stopped, or
 * "". */
void tw_lock_note_stopped(uint32_t pid, char text[64]);
/* Writes this program's name. */
void tw_lock_own_name(char name[32]);
/* Writes the name of another process's program, or "?". */
void tw_lock_process_name(uint32_t pid, char name[32]);

#endif
