/* SPDX-License-Identifier: Apache-2.0
 *
 * What certifying costs when the engines of many sites exchange flags in a loop that they enter
 * together: processor time in proportion to the flags, not to their square. The programs are text:
 * a chain of sites, each with flags to the next one and back, and sites that all raise flags of
 * all.
 */
#include "compiler/spatial/certify.h"
#include "loader/order/certificate.h"
#include "loader/text/parse_program.h"
#include "loader/verify/verify.h"
#include "tests/support/test.h"

#include <time.h>

enum { TIMES = 8, RUNS = 3, SITES = 736 };

static void write_head(FILE *out, uint32_t n, bool all) {
    fprintf(out,
            "program p rows=1 sites=%u mesh=%ux1 chips=1 sram=4096\n"
            "group 0 chip=0 x=0..%u y=0..1\n"
            "semaphore 0 local role=gather group=0\n"
            "semaphore 1 gather role=gather group=0\n"
            "semaphore 2 release role=release group=0\n"
            "semaphore 3 valid role=valid group=0\n"
            "semaphore 4 ready role=ready group=0%s\n"
            "section 0 s0 repeat=1 buffers=0+0 semaphores=0+5 stages=0+%u local=0 gather=1 "
            "release=2\n",
            n, n, n, all ? "" : " initial=1", n);
    for (uint32_t i = 0; i < n; i++) {
        fprintf(out, "stage %u demo kind=sync site=%u engine=store section=0\n", i, i);
    }
}

/* Site i tells the next one that data is there, and the one before that there is room. */
static void write_chain(FILE *out, uint32_t i, uint32_t n) {
    fprintf(out, "    loop v1 < %d {\n", TIMES);
    if (i + 1 < n) {
        fprintf(out,
                "    sem_wait ready@4 >= 1+v0*%d+v1*1\n"
                "    sem_inc valid@3 site=%u 1\n",
                TIMES, i + 1);
    }
    if (i > 0) {
        fprintf(out,
                "    sem_wait valid@3 >= 1+v0*%d+v1*1\n"
                "    sem_inc ready@4 site=%u 1\n",
                TIMES, i - 1);
    }
    fprintf(out, "    }\n");
}

/* Two barriers in each iteration, so that nobody raises a flag that is still waited for. */
static void write_all(FILE *out, uint32_t n) {
    fprintf(out, "    loop v1 < %d {\n", TIMES);
    for (uint32_t k = 3; k < 5; k++) {
        const char *name = k == 3 ? "valid" : "ready";
        fprintf(out,
                "    mcast_set %s@%u group=0\n"
                "    sem_wait %s@%u >= %u+v0*%u+v1*%u\n",
                name, k, name, k, n, TIMES * n, n);
    }
    fprintf(out, "    }\n");
}

static char *write_program(uint32_t n, bool all, size_t *size) {
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    assert_non_null(out);
    write_head(out, n, all);
    for (uint32_t i = 0; i < n; i++) {
        fprintf(out, "stream %u site=%u engine=store\n    stage=%u\n", 3 * i + 2, i, i);
        if (all) {
            write_all(out, n);
        } else {
            write_chain(out, i, n);
        }
        fprintf(out,
                "    sem_inc local@0 site=%u 1\n    sem_wait local@0 >= 1+v0*1\n"
                "    sem_inc gather@1 site=0 1\n",
                i);
        if (i == 0) {
            fprintf(out,
                    "    sem_wait gather@1 >= %u+v0*%u\n"
                    "    mcast_set release@2 group=0\n",
                    n, n);
        }
        fprintf(out, "    sem_wait release@2 >= 1+v0*1\n");
    }
    assert_int_equal(fclose(out), 0);
    return text;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Returns the seconds that it takes, the minimum of some runs. */
static double certify(uint32_t n, bool all) {
    struct tw_program_text *parsed = NULL;
    tw_error err = {0};
    size_t size = 0;
    double best = 1e9;
    char *text = write_program(n, all, &size);
    if (tw_program_parse("text", text, size, &parsed, &err) != 0 ||
        tw_verify_program(&parsed->program, NULL, &err) != 0) {
        fail_msg("%s", err.message);
    }
    for (uint32_t i = 0; i < RUNS; i++) {
        struct tw_cmem mem;
        struct tw_certificate certificate;
        assert_int_equal(tw_cmem_init(&mem, &err), 0);
        double begin = now();
        if (tw_certify(&mem, &parsed->program, &certificate, &err) != 0) {
            fail_msg("%s", err.message);
        }
        double seconds = now() - begin;
        best = seconds < best ? seconds : best;
        if (i == 0 && tw_check_order(&parsed->program, &certificate, NULL, &err) != 0) {
            fail_msg("%s", err.message);
        }
        tw_cmem_finish(&mem);
    }
    tw_program_text_free(parsed);
    free(text);
    return best;
}

static void expect_linear(const char *what, bool all) {
    double one = certify(SITES, all), four = certify(4 * SITES, all);
    print_message("%s: %u sites %.2f ms, %u sites %.2f ms\n", what, SITES, one * 1e3, 4 * SITES,
                  four * 1e3);
    assert_true(TEST_ASAN || TEST_TSAN || four < 8 * one + 0.002);
}

static void a_chain_of_sites_costs_what_its_flags_do(void **state) {
    (void)state;
    expect_linear("each with the next", false);
}

static void flags_to_all_sites_cost_what_their_ops_do(void **state) {
    (void)state;
    expect_linear("all with all", true);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_of_sites_costs_what_its_flags_do),
        cmocka_unit_test(flags_to_all_sites_cost_what_their_ops_do),
    };
    return cmocka_run_group_tests_name("certify_cost", tests, NULL, NULL);
}
