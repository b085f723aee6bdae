/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the cost of certificates: ns per op of verifying and checking as programs grow; the
 * rendezvous of 2 to 4,096 sites; in bundles, the certificate's share of the size and the time to
 * check it. Usage: order_bench [MODEL...] (GGUF or llama2.c files). TW_BENCH_OPS: ops of the
 * largest program, 10,000,000 if not set.
 */
#include "compiler/spatial/certify.h"
#include "compiler/spatial/compose.h"
#include "loader/bundle/loader.h"
#include "loader/target/target_open.h"
#include "tests/support/compile_stages.h"
#include "tests/support/mesh_boundary.h"
#include "tilewright/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* CPU time of this process, which has one thread: the load of the machine does not count. */
static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Peak memory of this process since the last call with `reset`, in MB. */
static double peak_mb(int reset) {
    char line[128];
    double kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "VmHWM: %lf", &kb) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    f = reset ? fopen("/proc/self/clear_refs", "w") : NULL;
    if (f) {
        fputs("5", f);
        fclose(f);
    }
    return kb / 1024;
}

static void die(const char *what, const tw_error *err) {
    fprintf(stderr, "order_bench: %s: %s\n", what, err->message);
    exit(1);
}

static uint64_t count_ops(const struct tw_program *p) {
    uint64_t n = 0;
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        for (uint32_t at = 0; at < p->streams[s].n_words; at += p->streams[s].words[at] >> 16) {
            n++;
        }
    }
    return n;
}

struct cost {
    double verify, certify, check; /* seconds, the minimum of several runs */
    uint32_t words;                /* of the certificate */
    double check_mb;               /* what the checker adds to the peak of memory */
};

static struct cost measure(struct tw_cmem *mem, const struct tw_program *p, uint32_t runs) {
    struct cost c = {1e9, 1e9, 1e9, 0, 0};
    struct tw_certificate cert;
    tw_error err = {0};
    for (uint32_t i = 0; i < runs; i++) {
        size_t used = mem->used;
        double a = now_s();
        if (tw_verify_program(p, NULL, &err)) {
            die(p->name, &err);
        }
        double b = now_s();
        if (tw_certify(mem, p, &cert, &err)) {
            die(p->name, &err);
        }
        (void)peak_mb(1);
        double before = peak_mb(0), d = now_s();
        if (tw_check_order(p, &cert, NULL, &err)) {
            die(p->name, &err);
        }
        double e = now_s(), mb = peak_mb(0) - before;
        c.verify = b - a < c.verify ? b - a : c.verify;
        c.check_mb = mb > c.check_mb ? mb : c.check_mb;
        c.certify = d - b < c.certify ? d - b : c.certify;
        c.check = e - d < c.check ? e - d : c.check;
        c.words = cert.n_words;
        tw_cmem_release(mem, used);
    }
    return c;
}

/* ---- growing programs ---- */

static const struct random_shape tiny = {.dim = 64,
                                         .hidden = 128,
                                         .n_layers = 2,
                                         .n_heads = 4,
                                         .n_kv_heads = 4,
                                         .head_dim = 16,
                                         .n_vocab = 64,
                                         .n_ctx = 128,
                                         .dtype = TW_DT_F32,
                                         .hollow = true};
/* Wide enough that every site of a large mesh has a share of its matrices. */
static const struct random_shape wide = {.dim = 512,
                                         .hidden = 4096,
                                         .n_layers = 1,
                                         .n_heads = 32,
                                         .n_kv_heads = 32,
                                         .head_dim = 16,
                                         .n_vocab = 65536,
                                         .n_ctx = 128,
                                         .dtype = TW_DT_F32,
                                         .hollow = true};

/* Repeats the layer's section as often as needed, each with its own buffers over the same bytes,
 * its own flags and its own rendezvous. A mesh of side 0 is the target's. */
