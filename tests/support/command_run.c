/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the command under test (command_run.h): options become words, ids come back on standard
 * output, logits in a file.
 */
#include "tests/support/command_run.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_WORDS 48u
#define LIMIT_S 120u

static char folder[512];

const char *command_absent(void) {
    const char *binary = getenv("TW_BIN");
    if (!binary) {
        return "TW_BIN is not set";
    }
    return access(binary, X_OK) ? "TW_BIN names no program" : NULL;
}

const char *command_folder(void) {
    if (!*folder) {
        const char *root = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/tw-command-XXXXXX", root && *root ? root : "/tmp");
        if (!mkdtemp(folder)) {
            perror(folder);
            exit(99);
        }
        /* The compiled bundles go there too, unless the caller has set a folder for them. */
        setenv("XDG_CACHE_HOME", folder, 0);
    }
    return folder;
}

static const char *file_in_folder(const char *name, char path[600]) {
    snprintf(path, 600, "%s/%s", command_folder(), name);
    return path;
}

void command_folder_remove(void) {
    static const char *const names[] = {"out", "err", "logits"};
    char path[600];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unlink(file_in_folder(names[i], path));
    }
    /* Compiled bundles are there only in a run by hand; then the folder is kept with them. */
    rmdir(folder);
}

/* ---- the command line ---- */

struct words {
    const char *word[MAX_WORDS];
    char numbers[8][16];
    uint32_t n, n_numbers;
};

static void add(struct words *w, const char *name, const char *value) {
    if (value) {
        w->word[w->n++] = name;
        w->word[w->n++] = value;
    }
}

static void add_number(struct words *w, const char *name, uint32_t value) {
    if (value) {
        char *text = w->numbers[w->n_numbers++];
        snprintf(text, sizeof w->numbers[0], "%u", value);
        add(w, name, text);
    }
}

static void add_machine(struct words *w, const struct command_run *run) {
    add(w, "--target", run->target);
    add(w, "--mode", run->mode);
    add(w, "--isa", run->isa);
    add(w, "--kv", run->kv);
    add_number(w, "-t", run->threads);
    add_number(w, "--chunk", run->chunk);
    add_number(w, "--rows", run->rows);
    add_number(w, "--sites", run->sites);
}

const char *command_text(const struct command_run *run) {
    static char text[1024];
    struct words w = {.n = 0};
    add_number(&w, "-n", run->n);
    add_machine(&w, run);
    add(&w, "without", run->no_logits ? "--logits" : NULL);
    int n = snprintf(text, sizeof text, "run %s, %u ids", run->model, run->n_ids);
    for (uint32_t i = 0; i < w.n && n > 0 && (size_t)n < sizeof text; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n, " %s", w.word[i]);
    }
    return text;
}

/* "1,2,3", malloced. */
static char *ids_text(const uint32_t *ids, uint32_t n) {
    char *text = malloc((size_t)n * 11 + 1), *p = text;
    for (uint32_t i = 0; text && i < n; i++) {
        p += sprintf(p, i ? ",%u" : "%u", ids[i]);
    }
    return text;
}

/* ---- the child ---- */

static int redirect(const char *path, int to) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    return fd < 0 || dup2(fd, to) < 0 ? -1 : 0;
}

/* The exit status, or 128 and the signal. A child that hangs ends by its alarm, or with its
 * parent. */
static int spawn(const struct words *w, const char *out, const char *err) {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(LIMIT_S);
        if (redirect(out, 1) == 0 && redirect(err, 2) == 0) {
            execv(getenv("TW_BIN"), (char *const *)(uintptr_t)w->word);
        }
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return 127;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The file's bytes and a NUL, malloced. */
static char *read_file(const char *path, size_t *n) {
    struct stat st;
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    if (file && fstat(fileno(file), &st) == 0 && (bytes = malloc((size_t)st.st_size + 1))) {
        *n = fread(bytes, 1, (size_t)st.st_size, file);
        bytes[*n] = '\0';
    }
    if (file) {
        fclose(file);
    }
    return bytes;
}

/* ---- what comes back ---- */

/* Ids separated by blanks, one line, nothing else. */
static int parse_ids(const char *text, uint32_t n, uint32_t *ids) {
    for (uint32_t i = 0; i < n; i++) {
        char *end;
        if (*text < '0' || *text > '9') {
            return -1;
        }
        ids[i] = (uint32_t)strtoul(text, &end, 10);
        if (*end != (i + 1 < n ? ' ' : '\n')) {
            return -1;
        }
        text = end + 1;
    }
    return *text ? -1 : 0;
}

static int collect(const struct command_run *run, const char *ids_path, const char *logits_path,
                   struct command_output *out, tw_error *err) {
    size_t n = 0, n_logits = 0;
    char *text = read_file(ids_path, &n);
    char *logits = run->no_logits ? NULL : read_file(logits_path, &n_logits);
    int rc = 0;
    out->ids = malloc((size_t)out->n * sizeof *out->ids);
    out->logits = (float *)(void *)logits;
    if (!text || (!logits && !run->no_logits) || !out->ids || parse_ids(text, out->n, out->ids)) {
        rc = tw_fail(err, TW_E_INTERNAL, "%s: standard output is not one line of %u ids",
                     command_text(run), out->n);
    } else if (!run->no_logits && n_logits != (size_t)out->n * out->n_vocab * sizeof(float)) {
        rc = tw_fail(err, TW_E_INTERNAL, "%s: %zu bytes of logits, expected %u rows of %u floats",
                     command_text(run), n_logits, out->n, out->n_vocab);
    }
    free(text);
    return rc;
}

int command_run(const struct command_run *run, uint32_t n_vocab, struct command_output *out,
                tw_error *err) {
    char out_path[600], err_path[600], logits_path[600];
    char *ids = ids_text(run->ids, run->n_ids);
    struct words w = {.n = 0};
    *out = (struct command_output){.n = run->n, .n_vocab = n_vocab};
    add(&w, getenv("TW_BIN"), "run");
    add(&w, run->model, "--print-ids");
    add(&w, "--ignore-eos", "--temp=0");
    add(&w, "--ids", ids);
    add(&w, "--logits", run->no_logits ? NULL : file_in_folder("logits", logits_path));
    add_number(&w, "-n", run->n);
    add_machine(&w, run);
    int status = spawn(&w, file_in_folder("out", out_path), file_in_folder("err", err_path));
    free(ids);
    int rc = 0;
    if (status) {
        size_t n = 0;
        char *message = read_file(err_path, &n);
        rc = tw_fail(err, TW_E_INTERNAL, "%s: exit status %d: %.200s", command_text(run), status,
                     message ? message : "");
        free(message);
    } else {
        rc = collect(run, out_path, logits_path, out, err);
    }
    if (rc) {
        command_output_finish(out);
    }
    return rc;
}

void command_output_finish(struct command_output *out) {
    free(out->ids);
    free(out->logits);
    *out = (struct command_output){.n = 0};
}
