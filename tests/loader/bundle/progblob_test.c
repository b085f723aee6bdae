/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs as blobs: both forms (with and without streams) read back as written; an inconsistent
 * blob is refused.
 */
#include "tests/support/bundle_fixture.h"
#include "tests/support/test.h"
#include "tilewright/progblob.h"

#define MAX_STREAMS 16u

struct world {
    struct bundle_fixture f;
    uint8_t *blob;
    uint32_t size;
    struct tw_stream streams[MAX_STREAMS];
    struct tw_program out;
    const char *what;
};

static int setup(void **state) {
    struct world *w = calloc(1, sizeof *w);
    void *blob = NULL;
    if (!w) {
        return -1;
    }
    bundle_fixture_init(&w->f);
    w->size = tw_progblob_bytes(&w->f.programs[0], true);
    if (w->size == 0 || posix_memalign(&blob, 64, w->size) != 0) {
        return -1;
    }
    w->blob = blob;
    tw_progblob_write(&w->f.programs[0], true, w->blob);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    struct world *w = *state;
    free(w->blob);
    free(w);
    return 0;
}

static int open_blob(struct world *w, size_t size) {
    w->what = NULL;
    return tw_progblob_open(w->blob, size, NULL, 0, &w->out, w->streams, MAX_STREAMS, &w->what);
}

static void a_blob_with_streams_stands_alone(void **state) {
    struct world *w = *state;
    const struct tw_program *p = &w->f.programs[0];
    assert_int_equal(w->size % 8, 0);
    assert_int_equal(open_blob(w, w->size), 0);
    assert_string_equal(w->out.name, p->name);
    assert_int_equal(w->out.n_tensors, p->n_tensors);
    assert_memory_equal(w->out.tensors, p->tensors, p->n_tensors * sizeof *p->tensors);
    assert_memory_equal(w->out.stages, p->stages, p->n_stages * sizeof *p->stages);
    assert_string_equal(tw_program_string(&w->out, w->out.tensors[2].name), "cache");
    assert_int_equal(w->out.strings_bytes, p->strings_bytes);
    for (uint32_t i = 0; i < FIXTURE_STREAMS; i++) {
        assert_int_equal(w->streams[i].site, p->streams[i].site);
        assert_int_equal(w->streams[i].n_words, p->streams[i].n_words);
        assert_memory_equal(w->streams[i].words, p->streams[i].words, p->streams[i].n_words * 4);
    }
}

static void a_blob_without_streams_uses_the_string_table_it_is_given(void **state) {
    struct world *w = *state;
    const struct tw_program *p = &w->f.programs[1];
    uint32_t size = tw_progblob_bytes(p, false);
    assert_in_range(size, 1, w->size);
    tw_progblob_write(p, false, w->blob);
    assert_int_equal(
        tw_progblob_open(w->blob, size, p->strings, p->strings_bytes, &w->out, NULL, 0, &w->what),
        0);
    assert_string_equal(w->out.name, "prefill.4");
    assert_null(w->out.streams);
    assert_string_equal(tw_program_string(&w->out, w->out.tensors[3].name), "logits");
}

static void a_truncated_blob_is_refused_at_every_length(void **state) {
    struct world *w = *state;
    for (uint32_t size = 0; size < w->size; size++) {
        void *cut = NULL;
        assert_int_equal(posix_memalign(&cut, 8, size + !size), 0);
        memcpy(cut, w->blob, size);
        assert_int_equal(
            tw_progblob_open(cut, size, NULL, 0, &w->out, w->streams, MAX_STREAMS, &w->what),
            TW_E_TRUNCATED);
        free(cut);
    }
}

static volatile uint32_t sink;

/* Sets every 32-bit word of the blob to extreme values: the blob is refused, or opens and points
 * nowhere outside itself. */
static void an_inconsistent_blob_is_refused_or_points_inside_itself(void **state) {
    struct world *w = *state;
    struct tw_progblob_header h;
    memcpy(&h, w->blob, sizeof h);
    uint32_t words = w->size / 4, refused = 0, opened = 0;
    for (uint32_t at = 0; at < words; at++) {
        const uint32_t values[] = {0, 1, w->size, w->size + 1, 1u << 31, UINT32_MAX};
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            uint32_t old;
            memcpy(&old, w->blob + at * 4, 4);
            memcpy(w->blob + at * 4, &values[i], 4);
            if (open_blob(w, w->size) != 0) {
                assert_non_null(w->what);
                refused++;
            } else {
                uint32_t sum = w->out.n_tensors ? w->out.tensors[w->out.n_tensors - 1].rows : 0;
                for (uint32_t s = 0; s < w->out.n_sites * TW_ENGINE_COUNT; s++) {
                    sum +=
                        w->streams[s].n_words ? w->streams[s].words[w->streams[s].n_words - 1] : 0;
                }
                sink = sum;
                opened++;
            }
            memcpy(w->blob + at * 4, &old, 4);
        }
    }
    assert_true(refused > 100 && opened > 100);
}

static void too_many_streams_for_the_caller_are_refused(void **state) {
    struct world *w = *state;
    assert_int_equal(tw_progblob_open(w->blob, w->size, NULL, 0, &w->out, w->streams,
                                      FIXTURE_STREAMS - 1, &w->what),
                     TW_E_NOMEM);
    assert_int_equal(
        tw_progblob_open(w->blob, w->size, NULL, 0, &w->out, w->streams, FIXTURE_STREAMS, &w->what),
        0);
}

static void a_program_whose_name_is_too_long_has_no_blob(void **state) {
    struct world *w = *state;
    w->f.programs[0].name = "exactly-thirty-one-characters..";
    assert_int_not_equal(tw_progblob_bytes(&w->f.programs[0], true), 0);
    w->f.programs[0].name = "exactly-thirty-two-characters...";
    assert_int_equal(tw_progblob_bytes(&w->f.programs[0], true), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(a_blob_with_streams_stands_alone),
        T(a_blob_without_streams_uses_the_string_table_it_is_given),
        T(a_truncated_blob_is_refused_at_every_length),
        T(an_inconsistent_blob_is_refused_or_points_inside_itself),
        T(too_many_streams_for_the_caller_are_refused),
        T(a_program_whose_name_is_too_long_has_no_blob),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
