/* SPDX-License-Identifier: Apache-2.0
 *
 * Certificates that are missing, stale, truncated, or false: a good program with a wrong
 * certificate is refused or, if it is another order in which it can run, accepted; a bad program is
 * never accepted. TW_FALSE_CERTIFICATES=N tries N false ones for each program.
 */
#include "tests/support/order_false_certificates.h"
#include "tests/support/order_judge.h"
#include "tests/support/order_programs.h"
#include "tests/support/order_random.h"
#include "tests/support/program_text.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"

#include <dirent.h>

#define FOLDER "tests/loader/order_rules"
enum { LIES = 3000, WANDERS = 300 };

struct file {
    char path[300];
    char *bytes;
    struct tw_program_text *text;
    struct tw_cmem mem;
    struct tw_certificate certificate; /* a partial one if the certifier failed */
};

static void open_file(struct file *f, const char *name) {
    size_t size = 0;
    snprintf(f->path, sizeof f->path, FOLDER "/%s", name);
    f->bytes = text_read_file(f->path, &size);
    assert_non_null(f->bytes);
    assert_int_equal(tw_program_parse(f->path, f->bytes, size, &f->text, NULL), 0);
    assert_int_equal(tw_cmem_init(&f->mem, NULL), 0);
    assert_int_equal(tw_verify_program(&f->text->program, NULL, NULL), 0);
    (void)tw_certify(&f->mem, &f->text->program, &f->certificate, NULL);
}

static void close_file(struct file *f) {
    tw_cmem_finish(&f->mem);
    tw_program_text_free(f->text);
    free(f->bytes);
}

/* Returns true for a program that is refused out of caution although every interleaving gives the
 * same bytes; another certificate for it may be accepted. */
static bool is_harmless(const struct file *f) {
    return strstr(f->bytes, "; found: nothing") != NULL;
}

static uint32_t n_lies(void) {
    const char *n = getenv("TW_FALSE_CERTIFICATES");
    return n && atol(n) > 0 ? (uint32_t)atol(n) : TEST_ASAN ? LIES / 4 : LIES;
}

static int check(const struct tw_program *p, const struct order_false *l,
                 struct tw_verify_report *report) {
    /* An allocation of exactly that size, so that a sanitizer sees a read past its end. */
    uint32_t *words = malloc(l->n * sizeof *words + 1);
    assert_non_null(words);
    if (l->n) {
        memcpy(words, l->words, l->n * sizeof *words);
    }
    struct tw_certificate c = {words, l->n, TW_STEP_OPS_UNSTATED};
    memset(report, 0, sizeof *report);
    int rc = tw_check_order(p, &c, report, NULL);
    free(words);
    assert_true(rc == 0 || (rc == TW_E_VERIFY && report->failed_rule >= TW_ORDER_certificate &&
                            report->failed_rule <= TW_ORDER_step_budget));
    return rc;
}

/* ---- false certificates of the rules' programs ---- */

struct count {
    uint32_t lies, accepted, orders, complete, orders_accepted;
    uint32_t refused[ORDER_RULES];
};

static void lie_about(const struct file *f, bool good, struct count *n) {
    const struct tw_program *p = &f->text->program;
    struct tw_verify_report report;
    uint64_t seed = 1;
    for (uint32_t i = 0; i < n_lies(); i++) {
        struct order_false l;
        order_false_begin(&l, &f->certificate);
        for (uint32_t k = 1 + random_below(&seed, 4); k > 0; k--) {
            order_false_describe(&l, &seed);
        }
        bool accepted = check(p, &l, &report) == 0;
        n->lies++;
        n->accepted += accepted;
        n->refused[report.failed_rule]++;
        if (accepted && !good && !is_harmless(f)) {
            fail_msg("%s passes with false certificate %u", f->path, i);
        }
        order_false_free(&l);
    }
}

/* Every complete order of a good program is accepted, and none of a bad one. */
static void wander_about(const struct file *f, bool good, struct count *n) {
    const struct tw_program *p = &f->text->program;
    struct tw_verify_report report;
    uint64_t seed = 1;
    for (uint32_t i = 0; i < WANDERS; i++) {
        struct order_false l = {NULL, 0, 0};
        bool complete = order_false_wander(&l, p, &seed);
        bool accepted = check(p, &l, &report) == 0;
        n->orders++;
        n->complete += complete;
        n->orders_accepted += accepted;
        if (accepted != (good && complete) && !is_harmless(f)) {
            fail_msg("%s: order %u, %s, is %s (rule %d)", f->path, i,
                     complete ? "complete" : "stuck", accepted ? "accepted" : "refused",
                     report.failed_rule);
        }
        order_false_free(&l);
    }
}

