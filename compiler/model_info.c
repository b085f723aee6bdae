/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model file says about itself (tw_model_get_info): its header and vocabulary are read and
 * checked, its weights are not.
 */
#include "compiler/import/model.h"
#include "loader/base/sized.h"
#include "loader/base/text_filter.h"
#include "tilewright/compile.h"

#include <stdio.h>
#include <string.h>

static void explain(const struct tw_model *m, char *text, size_t size) {
    if (m->tokenizer_problem) {
        tw_text_copy(text, size, m->tokenizer_problem, strlen(m->tokenizer_problem));
    } else if (!m->tokenizer) {
        snprintf(text, size,
                 "it has no tokenizer: give the checkpoint's tokenizer file with --tokenizer");
    } else {
        snprintf(text, size, "it has no tokenizer: key tokenizer.ggml.model is missing");
    }
}

int tw_model_get_info(const char *path, const char *tokenizer, struct tw_model_info *info,
                      tw_error *err) {
    struct tw_model_info i = {.size = sizeof i};
    struct tw_model m = {0};
    int rc = TW_NEED_2(err, path, info);
    rc = rc ? rc : tw_sized_check(__func__, info, err);
    rc = rc ? rc : tw_model_open(path, tokenizer, &m, err);
    if (rc) {
        return rc;
    }
    i.n_ctx_train = m.h.n_ctx_train;
    i.has_tokenizer = m.vocab != NULL;
    if (!m.vocab) {
        explain(&m, i.tokenizer_problem, sizeof i.tokenizer_problem);
    }
    tw_model_close(&m);
    tw_sized_write(info, &i, sizeof i);
    return 0;
}
