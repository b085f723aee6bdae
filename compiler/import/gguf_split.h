/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that are split into several GGUF files, NAME-00001-of-00005.gguf and so on: the first has
 * all metadata, each its tensors, and the keys split.no, split.count and split.tensors.count.
 */
#ifndef TW_COMPILER_IMPORT_GGUF_SPLIT_H
#define TW_COMPILER_IMPORT_GGUF_SPLIT_H

#include "compiler/import/gguf.h"
#include "compiler/import/model_files.h"

#define TW_MAX_PARTS 1024u

/* Returns how many parts the name of a file says that its model has, and in *number, from 1 on,
 * which this is; 0 if it is not the name of a part. */
uint32_t tw_split_name(const char *path, uint32_t *number);

/* Returns the path of part `number` of a model, of which `path` is one, in `memory`; NULL if that
 * is out of memory. */
char *tw_split_path(struct tw_import_memory *memory, const char *path, uint32_t number);

/* `gguf` is the parsed file at `path`. If it is a part of a split model, opens the others and makes
 * *gguf the whole: the metadata of the first and the tensors of all. Errors: MISSING (a part),
 * FORMAT (the name is not that of a part; a file is not a part of this model; the numbers of
 * tensors do not add up, or one occurs twice), UNSUPPORTED (too many parts), those of
 * tw_gguf_parse_file. */
int tw_gguf_join(const char *path, struct tw_model_files *files, struct tw_gguf *gguf,
                 tw_error *err);

#endif
