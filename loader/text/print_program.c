/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a program's tables, one line for each record by the tables of text_tables.h, and drives
 * the printing of its streams. A line is built in one buffer and handed to the caller's function.
 */
#include "loader/text/print_internal.h"

#include "loader/base/grow.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- the line ---- */

/* Makes room for `bytes` more and a newline. Returns false, with the line discarded, if memory ran
 * out. */
static bool make_room(struct tw_printer *p, size_t bytes) {
    if (p->rc != 0 || bytes < p->room - p->used) {
        return p->rc == 0;
    }
    bool grown = p->text != p->first;
    char *text = grown ? p->text : NULL;
    size_t room = grown ? p->room : 0;
    if (!tw_grow(&text, &room, p->used + bytes + 1, 1)) {
        p->rc = TW_E_NOMEM;
        return false;
    }
    if (!grown) {
        memcpy(text, p->first, p->used);
    }
    p->text = text;
    p->room = room;
    return true;
}

static void add(struct tw_printer *p, const char *text, size_t bytes) {
    if (make_room(p, bytes)) {
        memcpy(p->text + p->used, text, bytes);
        p->used += bytes;
    }
}

void tw_print_text(struct tw_printer *p, const char *format, ...) {
    char piece[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    if (n > 0) {
        add(p, piece, (size_t)n < sizeof piece ? (size_t)n : sizeof piece - 1);
    }
}

void tw_print_end(struct tw_printer *p) {
    add(p, "\n", 1);
    if (p->rc == 0) {
        p->rc = p->line(p->ctx, p->text, p->used);
    }
    p->used = 0;
}

/* ---- names ---- */

static void print_quoted(struct tw_printer *p, const char *s, size_t n) {
    add(p, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c >= 0x7F) {
            tw_print_text(p, "\\x%02x", c);
        } else {
            tw_print_text(p, c == '"' || c == '\\' ? "\\%c" : "%c", c);
        }
    }
    add(p, "\"", 1);
}

static void print_string(struct tw_printer *p, const char *s, size_t n) {
    bool word = n > 0;
    for (size_t i = 0; i < n && word; i++) {
        word = tw_text_is_word((unsigned char)s[i], i == 0);
    }
    if (word) {
        add(p, s, n);
    } else {
        print_quoted(p, s, n);
    }
}

/* Returns the string at `name` and its length; NULL outside the table. A last string without a NUL
 * ends with the table. */
static const char *string_at(const struct tw_program *g, uint32_t name, size_t *n) {
    if (!g->strings || name >= g->strings_bytes) {
        return NULL;
    }
    *n = strnlen(g->strings + name, g->strings_bytes - name);
    return g->strings + name;
}

void tw_print_name(struct tw_printer *p, uint32_t name) {
    size_t n;
    const char *s = string_at(p->program, name, &n);
    if (s) {
        print_string(p, s, n);
    } else {
        tw_print_text(p, "-");
    }
}

void tw_print_reference(struct tw_printer *p, enum tw_text_table table, uint32_t id) {
    const struct tw_text_record *r = tw_text_record(table);
    if (id < tw_text_count_of(p->program, r)) {
        const char *record = (const char *)tw_text_table_of(p->program, r) + (size_t)id * r->bytes;
        size_t n;
        const char *s = string_at(p->program, (uint32_t)tw_text_get(record, r->name, 4), &n);
        if (s && n > 0) {
            print_string(p, s, n);
        }
    }
    tw_print_text(p, "@%u", id);
}

/* ---- records ---- */

static void print_value(struct tw_printer *p, const struct tw_text_field *f, uint64_t value) {
    if (f->kind == TW_TEXT_SIGNED) {
        tw_print_text(p, "%d", (int)(int32_t)(uint32_t)value);
    } else if (f->kind != TW_TEXT_NUMBER && value == TW_NONE) {
        tw_print_text(p, "-");
    } else if (f->kind == TW_TEXT_TENSOR) {
        tw_print_reference(p, TW_TEXT_TENSORS, (uint32_t)value);
    } else if (value < f->n_names) {
        tw_print_text(p, "%s", f->names[value]);
    } else {
        tw_print_text(p, "%llu", (unsigned long long)value);
    }
}

static void print_field(struct tw_printer *p, const struct tw_text_field *f, const void *record) {
    uint64_t first = tw_text_get(record, f->at, f->bytes);
    uint64_t second = f->between ? tw_text_get(record, f->second, f->second_bytes) : f->absent;
    if (f->optional && first == f->absent && second == f->absent) {
        return;
    }
    tw_print_text(p, " %s=", f->key);
    print_value(p, f, first);
    if (f->between) {
        tw_print_text(p, "%s", f->between);
        print_value(p, f, second);
    }
}

void tw_print_record(struct tw_printer *p, enum tw_text_table table, uint32_t id,
                     const void *record) {
    const struct tw_text_record *r = tw_text_record(table);
    tw_print_text(p, "%s", r->word);
    if (table != TW_TEXT_PROGRAM) {
        tw_print_text(p, " %u", id);
    }
    if (r->has_name) {
        tw_print_text(p, " ");
        tw_print_name(p, (uint32_t)tw_text_get(record, r->name, 4));
    }
    if (table == TW_TEXT_PROGRAM) {
        tw_print_text(p, " ");
        if (p->program->name) {
            print_string(p, p->program->name, strlen(p->program->name));
        } else {
            tw_print_text(p, "-");
        }
    }
    for (uint32_t i = 0; i < r->n_fields; i++) {
        print_field(p, &r->fields[i], record);
    }
    tw_print_end(p);
}

static void print_table(struct tw_printer *p, enum tw_text_table table) {
    const struct tw_text_record *r = tw_text_record(table);
    const char *records = tw_text_table_of(p->program, r);
    uint32_t n = tw_text_count_of(p->program, r);
    for (uint32_t i = 0; i < n && p->rc == 0; i++) {
        tw_print_record(p, table, i, records + (size_t)i * r->bytes);
    }
}

int tw_program_print(const struct tw_program *program, unsigned what, tw_program_line *line,
                     void *ctx) {
    struct tw_printer p;
    p.program = program;
    p.line = line;
    p.ctx = ctx;
    p.rc = 0;
    p.used = 0;
    p.text = p.first;
    p.room = sizeof p.first;
    tw_print_record(&p, TW_TEXT_PROGRAM, 0, program);
    for (int table = TW_TEXT_TENSORS; table < TW_TEXT_STREAM && what & TW_PRINT_TABLES; table++) {
        print_table(&p, (enum tw_text_table)table);
    }
    if (what & TW_PRINT_STREAMS) {
        tw_print_streams(&p);
    }
    if (p.text != p.first) {
        free(p.text);
    }
    return p.rc;
}

static int write_line(void *ctx, const char *line, size_t bytes) {
    return fwrite(line, 1, bytes, (FILE *)ctx) == bytes ? 0 : TW_E_IO;
}

int tw_program_print_file(const struct tw_program *program, unsigned what, FILE *file,
                          tw_error *err) {
    const char *name = program->name ? program->name : "?";
    int rc = tw_program_print(program, what, write_line, file);
    if (rc == TW_E_NOMEM) {
        return tw_fail(err, rc, "out of memory for a line of the text of program %.60s", name);
    }
    if (rc || fflush(file) != 0) {
        return tw_fail(err, TW_E_IO, "cannot write the text of program %.60s", name);
    }
    return 0;
}
