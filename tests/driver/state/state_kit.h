/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of this folder: a folder of the test's own, and its files as bytes.
 */
#ifndef TW_TESTS_DRIVER_STATE_STATE_KIT_H
#define TW_TESTS_DRIVER_STATE_STATE_KIT_H

#include "tests/support/saved_sequence.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char kit_folder[64], kit_path[96];

__attribute__((unused)) static int kit_begin(void **state) {
    (void)state;
    /* in memory, if it can be: on a disk, ext4 writes what a rename replaces before it returns */
    snprintf(kit_folder, sizeof kit_folder, "%s/tw-state-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(kit_folder)) {
        return -1;
    }
    snprintf(kit_path, sizeof kit_path, "%s/a.twstate", kit_folder);
    return 0;
}

__attribute__((unused)) static int kit_end(void **state) {
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", kit_folder);
    return system(command);
}

/* How many files the folder has whose name contains `part`; `remove`: it loses them. */
__attribute__((unused)) static unsigned kit_files_like(const char *part, bool remove) {
    unsigned n = 0;
    DIR *d = opendir(kit_folder);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        bool is_like = e->d_name[0] != '.' && strstr(e->d_name, part);
        n += is_like;
        if (is_like && remove) {
            assert_int_equal(unlinkat(dirfd(d), e->d_name, 0), 0);
        }
    }
    closedir(d);
    return n;
}

__attribute__((unused)) static unsigned kit_files(void) {
    return kit_files_like("", false);
}

static int kit_sync(int fd) {
    (void)fd;
    return 0;
}

/* Saves, without waiting for the disk. */
__attribute__((unused)) static struct tw_saved_result kit_save(struct saved_sequence *s) {
    static const struct tw_saved_calls calls = {.sync = kit_sync};
    struct tw_saved_source source = saved_sequence_source(s);
    struct tw_saved_result result;
    tw_error err = {0};
    if (tw_saved_write(kit_path, &s->schema, s->tokens, s->n, &source, &calls, &result, &err) !=
        0) {
        fail_msg("%s", err.message);
    }
    return result;
}

/* Fails unless the state at the path is this one. */
__attribute__((unused)) static void kit_expect(const struct saved_sequence *s) {
    if (!saved_sequence_is_at(s, kit_path)) {
        fail_msg("the file does not hold the sequence of %u tokens", s->n);
    }
}

__attribute__((unused)) static uint8_t *kit_read(size_t *n) {
    struct stat st;
    int fd = open(kit_path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    uint8_t *bytes = malloc((size_t)st.st_size + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
    close(fd);
    *n = (size_t)st.st_size;
    return bytes;
}

__attribute__((unused)) static void kit_write(const void *bytes, size_t n) {
    int fd = open(kit_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

__attribute__((unused)) static uint64_t kit_size(void) {
    struct stat st;
    assert_int_equal(stat(kit_path, &st), 0);
    return (uint64_t)st.st_size;
}

#endif
