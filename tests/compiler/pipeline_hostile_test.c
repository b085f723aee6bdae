/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with valid headers and absurd sizes, targets at the limits of their ranges, and little
 * memory: each case ends within seconds in a bundle or a one-line error, never in an abort. The
 * files have holes where the weights would be.
 */
#include "loader/base/clock.h"
#include "tests/compiler/compile_kit.h"
#include "tests/support/test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* seconds, for a busy machine; alone, no case takes more than two */
#define LIMIT_S (TEST_ASAN ? 900.0 : 300.0)

static const struct random_shape plain = {.dim = 32,
                                          .hidden = 32,
                                          .n_layers = 1,
                                          .n_heads = 4,
                                          .n_kv_heads = 2,
                                          .head_dim = 8,
                                          .n_vocab = 64,
                                          .n_ctx = 512,
                                          .dtype = TW_DT_F16,
                                          .hollow = true};

/* Compiles a model; returns 0 or the error, whose form is checked, and so is the time. */
static int try_shape(struct compile_world *w, struct random_shape shape) {
    if (!save_model(w, shape)) {
        print_message("skipped: the file system cannot hold a file of that size\n");
        skip();
    }
    double start = tw_clock_s();
    int rc = compile_to(w, w->model, w->out);
    if (tw_clock_s() - start > LIMIT_S) {
        fail_msg("%s on %s took %.1f s", random_shape_text(&shape), w->options.target,
                 tw_clock_s() - start);
    }
    if (rc) {
        assert_int_equal(w->err.code, rc);
        assert_true(strlen(w->err.message) > 20 && !strchr(w->err.message, '\n'));
        assert_int_not_equal(rc, TW_E_INTERNAL);
        assert_int_not_equal(rc, TW_E_VERIFY);
        assert_true(access(w->out, F_OK) != 0);
    } else {
        struct tw_bundle b;
        must_open(w->out, &b);
        tw_bundle_close(&b);
        assert_int_equal(unlink(w->out), 0);
    }
    return rc;
}

static void must_end_with(struct compile_world *w, struct random_shape shape, int code,
                          const char *part) {
    int rc = try_shape(w, shape);
    if (rc != code || (code && !strstr(w->err.message, part))) {
        fail_msg("%s on %s: %d \"%s\", expected %d \"%s\"", random_shape_text(&shape),
                 w->options.target, rc, w->err.message, code, part);
    }
}

/* ---- shapes ---- */

static void a_thousand_layers_compile(void **state) {
    struct compile_world *w = *state;
    struct random_shape s = plain;
    s.n_layers = TEST_ASAN ? 512 : 4096;
    must_end_with(w, s, 0, "");
    assert_true(w->report.state_bytes == (uint64_t)s.n_layers * 2 * 640 * 16 * 4);
}

static void sizes_of_one_compile(void **state) {
    struct compile_world *w = *state;
    static const char *const targets[] = {"host", "sim4x4", "grid8x8", "sim4x4x2", "quad2x2"};
    for (size_t i = 0; i < 5 * sizeof targets / sizeof *targets; i++) {
        struct random_shape s = plain;
        s.hidden = i % 5 == 0 || i % 5 == 4 ? 1 : 32;
        s.n_vocab = i % 5 == 1 || i % 5 == 4 ? 1 : 64;
        s.dim = i % 5 == 2 || i % 5 == 4 ? 1 : 32;
        s.n_heads = s.n_kv_heads = i % 5 >= 3 ? 1 : 4;
        s.head_dim = i % 5 >= 3 ? 2 : 8;
        w->options.target = targets[i / 5];
        must_end_with(w, s, 0, "");
    }
}

static void a_vocabulary_of_a_million_tokens_compiles(void **state) {
    struct compile_world *w = *state;
    struct random_shape s = plain;
    s.dim = 1;
    s.n_vocab = TEST_ASAN ? 1 << 17 : 1 << 20;
    must_end_with(w, s, 0, "");
}

static void many_heads_compile_where_they_fit(void **state) {
    struct compile_world *w = *state;
    struct random_shape s = plain;
    s.head_dim = 2;
    s.n_heads = s.n_kv_heads = TEST_ASAN ? 4096 : 16384;
    w->options.target = "host";
    w->options.host_sites = 2;
    w->options.n_ctx = 64;
    must_end_with(w, s, 0, "");
    s.n_kv_heads = 1;
    must_end_with(w, s, 0, "");
    s.n_heads = s.n_kv_heads = 65536;
    w->options.target = "sim4x4";
    must_end_with(w, s, TW_E_PLACEMENT, "target sim4x4");
}

static void wide_models_are_refused_with_the_bytes(void **state) {
    struct compile_world *w = *state;
    struct random_shape s = plain;
    s.dim = 1 << 20;
    must_end_with(w, s, TW_E_PLACEMENT, "bytes of SRAM");
    s = plain;
    s.hidden = 1 << 22;
    must_end_with(w, s, TW_E_PLACEMENT, "bytes of SRAM");
    s = plain;
    s.n_heads = s.n_kv_heads = 8192;
    s.head_dim = 512;
    must_end_with(w, s, TW_E_PLACEMENT, "bytes of SRAM");
    s.head_dim = 514;
    s.n_heads = s.n_kv_heads = 1;
    must_end_with(w, s, TW_E_UNSUPPORTED, "head dimension 514");
}

