/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders, files, sockets and locks that another user puts where ours are expected. Acting as
 * another user takes root; without root those tests skip.
 */
#include "loader/base/listen.h"
#include "loader/base/lock.h"
#include "loader/base/private_path.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define OTHER 54321u /* a user without processes */

static char folder[64];

static const char *in_folder(const char *name) {
    static char path[4][108];
    static unsigned n;
    char *p = path[n++ % 4];
    snprintf(p, 108, "%s/%s", folder, name);
    return p;
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/tw-private-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static void need_root(void) {
    if (geteuid() != 0) {
        skip();
    }
}

static void refused(int code, const tw_error *err, const char *word) {
    assert_int_equal(code, TW_E_IO);
    if (!strstr(err->message, word)) {
        fail_msg("\"%s\" does not contain \"%s\"", err->message, word);
    }
}

static void a_folder_is_created_for_this_user_only(void **state) {
    (void)state;
    struct stat st;
    tw_error err = {0};
    const char *path = in_folder("made");
    assert_int_equal(tw_private_folder(path, false, &err), TW_E_IO);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(tw_private_folder(path, true, &err), 0);
    assert_int_equal(tw_private_folder(path, true, &err), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void anything_but_a_folder_is_refused(void **state) {
    (void)state;
    tw_error err = {0};
    const char *link = in_folder("link"), *file = in_folder("file"), *wide = in_folder("wide");
    assert_int_equal(symlink("/tmp", link), 0);
    refused(tw_private_folder(link, true, &err), &err, "link");
    close(open(file, O_CREAT | O_WRONLY, 0600));
    refused(tw_private_folder(file, true, &err), &err, "expected");
    assert_int_equal(mkdir(wide, 0700), 0);
    assert_int_equal(chmod(wide, 0770), 0);
    refused(tw_private_folder(wide, true, &err), &err, "chmod go-w");
}

static void a_folder_of_another_user_is_refused(void **state) {
    (void)state;
    tw_error err = {0};
    const char *path = in_folder("theirs");
    need_root();
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chown(path, OTHER, OTHER), 0);
    refused(tw_private_folder(path, true, &err), &err, "belongs to user 54321");
}

static void files_of_others_and_links_are_not_read(void **state) {
    (void)state;
    int fd;
    tw_error err = {0};
    const char *file = in_folder("entry"), *link = in_folder("entry-link");
    assert_int_equal(tw_private_file_open(file, &fd, &err), TW_E_IO);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(tw_private_file_create(file, &fd, &err), 0);
    close(fd);
    assert_int_equal(tw_private_file_create(file, &fd, &err), TW_E_IO); /* it is there */
    assert_int_equal(tw_private_file_open(file, &fd, &err), 0);
    close(fd);
    assert_int_equal(symlink(file, link), 0);
    refused(tw_private_file_open(link, &fd, &err), &err, "symbolic link");
    assert_int_equal(tw_private_file_create(link, &fd, &err), TW_E_IO);
    refused(tw_private_file_open(folder, &fd, &err), &err, "regular file");
    need_root();
    assert_int_equal(chown(file, OTHER, OTHER), 0);
    refused(tw_private_file_open(file, &fd, &err), &err, "belongs to user 54321");
}

static void the_runtime_folder_is_in_a_folder_of_this_user(void **state) {
    (void)state;
    char path[TW_RUNTIME_FOLDER], own[TW_RUNTIME_FOLDER];
    const char *theirs = in_folder("run");
    tw_error err = {0};
    setenv("XDG_RUNTIME_DIR", folder, 1);
    snprintf(own, sizeof own, "%s/tilewright", folder);
    assert_int_equal(tw_runtime_folder(true, path, &err), 0);
    assert_string_equal(path, own);
    need_root();
    /* sudo keeps the variable of the user who calls it */
    assert_int_equal(mkdir(theirs, 0700), 0);
    assert_int_equal(chown(theirs, OTHER, OTHER), 0);
    setenv("XDG_RUNTIME_DIR", theirs, 1);
    tw_runtime_folder(false, path, &err);
    assert_null(strstr(path, theirs));
}

/* Runs as the other user, with no runtime folder but /tmp, where root has already taken its
 * name. */
static int finds_its_folder_taken(void *ctx) {
    (void)ctx;
    char path[TW_RUNTIME_FOLDER], socket[TW_SOCKET_PATH];
    tw_error err = {0};
    unsetenv("XDG_RUNTIME_DIR");
    if (setgid(OTHER) || setuid(OTHER)) {
        return 1;
    }
    if (tw_runtime_folder(true, path, &err) != TW_E_IO || !strstr(err.message, "user 0")) {
        return 2;
    }
    return tw_runtime_socket("a", false, socket, &err) == TW_E_IO ? 0 : 3;
}

static void a_folder_in_tmp_that_another_user_made_first_is_refused(void **state) {
    (void)state;
    char path[64];
    need_root();
    snprintf(path, sizeof path, "/tmp/tilewright-%u", OTHER);
    assert_int_equal(mkdir(path, 0777), 0);
    int code = child_wait(child_start(finds_its_folder_taken, NULL));
    rmdir(path);
    assert_int_equal(code, 0);
}

/* ---- sockets ---- */

static int connect_to(const char *path, int type) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (connect(fd, (const struct sockaddr *)&a, sizeof a)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int bind_foreign(const char *path, int type, bool listens) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
    assert_true(!listens || listen(fd, 1) == 0);
    return fd;
}

static void a_socket_that_another_program_serves_stays(void **state) {
    (void)state;
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
    for (int i = 0; i < 4; i++) {
        struct tw_listen l;
        struct stat before, after;
        tw_error err = {0};
        const char *path = in_folder("living");
        int fd = bind_foreign(path, types[i % 2], true);
        assert_int_equal(stat(path, &before), 0);
        assert_int_equal(tw_listen_begin(&l, "socket", path, types[i / 2], &err), TW_E_DEVICE_BUSY);
        assert_non_null(strstr(err.message, "another program"));
        assert_int_equal(stat(path, &after), 0);
        assert_int_equal(before.st_ino, after.st_ino);
        close(fd);
        unlink(path);
    }
}

static void a_stale_socket_is_replaced_and_only_our_own_removed(void **state) {
    (void)state;
    struct tw_listen l;
    struct stat st;
    tw_error err = {0};
    const char *path = in_folder("dead");
    close(bind_foreign(path, SOCK_SEQPACKET, true));
    assert_int_equal(tw_listen_begin(&l, "socket", path, SOCK_SEQPACKET, &err), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777 & ~0600u, 0); /* no other user may connect */
    tw_listen_end(&l);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(tw_listen_begin(&l, "socket", path, SOCK_SEQPACKET, &err), 0);
    unlink(path);
    int fd = bind_foreign(path, SOCK_STREAM, true); /* another program has taken the path */
    tw_listen_end(&l);
    assert_int_equal(access(path, F_OK), 0);
    close(fd);
    unlink(path);
}

static int connects_as_another(void *ctx) {
    return setgid(OTHER) || setuid(OTHER) || connect_to(ctx, SOCK_SEQPACKET) < 0;
}

static void another_user_can_connect_only_if_allowed(void **state) {
    (void)state;
    struct tw_listen l;
    tw_error err = {0};
    char path[108];
    need_root();
    snprintf(path, sizeof path, "%s", in_folder("shut"));
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(tw_listen_begin(&l, "socket", path, SOCK_SEQPACKET, &err), 0);
    assert_int_equal(child_wait(child_start(connects_as_another, path)), 1);
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(child_wait(child_start(connects_as_another, path)), 0);
    int fd = tw_listen_accept(&l, 0);
    assert_true(fd >= 0);
    assert_false(tw_peer_is_trusted(fd));
    close(fd);
    assert_int_equal(child_wait(child_start(connects_as_another, path)), 0);
    assert_int_equal(chmod(path, 0600), 0); /* closed again before the connection is accepted */
    assert_int_equal(tw_listen_accept(&l, 0), -1);
    fd = connect_to(path, SOCK_SEQPACKET);
    int own = tw_listen_accept(&l, 0);
    assert_true(own >= 0 && tw_peer_is_trusted(own));
    close(fd);
    close(own);
    tw_listen_end(&l);
}

/* ---- locks ---- */

static int holds_a_lock_that_names_another_process(void *ctx) {
    int fd = open(ctx, O_RDWR | O_CREAT, 0666);
    char text[40];
    int n = snprintf(text, sizeof text, "1 init\n");
    if (flock(fd, LOCK_EX | LOCK_NB) || ftruncate(fd, 0) || write(fd, text, (size_t)n) != n) {
        return 1;
    }
    raise(SIGSTOP);
    return 0;
}

static void the_kernel_reports_the_holder_of_a_lock(void **state) {
    (void)state;
    char path[108], name[32], expected[64];
    uint32_t holder;
    int fd;
    tw_error err = {0};
    snprintf(path, sizeof path, "%s", in_folder("device.lock"));
    pid_t pid = child_start(holds_a_lock_that_names_another_process, path);
    child_wait_stopped(pid);
    assert_int_equal(tw_lock_take(path, "device x", &fd, &err), TW_E_DEVICE_BUSY);
    snprintf(expected, sizeof expected, "process %d ", (int)pid);
    assert_non_null(strstr(err.message, expected));
    assert_true(tw_lock_label(path, &holder, name));
    assert_int_equal(holder, pid);
    kill(pid, SIGKILL);
    child_wait(pid);
    assert_false(tw_lock_label(path, &holder,
                               name)); /* the process named in the file does not hold the lock */
    assert_int_equal(tw_lock_take(path, "device x", &fd, &err), 0);
    tw_lock_release(path, fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_created_for_this_user_only),
        cmocka_unit_test(anything_but_a_folder_is_refused),
        cmocka_unit_test(a_folder_of_another_user_is_refused),
        cmocka_unit_test(files_of_others_and_links_are_not_read),
        cmocka_unit_test(the_runtime_folder_is_in_a_folder_of_this_user),
        cmocka_unit_test(a_folder_in_tmp_that_another_user_made_first_is_refused),
        cmocka_unit_test(a_socket_that_another_program_serves_stays),
        cmocka_unit_test(a_stale_socket_is_replaced_and_only_our_own_removed),
        cmocka_unit_test(another_user_can_connect_only_if_allowed),
        cmocka_unit_test(the_kernel_reports_the_holder_of_a_lock),
    };
    return cmocka_run_group_tests_name("private_path", tests, make_folder, remove_folder);
}
