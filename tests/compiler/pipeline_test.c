/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiler as a whole: identical bytes, outputs that cannot be written, options, keys, dumps,
 * the report.
 */
#include "tests/compiler/compile_kit.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const char *const targets[] = {"host", "sim4x4", "grid8x8", "sim4x4x2", "quad2x2"};
#define N_TARGETS (sizeof targets / sizeof *targets)

/* ---- bundles ---- */

static void compiling_twice_gives_identical_bundles(void **state) {
    struct compile_world *w = *state;
    char second[4300];
    snprintf(second, sizeof second, "%s.second", w->out);
    w->options.host_sites = 3;
    for (size_t i = 0; i < N_TARGETS; i++) {
        w->options.target = targets[i];
        must_compile(w, SHIPPED, w->out);
        must_compile(w, SHIPPED, second);
        must_be_equal_files(w->out, second);
    }
    assert_int_equal(files_in(w), 2);
}

static void models_of_many_shapes_become_bundles_that_the_loader_accepts(void **state) {
    struct compile_world *w = *state;
    for (uint64_t seed = 100; seed < 112; seed++) {
        struct random_shape shape = random_shape_of(seed);
        struct tw_bundle b;
        assert_true(save_model(w, shape));
        w->options.target = targets[seed % N_TARGETS];
        w->options.host_sites = 1 + seed % 4;
        must_compile(w, w->model, w->out);
        must_open(w->out, &b);
        assert_int_equal(b.n_programs, 2);
        assert_int_equal(b.note->n_layers, shape.n_layers);
        assert_int_equal(b.note->n_ctx, shape.n_ctx);
        assert_int_equal(b.note->n_vocab, shape.n_vocab);
        assert_non_null(tw_bundle_program(&b, "decode"));
        assert_non_null(strstr(b.plan, "mid rows 1 "));
        assert_non_null(
            strstr(b.origin, ".attention")); /* with its layer's number if types differ */
        assert_non_null(strstr(b.origin, " attention "));
        tw_bundle_close(&b);
    }
}

static void the_report_agrees_with_the_model_and_the_file(void **state) {
    struct compile_world *w = *state;
    struct random_shape s = {.dim = 64,
                             .hidden = 160,
                             .n_layers = 3,
                             .n_heads = 4,
                             .n_kv_heads = 2,
                             .head_dim = 16,
                             .n_vocab = 100,
                             .n_ctx = 200,
                             .dtype = TW_DT_F32};
    struct stat st;
    assert_true(save_model(w, s));
    must_compile(w, w->model, w->out);
    assert_int_equal(stat(w->out, &st), 0);
    uint64_t layer = 2 * 64 + 64 * 64 * 2 + 2 * 32 * 64 + 3 * 160 * 64;
    assert_string_equal(w->report.target, "sim4x4");
    assert_int_equal(w->report.n_sites, 16);
    assert_int_equal(w->report.n_ctx, 200);
    assert_int_equal(w->report.prefill_rows, 128);
    /* the rotation's frequencies do not count */
    assert_int_equal(w->report.n_params, 2 * 64 * 100 + 64 + 3 * layer);
    /* 7 panels of the vocabulary; frequencies */
    assert_int_equal(w->report.param_bytes, 4 * (w->report.n_params + 2 * 64 * 12 + 8));
    assert_int_equal(w->report.state_bytes,
                     3 * 2 * 384 * 32 * 4); /* 200 positions and a chunk of 128, in blocks of 64 */
    assert_int_equal(w->report.bundle_bytes, st.st_size);
    assert_true(w->report.plan_s >= 0 && w->report.emit_s >= 0 &&
                w->report.plan_s + w->report.emit_s < 60);
    assert_true(w->report.decode_cycles > 1000 &&
                w->report.prefill_cycles > w->report.decode_cycles);
    assert_in_range((uint64_t)(w->report.decode_tok_s * (double)w->report.decode_cycles / 1e6), 999,
                    1001);
    assert_true(w->report.prefill_tok_s > w->report.decode_tok_s);
}

static uint64_t last_done, last_total, calls;
static void record_progress(void *ctx, const char *what, uint64_t done, uint64_t total) {
    assert_ptr_equal(ctx, &calls);
    assert_true(*what && done >= last_done && done <= total);
    last_done = done;
    last_total = total;
    calls++;
}

