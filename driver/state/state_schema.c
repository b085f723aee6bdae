/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema of a saved state (state_file.h): its bounds, the sizes that follow from it, and what
 * differs between two.
 */
#include "driver/state/state_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HASH_DIGITS 8u /* that a message shows */

static const char *dtype_name(uint32_t dtype, char number[16]) {
    switch (dtype) {
#define TW_X(name, value, text, elems, bytes) \
    case TW_DT_##name:                        \
        return text;
        TW_DTYPES(TW_X)
#undef TW_X
    default:
        snprintf(number, 16, "type %u", dtype);
        return number;
    }
}

const char *tw_saved_kv_name(const struct tw_saved_schema *schema) {
    static const char unknown[] = "?";
    char number[16];
    const char *name = dtype_name(schema->kv_dtype, number);
    return name == number ? unknown : name;
}

/* ---- bounds ---- */

static int check_text(const char *what, const char text[TW_SAVED_TEXT_BYTES], tw_error *err) {
    size_t n = strnlen(text, TW_SAVED_TEXT_BYTES);
    for (size_t i = n; i < TW_SAVED_TEXT_BYTES; i++) {
        if (text[i]) {
            return tw_fail(err, TW_E_FORMAT, "schema: bytes after the end of the %s", what);
        }
    }
    return n && n < TW_SAVED_TEXT_BYTES ? 0
                                        : tw_fail(err, TW_E_FORMAT, "schema: the %s is %s", what,
                                                  n ? "not terminated" : "missing");
}

static int check_number(const char *what, uint64_t value, uint64_t max, tw_error *err) {
    return value > 0 && value <= max
               ? 0
               : tw_fail(err, TW_E_RANGE,
                         "schema: %s is %" PRIu64 ", expected a number from 1 to %" PRIu64, what,
                         value, max);
}

static int check_tensor(const struct tw_saved_tensor *t, tw_error *err) {
    int code = check_text("name of a tensor", t->name, err);
    if (!code && t->kind != TW_SAVED_PAGED) {
        code = tw_fail(err, TW_E_UNSUPPORTED,
                       "schema: tensor %s is of kind %u, of which this version does not know",
                       t->name, t->kind);
    }
    code = code ? code
                : check_number("the number of instances", t->instances, TW_SAVED_MAX_PAGES, err);
    return code ? code
                : check_number("the size of a page", t->page_bytes, TW_SAVED_MAX_PAGE_BYTES, err);
}

static int check_head(const struct tw_saved_schema *s, tw_error *err) {
    int code = check_text("name of the model", s->model, err);
    code = code ? code : check_text("position policy", s->policy, err);
    code = code ? code
                : check_number("the number of positions in a page", s->page_positions,
                               TW_SAVED_MAX_POSITIONS, err);
    code = code ? code : check_number("the size of the vocabulary", s->n_vocab, INT32_MAX, err);
    return code ? code
                : check_number("the number of tensors", s->n_tensors, TW_SAVED_MAX_TENSORS, err);
}

static uint32_t bytes_of_token(uint32_t n_vocab) {
    uint32_t max = n_vocab - 1;
    return max < 1u << 8 ? 1 : max < 1u << 16 ? 2 : max < 1u << 24 ? 3 : 4;
}

/* Nothing here can overflow: at most 32 tensors of at most 2^16 pages of at most 2^26 bytes. */
int tw_saved_sizes_of(const struct tw_saved_schema *s, struct tw_saved_sizes *out, tw_error *err) {
    int code = check_head(s, err);
    memset(out, 0, sizeof *out);
    for (uint32_t t = 0; !code && t < s->n_tensors; t++) {
        code = check_tensor(&s->tensors[t], err);
        out->cell_pages += s->tensors[t].instances;
        out->pages_bytes += s->tensors[t].instances * s->tensors[t].page_bytes;
    }
    code = code ? code
                : check_number("the number of pages of a slot", out->cell_pages, TW_SAVED_MAX_PAGES,
                               err);
    if (code) {
        return code;
    }
    out->token_bytes = bytes_of_token(s->n_vocab);
    uint32_t ids = s->page_positions * out->token_bytes;
    out->checksums = (uint32_t)sizeof(struct tw_saved_tail) + (ids + 3u) / 4u * 4u;
    out->tail_bytes = out->checksums + 4u * (uint64_t)out->cell_pages;
    out->cell_bytes = out->pages_bytes + out->tail_bytes;
    out->schema_bytes =
        TW_SAVED_SCHEMA_HEAD + s->n_tensors * (uint32_t)sizeof(struct tw_saved_tensor);
    out->first_cell = TW_SAVED_SCHEMA_OFFSET + out->schema_bytes;
    return 0;
}

