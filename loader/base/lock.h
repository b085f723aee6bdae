/* SPDX-License-Identifier: Apache-2.0
 *
 * A lock that the kernel releases when its holder dies: flock on a file that tells who holds it.
 */
#ifndef TW_LOADER_BASE_LOCK_H
#define TW_LOADER_BASE_LOCK_H

#include "tilewright/error.h"

#include <stdbool.h>
#include <stdint.h>

/* Takes the lock; *fd holds it until tw_lock_release. Errors: DEVICE_BUSY (the message begins with
 * `what` and names the holder, whom the kernel names: the file's text is believed only where there
 * is no /proc), IO (the file cannot be made). */
int tw_lock_take(const char *path, const char *what, int *fd, tw_error *err);
/* Who has it locked, without a try to lock it; false where nobody has, or none that this process
 * can see. */
bool tw_lock_label(const char *path, uint32_t *pid, char name[32]);
/* Removes the file and lets go. -1 is legal. */
void tw_lock_release(const char *path, int fd);
/* "", or what to add to a line about a process that is stopped, of this machine. */
void tw_lock_note_stopped(uint32_t pid, char text[64]);
/* The running program's name. */
void tw_lock_own_name(char name[32]);
/* The program of another process, or "?". */
void tw_lock_process_name(uint32_t pid, char name[32]);

#endif
