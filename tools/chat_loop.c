/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of a conversation (chat_loop.h).
 */
#include "tools/chat_loop.h"

#include "loader/base/grow.h"
#include "tools/line_input.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <stdlib.h>
#include <string.h>

struct loop {
    struct conversation c;
    const struct chat_loop_options *o;
    struct line_input *in;
    char *text; /* the message that is being read */
    size_t n, room;
    bool quoted;  /* it was in """: no command */
    bool retries; /* an answer is generated once more */
    bool leave;
    tw_error *err;
};

/* ---- answers ---- */

static double rate(double n, double seconds) {
    return seconds > 0 ? n / seconds : 0;
}

static void print_stats(const struct loop *l) {
    const struct tw_generate_result *r = &l->c.result;
    ui_note_below("%u tokens of messages; %u generated, %.1f tok/s; %u of %u positions in use",
                  r->n_prompt, r->n_generated,
                  rate(r->n_generated > 1 ? r->n_generated - 1 : 0, r->decode_s),
                  tw_session_position(l->c.engine->session), l->c.engine->session_info.n_ctx);
    engine_note_context(r);
}

/* Whether the loop goes on after a signal: Ctrl-C on a terminal ends only what it interrupts. */
static bool goes_on_after(const struct loop *l, int stop) {
    return stop == 0 || (stop == SIGINT && line_input_is_terminal(l->in));
}

static int finish_answer(struct loop *l) {
    putchar('\n');
    int code = ui_flush(l->err);
    if (l->c.stopped) {
        ui_note("the answer was stopped");
    } else if (l->c.result.reason == TW_STOP_CONTEXT) {
        ui_note("the context is full: /reset begins anew, or start with a larger one (-c), or with "
                "--on-full slide");
    }
    if (l->o->stats) {
        print_stats(l);
    }
    return code;
}

/* Signals that came since the message was read count, too. */
static int answer(struct loop *l) {
    if (!ui_stop) {
        ui_catch_interrupts(); /* a second signal ends the program at once */
    }
    int code = conversation_answer(&l->c, l->err);
    if (code == TW_E_INTERRUPTED && goes_on_after(l, ui_stop)) {
        ui_note(l->retries ? "stopped; the earlier answer stays"
                           : "stopped; the message was dropped");
        code = 0;
    } else if (!code) {
        code = finish_answer(l);
    }
    if (!goes_on_after(l, ui_take_interrupt())) {
        l->leave = true;
        code = code ? code : tw_fail(l->err, TW_E_INTERRUPTED, "interrupted");
    }
    l->leave = l->leave || l->o->single;
    return code;
}

/* ---- commands ---- */

static int help(struct loop *l, char *argument) {
    (void)argument;
    fputs("/help           this list\n"
          "/system [TEXT]  set the instructions of the system; without TEXT: show them\n"
          "/regenerate     answer the last message once more\n"
          "/reset          begin anew, with the same instructions\n"
          "/save FILE      write the conversation to FILE, as JSON\n"
          "/load FILE      go on with the conversation in FILE\n"
          "/exit           leave; also Ctrl-D\n"
          "//TEXT          a message that begins with a slash\n"
          "A line that ends with \\ continues on the next one; lines between two of \"\"\" are one "
          "message.\n",
          stdout);
    return ui_flush(l->err);
}

static int leave(struct loop *l, char *argument) {
    (void)argument;
    l->leave = true;
    return 0;
}

static int reset(struct loop *l, char *argument) {
    (void)argument;
    conversation_reset(&l->c);
    return 0;
}

static int set_system(struct loop *l, char *argument) {
    if (*argument) {
        return conversation_set_system(&l->c, argument, l->err);
    }
    const json_t *first = json_array_get(l->c.messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    bool is = role && strcmp(role, "system") == 0;
    const char *text = json_string_value(json_object_get(first, "content"));
    text_print_lines(is && text ? text : "(no instructions)", stdout);
    return ui_flush(l->err);
}

static int need_file(struct loop *l, const char *command, const char *argument) {
    return *argument ? 0 : tw_fail(l->err, TW_E_USAGE, "%s needs the name of a file", command);
}

static int save(struct loop *l, char *argument) {
    int code = need_file(l, "/save", argument);
    return code ? code : conversation_save(&l->c, argument, l->err);
}

static int load(struct loop *l, char *argument) {
    int code = need_file(l, "/load", argument);
    return code ? code : conversation_load(&l->c, argument, l->err);
}

static int regenerate(struct loop *l, char *argument) {
    (void)argument;
    json_t *before = json_copy(l->c.messages);
    if (!before || !conversation_drop_answer(&l->c)) {
        json_decref(before);
        return before ? tw_fail(l->err, TW_E_USAGE, "there is no message to answer")
                      : tw_fail(l->err, TW_E_NOMEM, "out of memory for the conversation");
    }
    size_t n = json_array_size(l->c.messages);
    l->c.generate.seed++; /* or the answer would be the same */
    l->retries = true;
    int code = answer(l);
    l->retries = false;
    if (json_array_size(l->c.messages) <= n) { /* there is no new answer */
        json_decref(l->c.messages);
        l->c.messages = before;
    } else {
        json_decref(before);
    }
    return code;
}

static const struct command {
    const char *name;
    int (*run)(struct loop *l, char *argument);
} commands[] = {
    {"/help", help},        {"/?", help},      {"/system", set_system}, {"/regenerate", regenerate},
    {"/retry", regenerate}, {"/reset", reset}, {"/clear", reset},       {"/save", save},
    {"/load", load},        {"/exit", leave},  {"/quit", leave},        {"/bye", leave},
};

static int run_command(struct loop *l) {
    size_t n = strcspn(l->text, " \t");
    char *argument = l->text + n + strspn(l->text + n, " \t");
    for (size_t end = strlen(argument); end > 0 && strchr(" \t", argument[end - 1]); end--) {
        argument[end - 1] = 0;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strlen(commands[i].name) == n && strncmp(commands[i].name, l->text, n) == 0) {
            return commands[i].run(l, argument);
        }
    }
    return tw_fail(l->err, TW_E_USAGE,
                   "unknown command '%.*s'; /help lists them, and // begins a message with a slash",
                   n < 40 ? (int)n : 40, l->text);
}

