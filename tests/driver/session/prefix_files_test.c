/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix cache on disk: it outlasts deployments; tenants, damaged, foreign and linked files;
 * the budget; processes that share a folder, and one that is killed.
 */
#include "driver/session/session.h"
#include "tests/support/model_bundle.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"
#include "tilewright/state.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_CTX = 300, VOCAB = 1000 };

static uint32_t ids[4][N_CTX];
static char folder[64];

static int set_up(void **state) {
    uint64_t seed = 11;
    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t i = 0; i < N_CTX; i++) {
            ids[k][i] = random_below(&seed, VOCAB);
        }
        ids[k][0] = k;
    }
    snprintf(folder, sizeof folder, "/tmp/tw-prefix-XXXXXX");
    return mkdtemp(folder) == NULL;
}

/* ---- the folder ---- */

/* Calls use() for each file; returns how many there are. */
static uint32_t each(void (*use)(const char *path)) {
    DIR *d = opendir(folder);
    uint32_t n = 0;
    assert_non_null(d);
    for (const struct dirent *f; (f = readdir(d));) {
        if (f->d_name[0] != '.') {
            char path[400];
            snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
            n++;
            if (use) {
                use(path);
            }
        }
    }
    closedir(d);
    return n;
}

static void drop(const char *path) {
    unlink(path);
}

static char last[400];

static void remember(const char *path) {
    memcpy(last, path, sizeof last);
}

static int clean(void **state) {
    (void)state;
    each(drop);
    return 0;
}

static int tear_down(void **state) {
    clean(state);
    rmdir(folder);
    model_bundle_cleanup();
    return 0;
}

/* ---- deployments that use it ---- */

static void open_rig(struct rig *r, const char *target, uint64_t bytes) {
    struct tw_deploy_options o = {.size = sizeof o, .prefix_folder = folder, .prefix_bytes = bytes};
    struct tw_session_options s = {.size = sizeof s, .n_ctx = N_CTX, .n_threads = 1};
    rig_open(r, target, 1, NULL);
    tw_session_destroy(r->session);
    tw_deployment_destroy(r->deployment);
    assert_int_equal(tw_deploy_with(r->device, r->decoder, &o, &r->deployment, &r->err), 0);
    assert_int_equal(tw_session_create(r->deployment, &s, &r->session, &r->err), 0);
}

static tw_session *create(struct rig *r, const char *salt) {
    struct tw_session_options o = {
        .size = sizeof o, .n_ctx = N_CTX, .n_threads = 1, .prefix_cache = 1, .prefix_salt = salt};
    tw_session *s = NULL;
    assert_int_equal(tw_session_create(r->deployment, &o, &s, &r->err), 0);
    return s;
}

/* Feeds the tokens as a prompt, checks the bits, and keeps them; returns how many were reused. */
static uint32_t use(struct rig *r, const char *salt, const uint32_t *tokens, uint32_t n,
                    uint64_t *written) {
    uint32_t reused = 0;
    tw_session *s = create(r, salt);
    if (tw_session_feed_prompt(s, tokens, n, &reused, &r->err) ||
        (written && tw_session_keep_prefix(s, written, &r->err))) {
        fail_msg("%s", r->err.message);
    }
    assert_int_equal(tw_session_rewind(r->session, 0, &r->err), 0);
    assert_int_equal(tw_session_feed(r->session, tokens, n, &r->err), 0);
    assert_memory_equal(tw_session_logits(s), tw_session_logits(r->session), s->n_vocab * 4u);
    assert_int_equal(s->steps, reused ? (n - reused + 31) / 32 : s->steps);
    tw_session_destroy(s);
    return reused;
}

/* The same in a deployment of its own, as after a restart. */
static uint32_t start(const char *target, const char *salt, const uint32_t *tokens, uint32_t n,
                      uint64_t *written) {
    struct rig r;
    open_rig(&r, target, 0);
    uint32_t reused = use(&r, salt, tokens, n, written);
    rig_close(&r);
    return reused;
}

