/* SPDX-License-Identifier: Apache-2.0
 *
 * The architectures of transformers and their names of tensors (hf.h).
 */
#include "compiler/import/hf.h"

#include <stdio.h>
#include <string.h>

#define NO_NAME \
    { NULL, NULL }

#define LAYER_NORM(name) .activation = "silu", .epsilon = name, .layer_norm = true

/* Norms around each block. */
static const char *const names_around[][2] = {{"post_attention_layernorm", "post_attention_norm"},
                                              {"pre_feedforward_layernorm", "ffn_norm"},
                                              {"post_feedforward_layernorm", "post_ffw_norm"},
                                              NO_NAME};
static const char *const names_fused[][2] = {
    {"self_attn.qkv_proj", "attn_qkv"}, {"mlp.gate_up_proj", "ffn_up"}, NO_NAME};
static const char *const names_ungated[][2] = {
    {"mlp.c_fc", "ffn_up"}, {"mlp.c_proj", "ffn_down"}, NO_NAME};
static const char *const names_query[][2] = {{"self_attn.query_layernorm", "attn_q_norm"},
                                             {"self_attn.key_layernorm", "attn_k_norm"},
                                             NO_NAME};

#define SILU .activation = "silu", .epsilon = "rms_norm_eps"
#define GELU .activation = "gelu_pytorch_tanh", .epsilon = "rms_norm_eps"

static const struct tw_hf_arch archs[] = {
    {"llama", "llama", SILU, .interleaved = true},
    {"mistral", "llama", SILU, .interleaved = true, .window = TW_HF_WINDOW_KEY},
    {"qwen2", "qwen2", SILU, .window = TW_HF_WINDOW_SWITCH},
    {"qwen3", "qwen3", SILU, .window = TW_HF_WINDOW_SWITCH},
    {"gemma2", "gemma2", GELU, .norm_offset = true, .tied = true, .names = names_around,
     .head_dim = 256, .window = TW_HF_WINDOW_KEY, .window_period = 2},
    {"gemma3_text", "gemma3", GELU, .norm_offset = true, .tied = true, .names = names_around,
     .head_dim = 256, .rope_theta = 1e6f, .window = TW_HF_WINDOW_KEY, .window_period = 6},
    {"phi3", "phi3", SILU, .names = names_fused, .window = TW_HF_WINDOW_KEY},
    {"granite", "granite", SILU, .interleaved = true},
    {"smollm3", "smollm3", SILU, .interleaved = true, .tied = true, .rope_theta = 2e6f},
    {"olmo2", "olmo2", SILU, .names = names_around},
    {"olmo3", "olmo2", SILU, .names = names_around, .window = TW_HF_WINDOW_KEY, .window_period = 4},
    {"exaone4", "exaone4", SILU, .names = names_around, .window = TW_HF_WINDOW_KEY,
     .window_period = 4},
    {"stablelm", "stablelm", LAYER_NORM("layer_norm_eps"), .partial = 0.25f},
    {"starcoder2", "starcoder2", .activation = "gelu_pytorch_tanh", .epsilon = "norm_epsilon",
     .layer_norm = true, .tied = true, .names = names_ungated},
    {"ernie4_5", "ernie4_5", SILU, .interleaved = true, .tied = true, .rope_theta = 5e5f},
    {"ministral3", "mistral3", SILU, .interleaved = true, .window = TW_HF_WINDOW_KEY},
    /* both have the rotary pairs side by side already */
    {"cohere", "command-r", LAYER_NORM("layer_norm_eps"), .tied = true,
     .context = "model_max_length"},
    {"cohere2", "cohere2", LAYER_NORM("layer_norm_eps"), .tied = true,
     .context = "model_max_length", .window = TW_HF_WINDOW_KEY, .window_period = 4},
    {"hunyuan_v1_dense", "hunyuan-dense", SILU, .names = names_query},
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
