/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks every path of ours in places where other users can write (sockets, status pages, cache,
 * temporary files): a folder or file is used only if it belongs to this user, nobody else can write
 * to it, and it is not a symbolic link. After that check nobody else can replace it, because its
 * parent is sticky or private. All functions are legal from any thread.
 */
#ifndef TW_LOADER_BASE_PRIVATE_PATH_H
#define TW_LOADER_BASE_PRIVATE_PATH_H

#include "tilewright/error.h"

#include <stdbool.h>
#include <stdint.h>

#define TW_RUNTIME_FOLDER 96u /* bytes of its path, with its NUL */
#define TW_SOCKET_PATH 108u

/* Checks the folder at `path`; if it does not exist and `make` is true, creates it for this user
 * alone (its parent must exist). Errors: IO (does not exist; cannot be created; is a link or not a
 * folder; belongs to another user; others may write to it); the message says which, and what to do.
 * errno is ENOENT if it does not exist. */
int tw_private_folder(const char *path, bool make, tw_error *err);

/* Opens a file for reading. It must belong to this user, not be writable by others, and not be a
 * symbolic link; the caller closes *fd. Errors: IO, as above. errno is ENOENT if it does not
 * exist. */
int tw_private_file_open(const char *path, int *fd, tw_error *err);
/* The same for reading and writing. */
int tw_private_file_update(const char *path, int *fd, tw_error *err);
/* Creates a new file (mode 0600, less the umask) and opens it for reading and writing; fails if the
 * path exists. The caller closes *fd. Errors: IO, NOSPACE (the disk is full). */
int tw_private_file_create(const char *path, int *fd, tw_error *err);

/* Finds the folder of this user's sockets and status pages: $XDG_RUNTIME_DIR/tilewright unless that
 * variable names a folder of another user, or one to which others may write; else
 * /run/user/UID/tilewright if /run/user/UID is private; else /tmp/tilewright-UID. Checks it as
 * tw_private_folder. On failure `path` is set for messages only. Errors: IO. */
int tw_runtime_folder(bool make, char path[TW_RUNTIME_FOLDER], tw_error *err);
/* Finds the path of a socket by its name: the name itself if it has a slash, else NAME.sock in the
 * runtime folder, which is checked and, if `make` is true, created. Errors: USAGE (too long),
 * IO. */
int tw_runtime_socket(const char *name, bool make, char path[TW_SOCKET_PATH], tw_error *err);

/* Returns the process at the other end of a connected UNIX socket; false if it is not known. */
bool tw_peer(int fd, uint32_t *pid, uint32_t *uid);
/* Returns true if that process belongs to this user, or to root, who can act as this user
 * anyway. */
bool tw_peer_is_trusted(int fd);

#endif
