/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes config.json of transformers: any bytes, before the tensors of a small model. What is
 * accepted with them is a model whose sizes are those of its tensors.
 */
#include "compiler/import/hf.h"
#include "compiler/import/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DIM = 8, KV = 4, VOCAB = 5 };

static const struct tw_st_type f32 = {"F32", 4, 0};

/* The tensors of a layer and around it, all zeros. */
static const struct {
    const char *name;
    uint64_t rows, cols; /* rows 0: a vector */
} parts[] = {{"model.embed_tokens.weight", VOCAB, DIM},
             {"model.norm.weight", 0, DIM},
             {"model.layers.0.input_layernorm.weight", 0, DIM},
             {"model.layers.0.self_attn.q_proj.weight", DIM, DIM},
             {"model.layers.0.self_attn.k_proj.weight", KV, DIM},
             {"model.layers.0.self_attn.v_proj.weight", KV, DIM},
             {"model.layers.0.self_attn.o_proj.weight", DIM, DIM},
             {"model.layers.0.post_attention_layernorm.weight", 0, DIM},
             {"model.layers.0.mlp.gate_proj.weight", DIM, DIM},
             {"model.layers.0.mlp.up_proj.weight", DIM, DIM},
             {"model.layers.0.mlp.down_proj.weight", DIM, DIM}};
enum { PARTS = sizeof parts / sizeof parts[0] };

static void make(struct tw_st_tensor tensors[PARTS]) {
    static const float zeros[DIM * DIM];
    for (int i = 0; i < PARTS; i++) {
        bool vector = parts[i].rows == 0;
        tensors[i] =
            (struct tw_st_tensor){.name = parts[i].name,
                                  .type = &f32,
                                  .shape = {vector ? parts[i].cols : parts[i].rows, parts[i].cols},
                                  .n_dims = vector ? 1 : 2,
                                  .bytes = (vector ? 1 : parts[i].rows) * parts[i].cols * 4,
                                  .data = (const uint8_t *)zeros};
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_import_memory memory = {0};
    struct tw_st_tensor tensors[PARTS];
    const struct tw_safetensors s = {.path = "weights", .n_tensors = PARTS, .tensors = tensors};
    struct tw_hf hf;
    struct tw_model model;
    tw_error err = {0};
    make(tensors);
    int rc = tw_hf_read_config("fuzz", data, size, &memory, &hf, &err);
    rc = rc ? rc : tw_hf_add_tensors(&hf, &s, &err);
    rc = rc ? rc : tw_hf_finish_tensors(&hf, &err);
    rc = rc ? rc : tw_import_gguf_keys(&hf.build.gguf, &memory, &model, &err);
    if (rc == 0 && (model.h.dim != DIM || model.h.n_vocab != VOCAB || model.h.n_layers != 1)) {
        abort();
    }
    if (rc && (err.code != rc || !err.message[0] || rc == TW_E_INTERNAL)) {
        abort(); /* every refusal says why */
    }
    tw_import_free(&memory);
    return 0;
}
