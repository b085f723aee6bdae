/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of transformers of each architecture: the weights of the shared models under its names
 * and in its order, and a config with its members. The logits are those of the goldens. The names
 * and orders here are written from the definitions of transformers, not from the importer.
 */
#include "compiler/import/gguf.h"
#include "tests/support/arch_golden.h"
#include "tests/support/golden.h"
#include "tests/support/hf_folder.h"
#include "tests/support/test.h"

#include <unistd.h>

struct model {
    const char *file, *model_type;
    bool turned;   /* q and k in halves of a head, in the file side by side */
    bool less_one; /* norms without their 1 */
    bool exact;
    bool wrapped;                     /* the part for text of a model that takes images */
    const char *activation, *epsilon; /* NULL: silu, rms_norm_eps */
    const char *more;                 /* members, each after a comma */
};

#define YARN_BY_POSITION                                                                       \
    ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"rope_theta\": 500.0," \
    " \"beta_fast\": 2.0, \"beta_slow\": 0.5, \"mscale\": 1.0, \"mscale_all_dim\": 1.0,"       \
    " \"original_max_position_embeddings\": 24, \"llama_4_scaling_beta\": 0.1}"

static const struct model models[] = {
    {"llama-hd-F32", "llama", .turned = true},
    {"llama-linear-F32", "llama", .turned = true,
     .more = ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4.0}"},
    {"llama-yarn-F32", "llama", .turned = true,
     .more = ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0,"
             " \"original_max_position_embeddings\": 64}"},
    {"qwen2-tied-F32", "qwen2", .more = ", \"use_sliding_window\": false, \"sliding_window\": 4"},
    {"qwen2-untied-F32", "qwen2", .more = NULL},
    {"qwen3-tied-F32", "qwen3", .more = NULL},
    {"gemma2-F32", "gemma2", .less_one = true, .exact = true, .activation = "gelu_pytorch_tanh",
     .more = ", \"sliding_window\": 8, \"query_pre_attn_scalar\": 48,"
             " \"attn_logit_softcapping\": 4.0, \"final_logit_softcapping\": 8.0"},
    {"gemma3-F32", "gemma3_text", .less_one = true, .exact = true,
     .activation = "gelu_pytorch_tanh",
     .more = ", \"sliding_window\": 8, \"query_pre_attn_scalar\": 16, \"layer_types\": ["
             "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\","
             "\"sliding_attention\", \"sliding_attention\", \"full_attention\"]"},
    {"gemma3-linear-F32", "gemma3_text", .less_one = true, .exact = true,
     .activation = "gelu_pytorch_tanh",
     .more = ", \"sliding_window\": 12, \"sliding_window_pattern\": 3,"
             " \"query_pre_attn_scalar\": 24, \"rope_local_base_freq\": 10000.0,"
             " \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}"},
    {"phi3-plain-F32", "phi3",
     .more = ", \"sliding_window\": 8, \"original_max_position_embeddings\": 256"},
    {"phi3-long-F32", "phi3", .more = NULL},
    {"granite-F32", "granite", .turned = true,
     .more = ", \"embedding_multiplier\": 3.0, \"attention_multiplier\": 0.2,"
             " \"residual_multiplier\": 0.6, \"logits_scaling\": 1.5"},
    {"smollm3-F32", "smollm3", .turned = true, .more = ", \"no_rope_layers\": [1, 1, 1, 0]"},
    {"olmo2-F32", "olmo2", .more = NULL},
    {"exaone4-F32", "exaone4", .more = ", \"sliding_window\": null"},
    {"exaone4-swa-F32", "exaone4",
     .more = ", \"sliding_window\": 8, \"sliding_window_pattern\": \"LLLG\""},
    {"stablelm-F32", "stablelm", .epsilon = "layer_norm_eps",
     .more = ", \"partial_rotary_factor\": 0.25, \"use_parallel_residual\": false"},
    {"starcoder2-F32", "starcoder2", .exact = true, .activation = "gelu_pytorch_tanh",
     .epsilon = "norm_epsilon"},
    {"ernie4_5-F32", "ernie4_5", .turned = true},
    {"mistral3-F32", "ministral3", .turned = true, .more = YARN_BY_POSITION},
    {"mistral3-F32", "ministral3", .turned = true, .wrapped = true, .more = YARN_BY_POSITION},
    {"command-r-F32", "cohere", .epsilon = "layer_norm_eps", .more = ", \"logit_scale\": 0.5"},
    {"cohere2-F32", "cohere2", .epsilon = "layer_norm_eps",
     .more = ", \"logit_scale\": 0.5, \"sliding_window\": 8, \"layer_types\": ["
             "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\","
             "\"full_attention\"]"},
    {"hunyuan-dense-F32", "hunyuan_v1_dense",
     .more = ", \"rope_scaling\": {\"type\": \"dynamic\", \"alpha\": 50.0, \"factor\": 1.0}"},
};

