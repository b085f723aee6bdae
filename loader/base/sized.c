/* SPDX-License-Identifier: Apache-2.0
 *
 * Structures that begin with their size (sized.h).
 */
#include "loader/base/sized.h"

#include <string.h>

/* Reads the field as bytes, because the type of the caller's structure is not known. */
static uint32_t size_of(const void *structure) {
    uint32_t size;
    memcpy(&size, structure, sizeof size);
    return size;
}

int tw_sized_check(const char *function, const void *info, tw_error *err) {
    if (!info) {
        return tw_fail(err, TW_E_USAGE, "%s: the structure to fill in is NULL", function);
    }
    uint32_t size = size_of(info);
    return size >= sizeof size
               ? 0
               : tw_fail(err, TW_E_USAGE,
                         "%s: the structure's size is %u; set it to sizeof the structure", function,
                         size);
}

int tw_known_flags(const char *function, uint32_t flags, uint32_t known, tw_error *err) {
    return (flags & ~known) == 0
               ? 0
               : tw_fail(err, TW_E_USAGE, "%s: unknown flags 0x%x; known flags: 0x%x", function,
                         flags & ~known, known);
}

int tw_sized_read(const char *function, void *to, uint32_t to_size, const void *from,
                  tw_error *err) {
    memset(to, 0, to_size);
    if (!from) {
        return 0;
    }
    int code = tw_sized_check(function, from, err);
    if (!code) {
        uint32_t size = size_of(from);
        memcpy(to, from, size < to_size ? size : to_size);
    }
    return code;
}

void tw_sized_write(void *info, const void *from, uint32_t from_size) {
    const uint32_t head = sizeof from_size;
    uint32_t size = size_of(info), n = size < from_size ? size : from_size;
    memcpy((char *)info + head, (const char *)from + head, n - head);
}
