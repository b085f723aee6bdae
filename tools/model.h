/* SPDX-License-Identifier: Apache-2.0
 *
 * What the command wants to know of a model file before it is compiled.
 */
#ifndef TW_TOOLS_MODEL_H
#define TW_TOOLS_MODEL_H

#include "compiler/compile.h"

#include <stdbool.h>

struct model_facts {
    uint32_t n_ctx_train;
    bool has_tokenizer;  /* one that a bundle can hold */
    char tokenizer[200]; /* without one: why, as a clause that names the key and its value */
};

/* Opens and checks the file as the compiler does. Errors: those of tw_model_open. */
int model_look(const char *path, const char *tokenizer, struct model_facts *out, tw_error *err);

/* UNSUPPORTED where the model has no tokenizer, naming why and what works without text. */
int model_need_tokenizer(const char *path, const struct model_facts *facts, tw_error *err);

#endif
