/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins the parts of a split model (gguf_split.h). Whichever part is given, the others are found by
 * its name, and each must say itself which part of how many it is.
 */
#include "compiler/import/gguf_split.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUFFIX_BYTES 20u /* "-00001-of-00005.gguf" */

struct split {
    uint32_t count, number; /* of the given file, from 1 on */
    uint64_t tensors;       /* of all parts */
};

/* ---- names ---- */

static bool read_five_digits(const char *text, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        *out = *out * 10 + (uint32_t)(text[i] - '0');
    }
    return true;
}

uint32_t tw_split_name(const char *path, uint32_t *number) {
    size_t length = strlen(path);
    const char *end = length > SUFFIX_BYTES ? path + length - SUFFIX_BYTES : "";
    uint32_t count = 0;
    bool is_part = *end == '-' && read_five_digits(end + 1, number) &&
                   memcmp(end + 6, "-of-", 4) == 0 && read_five_digits(end + 10, &count) &&
                   strcmp(end + 15, ".gguf") == 0 && *number >= 1 && *number <= count;
    return is_part ? count : 0;
}

char *tw_split_path(struct tw_import_memory *memory, const char *path, uint32_t number) {
    size_t length = strlen(path);
    char *copy = tw_import_text(memory, path, length), digits[16];
    if (copy) {
        snprintf(digits, sizeof digits, "%05u", number);
        memcpy(copy + length - SUFFIX_BYTES + 1, digits, 5);
    }
    return copy;
}

/* ---- what a file says of itself ---- */

static int read_split(const struct tw_gguf *gguf, struct split *out, tw_error *err) {
    uint64_t count = 1, number = 0, tensors = gguf->n_tensors;
    int rc = tw_gguf_uint(gguf, "split.count", false, 0, UINT16_MAX, &count, err);
    rc = rc ? rc : tw_gguf_uint(gguf, "split.no", count > 1, 0, UINT16_MAX, &number, err);
    rc =
        rc ? rc : tw_gguf_uint(gguf, "split.tensors.count", count > 1, 0, INT32_MAX, &tensors, err);
    if (rc == 0 && count > 1 && number >= count) {
        rc = tw_fail(err, TW_E_RANGE, "%s: key split.no is %" PRIu64 ", expected 0 to %" PRIu64,
                     gguf->path, number, count - 1);
    }
    *out = (struct split){(uint32_t)count, (uint32_t)number + 1, tensors};
    return rc;
}

static int check_name(const char *path, const struct tw_gguf *gguf, const struct split *split,
                      tw_error *err) {
    uint32_t number, count = tw_split_name(path, &number);
    if (split->count > TW_MAX_PARTS) {
        return tw_fail(err, TW_E_UNSUPPORTED, "%s: key split.count is %u, expected at most %u",
                       gguf->path, split->count, TW_MAX_PARTS);
    }
    if (count == split->count && number == split->number) {
        return 0;
    }
    return tw_fail(
        err, TW_E_FORMAT,
        "%s: key split.count is %u and split.no %u, so this is part %u of a split model, "
        "and its name must end in -%05u-of-%05u.gguf for the others to be found",
        gguf->path, split->count, split->number - 1, split->number, split->number, split->count);
}

/* Checks that a file says that it is part `number` of the same model as `given`. */
static int check_part(const struct tw_gguf *part, uint32_t number, const struct split *given,
                      tw_error *err) {
    struct split found;
    int rc = read_split(part, &found, err);
    if (rc == 0 && found.count != given->count) {
        rc = tw_fail(err, TW_E_FORMAT,
                     "%s: key split.count is %u, expected %u: the file is not a part of this model",
                     part->path, found.count, given->count);
    } else if (rc == 0 && found.number != number) {
        rc = tw_fail(err, TW_E_FORMAT,
                     "%s: key split.no is %u, expected %u: the file is not the part that its name "
                     "says",
                     part->path, found.number - 1, number - 1);
    } else if (rc == 0 && found.tensors != given->tensors) {
        rc = tw_fail(err, TW_E_FORMAT,
                     "%s: key split.tensors.count is %" PRIu64 ", expected %" PRIu64
                     ": the file is not a part of this model",
                     part->path, found.tensors, given->tensors);
    }
    return rc;
}

/* ---- joining ---- */

static int open_part(const char *path, uint32_t number, const struct split *split,
                     struct tw_model_files *files, struct tw_gguf *out, tw_error *err) {
    char buffer[TW_SHORT_PATH_BYTES];
    struct tw_file_map *map = NULL;
    const char *name = tw_split_path(files->memory, path, number);
    const char *shown = name ? tw_short_path(name, buffer) : NULL;
    shown = shown ? tw_import_text(files->memory, shown, strlen(shown)) : NULL;
    if (!shown) {
        return tw_fail(err, TW_E_NOMEM, "out of memory to open a model");
    }
    if (access(name, F_OK) != 0) {
        return tw_fail(err, TW_E_MISSING,
                       "%s: there is no such file, but it is part %u of the %u of a split model",
                       shown, number, split->count);
    }
    int rc = tw_model_files_open(files, name, &map, err);
    rc = rc ? rc : tw_gguf_parse_file(shown, map, files->memory, out, err);
    return rc ? rc : check_part(out, number, split, err);
}

/* Puts the tensors of all parts into one table. */
static int join_tensors(const struct tw_gguf *parts, const struct split *split,
                        struct tw_import_memory *memory, struct tw_gguf *whole, tw_error *err) {
    uint64_t n = 0, at = 0;
    for (uint32_t i = 0; i < split->count; i++) {
        n += parts[i].n_tensors;
    }
    if (n != split->tensors) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: key split.tensors.count is %" PRIu64 ", but the %u parts have %" PRIu64
                       " tensors",
                       whole->path, split->tensors, split->count, n);
    }
    whole->n_tensors = n;
    whole->tensors = tw_import_alloc(memory, n, sizeof whole->tensors[0]);
    if (!whole->tensors) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for the tensor table", whole->path);
    }
    for (uint32_t i = 0; i < split->count; i++) {
        for (uint64_t t = 0; t < parts[i].n_tensors; t++) {
            whole->tensors[at++] = parts[i].tensors[t];
        }
    }
    const struct tw_gguf_tensor *twice = tw_gguf_sort_tensors(whole);
    return twice ? tw_fail(err, TW_E_FORMAT, "%s: tensor %s is in two parts of the model",
                           whole->path, twice->name)
                 : 0;
}

int tw_gguf_join(const char *path, struct tw_model_files *files, struct tw_gguf *gguf,
                 tw_error *err) {
    struct split split;
    int rc = read_split(gguf, &split, err);
    if (rc || split.count <= 1) {
        return rc;
    }
    rc = check_name(path, gguf, &split, err);
    struct tw_gguf *parts = rc ? NULL : tw_import_alloc(files->memory, split.count, sizeof *parts);
    if (!parts) {
        return rc ? rc : tw_fail(err, TW_E_NOMEM, "%s: no memory for its parts", gguf->path);
    }
    parts[split.number - 1] = *gguf;
    for (uint32_t i = 0; i < split.count && rc == 0; i++) {
        if (i + 1 != split.number) {
            rc = open_part(path, i + 1, &split, files, &parts[i], err);
        }
    }
    if (rc) {
        return rc;
    }
    *gguf = parts[0];
    gguf->n_parts = split.count;
    return join_tensors(parts, &split, files->memory, gguf, err);
}