static void progress_ascends_to_the_end(void **state) {
    struct compile_world *w = *state;
    last_done = last_total = calls = 0;
    w->options.progress = record_progress;
    w->options.ctx = &calls;
    must_compile(w, SHIPPED, w->out);
    assert_true(calls > 0 && last_done == last_total && last_total > 1 << 20);
}

/* ---- outputs that cannot be written ---- */

static void an_output_that_cannot_be_created_is_an_error_and_leaves_nothing(void **state) {
    struct compile_world *w = *state;
    char path[4300];
    snprintf(path, sizeof path, "%s/missing/a.twb", w->folder);
    expect_error(w, SHIPPED, path, TW_E_IO, "missing/a.twb");
    expect_error(w, SHIPPED, w->folder, TW_E_IO, "not a regular file");
    expect_error(w, SHIPPED, "/proc/a.twb", TW_E_IO, "/proc/a.twb");
    expect_error(w, SHIPPED, "", TW_E_IO, "");
    assert_int_equal(files_in(w), 0);
}

static void a_folder_without_permission_is_an_error(void **state) {
    struct compile_world *w = *state;
    uid_t user = geteuid();
    assert_true(save_model(w, random_shape_of(7)));
    assert_int_equal(chmod(w->folder, 0555), 0);
    assert_int_equal(chmod(w->model, 0444), 0);
    assert_int_equal(user == 0 ? seteuid(65534) : 0, 0); /* root may write everywhere */
    int rc = compile_to(w, w->model, w->out);
    assert_int_equal(seteuid(user), 0);
    assert_int_equal(chmod(w->folder, 0755), 0);
    assert_int_equal(rc, TW_E_IO);
    assert_non_null(strstr(w->err.message, w->out));
    assert_int_equal(files_in(w), 1);
}

static void a_full_disk_gives_nospace_and_keeps_the_old_output(void **state) {
    struct compile_world *w = *state;
    struct rlimit old, tight;
    static const rlim_t limits[] = {0, 4096, 300000, 1000000, 1700000};
    char kept[4300];
    snprintf(kept, sizeof kept, "%s.kept", w->out);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (uint32_t exists = 0; exists < 2; exists++) {
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            tight = old;
            tight.rlim_cur = limits[i];
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
            int rc = compile_to(w, SHIPPED, w->out);
            setrlimit(RLIMIT_FSIZE, &old);
            assert_int_equal(rc, TW_E_NOSPACE);
            assert_int_equal(files_in(w), exists ? 2 : 0);
        }
        if (exists) {
            must_be_equal_files(w->out, kept);
        }
        must_compile(w, SHIPPED, w->out);
        must_compile(w, SHIPPED, kept);
    }
    signal(SIGXFSZ, SIG_DFL);
}

static void a_failing_model_leaves_an_existing_output_unchanged(void **state) {
    struct compile_world *w = *state;
    const char old[] = "the user's own file";
    size_t size, n;
    uint8_t *bytes = bundle_fixture_read(SHIPPED, &size);
    assert_non_null(bytes);
    assert_int_equal(bundle_fixture_save(w->out, (const uint8_t *)old, sizeof old), 0);
    assert_int_equal(bundle_fixture_save(w->model, bytes, size - 1000), 0);
    free(bytes);
    expect_error(w, w->model, w->out, TW_E_TRUNCATED, w->model);
    expect_error(w, "/nonexistent.gguf", w->out, TW_E_IO, "/nonexistent.gguf");
    w->options.target = "host9";
    expect_error(w, SHIPPED, w->out, TW_E_USAGE, "host9");
    use_target(w, 1, 1, 16384);
    expect_error(w, SHIPPED, w->out, TW_E_PLACEMENT, "target t");
    bytes = bundle_fixture_read(w->out, &n);
    assert_int_equal(n, sizeof old);
    assert_memory_equal(bytes, old, n);
    free(bytes);
    assert_int_equal(files_in(w), 3); /* output, model, target */
}

/* ---- options ---- */

