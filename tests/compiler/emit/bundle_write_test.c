/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing bundles: equal bytes, streamed weights, extreme sizes, and no file left behind when it
 * fails.
 */
#include "tests/support/bundle_kit.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void the_same_spec_gives_the_same_bytes(void **state) {
    struct world *w = *state;
    size_t size[2] = {0, 0};
    uint8_t *bytes[2];
    for (int i = 0; i < 2; i++) {
        bundle_fixture_init(&w->f);
        write_bundle(w);
        bytes[i] = bundle_fixture_read(w->path, &size[i]);
        assert_non_null(bytes[i]);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
    free(bytes[0]);
    free(bytes[1]);
    assert_int_equal(count_files(w), 1);
}

static void weights_are_streamed_in_ordered_pieces_of_at_most_8_mib(void **state) {
    struct world *w = *state;
    struct tw_bundle b;
    w->f.symbols[1].bytes = (20u << 20) + 1028; /* bank 0, row 1 */
    w->f.symbols[3].bytes = (8u << 20) - 64;
    write_bundle(w);
    assert_int_equal(w->f.disorder, 0);
    assert_true(w->f.filled == w->f.symbols[1].bytes + 1100 + w->f.symbols[3].bytes);
    assert_ok(w, open_bundle(w, TW_BUNDLE_CHECK_HASH, &b));
    for (uint32_t i = 1; i < 4; i++) {
        const struct tw_symbol *s = &b.symbols[i];
        const uint8_t *at = b.segments[s->segment].bytes + s->offset;
        uint64_t wrong = 0;
        for (uint64_t k = 0; k < s->size; k++) {
            wrong += at[k] != bundle_fixture_byte(i, k);
        }
        assert_true(wrong == 0);
    }
    tw_bundle_close(&b);
}

static void a_bundle_without_weights_state_or_rows_is_a_bundle(void **state) {
    struct world *w = *state;
    struct tw_bundle b;
    w->f.spec.n_symbols = 0;
    w->f.spec.n_bind_rows = 0;
    for (uint32_t i = 0; i < FIXTURE_PROGRAMS; i++) {
        w->f.programs[i].n_tensors = 0;
    }
    write_bundle(w);
    assert_ok(w, open_bundle(w, TW_BUNDLE_CHECK_HASH, &b));
    assert_int_equal(b.n_symbols, 0);
    assert_true(b.n_bind_rows == 0 && b.segments[0].size == 0 && b.segments[3].size == 0);
    tw_bundle_close(&b);
    w->f.spec.note.n_banks = 0;
    write_bundle(w);
    assert_ok(w, open_bundle(w, TW_BUNDLE_CHECK_HASH, &b));
    assert_int_equal(b.n_segments, 2);
    tw_bundle_close(&b);
}

static void as_many_banks_as_allowed_fit_and_one_more_does_not(void **state) {
    struct world *w = *state;
    struct tw_bundle b;
    w->f.symbols[2].bank = TW_MAX_BANKS - 1;
    w->f.spec.note.n_banks = TW_MAX_BANKS;
    write_bundle(w);
    assert_ok(w, open_bundle(w, TW_BUNDLE_CHECK_HASH, &b));
    assert_int_equal(b.n_segments, TW_MAX_BANKS + 2);
    assert_int_equal(b.segments[TW_MAX_BANKS - 1].size, 1100);
    tw_bundle_close(&b);
    w->f.spec.note.n_banks = TW_MAX_BANKS + 1;
    assert_int_equal(tw_bundle_write(w->path, &w->f.spec, &w->err), TW_E_UNSUPPORTED);
}

/* ---- failures ---- */

static void a_failing_fill_leaves_the_old_file_and_no_other(void **state) {
    struct world *w = *state;
    size_t size = 0;
    assert_int_equal(bundle_fixture_save(w->path, (const uint8_t *)"old", 3), 0);
    for (uint64_t at = 0; at < 3148; at += 1000) {
        w->f.fail_at = at;
        w->f.filled = 0;
        assert_int_equal(tw_bundle_write(w->path, &w->f.spec, &w->err), TW_E_INTERRUPTED);
    }
    uint8_t *bytes = bundle_fixture_read(w->path, &size);
    assert_int_equal(size, 3);
    assert_memory_equal(bytes, "old", 3);
    free(bytes);
    assert_int_equal(count_files(w), 1);
}

/* Weights are written first, so small limits fail in them and limits near the end in the metadata
 * or the last bank. */
