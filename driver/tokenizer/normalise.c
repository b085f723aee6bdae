/* SPDX-License-Identifier: Apache-2.0
 *
 * What SentencePiece does to a text before it is split: characters are replaced by the table that
 * the model brings (charsmap), blanks are dropped where the flags say so, written as U+2581, and
 * one is put at the beginning or the end.
 *
 * The table is a u32 of bytes, a double array of so many bytes (Darts' units: offset, label and
 * leaf), and terminated texts to which its leaves point. It is from outside: every step is checked,
 * and a text that would leave it is taken as it is; so is one whose steps go on too long, since the
 * array may have cycles, or whose replacement is too long.
 */
#include "driver/tokenizer/tokenizer_internal.h"
#include "driver/tokenizer/utf8_stream.h"

#include "loader/base/grow.h"

#include <stdlib.h>
#include <string.h>

/* Bytes that a table may replace at once, and put there. Those of SentencePiece have 18 and 33. */
#define KEY_BYTES_MAX 64u
#define REPLACEMENT_BYTES_MAX 256u
/* How much longer a text may become; 11 times is what Unicode's own tables may do. */
#define GROWTH_MAX 32u

struct buffer {
    char *bytes;
    size_t n, room;
    bool failed;
};

static void put(struct buffer *b, const char *bytes, size_t n) {
    if (n == 0) {
        return; /* also of NULL */
    }
    if (b->failed || !tw_grow(&b->bytes, &b->room, b->n + n, 1)) {
        b->failed = true;
        return;
    }
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
}

/* ---- the table ---- */

struct charsmap {
    const uint8_t *units; /* 4 bytes each */
    uint32_t n_units;
    const char *texts;
    uint32_t n_texts; /* bytes */
};