static void a_context_of_one_token_is_possible(void **state) {
    struct compile_world *w = *state;
    struct tw_bundle b;
    w->options.n_ctx = 1;
    for (size_t i = 0; i < N_TARGETS; i++) {
        w->options.target = targets[i];
        must_compile(w, SHIPPED, w->out);
        assert_int_equal(w->report.n_ctx, 1);
        assert_int_equal(w->report.prefill_rows, 1);
        must_open(w->out, &b);
        assert_int_equal(b.note->n_ctx, 1);
        tw_bundle_close(&b);
    }
}

static void the_context_is_the_models_unless_requested(void **state) {
    struct compile_world *w = *state;
    struct random_shape s = {.dim = 8,
                             .hidden = 8,
                             .n_layers = 1,
                             .n_heads = 1,
                             .n_kv_heads = 1,
                             .head_dim = 8,
                             .n_vocab = 8};
    static const uint32_t sizes[][3] = {/* trained, requested, result */ {77, 0, 77},
                                        {2048, 0, 2048},
                                        {131072, 0, 131072},
                                        {77, 5000, 5000},
                                        {16777216, 0, 1 << 20}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        s.n_ctx = sizes[i][0];
        w->options.n_ctx = sizes[i][1];
        assert_true(save_model(w, s));
        must_compile(w, w->model, w->out);
        assert_int_equal(w->report.n_ctx, sizes[i][2]);
    }
}

static void explicit_prefill_rows_are_kept(void **state) {
    struct compile_world *w = *state;
    static const uint32_t rows[] = {1, 2, 5, 100, 128};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tw_bundle b;
        char name[32];
        w->options.prefill_rows = rows[i];
        must_compile(w, SHIPPED, w->out);
        assert_int_equal(w->report.prefill_rows, rows[i]);
        must_open(w->out, &b);
        snprintf(name, sizeof name, "prefill.%u", rows[i]);
        assert_non_null(tw_bundle_program(&b, name));
        assert_int_equal(tw_bundle_program(&b, name)->rows, rows[i]);
        tw_bundle_close(&b);
    }
    w->options.n_ctx = 9; /* limited to the context */
    must_compile(w, SHIPPED, w->out);
    assert_int_equal(w->report.prefill_rows, 9);
}

static void options_out_of_range_are_the_callers_mistake(void **state) {
    struct compile_world *w = *state;
    w->options.prefill_rows = 129;
    expect_error(w, SHIPPED, w->out, TW_E_USAGE, "129 rows");
    w->options.prefill_rows = 0;
    w->options.n_ctx = (1u << 20) + 1;
    expect_error(w, SHIPPED, w->out, TW_E_USAGE, "1048577");
    w->options.n_ctx = 0;
    w->options.tokenizer = "tests/data/README.md";
    expect_error(w, SHIPPED, w->out, TW_E_USAGE, "tokenizer");
    w->options.tokenizer = NULL;
    w->options.quant = "q4_k";
    expect_error(w, SHIPPED, w->out, TW_E_USAGE, "\"q4_k\"; use q8_0, q4_0 or f16");
    w->options.quant = NULL;
    w->options.activations = "f16";
    expect_error(w, SHIPPED, w->out, TW_E_USAGE, "\"f16\" are not possible; use q8 or f32");
    assert_int_equal(files_in(w), 0);
}

static void options_of_an_older_caller_are_completed_with_defaults(void **state) {
    struct compile_world *w = *state;
    w->options.n_ctx = 50;
    w->options.target = "never read";
    w->options.size = offsetof(struct tw_compile_options, prefill_rows);
    must_compile(w, SHIPPED, w->out);
    assert_int_equal(w->report.n_ctx, 50);
    assert_string_equal(w->report.target, "host");
    assert_int_equal(tw_compile_file(SHIPPED, w->out, NULL, NULL, NULL), 0);
}

/* On a small memory 128 rows do not fit; requesting what the search settles on gives the same
 * bundle. */
static void a_prefill_that_does_not_fit_is_halved_unless_requested(void **state) {
    struct compile_world *w = *state;
    char second[4300];
    snprintf(second, sizeof second, "%s.second", w->out);
    use_target(w, 4, 2, 200000);
    must_compile(w, SHIPPED, w->out);
    uint32_t rows = w->report.prefill_rows;
    assert_in_range(rows, 2, 64);
    assert_int_equal(rows & (rows - 1), 0);
    w->options.prefill_rows = rows;
    must_compile(w, SHIPPED, second);
    must_be_equal_files(w->out, second);
    w->options.prefill_rows = 2 * rows;
    expect_error(w, SHIPPED, second, TW_E_PLACEMENT, "target t,");
}

