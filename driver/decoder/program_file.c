/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of programs as text: the whole file is read, and its programs are parsed and judged or
 * printed one after the other.
 */
#include "tilewright/tilewright.h"

#include "driver/decoder/program_file.h"
#include "loader/order/certificate.h"
#include "loader/text/print_program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct program_file {
    const char *path;
    char *text;
    size_t size, room;
    struct tw_text_position position;
};

static int read_block(struct program_file *f, FILE *file, tw_error *err) {
    if (f->size == f->room) {
        size_t room = f->room ? f->room * 2 : 65536;
        char *text = realloc(f->text, room);
        if (!text) {
            return tw_fail(err, TW_E_NOMEM, "%s: no memory for a text of %zu bytes", f->path,
                           f->size);
        }
        f->text = text;
        f->room = room;
    }
    f->size += fread(f->text + f->size, 1, f->room - f->size, file);
    return ferror(file) ? tw_fail(err, TW_E_IO, "%s: %s", f->path, strerror(errno)) : 0;
}

/* A text beyond the limit is read only so far that the parser will refuse it. */
static int read_file(struct program_file *f, tw_error *err) {
    FILE *file = fopen(f->path, "rb");
    int code = file ? 0 : tw_fail(err, TW_E_IO, "%s: %s", f->path, strerror(errno));
    while (!code && !feof(file) && f->size <= TW_PROGRAM_TEXT_MAX) {
        code = read_block(f, file, err);
    }
    if (file) {
        fclose(file);
    }
    return code;
}

static int next(struct program_file *f, struct tw_program_text **out, tw_error *err) {
    return tw_program_parse_next(f->path, f->text, f->size, &f->position, out, err);
}

static int visit_all(struct program_file *f,
                     int (*each)(void *ctx, const struct tw_program_text *text, tw_error *err),
                     void *ctx, tw_error *err) {
    struct tw_program_text *text = NULL;
    int code = next(f, &text, err);
    if (!code && !text) {
        return tw_fail(err, TW_E_FORMAT, "%s:%u:1: found the end of the text, expected 'program'",
                       f->path, f->position.line + 1);
    }
    while (!code && text) {
        code = each(ctx, text, err);
        tw_program_text_free(text);
        text = NULL;
        code = code ? code : next(f, &text, err);
    }
    return code;
}

int tw_program_file_each(const char *path,
                         int (*each)(void *ctx, const struct tw_program_text *text, tw_error *err),
                         void *ctx, tw_error *err) {
    struct program_file f = {.path = path};
    int code = read_file(&f, err);
    code = code ? code : visit_all(&f, each, ctx, err);
    free(f.text);
    return code;
}

/* ---- verify ---- */

#define TW_X(number, name, text) +1
enum { N_RULES = TW_RULES(TW_X) TW_ORDER_RULES(TW_X) };
#undef TW_X

struct judge {
    const char *path;
    tw_prover prover;
    void *ctx;
    struct tw_rules_info *info;
    uint32_t n; /* programs looked at */
};

static int check_order(const struct judge *j, const struct tw_program *program,
                       struct tw_verify_report *report, tw_error *err) {
    struct tw_certificate certificate = {NULL, 0};
    int code = j->prover(j->ctx, program, &certificate.words, &certificate.n_words, err);
    if (code == TW_E_VERIFY) {
        report->failed_rule = TW_ORDER_no_deadlock;
    }
    return code ? code : tw_check_order(program, &certificate, report, err);
}

static int verify_one(void *ctx, const struct tw_program_text *text, tw_error *err) {
    struct judge *j = ctx;
    struct tw_verify_report report = {.failed_rule = 0};
    char where[256];
    j->n++;
    int code = tw_verify_program(&text->program, &report, err);
    if (!code && j->prover) {
        code = check_order(j, &text->program, &report, err);
    }
    for (uint32_t r = 1; r <= N_RULES; r++) {
        j->info->checked[r] += report.checked[r];
    }
    j->info->failed_rule = (uint32_t)report.failed_rule;
    snprintf(where, sizeof where, "%.200s:%u", j->path, text->line);
    if (code) {
        tw_error_prefix(err, where);
    }
    return code;
}

int tw_program_file_verify(const char *path, tw_prover prover, void *ctx,
                           struct tw_rules_info *info, uint32_t *n_programs, tw_error *err) {
    struct tw_rules_info i = {.size = info ? info->size : 0, .n_rules = N_RULES};
    struct judge judge = {path, prover, ctx, &i, 0};
    int code = tw_program_file_each(path, verify_one, &judge, err);
    if (info) { /* the caller may know an older, shorter form */
        memcpy(info, &i, info->size < sizeof i ? info->size : sizeof i);
    }
    if (n_programs) {
        *n_programs = judge.n;
    }
    return code;
}

/* ---- print ---- */

/* The names of the file's programs, for a message. */
static void add_name(char *known, size_t room, const char *name) {
    size_t n = strlen(known);
    snprintf(known + n, room - n, "%s%s", n ? ", " : "", name);
}

static int print_all(struct program_file *f, const char *program, FILE *out, tw_error *err) {
    struct tw_program_text *text = NULL;
    char known[200] = "";
    bool found = false;
    int code = next(f, &text, err);
    while (!code && text) {
        const char *name = text->program.name ? text->program.name : "-";
        add_name(known, sizeof known, name);
        if (!program || strcmp(name, program) == 0) {
            if (found) {
                fputc('\n', out);
            }
            found = true;
            code = tw_program_print_file(&text->program, TW_PRINT_ALL, out, err);
        }
        tw_program_text_free(text);
        text = NULL;
        code = code ? code : next(f, &text, err);
    }
    if (!code && !found && program) {
        return tw_fail(err, TW_E_USAGE, "%s: no program '%.60s'; there are %s", f->path, program,
                       known);
    }
    return code;
}

int tw_program_file_print(const char *path, const char *program, FILE *out, tw_error *err) {
    struct program_file f = {.path = path};
    int code = read_file(&f, err);
    code = code ? code : print_all(&f, program, out, err);
    free(f.text);
    return code;
}
