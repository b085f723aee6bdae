/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs as text: files in the language of tws(5), without a bundle around them. Part of the
 * public API; the conventions are those of tilewright.h.
 */
#ifndef TILEWRIGHT_PROGRAM_H
#define TILEWRIGHT_PROGRAM_H

#include "tilewright/tilewright.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tw_program; /* machine.h */

/* Constructs the certificate of a program that obeys all rules that need none. *words stay valid
 * until the next call with `ctx`. Programs as text contain no certificate; tw_certifier_prove() of
 * compile.h constructs them. Errors: VERIFY (there is no certificate: the program can
 * deadlock). */
typedef int (*tw_prover)(void *ctx, const struct tw_program *program, const uint32_t **words,
                         uint32_t *n_words, tw_error *err);

/* Checks the programs of a text file, one or more, against the rules of the tile machine. `prover`
 * (with `ctx` as its first argument) proves that they cannot deadlock; NULL skips that check.
 * `info` (may be NULL) and *n_programs (how many were checked; may be NULL) are filled also on
 * errors in the file. Errors: IO, FORMAT and RANGE (FILE:LINE:COL: what was found and expected),
 * VERIFY. */
int tw_program_file_verify(const char *path, tw_prover prover, void *ctx,
                           struct tw_rules_info *info, uint32_t *n_programs, tw_error *err);

/* Prints the program of that name in a text file in canonical form; program NULL: all of them.
 * Errors: IO, FORMAT, RANGE (as above), USAGE (no such program; lists the programs), NOSPACE. */
int tw_program_file_print(const char *path, const char *program, FILE *out, tw_error *err);

#ifdef __cplusplus
}
#endif
#endif
