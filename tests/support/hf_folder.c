/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of transformers (hf_folder.h).
 */
#include "tests/support/hf_folder.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- names ---- */

/* "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight" */
static void hf_name(const char *name, char out[160]) {
    static const char *const whole[][2] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                           {"output_norm.weight", "model.norm.weight"},
                                           {"output.weight", "lm_head.weight"}};
    static const char *const parts[][2] = {
        {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
        {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
        {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
        {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
        {"ffn_down", "mlp.down_proj"}};
    unsigned layer;
    char part[64];
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        if (strcmp(name, whole[i][0]) == 0) {
            strcpy(out, whole[i][1]);
        }
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (sscanf(name, "blk.%u.%63[a-z_]", &layer, part) == 2 && strcmp(part, parts[i][0]) == 0) {
            snprintf(out, 160, "model.layers.%u.%s.weight", layer, parts[i][1]);
        }
    }
}

static const char *type_name(enum tw_dtype dtype) {
    return dtype == TW_DT_F32 ? "F32" : dtype == TW_DT_F16 ? "F16" : "BF16";
}

/* ---- files ---- */

char *hf_config_text(const struct tw_model *m, const char *more) {
    char *text = NULL;
    size_t size;
    const struct tw_hparams *h = &m->h;
    FILE *f = open_memstream(&text, &size);
    if (!f) {
        abort();
    }
    fprintf(
        f,
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\",\n"
        " \"hidden_act\": \"silu\", \"hidden_size\": %u, \"intermediate_size\": %u,\n"
        " \"num_hidden_layers\": %u, \"num_attention_heads\": %u, \"num_key_value_heads\": %u,\n"
        " \"head_dim\": %u, \"max_position_embeddings\": %u, \"vocab_size\": %u,\n"
        " \"rms_norm_eps\": %.9g, \"rope_theta\": %.9g, \"rope_scaling\": null,\n"
        " \"tie_word_embeddings\": %s, \"torch_dtype\": \"float32\"%s}\n",
        h->dim, h->hidden, h->n_layers, h->n_heads, h->n_kv_heads, h->head_dim, h->n_ctx_train,
        h->n_vocab, (double)h->norm_eps, (double)h->rope_theta, m->tied ? "true" : "false",
        more ? more : "");
    if (fclose(f) != 0) {
        abort();
    }
    return text;
}

/* Row r of GGUF's order of q and k is row r_hf of transformers': the pair's number j, and which of
 * the two, t. */
static uint32_t row_of(const struct tw_model *m, const struct tw_model_tensor *t, uint32_t r) {
    uint32_t n = m->h.head_dim, head = r / n, j = r % n / 2, side = r % 2;
    bool turned = strstr(t->name, "attn_q.") || strstr(t->name, "attn_k.");
    return turned ? head * n + side * n / 2 + j : r;
}

static void put_tensor(const struct tw_model *m, const struct tw_model_tensor *t, uint8_t *to) {
    uint64_t row_bytes = t->bytes / t->rows;
    for (uint32_t r = 0; r < t->rows; r++) {
        memcpy(to + row_of(m, t, r) * row_bytes, t->data + r * row_bytes, (size_t)row_bytes);
    }
}

uint8_t *hf_safetensors(const struct tw_model *m, uint32_t part, uint32_t parts, size_t *size) {
    char *header = NULL, name[160];
    size_t n;
    uint64_t at = 0;
    FILE *f = open_memstream(&header, &n);
    if (!f) {
        abort();
    }
    fprintf(f, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (uint32_t i = part; i < m->n_tensors; i += parts) {
        const struct tw_model_tensor *t = &m->tensors[i];
        hf_name(t->name, name);
        fprintf(f, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", name, type_name(t->dtype));
        fprintf(f, strstr(name, "norm") ? "%u]" : "%u,%u]",
                strstr(name, "norm") ? t->cols : t->rows, t->cols);
        fprintf(f, ",\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                (unsigned long long)(at + t->bytes));
        at += t->bytes;
    }
    if (fputs("}", f) < 0 || fclose(f) != 0) {
        abort();
    }
    uint8_t *out = calloc(1, 8 + n + (size_t)at), *to = out + 8 + n;
    if (!out) {
        abort();
    }
    for (unsigned i = 0; i < 8; i++) {
        out[i] = (uint8_t)((uint64_t)n >> (8 * i));
    }
    memcpy(out + 8, header, n);
    for (uint32_t i = part; i < m->n_tensors; i += parts) {
        put_tensor(m, &m->tensors[i], to);
        to += m->tensors[i].bytes;
    }
    free(header);
    *size = 8 + n + (size_t)at;
    return out;
}

/* ---- folders ---- */

bool hf_folder_put(const char *folder, const char *name, const void *bytes, size_t size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(bytes, 1, size, f) == size;
    return f && fclose(f) == 0 && ok;
}

static void shard_name(char out[64], uint32_t part, uint32_t parts) {
    if (parts == 1) {
        strcpy(out, "model.safetensors");
    } else {
        snprintf(out, 64, "model-%05u-of-%05u.safetensors", part + 1, parts);
    }
}

static bool put_index(const struct tw_model *m, const char *folder, uint32_t parts) {
    char *text = NULL, name[160], shard[64];
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f) {
        return false;
    }
    fprintf(f, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        hf_name(m->tensors[i].name, name);
        shard_name(shard, i % parts, parts);
        fprintf(f, "%s\n\"%s\": \"%s\"", i ? "," : "", name, shard);
    }
    fprintf(f, "}}\n");
    bool ok = fclose(f) == 0 && hf_folder_put(folder, "model.safetensors.index.json", text, size);
    free(text);
    return ok;
}

bool hf_folder_write(const struct tw_model *m, const char *folder, uint32_t parts,
                     const char *more) {
    char *config = hf_config_text(m, more), shard[64];
    bool ok = hf_folder_put(folder, "config.json", config, strlen(config));
    free(config);
    for (uint32_t i = 0; ok && i < parts; i++) {
        size_t size;
        uint8_t *bytes = hf_safetensors(m, i, parts, &size);
        shard_name(shard, i, parts);
        ok = hf_folder_put(folder, shard, bytes, size);
        free(bytes);
    }
    return ok && (parts == 1 || put_index(m, folder, parts));
}

static void remove_file(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

void hf_folder_remove(const char *folder, uint32_t parts) {
    char shard[64];
    for (uint32_t i = 0; i < parts; i++) {
        shard_name(shard, i, parts);
        remove_file(folder, shard);
    }
    remove_file(folder, "model.safetensors.index.json");
    remove_file(folder, "config.json");
    rmdir(folder);
}
