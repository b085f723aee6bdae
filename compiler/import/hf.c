/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the folder of a model of transformers (hf.h): which files there must be, and that the index
 * of a sharded model and its shards agree.
 */
#include "compiler/import/hf.h"

#include "compiler/import/hf_tokenizer.h"
#include "compiler/import/import.h"
#include "compiler/import/json_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_CONFIG_BYTES ((uint64_t)1 << 20)
#define MAX_INDEX_BYTES ((uint64_t)16 << 20)
#define MAX_SHARDS 1024u
#define SHOWN 80

struct folder {
    const char *path; /* with a slash at its end */
    struct tw_model_files *files;
    struct tw_import_memory *memory;
    struct tw_hf hf;
    tw_error *err;
};

/* A file of the folder, mapped. `shown` is its path for messages. */
struct member {
    const char *path, *shown;
    struct tw_file_map *map;
};

static int no_memory(const struct folder *f) {
    return tw_fail(f->err, TW_E_NOMEM, "%.150s: out of memory to open a model", f->path);
}

/* Sets path and shown; returns whether there is such a file. */
static bool find(const struct folder *f, const char *name, struct member *m, int *rc) {
    char buffer[TW_SHORT_PATH_BYTES];
    *m = (struct member){.path = tw_path_beside(f->memory, f->path, name)};
    const char *shown = m->path ? tw_short_path(m->path, buffer) : NULL;
    m->shown = shown ? tw_import_text(f->memory, shown, strlen(shown)) : NULL;
    *rc = m->shown ? 0 : no_memory(f);
    return *rc == 0 && access(m->path, F_OK) == 0;
}

/* Maps a file and, if it is to be read as a whole, copies it: at most `max` bytes; 0: any size. */
static int map(const struct folder *f, struct member *m, uint64_t max) {
    int rc = tw_model_files_open(f->files, m->path, &m->map, f->err);
    if (rc == 0 && max && m->map->size > max) {
        rc = tw_fail(f->err, TW_E_UNSUPPORTED,
                     "%s: the file has %" PRIu64 " bytes, expected at most %" PRIu64, m->shown,
                     m->map->size, max);
    }
    return rc || !max ? rc : tw_file_map_own(m->map, m->map->size, f->err);
}

static int read_config(struct folder *f) {
    struct member m;
    int rc;
    if (!find(f, "config.json", &m, &rc)) {
        return rc ? rc
                  : tw_fail(f->err, TW_E_MISSING,
                            "%s: there is no such file; expected the folder of a model with "
                            "config.json and model.safetensors",
                            m.shown);
    }
    rc = map(f, &m, MAX_CONFIG_BYTES);
    return rc ? rc
              : tw_hf_read_config(m.shown, m.map->bytes, m.map->size, f->memory, &f->hf, f->err);
}

/* ---- weights ---- */

static int read_shard(struct folder *f, struct member *m, struct tw_safetensors *out) {
    int rc = map(f, m, 0);
    rc = rc ? rc : tw_st_parse_file(m->shown, m->map, f->memory, out, f->err);
    return rc ? rc : tw_hf_add_tensors(&f->hf, out, f->err);
}

