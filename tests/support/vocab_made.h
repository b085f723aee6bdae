/* SPDX-License-Identifier: Apache-2.0
 *
 * Vocabularies of every kind for tests, made with the importers' builder from lists of pieces and
 * merges.
 */
#ifndef TW_TESTS_SUPPORT_VOCAB_MADE_H
#define TW_TESTS_SUPPORT_VOCAB_MADE_H

#include "compiler/import/vocab_build.h"

struct made_piece {
    const char *text;
    float score;
    unsigned type;
};

struct made_merge {
    const char *left, *right;
};

/* What a vocabulary is made of. Zero fields: none. */
struct made_spec {
    enum tw_vocab_kind kind;
    const struct made_piece *pieces;
    uint32_t n_pieces;
    const struct made_merge *merges;
    uint32_t n_merges;
    const char *pre;
    uint32_t flags;
    bool
        bytes; /* byte-level: a piece for each byte; else 256 byte tokens: both before the others */
    bool has_bos, has_eos, has_unk;
    uint32_t bos, eos, unk; /* with has_... */
    const void *charsmap;
    uint32_t charsmap_bytes;
};

struct made_vocab {
    struct tw_import_memory memory;
    struct tw_model model;
    struct tw_vocab vocab;
};

/* Returns 0, or what the builder or tw_vocab_open returned. Free out->memory in either case. */
int made_vocab(const struct made_spec *spec, struct made_vocab *out, tw_error *err);

#endif
