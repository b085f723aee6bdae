/* SPDX-License-Identifier: Apache-2.0
 *
 * The token path does not allocate and makes no system call other than to wake threads: calls of
 * the allocator are counted, and the kernel kills the process at any other system call.
 */
#include "tests/driver/session/batch_kit.h"
#include "tests/support/model_bundle.h"
#include "tests/support/test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_TOKENS 32u

#if !TEST_ASAN && !TEST_TSAN
static _Atomic uint64_t allocations;
#endif

#if !TEST_ASAN && !TEST_TSAN && defined(__GLIBC__)
#define COUNTED 1
/* glibc's own names of the functions that these replace. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *p);

void *malloc(size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(p, size);
}
void *aligned_alloc(size_t align, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(align, size);
}
void free(void *p) {
    atomic_fetch_add(&allocations, p != NULL);
    __libc_free(p);
}
#endif

#if !TEST_ASAN && !TEST_TSAN
/* The status page of this process: everything below is published on it. */
static bool find_own(void *ctx, const struct tw_status_info *info) {
    struct tw_status_info *out = ctx;
    if (info->pid == (uint32_t)getpid()) {
        *out = *info;
    }
    return out->pid == 0;
}

static struct tw_status_info own_page(void) {
    struct tw_status_info info = {.pid = 0};
    tw_status_list(find_own, &info, NULL);
    return info;
}

static uint32_t token(uint32_t i) {
    return (i * 7919 + 1) % 1000;
}

static int feed_tokens(struct rig *r) {
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        uint32_t id = token(i);
        int code = tw_session_feed(r->session, &id, 1, NULL);
        if (code) {
            return code;
        }
    }
    return 0;
}

static int feed_prompt(struct rig *r) {
    uint32_t ids[N_TOKENS];
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        ids[i] = token(i);
    }
    return tw_session_feed(r->session, ids, N_TOKENS, NULL);
}

static int run_greedy(struct rig *r) {
    struct tw_greedy_options o = {.size = sizeof o, .n = N_TOKENS};
    enum tw_stop_reason reason;
    uint32_t ids[N_TOKENS], n;
    return tw_session_run_greedy(r->session, token(0), &o, ids, &n, &reason, NULL);
}

/* Sessions that share steps. */
struct company {
    struct kit kit;
    tw_session *session[TW_BATCH_MAX];
    struct tw_step_entry entry[TW_BATCH_MAX];
};

static int step_company(struct company *c) {
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        for (uint32_t k = 0; k < TW_BATCH_MAX; k++) {
            c->entry[k] = kit_entry(c->session[k], k, 1, NULL);
        }
        int code = tw_step(c->entry, TW_BATCH_MAX, NULL);
        if (code) {
            return code;
        }
    }
    return 0;
}

/* With the first steps made, which load the program. */
static void gather_company(struct company *c, uint32_t n_threads) {
    kit_open(&c->kit, "emu", "host", n_threads, 0);
    for (uint32_t k = 0; k < TW_BATCH_MAX; k++) {
        kit_tokens(k);
        c->session[k] = kit_create(&c->kit, NULL);
    }
    if (step_company(c)) {
        abort();
    }
}

#endif

/* ---- allocations ---- */

#ifdef COUNTED
static void check_allocations(uint32_t n_threads, enum tw_mode mode) {
    struct tw_session_options o = {.size = sizeof o, .mode = mode};
    struct rig r;
    rig_open(&r, "host", n_threads, &o);
    assert_int_equal(feed_prompt(&r), 0); /* starts the threads */
    uint64_t before = atomic_load(&allocations);
    assert_true(before > 0);
    assert_int_equal(feed_tokens(&r), 0);
    assert_int_equal(feed_prompt(&r), 0);
    assert_int_equal(run_greedy(&r), 0);
    assert_int_equal(atomic_load(&allocations), before);
    struct tw_status_info page = own_page();
    assert_int_equal(page.tokens, 2 * N_TOKENS);
    assert_int_equal(page.prompt_tokens, 2 * N_TOKENS);
    rig_close(&r);
}

struct watch {
    uint64_t first, last;
    uint32_t n;
};

static int on_token(void *ctx, uint32_t id, const float *logits) {
    struct watch *w = ctx;
    (void)id;
    (void)logits;
    w->last = atomic_load(&allocations);
    w->first = w->n++ ? w->first : w->last;
    return 0;
}

