/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens a MODEL|BUNDLE argument as a decoder: a bundle is opened as it is, a model is compiled
 * into the cache first.
 */
#ifndef TW_TOOLS_MODEL_CACHE_H
#define TW_TOOLS_MODEL_CACHE_H

#include "tilewright/compile.h"
#include "tilewright/tilewright.h"

struct cache_request {
    struct tw_compile_options options; /* how a model is compiled */
    bool fresh;                        /* compile even if the cache has it */
    bool text;                         /* refuse a model without a tokenizer before compiling */
};

struct cache_result {
    tw_decoder *decoder;
    bool is_bundle; /* the argument was one */
    bool compiled;  /* by this call, not found in the cache */
    double compile_s, open_s;
};

/* True if the file begins like an ELF file; false also if it cannot be read (the next step reports
 * why). */
bool cache_is_bundle(const char *path);

/* Opens `path`. For a bundle, the target of the options (if not NULL) must be the bundle's. The
 * cache is the folder of tools/cache_folder.h; an entry that is damaged or of another model is
 * compiled again; if the cache cannot be used or cannot store the bundle, a temporary file is used.
 * Both are noted on standard error, and so is a context that the model was not trained for. Errors:
 * those of tw_compile_file and tw_decoder_open; TARGET; UNSUPPORTED (request->text). */
int cache_open(const char *path, const struct cache_request *request, struct cache_result *out,
               tw_error *err);

#endif
