/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures tokenizers: reading the metadata of 250,000 tokens; and, for each pre-tokenizer, 1 MB of
 * a text and 100,000 equal letters, with the vocabulary of a GGUF file or a made one. CPU time, the
 * best of three. usage: tokenizer_bench [-f TEXT] [MODEL.gguf]
 */
#include "compiler/import/import.h"
#include "driver/tokenizer/tokenizer.h"
#include "loader/base/file_map.h"
#include "loader/bundle/vocab_open.h"
#include "tests/support/big_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEXT_BYTES 1000000u
#define LETTERS 100000u
#define RUNS 3

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "tokenizer_bench: %s\n", what);
    exit(1);
}

static void print_processor(void) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            printf("processor:%s", colon + 1);
            break;
        }
    }
    if (f) {
        fclose(f);
    }
}

/* Imports the vocabulary of a file in memory and prints how long that took. */
static struct tw_vocab import(const char *name, const uint8_t *bytes, size_t size,
                              struct tw_import_memory *memory, bool print) {
    struct tw_gguf gguf;
    struct tw_model model = {.path = name};
    struct tw_vocab vocab;
    tw_error err = {0};
    double start = now_s();
    if (tw_gguf_parse(name, bytes, size, memory, &gguf, &err)) {
        die(err.message);
    }
    const struct tw_gguf_kv *tokens = tw_gguf_find(&gguf, "tokenizer.ggml.tokens");
    model.h.n_vocab = tokens ? (uint32_t)tokens->count : 0;
    if (!tokens || tw_import_gguf_vocab(&gguf, memory, &model, &err) || !model.vocab) {
        die(model.tokenizer_problem ? model.tokenizer_problem : err.message);
    }
    if (print) {
        printf("%-34s %6.0f ms (%u tokens, %zu bytes)\n", name, 1e3 * (now_s() - start),
               model.h.n_vocab, size);
    }
    if (tw_vocab_open(model.vocab, model.vocab_bytes, &vocab, &err)) {
        die(err.message);
    }
    return vocab;
}

static double time_encode(const struct tw_tokenizer *t, const char *text, size_t n,
                          size_t *tokens) {
    double best = 1e9;
    for (int i = 0; i < RUNS; i++) {
        struct tw_token_list list = {.n = 0};
        tw_error err = {0};
        double start = now_s();
        if (tw_tokenizer_encode(t, text, n, TW_ENCODE_SPECIAL, &list, &err)) {
            die(err.message);
        }
        double took = now_s() - start;
        best = took < best ? took : best;
        *tokens = list.n;
        tw_token_list_finish(&list);
    }
    return best;
}

static void measure(const struct tw_vocab *vocab, const char *name, const char *text) {
    struct tw_tokenizer *t = NULL;
    tw_error err = {0};
    size_t n, unused;
    char *letters = malloc(LETTERS);
    double start = now_s();
    if (!letters || tw_tokenizer_create(vocab, &t, &err)) {
        die(err.message);
    }
    double create = now_s() - start;
    memset(letters, 'e', LETTERS);
    double whole = time_encode(t, text, TEXT_BYTES, &n);
    double run = time_encode(t, letters, LETTERS, &unused);
    printf("%-16s %10.0f %10.0f %10zu %10.0f\n", name, 1e3 * create, 1e3 * whole, n, 1e3 * run);
    tw_tokenizer_destroy(t);
    free(letters);
}

/* The text of a file, again and again; without a file a fixed one. */
static char *make_text(const char *path) {
    static const char words[] = "The hen, in 1923, didn't see the fox's den; \xC3\xA9t\xC3\xA9 "
                                "caf\xC3\xA9s (x += 17)\n\n\tif (a != b) return;   \xE4\xB8\xAD"
                                "\xE6\x96\x87 \xF0\x9F\x99\x82 HTTPServer\r\n";
    struct tw_file_map file = {0};
    tw_error err = {0};
    char *text = malloc(TEXT_BYTES);
    if (!text || (path && tw_file_map_open(path, &file, &err))) {
        die(err.message);
    }
    const char *from = path ? (const char *)file.bytes : words;
    size_t n = path ? (size_t)file.size : sizeof words - 1;
    for (size_t i = 0; i < TEXT_BYTES; i++) {
        text[i] = from[i % n];
    }
    tw_file_map_close(&file);
    return text;
}

static void measure_all(const struct tw_vocab *vocab, const char *text) {
    static const char *const names[] = {
        "gpt-2",        "llama-bpe",      "qwen2",       "qwen35", "starcoder",  "falcon",
        "default",      "tekken",         "gpt-4o",      "bloom",  "seed-coder", "bailingmoe",
        "deepseek-llm", "deepseek-coder", "deepseek-v3", "viking"};
    printf("%-16s %10s %10s %10s %10s   (ms of CPU)\n", "pre-tokenizer", "create", "1 MB", "tokens",
           "10^5 'e'");
    if (vocab->header.kind != TW_VOCAB_BYTE_BPE) {
        measure(vocab, "(none)", text);
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tw_vocab other = *vocab;
        memset(other.extra.pre, 0, sizeof other.extra.pre);
        memcpy(other.extra.pre, names[i], strlen(names[i]));
        measure(&other, names[i], text);
    }
}

int main(int argc, char **argv) {
    const char *path = argc > 2 && strcmp(argv[1], "-f") == 0 ? argv[2] : NULL;
    const char *model = argc > (path ? 3 : 1) ? argv[path ? 3 : 1] : NULL;
    struct tw_import_memory memory = {0};
    struct tw_file_map file = {0};
    tw_error err = {0};
    char *text = make_text(path);
    print_processor();
    for (int byte_level = 0; byte_level < 2; byte_level++) {
        size_t size;
        uint8_t *bytes = big_vocab_gguf(250000, byte_level, &size);
        if (!bytes) {
            die("out of memory");
        }
        struct tw_vocab vocab =
            import(byte_level ? "metadata: byte-level, 249744 merges" : "metadata: SentencePiece",
                   bytes, size, &memory, true);
        if (byte_level && !model) {
            measure_all(&vocab, text);
        }
        tw_import_free(&memory);
        free(bytes);
    }
    if (model) {
        if (tw_file_map_open(model, &file, &err)) {
            die(err.message);
        }
        struct tw_vocab vocab = import(model, file.bytes, (size_t)file.size, &memory, false);
        measure_all(&vocab, text);
        tw_import_free(&memory);
        tw_file_map_close(&file);
    }
    free(text);
    return 0;
}
