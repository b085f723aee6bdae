/* SPDX-License-Identifier: Apache-2.0
 *
 * The public interface of certification (spatial/certify.h). A certifier is an arena that is reset
 * for each program.
 */
#include "compiler/spatial/certify.h"
#include "loader/base/sized.h"
#include "tilewright/compile.h"

#include <stdlib.h>

struct tw_certifier {
    struct tw_cmem mem;
};

int tw_certifier_create(tw_certifier **out, tw_error *err) {
    int rc = TW_NEED(err, out);
    if (rc) {
        return rc;
    }
    tw_certifier *c = calloc(1, sizeof *c);
    if (!c) {
        return tw_fail(err, TW_E_NOMEM, "certifier: out of memory");
    }
    rc = tw_cmem_init(&c->mem, err);
    if (rc) {
        free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void tw_certifier_destroy(tw_certifier *certifier) {
    if (certifier) {
        tw_cmem_finish(&certifier->mem);
        free(certifier);
    }
}

int tw_certifier_prove(void *certifier, const struct tw_program *program, const uint32_t **words,
                       uint32_t *n_words, tw_error *err) {
    struct tw_certificate certificate;
    tw_certifier *c = certifier;
    int rc = TW_NEED_2(err, certifier, program);
    rc = rc ? rc : TW_NEED_2(err, words, n_words);
    if (rc) {
        return rc;
    }
    tw_cmem_release(&c->mem, 0);
    rc = tw_certify(&c->mem, program, &certificate, err);
    if (rc == 0) {
        *words = certificate.words;
        *n_words = certificate.n_words;
    }
    return rc;
}
