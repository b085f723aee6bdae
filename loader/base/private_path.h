/* SPDX-License-Identifier: Apache-2.0
 *
 * Every path of ours that lies where other users can write (sockets, status pages, cache, temporary
 * files) goes through here: a folder or file is used only if it belongs to this user, nobody else
 * can write to it, and no symbolic link stands in its place. Who has passed that check stays what
 * it is: in a sticky or private parent nobody else can replace it.
 */
#ifndef TW_LOADER_BASE_PRIVATE_PATH_H
#define TW_LOADER_BASE_PRIVATE_PATH_H

#include "tilewright/error.h"

#include <stdbool.h>
#include <stdint.h>

#define TW_RUNTIME_FOLDER 96u /* bytes of its path with its end */
#define TW_SOCKET_PATH 108u

/* Checks the folder at `path`; where there is none and `make` is true, makes it for this user alone
 * (its parent has to be there). Errors: IO (there is none; it cannot be made; it is a link or not a
 * folder; it belongs to another user; others may write to it); the message tells which, and what to
 * do. errno is ENOENT where there is none. */
int tw_private_folder(const char *path, bool make, tw_error *err);

/* Opens a file for reading that must belong to this user, with nobody else able to write to it, and
 * be no symbolic link; *fd is the caller's. Errors: IO as above (also where there is none: errno is
 * ENOENT then). */
int tw_private_file_open(const char *path, int *fd, tw_error *err);
/* Makes a new file (mode 0600 but for the umask) and opens it for reading and writing; whatever is
 * at the path already is left alone. Errors: IO, and NOSPACE where the disk is full. */
int tw_private_file_create(const char *path, int *fd, tw_error *err);

/* The folder of this user's sockets and status pages: $XDG_RUNTIME_DIR/tilewright unless that
 * variable names a folder of another user, or that others may write to; else /run/user/UID/tilewright where that is one, else
 * /tmp/tilewright-UID. It is checked as tw_private_folder does. On failure `path` names it all the
 * same, for a message, and must not be used. Errors: IO. */
int tw_runtime_folder(bool make, char path[TW_RUNTIME_FOLDER], tw_error *err);
/* The path that the name of a socket stands for: itself if it has a slash, else NAME.sock in the
 * runtime folder, which is checked; where there is none, it is made if `make` is true, and otherwise
 * there is no such socket either. Errors: USAGE (too long), IO. */
int tw_runtime_socket(const char *name, bool make, char path[TW_SOCKET_PATH], tw_error *err);

/* The process at the other end of a connected UNIX socket. False: the system does not tell. */
bool tw_peer(int fd, uint32_t *pid, uint32_t *uid);
/* True if that process belongs to this user or to root, who could do anything in his name. */
bool tw_peer_is_trusted(int fd);

#endif
