/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of chat templates, with the semantics of Python's: what prints, what is true, what is
 * equal. All of them live in the arena of one rendering, which bounds their memory; nothing is
 * freed before its end.
 *
 * Every byte of a text knows where it comes from: the template, or the caller's data (messages,
 * tools). The mark stays with the byte through slices, joins and filters, so that the rendered
 * prompt says which of its parts may hold control tokens (jinja.h).
 */
#ifndef TW_DRIVER_CHAT_VALUE_H
#define TW_DRIVER_CHAT_VALUE_H

#include "tilewright/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- memory ---- */

struct tw_jinja_block;
struct tw_jinja_arena {
    struct tw_jinja_block *blocks;
    size_t used_bytes, max_bytes;
};
/* Returns n bytes, 8-aligned and zeroed; NULL if memory ran out or max_bytes is reached. */
void *tw_jinja_alloc(struct tw_jinja_arena *arena, size_t n);
void tw_jinja_arena_finish(struct tw_jinja_arena *arena);

/* ---- text ---- */

/* Not terminated. data NULL: all of it comes from the template; else data[i] is 1 if byte i comes
 * from the caller's data. */
struct tw_jinja_text {
    const char *p;
    const uint8_t *data;
    size_t n;
};
#define TW_JINJA_TEXT(literal) ((struct tw_jinja_text){(literal), NULL, sizeof(literal) - 1})

/* A text that grows. `failed`: memory ran out, and the text is not complete. */
struct tw_jinja_buffer {
    struct tw_jinja_arena *arena;
    char *p;
    uint8_t *data; /* NULL until the first byte of data */
    size_t n, room;
    bool failed;
};
void tw_jinja_put(struct tw_jinja_buffer *b, struct tw_jinja_text text);
void tw_jinja_put_char(struct tw_jinja_buffer *b, char c, bool data);
void tw_jinja_put_string(struct tw_jinja_buffer *b, const char *string);
static inline struct tw_jinja_text tw_jinja_buffer_text(const struct tw_jinja_buffer *b) {
    return (struct tw_jinja_text){b->p ? b->p : "", b->data, b->n};
}

struct tw_jinja_text tw_jinja_cut(struct tw_jinja_text text, size_t from, size_t to);
bool tw_jinja_same(struct tw_jinja_text a, struct tw_jinja_text b);
bool tw_jinja_is(struct tw_jinja_text a, const char *string);
/* Returns the position of `what` in text at or after `from`; text.n if it is not there. */
size_t tw_jinja_find(struct tw_jinja_text text, struct tw_jinja_text what, size_t from);
/* Returns the bytes of the character at `at`: at least 1, also in malformed text. */
size_t tw_jinja_char_bytes(struct tw_jinja_text text, size_t at);
size_t tw_jinja_count_chars(struct tw_jinja_text text);
uint32_t tw_jinja_code_point(struct tw_jinja_text text, size_t at);

/* ---- values ---- */

enum tw_jinja_kind {
    TW_JINJA_UNDEFINED,
    TW_JINJA_NONE,
    TW_JINJA_BOOL,
    TW_JINJA_INT,
    TW_JINJA_FLOAT,
    TW_JINJA_STRING,
    TW_JINJA_LIST,
    TW_JINJA_TUPLE,
    TW_JINJA_DICT,
    TW_JINJA_NAMESPACE, /* a dict whose entries `set` may assign */
    TW_JINJA_FUNCTION,  /* of the table of functions, or a method bound to `self` */
    TW_JINJA_MACRO,
    TW_JINJA_LOOP
};

struct tw_jinja_list;
struct tw_jinja_dict;
struct tw_jinja_bound;
struct tw_jinja_macro;
struct tw_jinja_loop;

struct tw_jinja_value {
    enum tw_jinja_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double number;
        struct tw_jinja_text text; /* STRING; UNDEFINED: its name, for messages */
        struct tw_jinja_list *list;
        struct tw_jinja_dict *dict;
        const struct tw_jinja_bound *bound;
        const struct tw_jinja_macro *macro;
        struct tw_jinja_loop *loop;
    };
};

struct tw_jinja_list {
    struct tw_jinja_value *item;
    size_t n, room;
};
struct tw_jinja_entry {
    struct tw_jinja_value key, value;
};
/* In the order of insertion. */
struct tw_jinja_dict {
    struct tw_jinja_entry *entry;
    size_t n, room;
};

