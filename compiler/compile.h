/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiler's entry: model file in, bundle out. compile.c is the pass order, readable in one
 * place.
 */
#ifndef TW_COMPILER_COMPILE_H
#define TW_COMPILER_COMPILE_H

#include "compiler/import/model.h"
#include "tilewright/target.h"

#include <stdint.h>
#include <stdio.h>

/* Set `size` to sizeof(struct tw_compile_options); zero fields mean the default. */
struct tw_compile_options {
    uint32_t size;
    uint32_t n_ctx; /* positions of the state; 0: the model's, at most 2048 */
    /* tokens of a prefill step, 1..128; 0: the largest of 128, 64, 32, ... that fits */
    uint32_t prefill_rows;
    uint32_t host_sites;   /* target host: sites; 0: the processors online */
    const char *target;    /* a built-in target's name or the path of a JSON file; NULL: "host" */
    const char *tokenizer; /* llama2.c tokenizer.bin, or NULL */
    void (*progress)(void *ctx, const char *what, uint64_t done, uint64_t total); /* or NULL */
    void *ctx;
};

struct tw_compile_report {
    char target[64];
    uint32_t n_sites, n_ctx, prefill_rows;
    uint64_t n_params, param_bytes, state_bytes, bundle_bytes;
    double plan_s, emit_s;                  /* wall clock */
    uint64_t decode_cycles, prefill_cycles; /* predicted */
    double decode_tok_s, prefill_tok_s;     /* predicted, at the target's clock */
};

/* Compiles `model_path` to `out_path`, atomically: on failure no file is left or changed. `report`
 * may be NULL. Errors: those of the importers, UNSUPPORTED, PLACEMENT, NOSPACE, IO, NOMEM, USAGE,
 * VERIFY (our own mistake, found before anything is written). */
int tw_compile_file(const char *model_path, const char *out_path,
                    const struct tw_compile_options *options, struct tw_compile_report *report,
                    tw_error *err);

/* The cache key of a compilation: BLAKE2b over the model's content (for files over 64 MiB: size,
 * mtime and sampled content), the options, the resolved target and the compiler's version, in
 * hexadecimal. */
int tw_compile_key(const char *model_path, const struct tw_compile_options *options,
                   char key_hex[65], tw_error *err);

/* Prints a stage of the compilation: graph, mid, low, section, program. */
int tw_compile_dump(const char *model_path, const char *stage,
                    const struct tw_compile_options *options, FILE *out, tw_error *err);

/* Bytes of the compile arena (arena.h) that a model of that shape takes at most on that target;
 * what exceeds the arena is refused with NOMEM before planning starts. */
uint64_t tw_compile_memory(const struct tw_hparams *h, const struct tw_target *t);

#endif