static int on_text(void *ctx, const char *text, size_t n) {
    (void)ctx;
    (void)text;
    (void)n;
    return 0;
}
#endif

static void feeding_allocates_nothing(void **state) {
    (void)state;
#ifdef COUNTED
    check_allocations(1, TW_MODE_FAST);
    check_allocations(2, TW_MODE_FAST);
    check_allocations(1, TW_MODE_STRICT);
#else
    print_message("# the sanitizer replaces the allocator\n");
    skip();
#endif
}

static void generating_allocates_nothing_from_token_to_token(void **state) {
    (void)state;
#ifdef COUNTED
    struct rig r;
    struct watch w = {0};
    rig_open(&r, "host", 2, NULL);
    struct tw_generate_options o = {.size = sizeof o,
                                    .n_predict = N_TOKENS,
                                    .flags = TW_GENERATE_IGNORE_EOS,
                                    .temperature = 0.8f,
                                    .top_k = 40,
                                    .top_p = 0.95f,
                                    .min_p = 0.05f,
                                    .on_token = on_token,
                                    .on_text = on_text,
                                    .ctx = &w};
    const uint32_t bos = 1;
    assert_int_equal(tw_generate(r.session, &bos, 1, &o, NULL, &r.err), 0);
    assert_int_equal(w.n, N_TOKENS);
    assert_int_equal(w.first, w.last);
    rig_close(&r);
#else
    skip();
#endif
}

static void steps_of_16_sessions_allocate_nothing(void **state) {
    (void)state;
#ifdef COUNTED
    struct company c;
    gather_company(&c, 2);
    uint64_t before = atomic_load(&allocations);
    assert_int_equal(step_company(&c), 0);
    assert_int_equal(atomic_load(&allocations), before);
    for (uint32_t k = 0; k < TW_BATCH_MAX; k++) {
        tw_session_destroy(c.session[k]);
    }
    kit_close(&c.kit);
#else
    skip();
#endif
}

/* Nor when the prefix cache has all pages, and gives back those that tokens need. */
static void pages_of_the_cache_are_given_back_without_allocating(void **state) {
    (void)state;
#ifdef COUNTED
    enum { PAGES = 4, N = PAGES * TW_PAGE_POSITIONS };
    struct tw_deploy_options d = {.size = sizeof d, .state_positions = N};
    struct tw_session_options o = {.size = sizeof o, .prefix_cache = 1};
    uint32_t ids[N];
    tw_session *other = NULL;
    struct rig r;
    rig_open(&r, "host", 1, NULL);
    tw_session_destroy(r.session);
    tw_deployment_destroy(r.deployment);
    assert_int_equal(tw_deploy_with(r.device, r.decoder, &d, &r.deployment, &r.err), 0);
    assert_int_equal(tw_session_create(r.deployment, NULL, &r.session, &r.err), 0);
    assert_int_equal(tw_session_create(r.deployment, &o, &other, &r.err), 0);
    assert_int_equal(feed_prompt(&r), 0);
    assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
    for (uint32_t i = 0; i < N; i++) {
        ids[i] = token(i);
    }
    assert_int_equal(tw_session_feed_prompt(other, ids, N, NULL, &r.err), 0);
    tw_session_destroy(other);
    assert_int_equal(own_page().pages_cached, PAGES);
    uint64_t before = atomic_load(&allocations);
    for (uint32_t i = 0; i < N / N_TOKENS; i++) {
        assert_int_equal(feed_tokens(&r), 0);
    }
    assert_int_equal(atomic_load(&allocations), before);
    assert_int_equal(own_page().pages_cached, 0);
    rig_close(&r);
#else
    skip();
#endif
}

/* ---- system calls ---- */

#if !TEST_ASAN && !TEST_TSAN && defined(__x86_64__)
static const char *syscall_text(int number) {
    static char text[64];
    snprintf(text, sizeof text, "system call %d", number);
    return text;
}

/* In the child: the forbidden call's number becomes the exit status, below the ones used
 * otherwise. */
static void on_forbidden(int signal_number, siginfo_t *info, void *context) {
    (void)signal_number;
    (void)context;
    _exit(info->si_syscall < 200 ? info->si_syscall + 1 : 250);
}

