/* SPDX-License-Identifier: Apache-2.0
 *
 * Status pages: what is published, that readers never see a torn one, that pages of dead processes
 * are removed, and that a device opens even if a page cannot be created.
 */
#include "driver/device/device.h"
#include "loader/base/clock.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct tw_wire_identity machine = {.target = "sim4x4", .device = "emulator"};

/* ---- finding pages ---- */

struct found {
    uint32_t pid, n;
    struct tw_status_info info;
};

static bool match(void *ctx, const struct tw_status_info *info) {
    struct found *f = ctx;
    if (f->pid == 0 || info->pid == f->pid) {
        f->info = *info;
        f->n++;
    }
    return true;
}

static struct found find(uint32_t pid) {
    struct found f = {.pid = pid};
    tw_status_list(match, &f, NULL);
    return f;
}

static struct found find_own(void) {
    return find((uint32_t)getpid());
}

static unsigned files_in_folder(void) {
    char folder[200];
    unsigned n = 0;
    snprintf(folder, sizeof folder, "%s/tilewright", getenv("XDG_RUNTIME_DIR"));
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        n += strstr(e->d_name, ".status") != NULL;
    }
    if (dir) {
        closedir(dir);
    }
    return n;
}

static const char *file_path(const char *name) {
    static char path[300];
    snprintf(path, sizeof path, "%s/tilewright/%s", getenv("XDG_RUNTIME_DIR"), name);
    return path;
}

/* ---- what is published ---- */

static void an_open_device_has_a_page_and_a_closed_one_none(void **state) {
    tw_device *device;
    (void)state;
    assert_int_equal(tw_device_open("emu:sim4x4", NULL, &device, NULL), 0);
    struct found f = find_own();
    assert_int_equal(f.n, 1);
    assert_string_equal(f.info.device, "emu:sim4x4");
    assert_string_equal(f.info.target, "sim4x4");
    assert_string_equal(f.info.state, "idle");
    assert_string_equal(f.info.error, "");
    assert_true(f.info.sent_bytes >= 32 && f.info.received_bytes >= 32);
    tw_device_close(device);
    assert_int_equal(find_own().n, 0);
    assert_int_equal(files_in_folder(), 0);
}

static void every_device_of_a_process_has_one(void **state) {
    tw_device *device[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tw_device_open("emu", NULL, &device[i], NULL), 0);
    }
    assert_int_equal(find_own().n, 3);
    tw_device_close(device[1]);
    assert_int_equal(find_own().n, 2);
    tw_device_close(device[0]);
    tw_device_close(device[2]);
    assert_int_equal(files_in_folder(), 0);
}

static void a_refused_request_is_reported_and_the_device_stays_idle(void **state) {
    tw_device *device;
    uint64_t address;
    (void)state;
    assert_int_equal(tw_device_open("emu", NULL, &device, NULL), 0);
    assert_int_not_equal(tw_device_alloc(device, UINT64_C(1) << 60, 64, false, &address, NULL), 0);
    struct found f = find_own();
    assert_string_equal(f.info.state, "idle");
    assert_non_null(strstr(f.info.error, "ALLOC"));
    tw_device_close(device);
}

static void a_lost_device_reports_its_cause(void **state) {
    struct socket_device d;
    tw_device *device;
    (void)state;
    socket_device_start(&d, "lost", NULL, 0);
    assert_int_equal(socket_open(d.selector, 2000, &device, NULL), 0);
    assert_int_equal(find_own().n, 1);
    socket_device_kill(&d);
    assert_int_not_equal(tw_device_reset(device, NULL), 0);
    /* reports only that it is lost, which must not replace the cause */
    assert_int_not_equal(tw_device_reset(device, NULL), 0);
    struct found f = find_own();
    assert_string_equal(f.info.state, "lost");
    assert_non_null(strstr(f.info.error, "closed the connection"));
    tw_device_close(device);
}

