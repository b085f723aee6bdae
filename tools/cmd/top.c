/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright top: shows what the processes of this computer do with the devices that they have
 * open, from the status pages that they publish. On a terminal it is refreshed each second; no
 * device is opened.
 */
#include "loader/base/text_filter.h"
#include "tilewright/tilewright.h"
#include "tools/cmd.h"
#include "tools/ui.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define REFRESH_MS 1000
#define STUCK_S 2.0 /* time without progress after which it is reported */

struct top_args {
    bool json, once;
};

static const struct opt options[] = {
    {OPT_FLAG, '1', "once", NULL, offsetof(struct top_args, once), 0, 0,
     "print once, even on a terminal"},
    {OPT_FLAG, 0, "json", NULL, offsetof(struct top_args, json), 0, 0, "print once, as JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "top",
    "",
    0,
    "Show which process is using each device and what it is doing (read-only).",
    options,
    "On a terminal it is refreshed each second; q or Ctrl-C ends it. Devices are neither opened "
    "nor "
    "disturbed."};

/* ---- one snapshot ---- */

static const char *format_duration(double s, char text[32]) {
    uint64_t t = (uint64_t)s;
    if (t < 86400) {
        snprintf(text, 32, "%u:%02u:%02u", (unsigned)(t / 3600), (unsigned)(t / 60 % 60),
                 (unsigned)(t % 60));
    } else {
        snprintf(text, 32, "%llu d", (unsigned long long)(t / 86400));
    }
    return text;
}

static void print_heading(FILE *out) {
    fprintf(out, "%7s  %-14s %-20s %-8s %9s %9s %8s %13s %13s %6s %6s %10s %10s %9s  %s\n", "PID",
            "PROGRAM", "DEVICE", "STATE", "TOKENS/S", "TOKENS", "PROMPT", "POSITION", "PAGES",
            "SHARED", "CACHED", "SENT", "RECEIVED", "OPEN", "BUNDLE");
}

/* Problems, each on a line of its own below the device's. */
static void print_problems(FILE *out, const struct tw_status_info *i) {
    bool busy = strcmp(i->state, "running") == 0 || strcmp(i->state, "waiting") == 0;
    if (busy && i->progress_s > STUCK_S) {
        fprintf(out, "%9sno progress for %.1f s, in %s\n", "", i->progress_s, i->doing);
    }
    if (i->resent || i->damaged) {
        fprintf(out, "%9sthe link is unreliable: resent %llu times, %llu packets damaged\n", "",
                (unsigned long long)i->resent, (unsigned long long)i->damaged);
    }
    if (i->error[0]) {
        fprintf(out, "%9s%s: %s\n", "", strcmp(i->state, "lost") == 0 ? "cause" : "last error",
                i->error);
    }
}

static void print_line(FILE *out, const struct tw_status_info *i) {
    char sent[32], received[32], open[32], position[32], pages[32];
    snprintf(position, sizeof position, i->n_ctx ? "%u/%u" : "-", i->position, i->n_ctx);
    snprintf(pages, sizeof pages, i->pages ? "%u/%u" : "-", i->pages_used, i->pages);
    fprintf(out, "%7u  %-14s %-20s %-8s %9.1f %9llu %8llu %13s %13s %6u %6u %10s %10s %9s  %s\n",
            i->pid, i->program, i->device, i->state, i->tokens_per_s, (unsigned long long)i->tokens,
            (unsigned long long)i->prompt_tokens, position, pages, i->pages_shared, i->pages_cached,
            ui_bytes(i->sent_bytes, sent), ui_bytes(i->received_bytes, received),
            format_duration(i->open_s, open), i->bundle_file);
    print_problems(out, i);
}

struct table {
    FILE *out;
    uint32_t n;
};

static bool add_line(void *ctx, const struct tw_status_info *i) {
    struct table *t = ctx;
    if (t->n++ == 0) {
        print_heading(t->out);
    }
    print_line(t->out, i);
    return true;
}

static void print_table(FILE *out) {
    struct table t = {.out = out};
    tw_status_list(add_line, &t, NULL);
    if (t.n == 0) {
        fputs("no process has a device open\n", out);
    }
}

static bool add_json(void *ctx, const struct tw_status_info *i) {
    json_array_append_new(
        ctx,
        json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:I, s:I, s:I, s:i, s:i, "
                  "s:I, s:I, s:I, s:I, s:f, "
                  "s:f, s:I, s:I, s:I, s:I, s:I}",
                  "pid", (json_int_t)i->pid, "program", i->program, "device", i->device, "target",
                  i->target, "bundle", i->bundle_file, "state", i->state, "doing", i->doing,
                  "error", i->error, "tokens_per_s", i->tokens_per_s, "tokens",
                  (json_int_t)i->tokens, "prompt_tokens", (json_int_t)i->prompt_tokens, "steps",
                  (json_int_t)i->steps, "position", (int)i->position, "n_ctx", (int)i->n_ctx,
                  "sent_bytes", (json_int_t)i->sent_bytes, "received_bytes",
                  (json_int_t)i->received_bytes, "resent", (json_int_t)i->resent, "damaged",
                  (json_int_t)i->damaged, "open_s", i->open_s, "progress_s", i->progress_s, "pages",
                  (json_int_t)i->pages, "pages_used", (json_int_t)i->pages_used, "pages_shared",
                  (json_int_t)i->pages_shared, "pages_free", (json_int_t)(i->pages - i->pages_used),
                  "pages_cached", (json_int_t)i->pages_cached));
    return true;
}

