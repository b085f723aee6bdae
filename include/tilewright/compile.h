/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiler: model file to bundle, the key under which a bundle can be cached, the targets, and
 * the certifier for programs as text. Part of the public API; the conventions are those of
 * tilewright.h. Every function may be called from any thread; one call uses one thread.
 *
 *     struct tw_compile_options o = {.size = sizeof o, .target = "grid8x8"};
 *     int code = tw_compile_file("model.gguf", "model.twb", &o, NULL, &err);
 */
#ifndef TILEWRIGHT_COMPILE_H
#define TILEWRIGHT_COMPILE_H

#include "tilewright/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- models to bundles ---- */

struct tw_compile_options {
    uint32_t size;
    /* Longest context, in positions; 0: the length that the model was trained for, at most 2^20, or
     * of models with factors for long contexts, that up to which they do not apply. How much of it
     * can be used is a matter of the device's memory (tw_deploy_options). */
    uint32_t n_ctx;
    /* tokens per prefill step, 1..128; 0: the largest of 128, 64, 32, ... that fits */
    uint32_t prefill_rows;
    uint32_t host_sites; /* target "host": sites, at most 256; 0: the processors online */
    /* A built-in target's name (tw_target_name), the path of a JSON file (a text that contains '/'
     * or ends in ".json"), or the JSON itself (a text that begins with '{'), as returned by
     * tw_device_target(). NULL: "host". */
    const char *target;
    const char *tokenizer; /* path of a llama2.c tokenizer.bin, or NULL */
    /* Or NULL: called on the caller's thread to report progress; total 0: unknown. */
    void (*progress)(void *ctx, const char *what, uint64_t done, uint64_t total);
    void *ctx;
    /* 1: the bundle also has a program "score.N", which gives the logits of every token of a step
     * (tw_session_score); decoding is the same with and without it */
    uint32_t all_logits;
    const char *kv; /* element type of the keys' and values' cache: "f32" or "f16"; NULL: "f32" */
    /* Not 0, at most 1,024: programs also have an Output "choice", the lists of the top_k best
     * logits of each site that computes some (struct tw_top, best first), from which tokens are
     * chosen without moving all logits: greedy ones, and drawn ones whose top_k is not above it.
     * Ids are the same with and without it. */
    uint32_t top_k;
    /* "q8_0", "q4_0" or "f16": matrices with more bits per weight than that are converted to it,
     * rounded as the format's reference does; those whose rows are not multiples of its block, to
     * f16. NULL: all weights stay as they are stored. */
    const char *quant;
    /* "f32": activations stay floats where they are multiplied with quantised weights, which are
     * unpacked; slower and closer to exact arithmetic. "q8" or NULL: they are quantised to 8 bits
     * in blocks as long as the weights', and sums of a block are exact integers. */
    const char *activations;
    /* 2..16, rounded up to a power of two: the bundle also has the programs "decode.2", "decode.4"
     * and so on up to it, as far as they fit, whose rows are tokens of any sequences at any
     * positions (struct tw_program); 0 or 1: it has none */
    uint32_t batch_rows;
};

struct tw_compile_report {
    uint32_t size;
    uint32_t n_sites, n_ctx, prefill_rows;
    char target[64];
    uint64_t n_params, param_bytes, state_bytes, bundle_bytes;
    double plan_s, emit_s;                  /* wall-clock seconds */
    uint64_t decode_cycles, prefill_cycles; /* predicted, per step */
    double decode_tok_s, prefill_tok_s;     /* predicted tokens per second at the target's clock */
    uint32_t score_rows; /* tokens per step with all logits; 0: no such program */
    uint32_t batch_rows; /* of the largest program "decode.N"; 0: there is none */
};

