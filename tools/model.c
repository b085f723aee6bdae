/* SPDX-License-Identifier: Apache-2.0
 *
 * A look at a model maps the file and reads its header and vocabulary, not the weights.
 */
#include "tools/model.h"

#include "compiler/import/model.h"
#include "loader/base/text_filter.h"

#include <stdio.h>
#include <string.h>

static void explain(const struct tw_model *m, char text[200]) {
    char kind[64];
    if (!m->tokenizer) {
        snprintf(text, 200, "it has no tokenizer: a checkpoint's is named by --tokenizer");
    } else if (!*m->tokenizer) {
        snprintf(text, 200, "it has no tokenizer: key tokenizer.ggml.model is missing");
    } else {
        tw_text_copy(kind, sizeof kind, m->tokenizer, strlen(m->tokenizer));
        snprintf(text, 200,
                 "key tokenizer.ggml.model is \"%s\", and only \"llama\" (SentencePiece) is "
                 "supported",
                 kind);
    }
}

int model_look(const char *path, const char *tokenizer, struct model_facts *out, tw_error *err) {
    struct tw_model m = {0};
    memset(out, 0, sizeof *out);
    int code = tw_model_open(path, tokenizer, &m, err);
    if (!code) {
        out->n_ctx_train = m.h.n_ctx_train;
        out->has_tokenizer = m.vocab != NULL;
        if (!m.vocab) {
            explain(&m, out->tokenizer);
        }
        tw_model_close(&m);
    }
    return code;
}

int model_need_tokenizer(const char *path, const struct model_facts *facts, tw_error *err) {
    if (facts->has_tokenizer) {
        return 0;
    }
    return tw_fail(err, TW_E_UNSUPPORTED,
                   "%.160s: %s; token ids work: --ids for the prompt, with --print-ids, --json or "
                   "--logits",
                   path, facts->tokenizer);
}
