/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of compiled models. An entry's name is MODEL-TARGET-HASH.twb: model and target are for
 * people; the 64 hexadecimal digits identify the entry, the first half of the compilation's key and
 * the first half of the bundle's content hash. So an entry is found by what it was compiled from,
 * and another bundle under its name is detected.
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
    bool is_file; /* a regular file; anything else is not ours */
    uint64_t bytes;
    struct timespec used; /* last use: the access time that cache_touch sets */
};

/* Sets folder to $XDG_CACHE_HOME/tilewright or ~/.cache/tilewright and creates it with its parents
 * if `make`. Returns 0 or errno; ENOENT with "" in folder if neither variable is set. */
int cache_folder(char folder[CACHE_PATH_BYTES], bool make);

/* Calls use() for each entry, in no particular order, until it returns false. Files that an older
 * version stored count as entries, and so do those that a compilation left unfinished an hour
 * ago. */
void cache_each(const char *folder, bool (*use)(void *ctx, const struct cache_entry *e), void *ctx);

/* Finds the regular file with that key (of 64 digits). False if there is none. */
bool cache_find(const char *folder, const char *key, struct cache_entry *out);
/* True if the entry's name holds the bundle's content hash. */
bool cache_is_whole(const struct cache_entry *e, const struct tw_decoder_info *info);
/* Makes the name for a bundle that was compiled with that key. `model`: the model's path, for a
 * bundle without a name of its own. */
void cache_name(char name[CACHE_NAME_BYTES], const struct tw_decoder_info *info, const char *model,
                const char *key);
/* Marks the entry as used now: sets its access time and nothing else. */
void cache_touch(const char *path);

#endif
