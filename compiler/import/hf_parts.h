/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a tokenizer.json that are chains of typed steps: normalizer, pre_tokenizer,
 * post_processor and decoder. Each is read into what tilewright/vocab.h can say of it; a step that
 * it cannot say is named.
 */
#ifndef TW_COMPILER_IMPORT_HF_PARTS_H
#define TW_COMPILER_IMPORT_HF_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define TW_HF_SPACE "\xE2\x96\x81" /* U+2581, as which pieces spell a blank */

struct tw_hf_parts {
    bool byte_level;    /* pieces are spelled by bytes */
    const char *pre;    /* of TW_PRETOKENIZERS, if byte_level */
    bool escape_spaces; /* blanks become U+2581 */
    bool prefix_space;  /* and one is put before a text */
    bool prefix_first;  /* but not after a token in it */
    bool prefix_new;    /* nor before a blank */
    bool words;         /* no piece has U+2581 after its first character, or it would span words */
    bool squeeze;       /* blanks at both ends, and all but one of several, are dropped */
    /* base64 of SentencePiece's table, or NULL; valid as long as the JSON */
    const char *charsmap;
    /* names of the tokens that the post-processor puts around a text, or NULL */
    const char *before, *after;
    char problem[160]; /* "": none; else what is not supported, by name */
};

/* Reads the parts of a tokenizer.json; what is wrong or not supported is in out->problem. */
void tw_hf_read_parts(const json_t *root, struct tw_hf_parts *out);

/* Returns the text under a key; NULL if it is absent or not a text. */
const char *tw_hf_text(const json_t *object, const char *key);
/* Returns whether the key is true. */
bool tw_hf_true(const json_t *object, const char *key);

#endif
