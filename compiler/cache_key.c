/* SPDX-License-Identifier: Apache-2.0
 *
 * The key under which a compilation is cached: a hash of everything that determines a bundle's
 * bytes.
 */
#include "compiler/pipeline_internal.h"

#include "compiler/import/gguf_split.h"
#include "compiler/import/model_files.h"
#include "loader/base/file_map.h"
#include "loader/base/hash.h"
#include "loader/base/sized.h"
#include "tilewright/version.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The build passes a checksum of the compiler's sources, so that a cache entry does not outlive
 * them. */
#ifndef TW_COMPILER_ID
#define TW_COMPILER_ID ""
#endif

#define WHOLE_HASH_LIMIT ((uint64_t)64 << 20)
#define SAMPLE_BYTES 65536u
#define N_SAMPLES 256u

/* Hashes small files by content; large ones by size, modification time, and samples spread over the
 * file. */
static int hash_file(struct tw_hash *h, const char *path, tw_error *err) {
    struct stat st;
    struct tw_file_map map;
    /* refuses what cannot be a model; fopen would block on a pipe without a writer */
    int rc = tw_file_map_open(path, &map, err);
    tw_file_map_close(&map);
    FILE *f = rc ? NULL : fopen(path, "rb");
    if (!f || fstat(fileno(f), &st) != 0) {
        if (f) {
            fclose(f);
        }
        return rc ? rc : tw_fail(err, TW_E_IO, "%s: cannot read the file", path);
    }
    uint64_t size = (uint64_t)st.st_size, step = SAMPLE_BYTES;
    tw_hash_update(h, &size, sizeof size);
    if (size > WHOLE_HASH_LIMIT) {
        int64_t mtime[2] = {st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        tw_hash_update(h, mtime, sizeof mtime);
        step = size / N_SAMPLES;
    }
    static _Thread_local unsigned char block[SAMPLE_BYTES];
    for (uint64_t at = 0; at < size; at += step) {
        size_t n = fseeko(f, (off_t)at, SEEK_SET) == 0 ? fread(block, 1, sizeof block, f) : 0;
        tw_hash_update(h, block, n);
    }
    int failed = ferror(f);
    fclose(f);
    return failed ? tw_fail(err, TW_E_IO, "%s: cannot read the file", path) : 0;
}

static int is_part_of_folder(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && dot &&
           (strcmp(dot, ".json") == 0 || strcmp(dot, ".jinja") == 0 ||
            strcmp(dot, ".safetensors") == 0);
}

/* Hashes the files of a folder that may belong to its model, and their names. */
static int hash_folder(struct tw_hash *h, const char *path, tw_error *err) {
    struct dirent **entries = NULL;
    char file[4096];
    snprintf(file, sizeof file, "%s/config.json", path);
    if (access(file, F_OK) != 0) {
        return tw_fail(err, TW_E_MISSING,
                       "%.200s: there is no such file; expected the folder of a model with "
                       "config.json and model.safetensors",
                       file);
    }
    int n = scandir(path, &entries, is_part_of_folder, alphasort),
        rc = n >= 0 ? 0 : tw_fail(err, TW_E_IO, "%s: cannot read the folder", path);
    for (int i = 0; i < n; i++) {
        int length = snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
        if (rc == 0 && length >= (int)sizeof file) {
            rc = tw_fail(err, TW_E_IO, "%.200s: the path is too long", path);
        }
        if (rc == 0) {
            tw_hash_update(h, entries[i]->d_name, strlen(entries[i]->d_name) + 1);
            rc = hash_file(h, file, err);
        }
        free(entries[i]);
    }
    free(entries);
    return rc;
}

/* Hashes all parts of a split model, whichever of them `path` is; else the file itself. */
static int hash_parts(struct tw_hash *h, const char *path, tw_error *err) {
    struct tw_import_memory memory = {0};
    uint32_t number, count = tw_split_name(path, &number);
    count = count <= TW_MAX_PARTS ? count : 0; /* more are refused, or are no parts */
    int rc = count ? 0 : hash_file(h, path, err);
    for (uint32_t i = 1; i <= count && rc == 0; i++) {
        const char *part = tw_split_path(&memory, path, i);
        rc = part ? 0 : tw_fail(err, TW_E_NOMEM, "%s: out of memory", path);
        if (rc == 0 && (i == number || access(part, F_OK) == 0)) { /* the compiler reports others */
            rc = hash_file(h, part, err);
        }
    }
    tw_import_free(&memory);
    return rc;
}

/* Hashes the vocabulary of the tokenizer that a llama2.c checkpoint finds next to itself, since it
 * is part of what is compiled. (A checkpoint that does not open is left for the compilation to
 * refuse.) */
static void hash_adjacent_tokenizer(struct tw_hash *h, const char *path) {
    struct tw_model m = {0};
    char magic[4] = "";
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(magic, 1, sizeof magic, f) : 0;
    if (f) {
        fclose(f);
    }
    if (n == sizeof magic && memcmp(magic, "GGUF", sizeof magic) != 0 &&
        tw_model_open(path, NULL, &m, NULL) == 0) {
        tw_hash_update(h, m.vocab, m.vocab_bytes);
    }
    tw_model_close(&m);
}

int tw_compile_key(const char *model_path, const struct tw_compile_options *options,
                   char key_hex[65], tw_error *err) {
    struct compilation c;
    struct tw_hash h;
    uint8_t digest[TW_HASH_BYTES];
    int rc = TW_NEED_2(err, model_path, key_hex);
    rc = rc ? rc : tw_pipeline_begin(&c, __func__, options, err);
    if (rc == 0) {
        rc = tw_target_open(c.options.target, c.options.host_sites, &c.target, err);
    }
    if (rc) {
        return rc;
    }
    uint32_t numbers[] = {c.options.n_ctx,           c.options.prefill_rows,
                          c.options.all_logits,      c.graph.cache_dtype,
                          c.options.top_k,           c.convert ? c.quant + 1u : 0,
                          c.graph.float_activations, c.options.batch_rows};
    tw_hash_init(&h);
    tw_hash_update(&h, TW_VERSION TW_COMPILER_ID, sizeof TW_VERSION TW_COMPILER_ID);
    tw_hash_update(&h, c.target.hash, sizeof c.target.hash);
    tw_hash_update(&h, numbers, sizeof numbers);
    rc = tw_path_is_folder(model_path) ? hash_folder(&h, model_path, err)
                                       : hash_parts(&h, model_path, err);
    if (rc == 0 && c.options.tokenizer) {
        rc = hash_file(&h, c.options.tokenizer, err);
    } else if (rc == 0) {
        hash_adjacent_tokenizer(&h, model_path);
    }
    tw_hash_final(&h, digest);
    for (unsigned i = 0; i < TW_HASH_BYTES; i++) {
        snprintf(key_hex + 2 * i, 3, "%02x", digest[i]);
    }
    return rc;
}
