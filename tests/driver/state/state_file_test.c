/* SPDX-License-Identifier: Apache-2.0
 *
 * Saved states: what is saved comes back, a turn is appended, sizes are what was promised, and
 * files that are not ours, or not a state, are left alone.
 */
#include "tests/driver/state/state_kit.h"
#include "tilewright/state.h"

#include <pthread.h>

static struct saved_sequence s, other;

static void fails(int code, int expected, const tw_error *err, const char *word) {
    assert_int_equal(code, expected);
    assert_int_equal(err->code, expected);
    if (!strstr(err->message, word)) {
        fail_msg("\"%s\" does not contain \"%s\"", err->message, word);
    }
}

static int save(struct saved_sequence *x, tw_error *err) {
    struct tw_saved_source source = saved_sequence_source(x);
    struct tw_saved_result result;
    return tw_saved_write(kit_path, &x->schema, x->tokens, x->n, &source, NULL, &result, err);
}

/* ---- round trips ---- */

static void what_is_saved_comes_back(void **state) {
    static const uint32_t lengths[] = {1, 63, 64, 65, 128, 200, 1000};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        saved_sequence_init(&s, 3, 200);
        saved_sequence_feed(&s, 0, lengths[i], 7);
        unlink(kit_path);
        struct tw_saved_result r = kit_save(&s);
        assert_false(r.appended);
        assert_int_equal(r.n_slots, (lengths[i] + 63) / 64);
        assert_int_equal(s.pages_read, r.n_slots * 6);
        assert_int_equal(r.file_bytes, kit_size());
        assert_int_equal(r.written_bytes, r.file_bytes);
        kit_expect(&s);
    }
}

static void ids_of_every_width_come_back(void **state) {
    static const uint32_t vocabularies[] = {1,     2,      255,     256,      257,      65536,
                                            65537, 151936, 1 << 24, 16777217, INT32_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++) {
        saved_sequence_init(&s, 1, 64);
        s.schema.n_vocab = vocabularies[i];
        assert_int_equal(tw_saved_sizes_of(&s.schema, &s.sizes, NULL), 0);
        saved_sequence_feed(&s, 0, 100, 3);
        s.tokens[50] = vocabularies[i] - 1;
        unlink(kit_path);
        kit_save(&s);
        kit_expect(&s);
    }
}

static void memory_holds_what_a_file_does(void **state) {
    uint64_t n = 0, again = 0;
    size_t n_file;
    tw_error err = {0};
    tw_saved *file;
    (void)state;
    saved_sequence_init(&s, 3, 200);
    saved_sequence_feed(&s, 0, 150, 9);
    struct tw_saved_source source = saved_sequence_source(&s);
    assert_int_equal(tw_saved_write_memory(&s.schema, s.tokens, s.n, &source, NULL, 0, &n, &err),
                     0);
    uint8_t *bytes = calloc(1, n);
    assert_non_null(bytes);
    assert_int_equal(
        tw_saved_write_memory(&s.schema, s.tokens, s.n, &source, bytes, n - 1, &again, &err), 0);
    assert_int_equal(again, n);
    assert_int_equal(bytes[0], 0); /* not enough: nothing is written */
    assert_int_equal(
        tw_saved_write_memory(&s.schema, s.tokens, s.n, &source, bytes, n, &again, &err), 0);
    assert_int_equal(tw_saved_open_memory(bytes, n, &s.schema, TW_SAVED_WHOLE, &file, &err), 0);
    assert_true(saved_sequence_equal(&s, file));
    tw_saved_close(file);
    unlink(kit_path);
    kit_save(&s);
    uint8_t *in_file = kit_read(&n_file);
    assert_int_equal(n, n_file);
    assert_memory_equal(bytes + 1024, in_file + 1024, n - 1024); /* the commits have the time */
    free(in_file);
    free(bytes);
}

static void large_pages_and_many_small_ones_come_back(void **state) {
    (void)state;
    saved_sequence_init(&s, 1, 0x180008); /* larger than what is written at once */
    saved_sequence_feed(&s, 0, 70, 1);
    unlink(kit_path);
    kit_save(&s);
    kit_expect(&s);
    saved_sequence_init(&s, 700, 12);
    saved_sequence_feed(&s, 0, 200, 2);
    kit_save(&s);
    kit_expect(&s);
}

/* ---- sizes ---- */