/* ---- names ---- */

static bool is_one_of(const char *name, const char *list) {
    char padded[64];
    snprintf(padded, sizeof padded, " %s ", name);
    return strstr(list, padded) != NULL;
}

/* What transformers calls a part of a layer. */
static const char *part_name(const char *model_type, const char *part) {
    static const char *const pairs[][2] = {
        {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
        {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
        {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
        {"attn_k_norm", "self_attn.k_norm"}, {"attn_qkv", "self_attn.qkv_proj"},
        {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
        {"ffn_down", "mlp.down_proj"},       {"ffn_norm", "post_attention_layernorm"}};
    static const char *const other[][3] = {
        {" gemma2 gemma3_text olmo2 exaone4 ", "post_attention_norm", "post_attention_layernorm"},
        {" gemma2 gemma3_text ", "ffn_norm", "pre_feedforward_layernorm"},
        {" gemma2 gemma3_text olmo2 exaone4 ", "post_ffw_norm", "post_feedforward_layernorm"},
        {" phi3 ", "ffn_up", "mlp.gate_up_proj"},
        {" starcoder2 ", "ffn_up", "mlp.c_fc"},
        {" starcoder2 ", "ffn_down", "mlp.c_proj"},
        {" hunyuan_v1_dense ", "attn_q_norm", "self_attn.query_layernorm"},
        {" hunyuan_v1_dense ", "attn_k_norm", "self_attn.key_layernorm"}};
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        if (is_one_of(model_type, other[i][0]) && strcmp(part, other[i][1]) == 0) {
            return other[i][2];
        }
    }
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (strcmp(part, pairs[i][0]) == 0) {
            return pairs[i][1];
        }
    }
    fail_msg("no name for %s", part);
    return NULL;
}

static void name_of(const char *model_type, const char *name, char out[160]) {
    unsigned layer;
    char part[64], tail[16];
    if (sscanf(name, "blk.%u.%63[a-z_].%15s", &layer, part, tail) == 3) {
        snprintf(out, 160, "model.layers.%u.%s.%s", layer, part_name(model_type, part), tail);
    } else if (sscanf(name, "output_norm.%15s", tail) == 1) {
        snprintf(out, 160, "model.norm.%s", tail);
    } else {
        strcpy(out,
               strcmp(name, "output.weight") == 0 ? "lm_head.weight" : "model.embed_tokens.weight");
    }
}

/* ---- files ---- */

static uint32_t number(const struct tw_gguf *g, const char *arch, const char *key,
                       uint32_t otherwise) {
    char name[160];
    uint64_t value = otherwise;
    snprintf(name, sizeof name, "%s.%s", arch, key);
    assert_int_equal(tw_gguf_uint(g, name, false, 0, UINT32_MAX, &value, NULL), 0);
    return (uint32_t)value;
}

static float real(const struct tw_gguf *g, const char *arch, const char *key, float otherwise) {
    char name[160];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    assert_int_equal(tw_gguf_float(g, name, false, &otherwise, NULL), 0);
    return otherwise;
}

/* Factors of long contexts are members of the config, not tensors. */
static bool is_factors(const struct tw_gguf_tensor *t) {
    return strncmp(t->name, "rope_factors_", 13) == 0;
}

static void put_factors(const struct tw_gguf *g, const char *tensor, const char *member,
                        FILE *out) {
    const struct tw_gguf_tensor *t = tw_gguf_find_tensor(g, tensor);
    fprintf(out, ", \"%s\": [", member);
    for (uint64_t i = 0; i < t->dims[0]; i++) {
        float x;
        memcpy(&x, t->data + i * 4, 4);
        fprintf(out, "%s%.9g", i ? ", " : "", (double)x);
    }
    fputs("]", out);
}

static void put_longrope(const struct tw_gguf *g, const char *arch, FILE *out) {
    if (tw_gguf_find_tensor(g, "rope_factors_long.weight")) {
        fprintf(out,
                ", \"original_max_position_embeddings\": %u, \"partial_rotary_factor\": 0.75,"
                " \"rope_scaling\": {\"type\": \"longrope\", \"attention_factor\": %.9g",
                number(g, arch, "rope.scaling.original_context_length", 0),
                (double)real(g, arch, "rope.scaling.attn_factor", 1.0f));
        put_factors(g, "rope_factors_long.weight", "long_factor", out);
        put_factors(g, "rope_factors_short.weight", "short_factor", out);
        fputs("}", out);
    }
}

static void put_config(const struct model *m, const struct tw_gguf *g, const char *folder) {
    const char *text = NULL;
    uint64_t length = 0;
    char arch[64], *config = NULL;
    size_t size;
    assert_int_equal(tw_gguf_string(g, "general.architecture", true, &text, &length, NULL), 0);
    snprintf(arch, sizeof arch, "%.*s", (int)length, text);
    uint32_t dim = number(g, arch, "embedding_length", 0),
             heads = number(g, arch, "attention.head_count", 0);
    float eps = real(g, arch, "attention.layer_norm_rms_epsilon", 0.0f);
    eps = eps > 0.0f ? eps : real(g, arch, "attention.layer_norm_epsilon", 0.0f);
    FILE *f = open_memstream(&config, &size);
    assert_non_null(f);
    fputs(m->wrapped ? "{\"model_type\": \"mistral3\", \"text_config\": " : "", f);
    fprintf(f,
            "{\"model_type\": \"%s\", \"hidden_act\": \"%s\", \"hidden_size\": %u,"
            "\"intermediate_size\": %u, \"num_hidden_layers\": %u, \"num_attention_heads\": %u,"
            "\"num_key_value_heads\": %u, \"head_dim\": %u, \"max_position_embeddings\": %u,"
            "\"vocab_size\": %u, \"%s\": %.9g, \"rope_theta\": %.9g,"
            "\"tie_word_embeddings\": %s%s",
            m->model_type, m->activation ? m->activation : "silu", dim,
            number(g, arch, "feed_forward_length", 0), number(g, arch, "block_count", 0), heads,
            number(g, arch, "attention.head_count_kv", 0),
            number(g, arch, "attention.key_length", dim / heads),
            number(g, arch, "context_length", 0),
            (uint32_t)tw_gguf_find_tensor(g, "token_embd.weight")->dims[1],
            m->epsilon ? m->epsilon : "rms_norm_eps", (double)eps,
            (double)real(g, arch, "rope.freq_base", 10000.0f),
            tw_gguf_find_tensor(g, "output.weight") ? "false" : "true", m->more ? m->more : "");
    put_longrope(g, arch, f);
    fputs(m->wrapped ? "}}" : "}", f);
    assert_int_equal(fclose(f), 0);
    assert_true(hf_folder_put(folder, "config.json", config, size));
    free(config);
}

/* Writes row r of transformers' order for each row of the file's. */
static void put_tensor(const struct model *m, const struct tw_gguf_tensor *t, uint32_t head_dim,
                       FILE *out) {
    bool turned = m->turned && (strstr(t->name, "attn_q.") || strstr(t->name, "attn_k."));
    uint64_t rows = t->n_dims == 1 ? t->dims[0] : t->dims[1], row_bytes = t->bytes / rows;
    for (uint64_t r = 0; r < rows; r++) {
        uint64_t in = r % head_dim, from = r;
        if (turned) {
            from = r - in + 2 * (in % (head_dim / 2)) + in / (head_dim / 2);
        }
        float x;
        memcpy(&x, t->data + from * row_bytes, 4);
        x -= 1.0f;
        bool less = m->less_one && strstr(t->name, "norm.weight");
        fwrite(less ? (const uint8_t *)&x : t->data + from * row_bytes, 1, (size_t)row_bytes, out);
    }
}

static void put_weights(const struct model *m, const struct tw_gguf *g, uint32_t head_dim,
                        const char *folder) {
    char *header = NULL, path[200], name[160];
    size_t n;
    uint64_t at = 0;
    FILE *f = open_memstream(&header, &n);
    assert_non_null(f);
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        const struct tw_gguf_tensor *t = &g->tensors[i];
        if (is_factors(t)) {
            continue;
        }
        name_of(m->model_type, t->name, name);
        fprintf(f, "%c\"%s%s\":{\"dtype\":\"F32\",\"shape\":[", at ? ',' : '{',
                m->wrapped ? "language_model." : "", name);
        if (t->n_dims == 2) {
            fprintf(f, "%llu,", (unsigned long long)t->dims[1]);
        }
        fprintf(f, "%llu],\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->dims[0],
                (unsigned long long)at, (unsigned long long)(at + t->bytes));
        at += t->bytes;
    }
    fputs("}", f);
    assert_int_equal(fclose(f), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    f = fopen(path, "wb");
    assert_non_null(f);
    uint64_t length = n;
    fwrite(&length, 1, 8, f);
    fwrite(header, 1, n, f);
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        if (!is_factors(&g->tensors[i])) {
            put_tensor(m, &g->tensors[i], head_dim, f);
        }
    }
    assert_int_equal(fclose(f), 0);
    free(header);
}

static void make_folder(const struct model *m, const char *path, const char *folder) {
    struct tw_import_memory memory = {0};
    struct tw_file_map file;
    struct tw_gguf g;
    tw_error err = {0};
    if (tw_file_map_open(path, &file, &err) ||
        tw_gguf_parse(path, file.bytes, file.size, &memory, &g, &err)) {
        fail_msg("%s", err.message);
    }
    const struct tw_gguf_tensor *k = tw_gguf_find_tensor(&g, "blk.0.attn_k.weight");
    const char *text = NULL;
    uint64_t length = 0;
    char arch[64];
    assert_int_equal(tw_gguf_string(&g, "general.architecture", true, &text, &length, NULL), 0);
    snprintf(arch, sizeof arch, "%.*s", (int)length, text);
    uint32_t kv_heads = number(&g, arch, "attention.head_count_kv", 1);
    put_config(m, &g, folder);
    put_weights(m, &g, k ? (uint32_t)k->dims[1] / kv_heads : 2, folder);
    tw_import_free(&memory);
    tw_file_map_close(&file);
}

static void folders_of_every_architecture_meet_the_goldens(void **state) {
    (void)state;
    static const char *const targets[] = {"host"};
    const struct tw_compile_options o = {.size = sizeof o, .host_sites = 2};
    char path[4400], golden[4400], root[4096];
    const char *data = golden_shared("data/arch");
    if (!data) {
        skip();
    }
    snprintf(root, sizeof root, "%s", data ? data : "");
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i += TEST_ASAN ? 4 : 1) {
        char folder[] = "/tmp/tw-hf-arch-XXXXXX";
        assert_non_null(mkdtemp(folder));
        snprintf(path, sizeof path, "%s/%s.gguf", root, models[i].file);
        snprintf(golden, sizeof golden, "%s/%s.json", root, models[i].file);
        make_folder(&models[i], path, folder);
        print_message("%s\n", models[i].file);
        double largest = arch_golden_check_model(folder, golden, models[i].exact, &o, targets, 1);
        print_message("%-20s %g\n", models[i].file, largest);
        hf_folder_remove(folder, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_of_every_architecture_meet_the_goldens),
    };
    return cmocka_run_group_tests_name("transformers", tests, NULL, NULL);
}
