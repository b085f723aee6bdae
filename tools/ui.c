/* SPDX-License-Identifier: Apache-2.0
 *
 * The terminal's side of the command: signal flags, a progress line that erases itself, checked
 * output.
 */
#include "tools/ui.h"

#include "tilewright/tilewright.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

volatile int ui_stop;
static const char *volatile guarded[2], *volatile guarded_folder;

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

static void on_signal(int number) {
    (void)number;
    ui_stop = 1;
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

/* A file that is opened later must not become standard output or error because the caller had
 * closed that: what we print would go into it. In its place stands a descriptor that refuses, as a
 * closed one does. */
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
    signal(SIGXFSZ, SIG_IGN); /* a file beyond the limit on its size is an error then */
    tw_guard_files(NULL);     /* and so is a bundle that is cut while it runs */
    hold_standard_streams();
}

/* stdio does not keep why an earlier write failed. The output is broken by now, so another byte may
 * tell. */
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
    return tw_fail(err, e == ENOSPC ? TW_E_NOSPACE : TW_E_IO, "standard output: %s",
                   e ? strerror(e) : "write failed");
}

void ui_end_line(void) {
    if (isatty(STDOUT_FILENO)) {
        putchar('\n');
    }
}

int ui_print_json(json_t *object, tw_error *err) {
    char *text = object ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    if (!text) {
        return tw_fail(err, TW_E_NOMEM, "no memory for the JSON output");
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

double ui_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- progress ---- */

static struct {
    double start, last;
    bool shown;
} progress;

void ui_progress(void *ctx, const char *what, uint64_t done, uint64_t total) {
    (void)ctx;
    double t = ui_now();
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
    fputs("tilewright: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}