static uint32_t load(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Returns the terminated text at `at`, or NULL if there is none. */
static const char *replacement_at(const struct charsmap *map, uint32_t at) {
    size_t left = at < map->n_texts ? map->n_texts - at : 0;
    size_t most = left < REPLACEMENT_BYTES_MAX + 1 ? left : REPLACEMENT_BYTES_MAX + 1;
    return most && memchr(map->texts + at, 0, most) ? map->texts + at : NULL;
}

static struct charsmap open_charsmap(const struct tw_vocab *vocab) {
    uint32_t size = vocab->extra.charsmap_bytes;
    uint32_t bytes = size >= 4 ? load(vocab->charsmap) : 0;
    struct charsmap map = {0};
    if (size >= 4 && bytes <= size - 4) {
        map = (struct charsmap){vocab->charsmap + 4, bytes / 4,
                                (const char *)vocab->charsmap + 4 + bytes, size - 4 - bytes};
    }
    return map;
}

static uint32_t unit_offset(uint32_t unit) {
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* Finds the longest prefix of text[0..n) that the table replaces; *with is its replacement. Returns
 * its length, 0 if there is none. */
static size_t find_replacement(const struct charsmap *map, const char *text, size_t n,
                               const char **with) {
    size_t longest = 0;
    uint32_t node = map->n_units ? unit_offset(load(map->units)) : 0;
    n = n < KEY_BYTES_MAX ? n : KEY_BYTES_MAX;
    for (size_t i = 0; i < n && text[i] != 0 && map->n_units; i++) {
        node ^= (uint8_t)text[i];
        uint32_t unit = node < map->n_units ? load(map->units + 4 * (size_t)node) : 0;
        if (node >= map->n_units || (unit & (1u << 31 | 0xFFu)) != (uint8_t)text[i]) {
            break;
        }
        node ^= unit_offset(unit);
        if (unit & 1u << 8 && node < map->n_units) {
            uint32_t leaf = load(map->units + 4 * (size_t)node);
            const char *found = replacement_at(map, leaf & ~(1u << 31));
            longest = found ? i + 1 : longest;
            *with = found ? found : *with;
        }
    }
    return longest;
}

/* Copies the text with the table's replacements. USER_DEFINED pieces stay as they are. */
static void replace(const struct tw_tokenizer *tokenizer, const char *text, size_t n,
                    struct buffer *out) {
    struct charsmap map = open_charsmap(&tokenizer->vocab);
    for (size_t at = 0; at < n && out->n / GROWTH_MAX <= n;) {
        uint32_t marker = tw_marker_find(tokenizer, text + at, n - at, true, NULL), length = 0;
        const char *with = text + at;
        size_t used = tw_utf8_char(text + at, n - at);
        used = used ? used : 1;
        size_t wide;
        if (marker != TW_NONE) {
            (void)tw_piece_raw(&tokenizer->vocab, marker, &length);
            used = wide = length;
        } else {
            size_t found = find_replacement(&map, text + at, n - at, &with);
            used = found ? found : used;
            wide = found ? strlen(with) : used;
        }
        put(out, with, wide);
        at += used;
    }
}

/* ---- blanks ---- */

/* Length of a blank at the text's beginning: ' ', or U+2581 if pieces are spelled with it; or 0. */
static size_t blank_length(const char *text, size_t n, bool escaped) {
    return text[0] == ' ' ? 1 : escaped && n >= 3 && memcmp(text, TW_SPACE, 3) == 0 ? 3 : 0;
}

/* The flags for a stretch of text: without SPACE_PREFIX where it gets no blank. */
static uint32_t flags_for(const struct tw_vocab *vocab, const char *text, size_t n, bool start) {
    uint32_t flags = vocab->header.flags;
    bool blank = n && !(flags & TW_VOCAB_SQUEEZE) && /* which drops it */
                 blank_length(text, n, tw_escapes_spaces(vocab));
    bool none =
        (flags & TW_VOCAB_PREFIX_AT_START && !start) || (flags & TW_VOCAB_PREFIX_IF_NONE && blank);
    return none ? flags & ~(uint32_t)TW_VOCAB_SPACE_PREFIX : flags;
}

/* Writes the text with its blanks as the flags say. */
static void spell_blanks(const struct tw_vocab *vocab, uint32_t flags, const char *text, size_t n,
                         struct buffer *out) {
    bool escaped = tw_escapes_spaces(vocab), squeeze = (flags & TW_VOCAB_SQUEEZE) != 0;
    bool suffix = (flags & TW_VOCAB_SPACE_SUFFIX) != 0, begun = false, pending = false;
    const char *blank = escaped ? TW_SPACE : " ";
    size_t blank_bytes = escaped ? 3 : 1, length;
    if (flags & TW_VOCAB_SPACE_PREFIX && !suffix) {
        put(out, blank, blank_bytes);
    }
    for (size_t at = 0; at < n; at += length) {
        length = blank_length(text + at, n - at, escaped);
        if (length && squeeze) {
            pending = begun; /* those at the beginning are dropped */
            continue;
        }
        if (length || pending) {
            put(out, blank, blank_bytes);
        }
        if (!length) {
            length = 1;
            put(out, text + at, 1);
        }
        begun = true;
        pending = false;
    }
    if (squeeze && !begun) {
        out->n = 0; /* of blanks alone nothing is left */
    } else if (flags & TW_VOCAB_SPACE_PREFIX && suffix) {
        put(out, blank, blank_bytes);
    }
}

int tw_normalise(const struct tw_tokenizer *tokenizer, const char *text, size_t n, bool start,
                 char **out, size_t *length, tw_error *err) {
    const struct tw_vocab *vocab = &tokenizer->vocab;
    struct buffer replaced = {0}, spelled = {0};
    size_t before = n;
    if (vocab->extra.charsmap_bytes) {
        replace(tokenizer, text, n, &replaced);
        text = replaced.bytes;
        n = replaced.n;
    }
    bool grown = n / GROWTH_MAX > before;
    if (!replaced.failed && !grown) {
        spell_blanks(vocab, flags_for(vocab, text, n, start), text, n, &spelled);
    }
    put(&spelled, "", 1); /* never NULL, even of an empty text */
    bool failed = replaced.failed || spelled.failed || spelled.n > UINT32_MAX;
    free(replaced.bytes);
    if (failed || grown) {
        free(spelled.bytes);
        return grown ? tw_fail(err, TW_E_RANGE,
                               "text of %zu bytes: the vocabulary's replacements make it more than "
                               "%u times as long",
                               before, GROWTH_MAX)
                     : tw_fail(err, TW_E_NOMEM, "tokenizer: no memory for a text of %zu bytes",
                               before);
    }
    *out = spelled.bytes;
    *length = spelled.n - 1;
    return 0;
}
