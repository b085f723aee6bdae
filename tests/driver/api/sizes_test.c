/* SPDX-License-Identifier: Apache-2.0
 *
 * Structures that begin with their size, as a caller of the first version has them: the library
 * reads and writes no byte beyond that size. Each is at the very end of a page, before an
 * inaccessible one.
 */
#include "tests/support/model_bundle.h"
#include "tests/support/test.h"
#include "tilewright/compile.h"
#include "tilewright/emulate.h"
#include "tilewright/program.h"

#include <sys/mman.h>
#include <unistd.h>

/* Sizes of the first version, forever: X(struct, bytes, its last field, bytes of that). */
#define FIRST_VERSION(X)                        \
    X(tw_device_info, 344, detail, 160)         \
    X(tw_device_options, 24, memory_bytes, 8)   \
    X(tw_status_info, 568, progress_s, 8)       \
    X(tw_selftest_step, 32, bytes, 8)           \
    X(tw_emulate_options, 80, ctx, 8)           \
    X(tw_decoder_info, 536, origin, 8)          \
    X(tw_program_info, 96, name, 8)             \
    X(tw_segment_info, 24, kind, 8)             \
    X(tw_symbol_info, 48, dtype, 8)             \
    X(tw_token_info, 32, n_text, 8)             \
    X(tw_map_info, 88, last_name, 8)            \
    X(tw_rules_info, 272, checked, 256)         \
    X(tw_session_options, 32, seed, 8)          \
    X(tw_session_info, 56, device, 8)           \
    X(tw_generate_options, 72, stop, 8)         \
    X(tw_generate_result, 40, decode_s, 8)      \
    X(tw_greedy_options, 28, stop, 16)          \
    X(tw_compile_options, 48, ctx, 8)           \
    X(tw_compile_report, 160, prefill_tok_s, 8) \
    X(tw_target_info, 136, name, 64)

enum {
#define X(type, bytes, field, field_bytes) FIRST_##type = bytes,
    FIRST_VERSION(X)
#undef X
};

static void the_fields_of_the_first_version_are_where_they_were(void **state) {
    (void)state;
#define X(type, bytes, field, field_bytes)                                 \
    assert_int_equal(offsetof(struct type, field) + (field_bytes), bytes); \
    assert_int_equal(sizeof(((struct type *)NULL)->field), field_bytes);   \
    assert_true(sizeof(struct type) >= (bytes));
    FIRST_VERSION(X)
#undef X
}

/* ---- a structure at the end of a page ---- */

static uint8_t *page;
static size_t page_bytes;
static struct rig rig;

static int setup(void **state) {
    (void)state;
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    page = mmap(NULL, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || mprotect(page + page_bytes, page_bytes, PROT_NONE)) {
        return -1;
    }
    rig_open(&rig, "host", 1, NULL);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    rig_close(&rig);
    model_bundle_cleanup();
    return munmap(page, 2 * page_bytes);
}

/* Returns a structure of `size` bytes: its first four are the size, the others `fill`. */
static void *place(uint32_t size, int fill) {
    uint8_t *at = page + page_bytes - size;
    memset(at, fill, size);
    memcpy(at, &size, sizeof size);
    return at;
}

/* Returns a structure with the first `size` bytes of `from`. */
static void *place_copy(uint32_t size, const void *from) {
    uint8_t *at = place(size, 0);
    memcpy(at + sizeof size, (const uint8_t *)from + sizeof size, size - sizeof size);
    return at;
}

/* Calls get() with a structure of every size from that of `size` alone up to the whole. Each call
 * must leave the caller's `size` as it was; with the size of the first version the bytes must equal
 * those of the whole structure. */
typedef int (*getter)(void *info);

static void check_info(getter get, uint32_t whole, uint32_t first) {
    uint8_t *all = malloc(whole);
    memset(all, 0, whole);
    memcpy(all, &whole, sizeof whole);
    assert_int_equal(get(all), 0);
    for (uint32_t size = sizeof size; size <= whole; size += 4) {
        uint8_t *info = place(size, 0);
        assert_int_equal(get(info), 0);
        assert_memory_equal(info, &size, sizeof size);
        if (size == first) {
            assert_memory_equal(info + 4, all + 4, size - 4);
        }
    }
    free(all);
}

#define CHECK_INFO(type, get) check_info(get, sizeof(struct type), FIRST_##type)