static void the_numbers_are_those_of_the_steps(void **state) {
    struct tw_status s;
    struct tw_transport_count count = {.resent = 3, .damaged = 4};
    struct tw_status_step prompt = {.tokens = 7,
                                    .steps = 1,
                                    .prompt = true,
                                    .position = 7,
                                    .n_ctx = 64},
                          token = {.tokens = 2, .steps = 2, .position = 9, .n_ctx = 64};
    (void)state;
    tw_status_init(&s);
    tw_status_publish(&s, "emu", &machine);
    tw_status_set_bundle(&s, "/some/where/model.twb");
    tw_status_begin(&s, TW_WIRE_WRITE, 0);
    assert_string_equal(find_own().info.state, "waiting");
    assert_string_equal(find_own().info.doing, "WRITE");
    tw_status_begin(&s, TW_WIRE_RUN, 68);
    assert_string_equal(find_own().info.state, "running");
    tw_status_end(&s, 0, &count);
    tw_status_begin(&s, TW_WIRE_READ, 0);
    assert_string_equal(find_own().info.state, "running");
    assert_string_equal(find_own().info.doing, "RUN");
    tw_status_end(&s, 0, &count);
    assert_string_equal(find_own().info.state, "running");
    tw_status_end(&s, 100, &count);
    tw_status_step(&s, &prompt);
    tw_status_step(&s, &token);
    struct tw_status_info i = find_own().info;
    assert_string_equal(i.state, "idle");
    assert_string_equal(i.bundle, "model.twb");
    assert_int_equal(i.prompt_tokens, 7);
    assert_int_equal(i.tokens, 2);
    assert_int_equal(i.steps, 3);
    assert_int_equal(i.position, 9);
    assert_int_equal(i.n_ctx, 64);
    assert_int_equal(i.sent_bytes, 3 * 32 + 68);
    assert_int_equal(i.received_bytes, 3 * 32 + 100);
    assert_int_equal(i.resent, 3);
    assert_int_equal(i.damaged, 4);
    tw_status_finish(&s);
}

static void a_bundle_is_named_in_full(void **state) {
    struct tw_status s;
    char path[300] = "/some/where/";
    (void)state;
    tw_status_init(&s);
    tw_status_publish(&s, "emu", &machine);
    memset(path + 12, 'n', 255); /* as long as a file's name can be */
    path[12 + 255] = 0;
    tw_status_set_bundle(&s, path);
    struct tw_status_info i = find_own().info;
    assert_string_equal(i.bundle_file, path + 12);
    assert_int_equal(strlen(i.bundle), sizeof i.bundle - 1);
    tw_status_finish(&s);
}

static void the_rate_is_that_of_the_last_seconds(void **state) {
    struct tw_status s;
    (void)state;
    tw_status_init(&s);
    tw_status_publish(&s, "emu", &machine);
    s.now.tokens = 1000000; /* long ago */
    s.now.token_ns = s.now.progress_ns = tw_clock_coarse_ns();
    s.mark[0].tokens = s.mark[1].tokens = 1000000 - 50;
    s.mark[0].ns = s.mark[1].ns = tw_clock_coarse_ns() - UINT64_C(1000000000);
    struct tw_status_step token = {.tokens = 50};
    tw_status_step(&s, &token);
    double rate = find_own().info.tokens_per_s;
    assert_true(rate > 1 && rate <= 101); /* 100 in a second, or more time on a slow machine */
    s.now.token_ns = 0;                   /* long ago: nothing since the computer was started */
    tw_status_progress(&s);
    assert_true(find_own().info.tokens_per_s == 0);
    tw_status_finish(&s);
}

static void a_boards_page_is_in_the_shared_folder(void **state) {
    struct tw_status s;
    char locks[200];
    (void)state;
    snprintf(locks, sizeof locks, "%s/locks", getenv("XDG_RUNTIME_DIR"));
    assert_int_equal(mkdir(locks, 0700), 0);
    setenv("TW_LOCK_FOLDER", locks, 1);
    tw_status_init(&s);
    tw_status_publish(&s, "usb:1-2", &machine);
    assert_int_equal(strncmp(s.path, locks, strlen(locks)), 0);
    assert_int_equal(files_in_folder(), 0);
    assert_string_equal(find_own().info.device, "usb:1-2");
    tw_status_finish(&s);
    assert_int_equal(rmdir(locks), 0);
    tw_status_init(&s);
    /* the folder is gone: this user's own will do */
    tw_status_publish(&s, "pcie:0000:00:02.0", &machine);
    assert_int_equal(find_own().n, 1);
    assert_int_equal(files_in_folder(), 1);
    tw_status_finish(&s);
    unsetenv("TW_LOCK_FOLDER");
}

