/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a saved state, tilewright-state(5). A file holds one sequence: its tokens, and the
 * pages of its caches. Little-endian, like every machine that this runs on.
 *
 *     commit | commit | schema | cell 0 | cell 1 | ...
 *
 * A cell has the pages of one slot of the sequence (positions slot * page_positions and on), tensor
 * by tensor, instance by instance, and then its tail: which slot it is, its tokens, and a checksum
 * of each page. All cells have the same size, so no offset is ever read from a file. The tails, in
 * the order of slots, are hashed into the commit; so is the schema; and the commit into itself.
 *
 * A file grows by cells that no commit mentions yet; then the first commit is replaced, then the
 * second. So one of the two is always whole, and what it says is complete: in a file that was
 * closed well they are equal.
 */
#ifndef TW_DRIVER_STATE_STATE_FORMAT_H
#define TW_DRIVER_STATE_STATE_FORMAT_H

#include "tilewright/machine.h"

#include <stddef.h>
#include <stdint.h>

#define TW_SAVED_MAGIC "TWSTATE\n"
#define TW_SAVED_MAGIC_BYTES 8u
#define TW_SAVED_VERSION 1u
#define TW_SAVED_COMMITS 2u
#define TW_SAVED_SCHEMA_OFFSET 1024u /* after the commits */
#define TW_SAVED_HASH_BYTES 32u      /* BLAKE2b-256 */
#define TW_SAVED_TEXT_BYTES 64u      /* of a name, with its NUL; the rest is zeros */
#define TW_SAVED_NO_CELL 0xFFFFFFFFu
#define TW_SAVED_MAX_TENSORS 32u
#define TW_SAVED_MAX_POSITIONS 4096u       /* of a page */
#define TW_SAVED_MAX_PAGES 65536u          /* of a cell */
#define TW_SAVED_MAX_PAGE_BYTES 0x4000000u /* 64 MiB */
#define TW_SAVED_MAX_TOKENS 0x1000000u
#define TW_SAVED_MAX_TAILS 0x10000000u /* bytes of all tails: 256 MiB */

/* What a tensor's pages are. */
enum tw_saved_kind {
    TW_SAVED_PAGED = 0 /* a page for each slot and instance */
};

/* A tensor of the state: `instances` layers of one kind and side. */
struct tw_saved_tensor {
    char name[TW_SAVED_TEXT_BYTES];
    uint32_t kind;  /* enum tw_saved_kind */
    uint32_t dtype; /* enum tw_dtype */
    uint32_t packing;
    uint32_t head_dim;
    uint32_t kv_heads;
    uint32_t instances;
    uint64_t page_bytes;
};
TW_STATIC_ASSERT(sizeof(struct tw_saved_tensor) == 96, "state tensor");

/* What must be equal where a state is saved and where it is restored. In a file only n_tensors rows
 * of `tensors` are present. Texts are padded with zeros. */
struct tw_saved_schema {
    uint8_t identity[TW_SAVED_HASH_BYTES]; /* of the weights and of what is computed with them */
    char model[TW_SAVED_TEXT_BYTES];       /* its name, for people; not compared */
    char policy[TW_SAVED_TEXT_BYTES];      /* how positions become what is in the caches */
    uint32_t kv_dtype;                     /* enum tw_dtype: F16 or F32 */
    uint32_t page_positions;
    uint32_t n_vocab; /* ids are below it */
    uint32_t n_tensors;
    struct tw_saved_tensor tensors[TW_SAVED_MAX_TENSORS];
};
#define TW_SAVED_SCHEMA_HEAD 176u
TW_STATIC_ASSERT(offsetof(struct tw_saved_schema, tensors) == TW_SAVED_SCHEMA_HEAD, "schema");

struct tw_saved_commit {
    uint8_t magic[TW_SAVED_MAGIC_BYTES];
    uint32_t version;
    uint32_t schema_bytes;
    uint64_t sequence;   /* of the save, from 1 */
    uint64_t saved_ns;   /* since 1970 */
    uint64_t cell_bytes; /* follows from the schema */
    uint64_t file_bytes; /* up to the end of the last cell */
    uint32_t n_tokens;
    uint32_t n_cells;
    uint32_t free_cell; /* the one that holds no slot, or TW_SAVED_NO_CELL */
    uint32_t padding;
    uint8_t schema_hash[TW_SAVED_HASH_BYTES];
    uint8_t tails_hash[TW_SAVED_HASH_BYTES];
    uint8_t reserved[352];
    uint8_t hash[TW_SAVED_HASH_BYTES]; /* of the bytes before it */
};
TW_STATIC_ASSERT(sizeof(struct tw_saved_commit) == 512, "state commit");

/* Begins a tail. page_positions ids of token_bytes each follow (those after n_tokens are 0), padded
 * to a multiple of 4; then a CRC32C for each page. */
struct tw_saved_tail {
    uint32_t slot;
    uint32_t n_tokens; /* page_positions, or less in the last slot; never 0 */
};
TW_STATIC_ASSERT(sizeof(struct tw_saved_tail) == 8, "state tail");

#endif
