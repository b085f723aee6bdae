/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing arrays: contents are kept, the room at least doubles, and sizes larger than any memory
 * are refused and change nothing.
 */
#include "loader/base/grow.h"
#include "tests/support/test.h"

static void items_stay_while_the_array_grows(void **state) {
    (void)state;
    uint32_t *items = NULL;
    size_t room = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        assert_true(tw_grow(&items, &room, i + 1, sizeof *items));
        assert_true(room > i);
        items[i] = i * 7;
    }
    for (uint32_t i = 0; i < 10000; i++) {
        assert_int_equal(items[i], i * 7);
    }
    free(items);
}

static void appending_one_by_one_takes_few_allocations(void **state) {
    (void)state;
    uint64_t *items = NULL;
    size_t room = 0, changes = 0;
    for (size_t i = 0; i < 100000; i++) {
        size_t was = room;
        assert_true(tw_grow(&items, &room, i + 1, sizeof *items));
        changes += room != was;
        assert_true(room == was || room >= 2 * was);
    }
    assert_in_range(changes, 1, 20);
    free(items);
}

static void the_needed_room_is_made_at_once(void **state) {
    (void)state;
    char *text = NULL;
    size_t room = 0;
    assert_true(tw_grow(&text, &room, 5000, 1));
    assert_in_range(room, 5000, 2 * 5000);
    memset(text, 'x', room);
    char *was = text;
    size_t had = room;
    assert_true(tw_grow(&text, &room, room, 1)); /* there is room already */
    assert_ptr_equal(text, was);
    assert_int_equal(room, had);
    free(text);
}

/* Neither the number of bytes nor the doubled room wraps around. */
static void sizes_beyond_memory_are_refused(void **state) {
    (void)state;
    static const struct {
        size_t need, item_bytes;
    } huge[] = {{SIZE_MAX, 1},         {SIZE_MAX, 8}, {SIZE_MAX / 8 + 1, 8},
                {SIZE_MAX / 2 + 1, 2}, {2, SIZE_MAX}, {1, SIZE_MAX / 4}};
    for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
        uint64_t *items = NULL;
        size_t room = 0;
        assert_true(tw_grow(&items, &room, 3, sizeof *items));
        items[0] = 42;
        uint64_t *was = items;
        size_t had = room;
        assert_false(
            tw_grow(&items, &had, huge[i].need > had ? huge[i].need : had + 1, huge[i].item_bytes));
        assert_ptr_equal(items, was);
        assert_int_equal(had, room);
        assert_int_equal(items[0], 42);
        free(items);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_stay_while_the_array_grows),
        cmocka_unit_test(appending_one_by_one_takes_few_allocations),
        cmocka_unit_test(the_needed_room_is_made_at_once),
        cmocka_unit_test(sizes_beyond_memory_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
