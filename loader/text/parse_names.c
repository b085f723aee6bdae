/* SPDX-License-Identifier: Apache-2.0
 *
 * The parser's names: read to the end of the string table, then kept there or only compared. Equal
 * strings are stored once and found by a hash table; if a chain is too long, the string is stored
 * again, so that no choice of names makes the search slow.
 */
#include "loader/text/parse_internal.h"

#include "loader/base/grow.h"

#include <stdio.h>
#include <stdlib.h>

bool tw_parse_reserve(struct tw_parse_array *a, size_t n, size_t item_bytes) {
    return tw_grow(&a->items, &a->cap, n, item_bytes);
}

/* ---- reading ---- */

static char *tail_of(struct tw_parser *p) {
    return (char *)p->owner->strings.items + p->owner->strings.n;
}

static int put(struct tw_parser *p, struct tw_parse_name *name, char c) {
    struct tw_parse_array *s = &p->owner->strings;
    if (!tw_parse_reserve(s, s->n + name->bytes + 2, 1)) {
        return tw_parse_nomem(p);
    }
    tail_of(p)[name->bytes++] = c;
    return 0;
}

/* Parses an escape after its backslash: a quote, a backslash, or x and two hexadecimal digits, not
 * 00. */
static int escaped(struct tw_parser *p, char *out) {
    int c = tw_parse_peek(p);
    if (c == '"' || c == '\\') {
        p->at++;
        *out = (char)c;
        return 0;
    }
    int high = c == 'x' && p->size - p->at > 2
                   ? tw_parse_hex_digit((unsigned char)p->text[p->at + 1])
                   : -1;
    int low = high >= 0 ? tw_parse_hex_digit((unsigned char)p->text[p->at + 2]) : -1;
    if (low < 0 || high * 16 + low == 0) {
        return tw_parse_expected(p, "an escape: \\\", \\\\ or \\xNN, not 00");
    }
    p->at += 3;
    *out = (char)(unsigned char)(high * 16 + low);
    return 0;
}

static int quoted(struct tw_parser *p, struct tw_parse_name *out) {
    int rc = 0;
    p->at++;
    while (rc == 0) {
        int c = tw_parse_peek(p);
        char byte = (char)c;
        if (c == '"') {
            p->at++;
            return 0;
        }
        if (c < 0x20 || c == 0x7F) {
            return tw_parse_expected(p, "the closing quote of a name");
        }
        p->at++;
        rc = c == '\\' ? escaped(p, &byte) : 0;
        rc = rc ? rc : put(p, out, byte);
    }
    return rc;
}

int tw_parse_name(struct tw_parser *p, const char *what, struct tw_parse_name *out) {
    struct tw_parse_array *s = &p->owner->strings;
    size_t n = tw_parse_word(p);
    out->bytes = 0;
    out->none = false;
    if (!tw_parse_reserve(s, s->n + n + 1, 1)) {
        return tw_parse_nomem(p);
    }
    if (tw_parse_peek(p) == '"') {
        return quoted(p, out);
    }
    if (tw_parse_accept(p, "-")) {
        out->none = true;
        return 0;
    }
    if (n == 0) {
        return tw_parse_expected(p, what);
    }
    memcpy(tail_of(p), p->text + p->at, n);
    out->bytes = (uint32_t)n;
    p->at += n;
    return 0;
}

/* ---- the string table ---- */

enum { LONGEST_CHAIN = 16 };

static uint32_t hash_of(const char *s, size_t n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char)s[i]) * 0x100000001B3u;
    }
    return (uint32_t)(h ^ h >> 32);
}

/* Returns true if the string at `offset` is these n bytes; linear in n, however long the string
 * is. */
static bool equals(const struct tw_parser *p, uint32_t offset, const char *s, size_t n) {
    const char *have = (const char *)p->owner->strings.items + offset;
    return strncmp(have, s, n) == 0 && have[n] == 0;
}

/* Returns the slot of a string, or an empty one for it; NULL if the chain is too long. s NULL:
 * returns an empty one. */
