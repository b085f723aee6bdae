/* SPDX-License-Identifier: Apache-2.0
 *
 * The manual page tilewright-state(5) against state_format.h: every record with its fields, offsets
 * and size, every constant, and that none is left out.
 */
#include "driver/state/state_format.h"
#include "tests/support/man_page.h"
#include "tests/support/test.h"

static int open_page(void **state) {
    (void)state;
    return man_page_open("tools/man/tilewright-state.5");
}

static int close_page(void **state) {
    (void)state;
    man_page_close();
    return 0;
}

#define W(field) MAN_FIELD(tw_saved_commit, field)
MAN_FIELDS(tw_saved_commit, W(magic), W(version), W(schema_bytes), W(sequence), W(saved_ns),
           W(cell_bytes), W(file_bytes), W(n_tokens), W(n_cells), W(free_cell), W(padding),
           W(schema_hash), W(tails_hash), W(reserved), W(hash));
#undef W
#define W(field) MAN_FIELD(tw_saved_schema, field)
MAN_FIELDS(tw_saved_schema, W(identity), W(model), W(policy), W(kv_dtype), W(page_positions),
           W(n_vocab), W(n_tensors), W(tensors));
#undef W
#define W(field) MAN_FIELD(tw_saved_tensor, field)
MAN_FIELDS(tw_saved_tensor, W(name), W(kind), W(dtype), W(packing), W(head_dim), W(kv_heads),
           W(instances), W(page_bytes));
#undef W
#define W(field) MAN_FIELD(tw_saved_tail, field)
MAN_FIELDS(tw_saved_tail, W(slot), W(n_tokens));
#undef W

static const struct man_layout layouts[] = {
    MAN_LAYOUT(tw_saved_commit),
    MAN_LAYOUT(tw_saved_schema),
    MAN_LAYOUT(tw_saved_tensor),
    MAN_LAYOUT(tw_saved_tail),
};
#define N_LAYOUTS (sizeof layouts / sizeof layouts[0])

#define C(name) \
    { #name, name }
static const struct man_constant constants[] = {
    C(TW_SAVED_VERSION),       C(TW_SAVED_MAGIC_BYTES), C(TW_SAVED_COMMITS),
    C(TW_SAVED_SCHEMA_OFFSET), C(TW_SAVED_HASH_BYTES),  C(TW_SAVED_TEXT_BYTES),
    C(TW_SAVED_NO_CELL),       C(TW_SAVED_SCHEMA_HEAD), C(TW_SAVED_MAX_TENSORS),
    C(TW_SAVED_MAX_POSITIONS), C(TW_SAVED_MAX_PAGES),   C(TW_SAVED_MAX_PAGE_BYTES),
    C(TW_SAVED_MAX_TOKENS),    C(TW_SAVED_MAX_TAILS),   C(TW_SAVED_PAGED),
};
#define N_CONSTANTS (sizeof constants / sizeof constants[0])

static void every_record_has_its_table(void **state) {
    (void)state;
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        man_page_check_layout(&layouts[i]);
    }
}

static void every_constant_has_its_value(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CONSTANTS; i++) {
        man_page_check_constant(&constants[i]);
    }
}

static void the_page_documents_everything_in_the_header(void **state) {
    static const char *const none[] = {NULL}, *const others[] = {"TW_SAVED_MAGIC", NULL};
    (void)state;
    assert_int_equal(strlen(TW_SAVED_MAGIC), TW_SAVED_MAGIC_BYTES);
    man_page_check_structures("driver/state/state_format.h", layouts, N_LAYOUTS, none);
    man_page_check_constants("driver/state/state_format.h", constants, N_CONSTANTS, others);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_record_has_its_table),
        cmocka_unit_test(every_constant_has_its_value),
        cmocka_unit_test(the_page_documents_everything_in_the_header),
    };
    return cmocka_run_group_tests_name("state_page", tests, open_page, close_page);
}
