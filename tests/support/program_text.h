/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs to text in memory and back, for tests of the text form.
 */
#ifndef TW_TESTS_SUPPORT_PROGRAM_TEXT_H
#define TW_TESTS_SUPPORT_PROGRAM_TEXT_H

#include "loader/text/parse_program.h"
#include "loader/text/print_program.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct text {
    char *bytes; /* terminated */
    size_t used, room;
};

static inline int text_add(void *ctx, const char *line, size_t bytes) {
    struct text *t = (struct text *)ctx;
    assert(bytes > 0 && line[bytes - 1] == '\n' && !memchr(line, '\n', bytes - 1));
    if (t->room - t->used <= bytes) {
        t->room = (t->room + bytes) * 2 + 4096;
        t->bytes = (char *)realloc(t->bytes, t->room);
        assert(t->bytes);
    }
    memcpy(t->bytes + t->used, line, bytes);
    t->used += bytes;
    t->bytes[t->used] = 0;
    return 0;
}

/* Appends the program's text. */
static inline void text_print(struct text *t, const struct tw_program *p) {
    int rc = tw_program_print(p, TW_PRINT_ALL, text_add, t);
    assert(rc == 0);
    (void)rc;
}

static inline void text_free(struct text *t) {
    free(t->bytes);
    memset(t, 0, sizeof *t);
}

/* Reads the whole file, terminated; NULL if it cannot be read. */
static inline char *text_read_file(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    char *bytes = NULL;
    if (!f) {
        return NULL;
    }
    if (fseek(f, 0, SEEK_END) == 0 && ftell(f) >= 0) {
        *size = (size_t)ftell(f);
        rewind(f);
        bytes = (char *)calloc(1, *size + 1);
        assert(bytes);
        if (fread(bytes, 1, *size, f) != *size) {
            free(bytes);
            bytes = NULL;
        }
    }
    fclose(f);
    return bytes;
}

#endif
