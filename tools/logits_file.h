/* SPDX-License-Identifier: Apache-2.0
 *
 * A file written row by row beside its place and renamed at the end, so that no half file stays
 * behind.
 */
#ifndef TW_TOOLS_LOGITS_FILE_H
#define TW_TOOLS_LOGITS_FILE_H

#include "tilewright/error.h"

#include <stdbool.h>
#include <stdio.h>

struct logits_file {
    FILE *file;
    char *path, *temporary; /* temporary NULL: written in place, since path is no regular file */
};

/* Errors: IO, NOSPACE, NOMEM. */
int logits_file_open(struct logits_file *f, const char *path, tw_error *err);
int logits_file_write(struct logits_file *f, const void *bytes, size_t n, tw_error *err);
/* keep false, or a failed write: the file is removed. */
int logits_file_close(struct logits_file *f, bool keep, tw_error *err);

#endif
