/* SPDX-License-Identifier: Apache-2.0
 *
 * The words of the text form of programs (tws(5)), shared by its printer and its parser: a table of
 * fields for each record of struct tw_program; those of ops are in ops.def. A field that is missing
 * in these tables would be lost in the text, so a test compares them with the size of every record.
 */
#ifndef TW_LOADER_TEXT_TEXT_TABLES_H
#define TW_LOADER_TEXT_TEXT_TABLES_H

#include "tilewright/op_schema.h"

enum tw_text_kind {
    TW_TEXT_NUMBER = 0, /* decimal, or one of `names` */
    TW_TEXT_ID = 1,     /* the same; TW_NONE is '-' */
    TW_TEXT_TENSOR = 2, /* name@id of a tensor; TW_NONE is '-' */
    TW_TEXT_SIGNED = 3  /* an int32_t, decimal; '-' in front if negative */
};

/* One `key=value` of a record; with `between` the value is two members, `first between second`. A
 * value that equals `absent` (in both halves) is left out if the field is optional. */
struct tw_text_field {
    const char *key;
    const char *between;
    const char *const *names; /* NULL: numbers only */
    uint32_t n_names;
    uint32_t absent;
    bool optional;
    uint8_t kind;
    uint8_t bytes, second_bytes; /* 1, 2, 3, 4 or 8 */
    uint16_t at, second;         /* offsets in the record */
};

enum { TW_TEXT_MAX_FIELDS = 16 };

/* A kind of line: its first word, and the record that it describes. */
struct tw_text_record {
    const char *word;
    const struct tw_text_field *fields;
    uint32_t n_fields, bytes;
    bool has_name; /* a string of the string table; the record's field at offset `name` */
    uint16_t name;
    uint16_t table; /* offset in struct tw_program of the table's pointer */
    uint16_t count; /* and of its count */
};

/* In the order of printing. PROGRAM has neither table nor id, STREAM's id is its index and its
 * words follow. */
enum tw_text_table {
    TW_TEXT_PROGRAM,
    TW_TEXT_TENSORS,
    TW_TEXT_BUFFERS,
    TW_TEXT_GROUPS,
    TW_TEXT_SEMAPHORES,
    TW_TEXT_TRIPS,
    TW_TEXT_SECTIONS,
    TW_TEXT_STAGES,
    TW_TEXT_STREAM,
    TW_TEXT_TABLE_COUNT
};
/* Returns the description of a table's records. */
const struct tw_text_record *tw_text_record(enum tw_text_table table);

static inline const void *tw_text_table_of(const struct tw_program *p,
                                           const struct tw_text_record *r) {
    const void *table;
    memcpy(&table, (const char *)p + r->table, sizeof table);
    return table;
}
static inline uint32_t tw_text_count_of(const struct tw_program *p,
                                        const struct tw_text_record *r) {
    uint32_t count;
    memcpy(&count, (const char *)p + r->count, sizeof count);
    return count;
}

/* Get and set a field's value; records are little-endian. */
static inline uint64_t tw_text_get(const void *record, uint16_t at, uint8_t bytes) {
    uint64_t value = 0;
    memcpy(&value, (const char *)record + at, bytes);
    return value;
}
static inline void tw_text_set(void *record, uint16_t at, uint8_t bytes, uint64_t value) {
    memcpy((char *)record + at, &value, bytes);
}

/* Returns true for characters of a name that needs no quotes: a letter or '_', then letters,
 * digits, '_' and '.'. */
static inline bool tw_text_is_word(unsigned char c, bool first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && ((c >= '0' && c <= '9') || c == '.'));
}

/* tw_text_float writes the shortest decimal number that is read as exactly these bits, "2.5e-1",
 * "-0"; "0x7fc00000" for an infinity or NaN. `out` has 32 bytes. tw_text_decimal returns the float
 * nearest to digits*10^exponent. Neither depends on the locale. */
void tw_text_float(uint32_t bits, char *out);
float tw_text_decimal(bool negative, const char *digits, int exponent);

#endif
