/* SPDX-License-Identifier: Apache-2.0
 *
 * The limit on the size of files (RLIMIT_FSIZE). Growing a file beyond it raises SIGXFSZ, which
 * ends the process; a library must neither let that happen nor change the signal, so it checks
 * first.
 */
#ifndef TW_LOADER_BASE_FILE_LIMIT_H
#define TW_LOADER_BASE_FILE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

/* Returns true if the limit allows a file of this size. */
static inline bool tw_file_size_allowed(uint64_t bytes) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           bytes <= (uint64_t)limit.rlim_cur;
}

#endif
