/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs through text and back: the small program, whole compiled models, and programs of random
 * records and ops come back with every field, and their text byte for byte.
 */
#include "loader/bundle/loader.h"
#include "loader/text/text_tables.h"
#include "loader/verify/verify.h"
#include "tests/support/model_bundle.h"
#include "tests/support/program_mutate.h"
#include "tests/support/program_text.h"
#include "tests/support/small_program.h"
#include "tests/support/test.h"
#include "tilewright/compile.h"

#include <math.h>

/* ---- equality, without the tables of text_tables.h ---- */

static const char *string_of(const struct tw_program *p, uint32_t offset, size_t *n) {
    if (offset >= p->strings_bytes) {
        *n = 0;
        return NULL;
    }
    *n = strnlen(p->strings + offset, p->strings_bytes - offset);
    return p->strings + offset;
}

/* Compares two names: the same string, or both outside their tables. */
static bool same_name(const struct tw_program *a, uint32_t in_a, const struct tw_program *b,
                      uint32_t in_b) {
    size_t na, nb;
    const char *sa = string_of(a, in_a, &na), *sb = string_of(b, in_b, &nb);
    return (sa == NULL) == (sb == NULL) && na == nb && (na == 0 || memcmp(sa, sb, na) == 0);
}

#define ASSERT_SAME_TABLE(a, b, table, n, type, name)             \
    do {                                                          \
        assert_int_equal((a)->n, (b)->n);                         \
        for (uint32_t i_ = 0; i_ < (a)->n; i_++) {                \
            struct type x_ = (a)->table[i_], y_ = (b)->table[i_]; \
            assert_true(same_name(a, x_.name, b, y_.name));       \
            y_.name = x_.name;                                    \
            assert_memory_equal(&x_, &y_, sizeof x_);             \
        }                                                         \
    } while (0)
#define ASSERT_SAME_BYTES(a, b, table, n)                                                \
    do {                                                                                 \
        assert_int_equal((a)->n, (b)->n);                                                \
        for (uint32_t i_ = 0; i_ < (a)->n; i_++) {                                       \
            assert_memory_equal(&(a)->table[i_], &(b)->table[i_], sizeof(a)->table[i_]); \
        }                                                                                \
    } while (0)

/* The bytes between pages and page_bytes are padding. */
static void assert_same_buffers(const struct tw_program *a, const struct tw_program *b) {
    enum {
        GAP = offsetof(struct tw_buffer, pages) + 4,
        AFTER = offsetof(struct tw_buffer, page_bytes)
    };
    assert_int_equal(a->n_buffers, b->n_buffers);
    for (uint32_t i = 0; i < a->n_buffers; i++) {
        const char *x = (const char *)&a->buffers[i], *y = (const char *)&b->buffers[i];
        assert_true(same_name(a, a->buffers[i].name, b, b->buffers[i].name));
        assert_memory_equal(x + 4, y + 4, GAP - 4);
        assert_memory_equal(x + AFTER, y + AFTER, sizeof(struct tw_buffer) - AFTER);
    }
}

static void assert_same_streams(const struct tw_program *a, const struct tw_program *b) {
    for (uint32_t i = 0; i < a->n_sites * TW_ENGINE_COUNT; i++) {
        const struct tw_stream *x = &a->streams[i], *y = &b->streams[i];
        assert_int_equal(x->site, y->site);
        assert_int_equal(x->engine, y->engine);
        assert_int_equal(x->n_words, y->n_words);
        if (x->n_words) {
            assert_memory_equal(x->words, y->words, (size_t)x->n_words * 4);
        }
    }
}

static void assert_same_program(const struct tw_program *a, const struct tw_program *b) {
    assert_true((a->name == NULL) == (b->name == NULL));
    if (a->name) {
        assert_string_equal(a->name, b->name);
    }
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->n_sites, b->n_sites);
    assert_int_equal(a->mesh_width, b->mesh_width);
    assert_int_equal(a->mesh_height, b->mesh_height);
    assert_int_equal(a->n_chips, b->n_chips);
    assert_true(!memcmp(a->sram_bytes, b->sram_bytes, sizeof a->sram_bytes));
    ASSERT_SAME_TABLE(a, b, tensors, n_tensors, tw_tensor, name);
    assert_same_buffers(a, b);
    ASSERT_SAME_TABLE(a, b, semaphores, n_semaphores, tw_semaphore, name);
    ASSERT_SAME_TABLE(a, b, trips, n_trips, tw_trip, name);
    ASSERT_SAME_TABLE(a, b, stages, n_stages, tw_stage, origin);
    ASSERT_SAME_TABLE(a, b, sections, n_sections, tw_section, name);
    ASSERT_SAME_BYTES(a, b, groups, n_groups);
    assert_same_streams(a, b);
}

