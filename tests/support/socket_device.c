/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices in child processes: forked, reported ready through a pipe, killed when the parent ends.
 */
#include "tests/support/socket_device.h"

#include "tilewright/emulate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char folder[64];

static void die(const char *what, const tw_error *err) {
    fprintf(stderr, "socket device: %s: %s\n", what, err ? err->message : strerror(errno));
    abort();
}

void socket_folder_make(void) {
    strcpy(folder, "/tmp/tw-socket-XXXXXX");
    if (!mkdtemp(folder) || setenv("XDG_RUNTIME_DIR", folder, 1)) {
        die("no folder", NULL);
    }
}

void socket_folder_remove(void) {
    char path[400];
    snprintf(path, sizeof path, "%s/tilewright", folder);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof path, "%s/tilewright/%s", folder, e->d_name);
        unlink(path);
    }
    if (dir) {
        closedir(dir);
    }
    snprintf(path, sizeof path, "%s/tilewright", folder);
    rmdir(path);
    rmdir(folder);
}

int socket_folder_set_up(void **state) {
    (void)state;
    socket_folder_make();
    return 0;
}

int socket_folder_tear_down(void **state) {
    (void)state;
    socket_folder_remove();
    return 0;
}

unsigned socket_folder_entries(void) {
    char path[400];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/tilewright", folder);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        n += e->d_name[0] != '.';
    }
    if (dir) {
        closedir(dir);
    }
    return n;
}

static volatile sig_atomic_t stop;

static void on_term(int number) {
    (void)number;
    stop = 1;
}

static void report_ready(void *ctx, const char *endpoint) {
    int fd = *(int *)ctx;
    const char *path = endpoint + strlen("socket:");
    if (write(fd, path, strlen(path)) < 0) {
        _exit(99);
    }
    close(fd);
}

static void serve(const char *name, const char *faults, uint64_t seed, int ready) {
    struct sigaction a = {.sa_flags = 0};
    a.sa_handler = on_term;
    sigaction(SIGTERM, &a, NULL);
    prctl(PR_SET_NAME, "test-emulator");
    struct tw_emulate_options o = {.size = sizeof o,
                                   .path = name,
                                   .faults = faults,
                                   .seed = seed,
                                   .n_threads = 1,
                                   .memory_bytes = 256u << 20,
                                   .ready = report_ready,
                                   .ctx = &ready};
    tw_error err = {0};
    int code = tw_emulate(&o, &stop, &err);
    if (code) {
        fprintf(stderr, "serve: %s\n", err.message);
    }
    _exit(code ? 1 : 0);
}

void socket_device_start(struct socket_device *d, const char *name, const char *faults,
                         uint64_t seed) {
    int fd[2];
    memset(d, 0, sizeof *d);
    if (pipe2(fd, O_CLOEXEC)) {
        die("no pipe", NULL);
    }
    d->pid = fork();
    if (d->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fd[0]);
        serve(name, faults, seed, fd[1]);
    }
    close(fd[1]);
    ssize_t n = d->pid > 0 ? read(fd[0], d->path, sizeof d->path - 1) : -1;
    close(fd[0]);
    if (n <= 0) {
        die("it did not start", NULL);
    }
    snprintf(d->selector, sizeof d->selector, "socket:%s", name);
}

int child_wait(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            die("no such child", NULL);
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int socket_device_end(struct socket_device *d) {
    kill(d->pid, SIGTERM);
    return child_wait(d->pid);
}

void socket_device_kill(struct socket_device *d) {
    kill(d->pid, SIGKILL);
    child_wait(d->pid);
}

pid_t child_start(int (*work)(void *ctx), void *ctx) {
    pid_t pid = fork();
    if (pid < 0) {
        die("no child", NULL);
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(200);
        _exit(work(ctx));
    }
    return pid;
}

void child_wait_stopped(pid_t pid) {
    int status;
    if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) {
        die("a child that does not stop", NULL);
    }
}

void child_stop(pid_t pid) {
    kill(pid, SIGSTOP);
    child_wait_stopped(pid);
}

unsigned process_fds(pid_t pid) {
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    while (dir && readdir(dir)) {
        n++;
    }
    if (dir) {
        closedir(dir);
    }
    return n;
}

unsigned long process_kib(pid_t pid) {
    char path[64], line[128];
    unsigned long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "VmRSS: %lu", &kib) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    return kib;
}

int socket_open(const char *selector, uint32_t deadline_ms, tw_device **out, tw_error *err) {
    struct tw_device_options o = {.size = sizeof o, .n_threads = 1, .deadline_ms = deadline_ms};
    return tw_device_open(selector, &o, out, err);
}
