/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses a program line by line: the `program` line, records of the tables by the fields of
 * text_tables.h, then streams. No function recurses, and a record is created only for a line that
 * describes it. */
#include "loader/text/parse_internal.h"

#include "tilewright/progblob.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- fields ---- */

static int expected_name(struct tw_parser *p, const struct tw_text_field *f) {
    char what[160];
    int n = snprintf(what, sizeof what, "%s:", f->key);
    for (uint32_t i = 0; i < f->n_names; i++) {
        n += snprintf(what + n, sizeof what - (size_t)n, " %s", f->names[i]);
    }
    return tw_parse_expected(p, what);
}

static int parse_value(struct tw_parser *p, const struct tw_text_field *f, uint8_t bytes,
                       uint64_t *value) {
    uint64_t max = bytes == 8 ? UINT64_MAX : (UINT64_C(1) << bytes * 8) - 1;
    if (f->kind == TW_TEXT_SIGNED) {
        bool negative = tw_parse_accept(p, "-");
        int rc = tw_parse_number(p, f->key, (UINT64_C(1) << 31) - !negative, value);
        *value = negative ? 0 - *value : *value;
        return rc;
    }
    if (f->kind != TW_TEXT_NUMBER && tw_parse_accept(p, "-")) {
        *value = TW_NONE;
        return 0;
    }
    if (f->kind == TW_TEXT_TENSOR) {
        uint32_t id = 0;
        int rc = tw_parse_reference(p, TW_TEXT_TENSORS, &id);
        *value = id;
        return rc;
    }
    if (tw_parse_is_digit(tw_parse_peek(p))) {
        return tw_parse_number(p, f->key, max, value);
    }
    if (!f->names) {
        char what[40];
        snprintf(what, sizeof what, "a number for %.20s=", f->key);
        return tw_parse_expected(p, what);
    }
    size_t n = tw_parse_word(p);
    for (uint32_t i = 0; i < f->n_names; i++) {
        if (tw_parse_word_is(p, n, f->names[i])) {
            p->at += n;
            *value = i;
            return 0;
        }
    }
    return expected_name(p, f);
}

static int parse_field(struct tw_parser *p, const struct tw_text_field *f, void *record) {
    uint64_t value = 0;
    int rc = tw_parse_mark(p, "=");
    rc = rc ? rc : parse_value(p, f, f->bytes, &value);
    if (rc == 0) {
        tw_text_set(record, f->at, f->bytes, value);
    }
    if (rc == 0 && f->between) {
        rc = tw_parse_mark(p, f->between);
        rc = rc ? rc : parse_value(p, f, f->second_bytes, &value);
        if (rc == 0) {
            tw_text_set(record, f->second, f->second_bytes, value);
        }
    }
    return rc;
}

static const struct tw_text_field *find_field(struct tw_parser *p, const struct tw_text_record *r) {
    size_t n = tw_parse_word(p);
    for (uint32_t i = 0; i < r->n_fields; i++) {
        if (tw_parse_word_is(p, n, r->fields[i].key)) {
            p->at += n;
            return &r->fields[i];
        }
    }
    return NULL;
}

static int expected_field(struct tw_parser *p, const struct tw_text_record *r) {
    char what[200];
    int n = snprintf(what, sizeof what, "a field of a %s:", r->word);
    for (uint32_t i = 0; i < r->n_fields; i++) {
        n += snprintf(what + n, sizeof what - (size_t)n, " %s", r->fields[i].key);
    }
    return tw_parse_expected(p, what);
}

/* Sets the defaults of omitted fields, or reports a field that must not be omitted. */
static int complete(struct tw_parser *p, const struct tw_text_record *r, uint32_t seen,
                    void *record) {
    for (uint32_t i = 0; i < r->n_fields; i++) {
        const struct tw_text_field *f = &r->fields[i];
        if (seen & 1u << i) {
            continue;
        }
        if (!f->optional) {
            char what[40];
            snprintf(what, sizeof what, "'%.30s='", f->key);
            return tw_parse_expected(p, what);
        }
        tw_text_set(record, f->at, f->bytes, f->absent);
        if (f->between) {
            tw_text_set(record, f->second, f->second_bytes, f->absent);
        }
    }
    return 0;
}

/* Parses the rest of the line: fields in any order, each once. */
static int parse_fields(struct tw_parser *p, const struct tw_text_record *r, void *record) {
    uint32_t seen = 0;
    int rc = tw_parse_gap(p);
    while (rc == 0 && !tw_parse_line_ends(p)) {
        size_t start = p->at;
        const struct tw_text_field *f = find_field(p, r);
        if (!f) {
            return expected_field(p, r);
        }
        uint32_t bit = 1u << (f - r->fields);
        if (seen & bit) {
            return tw_parse_fail(p, TW_E_FORMAT, start, "found %s= twice, expected it once",
                                 f->key);
        }
        seen |= bit;
        rc = parse_field(p, f, record);
        rc = rc ? rc : tw_parse_gap(p);
    }
    return rc ? rc : complete(p, r, seen, record);
}