/* ---- differences ---- */

static void short_hash(const uint8_t hash[TW_SAVED_HASH_BYTES], char text[HASH_DIGITS + 1]) {
    for (uint32_t i = 0; i < HASH_DIGITS / 2; i++) {
        snprintf(text + 2 * (size_t)i, 3, "%02x", hash[i]);
    }
}

static int other_model(const char *name, const struct tw_saved_schema *found,
                       const struct tw_saved_schema *expected, tw_error *err) {
    char was[HASH_DIGITS + 1], is[HASH_DIGITS + 1];
    short_hash(found->identity, was);
    short_hash(expected->identity, is);
    return tw_fail(err, TW_E_UNSUPPORTED,
                   "%s: was saved with model %s (hash %s), and this is %s (hash %s); load it with "
                   "the model that it was saved with",
                   name, found->model, was, expected->model, is);
}

static int other_type(const char *name, const struct tw_saved_schema *found,
                      const struct tw_saved_schema *expected, tw_error *err) {
    char a[16], b[16];
    const char *was = dtype_name(found->kv_dtype, a);
    return tw_fail(err, TW_E_UNSUPPORTED,
                   "%s: has keys and values in %s, and this program in %s; run it with --kv %s",
                   name, was, dtype_name(expected->kv_dtype, b), was);
}

static int other_number(const char *name, const char *what, uint64_t found, uint64_t expected,
                        tw_error *err) {
    return tw_fail(err, TW_E_UNSUPPORTED,
                   "%s: %s: %" PRIu64 " in the file, %" PRIu64
                   " in this program; it was saved by another version or configuration: feed the "
                   "text again, and save it anew",
                   name, what, found, expected);
}

static int match_tensor(const char *name, const struct tw_saved_tensor *found,
                        const struct tw_saved_tensor *expected, tw_error *err) {
    const struct {
        const char *what;
        uint64_t found, expected;
    } fields[] = {
        {"kind", found->kind, expected->kind},
        {"element type", found->dtype, expected->dtype},
        {"packing", found->packing, expected->packing},
        {"elements of a head", found->head_dim, expected->head_dim},
        {"heads", found->kv_heads, expected->kv_heads},
        {"layers", found->instances, expected->instances},
        {"bytes of a page", found->page_bytes, expected->page_bytes},
    };
    if (memcmp(found->name, expected->name, sizeof found->name) != 0) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "%s: has a tensor %s where this program has %s; it was saved by another "
                       "version or configuration",
                       name, found->name, expected->name);
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].found != fields[i].expected) {
            char what[TW_SAVED_TEXT_BYTES + 32];
            snprintf(what, sizeof what, "%s of %s", fields[i].what, found->name);
            return other_number(name, what, fields[i].found, fields[i].expected, err);
        }
    }
    return 0;
}

int tw_saved_schema_match(const char *name, const struct tw_saved_schema *found,
                          const struct tw_saved_schema *expected, tw_error *err) {
    if (memcmp(found->identity, expected->identity, sizeof found->identity) != 0) {
        return other_model(name, found, expected, err);
    }
    if (found->kv_dtype != expected->kv_dtype) {
        return other_type(name, found, expected, err);
    }
    if (found->page_positions != expected->page_positions) {
        return other_number(name, "positions of a page", found->page_positions,
                            expected->page_positions, err);
    }
    if (memcmp(found->policy, expected->policy, sizeof found->policy) != 0) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "%s: was saved with positions by \"%s\", and this program has them by "
                       "\"%s\"; feed the text again",
                       name, found->policy, expected->policy);
    }
    if (found->n_vocab != expected->n_vocab) {
        return other_number(name, "size of the vocabulary", found->n_vocab, expected->n_vocab, err);
    }
    if (found->n_tensors != expected->n_tensors) {
        return other_number(name, "kinds of pages", found->n_tensors, expected->n_tensors, err);
    }
    int code = 0;
    for (uint32_t t = 0; t < found->n_tensors && !code; t++) {
        code = match_tensor(name, &found->tensors[t], &expected->tensors[t], err);
    }
    return code;
}
