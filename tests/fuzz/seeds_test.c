/* SPDX-License-Identifier: Apache-2.0
 *
 * The seeds of the fuzz targets that read programs, texts, bundles, certificates, saved states and
 * deltas are what this edition of the machine writes: a fuzzer whose seeds are all refused finds
 * nothing. TW_WRITE_SEEDS=1 writes them anew, into tests/fuzz/seeds/. (Those of the other targets
 * are scripts' output, tests/fuzz/mkseeds*.py.)
 * */
#include "compiler/spatial/certify.h"
#include "driver/state/state_internal.h"
#include "loader/bundle/loader.h"
#include "loader/verify/verify.h"
#include "tests/support/bundle_fixture.h"
#include "tests/support/order_forms.h"
#include "tests/support/order_judge.h"
#include "tests/support/order_random.h"
#include "tests/support/program_text.h"
#include "tests/support/saved_sequence.h"
#include "tests/support/small_program.h"
#include "tests/support/test.h"
#include "tilewright/delta.h"
#include "tilewright/progblob.h"

enum { RANDOM_SEEDS = 6, EACH = 300, MIN_FORMS = 80 };

struct bytes {
    uint8_t *at;
    size_t n;
};

static struct bytes join(const void *a, size_t n_a, const void *b, size_t n_b) {
    struct bytes x = {malloc(n_a + n_b + 1), n_a + n_b};
    assert_non_null(x.at);
    memcpy(x.at, a, n_a);
    memcpy(x.at + n_a, b, n_b);
    return x;
}

/* Compares a seed with the kept one, or writes it; releases it. */
static void expect_seed(const char *target, const char *name, uint32_t number, struct bytes x) {
    char path[120];
    size_t n = 0;
    snprintf(path, sizeof path, number ? "tests/fuzz/seeds/%s/%s%u" : "tests/fuzz/seeds/%s/%s",
             target, name, number);
    if (getenv("TW_WRITE_SEEDS")) {
        assert_int_equal(bundle_fixture_save(path, x.at, x.n), 0);
    }
    char *kept = text_read_file(path, &n);
    if (!kept || n != x.n || memcmp(kept, x.at, n) != 0) {
        fail_msg("%s is not what this edition writes: TW_WRITE_SEEDS=1 build/tests/fuzz/seeds_test "
                 "writes it",
                 path);
    }
    free(kept);
    free(x.at);
}

/* ---- programs and texts ---- */

static struct bytes blob_of(const struct tw_program *p) {
    size_t n = tw_progblob_bytes(p, true);
    uint8_t *blob = calloc(1, n), form = 0;
    assert_non_null(blob);
    tw_progblob_write(p, true, blob);
    struct bytes x = join(&form, 1, blob, n);
    free(blob);
    return x;
}

static struct bytes text_of(const struct tw_program *p) {
    struct text t = {0};
    text_print(&t, p);
    struct bytes x = join(t.bytes, t.used, "", 0);
    text_free(&t);
    return x;
}

static uint32_t fresh_forms(const uint32_t *counts, const uint32_t *seen) {
    uint32_t n = 0;
    for (uint32_t f = 0; f < ORDER_N_FORMS; f++) {
        n += counts[f] && !seen[f];
    }
    return n;
}

/* The seed of the program among the next EACH that the checker accepts and that has most forms that
 * are not among those seen; these are added to them. */
static uint32_t choose_one(struct tw_cmem *mem, uint32_t first, uint32_t *seen) {
    uint32_t best = 0, most = 0, of_best[ORDER_N_FORMS] = {0};
    for (uint32_t seed = first; seed < first + EACH; seed++) {
        struct order_small x = order_small_program(seed);
        uint32_t counts[ORDER_N_FORMS] = {0};
        order_forms_count(&x.b->p, counts);
        uint32_t fresh = fresh_forms(counts, seen);
        if (fresh > most && order_judge(mem, &x.b->p, NULL).rule == 0) {
            best = seed;
            most = fresh;
            memcpy(of_best, counts, sizeof counts);
        }
        pb_free(x.b);
    }
    for (uint32_t f = 0; f < ORDER_N_FORMS; f++) {
        seen[f] += of_best[f];
    }
    return best;
}

