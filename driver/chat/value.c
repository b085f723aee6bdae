/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, texts and values of chat templates (value.h).
 */
#include "driver/chat/value.h"

#include "driver/tokenizer/utf8_stream.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

#define BLOCK_BYTES 16384u

struct tw_jinja_block {
    struct tw_jinja_block *next;
    size_t used, size;
    _Alignas(8) char bytes[];
};

static struct tw_jinja_block *add_block(struct tw_jinja_arena *arena, size_t n) {
    size_t size = n > BLOCK_BYTES ? n : BLOCK_BYTES;
    struct tw_jinja_block *block = calloc(1, sizeof *block + size);
    if (block) {
        block->size = size;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    return block;
}

void *tw_jinja_alloc(struct tw_jinja_arena *arena, size_t n) {
    if (n > arena->max_bytes - arena->used_bytes) {
        return NULL;
    }
    n = (n + 7) & ~(size_t)7;
    struct tw_jinja_block *block = arena->blocks;
    if (!block || n > block->size - block->used) {
        block = add_block(arena, n);
        if (!block) {
            return NULL;
        }
    }
    void *at = block->bytes + block->used;
    block->used += n;
    arena->used_bytes +=
        n < arena->max_bytes - arena->used_bytes ? n : arena->max_bytes - arena->used_bytes;
    return at;
}

void tw_jinja_arena_finish(struct tw_jinja_arena *arena) {
    while (arena->blocks) {
        struct tw_jinja_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    arena->used_bytes = 0;
}

/* Makes room for n more items in an array of the arena. */
static bool grow(struct tw_jinja_arena *arena, void *items, size_t n, size_t *room, size_t need,
                 size_t item_bytes) {
    if (need <= *room) {
        return true;
    }
    size_t wanted = *room > need / 2 ? *room * 2 : need < 4 ? 4 : need;
    void *old,
        *new = wanted <= SIZE_MAX / item_bytes ? tw_jinja_alloc(arena, wanted * item_bytes) : NULL;
    if (!new) {
        return false;
    }
    memcpy(&old, items, sizeof old);
    if (n) {
        memcpy(new, old, n * item_bytes);
    }
    memcpy(items, &new, sizeof new);
    *room = wanted;
    return true;
}

/* ---- text ---- */

static bool make_room(struct tw_jinja_buffer *b, size_t more, bool data) {
    size_t room = b->room, need = b->n + more;
    b->failed = b->failed || need < more;
    b->failed = b->failed || !grow(b->arena, &b->p, b->n, &room, need, 1);
    if (!b->failed && ((b->data && room != b->room) || (!b->data && data))) {
        uint8_t *marks = tw_jinja_alloc(b->arena, room);
        if (marks && b->data) {
            memcpy(marks, b->data, b->n);
        }
        b->failed = !marks;
        b->data = marks;
    }
    b->room = room;
    return !b->failed;
}

void tw_jinja_put(struct tw_jinja_buffer *b, struct tw_jinja_text text) {
    if (text.n == 0 || !make_room(b, text.n, text.data != NULL)) {
        return;
    }
    memcpy(b->p + b->n, text.p, text.n);
    if (text.data) {
        memcpy(b->data + b->n, text.data, text.n);
    } else if (b->data) {
        memset(b->data + b->n, 0, text.n);
    }
    b->n += text.n;
}

void tw_jinja_put_char(struct tw_jinja_buffer *b, char c, bool data) {
    const uint8_t mark = 1;
    tw_jinja_put(b, (struct tw_jinja_text){&c, data ? &mark : NULL, 1});
}

void tw_jinja_put_string(struct tw_jinja_buffer *b, const char *string) {
    tw_jinja_put(b, (struct tw_jinja_text){string, NULL, strlen(string)});
}

struct tw_jinja_text tw_jinja_cut(struct tw_jinja_text text, size_t from, size_t to) {
    to = to < text.n ? to : text.n;
    from = from < to ? from : to;
    return (struct tw_jinja_text){text.p + from, text.data ? text.data + from : NULL, to - from};
}

bool tw_jinja_same(struct tw_jinja_text a, struct tw_jinja_text b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool tw_jinja_is(struct tw_jinja_text a, const char *string) {
    return a.n == strlen(string) && (a.n == 0 || memcmp(a.p, string, a.n) == 0);
}

size_t tw_jinja_find(struct tw_jinja_text text, struct tw_jinja_text what, size_t from) {
    if (from > text.n || what.n > text.n - from) {
        return text.n;
    }
    if (what.n == 0) {
        return from;
    }
    const char *at = memmem(text.p + from, text.n - from, what.p, what.n);
    return at ? (size_t)(at - text.p) : text.n;
}

size_t tw_jinja_char_bytes(struct tw_jinja_text text, size_t at) {
    size_t n = tw_utf8_char(text.p + at, text.n - at);
    return n ? n : 1;
}

size_t tw_jinja_count_chars(struct tw_jinja_text text) {
    size_t n = 0;
    for (size_t at = 0; at < text.n; at += tw_jinja_char_bytes(text, at)) {
        n++;
    }
    return n;
}

uint32_t tw_jinja_code_point(struct tw_jinja_text text, size_t at) {
    const uint8_t *c = (const uint8_t *)text.p + at;
    switch (tw_jinja_char_bytes(text, at)) {
    case 2:
        return (c[0] & 0x1Fu) << 6 | (c[1] & 0x3Fu);
    case 3:
        return (c[0] & 0x0Fu) << 12 | (c[1] & 0x3Fu) << 6 | (c[2] & 0x3Fu);
    case 4:
        return (c[0] & 0x07u) << 18 | (c[1] & 0x3Fu) << 12 | (c[2] & 0x3Fu) << 6 | (c[3] & 0x3Fu);
    default:
        return c[0];
    }
}

/* ---- values ---- */

double tw_jinja_as_float(const struct tw_jinja_value *v) {
    return v->kind == TW_JINJA_FLOAT ? v->number : (double)tw_jinja_as_int(v);
}

int64_t tw_jinja_as_int(const struct tw_jinja_value *v) {
    return v->kind == TW_JINJA_BOOL ? v->boolean : v->integer;
}

bool tw_jinja_new_list(struct tw_jinja_arena *arena, enum tw_jinja_kind kind,
                       struct tw_jinja_value *out) {
    out->kind = kind;
    out->list = tw_jinja_alloc(arena, sizeof *out->list);
    return out->list != NULL;
}

bool tw_jinja_new_dict(struct tw_jinja_arena *arena, enum tw_jinja_kind kind,
                       struct tw_jinja_value *out) {
    out->kind = kind;
    out->dict = tw_jinja_alloc(arena, sizeof *out->dict);
    return out->dict != NULL;
}

bool tw_jinja_push(struct tw_jinja_arena *arena, struct tw_jinja_list *list,
                   struct tw_jinja_value v) {
    if (!grow(arena, &list->item, list->n, &list->room, list->n + 1, sizeof v)) {
        return false;
    }
    list->item[list->n++] = v;
    return true;
}

struct tw_jinja_value *tw_jinja_get(const struct tw_jinja_dict *dict,
                                    const struct tw_jinja_value *key) {
    for (size_t i = 0; i < dict->n; i++) {
        if (tw_jinja_equal(&dict->entry[i].key, key)) {
            return &dict->entry[i].value;
        }
    }
    return NULL;
}

struct tw_jinja_value *tw_jinja_get_text(const struct tw_jinja_dict *dict,
                                         struct tw_jinja_text key) {
    struct tw_jinja_value v = tw_jinja_string(key);
    return tw_jinja_get(dict, &v);
}

bool tw_jinja_set(struct tw_jinja_arena *arena, struct tw_jinja_dict *dict,
                  struct tw_jinja_value key, struct tw_jinja_value value) {
    struct tw_jinja_value *old = tw_jinja_get(dict, &key);
    if (old) {
        *old = value;
        return true;
    }
    return tw_jinja_add(arena, dict, key, value);
}

bool tw_jinja_add(struct tw_jinja_arena *arena, struct tw_jinja_dict *dict,
                  struct tw_jinja_value key, struct tw_jinja_value value) {
    if (!grow(arena, &dict->entry, dict->n, &dict->room, dict->n + 1, sizeof *dict->entry)) {
        return false;
    }
    dict->entry[dict->n++] = (struct tw_jinja_entry){key, value};
    return true;
}

bool tw_jinja_truth(const struct tw_jinja_value *v) {
    switch (v->kind) {
    case TW_JINJA_UNDEFINED:
    case TW_JINJA_NONE:
        return false;
    case TW_JINJA_BOOL:
        return v->boolean;
    case TW_JINJA_INT:
        return v->integer != 0;
    case TW_JINJA_FLOAT:
        return v->number != 0.0;
    case TW_JINJA_STRING:
        return v->text.n != 0;
    case TW_JINJA_LIST:
    case TW_JINJA_TUPLE:
        return v->list->n != 0;
    case TW_JINJA_DICT:
        return v->dict->n != 0;
    case TW_JINJA_NAMESPACE:
    case TW_JINJA_FUNCTION:
    case TW_JINJA_MACRO:
    case TW_JINJA_LOOP:
        return true;
    }
    return false;
}

/* How much of a comparison is left: values that share their parts could take for ever. */
struct budget {
    uint32_t *steps;
    unsigned depth;
};
#define COMPARE_STEPS (1u << 20)

static struct budget deeper(struct budget left) {
    left.depth++;
    return left;
}

static bool is_spent(struct budget left) {
    return left.depth > TW_JINJA_VALUE_DEPTH || ++*left.steps > COMPARE_STEPS;
}

static bool equal(const struct tw_jinja_value *a, const struct tw_jinja_value *b,
                  struct budget left);

static bool equal_lists(const struct tw_jinja_list *a, const struct tw_jinja_list *b,
                        struct budget left) {
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        same = equal(&a->item[i], &b->item[i], deeper(left));
    }
    return same;
}

static bool equal_dicts(const struct tw_jinja_dict *a, const struct tw_jinja_dict *b,
                        struct budget left) {
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        const struct tw_jinja_value *other = tw_jinja_get(b, &a->entry[i].key);
        same = other && equal(&a->entry[i].value, other, deeper(left));
    }
    return same;
}

static bool equal_numbers(const struct tw_jinja_value *a, const struct tw_jinja_value *b) {
    return a->kind == TW_JINJA_FLOAT || b->kind == TW_JINJA_FLOAT
               ? tw_jinja_as_float(a) == tw_jinja_as_float(b)
               : tw_jinja_as_int(a) == tw_jinja_as_int(b);
}

static bool equal(const struct tw_jinja_value *a, const struct tw_jinja_value *b,
                  struct budget left) {
    if (tw_jinja_is_number(a) && tw_jinja_is_number(b)) {
        return equal_numbers(a, b);
    }
    if (a->kind != b->kind || is_spent(left)) {
        return false;
    }
    switch (a->kind) {
    case TW_JINJA_UNDEFINED:
    case TW_JINJA_NONE:
        return true;
    case TW_JINJA_STRING:
        return tw_jinja_same(a->text, b->text);
    case TW_JINJA_LIST:
    case TW_JINJA_TUPLE:
        return equal_lists(a->list, b->list, left);
    case TW_JINJA_DICT:
        return equal_dicts(a->dict, b->dict, left);
    case TW_JINJA_NAMESPACE:
        return a->dict == b->dict;
    case TW_JINJA_FUNCTION:
        return a->bound == b->bound;
    case TW_JINJA_MACRO:
        return a->macro == b->macro;
    case TW_JINJA_LOOP:
        return a->loop == b->loop;
    case TW_JINJA_BOOL:
    case TW_JINJA_INT:
    case TW_JINJA_FLOAT:
        break;
    }
    return false;
}

bool tw_jinja_equal(const struct tw_jinja_value *a, const struct tw_jinja_value *b) {
    uint32_t steps = 0;
    return equal(a, b, (struct budget){&steps, 0});
}

const char *tw_jinja_type_name(const struct tw_jinja_value *v) {
    static const char *const name[] = {"undefined", "None",  "bool",  "int",  "float",
                                       "str",       "list",  "tuple", "dict", "namespace",
                                       "function",  "macro", "loop"};
    return name[v->kind];
}

static bool compare(const struct tw_jinja_value *a, const struct tw_jinja_value *b, int *order,
                    struct budget left);

static bool compare_lists(const struct tw_jinja_list *a, const struct tw_jinja_list *b, int *order,
                          struct budget left) {
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; i++) {
        if (!equal(&a->item[i], &b->item[i], deeper(left))) {
            return compare(&a->item[i], &b->item[i], order, deeper(left));
        }
    }
    *order = (a->n > b->n) - (a->n < b->n);
    return true;
}

static int compare_texts(struct tw_jinja_text a, struct tw_jinja_text b) {
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.p, b.p, n) : 0;
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

static bool compare(const struct tw_jinja_value *a, const struct tw_jinja_value *b, int *order,
                    struct budget left) {
    if (tw_jinja_is_number(a) && tw_jinja_is_number(b)) {
        bool whole = a->kind != TW_JINJA_FLOAT && b->kind != TW_JINJA_FLOAT;
        int64_t i = whole ? tw_jinja_as_int(a) : 0, j = whole ? tw_jinja_as_int(b) : 0;
        double x = tw_jinja_as_float(a), y = tw_jinja_as_float(b);
        *order = whole ? (i > j) - (i < j) : (x > y) - (x < y);
        return true;
    }
    if (a->kind != b->kind || is_spent(left)) {
        return false;
    }
    if (a->kind == TW_JINJA_STRING) {
        *order = compare_texts(a->text, b->text);
        return true;
    }
    return tw_jinja_is_sequence(a) && compare_lists(a->list, b->list, order, left);
}

bool tw_jinja_compare(const struct tw_jinja_value *a, const struct tw_jinja_value *b, int *order) {
    uint32_t steps = 0;
    return compare(a, b, order, (struct budget){&steps, 0});
}
