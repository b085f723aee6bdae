/* SPDX-License-Identifier: Apache-2.0
 *
 * Saved states that were cut or edited, by accident or by someone who knows the format and computes
 * the hashes again: none is accepted unless it still holds exactly the sequence; and states of
 * another model or form, each refused by what differs.
 */
#include "driver/state/state_internal.h"
#include "loader/base/hash.h"
#include "tests/driver/state/state_kit.h"

static struct saved_sequence s;
static uint8_t *good, *bytes;
static uint64_t n_good;
static unsigned edits, accepted_right, accepted_wrongly;

static struct tw_saved_commit *commit(uint32_t i) {
    return (struct tw_saved_commit *)(void *)(bytes + i * sizeof(struct tw_saved_commit));
}

static uint8_t *cell(uint32_t i) {
    return bytes + s.sizes.first_cell + i * s.sizes.cell_bytes;
}

static uint8_t *tail(uint32_t i) {
    return cell(i) + s.sizes.pages_bytes;
}

/* A state with a free cell: two saves. */
static int make_good(void **state) {
    size_t n;
    if (kit_begin(state)) {
        return -1;
    }
    saved_sequence_init(&s, 2, 40);
    saved_sequence_feed(&s, 0, 100, 1);
    kit_save(&s);
    saved_sequence_feed(&s, 100, 230, 2);
    kit_save(&s);
    good = kit_read(&n);
    n_good = n;
    bytes = malloc(n + 4096);
    return bytes ? 0 : -1;
}

static int free_good(void **state) {
    free(good);
    free(bytes);
    return kit_end(state);
}

static void begin(void) {
    memcpy(bytes, good, n_good);
}

/* Opens the first n bytes as a restore does, and counts what happens. */
static void judge(uint64_t n, const char *what, uint64_t where) {
    tw_saved *file;
    tw_error err = {0};
    uint8_t *exact = malloc(n ? n : 1); /* so that ASan sees what is read behind it */
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    int code = tw_saved_open_memory(exact, n, &s.schema, TW_SAVED_WHOLE, &file, &err);
    edits++;
    if (code) {
        assert_int_equal(code, err.code);
        assert_true(strlen(err.message) > 20);
    } else if (saved_sequence_equal(&s, file)) {
        accepted_right++;
        tw_saved_close(file);
    } else {
        accepted_wrongly++;
        print_message("accepted: %s %llu\n", what, (unsigned long long)where);
        tw_saved_close(file);
    }
    free(exact);
}

/* As who knows the format would. */
static void rehash(bool tails, bool schema, bool commits) {
    uint32_t n = (s.n + 63) / 64;
    uint8_t *all = malloc(n * s.sizes.tail_bytes);
    assert_non_null(all);
    for (uint32_t i = 0, slot; i < n + 1; i++) {
        memcpy(&slot, tail(i), 4);
        if (i != ((const struct tw_saved_commit *)(void *)good)->free_cell && slot < n) {
            memcpy(all + slot * s.sizes.tail_bytes, tail(i), s.sizes.tail_bytes);
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (tails) {
            tw_hash_bytes(all, n * s.sizes.tail_bytes, commit(i)->tails_hash);
        }
        if (schema) {
            tw_hash_bytes(bytes + TW_SAVED_SCHEMA_OFFSET, s.sizes.schema_bytes,
                          commit(i)->schema_hash);
        }
        if (commits) {
            tw_saved_hash_commit(commit(i), commit(i)->hash);
        }
    }
    free(all);
}

/* ---- cuts and flips ---- */

static void every_cut_is_refused(void **state) {
    (void)state;
    begin();
    unsigned before = accepted_right;
    for (uint64_t n = 0; n < n_good; n++) {
        judge(n, "cut to", n);
    }
    assert_int_equal(accepted_right, before);
    judge(n_good, "whole", 0);
    assert_int_equal(accepted_right, before + 1);
    memset(bytes + n_good, 0x55, 4096); /* what a killed save left behind the last cell */
    judge(n_good + 4096, "with more behind it", 0);
    assert_int_equal(accepted_right, before + 2);
}

static void every_flip_is_refused_or_harmless(void **state) {
    (void)state;
    unsigned first = edits, before = accepted_right;
    for (uint64_t at = 0; at < n_good; at++) {
        begin();
        bytes[at] ^= (uint8_t)(1u << at % 8);
        judge(n_good, "flip at", at);
    }
    /* harmless: one of the two commits, and the cell that is free */
    assert_int_equal(edits - first - (accepted_right - before), n_good - 1024 - s.sizes.cell_bytes);
}

/* ---- fields ---- */

static void put(uint8_t *at, uint32_t size, uint64_t value) {
    memcpy(at, &value, size);
}

/* Each interesting value of a field of both commits, with and without hashes that fit. */
static void edit_commit_field(size_t offset, uint32_t size) {
    uint64_t old = 0;
    memcpy(&old, good + offset, size);
    const uint64_t values[] = {0,       1,         2,          old - 1,     old + 1,  old * 2,
                               old / 2, old ^ 256, UINT64_MAX, 0x7FFFFFFFu, 1u << 31, ~old};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        for (uint32_t how = 0; how < 4; how++) {
            begin();
            put(bytes + offset, size, values[v]);
            if (how > 0) {
                put(bytes + 512 + offset, size, values[v]);
            }
            if (how > 1) {
                rehash(how == 3, how == 3, true);
            }
            judge(n_good, "commit field", offset);
        }
    }
}