/* Printing and parsing gives an equal program, and printing that the same text; parsing once more
 * gives even the same string table. */
static void assert_round_trip(const struct tw_program *p) {
    struct text first = {0}, second = {0};
    struct tw_program_text *once = NULL, *twice = NULL;
    tw_error err = {0};
    text_print(&first, p);
    if (tw_program_parse("first", first.bytes, first.used, &once, &err) != 0) {
        fail_msg("%s", err.message);
        return;
    }
    assert_same_program(p, &once->program);
    text_print(&second, &once->program);
    assert_int_equal(first.used, second.used);
    assert_memory_equal(first.bytes, second.bytes, first.used);
    assert_int_equal(tw_program_parse("second", second.bytes, second.used, &twice, &err), 0);
    assert_int_equal(once->program.strings_bytes, twice->program.strings_bytes);
    assert_memory_equal(once->program.strings, twice->program.strings, once->program.strings_bytes);
    assert_same_program(&once->program, &twice->program);
    tw_program_text_free(once);
    tw_program_text_free(twice);
    text_free(&first);
    text_free(&second);
}

/* ---- the small program ---- */

static void the_small_program_comes_back_and_obeys_every_rule(void **state) {
    (void)state;
    struct pb *b = small_program();
    struct text t = {0};
    struct tw_program_text *text = NULL;
    tw_error err = {0};
    assert_round_trip(&b->p);
    text_print(&t, &b->p);
    assert_int_equal(tw_program_parse("small", t.bytes, t.used, &text, &err), 0);
    assert_int_equal(tw_verify_program(&text->program, NULL, &err), 0);
    tw_program_text_free(text);
    text_free(&t);
    pb_free(b);
}

static void every_byte_of_every_record_belongs_to_a_field(void **state) {
    (void)state;
    for (int table = TW_TEXT_TENSORS; table < TW_TEXT_STREAM; table++) {
        const struct tw_text_record *r = tw_text_record((enum tw_text_table)table);
        uint8_t used[128] = {0};
        assert_true(r->bytes <= sizeof used);
        for (uint32_t i = 20; i < 24 && table == TW_TEXT_BUFFERS; i++) {
            used[i]++; /* padding between pages and page_bytes */
        }
        for (uint32_t i = 0; i < 4 && r->has_name; i++) {
            used[r->name + i]++;
        }
        for (uint32_t i = 0; i < r->n_fields; i++) {
            const struct tw_text_field *f = &r->fields[i];
            for (uint32_t k = 0; k < f->bytes; k++) {
                used[f->at + k]++;
            }
            for (uint32_t k = 0; k < f->second_bytes; k++) {
                used[f->second + k]++;
            }
        }
        for (uint32_t i = 0; i < r->bytes; i++) {
            if (used[i] != 1) {
                fail_msg("byte %u of a %s is in %u fields", i, r->word, used[i]);
            }
        }
    }
}

/* ---- compiled programs ---- */

static void the_programs_of_a_bundle_come_back_for_every_target(void **state) {
    static const char *const targets[] = {"host", "grid8x8", "sim4x4", "sim4x4x2", "quad2x2"};
    (void)state;
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        struct tw_bundle bundle;
        tw_error err = {0};
        if (tw_bundle_open(model_bundle(targets[i]), 0, &bundle, &err) != 0) {
            fail_msg("%s", err.message);
        }
        assert_true(bundle.n_programs >= 2);
        for (uint32_t k = 0; k < bundle.n_programs; k++) {
            assert_round_trip(&bundle.programs[k]);
        }
        tw_bundle_close(&bundle);
    }
}

/* Parses one program after the other and prints each; `dump` has empty lines between its two
 * halves. */
static uint32_t reprint(const char *bytes, size_t size, struct text *out) {
    struct tw_text_position at = {0, 0};
    struct tw_program_text *text = NULL;
    tw_error err = {0};
    uint32_t n = 0;
    while (tw_program_parse_next("dump", bytes, size, &at, &text, &err) == 0 && text) {
        n++;
        text_print(out, &text->program);
        tw_program_text_free(text);
    }
    assert_string_equal(err.message, "");
    return n;
}