static void grow(const char *target, uint32_t sites, uint32_t side,
                 const struct random_shape *shape, uint64_t ops) {
    struct random_model model;
    struct pipeline p;
    struct pipeline_program built;
    struct tw_builder out;
    tw_error err = {0};
    if (!random_model_init(&model, shape) || pipeline_init(&p, &model.model, target, sites, &err)) {
        die(target, &err);
    }
    p.target.width = side ? side : p.target.width;
    p.target.height = side ? side : p.target.height;
    if (pipeline_program(&p, 1, 0, &built, &err)) {
        die(target, &err);
    }
    struct tw_program one = tw_builder_program(&built.program);
    uint64_t base = count_ops(&one);
    struct tw_builder alone, *layer = built.sections[1];
    if (tw_compose(&layer, 1, "layer", &alone, &err)) {
        die(target, &err);
    }
    struct tw_program layer_program = tw_builder_program(&alone);
    uint64_t each = count_ops(&layer_program);
    uint32_t n = 2 + (ops > base ? (uint32_t)((ops - base + each - 1) / each) : 0) + 1;
    struct tw_builder **sections = calloc(n, sizeof *sections);
    sections[0] = built.sections[0];
    sections[n - 1] = built.sections[2];
    for (uint32_t i = 1; i + 1 < n; i++) {
        sections[i] = layer;
    }
    if (tw_compose(sections, n, "grown", &out, &err)) {
        die(target, &err);
    }
    struct tw_program program = tw_builder_program(&out);
    uint64_t total = count_ops(&program);
    struct cost c = measure(&p.mem, &program, total < 200000 ? 5 : 2);
    printf("%-8s %6u %9llu %7u %10.1f %10.1f %10.1f %10.1f %9.2f %9.1f\n", target, program.n_sites,
           (unsigned long long)total, n, c.verify * 1e9 / (double)total,
           c.check * 1e9 / (double)total, (c.verify + c.check) * 1e9 / (double)total,
           c.certify * 1e9 / (double)total, (double)c.words * 4 / (double)total, c.check_mb);
    fflush(stdout);
    free(sections);
    pipeline_finish(&p);
    random_model_finish(&model);
}

/* ---- the boundary of two sections ---- */

static void boundary(uint32_t width, uint32_t height) {
    struct mesh_boundary b;
    tw_error err = {0};
    if (mesh_boundary_make(&b, width, height, &err)) {
        die("boundary", &err);
    }
    const struct tw_program *p = &b.program;
    uint64_t ops = count_ops(p) - p->n_sites, max = 0,
             words = (uint64_t)p->n_semaphores * p->n_sites;
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        uint64_t n = 0;
        for (uint32_t at = 0; at < p->streams[s].n_words; at += p->streams[s].words[at] >> 16) {
            n++;
        }
        max = n > max ? n : max;
    }
    struct cost c = measure(&b.mem, p, p->n_sites < 300 ? 3 : 1);
    printf("%6u %8llu %10.2f %12llu %14llu %10.2f %10.2f %10.2f %10.2f %10.1f\n", p->n_sites,
           (unsigned long long)ops, (double)ops / (double)p->n_sites, (unsigned long long)max,
           (unsigned long long)words, c.verify * 1e3, c.check * 1e3, c.check * 1e9 / (double)ops,
           c.certify * 1e3, c.check_mb);
    fflush(stdout);
    mesh_boundary_finish(&b);
}

/* ---- bundles ---- */

/* Writes the target grid8x8 with another mesh; `path` is a name for mkstemp. */
static int write_target(char *path, uint32_t width, uint32_t height) {
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f) {
        return 1;
    }
    fprintf(f,
            "{\"name\":\"%ux%u\",\"chips\":1,\"width\":%u,\"height\":%u,"
            "\"sram_bytes\":1572864,\"banks\":12,\"clock_hz\":1e9,\"dram_bytes_per_cycle\":256.0,"
            "\"site_load_bytes_per_cycle\":32.0,\"fma_per_cycle\":256.0,"
            "\"int8_mac_per_cycle\":1024.0,\"vector_per_cycle\":32.0,"
            "\"link_bytes_per_cycle\":32.0,\"sync_cycles\":100.0,\"call_cycles\":30.0}",
            width, height, width, height);
    return fclose(f);
}

