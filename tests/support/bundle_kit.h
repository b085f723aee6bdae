/* SPDX-License-Identifier: Apache-2.0
 *
 * The set-up that the tests of bundles share: a fixture, a folder, and writing and opening a
 * bundle.
 */
#ifndef TW_TESTS_SUPPORT_BUNDLE_KIT_H
#define TW_TESTS_SUPPORT_BUNDLE_KIT_H

#include "loader/bundle/loader.h"
#include "tests/support/bundle_fixture.h"
#include "tests/support/test.h"

struct world {
    struct bundle_fixture f;
    char *folder;
    char path[4200];
    tw_error err;
};

static inline int setup(void **state) {
    struct world *w = calloc(1, sizeof *w);
    if (!w) {
        return -1;
    }
    bundle_fixture_init(&w->f);
    w->folder = bundle_fixture_folder();
    snprintf(w->path, sizeof w->path, "%s/a.twb", w->folder);
    *state = w;
    return 0;
}

static inline int teardown(void **state) {
    struct world *w = *state;
    bundle_fixture_remove(w->folder);
    free(w);
    return 0;
}

#define assert_ok(w, call)                                        \
    do {                                                          \
        int rc_ = (call);                                         \
        if (rc_ != 0) {                                           \
            fail_msg("%s: %d: %s", #call, rc_, (w)->err.message); \
        }                                                         \
    } while (0)

static inline void write_bundle(struct world *w) {
    assert_ok(w, tw_bundle_write(w->path, &w->f.spec, &w->err));
}

static inline int open_bundle(struct world *w, unsigned flags, struct tw_bundle *b) {
    return tw_bundle_open(w->path, flags | TW_BUNDLE_NO_RULES, b, &w->err);
}

/* Files in the folder. */
static inline int count_files(const struct world *w) {
    char command[4300];
    int n = -1;
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", w->folder);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%d", &n), 1);
    pclose(pipe);
    return n;
}

#endif
