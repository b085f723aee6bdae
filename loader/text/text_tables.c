/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of the text form (text_tables.h): the names of each record's fields. */
#include "loader/text/text_tables.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- names of enum values, by value ---- */

static const char *const roles[] = {
#define TW_X(id, number, text) [number] = text,
    TW_ROLES(TW_X)
#undef TW_X
};
static const char *const dtypes[] = {
#define TW_X(id, number, text, elems, bytes) [number] = text,
    TW_DTYPES(TW_X)
#undef TW_X
};
static const char *const packings[] = {
#define TW_X(id, number, text) [number] = text,
    TW_PACKINGS(TW_X)
#undef TW_X
};
static const char *const inits[] = {
    [TW_INIT_NONE] = "none", [TW_INIT_ZERO] = "zero", [TW_INIT_BLOB] = "blob"};
static const char *const buffer_kinds[] = {
    [TW_BUF_FIFO] = "fifo", [TW_BUF_RESIDENT] = "resident", [TW_BUF_SCRATCH] = "scratch"};
static const char *const sem_roles[] = {[TW_SEM_READY] = "ready",
                                        [TW_SEM_VALID] = "valid",
                                        [TW_SEM_GATHER] = "gather",
                                        [TW_SEM_RELEASE] = "release"};
static const char *const stage_kinds[] = {[TW_STAGE_LOAD] = "load",
                                          [TW_STAGE_STORE] = "store",
                                          [TW_STAGE_RECV] = "recv",
                                          [TW_STAGE_COMPUTE] = "compute",
                                          [TW_STAGE_SYNC] = "sync"};
static const char *const engines[] = {
    [TW_ENGINE_LOAD] = "load", [TW_ENGINE_MATH] = "math", [TW_ENGINE_STORE] = "store"};

/* ---- fields ---- */

#define SIZE(member) (uint8_t)sizeof(((struct RECORD *)0)->member)
#define AT(member) (uint16_t) offsetof(struct RECORD, member)
#define COUNT(array) (uint32_t)(sizeof(array) / sizeof((array)[0]))

/* KEY=VALUE of a member of RECORD: a NUMBER, an ENUM with names, or a PAIR of values with a mark in
 * between. OPTIONAL fields are left out where they have their default: 0, 1 (ONE) or TW_NONE
 * (ID). */

#define NUMBER(word, member) \
    { .key = word, .at = AT(member), .bytes = SIZE(member) }
#define OPTIONAL(word, member) \
    { .key = word, .at = AT(member), .bytes = SIZE(member), .optional = true }
#define OPTIONAL_ONE(word, member) \
    { .key = word, .at = AT(member), .bytes = SIZE(member), .optional = true, .absent = 1 }
#define ENUM(word, member, list) \
    { .key = word, .at = AT(member), .bytes = SIZE(member), .names = list, .n_names = COUNT(list) }
#define OPTIONAL_ENUM(word, member, list)                                    \
    {                                                                        \
        .key = word, .at = AT(member), .bytes = SIZE(member), .names = list, \
        .n_names = COUNT(list), .optional = true                             \
    }
#define PAIR(word, first, mark, other)                                           \
    {                                                                            \
        .key = word, .at = AT(first), .second = AT(other), .bytes = SIZE(first), \
        .second_bytes = SIZE(other), .between = mark                             \
    }
#define OPTIONAL_PAIR(word, first, mark, other)                                  \
    {                                                                            \
        .key = word, .at = AT(first), .second = AT(other), .bytes = SIZE(first), \
        .second_bytes = SIZE(other), .between = mark, .optional = true           \
    }
#define OPTIONAL_ENUM_PAIR(word, first, mark, other, list)                                   \
    {                                                                                        \
        .key = word, .at = AT(first), .second = AT(other), .bytes = SIZE(first),             \
        .second_bytes = SIZE(other), .between = mark, .names = list, .n_names = COUNT(list), \
        .optional = true                                                                     \
    }
#define OPTIONAL_ID(word, member, id_kind)                                                       \
    {                                                                                            \
        .key = word, .at = AT(member), .bytes = SIZE(member), .kind = id_kind, .optional = true, \
        .absent = TW_NONE                                                                        \
    }

