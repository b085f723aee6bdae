/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of compiled models. An entry's name is MODEL-TARGET-HASH.twb: what people look for,
 * and 64 hexadecimal digits that decide, the first half of the compilation's key and the first half
 * of the bundle's content hash. So an entry is found by what it was compiled from, and a bundle of
 * something else that got its name is noticed.
 */
#ifndef TW_TOOLS_CACHE_FOLDER_H
#define TW_TOOLS_CACHE_FOLDER_H

#include "tilewright/tilewright.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define CACHE_PATH_BYTES 4096u
#define CACHE_NAME_BYTES 256u
#define CACHE_KEY_DIGITS 32u

struct cache_entry {
    char name[CACHE_NAME_BYTES];
    bool is_file; /* regular: another thing of that name is none of ours */
    uint64_t bytes;
    struct timespec used; /* last, by the time of access that cache_touch sets */
};

/* $XDG_CACHE_HOME/tilewright or ~/.cache/tilewright, with the folders above it if `make`. 0 or
 * errno; ENOENT with "" in folder: neither variable names a place. */
int cache_folder(char folder[CACHE_PATH_BYTES], bool make);

/* Calls use() for each entry, in no order; false ends it. Also an entry: a file that an older
 * version stored, and one that a compilation left unfinished an hour ago. */
void cache_each(const char *folder, bool (*use)(void *ctx, const struct cache_entry *e), void *ctx);

/* The regular file of that key (of 64 digits). False: there is none. */
bool cache_find(const char *folder, const char *key, struct cache_entry *out);
/* True if the entry's name holds the bundle's content hash. */
bool cache_is_whole(const struct cache_entry *e, const struct tw_decoder_info *info);
/* The name for a bundle that was compiled with that key. `model`: the model's path, for a bundle
 * without a name of its own. */
void cache_name(char name[CACHE_NAME_BYTES], const struct tw_decoder_info *info, const char *model,
                const char *key);
/* It is used now. Changes the time of access and nothing else. */
void cache_touch(const char *path);

#endif
