/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the compiler as a whole: a folder per test, models on disk, and checks of the
 * output.
 */
#ifndef TW_TESTS_COMPILER_COMPILE_KIT_H
#define TW_TESTS_COMPILER_COMPILE_KIT_H

#include "loader/bundle/loader.h"
#include "tests/support/bundle_fixture.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"
#include "tilewright/compile.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#define SHIPPED "tests/data/fairytale-1.7m-Q8_0.gguf"

struct compile_world {
    char *folder;
    char model[4200], out[4200], target[4200]; /* paths in the folder */
    struct tw_compile_options options;
    struct tw_compile_report report;
    tw_error err;
};

static inline int compile_setup(void **state) {
    struct compile_world *w = calloc(1, sizeof *w);
    if (!w) {
        return -1;
    }
    w->folder = bundle_fixture_folder();
    snprintf(w->model, sizeof w->model, "%s/m.gguf", w->folder);
    snprintf(w->out, sizeof w->out, "%s/a.twb", w->folder);
    snprintf(w->target, sizeof w->target, "%s/t.json", w->folder);
    w->options.size = sizeof w->options;
    w->options.target = "sim4x4";
    *state = w;
    return 0;
}

static inline int compile_teardown(void **state) {
    struct compile_world *w = *state;
    bundle_fixture_remove(w->folder);
    free(w);
    return 0;
}

static inline int compile_to(struct compile_world *w, const char *model, const char *out) {
    memset(&w->err, 0, sizeof w->err);
    w->report.size = sizeof w->report;
    return tw_compile_file(model, out, &w->options, &w->report, &w->err);
}

static inline void must_compile(struct compile_world *w, const char *model, const char *out) {
    if (compile_to(w, model, out)) {
        fail_msg("%s: %s", model, w->err.message);
    }
}

static inline void expect_error(struct compile_world *w, const char *model, const char *out,
                                int code, const char *part) {
    int rc = compile_to(w, model, out);
    if (rc != code || w->err.code != code || !strstr(w->err.message, part)) {
        fail_msg("code %d, message \"%s\", expected %d and \"%s\"", rc, w->err.message, code, part);
    }
}

/* Counts the files in the folder, whatever their names. */
static inline uint32_t files_in(const struct compile_world *w) {
    DIR *d = opendir(w->folder);
    uint32_t n = 0;
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

static inline void must_be_equal_files(const char *a, const char *b) {
    size_t n, m;
    uint8_t *x = bundle_fixture_read(a, &n), *y = bundle_fixture_read(b, &m);
    assert_non_null(x);
    assert_non_null(y);
    assert_int_equal(n, m);
    assert_true(memcmp(x, y, n) == 0);
    free(x);
    free(y);
}

/* Writes a target like sim4x4 with a different shape and memory and additional keys, and makes it
 * the target. */
static inline void use_target_text(struct compile_world *w, uint32_t chips, uint32_t width,
                                   uint32_t height, uint64_t sram_bytes, const char *more) {
    char text[600];
    int n = snprintf(text, sizeof text,
                     "{\"name\":\"t\",\"chips\":%u,\"width\":%u,\"height\":%u,\"sram_bytes\":%llu,"
                     "\"banks\":2,\"clock_hz\":1e9,"
                     "\"dram_bytes_per_cycle\":64,\"site_load_bytes_per_cycle\":16,\"fma_per_"
                     "cycle\":64,\"int8_mac_per_cycle\":256,"
                     "\"vector_per_cycle\":16,\"link_bytes_per_cycle\":32,\"sync_cycles\":50,"
                     "\"call_cycles\":20%s}",
                     chips, width, height, (unsigned long long)sram_bytes, more);
    assert_int_equal(bundle_fixture_save(w->target, (const uint8_t *)text, (size_t)n), 0);
    w->options.target = w->target;
}

static inline void use_target(struct compile_world *w, uint32_t width, uint32_t height,
                              uint64_t sram_bytes) {
    use_target_text(w, 1, width, height, sram_bytes, "");
}

/* Uses a target of `chips` chips of 3 x 2 sites. */
static inline void use_chips(struct compile_world *w, uint32_t chips, const char *more) {
    use_target_text(w, chips, 3, 2, 1 << 20, more);
}

/* Returns false if the file system cannot hold a file of that size. */
static inline bool save_model(const struct compile_world *w, struct random_shape shape) {
    struct random_model m;
    assert_true(random_model_init(&m, &shape));
    bool ok = random_model_save(&m, w->model);
    random_model_finish(&m);
    return ok;
}

/* Checks that the bundle passes every check of the loader. */
static inline void must_open(const char *path, struct tw_bundle *bundle) {
    tw_error err = {0};
    if (tw_bundle_open(path, TW_BUNDLE_CHECK_HASH, bundle, &err)) {
        fail_msg("%s", err.message);
    }
}

#endif
