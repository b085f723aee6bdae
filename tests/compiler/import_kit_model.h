/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the GGUF importer: imports the file that import_kit.h builds and checks the result.
 */
#ifndef TW_TESTS_COMPILER_IMPORT_KIT_MODEL_H
#define TW_TESTS_COMPILER_IMPORT_KIT_MODEL_H

#include "compiler/import/import.h"
#include "loader/bundle/vocab_open.h"

#include "tests/compiler/import_kit.h"
#include "tests/support/test.h"
#include "tilewright/vocab.h"

struct opened {
    struct tw_import_memory memory;
    struct tw_model model;
    struct tw_vocab vocab;
    tw_error err;
};

static inline int import(struct opened *o, struct kit *k) {
    memset(o, 0, sizeof *o);
    kit_write(k);
    return tw_import_gguf("t.gguf", k->file, k->size, &o->memory, &o->model, &o->err);
}

/* Imports a model that must be accepted and opens its vocabulary, if it has one. */
static inline void accept(struct opened *o, struct kit *k) {
    int rc = import(o, k);
    if (rc) {
        fail_msg("refused: %s", o->err.message);
    }
    if (o->model.vocab) {
        assert_int_equal(tw_vocab_open(o->model.vocab, o->model.vocab_bytes, &o->vocab, &o->err),
                         0);
    }
}

static inline void finish(struct opened *o, struct kit *k) {
    tw_import_free(&o->memory);
    kit_free(k);
}

static inline void expect_refused(struct kit *k, int code, const char *part) {
    struct opened o;
    int rc = import(&o, k);
    if (rc != code || o.err.code != code || !strstr(o.err.message, part) ||
        !strstr(o.err.message, "t.gguf: ")) {
        fail_msg("code %d, message \"%s\", expected code %d and \"%s\"", rc, o.err.message, code,
                 part);
    }
    finish(&o, k);
}

#endif