static void a_file_size_limit_is_no_space_and_leaves_no_file(void **state) {
    struct world *w = *state;
    struct rlimit old, tight;
    const rlim_t limits[] = {0, 100, 4096, 65536, 66000, 131072, 132000};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        tight = old;
        tight.rlim_cur = limits[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
        int rc = tw_bundle_write(w->path, &w->f.spec, &w->err);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(rc, TW_E_NOSPACE);
        assert_int_equal(count_files(w), 0);
    }
    signal(SIGXFSZ, SIG_DFL);
    write_bundle(w);
}

/* In a mount namespace of its own: exit status 0 passed, 77 no permission to mount, else failed. */
static int write_to_full_disk(struct world *w) {
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", w->folder, "tmpfs", 0, "size=64k") != 0) {
        return 77;
    }
    w->f.symbols[1].bytes = 1u << 20;
    int rc = tw_bundle_write(w->path, &w->f.spec, &w->err);
    return rc == TW_E_NOSPACE && count_files(w) == 0 ? 0 : 1;
}

static void a_full_disk_is_no_space_and_leaves_no_file(void **state) {
    struct world *w = *state;
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        _exit(write_to_full_disk(w));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("skipped: may not mount a tmpfs here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_device_is_not_replaced_by_a_bundle(void **state) {
    struct world *w = *state;
    struct stat st;
    assert_int_equal(tw_bundle_write("/dev/full", &w->f.spec, &w->err), TW_E_IO);
    assert_int_equal(stat("/dev/full", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(tw_bundle_write(w->folder, &w->f.spec, &w->err), TW_E_IO);
    snprintf(w->path, sizeof w->path, "%s/none/a.twb", w->folder);
    assert_int_equal(tw_bundle_write(w->path, &w->f.spec, &w->err), TW_E_IO);
    assert_int_equal(count_files(w), 0);
}

static void a_spec_that_contradicts_itself_is_refused_before_a_file_appears(void **state) {
    struct world *w = *state;
    for (int i = 0; i < 7; i++) {
        bundle_fixture_init(&w->f);
        switch (i) {
        case 0:
            w->f.rows[3] = FIXTURE_SYMBOLS;
            break;
        case 1:
            w->f.symbols[1].bank = 2;
            break;
        case 2:
            w->f.symbols[0].role = TW_ROLE_ACTIVATION;
            break;
        case 3:
            w->f.symbols[4].bytes = 0;
            break;
        case 4:
            w->f.programs[1].name = "a name of more than thirty-two bytes";
            break;
        case 5:
            w->f.tensors[2].init = TW_INIT_BLOB;
            break;
        default:
            w->f.spec.n_programs = 0;
            break;
        }
        assert_int_not_equal(tw_bundle_write(w->path, &w->f.spec, &w->err), 0);
        assert_int_equal(count_files(w), 0);
    }
}

/* What only the loader's rules find: a tensor with more bytes than its row's symbol, a symbol named
 * twice. */
static void what_the_loader_would_refuse_does_not_get_its_name(void **state) {
    struct world *w = *state;
    w->f.tensors[1].bytes = 1025;
    assert_int_equal(tw_bundle_write(w->path, &w->f.spec, &w->err), TW_E_RANGE);
    w->f.tensors[1].bytes = 1024;
    w->f.symbols[2].name = "weight.0";
    assert_int_equal(tw_bundle_write(w->path, &w->f.spec, &w->err), TW_E_FORMAT);
    assert_int_equal(count_files(w), 0);
}

static void a_stream_that_does_not_decode_is_not_written(void **state) {
    struct world *w = *state;
    w->f.words[1][4][0] = 63;
    assert_int_equal(tw_bundle_write(w->path, &w->f.spec, &w->err), TW_E_INTERNAL);
    assert_int_equal(count_files(w), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(the_same_spec_gives_the_same_bytes),
        T(weights_are_streamed_in_ordered_pieces_of_at_most_8_mib),
        T(a_bundle_without_weights_state_or_rows_is_a_bundle),
        T(as_many_banks_as_allowed_fit_and_one_more_does_not),
        T(a_failing_fill_leaves_the_old_file_and_no_other),
        T(a_file_size_limit_is_no_space_and_leaves_no_file),
        T(a_full_disk_is_no_space_and_leaves_no_file),
        T(a_device_is_not_replaced_by_a_bundle),
        T(a_spec_that_contradicts_itself_is_refused_before_a_file_appears),
        T(what_the_loader_would_refuse_does_not_get_its_name),
        T(a_stream_that_does_not_decode_is_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
