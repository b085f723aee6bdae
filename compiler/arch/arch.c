/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of architectures, and the names of those that are known but not supported.
 */
#include "compiler/arch/arch.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*describe)(struct tw_arch_source *);
} archs[] = {
#define TW_X(function, name) {name, tw_arch_##function},
    TW_ARCHS(TW_X)
#undef TW_X
};
#define N_ARCHS (sizeof archs / sizeof archs[0])

/* What models of other architectures need that no graph operation does yet. */
static const struct {
    const char *needs, *names;
} others[] = {
    {"recurrent layers", " mamba mamba2 rwkv6 rwkv7 qwen35 qwen3next lfm2 granitehybrid falcon-h1 "
                         "nemotron_h plamo2 kimi-linear "},
    {"experts", " qwen2moe qwen3moe qwen35moe gpt-oss granitemoe phimoe lfm2moe deepseek deepseek2 "
                "olmoe dots1 glm4moe ernie4_5-moe mixtral dbrx arctic bailingmoe grok llama4 "},
    {"layers of several head sizes and shared caches", " gemma4 "},
    {"several streams a layer", " gemma3n "},
    {"an encoder", " t5 t5encoder bert nomic-bert jina-bert-v2 modern-bert "},
};

const char *tw_arch_find(const char *name, uint64_t length) {
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (length == strlen(archs[i].name) && memcmp(name, archs[i].name, (size_t)length) == 0) {
            return archs[i].name;
        }
    }
    return NULL;
}

static const char *needs_of(const char *name, int length) {
    char word[64];
    snprintf(word, sizeof word, " %.*s ", length, name);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strstr(others[i].names, word)) {
            return others[i].needs;
        }
    }
    return NULL;
}

int tw_arch_refuse(const char *path, const char *name, uint64_t length, tw_error *err) {
    static const char all[] =
#define TW_X(function, name) ", " name
        TW_ARCHS(TW_X)
#undef TW_X
        ;
    int shown = length < 48 ? (int)length : 48;
    const char *needs = needs_of(name, shown);
    return tw_fail(err, TW_E_UNSUPPORTED,
                   "%s: architecture \"%.*s\" is not supported%s%s%s; supported: %s", path, shown,
                   name, needs ? " yet (it has " : "", needs ? needs : "", needs ? ")" : "",
                   all + 2);
}

int tw_arch_describe(struct tw_arch_source *s) {
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (strcmp(s->arch, archs[i].name) == 0) {
            int rc = archs[i].describe(s);
            return rc ? rc : tw_arch_check_unread(s);
        }
    }
    return tw_arch_refuse(s->gguf->path, s->arch, strlen(s->arch), s->err);
}

int tw_arch_build(const struct tw_model *model, struct tw_graph *g, tw_error *err) {
    g->model = model;
    if (!tw_arch_find(model->arch, strlen(model->arch))) {
        return tw_arch_refuse(model->path, model->arch, strlen(model->arch), err);
    }
    int rc = tw_decoder_build(model, g, err);
    return rc ? rc : tw_graph_check(g, err);
}
