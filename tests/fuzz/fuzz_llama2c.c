/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the llama2.c importers. Input: the checkpoint's size (4 bytes, little-endian, modulo the
 * bytes that follow), the checkpoint and the tokenizer file. The tokenizer is imported even if the
 * checkpoint is refused.
 */
#include "compiler/import/bytes.h"
#include "compiler/import/import.h"
#include "loader/bundle/vocab_open.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned sink;

static void check(int rc, const tw_error *err) {
    if (rc != 0 && (err->code != rc || !err->message[0] || rc == TW_E_INTERNAL)) {
        abort(); /* every refusal says why */
    }
}

static void read_all(const struct tw_model *m) {
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        for (uint64_t b = 0; b < m->tensors[i].bytes; b++) {
            sink += m->tensors[i].data[b];
        }
    }
}

/* A copy of exact size, so that the sanitizer sees a read past its end. */
static uint8_t *copy_of(const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    if (copy && size) {
        memcpy(copy, bytes, size);
    }
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 4) {
        return 0;
    }
    size_t n = tw_load_u32(data) % (size - 3);
    struct tw_import_memory memory = {0};
    struct tw_model model;
    struct tw_vocab v;
    tw_error err = {0};
    uint8_t *checkpoint = copy_of(data + 4, n), *tokenizer = copy_of(data + 4 + n, size - 4 - n);
    if (!checkpoint || !tokenizer) {
        abort();
    }
    int rc = tw_import_llama2c("fuzz", checkpoint, n, &memory, &model, &err);
    check(rc, &err);
    if (rc == 0) {
        read_all(&model);
    } else {
        model = (struct tw_model){.h.n_vocab = 6};
    }
    rc = tw_import_llama2c_vocab("fuzz", tokenizer, size - 4 - n, &memory, &model, &err);
    check(rc, &err);
    if (rc == 0 && tw_vocab_open(model.vocab, model.vocab_bytes, &v, &err) != 0) {
        abort();
    }
    tw_import_free(&memory);
    free(checkpoint);
    free(tokenizer);
    return 0;
}
