/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of programs as text: the whole file is read, and its programs are parsed and verified or
 * printed one after the other.
 */
#include "tilewright/program.h"

#include "driver/decoder/program_file.h"
#include "loader/base/grow.h"
#include "loader/base/sized.h"
#include "loader/order/certificate.h"
#include "loader/text/print_program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 65536u /* minimum bytes per read */

struct program_file {
    const char *path;
    char *text;
    size_t size, room;
    struct tw_text_position position;
};

static int read_block(struct program_file *f, FILE *file, tw_error *err) {
    if (!tw_grow(&f->text, &f->room, f->size + BLOCK, 1)) {
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for a text of %zu bytes", f->path, f->size);
    }
    f->size += fread(f->text + f->size, 1, f->room - f->size, file);
    return ferror(file) ? tw_fail(err, TW_E_IO, "%s: %s", f->path, strerror(errno)) : 0;
}

/* Reads the file; of one beyond the size limit only as much as makes the parser refuse it. */
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

struct verifier {
    const char *path;
    tw_prover prover;
    void *ctx;
    struct tw_rules_info *info;
    uint32_t n; /* programs checked */
};

static int check_order(const struct verifier *v, const struct tw_program *program,
                       struct tw_verify_report *report, tw_error *err) {
    struct tw_certificate certificate = {NULL, 0, TW_STEP_OPS_UNSTATED};
    int code = v->prover(v->ctx, program, &certificate.words, &certificate.n_words, err);
    if (code == TW_E_VERIFY) {
        report->failed_rule = TW_ORDER_no_deadlock;
    }
    return code ? code : tw_check_order(program, &certificate, report, err);
}

static int verify_one(void *ctx, const struct tw_program_text *text, tw_error *err) {
    struct verifier *v = ctx;
    struct tw_verify_report report = {.failed_rule = 0};
    char where[256];
    v->n++;
    int code = tw_verify_program(&text->program, &report, err);
    if (!code && v->prover) {
        code = check_order(v, &text->program, &report, err);
    }
    for (uint32_t r = 1; r <= N_RULES; r++) {
        v->info->checked[r] += report.checked[r];
    }
    v->info->failed_rule = (uint32_t)report.failed_rule;
    snprintf(where, sizeof where, "%.200s:%u", v->path, text->line);
    if (code) {
        tw_error_prefix(err, where);
    }
    return code;
}

int tw_program_file_verify(const char *path, tw_prover prover, void *ctx,
                           struct tw_rules_info *info, uint32_t *n_programs, tw_error *err) {
    struct tw_rules_info i = {.size = sizeof i, .n_rules = N_RULES};
    struct verifier verifier = {path, prover, ctx, &i, 0};
    int code = TW_NEED(err, path);
    code = code || !info ? code : tw_sized_check(__func__, info, err);
    if (code) {
        return code;
    }
    code = tw_program_file_each(path, verify_one, &verifier, err);
    if (info) {
        tw_sized_write(info, &i, sizeof i);
    }
    if (n_programs) {
        *n_programs = verifier.n;
    }
    return code;
}

/* ---- print ---- */

/* Appends a program's name to the list for an error message. */
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
        return tw_fail(err, TW_E_USAGE, "%s: no program '%.60s'; it has %s", f->path, program,
                       known);
    }
    return code;
}

int tw_program_file_print(const char *path, const char *program, FILE *out, tw_error *err) {
    struct program_file f = {.path = path};
    int code = TW_NEED_2(err, path, out);
    code = code ? code : read_file(&f, err);
    code = code ? code : print_all(&f, program, out, err);
    free(f.text);
    return code;
}
