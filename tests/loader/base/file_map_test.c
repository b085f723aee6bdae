/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapped files that their owner changes and truncates: private copies stay, reads fail, and the
 * SIGBUS handler handles faults in mapped files and no others.
 */
#include "loader/base/file_map.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"
#include "tilewright/tilewright.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGES 40u
#define PAGE 4096u

static char path[64];

/* Each byte of the file is the number of its page. */
static void make_file(void) {
    uint8_t page[PAGE];
    strcpy(path, "/tmp/tw-file-map-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (uint32_t i = 0; i < PAGES; i++) {
        memset(page, (int)i + 1, sizeof page);
        assert_int_equal(write(fd, page, sizeof page), sizeof page);
    }
    close(fd);
}

static void put(off_t at, char byte) {
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void private_copies_survive_changes_of_the_file(void **state) {
    (void)state;
    struct tw_file_map map;
    tw_error err = {0};
    make_file();
    assert_int_equal(tw_file_map_open(path, &map, &err), 0);
    assert_int_equal((uintptr_t)map.bytes % 65536, 0);
    assert_int_equal(map.size, PAGES * PAGE);
    assert_int_equal(map.own_bytes, 0);
    assert_int_equal(tw_file_map_own(&map, 100, &err), 0);
    assert_true(map.own_bytes >= 100);
    put(0, 99);
    assert_int_equal(map.bytes[0], 1);
    assert_int_equal(tw_file_map_own(&map, 3 * PAGE, &err), 0); /* more: the earlier copy stays */
    assert_int_equal(map.bytes[0], 1);
    assert_int_equal(map.bytes[2 * PAGE], 3);
    assert_int_equal(tw_file_map_own(&map, PAGE, &err), 0); /* less: nothing to do */
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(map.bytes[0], 1);
    assert_int_equal(map.bytes[3 * PAGE - 1], 3);
    tw_file_map_close(&map);
    tw_file_map_close(&map);
    unlink(path);
}

static void all_of_a_file_can_be_private(void **state) {
    (void)state;
    struct tw_file_map map;
    tw_error err = {0};
    uint8_t last[8];
    make_file();
    assert_int_equal(truncate(path, PAGES * PAGE - 5), 0);
    assert_int_equal(tw_file_map_open(path, &map, &err), 0);
    assert_int_equal(tw_file_map_own(&map, UINT64_MAX, &err), 0);
    assert_int_equal(map.own_bytes, PAGES * PAGE - 5);
    assert_int_equal(tw_file_map_own(&map, PAGES * PAGE - 6, &err), 0); /* in the last page */
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(tw_file_map_read(&map, PAGES * PAGE - 13, last, 8, &err), 0);
    assert_int_equal(last[7], PAGES);
    tw_file_map_close(&map);
    unlink(path);
}

static void reads_of_a_truncated_file_are_errors_that_name_it(void **state) {
    (void)state;
    struct tw_file_map map;
    tw_error err = {0};
    uint8_t bytes[2 * PAGE];
    make_file();
    assert_int_equal(tw_file_map_open(path, &map, &err), 0);
    assert_int_equal(tw_file_map_own(&map, PAGE, &err), 0);
    uint64_t border = map.own_bytes - PAGE; /* half of it is private, half is not */
    assert_int_equal(tw_file_map_read(&map, border, bytes, sizeof bytes, &err), 0);
    assert_int_equal(bytes[0], border / PAGE + 1);
    assert_int_equal(bytes[PAGE], border / PAGE + 2);
    assert_int_equal(truncate(path, 5 * PAGE + 7), 0);
    assert_int_equal(tw_file_map_read(&map, 5 * PAGE, bytes, 7, &err), 0);
    assert_int_equal(tw_file_map_read(&map, 5 * PAGE, bytes, 8, &err), TW_E_TRUNCATED);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.message, "had 163840 bytes and now has 20487"));
    assert_int_equal(tw_file_map_own(&map, 10 * PAGE, &err), TW_E_TRUNCATED);
    tw_file_map_close(&map);
    unlink(path);
}