static void check_batches(struct compile_world *w, uint32_t most) {
    struct tw_bundle b;
    must_compile(w, SHIPPED, w->out);
    assert_int_equal(w->report.batch_rows, most);
    must_open(w->out, &b);
    assert_string_equal(b.programs[0].name, "decode"); /* what a prefix finds first */
    for (uint32_t rows = 2; rows <= 32; rows *= 2) {
        char name[32];
        snprintf(name, sizeof name, "decode.%u", rows);
        const struct tw_program *p = tw_bundle_program(&b, name);
        assert_true((p != NULL) == (rows <= most));
        assert_true(!p || p->rows == rows);
    }
    tw_bundle_close(&b);
}

static void batches_are_powers_of_two_up_to_what_is_requested(void **state) {
    struct compile_world *w = *state;
    static const uint32_t rows[][2] = {{0, 0}, {1, 0}, {2, 2}, {3, 4}, {8, 8}, {9, 16}, {16, 16}};
    w->options.target = "host";
    w->options.host_sites = 2;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        w->options.batch_rows = rows[i][0];
        check_batches(w, rows[i][1]);
    }
    w->options.all_logits = 1; /* seven programs */
    check_batches(w, 16);
    w->options.batch_rows = 17;
    expect_error(w, SHIPPED, w->out, TW_E_USAGE, "a batch of 17 rows is too large");
}

static void batches_that_do_not_fit_are_left_out(void **state) {
    struct compile_world *w = *state;
    w->options.batch_rows = 16;
    use_target(w, 4, 2, 80000);
    must_compile(w, SHIPPED, w->out);
    assert_in_range(w->report.batch_rows, 2, 8);
    check_batches(w, w->report.batch_rows);
}

/* A device has room for 1,024 uses of tables: of 20 pairs of layers that differ in the types of
 * their matrices, each with keys and values that are written and read, for 12 rows. */
static void batches_use_no_more_pages_than_a_device_has_room_for(void **state) {
    struct compile_world *w = *state;
    const struct random_shape shape = {.dim = 32,
                                       .hidden = 64,
                                       .n_layers = 40,
                                       .n_heads = 2,
                                       .n_kv_heads = 2,
                                       .head_dim = 16,
                                       .n_vocab = 40,
                                       .n_ctx = 64,
                                       .dtype = TW_DT_F16,
                                       .hollow = true};
    struct random_model m;
    assert_true(random_model_init(&m, &shape));
    for (uint32_t i = 0, layer, at = 0, last = 0; i < m.model.n_tensors; i++) {
        struct tw_model_tensor *t = &m.tensors[i];
        if (sscanf(t->name, "blk.%u.", &layer) == 1 && t->dtype == TW_DT_F16) {
            at = layer == last ? at + 1 : 1; /* of the layer's matrices */
            last = layer;
            t->dtype = layer >> at & 1 ? TW_DT_BF16 : TW_DT_F16;
        }
    }
    assert_true(random_model_save(&m, w->model));
    random_model_finish(&m);
    w->options.target = "host";
    w->options.host_sites = 1;
    w->options.batch_rows = 16;
    must_compile(w, w->model, w->out);
    assert_int_equal(w->report.batch_rows, 8);
}

/* ---- keys ---- */

static void key_of(struct compile_world *w, const char *model, char key[65]) {
    memset(key, 0, 65);
    if (tw_compile_key(model, &w->options, key, &w->err)) {
        fail_msg("%s", w->err.message);
    }
    assert_int_equal(strspn(key, "0123456789abcdef"), 64);
    assert_int_equal(key[64], '\0');
}

