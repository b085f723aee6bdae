/* SPDX-License-Identifier: Apache-2.0
 *
 * Split models: whichever part is given, the whole is that of the single file; parts that are
 * missing, of another model or under another name are refused by name.
 */
#include "compiler/import/gguf_split.h"
#include "compiler/import/model.h"
#include "tests/compiler/import_kit.h"
#include "tests/support/test.h"
#include "tilewright/compile.h"

#include <sys/stat.h>
#include <unistd.h>

enum { PARTS = 3, PATH_BYTES = 256 };

struct world {
    char folder[64], single[PATH_BYTES], part[PARTS][PATH_BYTES];
};

static void save(struct kit *k, const char *path) {
    kit_write(k);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(k->file, 1, k->size, f), k->size);
    assert_int_equal(fclose(f), 0);
}

/* Fills `k` with part `number` of `count`: every third tensor, and all other keys in the first
 * alone. */
static void make_part(struct kit *k, unsigned number, unsigned count) {
    kit_free(k);
    kit_llama(k);
    size_t total = k->n_tensors, n = 0;
    if (number > 0) {
        k->n_kv = 0;
    }
    for (size_t i = 0; i < total; i++) {
        if (i % PARTS == number) {
            k->tensors[n++] = k->tensors[i];
        }
    }
    k->n_tensors = n;
    kit_int(k, "split.no", 2, number);
    kit_int(k, "split.count", 2, count);
    kit_int(k, "split.tensors.count", 5, (int64_t)total);
}

static void write_part(const struct world *w, unsigned number) {
    struct kit k = {0};
    make_part(&k, number, PARTS);
    save(&k, w->part[number]);
    kit_free(&k);
}

static int set_up(void **state) {
    struct world *w = calloc(1, sizeof *w);
    struct kit k = {0};
    *state = w;
    strcpy(w->folder, "/tmp/tw-split-XXXXXX");
    if (!mkdtemp(w->folder)) {
        return -1;
    }
    snprintf(w->single, PATH_BYTES, "%s/single.gguf", w->folder);
    kit_llama(&k);
    save(&k, w->single);
    kit_free(&k);
    for (unsigned i = 0; i < PARTS; i++) {
        snprintf(w->part[i], PATH_BYTES, "%s/m-%05u-of-%05u.gguf", w->folder, i + 1, PARTS);
        write_part(w, i);
    }
    return 0;
}

static int tear_down(void **state) {
    struct world *w = *state;
    for (unsigned i = 0; i < PARTS; i++) {
        unlink(w->part[i]);
    }
    unlink(w->single);
    int rc = rmdir(w->folder);
    free(w);
    return rc;
}

static void refuse(const char *path, int code, const char *file, const char *text) {
    struct tw_model m;
    tw_error err = {0};
    int rc = tw_model_open(path, NULL, &m, &err);
    if (rc != code || !strstr(err.message, file) || !strstr(err.message, text)) {
        fail_msg("code %d, \"%s\"; expected %d, \"%s\" and \"%s\"", rc, err.message, code, file,
                 text);
    }
    tw_model_close(&m);
}

