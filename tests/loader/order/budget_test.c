/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checker allocates for programs whose records claim much: at most a constant, and a number
 * of bytes for each byte of the program (loader/README.md, "Memory"). Allocations are counted by
 * replacing malloc, so builds with a sanitizer skip this.
 */
#include "compiler/spatial/certify.h"
#include "loader/text/parse_program.h"
#include "tests/support/mesh_boundary.h"
#include "tests/support/test.h"

#include <malloc.h>
#include <stdatomic.h>

#define COUNTS (!TEST_ASAN && !TEST_TSAN)

/* Bytes of the structural rules and of the order rules: so many, and so many a byte. */
enum {
    VERIFY_FREE = 2 << 20, /* TW_VF_WORDS_FREE of 8 bytes, and some */
    ORDER_FREE = 8 << 20,
    PER_BYTE = 64,
};

static _Atomic size_t held, peak;

static void add(void *p) {
    size_t now = atomic_fetch_add(&held, malloc_usable_size(p)) + malloc_usable_size(p);
    size_t top = atomic_load(&peak);
    while (now > top && !atomic_compare_exchange_weak(&peak, &top, now)) {
    }
}

#if COUNTS
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *p, size_t bytes);
extern void __libc_free(void *p);

void *malloc(size_t bytes) {
    void *p = __libc_malloc(bytes);
    add(p);
    return p;
}
void *calloc(size_t n, size_t bytes) {
    void *p = __libc_calloc(n, bytes);
    add(p);
    return p;
}
void *realloc(void *p, size_t bytes) {
    atomic_fetch_sub(&held, malloc_usable_size(p));
    void *fresh = __libc_realloc(p, bytes);
    add(fresh ? fresh : p);
    return fresh;
}
void free(void *p) {
    atomic_fetch_sub(&held, malloc_usable_size(p));
    __libc_free(p);
}
#endif

static uint64_t program_bytes(const struct tw_program *p) {
    uint64_t n = p->strings_bytes + p->n_tensors * sizeof *p->tensors +
                 p->n_buffers * sizeof *p->buffers + p->n_groups * sizeof *p->groups +
                 p->n_semaphores * sizeof *p->semaphores + p->n_stages * sizeof *p->stages +
                 p->n_sections * sizeof *p->sections;
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        n += p->streams[s].n_words * sizeof(uint32_t);
    }
    return n;
}

/* Verifies, certifies and checks; the program obeys all rules, or (refused) all but that about
 * sizes. */
static void expect_budget(const char *what, const struct tw_program *p, bool refused) {
    struct tw_cmem mem;
    struct tw_certificate certificate;
    tw_error err = {0};
    uint64_t bytes = program_bytes(p);
    atomic_store(&peak, atomic_load(&held));
    size_t before = atomic_load(&held);
    if ((tw_verify_program(p, NULL, &err) != 0) != refused) {
        fail_msg("%s: %s", what, err.message);
    }
    size_t verify = atomic_load(&peak) - before;
    if (refused) {
        assert_non_null(strstr(err.message, "semaphore words"));
        assert_true(verify <= VERIFY_FREE + PER_BYTE * bytes);
        return;
    }
    assert_int_equal(tw_cmem_init(&mem, &err), 0);
    if (tw_certify(&mem, p, &certificate, &err) != 0) {
        fail_msg("%s: %s", what, err.message);
    }
    before = atomic_load(&held);
    atomic_store(&peak, before);
    if (tw_check_order(p, &certificate, NULL, &err) != 0) {
        fail_msg("%s: %s", what, err.message);
    }
    size_t order = atomic_load(&peak) - before;
    tw_cmem_finish(&mem);
    print_message("%-40s %9llu bytes: verify %7.2f MB, order %7.2f MB\n", what,
                  (unsigned long long)bytes, (double)verify / 1e6, (double)order / 1e6);
    assert_true(verify <= VERIFY_FREE + PER_BYTE * bytes);
    assert_true(order <= ORDER_FREE + PER_BYTE * bytes);
}

