/* SPDX-License-Identifier: Apache-2.0
 *
 * The checked fault path of mapped files (file_map.h). A SIGBUS at an address inside a registered
 * mapping marks the mapping and puts zeros there, and the access is repeated; every other SIGBUS
 * goes to the previous handler. The list of mappings is read by a signal handler, so its nodes are
 * never freed, only reused.
 */
#include "loader/base/file_map.h"

#include "tilewright/tilewright.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct tw_file_guard {
    _Atomic uintptr_t start, end; /* start 0: the node is unused */
    _Atomic int cut;
    struct tw_file_guard *next;
};

static _Atomic(struct tw_file_guard *) all;
static struct sigaction previous;
static uintptr_t page_bytes;

#define TAKEN UINTPTR_MAX /* a start above every address */

static struct tw_file_guard *find_unused(void) {
    for (struct tw_file_guard *g = atomic_load(&all); g; g = g->next) {
        uintptr_t unused = 0;
        if (atomic_compare_exchange_strong(&g->start, &unused, TAKEN)) {
            return g;
        }
    }
    return NULL;
}

static struct tw_file_guard *make(void) {
    struct tw_file_guard *g = calloc(1, sizeof *g);
    if (g) {
        atomic_init(&g->start, TAKEN);
        g->next = atomic_load(&all);
        while (!atomic_compare_exchange_weak(&all, &g->next, g)) {
        }
    }
    return g;
}

struct tw_file_guard *tw_file_guard_add(const void *start, const void *end) {
    struct tw_file_guard *g = find_unused();
    g = g ? g : make();
    if (g) {
        atomic_store(&g->cut, 0);
        atomic_store(&g->end, (uintptr_t)end);
        atomic_store(&g->start, (uintptr_t)start);
    }
    return g;
}

void tw_file_guard_move(struct tw_file_guard *g, const void *start) {
    atomic_store(&g->start, (uintptr_t)start);
}

void tw_file_guard_remove(struct tw_file_guard *g) {
    if (g) {
        atomic_store(&g->start, 0);
    }
}

int tw_file_guard_was_cut(const struct tw_file_guard *g) {
    return atomic_load_explicit(&g->cut, memory_order_acquire);
}

/* ---- the handler ---- */

/* Maps zeros from the page of `address` to the mapping's end: the rest of the file is probably
 * missing, too, and the current computation ends in an error anyway. Returns false if the address
 * is in no mapping. */
static bool replace(uintptr_t address) {
    for (struct tw_file_guard *g = atomic_load(&all); g; g = g->next) {
        uintptr_t start = atomic_load(&g->start), end = atomic_load(&g->end);
        if (start != 0 && address >= start && address < end) {
            uintptr_t page = address & ~(page_bytes - 1);
            atomic_store_explicit(&g->cut, 1, memory_order_release);
            return mmap((void *)page, end - page, PROT_READ,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
                        0) != MAP_FAILED;
        }
    }
    return false;
}

/* Calls the previous handler. Without one, the access is repeated without a handler, so the process
 * ends as it would have, with the right signal and core dump. */
static void pass_on(int number, siginfo_t *info, void *context) {
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(number, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(number);
    } else {
        signal(number, SIG_DFL);
        if (info->si_code <= 0) { /* sent by a process: no access is repeated */
            raise(number);
        }
    }
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    int saved = errno;
    if (info->si_code != BUS_ADRERR || !replace((uintptr_t)info->si_addr)) {
        pass_on(number, info, context);
    }
    errno = saved;
}

int tw_guard_files(tw_error *err) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool installed;
    struct sigaction a;
    int rc = 0;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = on_bus_error;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&a.sa_mask);
    pthread_mutex_lock(&lock);
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (!installed && sigaction(SIGBUS, &a, &previous) != 0) {
        rc = tw_fail(err, TW_E_INTERNAL, "cannot install a SIGBUS handler: %s", strerror(errno));
    }
    installed = rc == 0;
    pthread_mutex_unlock(&lock);
    return rc;
}
