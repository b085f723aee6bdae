/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the vocabulary reader: any bytes as a blob. Every piece, score and type of an accepted one
 * is read.
 */
#include "tilewright/vocab.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned sink;

static void use(const struct tw_vocab *v) {
    for (uint32_t i = 0; i < v->header.n_tokens; i++) {
        for (uint32_t b = v->offsets[i]; b < v->offsets[i + 1]; b++) {
            sink += (unsigned char)v->bytes[b];
        }
        sink += v->types[i] + (v->scores[i] > 0.0f ? 1u : 0u);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_vocab v;
    tw_error err = {0};
    void *blob = malloc(size ? size : 1); /* aligned and of exact size */
    if (!blob) {
        abort();
    }
    if (size) {
        memcpy(blob, data, size);
    }
    int rc = tw_vocab_open(blob, size, &v, &err);
    if (rc == 0) {
        use(&v);
    } else if (err.code != rc || !err.message[0]) {
        abort();
    }
    free(blob);
    return 0;
}
