/* SPDX-License-Identifier: Apache-2.0
 *
 * A regular file mapped read-only. A file that another process shortens while it is mapped is out
 * of scope: that is a SIGBUS, as for every program that maps files.
 */
#ifndef TW_COMPILER_IMPORT_MAPFILE_H
#define TW_COMPILER_IMPORT_MAPFILE_H

#include "tilewright/error.h"

#include <stdint.h>

struct tw_mapfile {
    const uint8_t *bytes;
    uint64_t size;
};

/* Maps the file at `path`; it must be a regular, readable file of at least one byte. Errors: IO,
 * NOMEM. */
int tw_mapfile_open(const char *path, struct tw_mapfile *out, tw_error *err);
void tw_mapfile_close(struct tw_mapfile *file); /* zeroed is fine */

/* The end of a path short enough to leave room for facts in an error line. `buffer` holds 164
 * bytes. */
#define TW_SHORT_PATH_BYTES 164
const char *tw_short_path(const char *path, char buffer[TW_SHORT_PATH_BYTES]);

#endif