static void what_dump_prints_of_a_stage_comes_back(void **state) {
    static const struct {
        const char *stage;
        uint32_t n;
    } stages[] = {{"program", 2}, {"section", 6}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char *dump = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&dump, &size);
        struct tw_compile_options o = {.size = sizeof o, .target = "sim4x4"};
        struct text printed = {0};
        tw_error err = {0};
        assert_non_null(f);
        assert_int_equal(tw_compile_dump(SHIPPED_MODEL, stages[i].stage, &o, f, &err), 0);
        fclose(f);
        assert_int_equal(reprint(dump, size, &printed), stages[i].n);
        size_t at = 0;
        for (size_t k = 0; k < size; k++) {
            if (dump[k] != '\n' || (k > 0 && dump[k - 1] != '\n')) {
                assert_true(at < printed.used && printed.bytes[at++] == dump[k]);
            }
        }
        assert_int_equal(at, printed.used);
        text_free(&printed);
        free(dump);
    }
}

/* ---- random programs ---- */

static uint64_t seed = 20240607;

static uint32_t below(uint32_t n) {
    return (uint32_t)(mutate_random(&seed) >> 16) % n;
}

/* Small numbers, edges, and any. */
static uint64_t any(void) {
    static const uint64_t edges[] = {0,          1,          2,       255,        65535,
                                     0x7FFFFFFF, 0x80000000, TW_NONE, 1ull << 63, UINT64_MAX};
    uint64_t r = mutate_random(&seed);
    return r % 3 == 0 ? edges[below(10)] : r % 3 == 1 ? below(8) : mutate_random(&seed);
}

static void random_records(void *table, uint32_t n, size_t bytes) {
    for (uint32_t i = 0; i < n * bytes / 4; i++) {
        uint32_t word = below(4) ? below(3) : (uint32_t)any();
        memcpy((char *)table + (size_t)i * 4, &word, 4);
    }
}

static void random_strings(struct pb *b) {
    uint32_t n = 2 + below(200);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t kind = below(8);
        b->strings[i] = kind == 0 ? 0 : kind < 6 ? (char)('a' + below(26)) : (char)(1 + below(255));
    }
    b->strings[0] = b->strings[n - 1] = 0;
    b->p.strings_bytes = n;
}

static struct tw_affine random_affine(void) {
    struct tw_affine a = tw_affine_const(any());
    a.n_terms = below(TW_MAX_TERMS + 1);
    for (uint32_t i = 0; i < a.n_terms; i++) {
        a.term[i].var = below(TW_MAX_VARS);
        a.term[i].step = any();
    }
    return a;
}

static void random_op(struct pb *b) {
    struct tw_operand operand[TW_MAX_OPERANDS];
    uint32_t code, n = 0;
    do {
        code = below(TW_OP_LIMIT);
    } while (!tw_op_info(code).name);
    for (const char *k = tw_op_info(code).operands; *k; k++, n++) {
        operand[n] = pb_id(*k == 'V' ? 1 + below(TW_MAX_VARS - 1) : (uint32_t)any());
        operand[n].max = (uint32_t)any();
        operand[n].offset = random_affine();
        operand[n].instance = random_affine();
        operand[n].paged = (*k == 'T' || *k == 'U') && below(2);
        operand[n].table = (uint32_t)any() % TW_NONE;
        operand[n].element = random_affine();
    }
    b->stage = below(2) ? b->stage : (uint32_t)any();
    pb_append(b, code, operand, n);
}

static void random_words(struct pb *b) {
    struct tw_stream *s = pb_stream(b, b->site, b->engine);
    uint32_t *words = b->words[b->site * TW_ENGINE_COUNT + b->engine];
    for (uint32_t i = 1 + below(20); i > 0; i--) {
        words[s->n_words++] = (uint32_t)any();
    }
}

static struct pb *random_program(void) {
    struct pb *b = pb_new("random", 1 + below(2), 1 + below(2));
    b->p.rows = (uint32_t)any();
    b->p.n_chips = (uint32_t)any();
    b->p.mesh_width = (uint32_t)any();
    b->p.mesh_height = (uint32_t)any();
    for (uint32_t c = 0; c < TW_MEM_CLASSES; c++) {
        b->p.sram_bytes[c] = any();
    }
    random_strings(b);
    b->p.name = b->strings + below(b->p.strings_bytes);
    uint32_t *const counts[] = {&b->p.n_tensors, &b->p.n_buffers, &b->p.n_semaphores,
                                &b->p.n_groups,  &b->p.n_trips,   &b->p.n_stages,
                                &b->p.n_sections};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        *counts[i] = below(6);
    }
    random_records(b->tensors, b->p.n_tensors, sizeof b->tensors[0]);
    random_records(b->buffers, b->p.n_buffers, sizeof b->buffers[0]);
    random_records(b->semaphores, b->p.n_semaphores, sizeof b->semaphores[0]);
    random_records(b->groups, b->p.n_groups, sizeof b->groups[0]);
    random_records(b->trips, b->p.n_trips, sizeof b->trips[0]);
    random_records(b->stages, b->p.n_stages, sizeof b->stages[0]);
    random_records(b->sections, b->p.n_sections, sizeof b->sections[0]);
    for (uint32_t i = 0; i < b->p.n_sites * TW_ENGINE_COUNT; i++) {
        b->site = i / TW_ENGINE_COUNT;
        b->engine = i % TW_ENGINE_COUNT;
        for (uint32_t n = below(8); n > 0; n--) {
            random_op(b);
        }
        if (below(6) == 0) {
            random_words(b);
        }
    }
    if (below(4) == 0) {
        b->streams[below(b->p.n_sites * TW_ENGINE_COUNT)].engine = (uint32_t)any();
    }
    return b;
}

