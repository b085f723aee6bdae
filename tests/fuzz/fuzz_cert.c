/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes certificates and the section that holds them. Input: a byte that chooses the form, two
 * bytes that choose a small random program, and
 *   0: edits (kind, 16-bit place, 16-bit value) of the program's own certificate
 *   1: words of a certificate
 *   2: a seed of a mutant of the program, which gets a certificate of its own
 *   3: bytes over those of a valid .tw.cert, then the bytes of one
 * An accepted program is run in every interleaving, and must be clean.
 */
#include "tests/support/order_false_certificates.h"
#include "tests/support/order_judge.h"
#include "tests/support/order_mutate.h"
#include "tests/support/order_random.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok) {
    if (!ok) {
        abort();
    }
}

/* An allocation of the exact size, so that a sanitizer sees an access past the end. */
static void *exact(const void *bytes, size_t size) {
    void *copy = malloc(size ? size : 1);
    require(copy != NULL);
    if (size) {
        memcpy(copy, bytes, size);
    }
    return copy;
}

enum { MAX_OPS = 4096 }; /* of a step that is run: more take longer than an input may */

static void must_be_clean(const struct tw_program *p) {
    struct order_device d;
    if (tw_program_step_ops(p) > MAX_OPS) {
        return;
    }
    require(order_device_open(&d, p));
    for (uint32_t n = 0; n < 3; n++) {
        struct tw_explore_options options = {
            .steps = 2, .max_states = 1024, .max_depth = 32, .overlap = n == 1};
        struct order_inputs in = {0, n, n, 4, 0};
        struct tw_explore_result r;
        struct tw_fault fault;
        int rc = order_device_explore(&d, &in, options, (size_t)1 << 28, &r, &fault);
        require(rc != 0 || (r.found & ~(uint32_t)TW_EXPLORE_LIMIT) == 0 ||
                ((r.found & TW_EXPLORE_FAULT) && order_fault_is_input(&d, &r.fault)));
    }
    order_device_close(&d);
}

static void judge(const struct tw_program *p, const uint32_t *words, uint32_t n) {
    uint32_t *copy = exact(words, (size_t)n * 4);
    struct tw_certificate c = {copy, n, TW_STEP_OPS_UNSTATED};
    struct tw_verify_report report = {.failed_rule = 0};
    tw_error err = {0};
    int rc = tw_check_order(p, &c, &report, &err);
    require((rc == 0) == (err.message[0] == 0) && (rc == 0 || rc == TW_E_VERIFY));
    require(rc == 0 || (report.failed_rule >= TW_ORDER_certificate &&
                        report.failed_rule <= TW_ORDER_step_budget));
    if (rc == 0) {
        must_be_clean(p);
    }
    free(copy);
}

/* Edits of ops, then of the certificate, from the same bytes. */
static void edit_program(const struct tw_program *p, struct tw_cmem *mem, const uint8_t *data,
                         size_t size) {
    struct order_index index;
    struct tw_certificate none = {NULL, 0, TW_STEP_OPS_UNSTATED}, own;
    struct order_mutant m;
    uint64_t seed = 1;
    for (size_t i = 0; i < size && i < 8; i++) {
        seed = seed * 257 + data[i];
    }
    order_index_make(&index, p);
    if (order_mutate(&index, &none, size ? data[0] % ORDER_N_KINDS : 0, &seed, &m)) {
        if (tw_verify_program(&m.p, NULL, NULL) == 0) {
            (void)tw_certify(mem, &m.p, &own, NULL);
            judge(&m.p, own.words, own.n_words);
        }
        order_mutant_free(&m);
    }
    order_index_free(&index);
}

static void edit_certificate(const struct tw_program *p, struct tw_cmem *mem, const uint8_t *data,
                             size_t size) {
    struct tw_certificate own;
    struct order_false l;
    (void)tw_certify(mem, p, &own, NULL); /* may stop early */
    order_false_begin(&l, &own);
    for (; size >= 5; data += 5, size -= 5) {
        order_false_edit(&l, data[0], data[1] | (uint32_t)data[2] << 8,
                         data[3] | (uint32_t)data[4] << 8);
    }
    judge(p, l.words, l.n);
    order_false_free(&l);
}

static const uint8_t no_bindings[TW_HASH_BYTES];

/* Opens a valid section with the input written over its bytes, then the input alone. */
static void open_section(const struct tw_program *p, struct tw_cmem *mem, const uint8_t *data,
                         size_t size) {
    struct tw_certificate own, out[1];
    size_t bytes;
    tw_error err = {0};
    (void)tw_certify(mem, p, &own, NULL);
    if (own.n_words == 0) { /* stuck at once: nothing to pack */
        return;
    }
    uint8_t *packed = tw_certificate_pack(mem, p, &own, 1, &bytes);
    uint8_t *section = exact(packed, bytes);
    for (const uint8_t *at = data; at + 3 <= data + size; at += 3) {
        section[(at[0] | (size_t)at[1] << 8) % bytes] ^= at[2];
    }
    for (uint32_t form = 0; form < 2; form++) {
        uint8_t *whole = form ? exact(data, size) : section;
        size_t n = form ? size : bytes;
        int rc = tw_certificate_open(whole, n, p, 1, no_bindings, out, &err);
        require(rc == 0 || rc == TW_E_VERIFY);
        if (rc == 0) {
            judge(p, out[0].words, out[0].n_words);
        }
        free(whole);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_cmem mem;
    if (size < 3 || tw_cmem_init(&mem, NULL) != 0) {
        return 0;
    }
    struct order_small x = order_small_program(data[1] | (uint64_t)data[2] << 8);
    const struct tw_program *p = &x.b->p;
    if (tw_verify_program(p, NULL, NULL) == 0) {
        uint32_t *words;
        switch (data[0] % 4) {
        case 0:
            edit_certificate(p, &mem, data + 3, size - 3);
            break;
        case 1:
            words = exact(data + 3, size - 3);
            judge(p, words, (uint32_t)((size - 3) / 4));
            free(words);
            break;
        case 2:
            edit_program(p, &mem, data + 3, size - 3);
            break;
        default:
            open_section(p, &mem, data + 3, size - 3);
            break;
        }
    }
    pb_free(x.b);
    tw_cmem_finish(&mem);
    return 0;
}
