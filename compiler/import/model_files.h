/* SPDX-License-Identifier: Apache-2.0
 *
 * The mapped files of one imported model: one, or the parts of a model that is split. Their maps
 * stay where they are until all are closed, so tensors may point to them.
 */
#ifndef TW_COMPILER_IMPORT_MODEL_FILES_H
#define TW_COMPILER_IMPORT_MODEL_FILES_H

#include "compiler/import/model_memory.h"
#include "loader/base/file_map.h"

#include <stdbool.h>

struct tw_model_file;

/* Zero-initialise it, but for `memory`, in which the list is and which must be freed after it. */
struct tw_model_files {
    struct tw_import_memory *memory;
    struct tw_model_file *first;
};

/* Maps a file; *out is valid until tw_model_files_close. Errors: those of tw_file_map_open. */
int tw_model_files_open(struct tw_model_files *files, const char *path, struct tw_file_map **out,
                        tw_error *err);

/* Closes all of them. Legal twice. */
void tw_model_files_close(struct tw_model_files *files);

/* Returns the path of `name` in the folder of the file `path`, in `memory`; NULL if that is out of
 * memory. */
char *tw_path_beside(struct tw_import_memory *memory, const char *path, const char *name);

/* Returns whether a path is that of a folder. */
bool tw_path_is_folder(const char *path);

#endif