#define ALLOW(number)                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(number), 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Limits every thread of this process to waking and waiting for others, yielding, and exiting. */
static bool forbid(bool threads_may_wake) {
    const uint32_t wake = threads_may_wake ? SYS_futex : SYS_exit_group,
                   yield = threads_may_wake ? SYS_sched_yield : wake;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_exit_group), ALLOW(wake), ALLOW(yield),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)};
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    action.sa_sigaction = on_forbidden;
    return sigaction(SIGSYS, &action, NULL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

enum { CHILD_OK = 0, CHILD_NO_SECCOMP = 251, CHILD_FAILED = 252 };

static void child(uint32_t n_threads, enum tw_mode mode, bool call_something) {
    struct tw_session_options o = {.size = sizeof o, .mode = mode};
    struct rig r;
    rig_open(&r, "host", n_threads, &o);
    if (feed_prompt(&r) || own_page().prompt_tokens != N_TOKENS) {
        _exit(CHILD_FAILED);
    }
    if (!forbid(n_threads > 1)) {
        _exit(CHILD_NO_SECCOMP);
    }
    if (call_something) {
        getppid();
    }
    _exit(feed_tokens(&r) || feed_prompt(&r) || run_greedy(&r) ? CHILD_FAILED : CHILD_OK);
}

static void child_with_16_sessions(void) {
    struct company c;
    gather_company(&c, 2);
    if (!forbid(true)) {
        _exit(CHILD_NO_SECCOMP);
    }
    _exit(step_company(&c) ? CHILD_FAILED : CHILD_OK);
}

enum what { FEED, CALL_SOMETHING, COMPANY };

/* The child's exit status; skips the test where there is no seccomp. */
static int run_child(uint32_t n_threads, enum tw_mode mode, enum what what) {
    model_bundle("host");
    model_bundle_batch("host");
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0 && what == COMPANY) {
        child_with_16_sessions();
    }
    if (pid == 0) {
        child(n_threads, mode, what == CALL_SOMETHING);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CHILD_NO_SECCOMP) {
        print_message("# no system call filter can be set here\n");
        skip();
    }
    assert_int_not_equal(WEXITSTATUS(status), CHILD_FAILED);
    return WEXITSTATUS(status);
}

static void check_calls(uint32_t n_threads, enum tw_mode mode, enum what what) {
    int status = run_child(n_threads, mode, what);
    if (status) {
        fail_msg("%s on the token path", syscall_text(status - 1));
    }
}

static void one_thread_makes_no_system_call(void **state) {
    (void)state;
    check_calls(1, TW_MODE_FAST, FEED);
}

static void two_threads_only_wake_and_yield(void **state) {
    (void)state;
    check_calls(2, TW_MODE_FAST, FEED);
}

static void strict_mode_makes_no_system_call(void **state) {
    (void)state;
    check_calls(1, TW_MODE_STRICT, FEED);
}

static void steps_of_16_sessions_only_wake_and_yield(void **state) {
    (void)state;
    check_calls(2, TW_MODE_FAST, COMPANY);
}

static void a_system_call_would_be_noticed(void **state) {
    (void)state;
    assert_int_equal(run_child(1, TW_MODE_FAST, CALL_SOMETHING), SYS_getppid + 1);
}
#else
static void one_thread_makes_no_system_call(void **state) {
    (void)state;
    print_message(
        "# sanitizers make system calls of their own, and the filter is written for x86-64\n");
    skip();
}
#define two_threads_only_wake_and_yield one_thread_makes_no_system_call
#define strict_mode_makes_no_system_call one_thread_makes_no_system_call
#define steps_of_16_sessions_only_wake_and_yield one_thread_makes_no_system_call
#define a_system_call_would_be_noticed one_thread_makes_no_system_call
#endif

static int cleanup(void **state) {
    (void)state;
    model_bundle_cleanup();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(feeding_allocates_nothing),
        cmocka_unit_test(generating_allocates_nothing_from_token_to_token),
        cmocka_unit_test(steps_of_16_sessions_allocate_nothing),
        cmocka_unit_test(pages_of_the_cache_are_given_back_without_allocating),
        cmocka_unit_test(one_thread_makes_no_system_call),
        cmocka_unit_test(two_threads_only_wake_and_yield),
        cmocka_unit_test(strict_mode_makes_no_system_call),
        cmocka_unit_test(steps_of_16_sessions_only_wake_and_yield),
        cmocka_unit_test(a_system_call_would_be_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, cleanup);
}
