/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the opening, the verifier and the printer of program blobs. Input: a byte that chooses the
 * form; 0: the rest is a blob; else: patches (16-bit place in words, 32-bit word) over the blob of
 * the small program, which obeys every rule.
 */
#include "loader/text/print_program.h"
#include "loader/verify/verify.h"
#include "tests/support/small_program.h"

#include "tilewright/progblob.h"

enum { MAX_STREAMS = 256 * TW_ENGINE_COUNT };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int drop_line(void *ctx, const char *line, size_t bytes) {
    (void)ctx;
    if (bytes == 0 || line[bytes - 1] != '\n') {
        abort();
    }
    return 0;
}

static void judge(const uint8_t *blob, size_t size) {
    static struct tw_stream streams[MAX_STREAMS];
    struct tw_program p;
    const char *what = NULL;
    tw_error err = {0};
    memset(streams, 0, sizeof streams);
    if (tw_progblob_open(blob, size, "", 1, &p, streams, MAX_STREAMS, &what) != 0) {
        if (!what) {
            abort();
        }
        return;
    }
    if ((uint64_t)p.n_sites * TW_ENGINE_COUNT > MAX_STREAMS) {
        return; /* the form without streams does not count them */
    }
    int rc = tw_verify_program(&p, NULL, &err);
    if ((rc != 0) != (err.message[0] != 0) || (rc != 0 && rc != TW_E_VERIFY && rc != TW_E_NOMEM)) {
        abort();
    }
    tw_program_print(&p, TW_PRINT_ALL, drop_line, NULL);
}

/* An allocation of the exact size, so that a sanitizer sees an access past the end. */
static uint8_t *exact(const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) {
        abort();
    }
    memcpy(copy, bytes, size);
    return copy;
}

static void judge_patched(const uint8_t *data, size_t size) {
    static uint8_t *small;
    static uint32_t bytes;
    if (!small) {
        struct pb *b = small_program();
        bytes = tw_progblob_bytes(&b->p, true);
        small = calloc(1, bytes);
        if (!small) {
            abort();
        }
        tw_progblob_write(&b->p, true, small);
        pb_free(b);
    }
    uint8_t *blob = exact(small, bytes);
    for (; size >= 6; data += 6, size -= 6) {
        uint32_t at = (data[0] | (uint32_t)data[1] << 8) % (bytes / 4);
        memcpy(blob + (size_t)at * 4, data + 2, 4);
    }
    judge(blob, bytes);
    free(blob);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    if (data[0] != 0) {
        judge_patched(data + 1, size - 1);
        return 0;
    }
    uint8_t *blob = exact(data + 1, size - 1);
    judge(blob, size - 1);
    free(blob);
    return 0;
}