/* ---- records that claim much ---- */

/* One site of a mesh has ops; `extra` are more records, and n_semaphores counts theirs. */
static void expect_text(const char *what, uint32_t side, uint32_t pages, const char *extra,
                        uint32_t n_semaphores, bool refused) {
    static const char form[] =
        "program p rows=1 sites=%u mesh=%ux%u chips=1 sram=1073741824\n"
        "tensor 0 in role=param dtype=f32 shape=1x16 packing=row bytes=64 bind=0+1\n"
        "tensor 1 out role=output dtype=f32 shape=1x16 packing=row bytes=64 bind=1+1\n"
        "buffer 0 f site=0 kind=fifo dtype=f32 pages=%ux64 offset=0 ends=load>store\n"
        "group 0 chip=0 x=0..1 y=0..1\n"
        "group 1 chip=0 x=0..%u y=0..%u\n"
        "semaphore 0 local role=gather group=0\n"
        "semaphore 1 gather role=gather group=0\n"
        "semaphore 2 release role=release group=0\n"
        "%s"
        "section 0 s0 repeat=1 buffers=0+1 semaphores=0+%u stages=0+2 local=0 gather=1 "
        "release=2\n"
        "stage 0 demo kind=compute site=0 engine=load section=0\n"
        "stage 1 demo kind=compute site=0 engine=store section=0\n"
        "stream 0 site=0 engine=load\n"
        "    stage=0\n"
        "    reserve f@0 1\n"
        "    read in@0[0, 0] -> f@0[0] n=1 b=64 s=64 s=64\n"
        "    push f@0 1\n"
        "    sem_inc local@0 site=0 1\n"
        "    sem_wait local@0 >= 2+v0*2\n"
        "    sem_inc gather@1 site=0 1\n"
        "    sem_wait gather@1 >= 1+v0*1\n"
        "    sem_inc release@2 site=0 1\n"
        "    sem_wait release@2 >= 1+v0*1\n"
        "stream 2 site=0 engine=store\n"
        "    stage=1\n"
        "    wait f@0 1\n"
        "    write f@0[0] s=64 -> out@1[0, 0] s=64 b=64 rows=1\n"
        "    pop f@0 1\n"
        "    sem_inc local@0 site=0 1\n"
        "    sem_wait release@2 >= 1+v0*1\n";
    size_t size = sizeof form + strlen(extra) + 200;
    char *text = malloc(size);
    struct tw_program_text *parsed = NULL;
    tw_error err = {0};
    assert_non_null(text);
    int n = snprintf(text, size, form, side * side, side, side, pages, side, side, extra,
                     3 + n_semaphores);
    if (tw_program_parse("text", text, (size_t)n, &parsed, &err) != 0) {
        fail_msg("%s: %s", what, err.message);
    }
    expect_budget(what, &parsed->program, refused);
    tw_program_text_free(parsed);
    free(text);
}

static void records_that_claim_much_cost_little(void **state) {
    enum { SEMAPHORES = 4000, LINE = 60 };
    char *extra = calloc(SEMAPHORES, LINE);
    (void)state;
    if (!COUNTS) {
        free(extra);
        skip();
    }
    assert_non_null(extra);
    for (uint32_t i = 0, at = 0; i < SEMAPHORES; i++) {
        at += (uint32_t)snprintf(extra + at, LINE, "semaphore %u flag%u role=valid group=1\n",
                                 3 + i, i);
    }
    expect_text("nothing much", 1, 1, "", 0, false);
    expect_text("4,096 sites", 64, 1, "", 0, false);
    expect_text("a FIFO of four million pages", 1, 1 << 22, "", 0, false);
    expect_text("4,000 semaphores on 4,096 sites", 64, 1, extra, SEMAPHORES, true);
    expect_text("4,000 semaphores on 25 sites", 5, 1, extra, SEMAPHORES, false);
    free(extra);
}

/* ---- multicasts ---- */

/* Returns the text of a program in which site 0 of a mesh sends a page n times to a set of siblings
 * on all sites. */
