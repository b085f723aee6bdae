/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of tw_model_open on files: real models of the shared data against each other and their
 * manifest, the shipped model, and files that are not models.
 */
#include "compiler/import/import.h"
#include "compiler/import/model.h"
#include "loader/bundle/vocab_open.h"
#include "tests/support/test.h"

#include <sys/stat.h>
#include <unistd.h>

/* Returns the path of a file of the shared data; skips the test if it is absent. The path stays
 * valid for the next three calls. */
static const char *shared(const char *name) {
    static char paths[4][4096];
    static unsigned next;
    const char *root = getenv("TW_SHARED");
    if (!root) {
        print_message("skipped: TW_SHARED is not set, so there is no shared test data\n");
        skip();
    }
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/data/%s", root, name);
    if (access(path, R_OK) != 0) {
        print_message("skipped: %s is absent\n", path);
        skip();
    }
    return path;
}

static void open_good(const char *path, struct tw_model *m, struct tw_vocab *v) {
    tw_error err = {0};
    if (tw_model_open(path, NULL, m, &err)) {
        fail_msg("refused: %s", err.message);
    }
    assert_string_equal(m->path, path);
    if (v) {
        assert_non_null(m->vocab);
        assert_int_equal(tw_vocab_open(m->vocab, m->vocab_bytes, v, &err), 0);
    }
}

static void refuse(const char *path, const char *tokenizer, int code, const char *part) {
    struct tw_model m;
    tw_error err = {0};
    int rc = tw_model_open(path, tokenizer, &m, &err);
    if (rc != code || !strstr(err.message, part)) {
        fail_msg("code %d, message \"%s\", expected code %d and \"%s\"", rc, err.message, code,
                 part);
    }
    assert_null(m.tensors);
    assert_null(m.owner);
    tw_model_close(&m);
}

/* ---- real models ---- */

static void expect_same_vocabulary(const struct tw_vocab *a, const struct tw_vocab *b) {
    uint32_t n = a->header.n_tokens;
    assert_int_equal(n, b->header.n_tokens);
    assert_int_equal(a->header.bytes_size, b->header.bytes_size);
    assert_memory_equal(a->offsets, b->offsets, (n + 1) * sizeof a->offsets[0]);
    assert_memory_equal(a->bytes, b->bytes, a->header.bytes_size);
    assert_memory_equal(a->types, b->types, n);
    assert_memory_equal(a->scores, b->scores, n * sizeof a->scores[0]);
    assert_int_equal(a->header.bos, b->header.bos);
    assert_int_equal(a->header.eos, b->header.eos);
    assert_int_equal(a->header.unk, b->header.unk);
    assert_int_equal(a->header.pad, TW_NONE);
    assert_int_equal(b->header.pad, TW_NONE);
}

/* Compares two descriptions but for where their layers are. */
static void assert_same_hparams(const struct tw_hparams *a, const struct tw_hparams *b) {
    struct tw_hparams x = *a, y = *b;
    for (uint32_t i = 0; i < a->n_layers; i++) {
        const struct tw_layer p = tw_layer_of(a, i), q = tw_layer_of(b, i);
        assert_memory_equal(&p, &q, sizeof p);
    }
    x.layers = y.layers = NULL;
    assert_memory_equal(&x, &y, sizeof x);
}

static void stories260K_is_the_same_model_in_both_formats(void **state) {
    (void)state;
    struct tw_model bin, gguf;
    struct tw_vocab bin_vocab, gguf_vocab;
    open_good(shared("models/stories260K.bin"), &bin, &bin_vocab);
    open_good(shared("models/stories260K.gguf"), &gguf, &gguf_vocab);
    assert_int_equal(bin.h.n_ctx_train, 512); /* the two files differ here, as the manifest says */
    assert_int_equal(gguf.h.n_ctx_train, 2048);
    gguf.h.n_ctx_train = bin.h.n_ctx_train;
    assert_same_hparams(&bin.h, &gguf.h);
    assert_true(bin.tied);
    assert_false(gguf.tied);
    assert_int_equal(bin.n_tensors, 47);
    assert_int_equal(gguf.n_tensors, 48);
    for (uint32_t i = 0; i < gguf.n_tensors; i++) {
        const struct tw_model_tensor *g = &gguf.tensors[i];
        bool output = strcmp(g->name, "output.weight") == 0;
        const struct tw_model_tensor *b =
            tw_model_find(&bin, output ? "token_embd.weight" : g->name);
        assert_non_null(b);
        assert_int_equal(b->rows, g->rows);
        assert_int_equal(b->cols, g->cols);
        assert_int_equal(b->dtype, g->dtype);
        assert_int_equal(b->bytes, g->bytes);
        assert_memory_equal(b->data, g->data, g->bytes);
    }
    expect_same_vocabulary(&bin_vocab, &gguf_vocab);
    assert_int_equal(bin_vocab.header.flags, gguf_vocab.header.flags | TW_VOCAB_STOP_AT_BOS);
    tw_model_close(&bin);
    tw_model_close(&gguf);
}