#define RECORD tw_program
static const struct tw_text_field program_fields[] = {
    NUMBER("rows", rows),
    NUMBER("sites", n_sites),
    PAIR("mesh", mesh_width, "x", mesh_height),
    NUMBER("chips", n_chips),
    NUMBER("sram", sram_bytes[0]),
    OPTIONAL("sram1", sram_bytes[1]),
    OPTIONAL("sram2", sram_bytes[2]),
    OPTIONAL("sram3", sram_bytes[3]),
};
#undef RECORD

#define RECORD tw_tensor
static const struct tw_text_field tensor_fields[] = {
    ENUM("role", role, roles),          ENUM("dtype", dtype, dtypes),
    PAIR("shape", rows, "x", cols),     ENUM("packing", packing, packings),
    OPTIONAL("head_dim", head_dim),     NUMBER("bytes", bytes),
    OPTIONAL_ENUM("init", init, inits), OPTIONAL_PAIR("bind", bind_first, "+", bind_count),
    OPTIONAL("page_rows", page_rows),
};
#undef RECORD

#define RECORD tw_buffer
static const struct tw_text_field buffer_fields[] = {
    NUMBER("site", site),
    ENUM("kind", kind, buffer_kinds),
    ENUM("dtype", dtype, dtypes),
    PAIR("pages", pages, "x", page_bytes),
    NUMBER("offset", offset),
    OPTIONAL_ENUM_PAIR("ends", producer, ">", consumer, engines),
    OPTIONAL("class", mem_class),
    OPTIONAL_ID("siblings", sibling_base, TW_TEXT_ID),
    OPTIONAL("group", group),
    OPTIONAL_ID("of", tensor, TW_TEXT_TENSOR),
    OPTIONAL("first", window_first),
    OPTIONAL_PAIR("window", window_rows, "x", window_row_bytes),
    OPTIONAL("stride", window_stride),
    OPTIONAL("pad", pad),
};
#undef RECORD

#define RECORD tw_group
static const struct tw_text_field group_fields[] = {
    NUMBER("chip", chip),
    PAIR("x", x0, "..", x1),
    PAIR("y", y0, "..", y1),
    OPTIONAL_ONE("chips", chips),
};
#undef RECORD

#define RECORD tw_semaphore
static const struct tw_text_field semaphore_fields[] = {
    ENUM("role", role, sem_roles),
    NUMBER("group", group),
    OPTIONAL("initial", initial),
};
#undef RECORD

#define RECORD tw_trip
static const struct tw_text_field trip_fields[] = {
    {.key = "input", .at = AT(input), .bytes = SIZE(input), .kind = TW_TEXT_TENSOR},
    OPTIONAL("element", element),
    {.key = "add", .at = AT(add), .bytes = SIZE(add), .kind = TW_TEXT_SIGNED},
    NUMBER("div", div),
    NUMBER("max", max),
    OPTIONAL("clamp", clamp),
};
#undef RECORD

#define RECORD tw_section
static const struct tw_text_field section_fields[] = {
    NUMBER("repeat", repeat),
    PAIR("buffers", first_buffer, "+", n_buffers),
    PAIR("semaphores", first_semaphore, "+", n_semaphores),
    PAIR("stages", first_stage, "+", n_stages),
    OPTIONAL_ID("local", local, TW_TEXT_ID),
    OPTIONAL_ID("gather", gather, TW_TEXT_ID),
    OPTIONAL_ID("release", release, TW_TEXT_ID),
    OPTIONAL("reserved", reserved),
};
#undef RECORD

#define RECORD tw_stage
static const struct tw_text_field stage_fields[] = {
    ENUM("kind", kind, stage_kinds),
    NUMBER("site", site),
    ENUM("engine", engine, engines),
    NUMBER("section", section),
    OPTIONAL_PAIR("cols", first_col, "+", n_cols),
    OPTIONAL("k", k),
};
#undef RECORD

#define RECORD tw_stream
static const struct tw_text_field stream_fields[] = {
    NUMBER("site", site),
    ENUM("engine", engine, engines),
};
#undef RECORD

