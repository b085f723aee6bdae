/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that grow, through realloc.
 */
#include "loader/base/grow.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_MIN 8 /* items of the first allocation */

static size_t new_room(size_t room, size_t need, size_t max) {
    size_t more = room == 0 ? ROOM_MIN : room <= max / 2 ? 2 * room : max;
    more = more < max ? more : max;
    return more > need ? more : need;
}

bool tw_grow(void *items, size_t *room, size_t need, size_t item_bytes) {
    if (need <= *room) {
        return true;
    }
    size_t max = PTRDIFF_MAX / item_bytes; /* no object may be larger, although a size_t could be */
    if (need > max) {
        return false;
    }
    size_t more = new_room(*room, need, max);
    void *array; /* copied: `items` may be the address of a pointer of any type */
    memcpy(&array, items, sizeof array);
    /* cppcheck-suppress memleakOnRealloc ; `items` still holds it */
    array = realloc(array, more * item_bytes);
    if (!array) {
        return false;
    }
    memcpy(items, &array, sizeof array);
    *room = more;
    return true;
}
