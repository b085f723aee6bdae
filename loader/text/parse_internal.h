/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the parser: the position in the text and the program under construction.
 * Lexical functions (parse_lex.c) read the text from `at`, skip blanks where blanks are allowed,
 * and stay on the line. Functions that return int return 0, or a TW_E_ code with the message set:
 * FORMAT, RANGE or NOMEM.
 */
#ifndef TW_LOADER_TEXT_PARSE_INTERNAL_H
#define TW_LOADER_TEXT_PARSE_INTERNAL_H

#include "loader/base/compiler.h"
#include "loader/text/parse_program.h"
#include "loader/text/text_tables.h"

struct tw_parse_array {
    void *items;
    size_t n, cap;
};

/* The result; the caller gets its first member. */
struct tw_parse_owner {
    struct tw_program_text text;
    /* records; of STREAM: all n_sites * TW_ENGINE_COUNT */
    struct tw_parse_array table[TW_TEXT_TABLE_COUNT];
    struct tw_parse_array words; /* of all streams, in order */
    /* bytes of the string table; a name that is being read follows the last one */
    struct tw_parse_array strings;
    char *name;
};

struct tw_parse_slot {
    uint32_t offset, hash; /* offset 0: empty */
};

struct tw_parser {
    const char *file, *text;
    size_t size, at, line_start;
    uint32_t line; /* from 1 */
    tw_error *err;
    struct tw_parse_owner *owner;
    struct tw_parse_slot *slot; /* hash table of strings; a power of two */
    uint32_t n_slots, n_used;
    uint32_t stage;       /* of the following ops */
    uint32_t next_stream; /* minimum index of the next stream; 0: no stream yet */
    const char *op_name[TW_OP_LIMIT];
};

/* A name as read: `bytes` bytes after the last string, not yet a part of the table. */
struct tw_parse_name {
    uint32_t bytes;
    bool none; /* '-' */
};

/* Makes room for n items in all. Returns false if memory ran out. */
bool tw_parse_reserve(struct tw_parse_array *a, size_t n, size_t item_bytes);

/* ---- parse_lex.c ---- */

/* Fills the error with "FILE:LINE:COL: ..." for the offset `at` of this line; tw_parse_fail's value
 * is the code (tilewright/error.h). */
void tw_parse_error(const struct tw_parser *p, int code, size_t at, const char *format, ...)
    TW_PRINTF(4, 5);
#define tw_parse_fail(p, code, at, ...) (tw_parse_error((p), (code), (at), __VA_ARGS__), (code))
#define tw_parse_nomem(p) tw_parse_fail((p), TW_E_NOMEM, (p)->at, "out of memory for the program")
/* Fills the error with "found X, expected WHAT" for the current position; tw_parse_expected's value
 * is TW_E_FORMAT. */
void tw_parse_error_expected(const struct tw_parser *p, const char *what);
#define tw_parse_expected(p, what) (tw_parse_error_expected((p), (what)), TW_E_FORMAT)

/* Returns the byte at the current position, or -1 at the end of the text. */
static inline int tw_parse_peek(const struct tw_parser *p) {
    return p->at < p->size ? (unsigned char)p->text[p->at] : -1;
}
static inline bool tw_parse_is_digit(int c) {
    return c >= '0' && c <= '9';
}
static inline int tw_parse_hex_digit(int c) { /* its value, or -1 */
    return tw_parse_is_digit(c)   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}
bool tw_parse_line_ends(const struct tw_parser *p);
/* Skips blanks; at least one is required unless the line ends. */
int tw_parse_gap(struct tw_parser *p);
int tw_parse_end_of_line(struct tw_parser *p);
/* Skips empty lines and comments, to the first byte of the next other line. */
void tw_parse_next_line(struct tw_parser *p);
/* Skips `mark` if it is here; returns whether it was. tw_parse_mark fails if it is not. */
bool tw_parse_accept(struct tw_parser *p, const char *mark);
int tw_parse_mark(struct tw_parser *p, const char *mark);
/* Returns the length of the word (tw_text_is_word) here, 0 if there is none, without skipping
 * it. */
size_t tw_parse_word(const struct tw_parser *p);
bool tw_parse_word_is(const struct tw_parser *p, size_t length, const char *word);
int tw_parse_number(struct tw_parser *p, const char *what, uint64_t max, uint64_t *out);
int tw_parse_u32(struct tw_parser *p, const char *what, uint32_t *out);
int tw_parse_hex32(struct tw_parser *p, uint32_t *out);
int tw_parse_float(struct tw_parser *p, uint32_t *bits);

/* ---- parse_names.c ---- */

int tw_parse_name(struct tw_parser *p, const char *what, struct tw_parse_name *out);
/* Adds the name that was just read to the string table, or finds it there. */
int tw_parse_keep(struct tw_parser *p, struct tw_parse_name name, uint32_t *offset);
/* Parses name@id or @id. A name must be that of the record. */
int tw_parse_reference(struct tw_parser *p, enum tw_text_table table, uint32_t *id);

/* ---- parse_ops.c ---- */

/* Parses a line of a stream: an op, `words`, or `stage=`. */
int tw_parse_stream_line(struct tw_parser *p);

#endif