static void a_key_depends_on_content_options_and_target_but_not_on_names(void **state) {
    struct compile_world *w = *state;
    char keys[15][65], again[65];
    uint32_t n = 0;
    size_t size;
    uint8_t *bytes = bundle_fixture_read(SHIPPED, &size);
    assert_non_null(bytes);
    key_of(w, SHIPPED, keys[n++]);
    assert_int_equal(bundle_fixture_save(w->model, bytes, size), 0);
    key_of(w, w->model, again);
    assert_string_equal(again, keys[0]);
    bytes[size - 1] ^= 1;
    assert_int_equal(bundle_fixture_save(w->model, bytes, size), 0);
    key_of(w, w->model, keys[n++]);
    assert_int_equal(bundle_fixture_save(w->model, bytes, size - 1), 0);
    key_of(w, w->model, keys[n++]);
    free(bytes);
    w->options.n_ctx = 64;
    key_of(w, SHIPPED, keys[n++]);
    w->options.prefill_rows = 64;
    key_of(w, SHIPPED, keys[n++]);
    w->options.n_ctx = 0;
    key_of(w, SHIPPED, keys[n++]);
    w->options.tokenizer = "tests/data/README.md";
    key_of(w, SHIPPED, keys[n++]);
    w->options.target = "host";
    w->options.host_sites = 3;
    key_of(w, SHIPPED, keys[n++]);
    w->options.host_sites = 4;
    key_of(w, SHIPPED, keys[n++]);
    use_target(w, 4, 4, 524288);
    key_of(w, SHIPPED, keys[n++]);
    w->options.activations = "f32";
    key_of(w, SHIPPED, keys[n++]);
    w->options.batch_rows = 8;
    key_of(w, SHIPPED, keys[n++]);
    for (const char *const *q = (const char *const[]){"q8_0", "q4_0", "f16", NULL}; *q; q++) {
        w->options.quant = *q;
        key_of(w, SHIPPED, keys[n++]);
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = i + 1; k < n; k++) {
            assert_string_not_equal(keys[i], keys[k]);
        }
    }
}

static void a_key_needs_a_readable_model_and_valid_options(void **state) {
    struct compile_world *w = *state;
    char key[65];
    assert_int_equal(tw_compile_key("/nonexistent", &w->options, key, &w->err), TW_E_IO);
    assert_non_null(strstr(w->err.message, "/nonexistent"));
    assert_int_equal(tw_compile_key(w->folder, &w->options, key, &w->err), TW_E_MISSING);
    assert_non_null(strstr(w->err.message, "/config.json"));
    w->options.tokenizer = "/nonexistent.bin";
    assert_int_equal(tw_compile_key(SHIPPED, &w->options, key, &w->err), TW_E_IO);
    w->options.tokenizer = NULL;
    w->options.prefill_rows = 1000;
    assert_int_equal(tw_compile_key(SHIPPED, &w->options, key, &w->err), TW_E_USAGE);
    w->options.prefill_rows = 0;
    w->options.target = "nothing";
    assert_int_equal(tw_compile_key(SHIPPED, &w->options, key, &w->err), TW_E_USAGE);
}

/* Writes a llama2.c checkpoint of six tokens and, unless `letter` is 0, a tokenizer file whose
 * tokens begin with it. */
static void save_checkpoint(const struct compile_world *w, char letter) {
    static const int32_t header[7] = {4, 4, 1, 2, 1, 6, 8};
    uint8_t file[sizeof header + 148 * sizeof(float)] = {0}, tokens[4 + 6 * 9] = {1};
    char path[4300];
    memcpy(file, header, sizeof header);
    assert_int_equal(bundle_fixture_save(w->model, file, sizeof file), 0);
    for (uint32_t i = 0; i < 6; i++) {
        tokens[4 + 9 * i + 4] = 1;
        tokens[4 + 9 * i + 8] = (uint8_t)(letter + (int)i);
    }
    snprintf(path, sizeof path, "%s/tokenizer.bin", w->folder);
    assert_int_equal(letter ? bundle_fixture_save(path, tokens, sizeof tokens) : 0, 0);
}

static void a_tokenizer_next_to_a_checkpoint_is_part_of_its_key(void **state) {
    struct compile_world *w = *state;
    char none[65], first[65], second[65], again[65];
    save_checkpoint(w, 0);
    key_of(w, w->model, none);
    save_checkpoint(w, 'a');
    key_of(w, w->model, first);
    must_compile(w, w->model, w->out);
    save_checkpoint(w, 'b');
    key_of(w, w->model, second);
    save_checkpoint(w, 'a');
    key_of(w, w->model, again);
    assert_string_not_equal(none, first);
    assert_string_not_equal(none, second);
    assert_string_not_equal(first, second);
    assert_string_equal(first, again);
}