static int get_device(void *info) {
    return tw_device_get_info(rig.device, info, NULL);
}
static int get_decoder(void *info) {
    return tw_decoder_get_info(rig.decoder, info, NULL);
}
static int get_program(void *info) {
    return tw_decoder_get_program(rig.decoder, 0, info, NULL);
}
static int get_segment(void *info) {
    return tw_decoder_get_segment(rig.decoder, 0, info, NULL);
}
static int get_symbol(void *info) {
    return tw_decoder_get_symbol(rig.decoder, 0, info, NULL);
}
static int get_token(void *info) {
    return tw_decoder_get_token(rig.decoder, 1, info, NULL);
}
static int get_rules(void *info) {
    return tw_decoder_verify(rig.decoder, info, NULL);
}
static int get_text_rules(void *info) {
    return tw_program_file_verify("/nowhere.tws", NULL, NULL, info, NULL, NULL) == TW_E_IO ? 0 : -1;
}
static int get_session(void *info) {
    return tw_session_get_info(rig.session, info, NULL);
}
static int get_target(void *info) {
    return tw_target_get_info("quad2x2", 0, info, NULL);
}

static void an_older_callers_info_is_filled_as_far_as_it_goes(void **state) {
    (void)state;
    CHECK_INFO(tw_device_info, get_device);
    CHECK_INFO(tw_decoder_info, get_decoder);
    CHECK_INFO(tw_program_info, get_program);
    CHECK_INFO(tw_segment_info, get_segment);
    CHECK_INFO(tw_symbol_info, get_symbol);
    CHECK_INFO(tw_token_info, get_token);
    CHECK_INFO(tw_rules_info, get_rules);
    CHECK_INFO(tw_rules_info, get_text_rules);
    CHECK_INFO(tw_session_info, get_session);
    CHECK_INFO(tw_target_info, get_target);
}

/* Times differ from call to call. */
static void an_older_callers_status_is_filled_as_far_as_it_goes(void **state) {
    (void)state;
    for (uint32_t size = sizeof size; size <= sizeof(struct tw_status_info); size += 4) {
        void *info = place(size, 0);
        assert_int_equal(tw_device_get_status(rig.device, info, NULL), 0);
        assert_memory_equal(info, &size, sizeof size);
    }
}

static void an_older_callers_result_is_filled_as_far_as_it_goes(void **state) {
    (void)state;
    const uint32_t prompt[] = {1, 403};
    const struct tw_generate_options o = {.size = sizeof o, .n_predict = 2};
    for (uint32_t size = sizeof size; size <= sizeof(struct tw_generate_result); size += 4) {
        void *result = place(size, 0);
        assert_int_equal(tw_session_rewind(rig.session, 0, NULL), 0);
        assert_int_equal(tw_generate(rig.session, prompt, 2, &o, result, NULL), 0);
        assert_memory_equal(result, &size, sizeof size);
        if (size >= FIRST_tw_generate_result) {
            struct tw_generate_result r; /* the one at the page's end may not be aligned */
            memcpy(&r, result, size);
            assert_int_equal(r.n_prompt, 2);
            assert_int_equal(r.n_generated, 2);
            assert_true(r.decode_s > 0);
        }
    }
}

/* ---- options ---- */

static int count_token(void *ctx, uint32_t id, const float *logits) {
    (void)id;
    (void)logits;
    ++*(uint32_t *)ctx;
    return 0;
}

static void an_older_callers_generate_options_are_read_as_far_as_they_go(void **state) {
    (void)state;
    const uint32_t prompt[] = {1, 403};
    uint32_t n_tokens = 0;
    const struct tw_generate_options o = {
        .size = sizeof o, .n_predict = 3, .on_token = count_token, .ctx = &n_tokens};
    for (uint32_t size = 8; size <= FIRST_tw_generate_options; size += 8) {
        n_tokens = 0;
        bool cut = size > offsetof(struct tw_generate_options, on_token) &&
                   size <= offsetof(struct tw_generate_options, ctx);
        if (cut) { /* no caller's structure ends between a callback and its ctx */
            continue;
        }
        assert_int_equal(tw_session_rewind(rig.session, 0, NULL), 0);
        assert_int_equal(tw_generate(rig.session, prompt, 2, place_copy(size, &o), NULL, NULL), 0);
        assert_int_equal(n_tokens, size > offsetof(struct tw_generate_options, ctx) ? 3 : 0);
    }
}

static void an_older_callers_session_options_are_read_as_far_as_they_go(void **state) {
    (void)state;
    const struct tw_session_options o = {.size = sizeof o, .n_ctx = 40, .chunk = 3};
    for (uint32_t size = sizeof size; size <= FIRST_tw_session_options; size += 4) {
        struct tw_session_info info = {.size = sizeof info};
        tw_session *session;
        assert_int_equal(tw_session_create(rig.deployment, place_copy(size, &o), &session, NULL),
                         0);
        assert_int_equal(tw_session_get_info(session, &info, NULL), 0);
        assert_true((info.n_ctx == 40) == (size >= 8));
        assert_true((info.chunk == 3) == (size >= offsetof(struct tw_session_options, chunk) + 4));
        tw_session_destroy(session);
    }
}