static void choose_random(struct tw_cmem *mem, uint32_t seeds[RANDOM_SEEDS]) {
    uint32_t seen[ORDER_N_FORMS] = {0}, none[ORDER_N_FORMS] = {0};
    for (uint32_t i = 0; i < RANDOM_SEEDS; i++) {
        seeds[i] = choose_one(mem, 1 + i * EACH, seen);
        assert_int_not_equal(seeds[i], 0);
    }
    assert_in_range(fresh_forms(seen, none), MIN_FORMS, ORDER_N_FORMS);
}

static void programs_and_texts_are_of_this_edition(void **state) {
    struct tw_cmem mem;
    uint32_t seeds[RANDOM_SEEDS];
    struct pb *small = small_program();
    (void)state;
    assert_int_equal(tw_cmem_init(&mem, NULL), 0);
    choose_random(&mem, seeds);
    assert_int_equal(tw_verify_program(&small->p, NULL, NULL), 0);
    expect_seed("program", "small", 0, blob_of(&small->p));
    expect_seed("tws", "small", 0, text_of(&small->p));
    for (uint32_t i = 0; i < RANDOM_SEEDS; i++) {
        struct order_small x = order_small_program(seeds[i]);
        expect_seed("program", "random", i + 1, blob_of(&x.b->p));
        expect_seed("tws", "random", i + 1, text_of(&x.b->p));
        pb_free(x.b);
    }
    pb_free(small);
    tw_cmem_finish(&mem);
}

static void texts_by_hand_parse(void **state) {
    static const char *const names[] = {"fifo", "odd", "overlap", "pages", "two"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[80];
        size_t n = 0;
        struct tw_program_text *program = NULL;
        struct tw_text_position at = {0, 0};
        tw_error err = {0};
        snprintf(path, sizeof path, "tests/fuzz/seeds/tws/%s", names[i]);
        char *text = text_read_file(path, &n);
        assert_non_null(text);
        if (tw_program_parse_next(path, text, n, &at, &program, &err) != 0 || !program) {
            fail_msg("%s", err.message);
        }
        tw_program_text_free(program);
        free(text);
    }
}

/* ---- certificates ---- */

static struct bytes with_program(uint8_t form, uint32_t seed, const void *more, size_t n) {
    uint8_t first[3] = {form, (uint8_t)seed, (uint8_t)(seed >> 8)};
    return join(first, sizeof first, more, n);
}

/* The forms of fuzz_cert.c. */
static void certificates_are_of_this_edition(void **state) {
    static const uint8_t edits[] = {6, 0, 0, 4, 0, 9, 2, 0, 17, 0}, mutant[] = {7, 1, 2, 3, 4};
    struct tw_cmem mem;
    uint32_t seeds[RANDOM_SEEDS];
    (void)state;
    assert_int_equal(tw_cmem_init(&mem, NULL), 0);
    choose_random(&mem, seeds);
    for (uint32_t i = 0; i < RANDOM_SEEDS; i++) {
        struct order_small x = order_small_program(seeds[i]);
        struct tw_certificate own;
        tw_error err = {0};
        assert_int_equal(tw_certify(&mem, &x.b->p, &own, &err), 0);
        expect_seed("cert", "own", i + 1, with_program(0, seeds[i], "", 0));
        expect_seed("cert", "edited", i + 1, with_program(0, seeds[i], edits, sizeof edits));
        expect_seed("cert", "words", i + 1,
                    with_program(1, seeds[i], own.words, (size_t)own.n_words * 4));
        expect_seed("cert", "mutant", i + 1, with_program(2, seeds[i], mutant, sizeof mutant));
        expect_seed("cert", "section", i + 1, with_program(3, seeds[i], "", 0));
        pb_free(x.b);
    }
    tw_cmem_finish(&mem);
}

/* ---- bundles ---- */