static void anything_but_a_regular_file_with_content_is_refused(void **state) {
    (void)state;
    struct tw_file_map map;
    tw_error err = {0};
    make_file();
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(tw_file_map_open(path, &map, &err), TW_E_TRUNCATED);
    assert_non_null(strstr(err.message, "empty"));
    unlink(path);
    assert_int_equal(tw_file_map_open(path, &map, &err), TW_E_IO);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(tw_file_map_open(path, &map, &err), TW_E_IO);
    unlink(path);
    assert_int_equal(tw_file_map_open("/", &map, &err), TW_E_IO);
    assert_null(map.path);
    tw_file_map_close(&map);
}

/* ---- the fault path, each in a process of its own ---- */

/* Reads a byte of the last page, which is not private. */
static uint8_t read_in_place(const struct tw_file_map *map) {
    return *(const volatile uint8_t *)(map->bytes + (PAGES - 1) * PAGE);
}

static int reads_a_cut_page(void *ctx) {
    struct tw_file_map map, other;
    tw_error err = {0};
    bool guarded = *(bool *)ctx;
    char name[64];
    strcpy(name, path);
    signal(SIGBUS, SIG_DFL); /* removes a sanitizer's handler */
    /* a second call must not make the handler its own predecessor */
    if (guarded && (tw_guard_files(&err) || tw_guard_files(&err))) {
        return 1;
    }
    if (tw_file_map_open(path, &map, &err) || tw_file_map_own(&map, PAGE, &err)) {
        return 2;
    }
    make_file();
    if (tw_file_map_open(path, &other, &err) || tw_file_map_intact(&map, &err)) {
        return 3;
    }
    unlink(path);
    if (truncate(name, 6 * PAGE) || read_in_place(&map) != 0) {
        return 4;
    }
    if (tw_file_map_intact(&map, &err) != TW_E_TRUNCATED || !strstr(err.message, name)) {
        return 5;
    }
    if (tw_file_map_intact(&other, &err) || read_in_place(&other) != PAGES || map.bytes[0] != 1) {
        return 6;
    }
    tw_file_map_close(&map);
    /* the next mapping starts intact, even at the same address */
    return tw_file_map_open(name, &map, &err) || tw_file_map_intact(&map, &err) ? 7 : 0;
}

static void a_guarded_read_returns_zeros_and_is_reported(void **state) {
    (void)state;
    bool guarded = true;
    make_file();
    assert_int_equal(child_wait(child_start(reads_a_cut_page, &guarded)), 0);
    unlink(path);
}

static void no_handler_is_installed_unless_asked(void **state) {
    (void)state;
    bool guarded = false;
    make_file();
    assert_int_equal(child_wait(child_start(reads_a_cut_page, &guarded)), 128 + SIGBUS);
    unlink(path);
}

static void exit_42(int number) {
    (void)number;
    _exit(42);
}

/* Reads a page of a mapping that the library does not know. */
static int reads_a_foreign_page(void *ctx) {
    tw_error err = {0};
    signal(SIGBUS, *(bool *)ctx ? exit_42 : SIG_DFL);
    int fd = open(path, O_RDONLY);
    const volatile uint8_t *p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    if (tw_guard_files(&err) || p == MAP_FAILED || truncate(path, 0)) {
        return 1;
    }
    return p[0] + 2;
}

static void other_faults_go_to_the_previous_handler(void **state) {
    (void)state;
    for (int handled = 0; handled < 2; handled++) {
        bool has_handler = handled;
        make_file();
        assert_int_equal(child_wait(child_start(reads_a_foreign_page, &has_handler)),
                         handled ? 42 : 128 + SIGBUS);
        unlink(path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(private_copies_survive_changes_of_the_file),
        cmocka_unit_test(all_of_a_file_can_be_private),
        cmocka_unit_test(reads_of_a_truncated_file_are_errors_that_name_it),
        cmocka_unit_test(anything_but_a_regular_file_with_content_is_refused),
        cmocka_unit_test(a_guarded_read_returns_zeros_and_is_reported),
        cmocka_unit_test(no_handler_is_installed_unless_asked),
        cmocka_unit_test(other_faults_go_to_the_previous_handler),
    };
    return cmocka_run_group_tests_name("file_map", tests, NULL, NULL);
}