/* ---- the live view ---- */

struct terminal {
    struct termios before;
    bool keys; /* standard input is the terminal and delivers single keys */
};

/* Switches to the terminal's alternate screen and hides the cursor. Ctrl-Z is off: it would leave
 * the terminal like this. */
static void enter(struct terminal *t) {
    t->keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &t->before) == 0;
    if (t->keys) {
        struct termios raw = t->before;
        raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        raw.c_cc[VSUSP] = _POSIX_VDISABLE;
        t->keys = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    }
    fputs("\033[?1049h\033[?25l", stdout);
}

static void leave(const struct terminal *t) {
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (t->keys) {
        tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before);
    }
}

/* Bytes of the first `columns` characters of text[0..n). */
static size_t columns_of(const char *text, size_t n, size_t columns) {
    size_t at = 0;
    bool printable;
    for (size_t i = 0; i < columns && at < n; i++) {
        at += tw_text_next(text + at, n - at, &printable);
    }
    return at;
}

/* Prints as many lines and columns of the text as the terminal has. */
static void put_screen(const char *text) {
    struct winsize w;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col && w.ws_row;
    size_t columns = known ? w.ws_col : 80, rows = known ? w.ws_row : 24;
    fputs("\033[H", stdout);
    for (size_t row = 0; *text && row < rows; row++) {
        size_t n = strcspn(text, "\n");
        fwrite(text, 1, columns_of(text, n, columns), stdout);
        fputs(row + 1 < rows ? "\033[K\r\n" : "\033[K", stdout);
        text += n + (text[n] == '\n');
    }
    fputs("\033[J", stdout);
}

static int show(tw_error *err) {
    char *text = NULL, clock[16];
    size_t n;
    FILE *out = open_memstream(&text, &n);
    if (!out) {
        return tw_fail(err, TW_E_NOMEM, "out of memory for the screen");
    }
    time_t now = time(NULL);
    struct tm local;
    strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &local));
    fprintf(out, "tilewright top  %s  (q ends)\n\n", clock);
    print_table(out);
    if (fclose(out)) {
        free(text);
        return tw_fail(err, TW_E_NOMEM, "out of memory for the screen");
    }
    put_screen(text);
    free(text);
    return ui_flush(err);
}

/* Waits for the next refresh, a key or a signal. False: the user wants to quit. */
static bool wait_for_key(const struct terminal *t) {
    struct pollfd p = {.fd = t->keys ? STDIN_FILENO : -1, .events = POLLIN};
    char key;
    if (poll(&p, 1, REFRESH_MS) <= 0 || !p.revents) {
        return true;
    }
    return read(STDIN_FILENO, &key, 1) == 1 && key != 'q' && key != 'Q' && key != 4 /* Ctrl-D */;
}

static int live(tw_error *err) {
    struct terminal t;
    int code;
    ui_catch_interrupts();
    enter(&t);
    do {
        code = show(err);
    } while (!code && !ui_stop && wait_for_key(&t) && !ui_stop);
    leave(&t);
    return code;
}

static int run(int argc, char **argv, tw_error *err) {
    struct top_args a = {0};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    if (a.json) {
        json_t *list = json_array();
        tw_status_list(add_json, list, NULL);
        return ui_print_json(list, err);
    }
    if (!a.once && isatty(STDOUT_FILENO)) {
        return live(err);
    }
    print_table(stdout);
    return ui_flush(err);
}

const struct cmd cmd_top = {&verb, run};