static void state_beyond_any_machine_is_refused_with_the_numbers(void **state) {
    struct compile_world *w = *state;
    struct random_shape s = plain;
    s.dim = 8;
    s.n_heads = s.n_kv_heads = 4096;
    s.head_dim = 512;
    s.n_layers = 64;
    w->options.n_ctx = 1 << 20;
    must_end_with(w, s, TW_E_RANGE, "1048576 tokens (64 layers x 4096 heads x 512 values");
}

/* ---- targets ---- */

static void targets_at_the_limits_of_their_ranges_compile_or_are_refused(void **state) {
    struct compile_world *w = *state;
    static const struct {
        uint32_t width, height;
        uint64_t sram_bytes;
        int code;
    } cases[] = {{1, 1, 16384, TW_E_PLACEMENT},         {1, 1, 131072, 0},
                 {1, 1, (uint64_t)1 << 32, 0},          {TEST_ASAN ? 512 : 1472, 1, 131072, 0},
                 {1, TEST_ASAN ? 128 : 512, 131072, 0}, {TEST_ASAN ? 4 : 16, 32, 1 << 20, 0},
                 {64, 64, 16384, TW_E_PLACEMENT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        use_target(w, cases[i].width, cases[i].height, cases[i].sram_bytes);
        struct random_shape s = plain;
        s.dim = cases[i].code ? 1024 : s.dim;
        must_end_with(w, s, cases[i].code, "bytes of SRAM");
        /* attempts that failed on the way leave no message */
        assert_true(cases[i].code || w->err.message[0] == '\0');
    }
}

static void chips_without_links_are_refused_by_name(void **state) {
    struct compile_world *w = *state;
    use_chips(w, 3, "");
    must_end_with(w, plain, TW_E_UNSUPPORTED,
                  "compose: no_chip_links: program embed spans the 3 chips of target t");
    use_chips(w, 1, "");
    must_end_with(w, plain, 0, "");
}

static void any_number_of_chips_compiles(void **state) {
    struct compile_world *w = *state;
    static const uint32_t chips[] = {2, 3, 5, 7, TEST_ASAN ? 8 : 32};
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        use_chips(w, chips[i], ",\"chip_link_bytes_per_cycle\":4,\"chip_link_cycles\":100");
        must_end_with(w, plain, 0, "");
        assert_int_equal(w->report.n_sites, 6 * chips[i]);
    }
}

/* ---- memory ---- */

/* Compiles in a child process with a limited address space; returns its exit status, or minus the
 * signal that killed it. */
static int in_little_memory(struct compile_world *w, const char *model, uint64_t bytes, int code,
                            const char *part) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {bytes, bytes};
        if (setrlimit(RLIMIT_AS, &limit) != 0) {
            _exit(77);
        }
        int rc = compile_to(w, model, w->out);
        int good = rc == code && (code == 0 || strstr(w->err.message, part));
        if (!good) {
            fprintf(stderr, "# %d %s\n", rc, w->err.message);
        }
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void skip_where_sanitized(void) {
    if (TEST_ASAN) {
        print_message("skipped: a sanitizer needs more addresses than the limit leaves\n");
        skip();
    }
}

static void the_shipped_model_compiles_in_half_a_gigabyte_of_addresses(void **state) {
    struct compile_world *w = *state;
    static const char *const targets[] = {"host", "sim4x4", "grid8x8", "sim4x4x2", "quad2x2"};
    skip_where_sanitized();
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        w->options.target = targets[i];
        assert_int_equal(in_little_memory(w, SHIPPED, (uint64_t)512 << 20, 0, ""), 0);
    }
}

static void a_model_that_needs_too_much_memory_is_refused_without_an_abort(void **state) {
    struct compile_world *w = *state;
    struct random_shape s = plain;
    skip_where_sanitized();
    s.head_dim = 2;
    s.n_heads = s.n_kv_heads = 65536;
    assert_true(save_model(w, s));
    w->options.target = "host";
    w->options.host_sites = 2;
    assert_int_equal(
        in_little_memory(w, w->model, (uint64_t)512 << 20, TW_E_NOMEM, "65536 key heads"), 0);
    assert_int_equal(in_little_memory(w, SHIPPED, (uint64_t)50 << 20, TW_E_NOMEM, "ulimit -v"), 0);
    assert_int_equal(files_in(w), 1);
}

#define world_test(f) cmocka_unit_test_setup_teardown(f, compile_setup, compile_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        world_test(a_thousand_layers_compile),
        world_test(sizes_of_one_compile),
        world_test(a_vocabulary_of_a_million_tokens_compiles),
        world_test(many_heads_compile_where_they_fit),
        world_test(wide_models_are_refused_with_the_bytes),
        world_test(state_beyond_any_machine_is_refused_with_the_numbers),
        world_test(targets_at_the_limits_of_their_ranges_compile_or_are_refused),
        world_test(chips_without_links_are_refused_by_name),
        world_test(any_number_of_chips_compiles),
        world_test(the_shipped_model_compiles_in_half_a_gigabyte_of_addresses),
        world_test(a_model_that_needs_too_much_memory_is_refused_without_an_abort),
    };
    return cmocka_run_group_tests_name("compile hostile", tests, NULL, NULL);
}
