/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the section .tw.cert (loader/order/certificate.h), and computes the hash that ties a
 * certificate to its program.
 */
#include "loader/order/certificate.h"

#include "loader/base/hash.h"
#include "tilewright/range.h"

#include <stdbool.h>
#include <string.h>

static void hash_table(struct tw_hash *h, const void *records, uint32_t n, size_t bytes) {
    tw_hash_update(h, &n, sizeof n);
    tw_hash_update(h, records, n * bytes);
}

static void hash_tensors(struct tw_hash *h, const struct tw_program *p) {
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        struct tw_tensor t = p->tensors[i];
        t.bind_first = 0; /* bindings belong to the bundle, not to the program */
        tw_hash_update(h, &t, sizeof t);
    }
}

void tw_program_hash(const struct tw_program *p, uint8_t out[TW_HASH_BYTES]) {
    struct tw_hash h;
    uint32_t shape[5] = {p->rows, p->n_sites, p->mesh_width, p->mesh_height, p->n_chips};
    tw_hash_init(&h);
    tw_hash_update(&h, p->name, strlen(p->name) + 1);
    tw_hash_update(&h, shape, sizeof shape);
    tw_hash_update(&h, p->sram_bytes, sizeof p->sram_bytes);
    hash_tensors(&h, p);
    hash_table(&h, p->buffers, p->n_buffers, sizeof *p->buffers);
    hash_table(&h, p->semaphores, p->n_semaphores, sizeof *p->semaphores);
    hash_table(&h, p->groups, p->n_groups, sizeof *p->groups);
    hash_table(&h, p->trips, p->n_trips, sizeof *p->trips);
    hash_table(&h, p->stages, p->n_stages, sizeof *p->stages);
    hash_table(&h, p->sections, p->n_sections, sizeof *p->sections);
    for (uint32_t i = 0; i < p->n_sites * TW_ENGINE_COUNT; i++) {
        hash_table(&h, p->streams[i].words, p->streams[i].n_words, sizeof(uint32_t));
    }
    tw_hash_final(&h, out);
}

static int bad(tw_error *err, const char *what, uint64_t found, uint64_t expected) {
    return tw_fail(err, TW_E_VERIFY, "rule 18 certificate: .tw.cert: %s: found %llu, expected %llu",
                   what, (unsigned long long)found, (unsigned long long)expected);
}

/* Sizes in one of the two versions of the section. */
struct version {
    size_t header, entry;
    bool states_ops; /* the second version states the ops per step */
};

static int read_entry(const uint8_t *at, size_t bytes, uint64_t n_words,
                      const struct tw_program *program, struct tw_cert_entry *e, tw_error *err) {
    uint8_t hash[TW_HASH_BYTES];
    memset(e, 0, sizeof *e);
    memcpy(e, at, bytes);
    if (!tw_range_ok(e->first_word, e->n_words, n_words)) {
        return bad(err, "words end", (uint64_t)e->first_word + e->n_words, n_words);
    }
    tw_program_hash(program, hash);
    if (memcmp(hash, e->program_hash, sizeof hash) != 0) {
        return tw_fail(err, TW_E_VERIFY,
                       "rule 18 certificate: .tw.cert: the certificate of program %s is stale: it "
                       "was made for another program; recompile the bundle",
                       program->name);
    }
    return 0;
}

static int check_header(const uint8_t *bytes, size_t size, uint32_t n,
                        const uint8_t bindings_hash[TW_HASH_BYTES], struct version *version,
                        tw_error *err) {
    struct tw_cert_header header;
    memset(&header, 0, sizeof header);
    size_t small = sizeof(struct tw_cert_header_1);
    if (!bytes || size < small) {
        return bad(err, "missing or truncated: bytes", bytes ? size : 0, small);
    }
    memcpy(&header, bytes, small);
    bool first = header.magic == TW_CERT_MAGIC_1;
    *version = first ? (struct version){small, sizeof(struct tw_cert_entry_1), false}
                     : (struct version){sizeof header, sizeof(struct tw_cert_entry), true};
    if (!first && header.magic != TW_CERT_MAGIC) {
        return bad(err, "magic", header.magic, TW_CERT_MAGIC);
    }
    if (header.n_programs != n) {
        return bad(err, "number of programs", header.n_programs, n);
    }
    uint64_t fixed = version->header + (uint64_t)n * version->entry;
    if (size < fixed) {
        return bad(err, "missing or truncated: bytes", size, fixed);
    }
    memcpy(&header, bytes, version->header);
    if (!first && memcmp(header.bindings_hash, bindings_hash, TW_HASH_BYTES) != 0) {
        return tw_fail(err, TW_E_VERIFY,
                       "rule 18 certificate: .tw.cert: the certificates were made for other "
                       "bindings of the tensors; recompile the bundle");
    }
    return 0;
}

int tw_certificate_open(const void *section, size_t size, const struct tw_program *programs,
                        uint32_t n, const uint8_t bindings_hash[TW_HASH_BYTES],
                        struct tw_certificate *out, tw_error *err) {
    const uint8_t *bytes = section;
    struct version version = {0, 0, false};
    int rc = check_header(bytes, size, n, bindings_hash, &version, err);
    if (rc) {
        return rc;
    }
    size_t fixed = version.header + n * version.entry;
    const uint8_t *words = bytes + fixed;
    for (uint32_t i = 0; i < n; i++) {
        struct tw_cert_entry e;
        rc = read_entry(bytes + version.header + i * version.entry, version.entry,
                        (size - fixed) / 4, &programs[i], &e, err);
        if (rc) {
            return rc;
        }
        if (version.states_ops && e.step_ops == TW_STEP_OPS_UNSTATED) {
            return bad(err, "ops per step", 0, tw_program_step_ops(&programs[i]));
        }
        out[i] = (struct tw_certificate){(const uint32_t *)(const void *)words + e.first_word,
                                         e.n_words, e.step_ops};
    }
    return 0;
}
