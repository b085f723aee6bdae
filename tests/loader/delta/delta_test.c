/* SPDX-License-Identifier: Apache-2.0
 *
 * Deltas: each makes exactly the bundle that it was made of, is as small as what differs, and a
 * damaged or foreign one makes nothing.
 */
#include "loader/base/hash.h"
#include "loader/delta/delta.h"
#include "tests/compiler/compile_kit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define SLACK 1024u /* header, and a few records */

struct paths {
    char a[4200], b[4200], delta[4200], out[4200];
};

static struct paths paths_in(const struct compile_world *w) {
    struct paths p;
    snprintf(p.a, sizeof p.a, "%s/a.twb", w->folder);
    snprintf(p.b, sizeof p.b, "%s/b.twb", w->folder);
    snprintf(p.delta, sizeof p.delta, "%s/d.twd", w->folder);
    snprintf(p.out, sizeof p.out, "%s/out.twb", w->folder);
    return p;
}

/* Makes the delta from a to b, and b of it. Returns what it is. */
static struct tw_delta_info there_and_back(struct compile_world *w, const struct paths *p) {
    struct tw_delta_info made = {.size = sizeof made}, used = {.size = sizeof used},
                         read = {.size = sizeof read};
    if (tw_delta_make(p->a, p->b, p->delta, &made, &w->err) ||
        tw_delta_get_info(p->delta, &read, &w->err) ||
        tw_delta_apply(p->a, p->delta, p->out, &used, &w->err)) {
        fail_msg("%s", w->err.message);
    }
    must_be_equal_files(p->b, p->out);
    assert_memory_equal(&made, &used, sizeof made);
    assert_memory_equal(&made, &read, sizeof made);
    assert_int_equal(made.copied_bytes + made.stored_bytes + made.patched_bytes, made.target_bytes);
    return made;
}

static struct tw_bundle_difference compare(struct compile_world *w, const struct paths *p,
                                           int (*part)(void *, const struct tw_bundle_part *),
                                           void *ctx) {
    struct tw_bundle_difference d = {.size = sizeof d};
    if (tw_bundle_compare(p->a, p->b, part, ctx, &d, &w->err)) {
        fail_msg("%s", w->err.message);
    }
    return d;
}

static void compile_both(struct compile_world *w, const struct paths *p, const char *target,
                         const char *other_target, uint32_t other_ctx) {
    w->options.target = target;
    must_compile(w, SHIPPED, p->a);
    w->options.target = other_target;
    w->options.n_ctx = other_ctx;
    must_compile(w, SHIPPED, p->b);
}

/* ---- what a delta takes ---- */

static void a_compilation_that_is_the_same_takes_a_header(void **state) {
    struct compile_world *w = *state;
    struct paths p = paths_in(w);
    compile_both(w, &p, "sim4x4", "sim4x4", 0);
    struct tw_delta_info i = there_and_back(w, &p);
    assert_true(i.delta_bytes < 512);
    assert_int_equal(compare(w, &p, NULL, NULL).same_content, 1);
}

static void another_context_takes_no_weights(void **state) {
    struct compile_world *w = *state;
    struct paths p = paths_in(w);
    compile_both(w, &p, "sim4x4", "sim4x4", 200);
    struct tw_delta_info i = there_and_back(w, &p);
    struct tw_bundle_difference d = compare(w, &p, NULL, NULL);
    assert_true(i.delta_bytes < 16 * SLACK);
    assert_int_equal(d.changed_param_bytes, 0);
    assert_int_equal(d.n_changed_params, 0);
    assert_int_equal(d.same_function, 1);
    assert_int_equal(d.same_content, 0);
    assert_int_equal(d.same_state, 0);
}