/* Compiles a model (a GGUF file, any part of a split one, a folder with config.json and
 * safetensors, or a llama2.c checkpoint) to a bundle, atomically: on failure no file is left behind
 * or changed. `report` (may be NULL) is filled on success. Errors:
 *   IO, TRUNCATED, FORMAT, RANGE, MISSING, SHAPE   the model, tokenizer or target file; names the
 *                                                  place in it
 *   UNSUPPORTED   a well-formed model that the compiler does not support; names the key or tensor
 *   PLACEMENT     no plan fits the target's memory
 *   USAGE         an option out of range, no such target
 *   NOSPACE       the bundle could not be written
 *   NOMEM, VERIFY (a compiler bug, detected before anything is written) */
int tw_compile_file(const char *model_path, const char *out_path,
                    const struct tw_compile_options *options, struct tw_compile_report *report,
                    tw_error *err);

/* Computes the cache key of a compilation, 64 hexadecimal digits: BLAKE2b over the model's content
 * (for files over 64 MiB: size, modification time and samples), the options, the resolved target
 * and the compiler's version. Equal keys mean equal bundles. Errors: those of tw_compile_file()
 * that can be detected without compiling. */
int tw_compile_key(const char *model_path, const struct tw_compile_options *options,
                   char key_hex[65], tw_error *err);

/* Prints a stage of the compilation as text: "graph", "mid", "low", "section" or "program". Errors:
 * USAGE (no such stage), and those of tw_compile_file. */
int tw_compile_dump(const char *model_path, const char *stage,
                    const struct tw_compile_options *options, FILE *out, tw_error *err);

struct tw_model_info {
    uint32_t size;
    uint32_t n_ctx_train;   /* context length that the model was trained for */
    uint32_t has_tokenizer; /* 1: the model has a tokenizer that a bundle can hold */
    uint32_t reserved;
    /* if not: why, as a clause that names the key and its value; else "" */
    char tokenizer_problem[200];
};

/* Reads a model file's header and vocabulary, not its weights, and checks them as tw_compile_file()
 * does. `tokenizer`: as in tw_compile_options. Errors: those of tw_compile_file() that concern the
 * model and tokenizer files. */
int tw_model_get_info(const char *path, const char *tokenizer, struct tw_model_info *info,
                      tw_error *err);

/* ---- targets ---- */

struct tw_target_info {
    uint32_t size;
    uint32_t n_chips, width, height; /* width * height sites per chip */
    uint32_t n_banks;                /* of DRAM, per chip */
    uint64_t sram_bytes;             /* per site */
    double clock_hz;
    uint8_t hash[32]; /* a bundle runs where tw_decoder_info.target_hash is equal to it */
    char name[64];
};

/* Returns the name of built-in target `index`, a static string; NULL after the last. */
const char *tw_target_name(uint32_t index);

/* Describes a target; target and host_sites as in tw_compile_options. Errors: USAGE (no such
 * target; lists the targets), IO, FORMAT, MISSING, RANGE (name the key). */
int tw_target_get_info(const char *target, uint32_t host_sites, struct tw_target_info *info,
                       tw_error *err);

/* ---- certificates ---- */

struct tw_program; /* machine.h */

/* Constructs certificates, by which a program's order is checked. Holds memory that each call
 * reuses. One thread at a time. */
typedef struct tw_certifier tw_certifier;
/* Creates a certifier. *out is the caller's: tw_certifier_destroy(). */
int tw_certifier_create(tw_certifier **out, tw_error *err);
/* Frees a certifier and the words of its last certificate. NULL is legal. */
void tw_certifier_destroy(tw_certifier *certifier);

/* Constructs a program's certificate: a tw_prover for tw_program_file_verify() of program.h, whose
 * `certifier` is a tw_certifier. *words belong to the certifier and are valid until its next call
 * or its destruction. Errors: VERIFY (no valid order exists; names the engine that is stuck and
 * what it waits for). */
int tw_certifier_prove(void *certifier, const struct tw_program *program, const uint32_t **words,
                       uint32_t *n_words, tw_error *err);

#ifdef __cplusplus
}
#endif
#endif