/* The key of a large file depends on its size and on samples of all of it. */
static void a_key_of_a_large_file_samples_all_of_it(void **state) {
    struct compile_world *w = *state;
    char first[65], second[65];
    FILE *f = fopen(w->model, "wb");
    assert_non_null(f);
    assert_int_equal(ftruncate(fileno(f), 100 << 20), 0);
    fclose(f);
    key_of(w, w->model, first);
    key_of(w, w->model, second);
    assert_string_equal(first, second);
    assert_int_equal(truncate(w->model, (100 << 20) - 1), 0);
    key_of(w, w->model, second);
    assert_string_not_equal(first, second);
}

/* ---- dumps ---- */

static char *dump(struct compile_world *w, const char *stage) {
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    int rc = tw_compile_dump(SHIPPED, stage, &w->options, f, &w->err);
    assert_int_equal(fclose(f), 0);
    if (rc) {
        fail_msg("%s", w->err.message);
    }
    return text;
}

static void every_stage_prints_the_same_text_each_time(void **state) {
    struct compile_world *w = *state;
    static const char *const stages[][2] = {{"graph", "region layer repeat"},
                                            {"mid", "mid rows 128 target"},
                                            {"low", "low layer rows 128"},
                                            {"section", "layer.attention"},
                                            {"program", "prefill.128"}};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        char *a = dump(w, stages[i][0]), *b = dump(w, stages[i][0]);
        assert_true(strlen(a) > 1000);
        assert_non_null(strstr(a, stages[i][1]));
        assert_string_equal(a, b);
        free(a);
        free(b);
    }
}

static void an_unknown_stage_is_refused_with_the_list(void **state) {
    struct compile_world *w = *state;
    static const char *const bad[] = {"", "Graph", "sections", "all"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tw_compile_dump(SHIPPED, bad[i], &w->options, stderr, &w->err),
                         TW_E_USAGE);
        assert_non_null(strstr(w->err.message, "graph, mid, low, section, program"));
    }
    w->options.target = "moon";
    assert_int_equal(tw_compile_dump(SHIPPED, "mid", &w->options, stderr, &w->err), TW_E_USAGE);
    assert_non_null(strstr(w->err.message, "moon"));
}

#define world_test(f) cmocka_unit_test_setup_teardown(f, compile_setup, compile_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        world_test(compiling_twice_gives_identical_bundles),
        world_test(models_of_many_shapes_become_bundles_that_the_loader_accepts),
        world_test(the_report_agrees_with_the_model_and_the_file),
        world_test(progress_ascends_to_the_end),
        world_test(an_output_that_cannot_be_created_is_an_error_and_leaves_nothing),
        world_test(a_folder_without_permission_is_an_error),
        world_test(a_full_disk_gives_nospace_and_keeps_the_old_output),
        world_test(a_failing_model_leaves_an_existing_output_unchanged),
        world_test(a_context_of_one_token_is_possible),
        world_test(the_context_is_the_models_unless_requested),
        world_test(explicit_prefill_rows_are_kept),
        world_test(options_out_of_range_are_the_callers_mistake),
        world_test(options_of_an_older_caller_are_completed_with_defaults),
        world_test(batches_are_powers_of_two_up_to_what_is_requested),
        world_test(batches_that_do_not_fit_are_left_out),
        world_test(batches_use_no_more_pages_than_a_device_has_room_for),
        world_test(a_prefill_that_does_not_fit_is_halved_unless_requested),
        world_test(a_key_depends_on_content_options_and_target_but_not_on_names),
        world_test(a_key_needs_a_readable_model_and_valid_options),
        world_test(a_tokenizer_next_to_a_checkpoint_is_part_of_its_key),
        world_test(a_key_of_a_large_file_samples_all_of_it),
        world_test(every_stage_prints_the_same_text_each_time),
        world_test(an_unknown_stage_is_refused_with_the_list),
    };
    return cmocka_run_group_tests_name("compile", tests, NULL, NULL);
}
