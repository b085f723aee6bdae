/* SPDX-License-Identifier: Apache-2.0
 *
 * The manual page tilewright-machine(7) against the headers: engines, element types, packings,
 * roles and other enumerations, every op with number and engines, every rule with its number and
 * text, the turns of a certificate, limits, faults, and the keys of a target file.
 */
#include "loader/order/certificate.h"
#include "tests/support/man_page.h"
#include "tests/support/program_text.h"
#include "tests/support/test.h"
#include "tilewright/numerics.h"
#include "tilewright/opcode.h"
#include "tilewright/quants.h"

static int open_page(void **state) {
    (void)state;
    return man_page_open("tools/man/tilewright-machine.7");
}

static int close_page(void **state) {
    (void)state;
    man_page_close();
    return 0;
}

/* ---- tables whose first columns are in the headers ---- */

enum { MAX_ROWS = TW_OP_LIMIT };

static char text[MAX_ROWS][64];
static struct man_row rows[MAX_ROWS];
static size_t n_rows;

static void row(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void row(const char *format, ...) {
    va_list args;
    assert_true(n_rows < MAX_ROWS);
    va_start(args, format);
    vsnprintf(text[n_rows], sizeof text[n_rows], format, args);
    va_end(args);
    rows[n_rows].begins = text[n_rows];
    n_rows++;
}

static void check(const char *table) {
    size_t n = n_rows;
    n_rows = 0;
    man_page_check_begins(table, rows, n);
}

static void every_op_has_its_number_and_engines(void **state) {
    (void)state;
    for (uint32_t code = 0; code < TW_OP_LIMIT; code++) {
        struct tw_op_info info = tw_op_info(code);
        if (info.name) {
            row("%s|%u|%s|", info.name, code, info.engines);
        }
    }
    check("ops");
}

static void every_engine_has_its_number(void **state) {
    (void)state;
    for (unsigned e = 0; e < TW_ENGINE_COUNT; e++) {
        row("%s|%u|", tw_engine_name(e), e);
    }
    check("engines");
}

static void every_turn_has_its_number(void **state) {
    (void)state;
    row("RUN|%d|", TW_TURN_RUN);
    row("LOOP|%d|", TW_TURN_LOOP);
    row("END|%d|", TW_TURN_END);
    check("turns");
}

/* ---- tables that are entirely in the headers ---- */

static void types_packings_and_roles_are_those_of_the_header(void **state) {
    (void)state;
    man_page_begin();
#define TW_X(name, value, written, elems, bytes) \
    man_page_add("%s|%d|%s|%d|%d\n", #name, value, written, elems, bytes);
    TW_DTYPES(TW_X)
#undef TW_X
    man_page_check_rows("dtypes");
#define TW_X(name, value, written) man_page_add("%s|%d|%s\n", #name, value, written);
    man_page_begin();
    TW_PACKINGS(TW_X)
    man_page_check_rows("packings");
    man_page_begin();
    TW_ROLES(TW_X)
    man_page_check_rows("roles");
#undef TW_X
}

static void every_type_with_blocks_is_described(void **state) {
    (void)state;
#define TW_X(name, bits, offset, sub_elems, minima, scale_bytes) \
    row("%s|%d|%d|%d|T{", tw_dtype_name(TW_DT_##name), bits, offset, sub_elems);
    TW_BLOCK_TYPES(TW_X)
#undef TW_X
    check("blocks");
}

static void the_values_that_nibbles_stand_for_are_listed(void **state) {
    (void)state;
    static const unsigned types[] = {TW_DT_IQ4_NL, TW_DT_MXFP4};
    for (uint32_t t = 0; t < 2; t++) {
        man_page_begin();
        for (uint32_t i = 0; i < 16; i++) {
            man_page_add(i < 15 ? "%u, " : "%u", tw_block_look_up(types[t], i));
        }
        man_page_check_found(t ? "the u of mxfp4" : "the u of iq4_nl");
    }
}

static void every_rule_has_its_number_name_and_text(void **state) {
    (void)state;
    man_page_begin();
#define TW_X(number, name, demands)             \
    man_page_add("%d|%s|", (int)number, #name); \
    man_page_add_text(demands);
    TW_RULES(TW_X)
    TW_ORDER_RULES(TW_X)
#undef TW_X
    man_page_check_rows("rules");
}

/* ---- constants ---- */

#define C(name) \
    { #name, name }
static const struct man_constant constants[] = {
    C(TW_NONE),
    C(TW_MACHINE_ABI_MAJOR),
    C(TW_MACHINE_ABI_MINOR),
    C(TW_PANEL_ROWS),
    C(TW_SUM_SEGMENT),
    C(TW_KV_BLOCK),
    C(TW_KEY_SEGMENT),
    C(TW_INIT_NONE),
    C(TW_INIT_ZERO),
    C(TW_INIT_BLOB),
    C(TW_BUF_FIFO),
    C(TW_BUF_RESIDENT),
    C(TW_BUF_SCRATCH),
    C(TW_SEM_READY),
    C(TW_SEM_VALID),
    C(TW_SEM_GATHER),
    C(TW_SEM_RELEASE),
    C(TW_STAGE_LOAD),
    C(TW_STAGE_STORE),
    C(TW_STAGE_RECV),
    C(TW_STAGE_COMPUTE),
    C(TW_STAGE_SYNC),
    /* of tilewright/opcode.h and tilewright/numerics.h: */
    C(TW_MEM_CLASSES),
    C(TW_MAX_VARS),
    C(TW_MAX_TERMS),
    C(TW_MAX_OPERANDS),
    C(TW_MAX_STEP_OPS),
    C(TW_MAX_TOPS),
    C(TW_MAX_PAGE_USES),
    C(TW_LANES),
};
#undef C
#define N_CONSTANTS (sizeof constants / sizeof constants[0])

static void every_constant_has_its_value(void **state) {
    static const char *const others[] = {"_COUNT", "TW_ENGINE_", NULL};
    (void)state;
    for (size_t i = 0; i < N_CONSTANTS; i++) {
        man_page_check_constant(&constants[i]);
    }
    man_page_check_constants("include/tilewright/machine.h", constants, N_CONSTANTS, others);
}

/* ---- faults and target files: their names are in C files ---- */

static bool is_word_of(const char *words, const char *word, size_t n) {
    for (const char *at = words; (at = strstr(at, word)); at++) {
        if (strchr(" (\"*\n", at[-1]) && strchr(" ,(\".\n", at[n])) {
            return true;
        }
    }
    return false;
}

/* The first cell of each row of a table must be a word of the file; returns how many there are. */
static size_t check_cells(const char *table, const char *file) {
    size_t size, n = 0;
    char *lines = man_page_rows(table), *source = text_read_file(file, &size);
    assert_true(lines && source);
    for (char *line = lines, *end; (end = strchr(line, '|')); n++) {
        *end = 0;
        if (!is_word_of(source, line, strlen(line))) {
            fail_msg("%s does not contain \"%s\", which the page names", file, line);
        }
        line = strstr(end + 1, "\nT}\n");
        assert_non_null(line);
        line += 4;
    }
    free(lines);
    free(source);
    return n;
}

static void faults_are_those_of_the_tile_machine(void **state) {
    (void)state;
    assert_int_equal(check_cells("faults", "firmware/core/tile_machine.h"), 14);
}

/* Every key in the reader's table, and those that it reads apart: name, sram_classes, state. */
static void target_keys_are_those_that_the_reader_knows(void **state) {
    size_t size, n = 3;
    char *source = text_read_file("loader/target/target.c", &size);
    (void)state;
    assert_non_null(source);
    for (const char *at = source; (at = strstr(at, "\n    {\"")); at++) {
        n++;
    }
    free(source);
    assert_int_equal(check_cells("target keys", "loader/target/target.c"), n);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_its_number_and_engines),
        cmocka_unit_test(every_engine_has_its_number),
        cmocka_unit_test(every_turn_has_its_number),
        cmocka_unit_test(types_packings_and_roles_are_those_of_the_header),
        cmocka_unit_test(every_type_with_blocks_is_described),
        cmocka_unit_test(the_values_that_nibbles_stand_for_are_listed),
        cmocka_unit_test(every_rule_has_its_number_name_and_text),
        cmocka_unit_test(every_constant_has_its_value),
        cmocka_unit_test(faults_are_those_of_the_tile_machine),
        cmocka_unit_test(target_keys_are_those_that_the_reader_knows),
    };
    return cmocka_run_group_tests_name("machine_page", tests, open_page, close_page);
}
