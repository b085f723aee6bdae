/* SPDX-License-Identifier: Apache-2.0
 *
 * From a MODEL|BUNDLE argument to an open decoder: a bundle is opened as it is, a model is compiled
 * into the cache first.
 */
#ifndef TW_TOOLS_CACHE_H
#define TW_TOOLS_CACHE_H

#include "tilewright/compile.h"
#include "tilewright/tilewright.h"

struct cache_result {
    tw_decoder *decoder;
    bool is_bundle; /* the argument was one */
    bool compiled;  /* now, rather than found in the cache */
    double compile_s, open_s;
};

/* True if the file begins as an ELF file does; false also where it cannot be read (the next step
 * says why). */
bool cache_is_bundle(const char *path);

/* Opens `path`. `options`: how a model is compiled; for a bundle, its target (if not NULL) must be
 * the bundle's. The cache is $XDG_CACHE_HOME/tilewright or ~/.cache/tilewright; a file in it that
 * is damaged is made again once; where it cannot be written, a temporary file is used and a note
 * says so. Errors: those of tw_compile_file and tw_decoder_open; TARGET; USAGE. */
int cache_open(const char *path, const struct tw_compile_options *options, bool fresh,
               struct cache_result *out, tw_error *err);

#endif
