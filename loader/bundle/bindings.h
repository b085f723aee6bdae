/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that a bundle's binding rows bind its programs' tensors to bytes that may be used that
 * way.
 */
#ifndef TW_LOADER_BUNDLE_BINDINGS_H
#define TW_LOADER_BUNDLE_BINDINGS_H

#include "loader/bundle/loader.h"

/* Checks rule 28 by bytes: no two tensors, and no two instances of one, share a byte that is ever
 * written. Exempt are tensors that programs share: tensors of one name bound to one place (a State
 * then has the same type and shape in all of them). Adds the counts to `report` (may be NULL).
 * Errors: VERIFY (names program, both tensors and the bytes), NOMEM. */
int tw_bundle_check_bindings(const struct tw_bundle *bundle, struct tw_verify_report *report,
                             tw_error *err);

/* Computes BLAKE2b-256 of segment, offset and size of each row. The certificate contains it, so
 * that a proof for one placement is not accepted for another. */
void tw_bindings_hash(const struct tw_bind_target *rows, uint64_t n, uint8_t out[TW_HASH_BYTES]);

#endif
