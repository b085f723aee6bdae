/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets a program compiled for a bare Cortex-M run under qemu-arm: newlib's board functions, made of
 * Linux system calls.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { CALL_EXIT = 1, CALL_READ = 3, CALL_WRITE = 4, HEAP_BYTES = 96 << 20 };

/* Arm EABI: number in r7, arguments from r0 on. In assembly because r7 may be the compiler's frame
 * pointer. */
int linux_call(int number, intptr_t a, intptr_t b, intptr_t c);
__asm__(".thumb_func\n"
        ".global linux_call\n"
        "linux_call:\n"
        "    push {r7, lr}\n"
        "    mov r7, r0\n"
        "    mov r0, r1\n"
        "    mov r1, r2\n"
        "    mov r2, r3\n"
        "    svc 0\n"
        "    pop {r7, pc}\n");

int main(void);
void _start(void);
void _start(void) {
    exit(main());
}

/* exit() calls it; it has nothing to do. */
void _fini(void);
void _fini(void) {
}

void _exit(int status) {
    for (;;) {
        linux_call(CALL_EXIT, status, 0, 0);
    }
}

static int result(int value) {
    if (value < 0) {
        errno = -value;
        return -1;
    }
    return value;
}
int _read(int fd, char *to, int n);
int _read(int fd, char *to, int n) {
    return result(linux_call(CALL_READ, fd, (intptr_t)to, n));
}
int _write(int fd, const char *from, int n);
int _write(int fd, const char *from, int n) {
    return result(linux_call(CALL_WRITE, fd, (intptr_t)from, n));
}

void *_sbrk(ptrdiff_t more);
void *_sbrk(ptrdiff_t more) {
    static char heap[HEAP_BYTES];
    static ptrdiff_t used;
    if (more > HEAP_BYTES - used || used + more < 0) {
        errno = ENOMEM;
        return (void *)-1;
    }
    used += more;
    return heap + (used - more);
}

/* The only files are standard input and output. */
int _close(int fd);
int _close(int fd) {
    (void)fd;
    return 0;
}
int _fstat(int fd, struct stat *s);
int _fstat(int fd, struct stat *s) {
    (void)fd;
    s->st_mode = S_IFCHR;
    return 0;
}
int _isatty(int fd);
int _isatty(int fd) {
    (void)fd;
    return 0;
}
int _lseek(int fd, int offset, int whence);
int _lseek(int fd, int offset, int whence) {
    (void)fd;
    (void)offset;
    (void)whence;
    return 0;
}
/* Only abort() sends a signal. */
int _getpid(void);
int _getpid(void) {
    return 1;
}
int _kill(int pid, int signal);
int _kill(int pid, int signal) {
    (void)pid;
    _exit(128 + signal);
    return -1;
}