static void it_outlasts_a_deployment(void **state) {
    uint64_t first = 0, second = 0, third = 0;
    struct stat st;
    (void)state;
    assert_int_equal(start("host", NULL, ids[0], 150, &first), 0);
    assert_true(first > 0);
    assert_int_equal(each(remember), 1);
    assert_int_equal(stat(last, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(start("sim4x4", NULL, ids[0], 200, &second), 150);
    assert_true(second > 0 && second < first); /* appended */
    assert_int_equal(each(NULL), 1);
    assert_int_equal(start("host", NULL, ids[0], 200, &third), 199);
    assert_int_equal(third, 0);
    assert_int_equal(start("quad2x2", NULL, ids[0], 70, NULL), 69); /* a part of it */
    uint32_t mixed[N_CTX];
    memcpy(mixed, ids[0], sizeof mixed);
    mixed[100] = (mixed[100] + 1) % VOCAB;
    assert_int_equal(start("host", NULL, mixed, 180, &third), 100);
    assert_true(third > 0);
    assert_int_equal(each(NULL), 2); /* another sequence: another file */
    assert_int_equal(start("host", NULL, mixed, 180, NULL), 179);
    assert_int_equal(start("host", NULL, ids[0], 63, &third), 0); /* less than a page */
    assert_int_equal(each(NULL), 2);
}

static void a_salt_keeps_tenants_apart(void **state) {
    uint64_t written;
    struct rig r;
    char own[400];
    uint32_t n;
    (void)state;
    start("host", "one", ids[0], 150, &written);
    assert_int_equal(start("host", "two", ids[0], 150, NULL), 0);
    assert_int_equal(start("host", NULL, ids[0], 150, NULL), 0);
    assert_int_equal(start("host", "one", ids[0], 150, NULL), 149);
    /* nor does a name help: what the file holds is of that salt */
    assert_int_equal(each(remember), 1);
    memcpy(own, last, sizeof own);
    open_rig(&r, "host", 0);
    assert_int_not_equal(tw_session_restore(r.session, own, &n, &r.err), 0);
    use(&r, "two", ids[1], 100, &written);
    assert_int_equal(each(NULL), 2);
    each(remember);
    char two[400];
    memcpy(two, last, sizeof two);
    if (strcmp(two, own) == 0) {
        DIR *d = opendir(folder);
        assert_non_null(d);
        for (const struct dirent *f; (f = readdir(d));) {
            if (f->d_name[0] != '.' && !strstr(own, f->d_name)) {
                snprintf(two, sizeof two, "%s/%s", folder, f->d_name);
            }
        }
        closedir(d);
    }
    rig_close(&r);
    assert_int_equal(rename(own, two), 0); /* under the other tenant's name */
    assert_int_equal(start("host", "two", ids[0], 150, NULL), 0);
    assert_int_equal(start("host", "two", ids[1], 100, NULL), 0);
}

static void flip(const char *path, off_t at) {
    char byte = 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 0x40;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* Whatever is in the folder, a prompt gets its bits. */
static void bad_files_do_no_harm(void **state) {
    uint64_t written, size;
    struct stat st;
    (void)state;
    for (uint32_t i = 0; i < 14; i += TEST_ASAN && i > 4 ? 4 : 1) {
        clean(NULL);
        start("host", NULL, ids[0], 150, &written);
        assert_int_equal(each(remember), 1);
        assert_int_equal(stat(last, &st), 0);
        size = (uint64_t)st.st_size;
        switch (i) {
        case 0:
            assert_int_equal(truncate(last, (off_t)size / 2), 0);
            break;
        case 1:
            assert_int_equal(truncate(last, 0), 0);
            break;
        case 2:
            assert_int_equal(chmod(last, 0666), 0); /* anybody could have written it */
            break;
        case 3:
            unlink(last);
            assert_int_equal(symlink("/etc/passwd", last), 0);
            break;
        case 4:
            unlink(last);
            assert_int_equal(mkfifo(last, 0600), 0);
            break;
        default:
            flip(last, (off_t)(size * (i - 4) / 10));
        }
        uint32_t reused = start("host", NULL, ids[0], 150, NULL);
        assert_int_equal(reused, 0);
        if (i == 3) {
            assert_int_equal(lstat(last, &st), 0);
            assert_true(S_ISLNK(st.st_mode)); /* not followed, not removed */
        }
    }
    /* of another user: the folder is not used, and none is written into a link */
    assert_int_equal(chmod(folder, 0777), 0);
    struct rig r;
    struct tw_deploy_options o = {.size = sizeof o, .prefix_folder = folder};
    tw_deployment *d = NULL;
    rig_open(&r, "host", 1, NULL);
    assert_int_equal(tw_deploy_with(r.device, r.decoder, &o, &d, &r.err), TW_E_IO);
    assert_int_equal(chmod(folder, 0700), 0);
    o.prefix_folder = "/tmp/tw-there-is-none/prefix";
    assert_int_equal(tw_deploy_with(r.device, r.decoder, &o, &d, &r.err), TW_E_IO);
    rig_close(&r);
}

static uint64_t total;

static void add_size(const char *path) {
    struct stat st;
    total += lstat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static void make_old(const char *path) {
    const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
}

static void the_oldest_make_room(void **state) {
    struct rig r;
    uint64_t written, page, budget;
    (void)state;
    open_rig(&r, "host", 0);
    page = r.deployment->pool.page_bytes;
    rig_close(&r);
    budget = 7 * page;
    open_rig(&r, "host", budget);
    use(&r, NULL, ids[0], 150, &written);
    each(make_old);
    use(&r, NULL, ids[1], 150, &written);
    assert_int_equal(each(NULL), 2);
    assert_int_equal(use(&r, NULL, ids[2], 150, &written), 0);
    assert_int_equal(each(NULL), 2);
    total = 0;
    each(add_size);
    assert_in_range(total, 1, budget);
    rig_close(&r);
    assert_int_equal(start("host", NULL, ids[0], 150, NULL), 0);
    assert_int_equal(start("host", NULL, ids[1], 150, NULL), 149);
    assert_int_equal(start("host", NULL, ids[2], 150, NULL), 149);
    /* more than the budget: nothing is written, nothing removed */
    open_rig(&r, "host", 2 * page);
    use(&r, NULL, ids[3], 150, &written);
    assert_int_equal(written, 0);
    assert_int_equal(each(NULL), 2);
    rig_close(&r);
}

/* ---- other processes ---- */

/* Keeps growing sequences until it is killed, or `rounds` times. */
static void keep_writing(uint32_t which, uint32_t rounds) {
    struct rig r;
    uint64_t written;
    open_rig(&r, "host", 0);
    for (uint32_t i = 0; i < rounds; i++) {
        tw_session *s = create(&r, NULL);
        uint32_t n = 64 + i * 37 % 200, mixed[N_CTX];
        memcpy(mixed, ids[which], sizeof mixed);
        mixed[i % 5 * 60] = i % 7;
        if (tw_session_feed_prompt(s, mixed, n, NULL, &r.err)) {
            _exit(3);
        }
        (void)tw_session_keep_prefix(s, &written, &r.err); /* the other may hold a lock */
        tw_session_destroy(s);
    }
    rig_close(&r);
}

static pid_t begin(uint32_t which, uint32_t rounds) {
    pid_t child = fork();
    if (child == 0) {
        keep_writing(which, rounds);
        _exit(0);
    }
    assert_true(child > 0);
    return child;
}

static void two_processes_share_a_folder(void **state) {
    int a_status = 1, b_status = 1;
    uint64_t written;
    (void)state;
    model_bundle("host"); /* before there are two */
    pid_t a = begin(0, TEST_ASAN ? 5 : 15), b = begin(0, TEST_ASAN ? 5 : 15);
    assert_int_equal(waitpid(a, &a_status, 0), a);
    assert_int_equal(waitpid(b, &b_status, 0), b);
    assert_int_equal(a_status, 0);
    assert_int_equal(b_status, 0);
    start("host", NULL, ids[0], 250, &written); /* compares the bits */
    assert_true(start("host", NULL, ids[0], 250, NULL) >= 249);
}

struct keeper {
    tw_session *s;
    pthread_barrier_t *begin;
    int code;
};

static void *keep(void *ctx) {
    struct keeper *k = ctx;
    tw_error err;
    pthread_barrier_wait(k->begin);
    k->code = tw_session_keep_prefix(k->s, NULL, &err);
    return NULL;
}

/* Neither is in the other's way when both write the same file anew. */
static void two_threads_keep_the_same(void **state) {
    struct rig r;
    pthread_barrier_t begin;
    struct keeper k[2];
    pthread_t thread[2];
    (void)state;
    open_rig(&r, "host", 0);
    pthread_barrier_init(&begin, NULL, 2);
    for (uint32_t i = 0; i < 2; i++) {
        k[i] = (struct keeper){create(&r, NULL), &begin, 0};
        assert_int_equal(tw_session_feed_prompt(k[i].s, ids[0], 150, NULL, &r.err), 0);
    }
    for (uint32_t round = 0; round < (TEST_ASAN ? 100 : 300); round++) {
        each(drop);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(pthread_create(&thread[i], NULL, keep, &k[i]), 0);
        }
        for (uint32_t i = 0; i < 2; i++) {
            pthread_join(thread[i], NULL);
            assert_int_equal(k[i].code, 0);
        }
    }
    pthread_barrier_destroy(&begin);
    tw_session_destroy(k[0].s);
    tw_session_destroy(k[1].s);
    rig_close(&r);
}

static void a_process_that_is_killed_does_no_harm(void **state) {
    (void)state;
    model_bundle("host");
    for (uint32_t i = 0; i < (TEST_ASAN ? 2 : 5); i++) {
        int status = 0;
        pid_t child = begin(1, 1000000);
        usleep(20000 + i * 12000);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        start("host", NULL, ids[1], 200, NULL); /* compares the bits */
    }
    uint64_t written;
    start("host", NULL, ids[1], 280, &written);
    assert_int_equal(start("host", NULL, ids[1], 280, NULL), 279);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(it_outlasts_a_deployment, clean),
        cmocka_unit_test_teardown(a_salt_keeps_tenants_apart, clean),
        cmocka_unit_test_teardown(bad_files_do_no_harm, clean),
        cmocka_unit_test_teardown(the_oldest_make_room, clean),
        cmocka_unit_test_teardown(two_processes_share_a_folder, clean),
        cmocka_unit_test_teardown(two_threads_keep_the_same, clean),
        cmocka_unit_test_teardown(a_process_that_is_killed_does_no_harm, clean),
    };
    return cmocka_run_group_tests_name("prefix files", tests, set_up, tear_down);
}