static void random_programs_come_back(void **state) {
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint32_t i = 0; i < 2000; i++) {
        struct pb *b = random_program();
        assert_round_trip(&b->p);
        pb_free(b);
    }
}

static void mutants_of_the_small_program_come_back(void **state) {
    (void)state;
    struct pb *b = small_program();
    for (uint32_t i = 0; i < 2000; i++) {
        struct exact *x = exact_copy(&b->p);
        for (uint32_t n = below(4); n < 4; n++) {
            exact_mutate(x, &seed);
        }
        assert_round_trip(&x->p);
        exact_free(x);
    }
    pb_free(b);
}

static void a_program_without_a_name_or_strings_comes_back(void **state) {
    (void)state;
    struct pb *b = pb_new("", 1, 1);
    pb_group(b, 0, 0, 1, 1);
    pb_semaphore(b, "s", TW_SEM_READY, 0, 0);
    assert_round_trip(&b->p);
    b->p.name = NULL;
    b->p.strings = NULL;
    b->p.strings_bytes = 0;
    assert_round_trip(&b->p);
    pb_free(b);
}

static void a_name_longer_than_any_line_comes_back(void **state) {
    (void)state;
    struct pb *b = pb_new("long", 1, 1);
    uint32_t n = 1u << 20;
    char *strings = malloc(n);
    assert_non_null(strings);
    memset(strings, 'n', n);
    strings[0] = strings[n - 1] = 0;
    strings[n / 2] = '\n';
    pb_buffers(b, "b", TW_BUF_RESIDENT, TW_DT_F32, 1, 64);
    b->p.strings = strings;
    b->p.strings_bytes = n;
    b->buffers[0].name = 1;
    PB_OP(b, RESERVE, pb_id(0), pb_id(1));
    assert_round_trip(&b->p);
    free(strings);
    pb_free(b);
}

/* ---- floats ---- */

static void assert_float(uint32_t bits, const char *expected) {
    char text[32];
    tw_text_float(bits, text);
    if (expected) {
        assert_string_equal(text, expected);
    }
    struct pb *b = pb_new("f", 1, 1);
    b->engine = TW_ENGINE_MATH;
    PB_OP(b, RMS_NORM, pb_on(0, 0), pb_id(4), pb_on(0, 0), pb_on(0, 0), pb_id(4), pb_id(1),
          pb_id(bits), pb_rows(TW_NONE, 1));
    assert_round_trip(&b->p);
    pb_free(b);
}

static void floats_are_short_and_exact(void **state) {
    (void)state;
    assert_float(0x3E800000u, "2.5e-1");
    assert_float(0x3727C5ACu, "1e-5");
    assert_float(0x3F800000u, "1");
    assert_float(0x80000000u, "-0");
    assert_float(0xC2280000u, "-4.2e1");
    assert_float(0x00000001u, "1e-45");
    assert_float(0x7F7FFFFFu, "3.4028235e38");
    assert_float(0x7F800000u, "0x7f800000");
    assert_float(0xFFC00001u, "0xffc00001");
    for (uint32_t i = 0; i < 2000; i++) {
        assert_float((uint32_t)mutate_random(&seed), NULL);
    }
}

static int cleanup(void **state) {
    (void)state;
    model_bundle_cleanup();
    return 0;
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_small_program_comes_back_and_obeys_every_rule),
        cmocka_unit_test(every_byte_of_every_record_belongs_to_a_field),
        cmocka_unit_test(the_programs_of_a_bundle_come_back_for_every_target),
        cmocka_unit_test(what_dump_prints_of_a_stage_comes_back),
        cmocka_unit_test(random_programs_come_back),
        cmocka_unit_test(mutants_of_the_small_program_come_back),
        cmocka_unit_test(a_program_without_a_name_or_strings_comes_back),
        cmocka_unit_test(a_name_longer_than_any_line_comes_back),
        cmocka_unit_test(floats_are_short_and_exact),
    };
    return cmocka_run_group_tests_name("parse_program", tests, NULL, cleanup);
}