static void tinystories_is_tied_with_its_own_epsilon(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum tw_dtype dtype;
    } files[] = {{"models/tinystories656K/TinyStories-656K.f16.gguf", TW_DT_F16},
                 {"models/tinystories656K/TinyStories-656K-Q8_0.gguf", TW_DT_Q8_0},
                 {"models/tinystories656K/q8b.gguf", TW_DT_Q8_0},
                 {"models/tinystories656K/derived/ts656k-Q4_0.gguf", TW_DT_Q4_0},
                 {"models/tinystories656K/derived/ts656k-BF16.gguf", TW_DT_BF16},
                 /* named so, but holds Q4_0 */
                 {"models/tinystories656K/derived/ts656k-Q2_K.gguf", TW_DT_Q4_0}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct tw_model m;
        struct tw_vocab v;
        open_good(shared(files[i].name), &m, &v);
        assert_true(m.tied);
        assert_true(m.h.norm_eps == 1e-6f);
        assert_int_equal(m.h.n_vocab, 2048);
        assert_int_equal(m.h.head_dim, 16);
        assert_int_equal(tw_model_find(&m, "blk.1.attn_q.weight")->dtype, files[i].dtype);
        assert_int_equal(v.header.unk, 0);
        tw_model_close(&m);
    }
}

static void unsupported_types_of_real_files_are_named(void **state) {
    static const char *const types[] = {"IQ1_M",   "IQ1_S", "IQ2_S", "IQ2_XS", "IQ2_XXS",
                                        "IQ3_XXS", "IQ3_S", "TQ1_0", "TQ2_0"};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char file[80], words[40];
        snprintf(file, sizeof file, "arch/llama-256x1-%s.gguf", types[i]);
        snprintf(words, sizeof words, "has type %s", types[i]);
        refuse(shared(file), NULL, TW_E_UNSUPPORTED, words);
    }
}

static void odd_files_are_distinguished(void **state) {
    (void)state;
    struct tw_model m;
    refuse(shared("models/odd/pockettpu-dims-reversed.gguf"), NULL, TW_E_SHAPE,
           "tensor token_embd.weight has shape [512, 64], expected [64, 512]");
    refuse(shared("models/odd/ggml-fixtures/dummy-00001-of-00002.gguf"), NULL, TW_E_MISSING,
           "general.architecture"); /* of the whole model: both parts were read */
    refuse(shared("models/odd/ggml-fixtures/dummy.gguf"), NULL, TW_E_MISSING,
           "general.architecture");
    refuse(shared("models/odd/ggml-fixtures/wi-empty.gguf"), NULL, TW_E_MISSING,
           "llama.embedding_length");
    refuse(shared("models/odd/ggml-fixtures/wi-tiny.gguf"), NULL, TW_E_TRUNCATED,
           "tensor test.weight.0");
    refuse(shared("models/odd/ggml-fixtures/wi-tiny.safetensors"), NULL, TW_E_UNSUPPORTED,
           "name the folder that holds it and config.json");
    refuse(shared("gguf_vocab/ggml-vocab-llama-spm.gguf"), NULL, TW_E_MISSING, "token_embd.weight");
    refuse(shared("gguf_vocab/ggml-vocab-gpt-2.gguf"), NULL, TW_E_UNSUPPORTED,
           "architecture \"gpt2\"");
    /* Permuted matrices are a valid file of a model that writes garbage. */
    open_good(shared("models/odd/plct-permuted-stories260K.bin"), &m, NULL);
    assert_null(m.vocab);
    tw_model_close(&m);
}

