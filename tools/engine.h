/* SPDX-License-Identifier: Apache-2.0
 *
 * What run and bench share: options of model, device and session, and opening a session with them.
 */
#ifndef TW_TOOLS_ENGINE_H
#define TW_TOOLS_ENGINE_H

#include "tools/model_cache.h"
#include "tools/options.h"

#include <jansson.h>

struct engine_options {
    const char *target, *device, *mode, *isa, *tokenizer, *kv, *quant, *activations;
    int64_t ctx, threads, chunk, rows, batch, sites;
    const char *logits; /* compile: "last" or "all" */
    int64_t lists;      /* compile: entries of the lists of the best logits; 0: none */
    bool fresh;
    const char *on_full, *prompt_cache, *prompt_cache_salt;
    int64_t sink;
    bool caches; /* not an option: the session uses the prefix cache of its deployment */
    /* not options: sequences in a step that a model is compiled for without --batch; positions of
     * all sequences together */
    int64_t batch_wanted, positions;
    bool text; /* not an option: set if the request needs a tokenizer */
    /* not an option: steps are not ended in their middle when ui_stop is set, so that the session
     * can go on */
    bool whole_steps;
};
#define ENGINE_DEFAULTS \
    { .target = NULL }

/* Their rows of an option table; `type` is the verb's structure, whose field `engine` is a struct
 * engine_options. */
#define ENGINE_OFFSET(type, field) (offsetof(type, engine) + offsetof(struct engine_options, field))
#define COMPILE_ROWS(type)                                                                      \
    {OPT_TEXT,                                                                                  \
     0,                                                                                         \
     "target",                                                                                  \
     "T",                                                                                       \
     ENGINE_OFFSET(type, target),                                                               \
     0,                                                                                         \
     0,                                                                                         \
     "machine to compile for: host, sim4x4, grid8x8, sim4x4x2, quad2x2 or a JSON file (host)"}, \
        {OPT_I64,                                                                               \
         'c',                                                                                   \
         "ctx",                                                                                 \
         "N",                                                                                   \
         ENGINE_OFFSET(type, ctx),                                                              \
         1,                                                                                     \
         1 << 20,                                                                               \
         "context length in positions (that of the model)"},                                    \
        {OPT_I64,                                                                               \
         0,                                                                                     \
         "rows",                                                                                \
         "N",                                                                                   \
         ENGINE_OFFSET(type, rows),                                                             \
         1,                                                                                     \
         128,                                                                                   \
         "tokens per prefill step (as many as fit, at most 128)"},                              \
        {OPT_I64,                                                                               \
         0,                                                                                     \
         "batch",                                                                               \
         "N",                                                                                   \
         ENGINE_OFFSET(type, batch),                                                            \
         1,                                                                                     \
         16,                                                                                    \
         "have programs for steps of up to N tokens of different sequences (1: none)"},         \
        {OPT_I64,                                                                               \
         0,                                                                                     \
         "sites",                                                                               \
         "N",                                                                                   \
         ENGINE_OFFSET(type, sites),                                                            \
         1,                                                                                     \
         256,                                                                                   \
         "sites of target host (one per processor)"},                                           \
        {OPT_TEXT,                                                                              \
         0,                                                                                     \
         "kv",                                                                                  \
         "T",                                                                                   \
         ENGINE_OFFSET(type, kv),                                                               \
         0,                                                                                     \
         0,                                                                                     \
         "element type of the key and value caches: f32 or f16 (f32)"},                         \
        {OPT_TEXT,                                                                              \
         0,                                                                                     \
         "quant",                                                                               \
         "T",                                                                                   \
         ENGINE_OFFSET(type, quant),                                                            \
         0,                                                                                     \
         0,                                                                                     \
         "convert larger weights to q8_0, q4_0 or f16 (as they are stored)"},                   \
        {OPT_TEXT,                                                                              \
         0,                                                                                     \
         "activations",                                                                         \
         "T",                                                                                   \
         ENGINE_OFFSET(type, activations),                                                      \
         0,                                                                                     \
         0,                                                                                     \
         "type in which activations meet quantised weights: q8 or f32 (q8)"},                   \
    {                                                                                           \
        OPT_TEXT, 0, "tokenizer", "FILE", ENGINE_OFFSET(type, tokenizer), 0, 0,                 \
            "tokenizer.bin of a llama2.c checkpoint (the one beside it)"                        \
    }