static void no_false_certificate_lets_a_bad_program_pass(void **state) {
    struct count n[2] = {{0}};
    DIR *folder = opendir(FOLDER);
    (void)state;
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        struct file f;
        bool good = strstr(e->d_name, ".ok.") != NULL;
        if (!good && !strstr(e->d_name, ".bad.")) {
            continue;
        }
        open_file(&f, e->d_name);
        lie_about(&f, good, &n[good]);
        wander_about(&f, good, &n[good]);
        close_file(&f);
    }
    closedir(folder);
    for (uint32_t g = 0; g < 2; g++) {
        print_message("%s programs: %u false certificates, %u accepted; refused by rule",
                      g ? "good" : "bad", n[g].lies, n[g].accepted);
        for (uint32_t r = 1; r < ORDER_RULES; r++) {
            if (n[g].refused[r]) {
                print_message(" %u:%u", r, n[g].refused[r]);
            }
        }
        print_message("; %u orders at random, %u complete, %u accepted\n", n[g].orders,
                      n[g].complete, n[g].orders_accepted);
    }
    /* something was tried */
    assert_true(n[1].accepted > 0 && n[1].orders_accepted > 0 && n[0].complete > 0);
}

/* ---- false certificates of compiled programs and their mutants ---- */

static void try_lies(struct order_program *x, const struct order_mutant *m, struct count *n,
                     uint64_t *seed) {
    struct tw_verify_report report;
    for (uint32_t i = 0; i < 40; i++) {
        struct tw_certificate given = {m->words, m->n_words, TW_STEP_OPS_UNSTATED};
        struct order_false l;
        order_false_begin(&l, m->n_words && i % 2 ? &given : &x->certificate);
        for (uint32_t k = 1 + random_below(seed, 3); k > 0; k--) {
            order_false_edit(&l, 6 + random_below(seed, 4), (uint32_t)random_next(seed),
                             (uint32_t)random_next(seed));
        }
        n->lies++;
        /* accepted: harmless if running it finds nothing, else the checker has a hole */
        if (check(&m->p, &l, &report) == 0) {
            struct order_device d;
            n->accepted++;
            assert_true(order_device_open(&d, &m->p));
            struct order_trial t = order_try(&d, &x->scenario[0], 20, 13, i, NULL, 0);
            if (!t.safe) {
                fail_msg("%s:%s passes with a false certificate: %s", x->name, m->text, t.what);
            }
            order_device_close(&d);
        }
        order_false_free(&l);
    }
}

static void no_false_certificate_lets_a_bad_mutant_pass(void **state) {
    static struct order_program x;
    struct count n = {0};
    uint32_t bad = 0;
    (void)state;
    for (uint32_t p = 2; p < 4; p++) {
        uint64_t seed = p;
        assert_true(order_program_make(p, &x, NULL));
        for (uint32_t tries = 0; tries < 20000 && bad < 60 * (p - 1); tries++) {
            struct order_mutant m;
            if (!order_mutate(&x.index, &x.certificate, random_below(&seed, ORDER_N_KINDS), &seed,
                              &m)) {
                continue;
            }
            struct tw_certificate given = {m.words, m.n_words, TW_STEP_OPS_UNSTATED};
            struct order_verdict v = order_judge(&x.pipeline.mem, &m.p, &given);
            if (!v.structural && v.rule > 0) {
                bad++;
                try_lies(&x, &m, &n, &seed);
            }
            order_mutant_free(&m);
        }
        order_program_free(&x);
    }
    print_message("%u bad mutants, %u false certificates, %u accepted and harmless\n", bad, n.lies,
                  n.accepted);
    assert_true(bad >= 100);
}

