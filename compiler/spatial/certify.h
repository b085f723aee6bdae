/* SPDX-License-Identifier: Apache-2.0
 *
 * Certification: finds the order that loader/order/certificate.h describes by running every engine
 * as far as it gets, with the loops rolled. It proves nothing; tw_check_order() does.
 */
#ifndef TW_COMPILER_SPATIAL_CERTIFY_H
#define TW_COMPILER_SPATIAL_CERTIFY_H

#include "compiler/arena.h"
#include "loader/order/certificate.h"

/* Computes the certificate of a program that tw_verify_program() accepts; its words are allocated
 * in `mem`. Errors: VERIFY if no order exists, naming the engine that is stuck and what it waits
 * for. */
int tw_certify(struct tw_cmem *mem, const struct tw_program *program, struct tw_certificate *out,
               tw_error *err);

/* Returns the content of .tw.cert for n certified programs, allocated in `mem`; *size is in
 * bytes. */
void *tw_certificate_pack(struct tw_cmem *mem, const struct tw_program *programs,
                          const struct tw_certificate *certificates, uint32_t n, size_t *size);

#endif
