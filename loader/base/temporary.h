/* SPDX-License-Identifier: Apache-2.0
 *
 * The path at which a file is written before it replaces another one.
 */
#ifndef TW_LOADER_BASE_TEMPORARY_H
#define TW_LOADER_BASE_TEMPORARY_H

/* Returns "PATH.tmp-PID", in the same folder as `path`; a name that would be too long for a file
 * system is truncated before the suffix. The caller frees it. NULL: out of memory. */
char *tw_temporary_path(const char *path);

#endif
