/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharing of op streams: which streams get one image, and which words become arguments.
 */
#include "compiler/emit/images.h"
#include "tests/support/bundle_kit.h"

#include <stdbool.h>

static void streams_of_equal_shape_share_an_image(void **state) {
    struct world *w = *state;
    struct tw_images m;
    assert_ok(w, tw_images_build(w->f.programs, FIXTURE_PROGRAMS, &m, &w->err));
    /* load, math (decode), store, math (prefill, one op more): the two sites and programs share the
     * rest. */
    assert_int_equal(m.n_images, 4);
    assert_int_equal(m.n_streams, FIXTURE_PROGRAMS * FIXTURE_STREAMS);
    const uint32_t image[FIXTURE_PROGRAMS * FIXTURE_STREAMS] = {0, 1, 2, 0, 1, 2,
                                                                0, 3, 2, 0, 3, TW_NONE};
    for (uint32_t i = 0; i < m.n_streams; i++) {
        assert_int_equal(m.streams[i].image, image[i]);
    }
    tw_images_finish(&m);
}

/* Patches are exactly the words that differ, by comparing the streams word for word here. */
static void patches_are_the_words_that_differ_and_no_others(void **state) {
    struct world *w = *state;
    struct tw_images m;
    assert_ok(w, tw_images_build(w->f.programs, FIXTURE_PROGRAMS, &m, &w->err));
    for (uint32_t i = 0; i < m.n_images; i++) {
        uint32_t next = m.images[i].first_patch, end = next + m.images[i].n_patches;
        for (uint32_t word = 0; word < m.images[i].n_words; word++) {
            bool differs = false;
            for (uint32_t s = 0; s < m.n_streams; s++) {
                const struct tw_stream *stream =
                    &w->f.programs[s / FIXTURE_STREAMS].streams[s % FIXTURE_STREAMS];
                differs = differs || (m.streams[s].image == i &&
                                      stream->words[word] != m.image_words[i][word]);
            }
            assert_int_equal(differs, next < end && m.patches[next] == word);
            next += differs;
        }
        assert_int_equal(next, end);
    }
    tw_images_finish(&m);
}

static void equal_streams_have_no_patches(void **state) {
    struct world *w = *state;
    struct tw_images m;
    struct tw_program twice[2] = {w->f.programs[0], w->f.programs[0]};
    for (uint32_t i = 0; i < TW_ENGINE_COUNT; i++) { /* site 1 becomes a copy of site 0 */
        w->f.streams[0][TW_ENGINE_COUNT + i].words = w->f.streams[0][i].words;
        w->f.streams[0][TW_ENGINE_COUNT + i].n_words = w->f.streams[0][i].n_words;
    }
    assert_ok(w, tw_images_build(twice, 2, &m, &w->err));
    assert_int_equal(m.n_images, 3);
    assert_int_equal(m.n_patches, 0);
    assert_int_equal(m.n_args, 0);
    tw_images_finish(&m);
}

static void another_variable_or_number_of_terms_is_another_shape(void **state) {
    struct world *w = *state;
    struct tw_images m;
    uint32_t *words = w->f.words[0][TW_ENGINE_COUNT]; /* site 1 load: loop variable */
    assert_int_equal(words[2], 1);
    words[2] = 2;
    assert_ok(w, tw_images_build(w->f.programs, 1, &m, &w->err));
    assert_int_equal(m.n_images, 4);
    assert_int_not_equal(m.streams[0].image, m.streams[TW_ENGINE_COUNT].image);
    tw_images_finish(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(streams_of_equal_shape_share_an_image),
        T(patches_are_the_words_that_differ_and_no_others),
        T(equal_streams_have_no_patches),
        T(another_variable_or_number_of_terms_is_another_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