static void names_of_parts_are_recognised(void **state) {
    (void)state;
    static const struct {
        const char *path;
        uint32_t count, number;
    } cases[] = {{"/a/b-00002-of-00005.gguf", 5, 2},
                 {"b-99999-of-99999.gguf", 99999, 99999},
                 {"-00001-of-00002.gguf", 0, 0},
                 {"b-00000-of-00005.gguf", 0, 0},
                 {"b-00006-of-00005.gguf", 0, 0},
                 {"b-0002-of-00005.gguf", 0, 0},
                 {"b-00002-of-00005.bin", 0, 0},
                 {"b-00002-of-0000x.gguf", 0, 0},
                 {"b.gguf", 0, 0},
                 {"", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t number = 0, count = tw_split_name(cases[i].path, &number);
        assert_int_equal(count, cases[i].count);
        assert_true(count == 0 || number == cases[i].number);
    }
}

static void any_part_opens_the_whole_model(void **state) {
    const struct world *w = *state;
    struct tw_model single, split;
    tw_error err = {0};
    assert_int_equal(tw_model_open(w->single, NULL, &single, &err), 0);
    for (unsigned i = 0; i < PARTS; i++) {
        if (tw_model_open(w->part[i], NULL, &split, &err)) {
            fail_msg("%s", err.message);
        }
        assert_int_equal(split.n_tensors, single.n_tensors);
        assert_string_equal(split.name, "kit");
        assert_int_equal(split.vocab_bytes, single.vocab_bytes);
        for (uint32_t t = 0; t < single.n_tensors; t++) {
            uint8_t a[8192], b[8192];
            const struct tw_model_tensor *x = &single.tensors[t], *y = &split.tensors[t];
            assert_string_equal(x->name, y->name);
            assert_int_equal(x->bytes, y->bytes);
            assert_true(x->bytes <= sizeof a);
            assert_int_equal(tw_model_read(x, 0, a, x->bytes, &err), 0);
            assert_int_equal(tw_model_read(y, 0, b, y->bytes, &err), 0);
            assert_memory_equal(a, b, x->bytes);
        }
        tw_model_close(&split);
    }
    tw_model_close(&single);
}

static void the_bundle_and_the_key_are_those_of_the_model_not_of_the_part(void **state) {
    const struct world *w = *state;
    char key[PARTS][65], changed[65];
    const struct tw_compile_options o = {.size = sizeof o, .host_sites = 1};
    for (unsigned i = 0; i < PARTS; i++) {
        assert_int_equal(tw_compile_key(w->part[i], &o, key[i], NULL), 0);
        assert_string_equal(key[i], key[0]);
    }
    struct kit k = {0};
    make_part(&k, 2, PARTS);
    k.tensors[0].data = calloc(1, k.tensors[0].bytes);
    save(&k, w->part[2]);
    assert_int_equal(tw_compile_key(w->part[0], &o, changed, NULL), 0);
    assert_string_not_equal(changed, key[0]);
    free((void *)(uintptr_t)k.tensors[0].data);
    kit_free(&k);
    write_part(w, 2);
}

static void a_missing_part_is_named(void **state) {
    const struct world *w = *state;
    unlink(w->part[1]);
    refuse(w->part[0], TW_E_MISSING, "m-00002-of-00003.gguf: there is no such file",
           "part 2 of the 3");
    refuse(w->part[2], TW_E_MISSING, "m-00002-of-00003.gguf: there is no such file", "part 2");
    write_part(w, 1);
}

static void a_file_that_is_not_a_part_is_named(void **state) {
    const struct world *w = *state;
    struct kit k = {0};
    make_part(&k, 2, PARTS); /* in the place of part 2 */
    save(&k, w->part[1]);
    refuse(w->part[0], TW_E_FORMAT, "m-00002-of-00003.gguf: ", "split.no is 2, expected 1");
    make_part(&k, 1, 4);
    save(&k, w->part[1]);
    refuse(w->part[0], TW_E_FORMAT, "m-00002-of-00003.gguf: ", "split.count is 4, expected 3");
    make_part(&k, 1, PARTS);
    kit_int(&k, "split.tensors.count", 5, 7);
    save(&k, w->part[1]);
    refuse(w->part[0], TW_E_FORMAT,
           "m-00002-of-00003.gguf: ", "split.tensors.count is 7, expected 21");
    kit_drop(&k, "split.no");
    save(&k, w->part[1]);
    refuse(w->part[0], TW_E_MISSING, "m-00002-of-00003.gguf: ", "split.no");
    kit_free(&k);
    kit_llama(&k);
    save(&k, w->part[1]);
    refuse(w->part[0], TW_E_FORMAT, "m-00002-of-00003.gguf: ", "split.count is 1, expected 3");
    make_part(&k, 1, PARTS);
    k.n_tensors--;
    save(&k, w->part[1]);
    refuse(w->part[0], TW_E_FORMAT, "m-00001-of-00003.gguf: ", "the 3 parts have 20 tensors");
    make_part(&k, 1, PARTS);
    strcpy(k.tensors[0].name, "token_embd.weight");
    save(&k, w->part[1]);
    refuse(w->part[0], TW_E_FORMAT,
           "m-00001-of-00003.gguf: ", "tensor token_embd.weight is in two parts");
    kit_free(&k);
    write_part(w, 1);
}

static void a_part_under_another_name_says_what_it_should_be(void **state) {
    const struct world *w = *state;
    char other[PATH_BYTES];
    snprintf(other, sizeof other, "%s/renamed.gguf", w->folder);
    assert_int_equal(rename(w->part[1], other), 0);
    refuse(other, TW_E_FORMAT, "renamed.gguf: ", "must end in -00002-of-00003.gguf");
    assert_int_equal(rename(other, w->part[1]), 0);
}

static void hostile_counts_are_refused(void **state) {
    const struct world *w = *state;
    struct kit k = {0};
    make_part(&k, 0, 1025);
    save(&k, w->part[0]);
    refuse(w->part[0], TW_E_UNSUPPORTED,
           "m-00001-of-00003.gguf: ", "split.count is 1025, expected at most 1024");
    make_part(&k, 7, PARTS);
    save(&k, w->part[0]);
    refuse(w->part[0], TW_E_RANGE, "m-00001-of-00003.gguf: ", "split.no is 7, expected 0 to 2");
    kit_free(&k);
    write_part(w, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_parts_are_recognised),
        cmocka_unit_test(any_part_opens_the_whole_model),
        cmocka_unit_test(the_bundle_and_the_key_are_those_of_the_model_not_of_the_part),
        cmocka_unit_test(a_missing_part_is_named),
        cmocka_unit_test(a_file_that_is_not_a_part_is_named),
        cmocka_unit_test(a_part_under_another_name_says_what_it_should_be),
        cmocka_unit_test(hostile_counts_are_refused),
    };
    return cmocka_run_group_tests_name("gguf split", tests, set_up, tear_down);
}