/* ---- records ---- */

static int parse_record_name(struct tw_parser *p, const struct tw_text_record *r, void *record) {
    struct tw_parse_name name;
    uint32_t offset;
    if (!r->has_name) {
        return 0;
    }
    int rc = tw_parse_gap(p);
    rc = rc ? rc : tw_parse_name(p, "a name", &name);
    rc = rc ? rc : tw_parse_keep(p, name, &offset);
    if (rc == 0) {
        tw_text_set(record, r->name, 4, offset);
    }
    return rc;
}

/* Parses a line of a table, after its first word. */
static int parse_record(struct tw_parser *p, enum tw_text_table table) {
    const struct tw_text_record *r = tw_text_record(table);
    struct tw_parse_array *a = &p->owner->table[table];
    uint32_t id = 0;
    int rc = tw_parse_gap(p);
    size_t start = p->at;
    rc = rc ? rc : tw_parse_u32(p, "the id", &id);
    if (rc == 0 && id != a->n) {
        return tw_parse_fail(p, TW_E_FORMAT, start,
                             "found %s %u, expected %s %zu: ids count the lines of their table",
                             r->word, id, r->word, a->n);
    }
    if (rc == 0 && !tw_parse_reserve(a, a->n + 1, r->bytes)) {
        return tw_parse_nomem(p);
    }
    if (rc) {
        return rc;
    }
    void *record = (char *)a->items + a->n * r->bytes;
    memset(record, 0, r->bytes);
    rc = parse_record_name(p, r, record);
    rc = rc ? rc : parse_fields(p, r, record);
    a->n += rc == 0;
    return rc;
}

static int parse_stream(struct tw_parser *p) {
    struct tw_parse_array *a = &p->owner->table[TW_TEXT_STREAM];
    uint32_t id = 0;
    int rc = tw_parse_gap(p);
    size_t start = p->at;
    rc = rc ? rc : tw_parse_u32(p, "the index", &id);
    if (rc == 0 && (id < p->next_stream || id >= a->n)) {
        return tw_parse_fail(p, TW_E_FORMAT, start,
                             "found stream %u, expected one from %u to %zu, in ascending order", id,
                             p->next_stream, a->n - 1);
    }
    rc = rc ? rc
            : parse_fields(p, tw_text_record(TW_TEXT_STREAM), (struct tw_stream *)a->items + id);
    p->next_stream = id + 1;
    p->stage = TW_NONE;
    return rc;
}

/* ---- the program ---- */

static int make_streams(struct tw_parser *p, size_t at) {
    struct tw_parse_array *a = &p->owner->table[TW_TEXT_STREAM];
    uint32_t n_sites = p->owner->text.program.n_sites;
    if (n_sites < 1 || n_sites > TW_MAX_SITES) {
        return tw_parse_fail(p, TW_E_RANGE, at, "found %u sites, expected 1 to %u", n_sites,
                             TW_MAX_SITES);
    }
    a->n = a->cap = (size_t)n_sites * TW_ENGINE_COUNT;
    a->items = calloc(a->n, sizeof(struct tw_stream));
    if (!a->items) {
        return tw_parse_nomem(p);
    }
    struct tw_stream *streams = a->items;
    for (uint32_t i = 0; i < a->n; i++) {
        streams[i].site = i / TW_ENGINE_COUNT;
        streams[i].engine = i % TW_ENGINE_COUNT;
    }
    return 0;
}

static int parse_program_name(struct tw_parser *p) {
    struct tw_parse_owner *o = p->owner;
    struct tw_parse_name name;
    int rc = tw_parse_gap(p);
    rc = rc ? rc : tw_parse_name(p, "the program's name", &name);
    if (rc || name.none) {
        return rc;
    }
    o->name = malloc((size_t)name.bytes + 1);
    if (!o->name) {
        return tw_parse_nomem(p);
    }
    memcpy(o->name, (char *)o->strings.items + o->strings.n, name.bytes);
    o->name[name.bytes] = 0;
    return 0;
}

static int parse_head(struct tw_parser *p) {
    size_t start = p->at, n = tw_parse_word(p);
    if (!tw_parse_word_is(p, n, "program")) {
        return tw_parse_expected(p, "'program'");
    }
    p->at += n;
    p->owner->text.line = p->line;
    int rc = parse_program_name(p);
    rc = rc ? rc : parse_fields(p, tw_text_record(TW_TEXT_PROGRAM), &p->owner->text.program);
    return rc ? rc : make_streams(p, start);
}