static int bundle(const char *model, const char *target, double limit_s) {
    char path[] = "/tmp/order_bench_XXXXXX";
    struct tw_compile_options options = {.size = sizeof options, .target = target};
    struct tw_compile_report report = {.size = sizeof report};
    struct tw_bundle b;
    struct stat st;
    tw_error err = {0};
    int fd = mkstemp(path);
    if (fd < 0) {
        return 1;
    }
    close(fd);
    if (tw_compile_file(model, path, &options, &report, &err)) {
        printf("%-34s %-8s %s\n", strrchr(model, '/') ? strrchr(model, '/') + 1 : model, target,
               err.message);
        unlink(path);
        return 0;
    }
    double best = 1e9, parse = 1e9, cert = 0;
    uint64_t ops = 0;
    for (uint32_t i = 0; i < 5; i++) {
        double a = now_s();
        if (tw_bundle_open(path, TW_BUNDLE_NO_RULES, &b, &err)) {
            die(path, &err);
        }
        double m = now_s();
        if (tw_bundle_check_rules(&b, NULL, &err)) {
            die(path, &err);
        }
        double e = now_s();
        parse = m - a < parse ? m - a : parse;
        best = e - m < best ? e - m : best;
        cert = 8;
        ops = 0;
        for (uint32_t k = 0; k < b.n_programs; k++) {
            cert += 40 + 4.0 * b.certificates[k].n_words;
            ops += count_ops(&b.programs[k]);
        }
        tw_bundle_close(&b);
    }
    stat(path, &st);
    unlink(path);
    double share = 100 * cert / (double)st.st_size;
    bool ok = best < limit_s && (share < 5 || st.st_size < 10000000);
    printf("%-34s %-8s %10.1f %9llu %10.0f %9.3f %9.2f %9.2f %s\n",
           strrchr(model, '/') ? strrchr(model, '/') + 1 : model,
           strrchr(target, '/') ? strrchr(target, '/') + 1 : target, (double)st.st_size / 1e6,
           (unsigned long long)ops, cert, share, parse * 1e3, best * 1e3,
           ok ? "" : "over the limit");
    fflush(stdout);
    return ok ? 0 : 1;
}

int main(int argc, char **argv) {
    static const uint32_t meshes[][2] = {{2, 1},   {4, 1},   {4, 2},   {4, 4},   {8, 4},
                                         {8, 8},   {16, 8},  {16, 16}, {32, 16}, {32, 23},
                                         {32, 32}, {46, 32}, {64, 32}, {65, 63}, {64, 64}};
    static const char *const targets[] = {"host", "sim4x4", "grid8x8"};
    int failed = 0;
    const char *limit = getenv("TW_BENCH_OPS");
    uint64_t most = limit ? strtoull(limit, NULL, 10) : 10000000;
    printf("Growing programs: layers one after the other, each a section of its own; ns per op.\n");
    printf("%-8s %6s %9s %7s %10s %10s %10s %10s %9s %9s\n", "target", "sites", "ops", "parts",
           "verify", "check", "both", "certify", "cert B/op", "check MB");
    for (uint32_t t = 0; t < 3; t++) {
        for (uint64_t ops = 10000; ops <= most; ops *= 10) {
            grow(targets[t], 2, 0, &tiny, ops);
        }
    }
    printf("The same model, and a wider one, on larger meshes.\n");
    for (uint32_t side = 16; side <= 64; side *= 2) {
        grow("grid8x8", 0, side, &tiny, 0);
        grow("grid8x8", 0, side, &wide, 0);
    }
    printf("\nThe rendezvous between two sections.\n");
    printf("%6s %8s %10s %12s %14s %10s %10s %10s %10s %10s\n", "sites", "ops", "ops/site",
           "max/engine", "flag words", "verify ms", "check ms", "check/op", "certify ms",
           "check MB");
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        boundary(meshes[i][0], meshes[i][1]);
    }
    printf("\nBundles: the certificate's share (limit 5 %% over 10 MB), opening without rules, the "
           "rules (limit 100 "
           "ms).\n");
    printf("%-34s %-8s %10s %9s %10s %9s %9s %9s\n", "model", "target", "MB", "ops", "cert B",
           "share %", "open ms", "rules ms");
    for (int i = 1; i < (argc > 1 ? argc : 2); i++) {
        for (size_t t = 0; t < 3; t++) {
            failed |=
                bundle(argc > 1 ? argv[i] : "tests/data/fairytale-1.7m-Q8_0.gguf", targets[t], 0.1);
        }
        /* 1,472 and 4,096 sites; the limit for the first is 300 ms */
        static const uint32_t large[][2] = {{46, 32}, {64, 64}};
        for (size_t t = 0; t < 2; t++) {
            char path[] = "/tmp/order_bench_target_XXXXXX";
            if (write_target(path, large[t][0], large[t][1])) {
                return 1;
            }
            failed |= bundle(argc > 1 ? argv[i] : "tests/data/fairytale-1.7m-Q8_0.gguf", path,
                             t ? 1.0 : 0.3);
            unlink(path);
        }
    }
    return failed;
}