static void fields_of_commits(void **state) {
    (void)state;
    for (size_t at = 8; at < 16; at += 4) {
        edit_commit_field(at, 4);
    }
    for (size_t at = 16; at < 48; at += 8) {
        edit_commit_field(at, 8);
    }
    for (size_t at = 48; at < 64; at += 4) {
        edit_commit_field(at, 4);
    }
    for (size_t at = 64; at < 512; at += 56) { /* hashes and what is reserved */
        edit_commit_field(at, 8);
    }
}

static void fields_of_the_schema(void **state) {
    (void)state;
    for (uint32_t at = 0; at < s.sizes.schema_bytes; at += 4) {
        for (uint32_t v = 0; v < 5; v++) {
            static const uint32_t values[] = {0, 1, 0xFFFFFFFFu, 0x41414141u, 1u << 31};
            for (uint32_t how = 0; how < 2; how++) {
                begin();
                put(bytes + TW_SAVED_SCHEMA_OFFSET + at, 4, values[v]);
                if (how) {
                    rehash(false, true, true);
                }
                judge(n_good, "schema field", at);
            }
        }
    }
}

static void fields_of_tails(void **state) {
    (void)state;
    for (uint32_t c = 0; c < 5; c++) {
        for (uint32_t at = 0; at + 4 <= s.sizes.tail_bytes; at += 4) {
            for (uint32_t how = 0; how < 3; how++) {
                uint32_t old, free_cell = commit(0)->free_cell;
                begin();
                memcpy(&old, tail(c) + at, 4);
                put(tail(c) + at, 4, how == 0 ? old + 1 : how == 1 ? old ^ 1u << 31 : 0xFFFFu);
                if (c == free_cell && old == 0) {
                    continue;
                }
                judge(n_good, "tail field", c * 1000 + at);
            }
        }
    }
}

/* ---- places ---- */

static void swap(uint8_t *a, uint8_t *b, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        uint8_t x = a[i];
        a[i] = b[i];
        b[i] = x;
    }
}

static void pages_cells_and_tails_that_change_places(void **state) {
    (void)state;
    for (uint32_t a = 0; a < 5; a++) {
        for (uint32_t b = 0; b < 5; b++) {
            for (uint32_t p = 0; p < 4; p++) {
                for (uint32_t q = 0; q < 4; q++) {
                    begin();
                    swap(cell(a) + (size_t)p * 40, cell(b) + (size_t)q * 40, 40);
                    judge(n_good, "pages swapped", a * 1000 + b * 100 + p * 10 + q);
                    begin(); /* a page twice */
                    memmove(cell(a) + (size_t)p * 40, cell(b) + (size_t)q * 40, 40);
                    judge(n_good, "page copied", a * 1000 + b * 100 + p * 10 + q);
                }
            }
            for (uint32_t how = 0; how < 2; how++) {
                begin();
                swap(cell(a), cell(b), s.sizes.cell_bytes); /* where a cell is does not matter */
                rehash(how, false, how);
                judge(n_good, "cells swapped", a * 10 + b);
                begin();
                swap(cell(a), cell(b), s.sizes.pages_bytes);
                judge(n_good, "pages of cells swapped", a * 10 + b);
                begin();
                memmove(cell(a), cell(b), s.sizes.cell_bytes);
                rehash(how, false, how);
                judge(n_good, "cell copied", a * 10 + b);
            }
        }
    }
}

/* Parts of another state of the same model in this one. */
static void parts_of_another_state(void **state) {
    struct saved_sequence o = s;
    uint8_t *other = malloc(n_good);
    uint64_t n;
    tw_error err = {0};
    (void)state;
    assert_non_null(other);
    saved_sequence_feed(&o, 0, 300, 9);
    struct tw_saved_source source = saved_sequence_source(&o);
    assert_int_equal(
        tw_saved_write_memory(&o.schema, o.tokens, o.n, &source, other, n_good, &n, &err), 0);
    assert_int_equal(n, n_good); /* five cells each */
    for (uint64_t from = 0; from < n; from += 64) {
        for (uint64_t length = 64; length <= 512; length *= 2) {
            begin();
            memcpy(bytes + from, other + from, from + length < n ? length : n - from);
            judge(n_good, "part of another", from);
        }
    }
    for (uint64_t at = 512; at < n; at += 64) { /* before that it is the other state, whole */
        begin();
        memcpy(bytes + at, other + at, n - at);
        judge(n_good, "end of another", at);
        memcpy(bytes, other, at);
        memcpy(bytes + at, good + at, n - at);
        judge(n_good, "begin of another", at);
    }
    free(other);
}