/* The fixture without its weights, which would be most of a seed. */
static void bundles_are_of_this_edition(void **state) {
    static struct bundle_fixture f;
    char *folder = bundle_fixture_folder(), path[200];
    struct tw_emit_symbol symbols[3];
    struct tw_bundle b;
    tw_error err = {0};
    struct bytes x = {NULL, 0};
    (void)state;
    bundle_fixture_init(&f);
    uint32_t n = 0;
    for (uint32_t i = 0; i < FIXTURE_SYMBOLS; i++) {
        if (f.symbols[i].role != TW_ROLE_PARAM) {
            symbols[n] = f.symbols[i];
            f.rows[n] = n;
            n++;
        }
    }
    for (uint32_t t = 0, row = 0; t < 4; t++) {
        if (f.tensors[t].role == TW_ROLE_PARAM) {
            f.tensors[t].role = TW_ROLE_ACTIVATION;
            f.tensors[t].bind_first = f.tensors[t].bind_count = 0;
        } else {
            f.tensors[t].bind_first = row++;
        }
    }
    f.spec.symbols = symbols;
    f.spec.n_symbols = n;
    f.spec.n_bind_rows = n;
    f.spec.note.n_banks = 0;
    f.spec.note.n_params = 0;
    snprintf(path, sizeof path, "%s/nobanks", folder);
    if (tw_bundle_write(path, &f.spec, &err) != 0) {
        fail_msg("%s", err.message);
    }
    x.at = bundle_fixture_read(path, &x.n);
    assert_non_null(x.at);
    assert_int_equal(tw_bundle_open_memory("seed", x.at, x.n,
                                           TW_BUNDLE_NO_RULES | TW_BUNDLE_CHECK_HASH, &b, &err),
                     0);
    tw_bundle_close(&b);
    expect_seed("bundle", "nobanks", 0, x);
    bundle_fixture_remove(folder);
}

/* ---- saved states ---- */

/* Without the time, the same bytes on every day. */
static void forget_time(uint8_t *state) {
    for (uint32_t i = 0; i < TW_SAVED_COMMITS; i++) {
        struct tw_saved_commit c;
        memcpy(&c, state + i * sizeof c, sizeof c);
        c.saved_ns = 0;
        tw_saved_hash_commit(&c, c.hash);
        memcpy(state + i * sizeof c, &c, sizeof c);
    }
}

static struct bytes read_state(const char *path) {
    struct bytes x = {NULL, 0};
    x.at = bundle_fixture_read(path, &x.n);
    assert_non_null(x.at);
    forget_time(x.at);
    return x;
}

static void expect_states(const char *name, struct bytes x) {
    for (uint8_t form = 0; form < 3; form++) { /* the forms of fuzz_state_file.c */
        expect_seed("state_file", name, form + 1u, join(&form, 1, x.at, x.n));
    }
    free(x.at);
}

static void saved_states_are_of_this_edition(void **state) {
    static struct saved_sequence s;
    char *folder = bundle_fixture_folder(), path[200];
    struct tw_saved_source source = saved_sequence_source(&s);
    struct tw_saved_result result;
    tw_error err = {0};
    (void)state;
    snprintf(path, sizeof path, "%s/a", folder);
    saved_sequence_init(&s, 2, 16);
    for (uint32_t turn = 0; turn < 2; turn++) {
        saved_sequence_feed(&s, s.n, 100 + 50 * turn, turn);
        if (tw_saved_write(path, &s.schema, s.tokens, s.n, &source, NULL, &result, &err) != 0) {
            fail_msg("%s", err.message);
        }
        expect_states(turn ? "turns" : "first", read_state(path));
    }
    bundle_fixture_remove(folder);
}

/* ---- deltas ---- */

/* Copies, patches and stores: single bytes of the last ones differ, and a row of bytes before. */
static void deltas_are_of_this_edition(void **state) {
    static struct bundle_fixture f;
    char *folder = bundle_fixture_folder(), path[3][200];
    tw_error err = {0};
    size_t n;
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/%u", folder, i);
    }
    bundle_fixture_init(&f);
    assert_int_equal(tw_bundle_write(path[0], &f.spec, &err), 0);
    uint8_t *bytes = bundle_fixture_read(path[0], &n);
    for (uint32_t i = 1; i < 3000; i++) {
        bytes[n - i] ^= i < 1000 ? i % 100 == 0 : (uint8_t)(1 + i % 255);
    }
    assert_int_equal(bundle_fixture_save(path[1], bytes, n), 0);
    free(bytes);
    assert_int_equal(tw_delta_make(path[0], path[1], path[2], NULL, &err), 0);
    bytes = bundle_fixture_read(path[2], &n);
    for (uint8_t form = 0; form < 2; form++) { /* the forms of fuzz_delta.c */
        expect_seed("delta", "three", form + 1u, join(&form, 1, bytes, n));
    }
    free(bytes);
    bundle_fixture_remove(folder);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_and_texts_are_of_this_edition),
        cmocka_unit_test(texts_by_hand_parse),
        cmocka_unit_test(certificates_are_of_this_edition),
        cmocka_unit_test(bundles_are_of_this_edition),
        cmocka_unit_test(saved_states_are_of_this_edition),
        cmocka_unit_test(deltas_are_of_this_edition),
    };
    return cmocka_run_group_tests_name("seeds", tests, NULL, NULL);
}