/* A RUN turn may be split anywhere: the certificate is still a valid order. */
static void splitting_runs_changes_nothing(void **state) {
    static struct order_program x;
    (void)state;
    for (uint32_t p = 0; p < order_n_programs; p += 3) {
        uint64_t seed = p;
        struct tw_verify_report report;
        struct order_false l;
        assert_true(order_program_make(p, &x, NULL));
        order_false_begin(&l, &x.certificate);
        order_false_split(&l, &seed);
        order_false_split(&l, &seed);
        assert_true(l.n > x.certificate.n_words);
        assert_int_equal(check(&x.program, &l, &report), 0);
        order_false_free(&l);
        order_program_free(&x);
    }
}

/* ---- the section ---- */

static uint8_t *exact_copy_of(const void *bytes, size_t n) {
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n) {
        memcpy(copy, bytes, n);
    }
    return copy;
}

static const uint8_t no_bindings[TW_HASH_BYTES];

static void must_fail(const void *section, size_t size, const struct tw_program *p, uint32_t n,
                      const char *says) {
    struct tw_certificate out[2];
    tw_error err = {0};
    assert_int_equal(tw_certificate_open(section, size, p, n, no_bindings, out, &err), TW_E_VERIFY);
    if (strncmp(err.message, "rule 18 certificate: .tw.cert: ", 31) != 0 ||
        !strstr(err.message, says)) {
        fail_msg("expected a refusal by rule 18 that says \"%s\": %s", says, err.message);
    }
}

static void a_certificate_is_complete_and_of_this_program(void **state) {
    struct file f[2];
    struct tw_program p[2];
    struct tw_certificate c[2], out[2];
    size_t size;
    tw_error err = {0};
    (void)state;
    open_file(&f[0], "22-closed_loop.ok.tws");
    open_file(&f[1], "24-race_free.ok.tws");
    for (uint32_t i = 0; i < 2; i++) {
        p[i] = f[i].text->program;
        c[i] = f[i].certificate;
    }
    uint8_t *section = tw_certificate_pack(&f[0].mem, p, c, 2, &size);
    assert_int_equal(tw_certificate_open(section, size, p, 2, no_bindings, out, &err), 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(out[i].n_words, c[i].n_words);
        assert_memory_equal(out[i].words, c[i].words, c[i].n_words * 4);
        assert_int_equal(tw_check_order(&p[i], &out[i], NULL, NULL), 0);
    }
    must_fail(NULL, size, p, 2, "missing");
    for (size_t n = 0; n < size; n++) {
        uint8_t *part = exact_copy_of(section, n);
        must_fail(part, n, p, 2, "");
        free(part);
    }
    must_fail(section, size, p, 1, "number of programs");
    struct tw_program twice[2] = {p[1], p[0]};
    must_fail(section, size, twice, 2, "stale");
    for (size_t at = 0; at < sizeof(struct tw_cert_header) + 2 * sizeof(struct tw_cert_entry);
         at++) {
        uint8_t *other = exact_copy_of(section, size);
        other[at] ^= 0x80;
        /* where its words are: another value may be valid, too */
        const size_t head = sizeof(struct tw_cert_header), entry = sizeof(struct tw_cert_entry);
        size_t part = at >= head ? (at - head) / entry : 0,
               in = at >= head ? (at - head) % entry : 0;
        bool is_words = in >= offsetof(struct tw_cert_entry, first_word) &&
                        in < offsetof(struct tw_cert_entry, step_ops);
        bool is_ops = in >= offsetof(struct tw_cert_entry, step_ops);
        struct tw_verify_report report = {.failed_rule = 0};
        int rc = tw_certificate_open(other, size, p, 2, no_bindings, out, &err);
        if (is_ops) { /* what it states is compared where the ops are counted */
            assert_int_equal(rc, 0);
            rc = tw_check_order(&p[part], &out[part], &report, &err);
            assert_int_equal(report.failed_rule, TW_ORDER_step_budget);
        }
        assert_true(rc == TW_E_VERIFY || (is_words && rc == 0));
        free(other);
    }
    close_file(&f[0]);
    close_file(&f[1]);
}

/* A certificate made for other bindings is refused. One of the first edition, which states neither
 * bindings nor ops per step, is still accepted. */
