/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures what the device's own check adds to LOAD: CPU time of tw_serve_verify and of the whole
 * LOAD, strict and fast, of each program of a bundle. usage: load_bench BUNDLE...
 */
#include "firmware/emulator/emulator.h"
#include "firmware/serve/verify_load.h"
#include "loader/bundle/loader.h"
#include "tilewright/progblob.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define RUNS 9

static double check_s; /* of the last LOAD */

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int timed_verify(void *ctx, const struct tw_program *program,
                        const struct tw_server_certificate *certificate,
                        const struct tw_interrupt *interrupt, char *what, uint32_t size) {
    double start = now_s();
    int code = tw_serve_verify(ctx, program, certificate, interrupt, what, size);
    check_s = now_s() - start;
    return code;
}

/* Sends a request and returns the address in its answer. */
static uint64_t call(struct tw_emu *emu, enum tw_wire_opcode opcode, uint64_t address,
                     const void *payload, uint32_t bytes, struct tw_server_answer *answer) {
    uint8_t header[TW_WIRE_HEADER_BYTES];
    struct tw_wire_header h = {
        .version = 1, .opcode = (uint8_t)opcode, .address = address, .length = bytes};
    const char *why;
    tw_wire_encode(&h, header);
    tw_emu_handle(emu, header, payload, bytes, answer);
    if (tw_wire_decode(answer->header, &h, &why) || h.status) {
        fprintf(stderr, "load_bench: %s: %d %s\n", tw_wire_opcode_name(opcode), h.status,
                h.status ? ((const struct tw_wire_failure *)answer->payload)->what : why);
        exit(1);
    }
    return h.address;
}

static uint64_t place(struct tw_emu *emu, const void *bytes, uint64_t size) {
    struct tw_server_answer answer;
    struct tw_wire_alloc q = {size ? size : 8, 64, TW_WIRE_ALLOC_ZERO};
    uint64_t at = call(emu, TW_WIRE_ALLOC, 0, &q, sizeof q, &answer);
    if (bytes) {
        call(emu, TW_WIRE_WRITE, at, bytes, (uint32_t)size, &answer);
    }
    return at;
}

static void measure(struct tw_emu *emu, const struct tw_bundle *b, uint32_t i, uint64_t bind) {
    static const char *const mode[] = {"strict", "fast"};
    const struct tw_program *p = &b->programs[i];
    uint32_t bytes = tw_progblob_bytes(p, true);
    uint8_t *blob = aligned_alloc(64, (bytes + 63u) / 64 * 64);
    tw_progblob_write(p, true, blob);
    const struct tw_certificate *c = &b->certificates[i];
    struct tw_wire_load q = {.blob = place(emu, blob, bytes),
                             .blob_bytes = bytes,
                             .bind = bind,
                             .n_bind = b->n_bind_rows,
                             .certificate = place(emu, c->words, (uint64_t)c->n_words * 4),
                             .certificate_bytes = (uint64_t)c->n_words * 4,
                             .step_ops = c->step_ops};
    for (q.mode = TW_WIRE_STRICT; q.mode <= TW_WIRE_FAST; q.mode++) {
        double load = 1e9, check = 1e9;
        for (int run = 0; run < RUNS; run++) {
            struct tw_server_answer answer;
            double start = now_s();
            call(emu, TW_WIRE_LOAD, 0, &q, sizeof q, &answer);
            double took = now_s() - start;
            load = took < load ? took : load;
            check = check_s < check ? check_s : check;
            call(emu, TW_WIRE_UNLOAD, ((const struct tw_wire_loaded *)answer.payload)->program,
                 NULL, 0, &answer);
        }
        printf("%-14s %-6s %8u B blob %7u B certificate  check %6.2f ms of LOAD %6.2f ms\n",
               p->name, mode[q.mode], bytes, c->n_words * 4, 1e3 * check, 1e3 * load);
    }
    free(blob);
}

static void bench(const char *path) {
    struct tw_emu_options o = {.n_threads = 1, .verify = timed_verify};
    struct tw_emu *emu;
    struct tw_bundle b;
    tw_error err = {0};
    if (tw_bundle_open(path, 0, &b, &err) || tw_emu_create(&o, &emu, &err)) {
        fprintf(stderr, "load_bench: %s\n", err.message);
        exit(1);
    }
    uint64_t *segments = calloc(b.n_segments + 1, sizeof *segments),
             *rows = calloc(b.n_bind_rows + 1, sizeof *rows);
    for (uint32_t i = 0; i < b.n_segments; i++) {
        segments[i] = b.segments[i].size ? place(emu, NULL, b.segments[i].size) : 0;
    }
    tw_bundle_relocate(&b, segments, rows);
    uint64_t bind = place(emu, rows, b.n_bind_rows * 8);
    printf("%s\n", path);
    for (uint32_t i = 0; i < b.n_programs; i++) {
        measure(emu, &b, i, bind);
    }
    tw_emu_destroy(emu);
    tw_bundle_close(&b);
    free(segments);
    free(rows);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        bench(argv[i]);
    }
    return 0;
}
