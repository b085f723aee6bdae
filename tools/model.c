/* SPDX-License-Identifier: Apache-2.0
 *
 * A model without a tokenizer can still be run with token ids, so only text needs one.
 */
#include "tools/model.h"

int model_need_tokenizer(const char *path, const struct tw_model_info *model, tw_error *err) {
    if (model->has_tokenizer) {
        return 0;
    }
    return tw_fail(err, TW_E_UNSUPPORTED,
                   "%.160s: %s; token ids work: --ids for the prompt, with --print-ids, --json or "
                   "--logits",
                   path, model->tokenizer_problem);
}
