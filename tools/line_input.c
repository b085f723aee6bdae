/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines from the user (line_input.h).
 */
#include "tools/line_input.h"

#include "tools/ui.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct line_input {
    EditLine *editor; /* NULL: not a terminal */
    History *history;
    const char *prompt;
    char *line; /* of getline */
    size_t room;
};

static char *show_prompt(EditLine *editor) {
    void *data = NULL;
    el_get(editor, EL_CLIENTDATA, &data);
    const struct line_input *in = data;
    return (char *)(uintptr_t)in->prompt; /* libedit only reads it */
}

/* libedit reads characters of the locale, and drops bytes that are none: those above 0x7F in the C
 * locale, which is also that of a system without the user's one. Messages are UTF-8 in any case. */
static void choose_characters(void) {
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) {
        setlocale(LC_CTYPE, "C.UTF-8");
    }
}

/* Without an editor (an unknown terminal) lines are read as they come. */
static void open_editor(struct line_input *in) {
    HistEvent event;
    in->editor = el_init("tilewright", stdin, stdout, stderr);
    in->history = in->editor ? history_init() : NULL;
    if (!in->history) {
        return;
    }
    history(in->history, &event, H_SETSIZE, 500);
    history(in->history, &event, H_SETUNIQUE, 1);
    el_set(in->editor, EL_CLIENTDATA, in);
    el_set(in->editor, EL_PROMPT, show_prompt);
    el_set(in->editor, EL_EDITOR, "emacs");
    el_set(in->editor, EL_HIST, history, in->history);
    el_set(in->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
}

int line_input_open(struct line_input **out, tw_error *err) {
    struct line_input *in = calloc(1, sizeof *in);
    if (!in) {
        return tw_fail(err, TW_E_NOMEM, "out of memory for the input");
    }
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
        choose_characters();
        open_editor(in);
    }
    *out = in;
    return 0;
}

void line_input_close(struct line_input *in) {
    if (in) {
        if (in->history) {
            history_end(in->history);
        }
        if (in->editor) {
            el_end(in->editor);
        }
        free(in->line);
        free(in);
    }
}

bool line_input_is_terminal(const struct line_input *in) {
    return in->editor != NULL;
}

static const char *edit(struct line_input *in, const char *prompt, int *n) {
    HistEvent event;
    in->prompt = prompt;
    const char *line = el_gets(in->editor, n);
    if (line && *n > 1 && in->history) {
        history(in->history, &event, H_ENTER, line);
    }
    return line;
}

enum line_result line_input_read(struct line_input *in, const char *prompt, const char **text,
                                 size_t *n) {
    int length = 0;
    errno = 0;
    if (ui_stop) {
        length = -1; /* it came before the line */
    } else if (in->editor) {
        *text = edit(in, prompt, &length);
    } else {
        length = (int)getline(&in->line, &in->room, stdin);
        *text = length >= 0 ? in->line : NULL;
    }
    if (ui_stop) {
        if (in->editor) {
            el_reset(in->editor);
        }
        clearerr(stdin);
        return LINE_INTERRUPTED;
    }
    if (!*text || length <= 0) {
        return LINE_END;
    }
    *n = (size_t)length - ((*text)[length - 1] == '\n');
    return LINE_READ;
}