/* ---- messages ---- */

static int send(struct loop *l, const char *text, size_t n) {
    int code = conversation_add(&l->c, text, n, l->err);
    return code ? code : answer(l);
}

/* A line, or lines, that were read. */
static int take(struct loop *l) {
    size_t slashes = l->quoted ? 0 : strspn(l->text, "/");
    if (l->n == 0) {
        return 0;
    }
    return slashes == 1 ? run_command(l) : send(l, l->text + (slashes > 1), l->n - (slashes > 1));
}

static bool append(struct loop *l, const char *text, size_t n) {
    if (!tw_grow(&l->text, &l->room, l->n + n + 1, 1)) {
        return false;
    }
    memcpy(l->text + l->n, text, n);
    l->n += n;
    l->text[l->n] = 0;
    return true;
}

static bool ends_with(const char *text, size_t n, const char *end) {
    size_t m = strlen(end);
    return n >= m && memcmp(text + n - m, end, m) == 0;
}

/* Adds a line to the message. *more: it continues on the next one. */
static bool add_line(struct loop *l, const char *line, size_t n, bool *more) {
    static const char quotes[] = "\"\"\"";
    if (l->n == 0 && !l->quoted && n >= 3 && memcmp(line, quotes, 3) == 0) {
        l->quoted = true;
        line += 3;
        n -= 3;
        if (n == 0) {
            *more = true;
            return append(l, "", 0);
        }
    }
    bool end = l->quoted && ends_with(line, n, quotes);
    bool continues = !l->quoted && ends_with(line, n, "\\");
    *more = continues || (l->quoted && !end);
    return append(l, line, n - (end ? 3 : continues ? 1 : 0)) && (!*more || append(l, "\n", 1));
}

/* Reads a message. Ctrl-C drops what was typed; a second one in a row leaves. */
static enum line_result read_message(struct loop *l) {
    bool more = true;
    l->n = 0;
    l->quoted = false;
    while (more) {
        const char *line;
        size_t n = 0;
        enum line_result r = line_input_read(l->in, l->n || l->quoted ? "... " : "> ", &line, &n);
        if (r != LINE_READ) {
            return r == LINE_END && l->n ? LINE_READ : r;
        }
        if (!add_line(l, line, n, &more)) {
            return LINE_END;
        }
    }
    return LINE_READ;
}

/* A signal while a message is read. Ctrl-C on a terminal leaves if it comes again; else a signal
 * ends the program. */
static int interrupted_at_prompt(struct loop *l, bool again) {
    bool goes_on = goes_on_after(l, ui_take_interrupt());
    l->leave = again || !goes_on;
    if (!goes_on) {
        return tw_fail(l->err, TW_E_INTERRUPTED, "interrupted");
    }
    fputs(again ? "\n" : "\n(Ctrl-C once more, or /exit, leaves)\n", stderr);
    return 0;
}

static int talk(struct loop *l) {
    bool interrupted = false;
    int code = 0;
    ui_catch_interrupts();
    while (!code && !l->leave) {
        enum line_result r = read_message(l);
        if (r == LINE_INTERRUPTED) {
            code = interrupted_at_prompt(l, interrupted);
            interrupted = true;
            continue;
        }
        interrupted = false;
        if (r == LINE_END) {
            fputs(line_input_is_terminal(l->in) ? "\n" : "", stderr);
            break;
        }
        code = take(l);
        if (code && code != UI_PIPE && line_input_is_terminal(l->in) && !l->leave &&
            tw_error_class_of(code) != TW_CLASS_DEVICE) {
            ui_print_error(l->err);
            code = 0;
        }
    }
    return code;
}

int chat_loop(struct engine *engine, const struct chat_loop_options *options, tw_error *err) {
    struct loop l = {.o = options, .err = err};
    int code = conversation_begin(&l.c, engine, options->engine, options->conversation,
                                  options->sampling, err);
    code = code ? code : line_input_open(&l.in, err);
    l.c.shows = true;
    if (!code && options->first) {
        code = send(&l, options->first, strlen(options->first));
    }
    if (!code && !l.leave) {
        if (line_input_is_terminal(l.in)) {
            fprintf(stderr, "%s; /help lists the commands\n", text_clean(engine->info.model).text);
        }
        code = talk(&l);
    }
    line_input_close(l.in);
    conversation_finish(&l.c);
    free(l.text);
    return code;
}
