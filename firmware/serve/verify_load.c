/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's check of a program at LOAD: loader/verify, then loader/order with the certificate
 * that the host sent. Nothing is remembered from one LOAD to the next: the bytes are in memory that
 * a host may write once the program is unloaded, so each LOAD checks what it is going to run.
 */
#include "firmware/serve/verify_load.h"

#include "loader/order/certificate.h"

#include <stdio.h>

static int check(const struct tw_program *program, const struct tw_server_certificate *c,
                 const struct tw_interrupt *interrupt, tw_error *err) {
    const struct tw_certificate certificate = {c->words, c->n_words, c->step_ops};
    int code = tw_verify_program_until(program, interrupt, NULL, err);
    if (!code && c->n_words == 0) {
        return tw_fail(err, TW_E_VERIFY,
                       "rule %d certificate: LOAD carries none; upgrade the host's driver",
                       TW_ORDER_certificate);
    }
    return code ? code : tw_check_order_until(program, &certificate, interrupt, NULL, err);
}

int tw_serve_verify(void *ctx, const struct tw_program *program,
                    const struct tw_server_certificate *certificate,
                    const struct tw_interrupt *interrupt, char *what, uint32_t size) {
    tw_error err = {0};
    (void)ctx;
    int code = check(program, certificate, interrupt, &err);
    if (code) {
        snprintf(what, size, "%s", err.message);
    }
    return code;
}