/* Parses one line after the first; *more is false at the next program. */
static int parse_line(struct tw_parser *p, bool *more) {
    size_t n = tw_parse_word(p);
    if (tw_parse_word_is(p, n, "program")) {
        *more = false;
        return 0;
    }
    if (tw_parse_word_is(p, n, "stream")) {
        p->at += n;
        return parse_stream(p);
    }
    if (p->next_stream > 0) {
        return tw_parse_stream_line(p);
    }
    for (int table = TW_TEXT_TENSORS; table < TW_TEXT_STREAM && n > 0; table++) {
        if (tw_parse_word_is(p, n, tw_text_record((enum tw_text_table)table)->word)) {
            p->at += n;
            return parse_record(p, (enum tw_text_table)table);
        }
    }
    return tw_parse_expected(p, "tensor, buffer, group, semaphore, trip, section, stage or stream");
}

/* Points the view at the tables, which are complete and no longer move. */
static void finish(struct tw_parse_owner *o) {
    struct tw_program *g = &o->text.program;
    for (int table = TW_TEXT_TENSORS; table < TW_TEXT_STREAM; table++) {
        const struct tw_text_record *r = tw_text_record((enum tw_text_table)table);
        uint32_t n = (uint32_t)o->table[table].n;
        memcpy((char *)g + r->table, &o->table[table].items, sizeof(void *));
        memcpy((char *)g + r->count, &n, sizeof n);
    }
    struct tw_stream *streams = o->table[TW_TEXT_STREAM].items;
    const uint32_t *words = o->words.items;
    for (size_t i = 0, at = 0; i < o->table[TW_TEXT_STREAM].n; at += streams[i].n_words, i++) {
        streams[i].words = streams[i].n_words ? words + at : NULL;
    }
    g->streams = streams;
    g->name = o->name;
    g->strings = o->strings.items;
    g->strings_bytes = (uint32_t)o->strings.n;
}

static int parse_program(struct tw_parser *p) {
    struct tw_parse_array *strings = &p->owner->strings;
    bool more = true;
    if (!tw_parse_reserve(strings, 2, 1)) {
        return tw_parse_nomem(p);
    }
    ((char *)strings->items)[0] = 0;
    strings->n = 1;
    int rc = parse_head(p);
    while (rc == 0 && more) {
        tw_parse_next_line(p);
        if (p->at == p->size) {
            break;
        }
        rc = parse_line(p, &more);
        rc = rc || !more ? rc : tw_parse_end_of_line(p);
    }
    return rc;
}

int tw_program_parse_next(const char *name, const char *text, size_t size,
                          struct tw_text_position *position, struct tw_program_text **out,
                          tw_error *err) {
    struct tw_parser p = {
        .file = name, .text = text, .size = size, .at = position->at, .err = err, .stage = TW_NONE};
    *out = NULL;
    p.line_start = p.at;
    p.line = position->line + 1;
    if (size > TW_PROGRAM_TEXT_MAX) {
        return tw_parse_fail(&p, TW_E_RANGE, p.at, "a text of %zu bytes, expected at most %u", size,
                             TW_PROGRAM_TEXT_MAX);
    }
    tw_parse_next_line(&p);
    if (p.at == p.size) {
        position->at = p.at;
        position->line = p.line - 1;
        return 0;
    }
    for (uint32_t code = 0; code < TW_OP_LIMIT; code++) {
        p.op_name[code] = tw_op_info(code).name;
    }
    p.owner = calloc(1, sizeof *p.owner);
    if (!p.owner) {
        return tw_parse_nomem(&p);
    }
    int rc = parse_program(&p);
    free(p.slot);
    if (rc) {
        tw_program_text_free(&p.owner->text);
        return rc;
    }
    finish(p.owner);
    position->at = p.at < p.size ? p.line_start : p.size;
    position->line = p.line - 1;
    *out = &p.owner->text;
    return 0;
}

int tw_program_parse(const char *name, const char *text, size_t size, struct tw_program_text **out,
                     tw_error *err) {
    struct tw_text_position position = {0, 0};
    int rc = tw_program_parse_next(name, text, size, &position, out, err);
    struct tw_parser rest = {
        .file = name, .text = text, .size = size, .at = position.at, .err = err};
    if (rc) {
        return rc;
    }
    rest.line_start = position.at;
    rest.line = position.line + 1;
    tw_parse_next_line(&rest);
    if (*out && rest.at == rest.size) {
        return 0;
    }
    rc = tw_parse_expected(&rest, *out ? "the end of the text after one program" : "'program'");
    tw_program_text_free(*out);
    *out = NULL;
    return rc;
}

void tw_program_text_free(struct tw_program_text *text) {
    if (!text) {
        return;
    }
    struct tw_parse_owner *o = (struct tw_parse_owner *)(void *)text;
    for (int i = 0; i < TW_TEXT_TABLE_COUNT; i++) {
        free(o->table[i].items);
    }
    free(o->words.items);
    free(o->strings.items);
    free(o->name);
    free(o);
}
