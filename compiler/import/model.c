/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens a model file (model.h): maps it, detects its format by content, runs that importer, and for
 * a llama2.c checkpoint finds the tokenizer file beside it.
 */
#include "compiler/import/model.h"

#include "compiler/import/bytes.h"
#include "compiler/import/gguf_split.h"
#include "compiler/import/hf.h"
#include "compiler/import/import.h"
#include "compiler/import/model_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEADER_BYTES 4096u /* enough to detect the format, and a llama2.c checkpoint's header */
#define MAX_TOKENIZER_BYTES ((uint64_t)256 << 20) /* far above what the limits on tokens allow */

struct owner {
    struct tw_import_memory memory;
    struct tw_model_files files;
};

/* ---- formats ---- */

/* Files that are passed by mistake, by their first bytes. */
static const struct {
    const char *magic;
    uint32_t length;
    int code;
    const char *what;
} foreign[] = {
    {"lmgg", 4, TW_E_UNSUPPORTED, "an old ggml file (before GGUF)"},
    {"fmgg", 4, TW_E_UNSUPPORTED, "an old ggmf file (before GGUF)"},
    {"tjgg", 4, TW_E_UNSUPPORTED, "an old ggjt file (before GGUF)"},
    {"algg", 4, TW_E_UNSUPPORTED, "a ggla adapter, not a model"},
    {"nsgg", 4, TW_E_UNSUPPORTED, "a ggsn session, not a model"},
    {"FUGG", 4, TW_E_UNSUPPORTED, "a GGUF file with its bytes swapped"},
    {"\x7f"
     "ELF",
     4, TW_E_UNSUPPORTED, "an ELF file, not a model"},
    {"PK\x03\x04", 4, TW_E_UNSUPPORTED, "a zip archive (a PyTorch checkpoint?)"},
    {"\x1f\x8b", 2, TW_E_UNSUPPORTED, "gzip-compressed: unpack it first"},
    {"version https://git-lfs", 23, TW_E_FORMAT,
     "a Git LFS pointer: the model itself was not fetched"},
    {"<!DOCTYPE", 9, TW_E_FORMAT, "an HTML page: the download failed"},
    {"<!doctype", 9, TW_E_FORMAT, "an HTML page: the download failed"},
    {"<html", 5, TW_E_FORMAT, "an HTML page: the download failed"},
};

enum format { FORMAT_GGUF, FORMAT_LLAMA2C };

/* Detects the format by content; refuses known files of other kinds by name. */
static int detect(const char *path, const uint8_t *bytes, uint64_t size, enum format *out,
                  tw_error *err) {
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        if (size >= foreign[i].length && memcmp(bytes, foreign[i].magic, foreign[i].length) == 0) {
            return tw_fail(err, foreign[i].code,
                           "%s: this is %s; expected a GGUF file or a llama2.c checkpoint", path,
                           foreign[i].what);
        }
    }
    /* safetensors: the length of a JSON object, then the object. A llama2.c header has dim below
     * 2^20 and a small number where the brace would be the ninth byte, so the two are distinguished
     * by hidden_dim = 0. */
    if (size >= 10 && bytes[8] == '{' && tw_load_u32(bytes + 4) == 0) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "%s: this is a safetensors file, which has no sizes or tokenizer: name the "
                       "folder that holds it and config.json",
                       path);
    }
    *out = size >= 4 && memcmp(bytes, "GGUF", 4) == 0 ? FORMAT_GGUF : FORMAT_LLAMA2C;
    return 0;
}

/* ---- tokenizer files ---- */

/* Refuses tokenizers of other programs. SentencePiece's is a protobuf whose first piece is nearly
 * always the unknown token. */