/* ---- records ---- */

#define PLACE(member) (uint16_t) offsetof(struct tw_program, member)
#define TABLE(text, type, list, member, n)                                                   \
    {                                                                                        \
        .word = text, .fields = list, .n_fields = COUNT(list), .bytes = sizeof(struct type), \
        .table = PLACE(member), .count = PLACE(n)                                            \
    }
#define TABLE_WITH_NAMES(text, type, list, member, n, label)                                 \
    {                                                                                        \
        .word = text, .fields = list, .n_fields = COUNT(list), .bytes = sizeof(struct type), \
        .table = PLACE(member), .count = PLACE(n), .has_name = true,                         \
        .name = offsetof(struct type, label)                                                 \
    }

static const struct tw_text_record records[TW_TEXT_TABLE_COUNT] = {
    [TW_TEXT_PROGRAM] = {.word = "program",
                         .fields = program_fields,
                         .n_fields = COUNT(program_fields),
                         .bytes = sizeof(struct tw_program)},
    [TW_TEXT_TENSORS] =
        TABLE_WITH_NAMES("tensor", tw_tensor, tensor_fields, tensors, n_tensors, name),
    [TW_TEXT_BUFFERS] =
        TABLE_WITH_NAMES("buffer", tw_buffer, buffer_fields, buffers, n_buffers, name),
    [TW_TEXT_GROUPS] = TABLE("group", tw_group, group_fields, groups, n_groups),
    [TW_TEXT_SEMAPHORES] = TABLE_WITH_NAMES("semaphore", tw_semaphore, semaphore_fields, semaphores,
                                            n_semaphores, name),
    [TW_TEXT_TRIPS] = TABLE_WITH_NAMES("trip", tw_trip, trip_fields, trips, n_trips, name),
    [TW_TEXT_SECTIONS] =
        TABLE_WITH_NAMES("section", tw_section, section_fields, sections, n_sections, name),
    [TW_TEXT_STAGES] = TABLE_WITH_NAMES("stage", tw_stage, stage_fields, stages, n_stages, origin),
    [TW_TEXT_STREAM] = {.word = "stream",
                        .fields = stream_fields,
                        .n_fields = COUNT(stream_fields),
                        .bytes = sizeof(struct tw_stream)},
};

const struct tw_text_record *tw_text_record(enum tw_text_table table) {
    return &records[table];
}

/* ---- floats ---- */

float tw_text_decimal(bool negative, const char *digits, int exponent) {
    char text[80];
    snprintf(text, sizeof text, "%s%.60sE%d", negative ? "-" : "", digits, exponent);
    return strtof(text, NULL);
}

/* Extracts the significant digits and the exponent of a number in the form "d.ddde-xx", whatever
 * decimal separator the locale uses. */
static void split(const char *text, char *digits, int *exponent) {
    size_t n = 0;
    const char *c = text;
    for (; *c && *c != 'e'; c++) {
        if (*c >= '0' && *c <= '9') {
            digits[n++] = *c;
        }
    }
    digits[n] = 0;
    *exponent = *c == 'e' ? atoi(c + 1) : 0;
}

void tw_text_float(uint32_t bits, char *out) {
    struct tw_operand o = {.id = bits};
    float f = tw_operand_float(&o);
    char text[40], digits[40];
    int exponent = 0;
    if (!isfinite(f)) {
        snprintf(out, 32, "0x%08x", bits);
        return;
    }
    for (int n = 1; n <= 9; n++) { /* nine digits distinguish all floats */
        snprintf(text, sizeof text, "%.*e", n - 1, (double)fabsf(f));
        split(text, digits, &exponent);
        if (tw_text_decimal(false, digits, exponent - (n - 1)) == fabsf(f)) {
            break;
        }
    }
    int n = snprintf(out, 32, "%s%c%s%.9s", signbit(f) ? "-" : "", digits[0], digits[1] ? "." : "",
                     digits + 1);
    if (exponent != 0) {
        snprintf(out + n, 32 - (size_t)n, "e%d", exponent);
    }
}
