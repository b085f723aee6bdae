/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the tokenizer on real vocabularies: opens that of a GGUF file, which may be
 * compressed, and compares ids with llama.cpp's.
 */
#ifndef TW_TESTS_DRIVER_TOKENIZER_KIT_H
#define TW_TESTS_DRIVER_TOKENIZER_KIT_H

#include "compiler/import/import.h"
#include "driver/tokenizer/tokenizer.h"
#include "driver/tokenizer/tokenizer_internal.h"
#include "loader/base/file_map.h"
#include "loader/bundle/vocab_open.h"
#include "tests/support/test.h"

#include <unistd.h>

/* Returns the path of a file of ../shared/data, valid until the next call; skips the test if there
 * is no such folder. */
static inline const char *shared(const char *name) {
    static char path[4096];
    const char *folder = getenv("TW_SHARED");
    if (folder == NULL) {
        print_message("skipped: TW_SHARED is not set, so %s is not there\n", name);
        skip();
    }
    snprintf(path, sizeof path, "%s/data/%s", folder, name);
    return path;
}

struct real {
    struct tw_file_map file;
    struct tw_import_memory memory;
    struct tw_model model;
    struct tw_tokenizer *tokenizer;
};

/* Only the vocabulary of a GGUF file: some have no tensors, or tensors that we do not read. */
static inline void read_gguf_vocab(const char *path, struct real *real) {
    struct tw_gguf gguf = {0};
    tw_error err = {0};
    assert_int_equal(tw_file_map_open(path, &real->file, &err), 0);
    assert_int_equal(
        tw_gguf_parse(path, real->file.bytes, real->file.size, &real->memory, &gguf, &err), 0);
    const struct tw_gguf_kv *tokens = tw_gguf_find(&gguf, "tokenizer.ggml.tokens");
    assert_non_null(tokens);
    real->model.h.n_vocab = (uint32_t)tokens->count;
    if (tw_import_gguf_vocab(&gguf, &real->memory, &real->model, &err) != 0) {
        fail_msg("%s: %s", path, err.message);
    }
}

/* With other flags of the vocabulary if `flags` is not negative. */
static inline struct real open_with_flags(const char *path, long flags) {
    struct real real = {.tokenizer = NULL};
    struct tw_vocab vocab;
    tw_error err = {0};
    size_t length = strlen(path);
    if (length > 4 && !strcmp(path + length - 4, ".bin")) {
        assert_int_equal(tw_model_open(path, NULL, &real.model, &err), 0);
    } else {
        read_gguf_vocab(path, &real);
    }
    assert_non_null(real.model.vocab);
    assert_int_equal(tw_vocab_open(real.model.vocab, real.model.vocab_bytes, &vocab, &err), 0);
    if (flags >= 0) {
        vocab.header.flags = (uint32_t)flags;
    }
    assert_int_equal(tw_tokenizer_create(&vocab, &real.tokenizer, &err), 0);
    return real;
}

static inline struct real open_real(const char *path) {
    return open_with_flags(path, -1);
}

/* The same of a file that is compressed by gzip. */
static inline struct real open_compressed(const char *path) {
    char file[] = "/tmp/tw-vocab-XXXXXX", command[5000];
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    close(fd);
    snprintf(command, sizeof command, "gzip -dc '%s' >'%s'", path, file);
    assert_int_equal(system(command), 0);
    struct real real = open_real(file);
    unlink(file);
    return real;
}

static inline void close_real(struct real *real) {
    tw_tokenizer_destroy(real->tokenizer);
    tw_model_close(&real->model);
    tw_import_free(&real->memory);
    tw_file_map_close(&real->file);
}

static inline struct tw_token_list encode(const struct real *real, const char *text, size_t n,
                                          unsigned flags) {
    struct tw_token_list list = {.n = 0};
    tw_error err = {0};
    assert_int_equal(tw_tokenizer_encode(real->tokenizer, text, n, flags, &list, &err), 0);
    return list;
}

static inline char *load_text(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *n = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*n + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *n, file), *n);
    text[*n] = 0;
    fclose(file);
    return text;
}

/* Compares the ids of every case of MODEL.inp with its line of MODEL.out. */
static inline void expect_inp_out(const struct real *real, const char *model) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char name[256];
    size_t n, cases = 0;
    snprintf(name, sizeof name, "%s.inp", model);
    char *inp = load_text(shared(name), &n);
    snprintf(name, sizeof name, "%s.out", model);
    char *out = load_text(shared(name), &n), *line = out;
    for (char *text = inp, *end; (end = strstr(text, separator)) != NULL;
         text = end + sizeof separator - 1) {
        struct tw_token_list list =
            encode(real, text, (size_t)(end - text), TW_ENCODE_NO_BOS | TW_ENCODE_USER_DEFINED);
        char *stop = strchr(line, '\n');
        assert_non_null(stop);
        for (size_t i = 0; i < list.n; i++) {
            if (list.ids[i] != strtoul(line, &line, 10)) {
                fail_msg("%s: '%.*s': id %zu is %u", model, (int)(end - text), text, i,
                         list.ids[i]);
            }
        }
        assert_int_equal(strspn(line, " "), stop - line);
        line = stop + 1;
        tw_token_list_finish(&list);
        cases++;
    }
    assert_true(cases > 40);
    assert_int_equal(*line, 0);
    free(inp);
    free(out);
}

static inline void expect_round_trip(const struct real *real, const char *text, size_t n,
                                     unsigned flags) {
    struct tw_token_list list = encode(real, text, n, flags);
    size_t length;
    char *back = malloc(n + 1);
    assert_non_null(back);
    assert_int_equal(tw_tokenizer_decode(real->tokenizer, list.ids, list.n, TW_PIECE_FIRST, back,
                                         n + 1, &length, NULL),
                     0);
    assert_int_equal(length, n);
    assert_memory_equal(back, text, n);
    free(back);
    tw_token_list_finish(&list);
}

#endif