static void a_tokenizer_of_another_model_is_refused(void **state) {
    (void)state;
    struct tw_model m;
    tw_error err = {0};
    const char *model = shared("models/stories260K.bin");
    assert_int_equal(tw_model_open(model, shared("models/aidreams260K/tok512.bin"), &m, &err), 0);
    assert_non_null(m.vocab);
    tw_model_close(&m);
    refuse(model, model, TW_E_RANGE, "max_token_length, 64"); /* not a tokenizer at all */
    refuse(shared("models/stories260K.gguf"), shared("models/tok512.bin"), TW_E_USAGE,
           "its own tokenizer");
}

/* Tokenizer files of other programs, which users may pass by mistake. */
static void tokenizers_of_other_programs_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *part;
    } cases[] = {
        {"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02", 16, "this is a SentencePiece model"},
        {"{\n  \"version\": \"1.0\"", 18, "this is a JSON file"},
        {"GGUF\x03\0\0\0", 8, "this is a GGUF file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[] = "/tmp/tw-tokenizer-XXXXXX";
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, cases[i].bytes, cases[i].n), cases[i].n);
        close(fd);
        refuse(shared("models/stories260K.bin"), path, TW_E_UNSUPPORTED, cases[i].part);
        unlink(path);
    }
}

static void opening_the_shipped_model_twice_gives_equal_models(void **state) {
    (void)state;
    struct tw_model a, b;
    struct tw_vocab v;
    open_good("tests/data/fairytale-1.7m-Q8_0.gguf", &a, &v);
    open_good("tests/data/fairytale-1.7m-Q8_0.gguf", &b, NULL);
    assert_string_equal(a.license, "CC0-1.0");
    assert_int_equal(a.h.n_layers, 8);
    assert_int_equal(a.h.n_kv_heads, 2);
    assert_same_hparams(&a.h, &b.h);
    assert_int_equal(a.vocab_bytes, b.vocab_bytes);
    assert_memory_equal(a.vocab, b.vocab, a.vocab_bytes);
    tw_model_close(&a);
    tw_model_close(&b);
    tw_model_close(&b);
    tw_model_close(NULL);
}

/* ---- files that are not models ---- */

struct folder {
    char path[64];
    char file[3][96];
};

static struct folder folder_create(void) {
    struct folder f;
    snprintf(f.path, sizeof f.path, "/tmp/tw-import-XXXXXX");
    assert_non_null(mkdtemp(f.path));
    memset(f.file, 0, sizeof f.file);
    return f;
}

static const char *folder_write(struct folder *f, unsigned i, const char *name, const void *bytes,
                                size_t size) {
    char path[96];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    memcpy(f->file[i], path, sizeof path);
    FILE *out = fopen(f->file[i], "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
    return f->file[i];
}

static void folder_destroy(struct folder *f) {
    for (unsigned i = 0; i < 3; i++) {
        if (f->file[i][0]) {
            unlink(f->file[i]);
        }
    }
    assert_int_equal(rmdir(f->path), 0);
}

static void what_cannot_be_mapped_is_an_io_error(void **state) {
    (void)state;
    struct folder f = folder_create();
    refuse(f.path, NULL, TW_E_MISSING, "/config.json: there is no such file");
    refuse(folder_write(&f, 0, "empty", "", 0), NULL, TW_E_TRUNCATED, "the file is empty");
    refuse("/nonexistent/model.gguf", NULL, TW_E_IO, "cannot open: No such file");
    refuse("/dev/null", NULL, TW_E_IO, "not a regular file");
    snprintf(f.file[1], sizeof f.file[1], "%s/pipe", f.path);
    assert_int_equal(mkfifo(f.file[1], 0600), 0);
    refuse(f.file[1], NULL, TW_E_IO, "not a regular file");
    folder_write(&f, 2, "secret", "GGUF", 4);
    assert_int_equal(chmod(f.file[2], 0), 0);
    if (geteuid() != 0) { /* root reads everything */
        refuse(f.file[2], NULL, TW_E_IO, "cannot open: Permission denied");
    }
    folder_destroy(&f);
}

static void a_long_path_leaves_room_for_the_rest_of_the_message(void **state) {
    (void)state;
    char path[1000];
    memset(path, 'x', sizeof path);
    memcpy(path, "/nonexistent/", 13);
    for (size_t i = 100; i < sizeof path - 1; i += 100) {
        path[i] = '/';
    }
    path[sizeof path - 1] = 0;
    refuse(path, NULL, TW_E_IO, "x: cannot open: No such file");
}

static void files_of_other_kinds_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        int code;
        const char *part;
    } files[] = {
        {"lmgg................................", TW_E_UNSUPPORTED, "an old ggml file"},
        {"tjgg................................", TW_E_UNSUPPORTED, "an old ggjt file"},
        {"PK\3\4................................", TW_E_UNSUPPORTED, "a zip archive"},
        {"\x7f"
         "ELF................................",
         TW_E_UNSUPPORTED, "an ELF file"},
        {"version https://git-lfs.github.com/spec/v1\n", TW_E_FORMAT, "a Git LFS pointer"},
        {"<!DOCTYPE html><html>............", TW_E_FORMAT, "an HTML page"},
        {"some text that is no model file at all", TW_E_RANGE, "not a GGUF file"},
        {"short", TW_E_TRUNCATED, "5 bytes are too few"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct folder f = folder_create();
        refuse(folder_write(&f, 0, "model.gguf", files[i].bytes, strlen(files[i].bytes)), NULL,
               files[i].code, files[i].part);
        folder_destroy(&f);
    }
}

