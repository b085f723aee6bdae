/* SPDX-License-Identifier: Apache-2.0
 *
 * A save that ends in its middle: killed at each of its system calls and within its writes, on a
 * full disk, at the limit of file sizes, or with the power. The file then holds what it held before
 * or what was saved, whole; nothing else is left; and the next save works.
 */
#include "loader/base/hash.h"
#include "tests/driver/state/state_kit.h"

#include <sys/resource.h>

static struct saved_sequence before, after;

/* ---- system calls that end early ---- */

enum end { KILLED, FULL };
static struct {
    enum end end;
    uint32_t left;  /* calls */
    uint32_t bytes; /* of the last write that happen */
    uint32_t slice; /* a write takes at most that many bytes */
} plan;

static bool is_over(void) {
    return plan.left-- == 0;
}

static ssize_t some(int fd, const struct iovec *parts, off_t at, size_t max) {
    size_t n = parts->iov_len < max ? parts->iov_len : max;
    return pwrite(fd, parts->iov_base, n, at);
}

static ssize_t end_write(int fd, const struct iovec *parts, int n, off_t at) {
    (void)n;
    if (!is_over()) {
        return some(fd, parts, at, plan.slice);
    }
    if (plan.bytes) {
        assert_true(some(fd, parts, at, plan.bytes) > 0);
    }
    if (plan.end == KILLED) {
        kill(getpid(), SIGKILL);
    }
    errno = ENOSPC;
    plan.left = 0;
    return -1;
}

static int end_sync(int fd) {
    (void)fd; /* it is not the power that fails */
    if (is_over()) {
        kill(getpid(), plan.end == KILLED ? SIGKILL : 0);
        errno = ENOSPC;
        return plan.end == KILLED ? 0 : -1;
    }
    return 0;
}

static int end_replace(const char *from, const char *to) {
    if (is_over()) {
        kill(getpid(), plan.end == KILLED ? SIGKILL : 0);
        errno = ENOSPC;
        return -1;
    }
    return rename(from, to);
}

static int save_by_plan(struct saved_sequence *s, tw_error *err) {
    static const struct tw_saved_calls calls = {end_write, end_sync, end_replace};
    struct tw_saved_source source = saved_sequence_source(s);
    struct tw_saved_result r;
    return tw_saved_write(kit_path, &s->schema, s->tokens, s->n, &source, &calls, &r, err);
}

/* Saves in a child, which is killed. Returns false once it completes. */
static bool kill_save(struct saved_sequence *s) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(save_by_plan(s, NULL) == 0 ? 0 : 9);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

/* ---- killed ---- */

/* `before` is in the file, or none if it has no tokens. Kills each call of saving `after`. */
static void kill_at_every_call(uint32_t slice, uint32_t bytes) {
    size_t n = 0;
    uint8_t *bytes_before = before.n ? kit_read(&n) : NULL;
    uint32_t kills = 0, olds = 0, news = 0, links = 0;
    for (bool more = true; more; kills++) {
        unlink(kit_path);
        if (bytes_before) {
            kit_write(bytes_before, n);
        }
        plan.end = KILLED;
        plan.left = kills;
        plan.bytes = bytes;
        plan.slice = slice;
        more = kill_save(&after);
        links += kit_files_like(".tmp-", true); /* the link that was about to be renamed */
        if (access(kit_path, F_OK) != 0) {
            assert_int_equal(before.n, 0);
            olds++;
        } else if (before.n && saved_sequence_is_at(&before, kit_path)) {
            olds++;
        } else {
            kit_expect(&after);
            news++;
        }
        assert_true(kit_files() <= 1);
        kit_save(&after); /* and then the next save works */
        kit_expect(&after);
    }
    assert_true(links <= 1); /* between link and rename */
    assert_true(olds > 5 && news > 0 && kills > 7);
    free(bytes_before);
}

static void a_killed_first_save_leaves_nothing(void **state) {
    (void)state;
    saved_sequence_init(&before, 2, 300);
    saved_sequence_init(&after, 2, 300);
    saved_sequence_feed(&after, 0, 150, 1);
    kill_at_every_call(800, 0);
    kill_at_every_call(1000, 100);
}

static void a_killed_replacement_leaves_the_old_state(void **state) {
    (void)state;
    saved_sequence_feed(&before, 0, 200, 2);
    unlink(kit_path);
    kit_save(&before);
    kill_at_every_call(500, 0);
    unlink(kit_path);
    kit_save(&before);
    kill_at_every_call(1000, 77);
}

static void a_killed_turn_leaves_the_state_before_it(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        unlink(kit_path);
        saved_sequence_feed(&before, 0, 100, 3);
        kit_save(&before);
        saved_sequence_feed(&before, 100, i == 0 ? 128 : 140, 4); /* with a free cell, or not */
        kit_save(&before);
        after = before;
        saved_sequence_feed(&after, before.n, before.n + 30 + 50 * i, 5);
        kill_at_every_call(i % 2 ? 512 : 4096, i == 3 ? 200 : 0);
    }
}