static inline struct tw_jinja_value tw_jinja_none(void) {
    return (struct tw_jinja_value){.kind = TW_JINJA_NONE};
}
static inline struct tw_jinja_value tw_jinja_bool(bool b) {
    return (struct tw_jinja_value){.kind = TW_JINJA_BOOL, .boolean = b};
}
static inline struct tw_jinja_value tw_jinja_int(int64_t i) {
    return (struct tw_jinja_value){.kind = TW_JINJA_INT, .integer = i};
}
static inline struct tw_jinja_value tw_jinja_float(double f) {
    return (struct tw_jinja_value){.kind = TW_JINJA_FLOAT, .number = f};
}
static inline struct tw_jinja_value tw_jinja_string(struct tw_jinja_text text) {
    return (struct tw_jinja_value){.kind = TW_JINJA_STRING, .text = text};
}
static inline struct tw_jinja_value tw_jinja_undefined(struct tw_jinja_text name) {
    return (struct tw_jinja_value){.kind = TW_JINJA_UNDEFINED, .text = name};
}
static inline bool tw_jinja_is_sequence(const struct tw_jinja_value *v) {
    return v->kind == TW_JINJA_LIST || v->kind == TW_JINJA_TUPLE;
}
static inline bool tw_jinja_is_dict(const struct tw_jinja_value *v) {
    return v->kind == TW_JINJA_DICT || v->kind == TW_JINJA_NAMESPACE;
}
static inline bool tw_jinja_is_number(const struct tw_jinja_value *v) {
    return v->kind == TW_JINJA_INT || v->kind == TW_JINJA_FLOAT || v->kind == TW_JINJA_BOOL;
}
/* BOOL, INT or FLOAT. */
double tw_jinja_as_float(const struct tw_jinja_value *v);
/* BOOL or INT. */
int64_t tw_jinja_as_int(const struct tw_jinja_value *v);

/* An empty list (kind LIST or TUPLE), an empty dict (DICT or NAMESPACE). False: no memory. */
bool tw_jinja_new_list(struct tw_jinja_arena *arena, enum tw_jinja_kind kind,
                       struct tw_jinja_value *out);
bool tw_jinja_new_dict(struct tw_jinja_arena *arena, enum tw_jinja_kind kind,
                       struct tw_jinja_value *out);
bool tw_jinja_push(struct tw_jinja_arena *arena, struct tw_jinja_list *list,
                   struct tw_jinja_value v);
/* Returns the value of a key, or NULL. */
struct tw_jinja_value *tw_jinja_get(const struct tw_jinja_dict *dict,
                                    const struct tw_jinja_value *key);
struct tw_jinja_value *tw_jinja_get_text(const struct tw_jinja_dict *dict,
                                         struct tw_jinja_text key);
bool tw_jinja_set(struct tw_jinja_arena *arena, struct tw_jinja_dict *dict,
                  struct tw_jinja_value key, struct tw_jinja_value value);
/* The same for a key that is new, which is not looked up. */
bool tw_jinja_add(struct tw_jinja_arena *arena, struct tw_jinja_dict *dict,
                  struct tw_jinja_value key, struct tw_jinja_value value);

/* Nested deeper than this, values are neither compared nor printed: they count as different, and
 * print as "...". So do the rest of values with more than a million parts. */
#define TW_JINJA_VALUE_DEPTH 64u

/* Python's bool(), ==, and the name of the type. */
bool tw_jinja_truth(const struct tw_jinja_value *v);
bool tw_jinja_equal(const struct tw_jinja_value *a, const struct tw_jinja_value *b);
const char *tw_jinja_type_name(const struct tw_jinja_value *v);
/* Python's order of two numbers, strings or sequences: *order below, at or above 0. False: they
 * have none. */
bool tw_jinja_compare(const struct tw_jinja_value *a, const struct tw_jinja_value *b, int *order);

/* ---- as text (value_text.c) ---- */

/* Appends str(v), and repr(v). */
void tw_jinja_put_str(struct tw_jinja_buffer *b, const struct tw_jinja_value *v);
void tw_jinja_put_repr(struct tw_jinja_buffer *b, const struct tw_jinja_value *v);
/* str(v) as a text; a string is not copied. */
struct tw_jinja_text tw_jinja_str(struct tw_jinja_arena *arena, const struct tw_jinja_value *v);

struct tw_jinja_json_style {
    int indent; /* below 0: on one line */
    struct tw_jinja_text item, colon;
    bool ascii, sort;
};
/* Appends json.dumps(v). Returns NULL, or the name of a type that JSON does not have. */
const char *tw_jinja_put_json(struct tw_jinja_buffer *b, const struct tw_jinja_value *v,
                              const struct tw_jinja_json_style *style);

#endif