static void none_was_accepted_wrongly(void **state) {
    (void)state;
    print_message("%u edits: %u hold the sequence, %u accepted wrongly\n", edits, accepted_right,
                  accepted_wrongly);
    assert_int_equal(accepted_wrongly, 0);
    assert_true(edits > 9000);
}

/* ---- what differs ---- */

static void refused(const char *first, const char *second) {
    tw_saved *file;
    tw_error err = {0};
    assert_int_equal(tw_saved_open(kit_path, &s.schema, TW_SAVED_WHOLE, &file, &err),
                     TW_E_UNSUPPORTED);
    if (!strstr(err.message, first) || !strstr(err.message, second)) {
        fail_msg("\"%s\" contains not both \"%s\" and \"%s\"", err.message, first, second);
    }
}

static void what_differs_is_named(void **state) {
    const struct tw_saved_schema schema = s.schema;
    struct tw_saved_tensor *t = &s.schema.tensors[1];
    (void)state;
    kit_write(good, n_good);
    kit_expect(&s);
    s.schema.identity[1] = 0xAB;
    strcpy(s.schema.model, "another");
    refused("model fairytale (hash 03142536)", "another (hash 03ab2536)");
    s.schema = schema;
    s.schema.kv_dtype = TW_DT_F32;
    refused("keys and values in f16, and this program in f32", "--kv f16");
    s.schema = schema;
    s.schema.page_positions = 32;
    refused("positions of a page: 64 in the file, 32 in this program", "feed the text again");
    s.schema = schema;
    strcpy(s.schema.policy, "sliding");
    refused("\"absolute\"", "\"sliding\"");
    s.schema = schema;
    s.schema.n_vocab = 513;
    refused("vocabulary: 512", "513");
    s.schema = schema;
    s.schema.n_tensors = 1;
    refused("kinds of pages: 2", "1 in this program");
    s.schema = schema;
    strcpy(t->name, "others");
    refused("a tensor values", "has others");
    s.schema = schema;
    t->instances = 3;
    refused("layers of values: 2", "3 in this program");
    s.schema = schema;
    t->page_bytes = 41;
    refused("bytes of a page of values: 40", "41");
    s.schema = schema;
    t->kv_heads = 2;
    refused("heads of values: 1", "2");
    s.schema = schema;
    t->head_dim = 4;
    refused("elements of a head of values: 8", "4");
    s.schema = schema;
    t->packing = 1;
    refused("packing of values: 0", "1");
    s.schema = schema;
    strcpy(s.schema.model, "renamed"); /* a name is not a difference */
    kit_expect(&s);
    s.schema = schema;
}

static void another_version_is_named(void **state) {
    (void)state;
    begin();
    commit(0)->version = commit(1)->version = 7;
    rehash(false, false, true);
    kit_write(bytes, n_good);
    refused("version 7", "reads version 1");
}

static void refusal_of(uint64_t n, int code, const char *word) {
    tw_saved *file;
    tw_error err = {0};
    assert_int_equal(tw_saved_open_memory(bytes, n, &s.schema, TW_SAVED_WHOLE, &file, &err), code);
    if (!strstr(err.message, word)) {
        fail_msg("\"%s\" does not contain \"%s\"", err.message, word);
    }
}

static void where_a_state_is_damaged_is_said(void **state) {
    (void)state;
    begin();
    cell(4)[45] ^= 1; /* layer 1 of the keys */
    refusal_of(n_good, TW_E_HASH, "keys of layer 1, positions 192 to 229: damaged");
    begin();
    tail(3)[20] ^= 1;
    refusal_of(n_good, TW_E_HASH, "its tokens and checksums: damaged");
    begin();
    bytes[TW_SAVED_SCHEMA_OFFSET + 40] ^= 1;
    refusal_of(n_good, TW_E_HASH, "the schema: damaged");
    begin();
    bytes[100] ^= 1;
    bytes[700] ^= 1;
    refusal_of(n_good, TW_E_HASH, "both commits: damaged");
    begin();
    refusal_of(n_good - 1, TW_E_TRUNCATED, "expected");
    memset(bytes, 'x', 3000);
    refusal_of(3000, TW_E_FORMAT, "is not a saved state");
    refusal_of(0, TW_E_TRUNCATED, "empty");
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(every_flip_is_refused_or_harmless),
        cmocka_unit_test(fields_of_commits),
        cmocka_unit_test(fields_of_the_schema),
        cmocka_unit_test(fields_of_tails),
        cmocka_unit_test(pages_cells_and_tails_that_change_places),
        cmocka_unit_test(parts_of_another_state),
        cmocka_unit_test(none_was_accepted_wrongly),
        cmocka_unit_test(what_differs_is_named),
        cmocka_unit_test(another_version_is_named),
        cmocka_unit_test(where_a_state_is_damaged_is_said),
    };
    return cmocka_run_group_tests_name("state_hostile", tests, make_good, free_good);
}
