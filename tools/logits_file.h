/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that is written row by row under a temporary name and renamed at the end, so that no
 * incomplete file is left.
 */
#ifndef TW_TOOLS_LOGITS_FILE_H
#define TW_TOOLS_LOGITS_FILE_H

#include "tilewright/error.h"

#include <stdbool.h>
#include <stdio.h>

struct logits_file {
    FILE *file;
    char *path, *temporary; /* temporary NULL: written in place, since path is not a regular file */
};

/* Errors: IO, NOSPACE, NOMEM. */
int logits_file_open(struct logits_file *f, const char *path, tw_error *err);
int logits_file_write(struct logits_file *f, const void *bytes, size_t n, tw_error *err);
/* Closes the file and renames it; removes it if `keep` is false or a write failed. */
int logits_file_close(struct logits_file *f, bool keep, tw_error *err);

#endif