static struct tw_parse_slot *slot_of(struct tw_parser *p, uint32_t hash, const char *s, size_t n) {
    for (uint32_t i = 0; i < LONGEST_CHAIN; i++) {
        struct tw_parse_slot *slot = &p->slot[(hash + i) & (p->n_slots - 1)];
        if (slot->offset == 0 || (s && slot->hash == hash && equals(p, slot->offset, s, n))) {
            return slot;
        }
    }
    return NULL;
}

static int grow_slots(struct tw_parser *p) {
    struct tw_parse_slot *old = p->slot;
    uint32_t n_old = p->n_slots, n = n_old ? n_old * 2 : 256;
    struct tw_parse_slot *more = calloc(n, sizeof *more);
    if (!more) {
        return tw_parse_nomem(p);
    }
    p->slot = more;
    p->n_slots = n;
    for (uint32_t i = 0; i < n_old; i++) {
        struct tw_parse_slot *slot = old[i].offset ? slot_of(p, old[i].hash, NULL, 0) : NULL;
        if (slot) {
            *slot = old[i];
        }
    }
    free(old);
    return 0;
}

int tw_parse_keep(struct tw_parser *p, struct tw_parse_name name, uint32_t *offset) {
    struct tw_parse_array *s = &p->owner->strings;
    *offset = name.none ? TW_NONE : 0;
    if (name.none || name.bytes == 0) {
        return 0;
    }
    if (p->n_used >= p->n_slots / 2) {
        int rc = grow_slots(p);
        if (rc) {
            return rc;
        }
    }
    uint32_t hash = hash_of(tail_of(p), name.bytes);
    struct tw_parse_slot *slot = slot_of(p, hash, tail_of(p), name.bytes);
    if (slot && slot->offset != 0) {
        *offset = slot->offset;
        return 0;
    }
    *offset = (uint32_t)s->n;
    if (slot) {
        slot->offset = *offset;
        slot->hash = hash;
        p->n_used++;
    }
    tail_of(p)[name.bytes] = 0;
    s->n += name.bytes + 1u;
    return 0;
}

/* ---- references ---- */

static int check_reference(struct tw_parser *p, enum tw_text_table table, uint32_t id, size_t start,
                           struct tw_parse_name name) {
    const struct tw_text_record *r = tw_text_record(table);
    const struct tw_parse_array *a = &p->owner->table[table];
    tail_of(p)[name.bytes] = 0;
    if (id >= a->n) {
        return tw_parse_fail(p, TW_E_FORMAT, start,
                             "found %.60s@%u, expected @%u or one of the %zu %ss above", tail_of(p),
                             id, id, a->n, r->word);
    }
    const char *record = (const char *)a->items + (size_t)id * r->bytes;
    uint32_t offset = (uint32_t)tw_text_get(record, r->name, 4);
    const char *is = offset == TW_NONE ? "" : (const char *)p->owner->strings.items + offset;
    if (offset == TW_NONE || !equals(p, offset, tail_of(p), name.bytes)) {
        return tw_parse_fail(p, TW_E_FORMAT, start, "found %.60s@%u, expected %.60s@%u", tail_of(p),
                             id, is, id);
    }
    return 0;
}

int tw_parse_reference(struct tw_parser *p, enum tw_text_table table, uint32_t *id) {
    size_t start = p->at;
    struct tw_parse_name name = {0, true};
    char what[40];
    snprintf(what, sizeof what, "a %.20s, name@id", tw_text_record(table)->word);
    if (tw_parse_peek(p) != '@') {
        int rc =
            tw_parse_peek(p) == '-' ? tw_parse_expected(p, what) : tw_parse_name(p, what, &name);
        if (rc) {
            return rc;
        }
    }
    int rc = tw_parse_mark(p, "@");
    rc = rc ? rc : tw_parse_u32(p, "the id", id);
    return rc || name.none ? rc : check_reference(p, table, *id, start, name);
}