/* A shard is named by an outsider: only a name in the same folder is one. */
static int check_shard_name(const struct folder *f, const char *index, const char *tensor,
                            const json_t *value, const char **out) {
    const char *name = json_string_value(value);
    *out = name;
    if (!name) {
        return tw_fail(f->err, TW_E_FORMAT,
                       "%s: weight_map of tensor %.*s is %s, expected the name of a file", index,
                       SHOWN, tensor, tw_json_kind(value));
    }
    size_t n = strlen(name), tail = strlen(".safetensors");
    if (strchr(name, '/') || *name == '.' || n <= tail || n > 200 ||
        strcmp(name + n - tail, ".safetensors") != 0) {
        return tw_fail(f->err, TW_E_FORMAT,
                       "%s: weight_map of tensor %.*s is \"%.60s\", expected the name of a "
                       "safetensors file in the same folder",
                       index, SHOWN, tensor, name);
    }
    return 0;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Checks that the index names this shard for each of its tensors, and deletes them from it. */
static int check_shard(const struct folder *f, const char *index, json_t *weights,
                       const char *shard, const struct tw_safetensors *s) {
    for (uint64_t i = 0; i < s->n_tensors; i++) {
        const char *name = json_string_value(json_object_get(weights, s->tensors[i].name));
        if (!name || strcmp(name, shard) != 0) {
            return tw_fail(f->err, TW_E_FORMAT,
                           "%s: tensor %.*s is in %.60s, but weight_map names %.60s", index, SHOWN,
                           s->tensors[i].name, shard, name ? name : "no file");
        }
        json_object_del(weights, s->tensors[i].name);
    }
    return 0;
}

/* Refuses a tensor of the index that was in no shard. */
static int refuse_absent(const struct folder *f, const char *index, json_t *weights) {
    const char *name;
    json_t *value;
    json_object_foreach(weights, name, value) {
        return tw_fail(f->err, TW_E_MISSING, "%s: tensor %.*s is not in %.60s", index, SHOWN, name,
                       json_string_value(value));
    }
    return 0;
}

/* Reads the shards in the order of their names, each once. */
static int read_shards(struct folder *f, const char *index, json_t *weights, const char **shards,
                       size_t n) {
    int rc = 0;
    for (size_t i = 0, count = 0; i < n && rc == 0; i++) {
        struct member m;
        struct tw_safetensors s;
        if (i > 0 && strcmp(shards[i], shards[i - 1]) == 0) {
            continue;
        }
        if (++count > MAX_SHARDS) {
            return tw_fail(f->err, TW_E_UNSUPPORTED, "%s: there are over %u shards", index,
                           MAX_SHARDS);
        }
        if (!find(f, shards[i], &m, &rc)) {
            return rc ? rc
                      : tw_fail(f->err, TW_E_MISSING,
                                "%s: there is no such file, but model.safetensors.index.json names "
                                "it",
                                m.shown);
        }
        rc = read_shard(f, &m, &s);
        rc = rc ? rc : check_shard(f, index, weights, shards[i], &s);
    }
    return rc ? rc : refuse_absent(f, index, weights);
}

static int read_weight_map(struct folder *f, const char *index, json_t *json) {
    json_t *weights = NULL, *value;
    const char *name;
    size_t n = 0;
    int rc = tw_json_object(index, json, "weight_map", &weights, f->err);
    if (rc == 0 && json_object_size(weights) == 0) {
        rc = tw_fail(f->err, TW_E_MISSING, "%s: weight_map is missing or empty", index);
    }
    const char **shards =
        rc ? NULL : tw_import_alloc(f->memory, json_object_size(weights), sizeof *shards);
    if (!shards) {
        return rc ? rc : no_memory(f);
    }
    json_object_foreach(weights, name, value) {
        rc = rc ? rc : check_shard_name(f, index, name, value, &shards[n]);
        if (rc == 0) { /* a copy, as the entry will be deleted */
            shards[n] = tw_import_text(f->memory, shards[n], strlen(shards[n]));
            rc = shards[n++] ? 0 : no_memory(f);
        }
    }
    if (rc) {
        return rc;
    }
    qsort(shards, n, sizeof *shards, compare_names);
    return read_shards(f, index, weights, shards, n);
}

static int read_weights(struct folder *f) {
    struct member single, index;
    struct tw_safetensors s;
    json_t *json = NULL;
    int rc;
    if (find(f, "model.safetensors", &single, &rc)) {
        return read_shard(f, &single, &s);
    }
    if (rc || !find(f, "model.safetensors.index.json", &index, &rc)) {
        return rc ? rc
                  : tw_fail(f->err, TW_E_MISSING,
                            "%s: there is no such file, nor model.safetensors.index.json",
                            single.shown);
    }
    rc = map(f, &index, MAX_INDEX_BYTES);
    rc = rc ? rc : tw_json_parse(index.shown, index.map->bytes, index.map->size, &json, f->err);
    rc = rc ? rc : read_weight_map(f, index.shown, json);
    json_decref(json);
    return rc;
}

/* ---- tokenizer ---- */

static int read_optional(struct folder *f, const char *name, uint64_t max, struct tw_hf_file *out) {
    struct member m;
    int rc;
    if (!find(f, name, &m, &rc)) {
        return rc;
    }
    rc = map(f, &m, max);
    *out = rc ? *out : (struct tw_hf_file){m.shown, m.map->bytes, m.map->size};
    return rc;
}

/* The tokenizer, if the folder has one: a model without it runs with token ids. */
static int read_tokenizer(struct folder *f, struct tw_model *out) {
    struct tw_hf_tokenizer_files t = {0};
    int rc = read_optional(f, "tokenizer.json", TW_HF_TOKENIZER_BYTES_MAX, &t.tokenizer);
    rc = rc ? rc : read_optional(f, "tokenizer_config.json", MAX_INDEX_BYTES, &t.config);
    rc = rc ? rc
            : read_optional(f, "generation_config.json", MAX_CONFIG_BYTES, &t.generation_config);
    rc = rc ? rc : read_optional(f, "chat_template.jinja", TW_CHAT_BYTES_MAX, &t.chat_template);
    if (rc == 0 && !t.tokenizer.bytes) {
        out->tokenizer_problem = "it has no tokenizer: there is no tokenizer.json in the folder";
        return 0;
    }
    return rc ? rc : tw_import_hf_tokenizer(&t, f->memory, out, f->err);
}

int tw_import_hf(const char *path, struct tw_model_files *files, struct tw_model *out,
                 tw_error *err) {
    struct folder f = {.files = files, .memory = files->memory, .err = err};
    size_t length = strlen(path);
    char *folder = tw_import_alloc(f.memory, length + 2, 1);
    if (!folder) {
        return tw_fail(err, TW_E_NOMEM, "out of memory to open a model");
    }
    snprintf(folder, length + 2, "%s%s", path, length && path[length - 1] == '/' ? "" : "/");
    f.path = folder;
    int rc = read_config(&f);
    rc = rc ? rc : read_weights(&f);
    rc = rc ? rc : tw_hf_finish_tensors(&f.hf, err);
    struct tw_gguf *gguf = rc ? NULL : tw_import_alloc(f.memory, 1, sizeof *gguf);
    if (!gguf) {
        return rc ? rc : no_memory(&f);
    }
    *gguf = f.hf.build.gguf;
    rc = tw_import_gguf_keys(gguf, f.memory, out, err);
    return rc ? rc : read_tokenizer(&f, out);
}