/* The smallest checkpoint: dim 2, one layer, one head, two tokens. */
static size_t tiny_checkpoint(uint8_t *out) {
    static const int32_t header[7] = {2, 1, 1, 1, 1, 2, 1};
    /* embedding, three norms, attention, ffn, tables */
    size_t floats = 2 * 2 + 2 + 2 + 2 + 4 * 4 + 3 * 2 + 2;
    memset(out, 0, 28 + floats * 4);
    memcpy(out, header, sizeof header);
    return 28 + floats * 4;
}

static size_t tiny_tokenizer(uint8_t *out, char second) {
    uint8_t bytes[] = {1, 0,   0,      0, /**/ 0, 0, 0, 0, 1, 0, 0,
                       0, 'u', /**/ 0, 0, 0,      0, 1, 0, 0, 0, (uint8_t)second};
    memcpy(out, bytes, sizeof bytes);
    return sizeof bytes;
}

static void expect_second_piece(const char *model, char expected) {
    struct tw_model m;
    struct tw_vocab v;
    open_good(model, &m, &v);
    assert_int_equal(v.bytes[v.offsets[1]], expected);
    tw_model_close(&m);
}

static void a_tokenizer_beside_the_checkpoint_is_found(void **state) {
    (void)state;
    uint8_t checkpoint[256], tokenizer[64];
    struct folder f = folder_create();
    struct tw_model m;
    size_t size = tiny_checkpoint(checkpoint);
    const char *model = folder_write(&f, 0, "model.bin", checkpoint, size);
    open_good(model, &m, NULL);
    assert_null(m.vocab);
    assert_int_equal(m.n_tensors, 11);
    tw_model_close(&m);
    folder_write(&f, 1, "tokenizer.bin", tokenizer, tiny_tokenizer(tokenizer, 'g'));
    expect_second_piece(model, 'g');
    /* the more specific name wins */
    folder_write(&f, 2, "tok2.bin", tokenizer, tiny_tokenizer(tokenizer, 's'));
    expect_second_piece(model, 's');
    folder_write(&f, 2, "tok2.bin", tokenizer, tiny_tokenizer(tokenizer, 's') - 1);
    refuse(model, NULL, TW_E_TRUNCATED, "tok2.bin: token 1 has 1 bytes");
    refuse(model, "/nonexistent/tokenizer.bin", TW_E_IO, "/nonexistent/tokenizer.bin: cannot open");
    folder_destroy(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stories260K_is_the_same_model_in_both_formats),
        cmocka_unit_test(tinystories_is_tied_with_its_own_epsilon),
        cmocka_unit_test(unsupported_types_of_real_files_are_named),
        cmocka_unit_test(odd_files_are_distinguished),
        cmocka_unit_test(a_tokenizer_of_another_model_is_refused),
        cmocka_unit_test(tokenizers_of_other_programs_are_refused_by_name),
        cmocka_unit_test(opening_the_shipped_model_twice_gives_equal_models),
        cmocka_unit_test(what_cannot_be_mapped_is_an_io_error),
        cmocka_unit_test(a_long_path_leaves_room_for_the_rest_of_the_message),
        cmocka_unit_test(files_of_other_kinds_are_refused_by_name),
        cmocka_unit_test(a_tokenizer_beside_the_checkpoint_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
