/* SPDX-License-Identifier: Apache-2.0
 *
 * The architectures of transformers and their names of tensors (hf.h).
 */
#include "compiler/import/hf.h"

#include <stdio.h>
#include <string.h>

static const struct tw_hf_arch archs[] = {
    {.model_type = "llama",
     .gguf = "llama",
     .activation = "silu",
     .epsilon = "rms_norm_eps",
     .interleaved = true},
    {.model_type = "mistral",
     .gguf = "llama",
     .activation = "silu",
     .epsilon = "rms_norm_eps",
     .interleaved = true},
    {.model_type = "qwen2", .gguf = "qwen2", .activation = "silu", .epsilon = "rms_norm_eps"},
    {.model_type = "qwen3", .gguf = "qwen3", .activation = "silu", .epsilon = "rms_norm_eps"},
};

const struct tw_hf_arch *tw_hf_find_arch(const char *model_type) {
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        if (strcmp(archs[i].model_type, model_type) == 0) {
            return &archs[i];
        }
    }
    return NULL;
}

const char *tw_hf_arch_list(char *buffer, size_t size) {
    size_t n = 0;
    buffer[0] = 0;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0] && n < size; i++) {
        n += (size_t)snprintf(buffer + n, size - n, "%s%s", i ? ", " : "", archs[i].model_type);
    }
    return buffer;
}

static const char *find(const char *const (*names)[2], const char *name, size_t length) {
    for (; names && (*names)[0]; names++) {
        if (strlen((*names)[0]) == length && memcmp((*names)[0], name, length) == 0) {
            return (*names)[1];
        }
    }
    return NULL;
}

const char *tw_hf_layer_name(const struct tw_hf_arch *arch, const char *name, size_t length) {
    static const char *const common[][2] = {
        {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
        {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},       {NULL, NULL},
    };
    const char *own = find(arch->names, name, length);
    return own ? own : find(common, name, length);
}
