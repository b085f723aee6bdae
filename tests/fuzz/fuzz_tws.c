/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the parser of programs as text. An accepted text is printed, and that must parse and print
 * to the same bytes; the verifier judges it. Input: a text.
 */
#include "loader/verify/verify.h"
#include "tests/support/program_text.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int holds) {
    if (!holds) {
        abort();
    }
}

static void check_round_trip(const struct tw_program *p) {
    struct text once = {0}, twice = {0};
    struct tw_program_text *again = NULL;
    tw_error err = {0};
    text_print(&once, p);
    demand(tw_program_parse("printed", once.bytes, once.used, &again, &err) == 0);
    text_print(&twice, &again->program);
    demand(once.used == twice.used && memcmp(once.bytes, twice.bytes, once.used) == 0);
    tw_program_text_free(again);
    text_free(&once);
    text_free(&twice);
}

static int judge(const char *text, size_t size, struct tw_text_position *at) {
    struct tw_program_text *program = NULL;
    tw_error err = {0};
    int rc = tw_program_parse_next("fuzz", text, size, at, &program, &err);
    demand(rc == 0 || (!program && strncmp(err.message, "fuzz:", 5) == 0));
    if (!program) {
        return 0;
    }
    check_round_trip(&program->program);
    rc = tw_verify_program(&program->program, NULL, &err);
    demand((rc != 0) == (err.message[0] != 0));
    tw_program_text_free(program);
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* of the exact size, so that a sanitizer sees an access past the end */
    char *text = malloc(size ? size : 1);
    struct tw_text_position at = {0, 0};
    demand(text != NULL);
    if (size) {
        memcpy(text, data, size);
    }
    for (int n = 0; n < 8 && judge(text, size, &at); n++) {
        demand(at.at <= size);
    }
    free(text);
    return 0;
}