/* In a folder where all users may create files, a page must belong to its process's user. */
static void a_page_forged_by_another_user_is_not_shown(void **state) {
    struct tw_status s;
    char locks[200];
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    snprintf(locks, sizeof locks, "%s/locks", getenv("XDG_RUNTIME_DIR"));
    assert_int_equal(mkdir(locks, 0700), 0);
    setenv("TW_LOCK_FOLDER", locks, 1);
    tw_status_init(&s);
    tw_status_publish(&s, "usb:1-2", &machine);
    assert_int_equal(find_own().n, 1);
    assert_int_equal(fchown(s.fd, 54321, 54321), 0);
    assert_int_equal(find_own().n, 0);
    tw_status_finish(&s);
    assert_int_equal(rmdir(locks), 0);
    unsetenv("TW_LOCK_FOLDER");
}

/* Thousands of them do not slow down opening, which looks only into this user's own folder. */
static void opening_ignores_files_in_the_shared_folder(void **state) {
    struct tw_status s;
    char locks[200], path[300];
    (void)state;
    snprintf(locks, sizeof locks, "%s/locks", getenv("XDG_RUNTIME_DIR"));
    assert_int_equal(mkdir(locks, 0700), 0);
    setenv("TW_LOCK_FOLDER", locks, 1);
    snprintf(path, sizeof path, "%s/tilewright-4000000-1.status.new", locks);
    fclose(fopen(path, "w")); /* whoever looked would remove it: its process is gone */
    tw_status_init(&s);
    tw_status_publish(&s, "usb:1-2", &machine);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(find_own().n, 1);
    assert_int_not_equal(access(path, F_OK), 0);
    tw_status_finish(&s);
    assert_int_equal(rmdir(locks), 0);
    unsetenv("TW_LOCK_FOLDER");
}

/* ---- readers and the owner ---- */

static _Atomic bool stop;

static void *publish_forever(void *ctx) {
    struct tw_status *s = ctx;
    for (uint32_t i = 1; !atomic_load(&stop); i++) {
        pthread_mutex_lock(&s->lock);
        s->now.position = s->now.n_ctx = i;
        s->now.tokens = s->now.prompt_tokens = s->now.resent = s->now.damaged = s->now.sent_bytes =
            s->now.received_bytes = i;
        memset(s->now.error, 'a' + (int)(i % 26), sizeof s->now.error - 1);
        memset(s->now.bundle, 'a' + (int)(i % 26), sizeof s->now.bundle - 1);
        s->old_texts = 2;
        pthread_mutex_unlock(&s->lock);
        tw_status_progress(s);
    }
    return NULL;
}

static void readers_never_see_a_torn_page(void **state) {
    struct tw_status s;
    pthread_t writer;
    unsigned different = 0;
    uint64_t last = 0;
    (void)state;
    tw_status_init(&s);
    tw_status_publish(&s, "emu", &machine);
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&writer, NULL, publish_forever, &s), 0);
    for (unsigned i = 0; i < 20000 || (different < 2 && i < 100000000); i++) {
        struct found f = find_own();
        struct tw_status_info *n = &f.info;
        assert_true(f.n <= 1);
        if (f.n == 0 || n->tokens == 0) {
            continue; /* the writer was faster each time, or has not begun */
        }
        assert_int_equal(n->tokens, n->received_bytes);
        assert_int_equal(n->tokens, n->position);
        assert_int_equal(n->error[0], 'a' + (int)(n->tokens % 26));
        assert_int_equal(n->error[0], n->error[sizeof n->error - 2]);
        assert_int_equal(n->error[0], n->bundle[0]);
        different += n->tokens != last;
        last = n->tokens;
    }
    atomic_store(&stop, true);
    pthread_join(writer, NULL);
    assert_true(different >= 2);
    tw_status_finish(&s);
}

