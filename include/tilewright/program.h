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

/* Makes a certificate of a program that obeys the rules without one: *words stay valid until the
 * next call or the end of ctx. A text has none of its own; tw_certifier_prove() of compile.h makes
 * them. Errors: VERIFY where there is none. */
typedef int (*tw_prover)(void *ctx, const struct tw_program *program, const uint32_t **words,
                         uint32_t *n_words, tw_error *err);

/* Checks the programs of a text file, one or more, against the rules of the tile machine; that
 * their order cannot deadlock is proved by `prover` (NULL: not looked at). `info` (may be NULL) is
 * filled in any case; *n_programs (may be NULL): how many were looked at. Errors: IO, FORMAT and
 * RANGE (FILE:LINE:COL: what was found and expected), VERIFY. */
int tw_program_file_verify(const char *path, tw_prover prover, void *ctx,
                           struct tw_rules_info *info, uint32_t *n_programs, tw_error *err);

/* Prints the programs of a text file in the canonical form; program NULL: all of them. Errors: IO,
 * FORMAT, RANGE (as above), USAGE (no such program; names those there are), NOSPACE. */
int tw_program_file_print(const char *path, const char *program, FILE *out, tw_error *err);

#ifdef __cplusplus
}
#endif
#endif