#define SESSION_ROWS(type)                                                         \
    {OPT_TEXT,                                                                     \
     0,                                                                            \
     "device",                                                                     \
     "D",                                                                          \
     ENGINE_OFFSET(type, device),                                                  \
     0,                                                                            \
     0,                                                                            \
     "device of `tilewright devices` (emu)"},                                      \
        {OPT_I64,                                                                  \
         't',                                                                      \
         "threads",                                                                \
         "N",                                                                      \
         ENGINE_OFFSET(type, threads),                                             \
         1,                                                                        \
         256,                                                                      \
         "host threads of the emulator (what the model keeps busy)"},              \
        {OPT_TEXT,                                                                 \
         0,                                                                        \
         "mode",                                                                   \
         "M",                                                                      \
         ENGINE_OFFSET(type, mode),                                                \
         0,                                                                        \
         0,                                                                        \
         "fast, or strict: check every access (fast)"},                            \
        {OPT_TEXT,                                                                 \
         0,                                                                        \
         "isa",                                                                    \
         "I",                                                                      \
         ENGINE_OFFSET(type, isa),                                                 \
         0,                                                                        \
         0,                                                                        \
         "instruction set: scalar, avx2, avx512, neon, neon-dot (the fastest; or " \
         "$TILEWRIGHT_ISA)"},                                                      \
        {OPT_I64,                                                                  \
         0,                                                                        \
         "chunk",                                                                  \
         "N",                                                                      \
         ENGINE_OFFSET(type, chunk),                                               \
         1,                                                                        \
         128,                                                                      \
         "feed at most N tokens in one step (what the bundle takes)"},             \
    {                                                                              \
        OPT_FLAG, 0, "fresh", NULL, ENGINE_OFFSET(type, fresh), 0, 0,              \
            "compile again even if the cache has the model"                        \
    }
/* What run and chat have besides. */
#define CONTEXT_ROWS(type)                                                                       \
    {OPT_TEXT,                                                                                   \
     0,                                                                                          \
     "on-full",                                                                                  \
     "HOW",                                                                                      \
     ENGINE_OFFSET(type, on_full),                                                               \
     0,                                                                                          \
     0,                                                                                          \
     "when the context is full: stop, slide (its newer half stays) or sink (stop)"},             \
        {OPT_I64,                                                                                \
         0,                                                                                      \
         "sink",                                                                                 \
         "N",                                                                                    \
         ENGINE_OFFSET(type, sink),                                                              \
         1,                                                                                      \
         1 << 20,                                                                                \
         "first tokens that --on-full sink keeps (4)"},                                          \
        {OPT_TEXT,                                                                               \
         0,                                                                                      \
         "prompt-cache",                                                                         \
         "SIZE",                                                                                 \
         ENGINE_OFFSET(type, prompt_cache),                                                      \
         0,                                                                                      \
         0,                                                                                      \
         "keep the state of sequences in the cache folder, at most SIZE (512M), to start from"}, \
    {                                                                                            \
        OPT_TEXT, 0, "prompt-cache-salt", "TEXT", ENGINE_OFFSET(type, prompt_cache_salt), 0, 0,  \
            "with --prompt-cache: use only what was kept with the same TEXT"                     \
    }

struct engine {
    tw_device *device;
    struct cache_result source;
    tw_deployment *deployment;
    tw_session *session;
    struct tw_decoder_info info;
    struct tw_session_info session_info;
    const char *isa; /* as requested, or "auto" */
    double load_s;   /* bundle to ready session: open, verify, place, prepare; without compiling */
};

/* Returns the compile options for `o`; `device_target` is used if o names no target ("" : the
 * default). */
struct tw_compile_options engine_compile_options(const struct engine_options *o,
                                                 const char *device_target);

/* Refuse options that only apply to models if they are given with a bundle (or a text of programs),
 * and --sites for a target with a fixed number of sites. Errors: USAGE. */
int engine_check_bundle(const struct engine_options *o, const char *path, tw_error *err);
int engine_check_model(const struct engine_options *o, const char *target, tw_error *err);

/* Opens everything. On failure nothing is left open. Options without effect are refused (USAGE) or,
 * if they have less effect than they say, noted on standard error. */
int engine_open(struct engine *e, const char *path, const struct engine_options *o, tw_error *err);
void engine_close(struct engine *e);

/* Sets what tw_generate() does when the context is full. Errors: USAGE. */
int engine_on_full(const struct engine_options *o, struct tw_generate_options *g, tw_error *err);
/* Returns whether that is to go on. */
bool engine_goes_on(const struct engine_options *o);
/* Notes what the prompt had from the prefix cache, and how often the context was full. */
void engine_note_context(const struct tw_generate_result *r);
/* Adds both to what is printed as JSON, if the options ask for them. `json` may be NULL. */
void engine_json_context(json_t *json, const struct engine_options *o,
                         const struct tw_generate_result *r);
/* Keeps the session's sequence for later prompts, with --prompt-cache. That it cannot is only
 * noted. */
void engine_keep_prefix(struct engine *e, const struct engine_options *o);

#endif