static char *write_multicasts(uint32_t side, uint32_t n, size_t *size) {
    char *text = NULL;
    uint32_t sites = side * side;
    FILE *out = open_memstream(&text, size);
    assert_non_null(out);
    fprintf(out,
            "program p rows=1 sites=%u mesh=%ux%u chips=1 sram=8192\n"
            "tensor 0 in role=param dtype=f32 shape=1x16 packing=row bytes=64 bind=0+1\n"
            "buffer 0 f site=0 kind=fifo dtype=f32 pages=1x64 offset=0 ends=load>store\n",
            sites, side, side);
    for (uint32_t i = 0; i < sites; i++) {
        fprintf(out,
                "buffer %u y site=%u kind=resident dtype=f32 pages=1x64 offset=64 ends=math>math "
                "siblings=1\n",
                1 + i, i);
    }
    fprintf(out,
            "group 0 chip=0 x=0..%u y=0..%u\n"
            "semaphore 0 valid role=valid group=0\n"
            "semaphore 1 local role=gather group=0\n"
            "semaphore 2 gather role=gather group=0\n"
            "semaphore 3 release role=release group=0\n"
            "section 0 s0 repeat=1 buffers=0+%u semaphores=0+4 stages=0+2 local=1 "
            "gather=2 release=3\n"
            "stage 0 demo kind=compute site=0 engine=load section=0\n"
            "stage 1 demo kind=compute site=0 engine=store section=0\n"
            "stream 0 site=0 engine=load\n    stage=0\n    reserve f@0 1\n"
            "    read in@0[0, 0] -> f@0[0] n=1 b=64 s=64 s=64\n    push f@0 1\n"
            "    sem_inc local@1 site=0 1\n    sem_wait local@1 >= 2+v0*2\n"
            "    sem_inc gather@2 site=0 1\n    sem_wait gather@2 >= 1+v0*1\n"
            "    sem_inc release@3 site=0 1\n    sem_wait release@3 >= 1+v0*1\n"
            "stream 2 site=0 engine=store\n    stage=1\n    wait f@0 1\n",
            side, side, sites + 1);
    for (uint32_t i = 0; i < n; i++) {
        fprintf(out, "    mcast f@0[0] s=64 -> y@1[0] s=64 b=64 rows=1 group=0\n"
                     "    mcast_set valid@0 group=0\n");
    }
    fprintf(out, "    pop f@0 1\n    sem_inc local@1 site=0 1\n"
                 "    sem_wait release@3 >= 1+v0*1\n");
    assert_int_equal(fclose(out), 0);
    return text;
}

/* A multicast is one access, however many sites it reaches: 2,000 to 4,096 sites would be eight
 * million. */
static void multicasts_cost_what_their_ops_do(void **state) {
    struct tw_program_text *parsed = NULL;
    tw_error err = {0};
    size_t size = 0;
    (void)state;
    if (!COUNTS) {
        skip();
    }
    char *text = write_multicasts(64, 2000, &size);
    if (tw_program_parse("multicasts", text, size, &parsed, &err) != 0) {
        fail_msg("%s", err.message);
    }
    expect_budget("2,000 multicasts to 4,096 sites", &parsed->program, false);
    tw_program_text_free(parsed);
    free(text);
}

/* ---- engines that all have ops ---- */

static void many_engines_cost_what_their_ops_do(void **state) {
    struct mesh_boundary b;
    tw_error err = {0};
    (void)state;
    if (!COUNTS) {
        skip();
    }
    assert_int_equal(mesh_boundary_make(&b, 64, 64, &err), 0);
    expect_budget("a rendezvous of 4,096 sites", &b.program, false);
    mesh_boundary_finish(&b);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_that_claim_much_cost_little),
        cmocka_unit_test(multicasts_cost_what_their_ops_do),
        cmocka_unit_test(many_engines_cost_what_their_ops_do),
    };
    return cmocka_run_group_tests_name("budget", tests, NULL, NULL);
}