/* The caches of a model of 110 million weights, and of one of 260 thousand. */
static void a_file_has_its_pages_and_half_a_percent(void **state) {
    static const uint8_t page[98304];
    static const uint32_t shapes[][3] = {{12, 98304, 32000}, {5, 4096, 512}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        saved_sequence_init(&s, shapes[i][0], shapes[i][1]);
        s.schema.n_vocab = shapes[i][2];
        s.in_place = page;
        saved_sequence_feed(&s, 0, 1000, 1);
        unlink(kit_path);
        struct tw_saved_result r = kit_save(&s);
        uint64_t raw = 16ull * 2 * shapes[i][0] * shapes[i][1];
        assert_in_range(r.file_bytes, raw, raw + raw / 200 + 1400);
        assert_in_range(r.file_bytes - raw, 0, i == 0 ? raw / 1000 : raw / 150);
    }
}

static void a_turn_is_appended_and_nothing_else(void **state) {
    (void)state;
    saved_sequence_init(&s, 4, 1000);
    saved_sequence_feed(&s, 0, 500, 1); /* 7 slots and 52 positions */
    unlink(kit_path);
    uint64_t before = kit_save(&s).file_bytes;
    s.pages_read = 0;
    saved_sequence_feed(&s, 500, 600, 2); /* 9 slots and 24 positions */
    struct tw_saved_result r = kit_save(&s);
    assert_true(r.appended);
    assert_int_equal(r.n_slots, 3); /* the incomplete one again, and two more */
    assert_int_equal(s.pages_read, 3 * 8);
    assert_int_equal(r.file_bytes - before, 3 * s.sizes.cell_bytes);
    assert_int_equal(r.written_bytes, 3 * s.sizes.cell_bytes + 2 * sizeof(struct tw_saved_commit));
    assert_int_equal(r.file_bytes, kit_size());
    kit_expect(&s);
}

static void saving_the_same_again_writes_nothing(void **state) {
    size_t n, again;
    (void)state;
    uint8_t *before = kit_read(&n);
    s.pages_read = 0;
    struct tw_saved_result r = kit_save(&s);
    assert_true(r.appended);
    assert_int_equal(r.written_bytes, 0);
    assert_int_equal(r.n_slots, 0);
    assert_int_equal(s.pages_read, 0);
    uint8_t *after = kit_read(&again);
    assert_int_equal(again, n);
    assert_memory_equal(after, before, n);
    free(after);
    free(before);
}

static void many_turns_cost_one_cell_at_most(void **state) {
    uint32_t n = 0, seed = 1;
    (void)state;
    saved_sequence_init(&s, 2, 100);
    unlink(kit_path);
    for (uint32_t turn = 0; turn < 60; turn++) {
        seed = seed * 1664525u + 1013904223u;
        n += 1 + (seed >> 16) % 60 + (turn % 7 == 0 ? 64 - n % 64 : 0);
        saved_sequence_feed(&s, s.n, n, turn);
        struct tw_saved_result r = kit_save(&s);
        uint64_t slots = (n + 63) / 64;
        assert_true(r.appended == (turn > 0));
        assert_in_range(r.file_bytes, s.sizes.first_cell + slots * s.sizes.cell_bytes,
                        s.sizes.first_cell + (slots + 1) * s.sizes.cell_bytes);
        assert_int_equal(r.file_bytes, kit_size());
        kit_expect(&s);
    }
}

/* ---- what is replaced, and what is not ---- */

static void another_sequence_replaces_the_file(void **state) {
    (void)state;
    saved_sequence_init(&s, 2, 100);
    saved_sequence_feed(&s, 0, 300, 1);
    unlink(kit_path);
    kit_save(&s);
    other = s;
    saved_sequence_feed(&other, 299, 310, 2); /* another last token */
    assert_int_not_equal(other.tokens[299], s.tokens[299]);
    assert_false(kit_save(&other).appended);
    kit_expect(&other);
    other.n = 290; /* rewound */
    assert_false(kit_save(&other).appended);
    kit_expect(&other);
    other.schema.identity[5] ^= 1;
    assert_false(kit_save(&other).appended);
    kit_expect(&other);
    assert_int_equal(kit_files(), 1);
}

static void a_damaged_state_and_an_empty_file_are_replaced(void **state) {
    size_t n;
    (void)state;
    uint8_t *bytes = kit_read(&n);
    bytes[1100] ^= 1;
    kit_write(bytes, n);
    assert_false(kit_save(&s).appended);
    kit_expect(&s);
    kit_write(bytes, 700);
    assert_false(kit_save(&s).appended);
    kit_expect(&s);
    kit_write("", 0);
    assert_false(kit_save(&s).appended);
    kit_expect(&s);
    free(bytes);
}