static void a_certificate_is_bound_to_the_bindings_of_its_tensors(void **state) {
    struct file f;
    size_t size;
    tw_error err = {0};
    struct tw_certificate out;
    uint8_t elsewhere[TW_HASH_BYTES] = {1};
    (void)state;
    open_file(&f, "24-race_free.ok.tws");
    const struct tw_program *p = &f.text->program;
    uint8_t *section = tw_certificate_pack(&f.mem, p, &f.certificate, 1, &size);
    assert_int_equal(tw_certificate_open(section, size, p, 1, elsewhere, &out, &err), TW_E_VERIFY);
    assert_non_null(strstr(err.message, "made for other bindings"));
    assert_int_equal(tw_certificate_open(section, size, p, 1, no_bindings, &out, &err), 0);
    assert_int_equal(out.step_ops, tw_program_step_ops(p));

    struct tw_cert_header_1 header = {TW_CERT_MAGIC_1, 1};
    struct tw_cert_entry_1 entry = {.n_words = f.certificate.n_words};
    tw_program_hash(p, entry.program_hash);
    size_t words = (size_t)f.certificate.n_words * 4;
    uint8_t *old = malloc(sizeof header + sizeof entry + words);
    assert_non_null(old);
    memcpy(old, &header, sizeof header);
    memcpy(old + sizeof header, &entry, sizeof entry);
    memcpy(old + sizeof header + sizeof entry, f.certificate.words, words);
    size = sizeof header + sizeof entry + words;
    assert_int_equal(tw_certificate_open(old, size, p, 1, elsewhere, &out, &err), 0);
    assert_int_equal(out.step_ops, TW_STEP_OPS_UNSTATED);
    assert_int_equal(tw_check_order(p, &out, NULL, &err), 0);
    free(old);
    close_file(&f);
}

static bool same_bytes(const void *a, const void *b, size_t n) {
    return n == 0 || memcmp(a, b, n) == 0;
}

static bool same_program(const struct tw_program *a, const struct tw_program *b) {
    for (uint32_t i = 0; i < a->n_sites * TW_ENGINE_COUNT; i++) {
        const struct tw_stream *s = &a->streams[i], *t = &b->streams[i];
        if (s->n_words != t->n_words || !same_bytes(s->words, t->words, (size_t)s->n_words * 4)) {
            return false;
        }
    }
    return a->rows == b->rows && !memcmp(a->sram_bytes, b->sram_bytes, sizeof a->sram_bytes) &&
           a->mesh_width == b->mesh_width &&
           same_bytes(a->tensors, b->tensors, a->n_tensors * sizeof *a->tensors) &&
           same_bytes(a->buffers, b->buffers, a->n_buffers * sizeof *a->buffers) &&
           same_bytes(a->semaphores, b->semaphores, a->n_semaphores * sizeof *a->semaphores) &&
           same_bytes(a->groups, b->groups, a->n_groups * sizeof *a->groups) &&
           same_bytes(a->trips, b->trips, a->n_trips * sizeof *a->trips) &&
           same_bytes(a->stages, b->stages, a->n_stages * sizeof *a->stages) &&
           same_bytes(a->sections, b->sections, a->n_sections * sizeof *a->sections);
}

/* Every difference of a program changes its hash. */
static void the_hash_covers_all_that_a_program_does(void **state) {
    static struct order_program x;
    uint8_t hash[TW_HASH_BYTES], other[TW_HASH_BYTES];
    uint64_t seed = 5;
    (void)state;
    assert_true(order_program_make(2, &x, NULL));
    tw_program_hash(&x.program, hash);
    for (uint32_t i = 0; i < 400; i++) {
        struct order_mutant m;
        if (order_mutate(&x.index, &x.certificate, random_below(&seed, ORDER_KIND_ALL_SITES), &seed,
                         &m)) {
            tw_program_hash(&m.p, other);
            assert_true(memcmp(hash, other, sizeof hash) != 0 || same_program(&x.program, &m.p));
            order_mutant_free(&m);
        }
    }
    order_program_free(&x);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_certificate_is_complete_and_of_this_program),
        cmocka_unit_test(a_certificate_is_bound_to_the_bindings_of_its_tensors),
        cmocka_unit_test(the_hash_covers_all_that_a_program_does),
        cmocka_unit_test(splitting_runs_changes_nothing),
        cmocka_unit_test(no_false_certificate_lets_a_bad_program_pass),
        cmocka_unit_test(no_false_certificate_lets_a_bad_mutant_pass),
    };
    return cmocka_run_group_tests_name("certificate", tests, NULL, NULL);
}