static void another_target_of_the_same_banks_takes_no_weights(void **state) {
    struct compile_world *w = *state;
    struct paths p = paths_in(w);
    compile_both(w, &p, "host", "sim4x4", 0);
    struct tw_delta_info i = there_and_back(w, &p);
    struct tw_bundle_difference d = compare(w, &p, NULL, NULL);
    assert_int_equal(d.changed_param_bytes, 0);
    assert_int_equal(d.same_function, 1);
    assert_int_equal(d.same_state, 1);
    assert_true(i.stored_bytes + i.patched_bytes < i.target_bytes - d.param_bytes);
}

/* ---- changed weights ---- */

struct edit {
    const char *tensor; /* NULL: all weights */
    uint32_t every;     /* about one byte in so many */
};

static uint32_t next_random(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Writes bundle b: a with some bytes of its weights changed, and the hashes that then are right.
 * Returns how many were. */
static uint64_t change_weights(const struct paths *p, struct edit e) {
    struct tw_bundle b;
    tw_error err = {0};
    size_t size;
    uint32_t seed = 7;
    uint64_t n = 0;
    uint8_t *bytes = bundle_fixture_read(p->a, &size);
    assert_int_equal(tw_bundle_open_memory("a", bytes, size, TW_BUNDLE_NO_RULES, &b, &err), 0);
    for (uint32_t i = 0; i < b.n_symbols; i++) {
        const struct tw_symbol *s = &b.symbols[i];
        const uint8_t *from = b.segments[s->segment].bytes;
        if (s->role != TW_ROLE_PARAM || (e.tensor && strcmp(s->name, e.tensor) != 0)) {
            continue;
        }
        uint8_t *at = bytes + (from - bytes) + s->offset;
        for (uint64_t k = next_random(&seed) % (2 * e.every); k < s->size;
             k += 1 + next_random(&seed) % (2 * e.every - 1)) {
            at[k] ^= (uint8_t)(1 + next_random(&seed) % 255);
            n++;
        }
    }
    uint64_t banks_bytes;
    const void *banks = tw_elf_content(&tw_owner(&b)->elf, TW_SEC_BANKS, &banks_bytes);
    for (uint32_t i = 0; i < b.note->n_banks; i++) {
        uint8_t *record = bytes + ((const uint8_t *)banks - bytes) +
                          i * sizeof(struct tw_bank_record) + offsetof(struct tw_bank_record, hash);
        tw_hash_bytes(b.segments[i].bytes, b.segments[i].size, record);
    }
    tw_bundle_close(&b);
    bundle_fixture_seal(bytes, size);
    assert_int_equal(bundle_fixture_save(p->b, bytes, size), 0);
    assert_int_equal(tw_bundle_open(p->b, TW_BUNDLE_CHECK_HASH, &b, &err), 0);
    tw_bundle_close(&b);
    free(bytes);
    return n;
}

static void one_changed_byte_in_a_hundred_takes_at_most_3_in_a_hundred(void **state) {
    struct compile_world *w = *state;
    struct paths p = paths_in(w);
    must_compile(w, SHIPPED, p.a);
    uint64_t n = change_weights(&p, (struct edit){NULL, 100});
    struct tw_delta_info i = there_and_back(w, &p);
    struct tw_bundle_difference d = compare(w, &p, NULL, NULL);
    assert_int_equal(d.changed_param_bytes, n);
    assert_in_range(n, d.param_bytes / 110, d.param_bytes / 90);
    assert_true(i.delta_bytes < d.param_bytes * 3 / 100);
}

struct met {
    uint32_t params, sections, others;
    char param[80];
};

static int note_part(void *ctx, const struct tw_bundle_part *part) {
    struct met *m = ctx;
    bool param = strcmp(part->role, "param") == 0;
    m->params += param;
    m->sections += strcmp(part->role, "section") == 0;
    m->others += !param && strcmp(part->role, "section") != 0;
    if (param) {
        snprintf(m->param, sizeof m->param, "%s", part->name);
    }
    return 0;
}

static void one_changed_tensor_takes_its_bytes(void **state) {
    struct compile_world *w = *state;
    struct paths p = paths_in(w);
    struct met met = {0};
    must_compile(w, SHIPPED, p.a);
    uint64_t n = change_weights(&p, (struct edit){"blk.3.ffn_down.weight", 1});
    struct tw_delta_info i = there_and_back(w, &p);
    struct tw_bundle_difference d = compare(w, &p, note_part, &met);
    assert_true(n > 10000);
    assert_true(i.delta_bytes < n + n / 10 + SLACK);
    assert_int_equal(d.n_changed_params, 1);
    assert_int_equal(d.changed_param_bytes, n);
    assert_in_range(d.changed_param_chunks, 1, n / 65536 + 2);
    assert_int_equal(met.params, 1);
    assert_string_equal(met.param, "blk.3.ffn_down.weight");
    assert_int_equal(met.sections, 2); /* header, banks */
    assert_int_equal(met.others, 0);
}

static int stop_at_once(void *ctx, const struct tw_bundle_part *part) {
    (void)part;
    ++*(int *)ctx;
    return 77;
}

static void a_caller_can_end_a_comparison(void **state) {
    struct compile_world *w = *state;
    struct paths p = paths_in(w);
    struct tw_bundle_difference d = {.size = sizeof d};
    int calls = 0;
    compile_both(w, &p, "sim4x4", "sim4x4", 200);
    assert_int_equal(tw_bundle_compare(p.a, p.b, stop_at_once, &calls, &d, &w->err), 77);
    assert_int_equal(calls, 1);
}

/* ---- what is refused ---- */

static void expect_refusal(struct compile_world *w, const char *base, const struct paths *p,
                           int code, const char *part) {
    uint32_t files = files_in(w);
    assert_int_equal(bundle_fixture_save(p->out, (const uint8_t *)"before", 6), 0);
    files = files_in(w) > files ? files + 1 : files;
    memset(&w->err, 0, sizeof w->err);
    int found = tw_delta_apply(base, p->delta, p->out, NULL, &w->err);
    if (found != code || !strstr(w->err.message, part)) {
        fail_msg("%d: %s; expected %d and \"%s\"", found, w->err.message, code, part);
    }
    size_t n;
    uint8_t *kept = bundle_fixture_read(p->out, &n);
    assert_int_equal(n, 6);
    assert_memory_equal(kept, "before", 6);
    free(kept);
    assert_int_equal(files_in(w), files);
}

static void a_delta_for_another_bundle_is_refused(void **state) {
    struct compile_world *w = *state;
    struct paths p = paths_in(w);
    compile_both(w, &p, "sim4x4", "sim4x4", 200);
    assert_int_equal(tw_delta_make(p.a, p.b, p.delta, NULL, &w->err), 0);
    expect_refusal(w, p.b, &p, TW_E_UNSUPPORTED, "but the delta is for");
    expect_refusal(w, p.delta, &p, TW_E_FORMAT, "not a bundle");
    expect_refusal(w, "/nowhere", &p, TW_E_IO, "/nowhere");
    struct paths q = p;
    snprintf(q.delta, sizeof q.delta, "%s", p.a);
    expect_refusal(w, p.a, &q, TW_E_FORMAT, "not a delta");
}

static void damaged_weights_of_the_base_are_found(void **state) {
    struct compile_world *w = *state;
    struct paths p = paths_in(w);
    size_t size;
    compile_both(w, &p, "sim4x4", "sim4x4", 200);
    assert_int_equal(tw_delta_make(p.a, p.b, p.delta, NULL, &w->err), 0);
    uint8_t *bytes = bundle_fixture_read(p.a, &size);
    bytes[size - 1000] ^= 1;
    assert_int_equal(bundle_fixture_save(p.a, bytes, size), 0);
    free(bytes);
    expect_refusal(w, p.a, &p, TW_E_HASH, "damaged");
}

static void a_full_disk_leaves_nothing(void **state) {
    struct compile_world *w = *state;
    struct paths p = paths_in(w);
    struct rlimit before, small = {100000, RLIM_INFINITY};
    compile_both(w, &p, "sim4x4", "sim4x4", 200);
    assert_int_equal(tw_delta_make(p.a, p.b, p.delta, NULL, &w->err), 0);
    assert_int_equal(bundle_fixture_save(p.out, (const uint8_t *)"before", 6), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    expect_refusal(w, p.a, &p, TW_E_NOSPACE, "cannot write");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* ---- hostile deltas ---- */

struct memory {
    const uint8_t *base;
    uint64_t base_bytes;
    struct tw_hash hash;
    uint64_t made;
};

static int read_memory(void *ctx, uint64_t at, void *to, uint64_t n) {
    const struct memory *m = ctx;
    assert_true(n <= m->base_bytes && at <= m->base_bytes - n);
    memcpy(to, m->base + at, n);
    return 0;
}

static int write_memory(void *ctx, const void *bytes, uint64_t n) {
    struct memory *m = ctx;
    tw_hash_update(&m->hash, bytes, n);
    m->made += n;
    return 0;
}

static void seal(uint8_t *delta, size_t size) {
    struct tw_delta_header h;
    struct tw_hash records;
    memcpy(&h, delta, sizeof h);
    tw_hash_init(&records);
    tw_hash_update(&records, delta + sizeof h, size - sizeof h);
    tw_delta_seal(&h, &records);
    memcpy(delta, &h, sizeof h);
}

/* Returns whether the delta is accepted, and gives another file than the one that it was made
 * for. */
static bool deceives(const uint8_t *delta, size_t size, const struct memory *base,
                     const uint8_t file_hash[TW_HASH_BYTES]) {
    struct memory m = *base;
    struct tw_delta d;
    tw_error err = {0};
    uint8_t found[TW_HASH_BYTES];
    if (tw_delta_parse("edited", delta, size, &d, &err) != 0 ||
        d.header.base_bytes != base->base_bytes || d.header.target_bytes > (16u << 20)) {
        return false;
    }
    tw_hash_init(&m.hash);
    assert_int_equal(tw_delta_run(&d, read_memory, write_memory, &m), 0);
    assert_int_equal(m.made, d.header.target_bytes);
    tw_hash_final(&m.hash, found);
    return memcmp(found, d.header.file_hash, sizeof found) == 0 &&
           memcmp(found, file_hash, sizeof found) != 0;
}

static void no_edit_of_a_delta_deceives(void **state) {
    struct compile_world *w = *state;
    struct paths p = paths_in(w);
    struct tw_delta_header h;
    size_t base_bytes, size;
    uint32_t seed = 11;
    must_compile(w, SHIPPED, p.a);
    change_weights(&p, (struct edit){"blk.3.ffn_down.weight", 50});
    assert_int_equal(tw_delta_make(p.a, p.b, p.delta, NULL, &w->err), 0);
    uint8_t *base = bundle_fixture_read(p.a, &base_bytes),
            *delta = bundle_fixture_read(p.delta, &size), *edited = malloc(size + 8);
    struct memory m = {.base = base, .base_bytes = base_bytes};
    memcpy(&h, delta, sizeof h);
    assert_false(deceives(delta, size, &m, h.file_hash));
    for (uint32_t i = 0; i < (TEST_ASAN ? 100 : 500); i++) {
        size_t at = i % 4 == 3 ? next_random(&seed) % sizeof h : next_random(&seed) % size,
               n = i % 7 == 6     ? next_random(&seed) % size
                   : i % 11 == 10 ? size + 8
                                  : size;
        memset(edited, 0, size + 8);
        memcpy(edited, delta, n < size ? n : size);
        edited[at] ^= (uint8_t)(1 + next_random(&seed) % 255);
        struct tw_delta d;
        assert_int_not_equal(tw_delta_parse("edited", edited, n, &d, &w->err), 0);
        if (n >= sizeof h) {
            uint64_t records = n - sizeof h;
            memcpy(edited + offsetof(struct tw_delta_header, record_bytes), &records, 8);
            seal(edited, n);
            assert_false(deceives(edited, n, &m, h.file_hash));
        }
    }
    free(base);
    free(delta);
    free(edited);
}

/* A delta whose hash is right makes nothing that is not the bundle that it names. */
static void a_delta_of_something_else_makes_nothing(void **state) {
    struct compile_world *w = *state;
    struct paths p = paths_in(w);
    static const char script[] = "#!/bin/sh\necho a script\n";
    uint8_t delta[sizeof(struct tw_delta_header) + 2 + sizeof script];
    struct tw_delta_header h;
    size_t n;
    compile_both(w, &p, "sim4x4", "sim4x4", 200);
    assert_int_equal(tw_delta_make(p.a, p.b, p.delta, NULL, &w->err), 0);
    uint8_t *made = bundle_fixture_read(p.delta, &n);
    memcpy(&h, made, sizeof h);
    h.record_bytes = sizeof delta - sizeof h;
    h.target_bytes = sizeof script;
    tw_hash_bytes(script, sizeof script, h.file_hash);
    memcpy(delta, &h, sizeof h);
    delta[sizeof h] = TW_DELTA_DATA;
    delta[sizeof h + 1] = sizeof script;
    memcpy(delta + sizeof h + 2, script, sizeof script);
    seal(delta, sizeof delta);
    assert_int_equal(bundle_fixture_save(p.delta, delta, sizeof delta), 0);
    expect_refusal(w, p.a, &p, TW_E_FORMAT, "d.twd: what it makes is no bundle");
    /* A bundle, but another one. */
    memcpy(&h, made, sizeof h);
    h.target_hash[3] ^= 1;
    memcpy(made, &h, sizeof h);
    seal(made, n);
    assert_int_equal(bundle_fixture_save(p.delta, made, n), 0);
    expect_refusal(w, p.a, &p, TW_E_HASH, "but states");
    /* Records that make another file than stated. */
    h.target_hash[3] ^= 1;
    h.file_hash[0] ^= 1;
    memcpy(made, &h, sizeof h);
    seal(made, n);
    assert_int_equal(bundle_fixture_save(p.delta, made, n), 0);
    expect_refusal(w, p.a, &p, TW_E_HASH, "the delta is wrong");
    free(made);
}

static void a_delta_that_cannot_be_written_is_an_error(void **state) {
    struct compile_world *w = *state;
    struct paths p = paths_in(w);
    struct rlimit before, small = {100, RLIM_INFINITY};
    compile_both(w, &p, "sim4x4", "sim4x4", 200);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int code = tw_delta_make(p.a, p.b, p.delta, NULL, &w->err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(code, TW_E_NOSPACE);
    assert_int_equal(access(p.delta, F_OK), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define DELTA_TEST(f) cmocka_unit_test_setup_teardown(f, compile_setup, compile_teardown)
        DELTA_TEST(a_compilation_that_is_the_same_takes_a_header),
        DELTA_TEST(another_context_takes_no_weights),
        DELTA_TEST(another_target_of_the_same_banks_takes_no_weights),
        DELTA_TEST(one_changed_byte_in_a_hundred_takes_at_most_3_in_a_hundred),
        DELTA_TEST(one_changed_tensor_takes_its_bytes),
        DELTA_TEST(a_caller_can_end_a_comparison),
        DELTA_TEST(a_delta_for_another_bundle_is_refused),
        DELTA_TEST(damaged_weights_of_the_base_are_found),
        DELTA_TEST(a_full_disk_leaves_nothing),
        DELTA_TEST(a_delta_of_something_else_makes_nothing),
        DELTA_TEST(a_delta_that_cannot_be_written_is_an_error),
        DELTA_TEST(no_edit_of_a_delta_deceives),
    };
    return cmocka_run_group_tests_name("delta", tests, NULL, NULL);
}
