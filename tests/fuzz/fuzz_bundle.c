/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the bundle loader: each input is opened unchanged and, so that the fuzzer gets past the
 * hash, with a corrected content hash. A bundle that opens is read completely.
 */
#include "loader/bundle/loader.h"
#include "tests/support/bundle_fixture.h"

#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink;

static void use(const struct tw_bundle *b) {
    uint64_t sum = strlen(b->note->model);
    for (uint32_t p = 0; p < b->n_programs; p++) {
        const struct tw_program *program = &b->programs[p];
        for (uint32_t i = 0; i < program->n_sites * TW_ENGINE_COUNT; i++) {
            for (uint32_t k = 0; k < program->streams[i].n_words; k++) {
                sum += program->streams[i].words[k];
            }
        }
    }
    for (uint64_t i = 0; i < b->n_bind_rows; i++) {
        const struct tw_bind_target *t = &b->bind[i];
        if (t->segment >= b->n_segments || t->offset + t->size > b->segments[t->segment].size) {
            abort();
        }
    }
    for (uint32_t i = 0; i < b->n_symbols; i++) {
        sum += strlen(b->symbols[i].name);
    }
    for (uint32_t i = 0; i < b->n_segments; i++) {
        sum += b->segments[i].bytes && b->segments[i].size
                   ? b->segments[i].bytes[b->segments[i].size - 1]
                   : 0;
    }
    sink = sum;
}

static void open_and_use(const void *bytes, size_t size, unsigned flags) {
    struct tw_bundle b;
    tw_error err;
    memset(&err, 0, sizeof err);
    if (tw_bundle_open_memory("fuzz", bytes, size, flags, &b, &err) == 0) {
        use(&b);
    } else if (err.code == 0 || err.message[0] == 0 || strchr(err.message, '\n')) {
        abort();
    }
    tw_bundle_close(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    void *copy = NULL;
    if (posix_memalign(&copy, 64, size + !size) != 0) {
        return 0;
    }
    if (size) {
        memcpy(copy, data, size);
    }
    open_and_use(copy, size, TW_BUNDLE_CHECK_HASH);
    bundle_fixture_seal(copy, size);
    open_and_use(copy, size, TW_BUNDLE_NO_RULES);
    open_and_use(copy, size, 0);
    free(copy);
    return 0;
}
