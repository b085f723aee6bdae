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

/* Constructs the certificate of a program that obeys rules 1 to 17, those that need no certificate.
 * *words stay valid until the next call with `ctx`. Programs as text contain no certificate;
 * tw_certifier_prove() of compile.h constructs them. Errors: VERIFY (there is no certificate: the
 * program can deadlock). */
typedef int (*tw_prover)(void *ctx, const struct tw_program *program, const uint32_t **words,
                         uint32_t *n_words, tw_error *err);

/* Checks the programs of a text file, one or more, against the rules of the tile machine. `prover`
 * (with `ctx` as its first argument) proves that they cannot deadlock; NULL skips that check.
 * `info` (may be NULL) and *n_programs (how many were checked; may be NULL) are filled also on
 * errors in the file. Errors: IO, FORMAT and RANGE (FILE:LINE:COL: what was found and expected),
 * VERIFY. */
int tw_program_file_verify(const char *path, tw_prover prover, void *ctx,
                           struct tw_rules_info *info, uint32_t *n_programs, tw_error *err);

/* What running a program in every possible order of its ops can find. */
enum tw_schedules_found {
    TW_FOUND_RACE = 1,     /* two ops touch the same bytes in either order, and one writes */
    TW_FOUND_DIFFERS = 2,  /* two orders leave different bytes in an Output or State */
    TW_FOUND_FAULT = 4,    /* an order faults */
    TW_FOUND_DEADLOCK = 8, /* an order ends with engines that wait for ever */
    TW_FOUND_LIMIT = 16    /* the budget ran out: not every order was run */
};
struct tw_schedules_finding {
    enum tw_schedules_found kind;
    const char *what; /* one line: which ops, which byte, which fault */
    /* The order in which it happens: "SITE:ENGINE*OPS" items, executed from left to right (the ops
     * of a loop count each time they run). DIFFERS has two orders. NULL: none. */
    const char *schedule[2];
};
/* The result for one program; its strings are valid during the call. */
struct tw_schedules_info {
    uint32_t size;
    uint32_t line; /* of the program in its file */
    const char *program;
    uint32_t input;  /* the value of all Inputs but ids, which decides how often loops run */
    uint32_t found;  /* bits of enum tw_schedules_found; 0: all orders end with the same bytes */
    uint64_t states; /* states in which the order matters; 0: all orders are equivalent */
    uint64_t ends;   /* orders that were run to their end */
    uint32_t n_findings;
    const struct tw_schedules_finding *findings;
};

/* Runs each program of a text file on the strict emulated machine in every order of its engines'
 * ops that can make a difference, instead of proving their order, with small made-up Params and
 * Inputs (loops over a trip run as often as they can, then once, then not at all); for programs of
 * some hundred ops (at most 4096 a step, its loops unrolled). max_states (0: 65536) bounds the
 * states that are remembered, `limit_bytes` (0: 1 GiB) the memory. `each` (may be NULL) is called
 * with each result. Errors: those of tw_program_file_verify (the rules that need no order are
 * checked before); VERIFY if any program has a finding (the first one's line); NOMEM if the budget
 * ran out and nothing was found. */
int tw_program_file_explore(const char *path, uint32_t max_states, uint64_t limit_bytes,
                            void (*each)(void *ctx, const struct tw_schedules_info *info),
                            void *ctx, tw_error *err);

/* Prints the program of that name in a text file in canonical form; program NULL: all of them.
 * Errors: IO, FORMAT, RANGE (as above), USAGE (no such program; lists the programs), NOSPACE. */
int tw_program_file_print(const char *path, const char *program, FILE *out, tw_error *err);

#ifdef __cplusplus
}
#endif
#endif