static int check_tokenizer(const char *path, const struct tw_file_map *file, tw_error *err) {
    static const uint8_t piece[] = {0x0A, 5, '<', 'u', 'n', 'k', '>'};
    const uint8_t *b = file->bytes;
    bool sentencepiece =
        file->own_bytes > 9 && b[0] == 0x0A && memcmp(b + 2, piece, sizeof piece) == 0;
    bool json = file->own_bytes > 1 && b[0] == '{' && strchr("\"\n\r\t ", b[1]);
    bool gguf = file->own_bytes > 4 && memcmp(b, "GGUF", 4) == 0;
    if (!sentencepiece && !json && !gguf) {
        return 0;
    }
    return tw_fail(err, TW_E_UNSUPPORTED, "%s: this is %s; expected a llama2.c tokenizer.bin%s",
                   path,
                   sentencepiece ? "a SentencePiece model"
                   : json        ? "a JSON file (of Hugging Face?)"
                                 : "a GGUF file",
                   sentencepiece ? ", which llama2.c's tokenizer.py creates from it" : "");
}

static int load_tokenizer(struct owner *owner, const char *path, struct tw_model *model,
                          tw_error *err) {
    char buffer[TW_SHORT_PATH_BYTES];
    struct tw_file_map file;
    const char *shown = tw_short_path(path, buffer);
    int rc = tw_file_map_open(path, &file, err);
    rc = rc ? rc : tw_file_map_own(&file, MAX_TOKENIZER_BYTES, err);
    rc = rc ? rc : check_tokenizer(shown, &file, err);
    if (rc == 0) {
        rc = tw_import_llama2c_vocab(shown, file.bytes, file.own_bytes, &owner->memory, model, err);
    }
    tw_file_map_close(&file); /* the blob is a copy */
    return rc;
}

/* Returns the path of `name` in the directory of `path` if there is such a file; else NULL. */
static char *beside(struct tw_import_memory *memory, const char *path, const char *name) {
    char *result = tw_path_beside(memory, path, name);
    return result && access(result, F_OK) == 0 ? result : NULL;
}

/* The name with the vocabulary's size is tried first: a directory may hold models with several
 * vocabularies. */
static int find_tokenizer(struct owner *owner, const char *path, struct tw_model *model,
                          tw_error *err) {
    char name[32];
    snprintf(name, sizeof name, "tok%u.bin", model->h.n_vocab);
    const char *found = beside(&owner->memory, path, name);
    if (!found) {
        found = beside(&owner->memory, path, "tokenizer.bin");
    }
    return found ? load_tokenizer(owner, found, model, err) : 0;
}

/* ---- models ---- */

static int import_llama2c(struct owner *owner, const struct tw_file_map *file, const char *path,
                          const char *tokenizer, struct tw_model *model, const char *shown,
                          tw_error *err) {
    int rc = tw_import_llama2c(shown, file->bytes, file->size, &owner->memory, model, err);
    if (rc) {
        return rc;
    }
    struct tw_model_tensor *tensors = (struct tw_model_tensor *)(uintptr_t)model->tensors;
    for (uint32_t i = 0; i < model->n_tensors; i++) {
        tensors[i].file = file; /* the importer only knows memory */
    }
    return tokenizer ? load_tokenizer(owner, tokenizer, model, err)
                     : find_tokenizer(owner, path, model, err);
}

static int import_gguf(struct owner *owner, struct tw_file_map *file, const char *path,
                       struct tw_model *model, const char *shown, tw_error *err) {
    struct tw_gguf gguf;
    int rc = tw_gguf_parse_file(shown, file, &owner->memory, &gguf, err);
    rc = rc ? rc : tw_gguf_join(path, &owner->files, &gguf, err);
    return rc ? rc : tw_import_gguf_keys(&gguf, &owner->memory, model, err);
}

static int keep_path(struct owner *owner, const char *path, struct tw_model *model,
                     const char *shown, tw_error *err) {
    model->path = tw_import_text(&owner->memory, path, strlen(path));
    return model->path ? 0 : tw_fail(err, TW_E_NOMEM, "%s: no memory for the path", shown);
}

static int import_folder(struct owner *owner, const char *path, const char *tokenizer,
                         struct tw_model *model, const char *shown, tw_error *err) {
    if (tokenizer) {
        return tw_fail(err, TW_E_USAGE,
                       "%s: the folder has its own tokenizer; omit the tokenizer file", shown);
    }
    int rc = tw_import_hf(path, &owner->files, model, err);
    return rc ? rc : keep_path(owner, path, model, shown, err);
}