/* ---- dead processes ---- */

static int open_and_wait(void *ctx) {
    tw_device *device;
    int *ready = ctx;
    if (tw_device_open("emu", NULL, &device, NULL) || write(ready[1], "x", 1) != 1) {
        return 1;
    }
    pause();
    return 0;
}

static pid_t start_owner(void) {
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = child_start(open_and_wait, ready);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void the_page_of_a_killed_process_vanishes(void **state) {
    (void)state;
    pid_t pid = start_owner();
    assert_int_equal(find((uint32_t)pid).n, 1);
    kill(pid, SIGKILL);
    child_wait(pid);
    assert_int_equal(files_in_folder(), 1);
    assert_int_equal(find((uint32_t)pid).n, 0);
    assert_int_equal(files_in_folder(), 0);
}

static void opening_removes_pages_of_dead_processes(void **state) {
    tw_device *device;
    (void)state;
    pid_t pid = start_owner();
    kill(pid, SIGKILL);
    child_wait(pid);
    assert_int_equal(tw_device_open("emu", NULL, &device, NULL), 0);
    assert_int_equal(files_in_folder(), 1);
    tw_device_close(device);
    assert_int_equal(files_in_folder(), 0);
}

/* A child that a dead process forked may still hold the lock of its page. */
static void a_page_whose_process_has_another_start_time_is_stale(void **state) {
    struct tw_status s;
    (void)state;
    tw_status_init(&s);
    tw_status_publish(&s, "emu", &machine);
    assert_int_equal(find_own().n, 1);
    s.page->owner.pid_start++;
    assert_int_equal(find_own().n, 0);
    assert_int_equal(files_in_folder(), 0);
    tw_status_finish(&s);
}

/* A PID of another namespace means nothing here: only the lock counts. */
static void a_page_of_another_pid_namespace_lives_as_long_as_its_lock(void **state) {
    struct tw_status s;
    (void)state;
    tw_status_init(&s);
    tw_status_publish(&s, "emu", &machine);
    s.page->owner.pid_namespace++;
    s.page->owner.pid = 4000000;
    assert_int_equal(find(4000000).n, 1);
    flock(s.fd, LOCK_UN);
    assert_int_equal(find(4000000).n, 0);
    assert_int_equal(files_in_folder(), 0);
    tw_status_finish(&s);
}

static void a_page_of_another_version_is_left_alone(void **state) {
    struct tw_status s;
    (void)state;
    tw_status_init(&s);
    tw_status_publish(&s, "emu", &machine);
    s.page->owner.version++;
    assert_int_equal(find_own().n, 0);
    assert_int_equal(files_in_folder(), 1);
    tw_status_finish(&s);
    assert_int_equal(files_in_folder(), 0);
}

/* ---- what others put there ---- */

static void put_file(const char *name, const void *bytes, size_t n) {
    int fd = open(file_path(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static void other_files_in_the_folder_are_not_pages(void **state) {
    static uint8_t bytes[TW_STATUS_FILE_BYTES + 1];
    static const char *const names[] = {"1-1.status", "1-2.status", "1-3.status", "x-1.status",
                                        "1-4.status", "1-5.status", "1.status",   "1-6.status"};
    (void)state;
    memset(bytes, 0xFF, sizeof bytes);
    put_file("1-1.status", bytes, TW_STATUS_FILE_BYTES);
    put_file("1-2.status", bytes, 0);
    put_file("1-3.status", bytes, sizeof bytes);
    put_file("x-1.status", bytes, 10);
    put_file("1.status", bytes, 10);
    assert_int_equal(mkfifo(file_path("1-4.status"), 0600), 0);
    assert_int_equal(symlink("/etc/passwd", file_path("1-5.status")), 0);
    assert_int_equal(mkdir(file_path("1-6.status"), 0700), 0);
    assert_int_equal(find(0).n, 0);
    assert_int_equal(files_in_folder(), 8); /* none of them is ours to remove */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        remove(file_path(names[i]));
    }
}

static void texts_of_other_processes_are_made_printable(void **state) {
    struct tw_status s;
    (void)state;
    tw_status_init(&s);
    tw_status_publish(&s, "emu", &machine);
    memset(s.page->owner.program, 0x1B, sizeof s.page->owner.program); /* without a terminator */
    memset(s.now.bundle, 0x9B, sizeof s.now.bundle);
    s.old_texts = 2;
    s.now.state = 77;
    s.now.doing = 99;
    tw_status_progress(&s);
    struct tw_status_info i = find_own().info;
    assert_string_equal(i.program, "???????????????????????????????");
    assert_int_equal(strspn(i.bundle, "?"), sizeof i.bundle - 1);
    assert_string_equal(i.state, "?");
    tw_status_finish(&s);
}

/* ---- no page ---- */

static void open_works_in(const char *folder) {
    char old[200];
    tw_device *device;
    snprintf(old, sizeof old, "%s", getenv("XDG_RUNTIME_DIR"));
    setenv("XDG_RUNTIME_DIR", folder, 1);
    assert_int_equal(tw_device_open("emu", NULL, &device, NULL), 0);
    assert_null(device->status.page);
    assert_int_equal(tw_device_selftest(device, NULL, NULL, NULL), 0);
    tw_device_close(device);
    setenv("XDG_RUNTIME_DIR", old, 1);
}

static void without_a_page_the_device_still_opens(void **state) {
    (void)state;
    open_works_in("/proc/1/nowhere"); /* no folder can be made there */
    open_works_in("/dev/null");
}

static void a_full_disk_does_not_prevent_opening(void **state) {
    (void)state;
    signal(SIGXFSZ, SIG_IGN); /* the write fails instead */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* files of this process may have 1000 bytes: a page does not fit */
        const struct rlimit limit = {1000, 1000};
        tw_device *device;
        bool good = setrlimit(RLIMIT_FSIZE, &limit) == 0 &&
                    tw_device_open("emu", NULL, &device, NULL) == 0 &&
                    device->status.page == NULL && tw_device_reset(device, NULL) == 0;
        _exit(good ? 0 : 1);
    }
    assert_int_equal(child_wait(pid), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(files_in_folder(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_open_device_has_a_page_and_a_closed_one_none),
        cmocka_unit_test(every_device_of_a_process_has_one),
        cmocka_unit_test(a_refused_request_is_reported_and_the_device_stays_idle),
        cmocka_unit_test(a_lost_device_reports_its_cause),
        cmocka_unit_test(the_numbers_are_those_of_the_steps),
        cmocka_unit_test(a_bundle_is_named_in_full),
        cmocka_unit_test(the_rate_is_that_of_the_last_seconds),
        cmocka_unit_test(a_boards_page_is_in_the_shared_folder),
        cmocka_unit_test(readers_never_see_a_torn_page),
        cmocka_unit_test(the_page_of_a_killed_process_vanishes),
        cmocka_unit_test(a_page_forged_by_another_user_is_not_shown),
        cmocka_unit_test(opening_ignores_files_in_the_shared_folder),
        cmocka_unit_test(opening_removes_pages_of_dead_processes),
        cmocka_unit_test(a_page_whose_process_has_another_start_time_is_stale),
        cmocka_unit_test(a_page_of_another_pid_namespace_lives_as_long_as_its_lock),
        cmocka_unit_test(a_page_of_another_version_is_left_alone),
        cmocka_unit_test(other_files_in_the_folder_are_not_pages),
        cmocka_unit_test(texts_of_other_processes_are_made_printable),
        cmocka_unit_test(without_a_page_the_device_still_opens),
        cmocka_unit_test(a_full_disk_does_not_prevent_opening),
    };
    return cmocka_run_group_tests(tests, socket_folder_set_up, socket_folder_tear_down);
}
