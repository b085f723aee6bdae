/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiler's entry points: model file in, bundle out. pipeline.c holds the pass order. Calls on
 * different threads are independent.
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
    /* tokens of a prefill step, 1 to 128; 0: the largest of 128, 64, 32, ... that fits */
    uint32_t prefill_rows;
    /* target "host" only: number of sites; 0: the number of online processors */
    uint32_t host_sites;
    const char *target;    /* a built-in target's name or the path of a JSON file; NULL: "host" */
    const char *tokenizer; /* path of a llama2.c tokenizer.bin, or NULL */
    /* called on the compiling thread as the bundle is written (`done` of `total` bytes); may be
     * NULL */
    void (*progress)(void *ctx, const char *what, uint64_t done, uint64_t total);
    void *ctx;
};

/* Facts about a finished compilation. Memory is in bytes, `plan_s` and `emit_s` in seconds of
 * wall-clock time. */
struct tw_compile_report {
    char target[64];
    uint32_t n_sites, n_ctx, prefill_rows;
    uint64_t n_params, param_bytes, state_bytes, bundle_bytes;
    double plan_s, emit_s;                  /* seconds of wall-clock time */
    uint64_t decode_cycles, prefill_cycles; /* predicted by the cost model, per step */
    double decode_tok_s, prefill_tok_s;     /* predicted, at the target's clock */
};

/* Compiles `model_path` to `out_path`, atomically: on failure no file is left or changed. `options`
 * and `report` may be NULL. Errors: those of the importers, UNSUPPORTED, PLACEMENT, NOSPACE, IO,
 * NOMEM, USAGE, VERIFY (our own mistake, found before anything is written). */
int tw_compile_file(const char *model_path, const char *out_path,
                    const struct tw_compile_options *options, struct tw_compile_report *report,
                    tw_error *err);

/* Writes the cache key of a compilation, in hexadecimal and NUL-terminated: BLAKE2b over the
 * model's content (for files over 64 MiB: size, modification time and sampled content), the
 * options, the resolved target and the compiler's version. Errors: USAGE, those of
 * tw_target_open(), IO. */
int tw_compile_key(const char *model_path, const struct tw_compile_options *options,
                   char key_hex[65], tw_error *err);

/* Prints one stage of the compilation as text: graph, mid, low, section or program. Errors: USAGE
 * (unknown stage), and those of tw_compile_file(). */
int tw_compile_dump(const char *model_path, const char *stage,
                    const struct tw_compile_options *options, FILE *out, tw_error *err);

/* Returns the maximum number of bytes of the compile arena (arena.h) that a model of this shape
 * takes on this target; a model that could exceed the arena is refused with NOMEM before planning
 * starts. */
uint64_t tw_compile_memory(const struct tw_hparams *h, const struct tw_target *t);

#endif