static int import(struct owner *owner, const char *path, const char *tokenizer,
                  struct tw_model *model, tw_error *err) {
    char buffer[TW_SHORT_PATH_BYTES];
    const char *shown = tw_short_path(path, buffer);
    enum format format = FORMAT_GGUF;
    struct tw_file_map *file = NULL;
    if (tw_path_is_folder(path)) {
        return import_folder(owner, path, tokenizer, model, shown, err);
    }
    int rc = tw_model_files_open(&owner->files, path, &file, err);
    rc = rc ? rc : tw_file_map_own(file, HEADER_BYTES, err);
    rc = rc ? rc : detect(shown, file->bytes, file->size, &format, err);
    if (rc) {
        return rc;
    }
    if (format == FORMAT_LLAMA2C) {
        rc = import_llama2c(owner, file, path, tokenizer, model, shown, err);
    } else if (tokenizer) {
        rc = tw_fail(err, TW_E_USAGE,
                     "%s: a GGUF file has its own tokenizer; omit the tokenizer file", shown);
    } else {
        rc = import_gguf(owner, file, path, model, shown, err);
    }
    return rc ? rc : keep_path(owner, path, model, shown, err);
}

static void owner_destroy(struct owner *owner) {
    if (owner) {
        tw_model_files_close(&owner->files);
        tw_import_free(&owner->memory);
        free(owner);
    }
}

int tw_model_open(const char *path, const char *tokenizer, struct tw_model *out, tw_error *err) {
    struct tw_model model = {0};
    memset(out, 0, sizeof *out);
    struct owner *owner = calloc(1, sizeof *owner);
    if (!owner) {
        return tw_fail(err, TW_E_NOMEM, "out of memory to open a model");
    }
    owner->files.memory = &owner->memory;
    int rc = import(owner, path, tokenizer, &model, err);
    if (rc) {
        owner_destroy(owner);
        return rc;
    }
    *out = model;
    out->owner = owner;
    return 0;
}

void tw_model_close(struct tw_model *model) {
    if (model) {
        owner_destroy(model->owner);
        memset(model, 0, sizeof *model);
    }
}

int tw_model_read(const struct tw_model_tensor *tensor, uint64_t at, void *to, uint64_t n,
                  tw_error *err) {
    if (tensor->file) {
        uint64_t start = (uint64_t)(tensor->data - tensor->file->bytes);
        return tw_file_map_read(tensor->file, start + at, to, n, err);
    }
    memcpy(to, tensor->data + at, (size_t)n);
    return 0;
}

int tw_model_read_rows(const struct tw_model_tensor *tensor, uint32_t first, uint32_t n, void *to,
                       tw_error *err) {
    uint64_t row_bytes = tw_row_bytes(tensor->dtype, tensor->cols);
    int rc = 0;
    if (!tensor->head_rows) {
        return tw_model_read(tensor, first * row_bytes, to, n * row_bytes, err);
    }
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        uint64_t row = tw_model_source_row(first + i, tensor->head_rows);
        rc = tw_model_read(tensor, row * row_bytes, (uint8_t *)to + i * row_bytes, row_bytes, err);
    }
    return rc;
}

/* Bits of 256 elements. */
static uint32_t bits_of(enum tw_dtype dtype) {
    return tw_dtype_block_bytes(dtype) * 8 * (256 / tw_dtype_block_elems(dtype));
}

static void convert(struct tw_model_tensor *t, enum tw_dtype to) {
    if (t->cols % tw_dtype_block_elems(to)) {
        to = TW_DT_F16;
    }
    if (t->rows > 1 && bits_of(to) < bits_of(t->dtype)) {
        t->converted = true;
        t->to = to;
    }
}

void tw_model_convert(struct tw_model *model, enum tw_dtype to) {
    struct tw_model_tensor *tensors = (struct tw_model_tensor *)(uintptr_t)model->tensors;
    for (uint32_t i = 0; i < model->n_tensors; i++) {
        convert(&tensors[i], to);
    }
}

static int compare_name(const void *name, const void *tensor) {
    return strcmp(name, ((const struct tw_model_tensor *)tensor)->name);
}

const struct tw_model_tensor *tw_model_find(const struct tw_model *model, const char *name) {
    return model->n_tensors ? bsearch(name, model->tensors, model->n_tensors,
                                      sizeof model->tensors[0], compare_name)
                            : NULL;
}
