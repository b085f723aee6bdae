/* SPDX-License-Identifier: Apache-2.0
 *
 * Verification of programs on the device, which trusts no host: the same rules and the same check
 * of the certificate that a driver's loader applies to a bundle.
 */
#ifndef TW_FIRMWARE_SERVE_VERIFY_LOAD_H
#define TW_FIRMWARE_SERVE_VERIFY_LOAD_H

#include "firmware/core/server/server.h"

/* Checks rules 1 to 29 of a program whose tables lie inside memory that does not change meanwhile;
 * tw_server_port.verify with no context (`ctx` is ignored). The one exception: of rule 28, the
 * command server itself compares the addresses that the program is bound to, so the hash of the
 * bundle's bindings is not needed. Takes time and memory in proportion to the blob and the
 * certificate. Errors, with the first `size` - 1 bytes of the reason in what[]: VERIFY ("rule 24
 * race_free: ...", rule 18 without a certificate), NOMEM, INTERRUPTED. Any thread. */
tw_server_verifier tw_serve_verify;

#endif