/* ---- power ---- */

/* Sectors of a commit that did not all reach the disk. */
static void a_torn_commit_is_the_state_before_it(void **state) {
    size_t n, n_after;
    (void)state;
    unlink(kit_path);
    saved_sequence_feed(&before, 0, 100, 3);
    kit_save(&before);
    saved_sequence_feed(&before, 100, 150, 3);
    kit_save(&before);
    uint8_t *old = kit_read(&n);
    after = before;
    saved_sequence_feed(&after, 150, 300, 5);
    kit_save(&after);
    uint8_t *new = kit_read(&n_after), *torn = malloc(n_after);
    assert_non_null(torn);
    for (uint32_t at = 1; at < 512; at += 37) {
        memcpy(torn, new, n_after);
        memcpy(torn + at, old + at, 1024 - at); /* the first one's end, and the second */
        kit_write(torn, n_after);
        kit_expect(memcmp(torn, new, 512) == 0 ? &after : &before);
        kit_save(&after);
        kit_expect(&after);
        memcpy(torn, new, n_after);
        memcpy(torn + 512 + at, old + 512 + at, 512 - at); /* the second one's */
        kit_write(torn, n_after);
        kit_expect(&after);
        kit_save(&after);
        size_t n_healed;
        uint8_t *healed = kit_read(&n_healed);
        assert_memory_equal(healed, healed + 512, 512);
        free(healed);
        kit_expect(&after);
    }
    free(torn);
    free(new);
    free(old);
}

/* ---- a full disk ---- */

static void fails_full(int code, const tw_error *err) {
    assert_int_equal(code, TW_E_NOSPACE);
    assert_non_null(strstr(err->message, ".twstate"));
}

static void a_full_disk_leaves_no_half_file(void **state) {
    tw_error err = {0};
    int code = -1;
    (void)state;
    unlink(kit_path);
    for (uint32_t calls = 0; code != 0; calls++) {
        plan.end = FULL;
        plan.left = calls;
        plan.bytes = calls % 3 * 100;
        plan.slice = 1000;
        code = save_by_plan(&after, &err);
        if (code) {
            fails_full(code, &err);
            assert_int_equal(kit_files(), 0);
        }
    }
    kit_expect(&after);
}

static void a_full_disk_leaves_the_state_before_the_turn(void **state) {
    tw_error err = {0};
    int code = -1;
    (void)state;
    unlink(kit_path);
    kit_save(&before);
    size_t n, n_now;
    uint8_t *old = kit_read(&n);
    for (uint32_t calls = 0; code != 0; calls++) {
        kit_write(old, n);
        plan.end = FULL;
        plan.left = calls;
        plan.bytes = calls % 3 * 100;
        plan.slice = 1000;
        code = save_by_plan(&after, &err);
        if (code) {
            fails_full(code, &err);
            uint8_t *now = kit_read(&n_now);
            bool is_committed = memcmp(now, old, 512) != 0; /* the last calls: it is saved */
            kit_expect(is_committed && saved_sequence_is_at(&after, kit_path) ? &after : &before);
            assert_true(is_committed || n_now == n);
            free(now);
        }
        assert_int_equal(kit_files(), 1);
    }
    kit_expect(&after);
    free(old);
}

static void at_the_limit_of_file_sizes_nothing_changes(void **state) {
    tw_error err = {0};
    struct rlimit limit;
    size_t n, n_now;
    (void)state;
    unlink(kit_path);
    kit_save(&before);
    uint8_t *old = kit_read(&n);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct rlimit low = {n + 10, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0); /* SIGXFSZ would end this process */
    struct tw_saved_source source = saved_sequence_source(&after);
    struct tw_saved_result r;
    int code =
        tw_saved_write(kit_path, &after.schema, after.tokens, after.n, &source, NULL, &r, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(code, TW_E_NOSPACE);
    assert_non_null(strstr(err.message, "ulimit -f"));
    uint8_t *now = kit_read(&n_now);
    assert_int_equal(n_now, n);
    assert_memory_equal(now, old, n);
    free(now);
    free(old);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_first_save_leaves_nothing),
        cmocka_unit_test(a_killed_replacement_leaves_the_old_state),
        cmocka_unit_test(a_killed_turn_leaves_the_state_before_it),
        cmocka_unit_test(a_torn_commit_is_the_state_before_it),
        cmocka_unit_test(a_full_disk_leaves_no_half_file),
        cmocka_unit_test(a_full_disk_leaves_the_state_before_the_turn),
        cmocka_unit_test(at_the_limit_of_file_sizes_nothing_changes),
    };
    return cmocka_run_group_tests_name("state_crash", tests, kit_begin, kit_end);
}
