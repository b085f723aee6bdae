/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures saving and restoring against a copy of a file of that size: the caches of a model with
 * 12 layers of 768 elements in f16, 4,096 tokens. Medians, the three taken in turns; a copy that is
 * on the disk afterwards (fdatasync) is compared with a save, which is, too; a copy that need not
 * be, to a file that is there, with a restore. usage: state_bench [FOLDER [RUNS]];
 * STATE_BENCH_CPU set: processor time instead, for a machine that has other work.
 */
#include "driver/state/state_file.h"
#include "tests/support/saved_sequence.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_RUNS 99
#define PAGE 98304u
#define LAYERS 12u
#define TOKENS 4096u
#define COPY_BYTES 0x40000u /* at once, as cp does */

static struct saved_sequence s;
static uint8_t *device; /* what has the pages */

static double now_s(void) {
    struct timespec t;
    clock_gettime(getenv("STATE_BENCH_CPU") ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what) {
    fprintf(stderr, "state_bench: %s\n", what);
    exit(1);
}

static uint8_t *place(uint32_t slot, uint32_t tensor, uint32_t instance) {
    uint64_t page = ((uint64_t)tensor * LAYERS + instance) * (TOKENS / 64) + slot;
    return device + page * PAGE;
}

static const void *page_of(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance,
                           void *scratch, tw_error *err) {
    (void)ctx;
    (void)scratch;
    (void)err;
    return place(slot, tensor, instance);
}

static const void *copied_page(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance,
                               void *scratch, tw_error *err) {
    (void)ctx;
    (void)err;
    return memcpy(scratch, place(slot, tensor, instance), PAGE);
}

static void *place_of(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance) {
    (void)ctx;
    return place(slot, tensor, instance);
}

static int has_page(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance, const void *bytes,
                    tw_error *err) {
    (void)ctx;
    (void)err;
    return bytes == place(slot, tensor, instance) ? 0 : TW_E_INTERNAL;
}

static int put_page(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance, const void *bytes,
                    tw_error *err) {
    (void)ctx;
    (void)err;
    memcpy(place(slot, tensor, instance), bytes, PAGE);
    return 0;
}

/* Removes the file, and lets nothing of earlier measurements wait for the disk. */
static double begin(const char *path) {
    if (path) {
        unlink(path);
    }
    sync();
    return now_s();
}

static double save(const char *path, bool copies) {
    struct tw_saved_source source = {copies ? copied_page : page_of, NULL};
    struct tw_saved_result r;
    tw_error err = {0};
    double start = begin(path);
    if (tw_saved_write(path, &s.schema, s.tokens, s.n, &source, NULL, &r, &err) != 0) {
        fail(err.message);
    }
    return now_s() - start;
}

static double restore(const char *path, bool copies) {
    struct tw_saved_sink sink = {has_page, NULL, place_of};
    tw_saved *file;
    tw_error err = {0};
    if (copies) {
        sink = (struct tw_saved_sink){put_page, NULL, NULL};
    }
    double start = begin(NULL);
    if (tw_saved_open(path, &s.schema, TW_SAVED_WHOLE, &file, &err) != 0 ||
        tw_saved_read(file, &sink, &err) != 0) {
        fail(err.message);
    }
    tw_saved_close(file);
    return now_s() - start;
}

static double copy(const char *from, const char *to, bool on_disk) {
    static uint8_t buffer[COPY_BYTES];
    ssize_t n;
    double start = begin(to);
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0600);
    while ((n = read(in, buffer, sizeof buffer)) > 0) {
        if (write(out, buffer, (size_t)n) != n) {
            fail("cannot write");
        }
    }
    if (n < 0 || (on_disk && fdatasync(out) != 0)) {
        fail("cannot copy");
    }
    close(in);
    close(out);
    return now_s() - start;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *all, int n) {
    qsort(all, (size_t)n, sizeof *all, by_value);
    return all[n / 2];
}

int main(int argc, char **argv) {
    static double t[6][MAX_RUNS];
    static const char *const names[] = {"save",    "save, pages copied",    "copy, on the disk",
                                        "restore", "restore, pages copied", "copy"};
    int runs = argc > 2 ? atoi(argv[2]) : 5;
    char path[400], other[400];
    snprintf(path, sizeof path, "%s/state_bench.twstate", argc > 1 ? argv[1] : "/tmp");
    snprintf(other, sizeof other, "%s/state_bench.copy", argc > 1 ? argv[1] : "/tmp");
    saved_sequence_init(&s, LAYERS, PAGE);
    saved_sequence_feed(&s, 0, TOKENS, 1);
    uint64_t bytes = (uint64_t)PAGE * LAYERS * 2 * (TOKENS / 64);
    device = malloc(bytes);
    if (!device || runs < 1 || runs > MAX_RUNS) {
        fail("out of memory, or a wrong number of runs");
    }
    for (uint64_t i = 0; i < bytes; i++) {
        device[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    for (int i = 0; i < runs; i++) {
        t[1][i] = save(path, true);
        t[0][i] = save(path, false);
        t[2][i] = copy(path, other, true);
        t[3][i] = restore(path, false);
        t[4][i] = restore(path, true);
        t[5][i] = copy(path, other, false);
    }
    for (int i = 0; i < 6; i++) {
        double m = median(t[i], runs);
        printf("%-21s %7.1f ms  %5.2f GB/s\n", names[i], m * 1e3, (double)bytes * 1e-9 / m);
    }
    printf("save %.2f of a copy's speed, restore %.2f\n", median(t[2], runs) / median(t[0], runs),
           median(t[5], runs) / median(t[3], runs));
    unlink(path);
    unlink(other);
    free(device);
    return 0;
}