static void what_is_not_a_state_is_not_replaced(void **state) {
    static const char text[] = "My thesis, the only copy. TWSTATE\n";
    tw_error err = {0};
    size_t n;
    (void)state;
    kit_write(text, sizeof text);
    fails(save(&s, &err), TW_E_USAGE, &err, "is not a saved state");
    uint8_t *bytes = kit_read(&n);
    assert_int_equal(n, sizeof text);
    assert_memory_equal(bytes, text, n);
    free(bytes);
    fails(tw_state_file_remove(kit_path, &err), TW_E_FORMAT, &err, "not a saved state");
    assert_int_equal(kit_size(), sizeof text);
    unlink(kit_path);
    assert_int_equal(mkdir(kit_path, 0700), 0);
    fails(save(&s, &err), TW_E_IO, &err, kit_path);
    rmdir(kit_path);
}

static void wrong_arguments_are_refused(void **state) {
    tw_error err = {0};
    (void)state;
    saved_sequence_init(&other, 1, 64);
    saved_sequence_feed(&other, 0, 10, 1);
    other.tokens[7] = 512;
    fails(save(&other, &err), TW_E_USAGE, &err, "position 7: token 512");
    other.n = 0;
    fails(save(&other, &err), TW_E_USAGE, &err, "0 tokens");
    other.n = 1;
    other.schema.n_tensors = 33;
    fails(save(&other, &err), TW_E_USAGE, &err, "cannot save");
    assert_int_equal(kit_files(), 0);
}

static void a_source_that_fails_fails_the_save(void **state) {
    tw_error err = {0};
    (void)state;
    saved_sequence_init(&s, 2, 100);
    saved_sequence_feed(&s, 0, 100, 1);
    s.fail_at = 5;
    fails(save(&s, &err), TW_E_DEVICE_LOST, &err, "lost");
    assert_int_equal(kit_files(), 0);
    s.fail_at = 0;
    kit_save(&s);
    other = s;
    saved_sequence_feed(&other, 100, 300, 1);
    other.pages_read = 0;
    other.fail_at = 9;
    fails(save(&other, &err), TW_E_DEVICE_LOST, &err, "lost");
    kit_expect(&s);
    assert_int_equal(kit_size(), s.sizes.first_cell + 2 * s.sizes.cell_bytes);
}

/* ---- permissions ---- */

