/* SPDX-License-Identifier: Apache-2.0
 *
 * Shortens the name, which may have at most 255 bytes, but not the path before it.
 */
#include "loader/base/temporary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_KEPT 230u /* ".tmp-" and the longest process id follow */

char *tw_temporary_path(const char *path) {
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash + 1 - path) : 0, name = strlen(path) - folder;
    size_t kept = folder + (name < NAME_KEPT ? name : NAME_KEPT), room = kept + 25;
    char *temporary = malloc(room);
    if (temporary) {
        snprintf(temporary, room, "%.*s.tmp-%ld", (int)kept, path, (long)getpid());
    }
    return temporary;
}