static void an_older_callers_greedy_options_are_read_as_far_as_they_go(void **state) {
    (void)state;
    const struct tw_greedy_options o = {.size = sizeof o, .n = 2};
    for (uint32_t size = 8; size <= FIRST_tw_greedy_options; size += 4) {
        enum tw_stop_reason reason;
        uint32_t tokens[2], n;
        assert_int_equal(tw_session_rewind(rig.session, 0, NULL), 0);
        assert_int_equal(
            tw_session_run_greedy(rig.session, 1, place_copy(size, &o), tokens, &n, &reason, NULL),
            0);
        assert_int_equal(n, 2);
    }
}

static void an_older_callers_device_options_are_read_as_far_as_they_go(void **state) {
    (void)state;
    const struct tw_device_options o = {.size = sizeof o, .n_threads = 1, .isa = "scalar"};
    for (uint32_t size = sizeof size; size <= FIRST_tw_device_options; size += 4) {
        tw_device *device;
        if (size == 12) { /* half a pointer */
            continue;
        }
        assert_int_equal(tw_device_open("null", place_copy(size, &o), &device, NULL), 0);
        tw_device_close(device);
    }
}

/* The options are invalid, but nothing beyond their size is read. */
static void an_older_callers_emulate_options_are_read_as_far_as_they_go(void **state) {
    (void)state;
    const struct tw_emulate_options o = {.size = sizeof o, .path = "x", .target = "nowhere"};
    tw_error err = {0};
    assert_int_equal(tw_emulate(place_copy(FIRST_tw_emulate_options, &o), NULL, &err),
                     TW_E_NO_DEVICE);
    assert_int_equal(tw_emulate(place(8, 0), NULL, &err), TW_E_USAGE);
}

static void an_older_callers_compile_options_are_read_as_far_as_they_go(void **state) {
    (void)state;
    const struct tw_compile_options o = {
        .size = sizeof o, .n_ctx = 64, .prefill_rows = 4, .host_sites = 1, .target = "sim4x4"};
    char out[] = "/tmp/tw-sizes-XXXXXX", key[65], other[65];
    int fd = mkstemp(out);
    struct tw_compile_report *report;
    assert_true(fd >= 0);
    close(fd);
    void *options = place_copy(FIRST_tw_compile_options, &o);
    assert_int_equal(tw_compile_key(SHIPPED_MODEL, options, key, NULL), 0);
    options = place_copy(FIRST_tw_compile_options - 8, &o);
    assert_int_equal(tw_compile_key(SHIPPED_MODEL, options, other, NULL), 0);
    assert_string_equal(key, other); /* without ctx: the same compilation */
    report = place(FIRST_tw_compile_report, 0);
    assert_int_equal(tw_compile_file(SHIPPED_MODEL, out, &o, report, NULL), 0);
    assert_int_equal(report->n_ctx, 64);
    assert_string_equal(report->target, "sim4x4");
    assert_true(report->prefill_tok_s > 0);
    report = place(8, 0);
    assert_int_equal(tw_compile_file(SHIPPED_MODEL, out, &o, report, NULL), 0);
    assert_int_equal(report->n_sites, 16);
    unlink(out);
}

/* ---- what the library gives to callbacks ---- */

static bool check_map(void *ctx, const struct tw_map_info *info) {
    ++*(uint32_t *)ctx;
    assert_int_equal(info->size, sizeof *info);
    return true;
}

static bool check_device(void *ctx, const struct tw_device_info *info) {
    ++*(uint32_t *)ctx;
    assert_int_equal(info->size, sizeof *info);
    return true;
}

static void check_step(void *ctx, const struct tw_selftest_step *step) {
    ++*(uint32_t *)ctx;
    assert_int_equal(step->size, sizeof *step);
}

static void callbacks_get_the_librarys_size(void **state) {
    (void)state;
    uint32_t n[3] = {0};
    assert_int_equal(tw_decoder_map(rig.decoder, 0, 0, check_map, &n[0], NULL), 0);
    assert_int_equal(tw_device_list(check_device, &n[1], NULL), 0);
    assert_int_equal(tw_device_selftest(rig.device, check_step, &n[2], NULL), 0);
    assert_true(n[0] && n[1] && n[2]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fields_of_the_first_version_are_where_they_were),
        cmocka_unit_test(an_older_callers_info_is_filled_as_far_as_it_goes),
        cmocka_unit_test(an_older_callers_status_is_filled_as_far_as_it_goes),
        cmocka_unit_test(an_older_callers_result_is_filled_as_far_as_it_goes),
        cmocka_unit_test(an_older_callers_generate_options_are_read_as_far_as_they_go),
        cmocka_unit_test(an_older_callers_session_options_are_read_as_far_as_they_go),
        cmocka_unit_test(an_older_callers_greedy_options_are_read_as_far_as_they_go),
        cmocka_unit_test(an_older_callers_device_options_are_read_as_far_as_they_go),
        cmocka_unit_test(an_older_callers_emulate_options_are_read_as_far_as_they_go),
        cmocka_unit_test(an_older_callers_compile_options_are_read_as_far_as_they_go),
        cmocka_unit_test(callbacks_get_the_librarys_size),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
