/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the safetensors reader and what becomes of its tensors: any bytes as the weights of a
 * model of transformers whose config is good. Whatever is accepted is read as the compiler does.
 */
#include "compiler/import/hf.h"
#include "compiler/import/import.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 8, \"intermediate_size\": 8,"
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,"
    "\"max_position_embeddings\": 8, \"vocab_size\": 5, \"tie_word_embeddings\": true,"
    "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}";

static volatile unsigned sink;

static void use(const struct tw_model *m) {
    for (uint32_t t = 0; t < m->n_tensors; t++) {
        const struct tw_model_tensor *x = &m->tensors[t];
        uint8_t *rows = malloc((size_t)x->bytes + 1);
        if (!rows || tw_model_read_rows(x, 0, x->rows, rows, NULL)) {
            abort();
        }
        for (uint64_t i = 0; i < x->bytes; i++) {
            sink += rows[i];
        }
        free(rows);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_import_memory memory = {0};
    struct tw_safetensors s;
    struct tw_hf hf;
    struct tw_model model;
    tw_error err = {0};
    int rc = tw_st_parse("fuzz", data, size, &memory, &s, &err);
    rc = rc ? rc : tw_hf_read_config("config", config, sizeof config - 1, &memory, &hf, &err);
    rc = rc ? rc : tw_hf_add_tensors(&hf, &s, &err);
    rc = rc ? rc : tw_hf_finish_tensors(&hf, &err);
    rc = rc ? rc : tw_import_gguf_keys(&hf.build.gguf, &memory, &model, &err);
    if (rc == 0) {
        use(&model);
    } else if (err.code != rc || !err.message[0] || rc == TW_E_INTERNAL) {
        abort(); /* every refusal says why */
    }
    tw_import_free(&memory);
    return 0;
}
