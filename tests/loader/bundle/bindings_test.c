/* SPDX-License-Identifier: Apache-2.0
 *
 * Rule 28 by bytes: random bindings against an oracle that compares the owners of every byte, and
 * bundles that an earlier proof accepted.
 */
#include "loader/bundle/bindings.h"
#include "tests/support/attack_bundles.h"
#include "tests/support/model_bundle.h"
#include "tests/support/test.h"

#include <unistd.h>

enum { PROGRAMS = 2, TENSORS = 4, ROWS = 10, SEGMENTS = 3, BYTES = 48, N_RANDOM = 200000 };

/* Programs share a table of names: "a", "b", "c", "d" at 1, 3, 5, 7. */
static const char names[] = "\0a\0b\0c\0d";

struct world {
    struct tw_program programs[PROGRAMS];
    struct tw_tensor tensors[PROGRAMS][TENSORS];
    struct tw_bind_target bind[ROWS];
    struct tw_bundle bundle;
};

static uint64_t next(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static uint32_t below(uint64_t *seed, uint32_t n) {
    return (uint32_t)(next(seed) % n);
}

/* Rows of the second program are often those of the first: that is how State is shared. */
static void draw(struct world *w, uint64_t *seed) {
    memset(w, 0, sizeof *w);
    w->bundle = (struct tw_bundle){.path = "random",
                                   .n_programs = PROGRAMS,
                                   .programs = w->programs,
                                   .n_bind_rows = ROWS,
                                   .bind = w->bind};
    for (uint32_t r = 0; r < ROWS; r++) {
        w->bind[r] = (struct tw_bind_target){1 + below(seed, 2), 0, 4 * below(seed, 24), 0};
    }
    for (uint32_t p = 0; p < PROGRAMS; p++) {
        w->programs[p] = (struct tw_program){.name = p ? "two" : "one",
                                             .strings = names,
                                             .strings_bytes = sizeof names,
                                             .n_tensors = 1 + below(seed, TENSORS),
                                             .tensors = w->tensors[p]};
        for (uint32_t t = 0; t < TENSORS; t++) {
            struct tw_tensor *x = &w->tensors[p][t];
            if (p && below(seed, 2)) {
                *x = w->tensors[0][t];
                continue;
            }
            x->name = 1 + 2 * t;
            x->role = (uint8_t)below(seed, 4); /* Input, Param, Output, State */
            x->bind_count = below(seed, 3);
            x->bind_first = below(seed, ROWS - 2);
            x->bytes = 4 + 4 * below(seed, 3);
            x->rows = 1 + below(seed, 2);
        }
    }
}

/* ---- the oracle ---- */

struct owner {
    const struct tw_tensor *tensor;
    uint32_t program, instance;
    uint64_t offset;
};

/* Returns true if two owners of a byte are one tensor that both programs share. */
static bool are_shared(const struct owner *a, const struct owner *b) {
    bool alike = a->program != b->program && a->tensor->name == b->tensor->name &&
                 a->tensor->role == b->tensor->role && a->instance == b->instance &&
                 a->offset == b->offset;
    return alike && (a->tensor->role != TW_ROLE_STATE ||
                     (a->tensor->bytes == b->tensor->bytes && a->tensor->rows == b->tensor->rows));
}

static bool is_allowed(const struct world *w) {
    static struct owner owners[SEGMENTS][256][PROGRAMS * TENSORS * 2];
    static uint32_t n[SEGMENTS][256];
    memset(n, 0, sizeof n);
    for (uint32_t p = 0; p < PROGRAMS; p++) {
        for (uint32_t t = 0; t < w->programs[p].n_tensors; t++) {
            const struct tw_tensor *x = &w->tensors[p][t];
            for (uint32_t i = 0; x->role != TW_ROLE_PARAM && i < x->bind_count; i++) {
                const struct tw_bind_target *row = &w->bind[x->bind_first + i];
                struct owner now = {x, p, i, row->offset};
                for (uint64_t at = row->offset; at < row->offset + x->bytes; at++) {
                    for (uint32_t k = 0; k < n[row->segment][at]; k++) {
                        if (!are_shared(&owners[row->segment][at][k], &now)) {
                            return false;
                        }
                    }
                    owners[row->segment][at][n[row->segment][at]++] = now;
                }
            }
        }
    }
    return true;
}

static void random_bindings_are_judged_as_by_the_oracle(void **state) {
    uint64_t seed = 20261130;
    uint32_t n[2] = {0, 0};
    (void)state;
    for (uint32_t i = 0; i < N_RANDOM; i++) {
        struct world w;
        tw_error err = {0};
        struct tw_verify_report report = {.failed_rule = 0};
        uint64_t from = seed;
        draw(&w, &seed);
        bool expected = is_allowed(&w);
        int rc = tw_bundle_check_bindings(&w.bundle, &report, &err);
        if (rc != (expected ? 0 : TW_E_VERIFY)) {
            fail_msg("seed %llu: expected %s: %d %s", (unsigned long long)from,
                     expected ? "acceptance" : "a refusal", rc, err.message);
        }
        assert_int_equal(report.failed_rule, expected ? 0 : TW_ORDER_bindings_apart);
        n[expected]++;
    }
    print_message("%u refused, %u accepted\n", n[0], n[1]);
    assert_true(n[0] > N_RANDOM / 20 && n[1] > N_RANDOM / 20);
}

static void another_binding_gives_another_hash(void **state) {
    uint64_t seed = 7;
    struct world w;
    uint8_t before[TW_HASH_BYTES], after[TW_HASH_BYTES];
    (void)state;
    draw(&w, &seed);
    for (uint32_t row = 0; row < ROWS; row++) {
        tw_bindings_hash(w.bind, ROWS, before);
        w.bind[row].offset += 4;
        tw_bindings_hash(w.bind, ROWS, after);
        assert_memory_not_equal(before, after, sizeof before);
        w.bind[row].segment ^= 3;
        tw_bindings_hash(w.bind, ROWS, before);
        assert_memory_not_equal(before, after, sizeof before);
    }
}

/* ---- attacks ---- */

static void attacks_are_refused_by_their_rule(void **state) {
    (void)state;
    for (size_t i = 0; i < n_attack_bundles; i++) {
        const struct attack_bundle *a = &attack_bundles[i];
        struct tw_bundle b;
        tw_error err = {0};
        const char *path = attack_bundle_make(a);
        int rc = tw_bundle_open(path, 0, &b, &err);
        if (a->says ? rc != TW_E_VERIFY || !strstr(err.message, a->says) : rc != 0) {
            fail_msg("%s: expected %s: %d %s", a->name, a->says ? a->says : "acceptance", rc,
                     err.message);
        }
        tw_bundle_close(&b);
        unlink(path);
    }
    model_bundle_cleanup();
}

static void attacks_of_the_first_edition_are_refused_by_their_version(void **state) {
    const char *shared = getenv("TW_SHARED");
    char path[4200];
    (void)state;
    snprintf(path, sizeof path, "%s/data/attack", shared ? shared : "");
    if (!shared || access(path, R_OK) != 0) {
        print_message("skipped: no $TW_SHARED/data/attack\n");
        skip();
    }
    for (size_t i = 0; i < n_first_attacks; i++) {
        struct tw_bundle b;
        tw_error err = {0};
        snprintf(path, sizeof path, "%s/data/attack/%s", shared, first_attacks[i]);
        assert_int_equal(tw_bundle_open(path, 0, &b, &err), TW_E_UNSUPPORTED);
        if (!strstr(err.message,
                    ": bundle format 1.0, this program reads 2.x: recompile the model")) {
            fail_msg("%s", err.message);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_bindings_are_judged_as_by_the_oracle),
        cmocka_unit_test(another_binding_gives_another_hash),
        cmocka_unit_test(attacks_are_refused_by_their_rule),
        cmocka_unit_test(attacks_of_the_first_edition_are_refused_by_their_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
