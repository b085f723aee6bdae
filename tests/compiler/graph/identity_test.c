/* SPDX-License-Identifier: Apache-2.0
 *
 * The identity of what a bundle computes: equal where a saved state may be restored, and different
 * wherever a number could come out differently.
 */
#include "tests/compiler/compile_kit.h"

static struct random_shape shape_of(void) {
    return (struct random_shape){.dim = 64,
                                 .hidden = 64,
                                 .n_layers = 2,
                                 .n_heads = 2,
                                 .n_kv_heads = 1,
                                 .head_dim = 32,
                                 .n_vocab = 100,
                                 .n_ctx = 128,
                                 .dtype = TW_DT_Q8_0,
                                 .seed = 3};
}

static void identity_of(struct compile_world *w, uint8_t identity[TW_HASH_BYTES]) {
    struct tw_bundle b;
    must_compile(w, w->model, w->out);
    assert_int_equal(tw_bundle_open(w->out, 0, &b, &w->err), 0);
    assert_non_null(b.identity);
    memcpy(identity, b.identity, TW_HASH_BYTES);
    tw_bundle_close(&b);
}

static void targets_contexts_and_cache_types_have_one_identity(void **state) {
    struct compile_world *w = *state;
    static const char *const targets[] = {"host", "grid8x8", "quad2x2"};
    uint8_t first[TW_HASH_BYTES], other[TW_HASH_BYTES];
    struct random_shape shape = shape_of();
    assert_true(save_model(w, shape));
    identity_of(w, first);
    for (size_t i = 0; i < 3; i++) {
        w->options.target = targets[i];
        identity_of(w, other);
        assert_memory_equal(other, first, TW_HASH_BYTES);
    }
    w->options.n_ctx = 70;
    identity_of(w, other);
    assert_memory_equal(other, first, TW_HASH_BYTES);
    w->options.kv = "f16";
    identity_of(w, other);
    assert_memory_equal(other, first, TW_HASH_BYTES);
    w->options.top_k = 5;
    identity_of(w, other);
    assert_memory_equal(other, first, TW_HASH_BYTES);
}

static void what_changes_a_number_changes_the_identity(void **state) {
    struct compile_world *w = *state;
    enum { MANY = 8 };
    uint8_t all[MANY][TW_HASH_BYTES];
    struct random_shape shape = shape_of();
    size_t n = 0;
    assert_true(save_model(w, shape));
    identity_of(w, all[n++]);
    w->options.activations = "f32";
    identity_of(w, all[n++]);
    w->options.activations = NULL;
    w->options.quant = "q4_0";
    identity_of(w, all[n++]);
    w->options.quant = NULL;
    shape.seed = 4;
    assert_true(save_model(w, shape));
    identity_of(w, all[n++]);
    shape = shape_of();
    shape.n_kv_heads = 2;
    assert_true(save_model(w, shape));
    identity_of(w, all[n++]);
    shape = shape_of();
    shape.rope_dims = 16;
    assert_true(save_model(w, shape));
    identity_of(w, all[n++]);
    shape = shape_of();
    shape.dtype = TW_DT_F16;
    assert_true(save_model(w, shape));
    identity_of(w, all[n++]);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++) {
            assert_memory_not_equal(all[i], all[k], TW_HASH_BYTES);
        }
    }
}

/* One bit of one weight, the last one of the file. */
static void one_weight_changes_the_identity(void **state) {
    struct compile_world *w = *state;
    uint8_t first[TW_HASH_BYTES], other[TW_HASH_BYTES];
    struct random_shape shape = shape_of();
    assert_true(save_model(w, shape));
    identity_of(w, first);
    FILE *f = fopen(w->model, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -33, SEEK_END), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, -33, SEEK_END), 0);
    assert_int_equal(fputc(byte ^ 1, f), byte ^ 1);
    fclose(f);
    identity_of(w, other);
    assert_memory_not_equal(other, first, TW_HASH_BYTES);
}

#define world_test(f) cmocka_unit_test_setup_teardown(f, compile_setup, compile_teardown)

int main(void) {
    static const struct CMUnitTest tests[] = {
        world_test(targets_contexts_and_cache_types_have_one_identity),
        world_test(what_changes_a_number_changes_the_identity),
        world_test(one_weight_changes_the_identity),
    };
    return cmocka_run_group_tests_name("identity", tests, NULL, NULL);
}
