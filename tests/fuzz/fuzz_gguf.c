/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the GGUF importer: any bytes as a file. An accepted model is read completely, so that
 * a pointer outside the file shows.
 */
#include "compiler/import/import.h"
#include "loader/bundle/vocab_open.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned sum(const uint8_t *bytes, uint64_t count) {
    unsigned total = 0;
    for (uint64_t i = 0; i < count; i++) {
        total += bytes[i];
    }
    return total;
}

/* `volatile`, so that the reads are not optimised away. */
static volatile unsigned sink;

static void use(const struct tw_model *m) {
    struct tw_vocab v;
    tw_error err = {0};
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        if (tw_model_find(m, m->tensors[i].name) != &m->tensors[i]) {
            abort();
        }
        sink += sum(m->tensors[i].data, m->tensors[i].bytes);
    }
    if (m->vocab && tw_vocab_open(m->vocab, m->vocab_bytes, &v, &err) != 0) {
        abort(); /* an importer must not create a vocabulary that the reader refuses */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_import_memory memory = {0};
    struct tw_model model;
    tw_error err = {0};
    int rc = tw_import_gguf("fuzz", data, size, &memory, &model, &err);
    if (rc == 0) {
        use(&model);
    } else if (err.code != rc || !err.message[0] || rc == TW_E_INTERNAL) {
        abort(); /* every refusal says why */
    }
    tw_import_free(&memory);
    return 0;
}
