/* SPDX-License-Identifier: Apache-2.0
 *
 * Prompts. A file is read into memory whole, up to a limit.
 */
#include "tools/prompt.h"

#include "loader/base/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX ((size_t)64 << 20)
#define BLOCK 65536u /* minimum of bytes to read at once */

static int read_all(FILE *f, const char *name, struct prompt *out, tw_error *err) {
    size_t room = 0;
    for (;;) {
        if (!tw_grow(&out->text, &room, out->n_text + BLOCK, 1)) {
            return tw_fail(err, TW_E_NOMEM, "%s: out of memory for the prompt", name);
        }
        size_t n = fread(out->text + out->n_text, 1, room - out->n_text, f);
        out->n_text += n;
        if (out->n_text > FILE_MAX) {
            return tw_fail(err, TW_E_RANGE, "%s: the prompt is longer than %zu bytes", name,
                           FILE_MAX);
        }
        if (n == 0) {
            return ferror(f) ? tw_fail(err, TW_E_IO, "%s: %s", name, strerror(errno)) : 0;
        }
    }
}

/* The last newline, written by an editor or echo, is not part of the prompt. */
static int read_file(const char *path, struct prompt *out, tw_error *err) {
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "rbe");
    if (!f) {
        return tw_fail(err, TW_E_IO, "%s: %s", path, strerror(errno));
    }
    int code = read_all(f, is_stdin ? "standard input" : path, out, err);
    if (!is_stdin) {
        fclose(f);
    }
    out->n_text -= !code && out->n_text && out->text[out->n_text - 1] == '\n';
    return code;
}

/* True if stdin is a pipe or a regular file; not a terminal or /dev/null. */
static bool stdin_has_text(void) {
    struct stat st;
    return fstat(STDIN_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode));
}

/* Returns the character that text[0..n), which begins with a backslash, stands for; *used: its
 * length. -1: not an escape sequence, to be left as it is. */
static int unescape_one(const char *text, size_t n, size_t *used) {
    static const char letters[] = "nrt\\'\"", values[] = "\n\r\t\\'\"";
    const char *letter = n > 1 && text[1] ? strchr(letters, text[1]) : NULL;
    char digits[3] = "";
    *used = letter ? 2 : 4;
    if (letter) {
        return values[letter - letters];
    }
    if (n < 4 || text[1] != 'x') {
        return -1;
    }
    memcpy(digits, text + 2, 2);
    return strspn(digits, "0123456789abcdefABCDEF") == 2 ? (int)strtoul(digits, NULL, 16) : -1;
}

static void unescape(struct prompt *p) {
    size_t made = 0, used;
    for (size_t at = 0; at < p->n_text; at += used, made++) {
        int c = p->text[at] == '\\' ? unescape_one(p->text + at, p->n_text - at, &used) : -1;
        used = c < 0 ? 1 : used;
        p->text[made] = c < 0 ? p->text[at] : (char)c;
    }
    p->n_text = made;
}

static int read_text(const struct prompt_options *o, struct prompt *out, tw_error *err) {
    const char *file = o->file ? o->file : !o->text && stdin_has_text() ? "-" : NULL;
    int code = 0;
    if (file) {
        code = read_file(file, out, err);
    } else {
        out->text = strdup(o->text ? o->text : "");
        out->n_text = out->text ? strlen(out->text) : 0;
        code = out->text ? 0 : tw_fail(err, TW_E_NOMEM, "no memory for the prompt");
    }
    if (!code && o->escape) {
        unescape(out);
    }
    return code;
}

static int take_ids(const struct opt_ids *ids, const tw_decoder *decoder, struct prompt *out,
                    tw_error *err) {
    struct tw_decoder_info info = {.size = sizeof info};
    tw_decoder_get_info(decoder, &info, NULL);
    for (size_t i = 0; i < ids->n; i++) {
        if (ids->ids[i] >= info.n_vocab) {
            return tw_fail(
                err, TW_E_USAGE,
                "option --ids: id %u at index %zu is not below the vocabulary's %u tokens",
                ids->ids[i], i, info.n_vocab);
        }
    }
    out->ids = malloc(ids->n * sizeof *out->ids);
    if (!out->ids) {
        return tw_fail(err, TW_E_NOMEM, "no memory for the prompt");
    }
    memcpy(out->ids, ids->ids, ids->n * sizeof *out->ids);
    out->n = ids->n;
    return 0;
}

/* Drops the beginning-of-text token if the text itself began with its name. */
static void drop_second_bos(const tw_decoder *decoder, struct prompt *p) {
    struct tw_decoder_info info = {.size = sizeof info};
    tw_decoder_get_info(decoder, &info, NULL);
    if (p->n > 1 && p->ids[0] == info.bos && p->ids[1] == info.bos) {
        memmove(p->ids, p->ids + 1, --p->n * sizeof *p->ids);
    }
}

static int tokenize(const struct prompt_options *o, bool special, const tw_decoder *decoder,
                    struct prompt *out, tw_error *err) {
    bool no_bos = o->no_bos || o->continues;
    unsigned flags = (no_bos ? TW_TOKENIZE_NO_BOS : 0u) | (special ? TW_TOKENIZE_SPECIAL : 0u);
    /* Rarely more than one token per byte: three if a space becomes a character that is not in the
     * vocabulary. */
    size_t room = 0, made = out->n_text + 16;
    int code;
    do {
        if (!tw_grow(&out->ids, &room, made, sizeof *out->ids)) {
            return tw_fail(err, TW_E_NOMEM, "no memory for the prompt");
        }
        code = tw_tokenize(decoder, out->text, out->n_text, flags, out->ids, room, &made, err);
    } while (!code && made > room);
    out->n = code ? 0 : made;
    if (special && !no_bos) {
        drop_second_bos(decoder, out);
    }
    if (!code && out->n == 0 && !o->continues) {
        code = tw_fail(err, TW_E_USAGE,
                       "the prompt is empty, and no token is put before it: give a prompt with -p, "
                       "-f or --ids");
    }
    return code;
}

int prompt_read(const struct prompt_options *options, bool special, const tw_decoder *decoder,
                struct prompt *out, tw_error *err) {
    memset(out, 0, sizeof *out);
    if (options->ids.given) {
        return take_ids(&options->ids, decoder, out, err);
    }
    int code = read_text(options, out, err);
    return code ? code : tokenize(options, special, decoder, out, err);
}

int prompt_read_text(const struct prompt_options *options, struct prompt *out, tw_error *err) {
    size_t room = 0;
    memset(out, 0, sizeof *out);
    int code = read_text(options, out, err);
    room = out->n_text;
    if (!code && !tw_grow(&out->text, &room, out->n_text + 1, 1)) {
        code = tw_fail(err, TW_E_NOMEM, "no memory for the prompt");
    }
    if (!code) {
        out->text[out->n_text] = 0;
    }
    return code;
}

void prompt_finish(struct prompt *prompt) {
    free(prompt->text);
    free(prompt->ids);
    memset(prompt, 0, sizeof *prompt);
}