static void a_state_is_this_users(void **state) {
    struct stat st;
    tw_error err = {0};
    tw_saved *file;
    char link[128];
    (void)state;
    mode_t mask = umask(0);
    unlink(kit_path);
    kit_save(&s);
    umask(mask);
    assert_int_equal(stat(kit_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    snprintf(link, sizeof link, "%s/link", kit_folder);
    assert_int_equal(symlink(kit_path, link), 0);
    fails(tw_saved_open(link, NULL, TW_SAVED_HEAD, &file, &err), TW_E_IO, &err, "symbolic link");
    struct tw_saved_source source = saved_sequence_source(&s);
    struct tw_saved_result r;
    fails(tw_saved_write(link, &s.schema, s.tokens, s.n, &source, NULL, &r, &err), TW_E_IO, &err,
          "symbolic link");
    unlink(link);
    assert_int_equal(chmod(kit_path, 0660), 0);
    fails(tw_saved_open(kit_path, NULL, TW_SAVED_HEAD, &file, &err), TW_E_IO, &err, "chmod go-w");
    assert_int_equal(chmod(kit_path, 0600), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(kit_path, 54321, 54321), 0);
        fails(tw_saved_open(kit_path, NULL, TW_SAVED_HEAD, &file, &err), TW_E_IO, &err,
              "belongs to user 54321");
        fails(save(&s, &err), TW_E_IO, &err, "belongs to user 54321");
        fails(tw_state_file_remove(kit_path, &err), TW_E_IO, &err, "belongs to user 54321");
        assert_int_equal(chown(kit_path, 0, 0), 0);
    }
    kit_expect(&s);
}

/* ---- other processes ---- */

static void *append_turns(void *ctx) {
    (void)ctx;
    for (uint32_t turn = 0; turn < 20; turn++) {
        saved_sequence_feed(&s, s.n, s.n + 40, turn);
        kit_save(&s);
    }
    return NULL;
}

static void a_reader_sees_one_save_or_the_next(void **state) {
    pthread_t thread;
    uint32_t last = 0;
    (void)state;
    saved_sequence_init(&s, 2, 3000);
    saved_sequence_feed(&s, 0, 1, 1);
    unlink(kit_path);
    kit_save(&s);
    assert_int_equal(pthread_create(&thread, NULL, append_turns, NULL), 0);
    while (last < 801) {
        tw_saved *file;
        tw_error err = {0};
        if (tw_saved_open(kit_path, NULL, TW_SAVED_WHOLE, &file, &err) != 0) {
            fail_msg("%s", err.message);
        }
        uint32_t n = tw_saved_commit_of(file)->n_tokens;
        assert_true(n >= last && n % 40 == 1);
        last = n;
        tw_saved_close(file);
        usleep(200);
    }
    pthread_join(thread, NULL);
}

static void *append_turn(void *ctx) {
    (void)ctx;
    kit_save(&s);
    return NULL;
}

/* Whoever reads the file keeps writers from the cells that it reads. */
static void a_save_waits_for_a_reader(void **state) {
    pthread_t thread;
    tw_saved *file;
    tw_error err = {0};
    (void)state;
    other = s;
    assert_int_equal(tw_saved_open(kit_path, NULL, TW_SAVED_WHOLE, &file, &err), 0);
    saved_sequence_feed(&s, s.n, s.n + 300, 5);
    uint64_t before = kit_size();
    assert_int_equal(pthread_create(&thread, NULL, append_turn, NULL), 0);
    usleep(50000);
    assert_int_equal(kit_size(), before);
    assert_true(saved_sequence_equal(&other, file));
    tw_saved_close(file);
    pthread_join(thread, NULL);
    kit_expect(&s);
}

static void a_file_that_changes_after_it_was_opened_is_noticed(void **state) {
    tw_saved *file;
    tw_error err = {0};
    struct tw_saved_sink sink;
    (void)state;
    saved_sequence_init(&s, 2, 3000);
    saved_sequence_feed(&s, 0, 200, 1);
    unlink(kit_path);
    kit_save(&s);
    assert_int_equal(tw_saved_open(kit_path, NULL, TW_SAVED_WHOLE, &file, &err), 0);
    int fd = open(kit_path, O_RDWR);
    assert_int_equal(pwrite(fd, "x", 1, (off_t)(s.sizes.first_cell + 1)), 1);
    assert_false(saved_sequence_equal(&s, file));
    sink = (struct tw_saved_sink){NULL, NULL, NULL};
    fails(tw_saved_read(file, &sink, &err), TW_E_HASH, &err,
          "keys of layer 0, positions 0 to 63: damaged");
    assert_int_equal(ftruncate(fd, 2000), 0);
    fails(tw_saved_read(file, &sink, &err), TW_E_TRUNCATED, &err, "byte 2000");
    close(fd);
    tw_saved_close(file);
    unlink(kit_path);
}

/* Large states are checked by two threads. */
static void the_first_damage_is_reported(void **state) {
    static const uint32_t slots[][2] = {{9, 9}, {1, 9}, {9, 1}};
    tw_error err = {0};
    tw_saved *file;
    char expected[64];
    (void)state;
    saved_sequence_init(&s, 12, 98304);
    saved_sequence_feed(&s, 0, 640, 1);
    s.in_place = calloc(1, 98304);
    assert_non_null(s.in_place);
    for (size_t i = 0; i < 3; i++) {
        unlink(kit_path);
        kit_save(&s);
        kit_expect(&s);
        int fd = open(kit_path, O_RDWR);
        for (uint32_t k = 0; k < 2; k++) {
            off_t at = (off_t)(s.sizes.first_cell + slots[i][k] * s.sizes.cell_bytes + 12345);
            assert_int_equal(pwrite(fd, "x", 1, at), 1);
        }
        close(fd);
        uint32_t first = slots[i][0] < slots[i][1] ? slots[i][0] : slots[i][1];
        snprintf(expected, sizeof expected, "positions %u to %u: damaged", first * 64,
                 first * 64 + 63);
        fails(tw_saved_open(kit_path, &s.schema, TW_SAVED_WHOLE, &file, &err), TW_E_HASH, &err,
              expected);
    }
    free((void *)(uintptr_t)s.in_place);
    unlink(kit_path);
}

/* A sink may say where a page is to be read to. */
struct memory {
    uint8_t *pages;
    uint32_t n;
};

static void *place(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance) {
    struct memory *m = ctx;
    return instance == 1 ? NULL : m->pages + ((slot * 2 + tensor) * 3 + instance) * 200;
}

static int placed(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance, const void *bytes,
                  tw_error *err) {
    struct memory *m = ctx;
    uint8_t expected[200];
    (void)err;
    saved_sequence_page(&s, slot, tensor, instance, expected);
    assert_memory_equal(bytes, expected, sizeof expected);
    assert_true(instance == 1 || bytes == place(ctx, slot, tensor, instance));
    m->n++;
    return 0;
}

static void pages_are_read_to_their_place(void **state) {
    tw_error err = {0};
    tw_saved *file;
    (void)state;
    saved_sequence_init(&s, 3, 200);
    saved_sequence_feed(&s, 0, 200, 1);
    kit_save(&s);
    struct memory m = {calloc(24, 200), 0};
    struct tw_saved_sink sink = {placed, &m, place};
    assert_non_null(m.pages);
    assert_int_equal(tw_saved_open(kit_path, &s.schema, TW_SAVED_INDEX, &file, &err), 0);
    assert_int_equal(tw_saved_read(file, &sink, &err), 0);
    assert_int_equal(m.n, 24);
    tw_saved_close(file);
    free(m.pages);
    unlink(kit_path);
}

/* ---- the public functions ---- */

static void a_file_is_described(void **state) {
    struct tw_state_info info = {.size = sizeof info};
    tw_error err = {0};
    (void)state;
    saved_sequence_init(&s, 3, 200);
    saved_sequence_feed(&s, 0, 100, 1);
    strcpy(s.schema.model, "bad\x1b[2Jname");
    kit_save(&s);
    saved_sequence_feed(&s, 100, 200, 1);
    kit_save(&s);
    assert_int_equal(tw_state_file_info(kit_path, TW_STATE_FILE_CHECK, &info, &err), 0);
    assert_int_equal(info.version, 1);
    assert_int_equal(info.n_tokens, 200);
    assert_int_equal(info.n_slots, 4);
    assert_int_equal(info.n_pages, 24);
    assert_int_equal(info.pages_bytes, 24 * 200);
    assert_int_equal(info.file_bytes, kit_size());
    assert_int_equal(info.saves, 2);
    assert_true(info.saved_ns > 1600000000ull * 1000000000u);
    assert_string_equal(info.kv, "f16");
    assert_null(strchr(info.model, 27));
    assert_memory_equal(info.model_hash, s.schema.identity, 32);
    assert_int_equal(tw_state_file_info(kit_path, 2, &info, &err), TW_E_USAGE);
    size_t n;
    uint8_t *bytes = kit_read(&n);
    bytes[n - 2] ^= 4; /* in the last tail */
    kit_write(bytes, n);
    free(bytes);
    assert_int_equal(tw_state_file_info(kit_path, 0, &info, &err), 0); /* the head is whole */
    fails(tw_state_file_info(kit_path, TW_STATE_FILE_CHECK, &info, &err), TW_E_HASH, &err,
          "damaged");
    assert_int_equal(tw_state_file_remove(kit_path, &err), 0); /* a damaged one, too */
    assert_int_equal(kit_files(), 0);
    fails(tw_state_file_info(kit_path, 0, &info, &err), TW_E_IO, &err, "No such file");
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_comes_back),
        cmocka_unit_test(ids_of_every_width_come_back),
        cmocka_unit_test(memory_holds_what_a_file_does),
        cmocka_unit_test(large_pages_and_many_small_ones_come_back),
        cmocka_unit_test(a_file_has_its_pages_and_half_a_percent),
        cmocka_unit_test(a_turn_is_appended_and_nothing_else),
        cmocka_unit_test(saving_the_same_again_writes_nothing),
        cmocka_unit_test(many_turns_cost_one_cell_at_most),
        cmocka_unit_test(another_sequence_replaces_the_file),
        cmocka_unit_test(a_damaged_state_and_an_empty_file_are_replaced),
        cmocka_unit_test(what_is_not_a_state_is_not_replaced),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_source_that_fails_fails_the_save),
        cmocka_unit_test(a_state_is_this_users),
        cmocka_unit_test(a_reader_sees_one_save_or_the_next),
        cmocka_unit_test(a_save_waits_for_a_reader),
        cmocka_unit_test(a_file_that_changes_after_it_was_opened_is_noticed),
        cmocka_unit_test(the_first_damage_is_reported),
        cmocka_unit_test(pages_are_read_to_their_place),
        cmocka_unit_test(a_file_is_described),
    };
    return cmocka_run_group_tests_name("state_file", tests, kit_begin, kit_end);
}
