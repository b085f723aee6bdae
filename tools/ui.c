/* SPDX-License-Identifier: Apache-2.0
 *
 * The command's side towards the terminal: signal flags, a progress line that erases itself,
 * checked output.
 */
#include "tools/ui.h"

#include "loader/base/clock.h"
#include "loader/base/text_filter.h"
#include "tilewright/tilewright.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

volatile sig_atomic_t ui_stop;
static const char *volatile guarded[2], *volatile guarded_folder;

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

static void on_signal(int number) {
    ui_stop = number;
}

static void on_signal_remove(int number) {
    (void)number;
    for (size_t i = 0; i < 2; i++) {
        if (guarded[i]) {
            unlink(guarded[i]);
        }
    }
    if (guarded_folder) {
        rmdir(guarded_folder);
    }
    _exit(130);
}

static void set_handlers(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_flags = flags};
    action.sa_handler = handler;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction old;
        /* What the parent had ignored (nohup) stays ignored. */
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) {
            sigaction(signals[i], &action, NULL);
        }
    }
}

void ui_catch_interrupts(void) {
    set_handlers(on_signal, (int)SA_RESETHAND);
}

int ui_take_interrupt(void) {
    sigset_t all, before;
    sigemptyset(&all);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        sigaddset(&all, signals[i]);
    }
    sigprocmask(SIG_BLOCK, &all, &before);
    int stop = ui_stop;
    if (stop == 0 || stop == SIGINT) {
        ui_stop = 0;
        ui_catch_interrupts();
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return stop;
}

void ui_guard(const char *first, const char *second, const char *folder) {
    if (!first) {
        set_handlers(SIG_DFL, 0);
    }
    guarded[0] = first;
    guarded[1] = second;
    guarded_folder = folder;
    if (first) {
        set_handlers(on_signal_remove, 0);
    }
}

/* If the caller closed standard output or error, a file that is opened later must not get its
 * descriptor: what we print would go into that file. A descriptor that fails every write, as a
 * closed one does, takes the place. */
static void hold_standard_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) {
            return;
        }
    }
}

void ui_init(void) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* exceeding a file size limit fails with EFBIG, and we clean up */
    tw_guard_files(NULL);     /* a bundle that is truncated while it runs gives an error */
    hold_standard_streams();
}

/* stdio does not keep the reason why an earlier write failed. The output is broken already, so
 * writing one more byte does no harm and shows the reason. */
static int why_broken(void) {
    return write(STDOUT_FILENO, "\n", 1) < 0 ? errno : 0;
}

int ui_flush(tw_error *err) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        return 0;
    }
    int e = errno ? errno : why_broken();
    if (e == EPIPE) {
        return UI_PIPE;
    }
    bool full = e == ENOSPC || e == EDQUOT || e == EFBIG;
    return tw_fail(err, full ? TW_E_NOSPACE : TW_E_IO, "standard output: %s",
                   e ? strerror(e) : "write failed");
}

void ui_end_line(void) {
    if (isatty(STDOUT_FILENO)) {
        putchar('\n');
    }
}

/* Prints one line, whatever the names in it contain. */
static void note(const char *format, va_list args) {
    char line[1024];
    vsnprintf(line, sizeof line, format, args);
    tw_clean_text(line);
    fprintf(stderr, "tilewright: %s\n", line);
}

/* True if standard output and error are the same file or pipe, so that what is written to both may
 * end up on one line. On a terminal, ui_end_line has ended the line. */
static bool shares_output(void) {
    struct stat out, error;
    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &error) == 0 &&
           out.st_dev == error.st_dev && out.st_ino == error.st_ino && !S_ISCHR(out.st_mode);
}

void ui_note_below(const char *format, ...) {
    va_list args;
    if (shares_output()) {
        fputc('\n', stderr);
    }
    va_start(args, format);
    note(format, args);
    va_end(args);
}

int ui_print_json(json_t *object, tw_error *err) {
    char *text = object ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    if (!text) {
        return tw_fail(err, TW_E_NOMEM, "out of memory for the JSON output");
    }
    puts(text);
    free(text);
    return ui_flush(err);
}

const char *ui_bytes(uint64_t bytes, char text[32]) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    size_t u = 0;
    while (v >= 1024 && u < 4) {
        v /= 1024;
        u++;
    }
    snprintf(text, 32, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
    return text;
}

/* "FILE:LINE:COL: ...": an error in a text that the user wrote and can correct. */
static bool is_about_a_line(const char *message) {
    for (const char *at = strchr(message, ':'); at; at = strchr(at + 1, ':')) {
        size_t n = strspn(at + 1, "0123456789");
        if (n > 0 && at[n + 1] == ':' && strspn(at + n + 2, "0123456789") > 0) {
            return true;
        }
    }
    return false;
}

/* Returns whether a message already tells the user what to do, so that the generic remedy would
 * only repeat it. A guess from its words: advice follows a semicolon or a colon, or names a command
 * or an option. */
static bool contains_advice(const char *message) {
    static const char *const signs[] = {"; use ",   "; compile", "; create ", "; clear ",
                                        "; set ",   "; deploy ", "; destroy", "compile ",
                                        "upgrade ", "--",        ": use ",    "tilewright "};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        if (strstr(message, signs[i])) {
            return true;
        }
    }
    return is_about_a_line(message) || strstr(message, ".json: ");
}

void ui_print_error(const tw_error *err) {
    const char *remedy = tw_error_remedy(err->code);
    fprintf(stderr, "tilewright: %s\n", err->message);
    if (*remedy && !contains_advice(err->message)) {
        fprintf(stderr, "try: %s\n", remedy);
    }
}

/* ---- progress ---- */

static struct {
    double start, last;
    bool shown;
} progress;

void ui_progress(void *ctx, const char *what, uint64_t done, uint64_t total) {
    (void)ctx;
    double t = tw_clock_s();
    if (progress.start == 0) {
        progress.start = t;
    }
    if (t - progress.start < 1 || t - progress.last < 0.1 || !isatty(STDERR_FILENO)) {
        return;
    }
    progress.last = t;
    progress.shown = true;
    if (total) {
        fprintf(stderr, "\r\033[K%s %3.0f %%", what, 100.0 * (double)done / (double)total);
    } else {
        fprintf(stderr, "\r\033[K%s", what);
    }
    fflush(stderr);
}

void ui_progress_end(void) {
    if (progress.shown) {
        fputs("\r\033[K", stderr);
    }
    progress.start = progress.last = 0;
    progress.shown = false;
}

void ui_note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    note(format, args);
    va_end(args);
}
