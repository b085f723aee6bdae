/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of architectures.
 */
#include "compiler/arch/arch.h"

#include <string.h>

static const struct {
    const char *name;
    int (*build)(const struct tw_model *, struct tw_graph *, tw_error *);
} archs[] = {
    {"llama", tw_arch_llama},
};

int tw_arch_build(const struct tw_model *model, struct tw_graph *g, tw_error *err) {
    g->model = model;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        if (!strcmp(model->arch, archs[i].name)) {
            int rc = archs[i].build(model, g, err);
            return rc ? rc : tw_graph_check(g, err);
        }
    }
    return tw_fail(err, TW_E_UNSUPPORTED,
                   "%s: architecture \"%s\" is not supported; supported: llama", model->path,
                   model->arch);
}
