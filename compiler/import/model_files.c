/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of mapped files (model_files.h).
 */
#include "compiler/import/model_files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct tw_model_file {
    struct tw_file_map map;
    struct tw_model_file *next;
};

int tw_model_files_open(struct tw_model_files *files, const char *path, struct tw_file_map **out,
                        tw_error *err) {
    struct tw_model_file *file = tw_import_alloc(files->memory, 1, sizeof *file);
    *out = NULL;
    if (!file) {
        return tw_fail(err, TW_E_NOMEM, "out of memory to open a model");
    }
    int rc = tw_file_map_open(path, &file->map, err);
    if (rc == 0) {
        file->next = files->first;
        files->first = file;
        *out = &file->map;
    }
    return rc;
}

void tw_model_files_close(struct tw_model_files *files) {
    for (struct tw_model_file *f = files->first; f; f = f->next) {
        tw_file_map_close(&f->map);
    }
    files->first = NULL;
}

char *tw_path_beside(struct tw_import_memory *memory, const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash + 1 - path) : 0, bytes = folder + strlen(name) + 1;
    char *result = tw_import_alloc(memory, bytes, 1);
    if (result) {
        snprintf(result, bytes, "%.*s%s", (int)folder, path, name);
    }
    return result;
}

bool tw_path_is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
