/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a file is written that replaces another one when it is whole.
 */
#ifndef TW_LOADER_BASE_TEMPORARY_H
#define TW_LOADER_BASE_TEMPORARY_H

/* "PATH.tmp-PID", in the same folder as `path`; a name that would be too long for a file system is
 * cut before the ending. The caller frees it. NULL: no memory. */
char *tw_temporary_path(const char *path);

#endif
