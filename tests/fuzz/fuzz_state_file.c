/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the reader of saved states. The first byte says what is computed anew before it reads, as
 * by someone who knows the format: 0: nothing; 1: the hashes; 2: the pages' checksums, too. What an
 * accepted state holds is read, all of it.
 */
#include "driver/state/state_internal.h"
#include "firmware/link/packet.h"
#include "loader/base/hash.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned sink;

static int use_page(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance, const void *bytes,
                    tw_error *err) {
    const struct tw_saved *f = ctx;
    const uint8_t *p = bytes;
    (void)err;
    if (slot >= f->n_slots || instance >= f->schema.tensors[tensor].instances) {
        abort();
    }
    sink += p[0] + p[f->schema.tensors[tensor].page_bytes - 1];
    return 0;
}

static void use(struct tw_saved *f) {
    struct tw_saved_sink pages = {use_page, f, NULL};
    tw_error err = {0};
    uint32_t n;
    const uint32_t *tokens = tw_saved_tokens(f, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i] >= f->schema.n_vocab) {
            abort();
        }
    }
    if (tw_saved_read(f, &pages, &err) != 0) {
        abort(); /* it was checked whole */
    }
}

/* ---- hashes that fit ---- */

static void hash_head(uint8_t *bytes, size_t size, bool commits_only) {
    for (uint32_t i = 0; i < TW_SAVED_COMMITS && size >= TW_SAVED_SCHEMA_OFFSET; i++) {
        struct tw_saved_commit c;
        memcpy(&c, bytes + i * sizeof c, sizeof c);
        if (!commits_only && c.schema_bytes <= size - TW_SAVED_SCHEMA_OFFSET) {
            tw_hash_bytes(bytes + TW_SAVED_SCHEMA_OFFSET, c.schema_bytes, c.schema_hash);
        }
        tw_saved_hash_commit(&c, c.hash);
        memcpy(bytes + i * sizeof c, &c, sizeof c);
    }
}

static void sum_pages(const struct tw_saved *f, uint8_t *cell, uint8_t *tail) {
    uint32_t page = 0;
    for (uint32_t t = 0; t < f->schema.n_tensors; t++) {
        uint64_t n = f->schema.tensors[t].page_bytes;
        for (uint32_t i = 0; i < f->schema.tensors[t].instances; i++, page++, cell += n) {
            uint32_t sum = tw_packet_crc32c(0, cell, n);
            memcpy(tail + f->sizes.checksums + 4 * (size_t)page, &sum, sizeof sum);
        }
    }
}

/* The head of the state is whole, so all its cells are within the bytes. */
static void hash_tails(const struct tw_saved *f, uint8_t *bytes, size_t size, bool with_pages) {
    uint64_t n = f->n_slots * f->sizes.tail_bytes;
    uint8_t *all = calloc(1, n);
    if (!all) {
        abort();
    }
    for (uint32_t c = 0; c < f->commit.n_cells; c++) {
        uint8_t *cell = bytes + f->sizes.first_cell + c * f->sizes.cell_bytes;
        uint8_t *tail = cell + f->sizes.pages_bytes;
        uint32_t slot;
        if (with_pages) {
            sum_pages(f, cell, tail);
        }
        memcpy(&slot, tail, sizeof slot);
        if (c != f->commit.free_cell && slot < f->n_slots) {
            memcpy(all + slot * f->sizes.tail_bytes, tail, f->sizes.tail_bytes);
        }
    }
    for (uint32_t i = 0; i < TW_SAVED_COMMITS; i++) {
        tw_hash_bytes(all, n,
                      bytes + i * sizeof f->commit + offsetof(struct tw_saved_commit, tails_hash));
    }
    hash_head(bytes, size, true);
    free(all);
}

static void rehash(uint8_t *bytes, size_t size, bool with_pages) {
    struct tw_saved *f;
    tw_error err = {0};
    hash_head(bytes, size, false);
    if (tw_saved_open_memory(bytes, size, NULL, TW_SAVED_HEAD, &f, &err) == 0) {
        hash_tails(f, bytes, size, with_pages);
        tw_saved_close(f);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_saved *f;
    tw_error err = {0};
    size_t n = size > 1 ? size - 1 : 0;
    uint8_t *bytes = malloc(n ? n : 1); /* of exact size */
    if (!bytes) {
        abort();
    }
    if (n) {
        memcpy(bytes, data + 1, n);
    }
    if (size && data[0] % 3) {
        rehash(bytes, n, data[0] % 3 == 2);
    }
    int code = tw_saved_open_memory(bytes, n, NULL, TW_SAVED_WHOLE, &f, &err);
    if (code == 0) {
        use(f);
        tw_saved_close(f);
    } else if (err.code != code || !err.message[0]) {
        abort();
    }
    free(bytes);
    return 0;
}
