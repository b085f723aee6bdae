/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the vocabulary reader: any bytes as a blob. Every piece, score and type of an accepted one
 * is read.
 */
#include "loader/bundle/vocab_open.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned sink;

static void use(const struct tw_vocab *v) {
    for (uint32_t i = 0; i < v->header.n_tokens; i++) {
        for (uint32_t b = v->offsets[i]; b < v->offsets[i + 1]; b++) {
            sink += (unsigned char)v->bytes[b];
        }
        sink += v->types[i] + (v->scores && v->scores[i] > 0.0f ? 1u : 0u);
    }
    for (uint32_t i = 0; i < v->extra.n_merges; i++) {
        sink += v->offsets[v->merges[i].left] + v->offsets[v->merges[i].right] +
                v->offsets[v->merges[i].merged];
    }
    for (uint32_t i = 0; i < v->extra.n_ends; i++) {
        sink += v->types[v->ends[i]];
    }
    for (uint32_t i = 0; i < v->extra.charsmap_bytes; i++) {
        sink += v->charsmap[i];
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
