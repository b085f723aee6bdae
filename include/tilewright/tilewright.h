/* SPDX-License-Identifier: Apache-2.0
 *
 * The public API of libtilewright: open a bundle, put it onto a device, decode with it.
 *
 *     tw_decoder_open()     a bundle file, checked, with its tokenizer
 *     tw_device_open()      a device: the emulator, or one that discovery lists
 *     tw_deploy()           the decoder's weights and programs on the device
 *     tw_session_create()   one sequence: its state, its position
 *     tw_session_feed()     tokens in, logits out; or tw_generate(), the whole loop
 *
 * compile.h makes bundles of models, emulate.h hosts a device for others, program.h reads programs
 * as text, error.h has the errors; together these headers are all that the shared library exports.
 *
 * Objects may be closed and destroyed in any order: one that others were made from stays, out of
 * reach, until the last of these is gone; so a device that is closed before its sessions is
 * released with the last of them. destroy(NULL) and close(NULL) are legal.
 *
 * Errors: a function that can fail returns 0 or a TW_E_* code and fills `err` (which may be NULL)
 * with one line. Listed are the codes that mean something for that function; NOMEM is possible
 * wherever something is created, DEVICE_LOST, TIMEOUT, PROTOCOL wherever a device is involved, and
 * USAGE wherever a pointer is NULL that may not be, a flag bit is set that nobody defined, or a
 * structure's size is too small to hold itself. A pointer may be NULL only where that is said. A
 * failed function leaves its out-parameters unset and its objects as they were, unless told
 * otherwise.
 *
 * Threads: a device and a deployment may be used from many threads at a time, a session from one at
 * a time. A decoder does not change. Functions block until they are done. The library never prints,
 * exits, or installs signal handlers, but for the one that tw_guard_files asks for.
 *
 * Option and info structures begin with `size`: set it to sizeof the structure. Zero fields mean
 * the default. An options pointer may be NULL: all defaults. Structures only grow at their end: of
 * a caller's shorter one only `size` bytes are read or written, and what a caller's longer one has
 * beyond the library's is ignored (tw_version_number tells which library it is). Callbacks get
 * structures of the library's size.
 *
 * Stop words: a function with a parameter or option `stop` looks at *stop several times a second
 * and ends once it is not 0. A signal handler may assign to such a word; another thread sets it
 * with an atomic store, __atomic_store_n(stop, 1, __ATOMIC_RELAXED). NULL: nothing stops it.
 */
#ifndef TILEWRIGHT_TILEWRIGHT_H
#define TILEWRIGHT_TILEWRIGHT_H

#include "tilewright/error.h"
#include "tilewright/version.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the library that is linked: as text, and as TW_VERSION_NUMBER has it (that one is of
 * the header). */
const char *tw_version(void);
uint32_t tw_version_number(void);

/* Weights stay in the bundle's file and are read there while a session runs. If another process
 * cuts the file meanwhile, such a read raises SIGBUS, which ends the process. After this call it
 * ends the step instead, with TRUNCATED and the file's name: a handler of SIGBUS is installed that
 * takes only what happens inside of this library's file mappings (it puts zeros there and marks the
 * mapping) and hands every other SIGBUS to the handler that was set before, or lets it end the
 * process. For the whole process; a program that sets a handler of its own later should pass on to
 * this one what it does not know. Legal at any time and from any thread; a second call does
 * nothing. A program that replaces bundles by renaming never needs it. Errors: INTERNAL. */
int tw_guard_files(tw_error *err);

typedef struct tw_device tw_device;
typedef struct tw_decoder tw_decoder;
typedef struct tw_deployment tw_deployment;
typedef struct tw_session tw_session;

/* ---- devices ---- */

struct tw_device_info {
    uint32_t size;
    uint32_t index;    /* in the list; accepted as a selector */
    char selector[80]; /* "emu", "emu:grid8x8", "usb:TW0017", "socket:bench", "null" */
    char target[64];   /* the machine it is; "" takes any bundle's target */
    char state[32];    /* "ready", or why it cannot be used */
    char detail[160];  /* one line for people */
    /* speed of its link in Mbit/s; 0: there is none, or it is not known */
    uint32_t link_mbits;
    /* what the device could do; more than link_mbits: another port or cable is faster */
    uint32_t link_best_mbits;
};

/* Calls found() for every device until it returns false. Never fails because of one device. */
int tw_device_list(bool (*found)(void *ctx, const struct tw_device_info *info), void *ctx,
                   tw_error *err);

enum tw_device_event {
    TW_DEVICE_ARRIVED = 1,
    TW_DEVICE_LEFT = 2,   /* info is the last that was known of it */
    TW_DEVICE_CHANGED = 3 /* its state is another: "busy", "ready", ... */
};
/* Watches the list: calls changed() with ARRIVED for each device that there is, then for whatever
 * comes, goes or changes, within about a second. Returns when changed() returns false or *stop (may
 * be NULL) is not 0. changed() may use the library, also open the device. Errors: NOMEM. */
int tw_device_watch(bool (*changed)(void *ctx, enum tw_device_event event,
                                    const struct tw_device_info *info),
                    void *ctx, const volatile sig_atomic_t *stop, tw_error *err);

struct tw_device_options {
    uint32_t size;
    /* of the emulator's fast mode at most; 0: the processors this process may use */
    uint32_t n_threads;
    /* of the emulator: "scalar", "avx2", "avx512", "neon", "neon-dot"; NULL: the fastest */
    const char *isa;
    uint64_t memory_bytes; /* of the emulator; 0: the host's */
    /* Milliseconds without any progress after which a device in another process or behind a cable
     * is given up; 0: ten seconds. A device that gets on, however slowly, has all the time it
     * wants. */
    uint32_t deadline_ms;
};

/* Opens a device for this process alone. selector: an index of the list, "emu[:TARGET]",
 * "usb[:SERIAL]", "usb:BUS-PORT[.PORT...]", "pcie[:BDF]", "socket:NAME" (or a path), "null"; NULL:
 * "emu". After DEVICE_LOST or TIMEOUT from any call the handle is dead: each later call says
 * DEVICE_LOST and why, and touches nothing; close it and open the device again. Errors: NO_DEVICE
 * (names what there is), DEVICE_BUSY (names the holder), VERSION (names the side to upgrade),
 * USAGE, UNSUPPORTED. */
int tw_device_open(const char *selector, const struct tw_device_options *options, tw_device **out,
                   tw_error *err);
/* Gives the device back, at once or when the last deployment and session on it is destroyed. */
void tw_device_close(tw_device *device);
/* selector, target and state of an open device. */
int tw_device_get_info(const tw_device *device, struct tw_device_info *info, tw_error *err);

/* The machine that the device is, as the JSON text of a target: what a model has to be compiled for
 * (tw_compile_options.target) to run on it. "": it takes any bundle's target, or tells only a name
 * (tw_device_info.target). Lives as long as the device. */
const char *tw_device_target(const tw_device *device);

/* Recovery steps that tw_device_open() had to take ("both endpoints were reset"); "" if none. Lives
 * as long as the device. */
const char *tw_device_recovered(const tw_device *device);

/* Frees everything on the device, what it kept for later included, and sees that it answers. What
 * was deployed on it before can only be destroyed; using it is USAGE ("the device was reset"). */
int tw_device_reset(tw_device *device, tw_error *err);

/* What a process does with a device that it has open, by the page that it publishes (`tilewright
 * top`). */
struct tw_status_info {
    uint32_t size;
    uint32_t pid;
    char program[32], device[80], target[64], bundle[64];
    char state[16];           /* "idle", "running" a step, "waiting" for another request, "lost" */
    char doing[16];           /* that request: "WRITE", "LOAD", ...; or "" */
    char error[200];          /* of the last request that failed; lost: the cause; or "" */
    uint32_t position, n_ctx; /* of the session that stepped last */
    uint64_t tokens, prompt_tokens, steps;
    double tokens_per_s; /* of the last seconds; 0 while nothing is generated */
    uint64_t sent_bytes, received_bytes;
    uint64_t resent, damaged;  /* times that something was sent again; packets that came damaged */
    double open_s, progress_s; /* since the device was opened; since it last got on */
    char bundle_file[256];     /* the name of the bundle's file; `bundle` is its first 63 bytes */
};

/* The same of an open device. */
int tw_device_get_status(tw_device *device, struct tw_status_info *info, tw_error *err);
/* Calls found() for every device that a process of this computer has open and this user may know
 * of, until it returns false. Disturbs nobody. */
int tw_status_list(bool (*found)(void *ctx, const struct tw_status_info *info), void *ctx,
                   tw_error *err);

struct tw_selftest_step {
    uint32_t size;
    const char *name;
    double seconds;
    uint64_t bytes; /* moved, where the time tells a speed; else 0 */
};
/* Tests an open device beside whatever is on it: memory, transfers, a small program. Calls passed()
 * (may be NULL) for each step that passed. Errors: FAULT (place, found and expected), UNSUPPORTED
 * (too little memory to test). */
int tw_device_selftest(tw_device *device,
                       void (*passed)(void *ctx, const struct tw_selftest_step *step), void *ctx,
                       tw_error *err);

/* ---- decoders: bundle files ---- */

enum tw_decoder_flags {
    TW_DECODER_CHECK_HASH = 1, /* recompute every hash: reads the whole file */
    /* parse only, do not verify: for looking at a file; such a decoder cannot be deployed */
    TW_DECODER_NO_RULES = 2
};

/* Maps and checks a bundle; `flags` of tw_decoder_flags. Errors: IO, TRUNCATED, FORMAT, RANGE, HASH,
 * VERIFY, UNSUPPORTED (also a bundle of another format or machine ABI: recompile, or upgrade). */
int tw_decoder_open(const char *path, unsigned flags, tw_decoder **out, tw_error *err);
void tw_decoder_close(tw_decoder *decoder);

#define TW_ENDS_MAX 4u
struct tw_decoder_info {
    uint32_t size;
    uint16_t bundle_major, bundle_minor, abi_major, abi_minor;
    uint32_t n_vocab, n_ctx, n_layers;
    uint32_t n_programs, n_segments, n_symbols;
    uint32_t has_tokenizer;
    uint32_t bos, eos; /* UINT32_MAX: none */
    uint64_t n_params; /* weights of the model */
    uint64_t n_bind_rows;
    uint64_t param_bytes, state_bytes, scratch_bytes;
    uint64_t bytes_per_token; /* weights that a decode step reads */
    uint8_t content_hash[32], target_hash[32];
    char target[64], model[128], arch[32], license[64], tool[64];
    /* texts of the bundle, or NULL; live as long as the decoder */
    const char *path, *plan, *origin;
    /* ids that end a text: of the end of the sequence, of a turn, of a message */
    uint32_t n_ends, end[TW_ENDS_MAX];
};
int tw_decoder_get_info(const tw_decoder *decoder, struct tw_decoder_info *info, tw_error *err);

struct tw_program_info {
    uint32_t size;
    uint32_t rows; /* tokens of one step at most */
    uint32_t n_sites, mesh_width, mesh_height, n_chips;
    uint32_t n_tensors, n_buffers, n_semaphores, n_groups, n_trips, n_stages, n_edges, n_sections;
    uint64_t sram_bytes, sram_used; /* of one site; used: of the fullest site */
    uint64_t n_ops, n_words;
    const char *name;
};
struct tw_segment_info {
    uint32_t size;
    uint32_t bank;
    uint64_t bytes;
    const char *kind; /* "param", "state", "scratch" */
};
struct tw_symbol_info {
    uint32_t size;
    uint32_t segment;
    uint64_t offset, bytes;
    const char *name, *role, *dtype;
};
/* Entry `index` of the decoder's tables. Errors: USAGE (after the last). */
int tw_decoder_get_program(const tw_decoder *decoder, uint32_t index, struct tw_program_info *info,
                           tw_error *err);
int tw_decoder_get_segment(const tw_decoder *decoder, uint32_t index, struct tw_segment_info *info,
                           tw_error *err);
int tw_decoder_get_symbol(const tw_decoder *decoder, uint32_t index, struct tw_symbol_info *info,
                          tw_error *err);

/* A buffer in the SRAM of a site. Sections of its program by number, UINT32_MAX and no name where
 * no op touches it. */
struct tw_map_info {
    uint32_t size;
    uint32_t buffer, mem_class, pages;
    uint64_t offset, bytes;
    uint32_t first_section, last_section;
    const char *name, *kind, *dtype;
    const char *tensor; /* the activation that it holds, or NULL */
    const char *first_name, *last_name;
};
/* Calls found() for each buffer of the site, by ascending offset, until it returns false. Errors:
 * USAGE (no such program or site), NOMEM. */
int tw_decoder_map(const tw_decoder *decoder, uint32_t program, uint32_t site,
                   bool (*found)(void *ctx, const struct tw_map_info *info), void *ctx,
                   tw_error *err);

#define TW_RULES_MAX 32u
struct tw_rules_info {
    uint32_t size;
    uint32_t n_rules;
    uint32_t failed_rule;           /* 0: none */
    uint64_t checked[TW_RULES_MAX]; /* objects checked; index: the rule's number */
};
/* Checks every program against the rules of the tile machine. `info` (may be NULL) is filled in any
 * case. Errors: VERIFY. */
int tw_decoder_verify(tw_decoder *decoder, struct tw_rules_info *info, tw_error *err);
/* Name and demand of rule 1..n_rules; NULL for other numbers. */
const char *tw_rule_name(uint32_t rule);
const char *tw_rule_text(uint32_t rule);

/* Prints a program as text; program NULL: all of them. Errors: USAGE (no such program; names those
 * there are), NOSPACE. */
int tw_decoder_print(const tw_decoder *decoder, const char *program, FILE *out, tw_error *err);

/* ---- text ---- */

enum tw_tokenize_flags {
    TW_TOKENIZE_NO_BOS = 1, /* no BOS in front, whatever the vocabulary says */
    TW_TOKENIZE_SPECIAL = 2 /* the names of special tokens in the text stand for them */
};

/* Ids of text[0..n) (`text` may be NULL if n is 0): as many as `capacity` has room for go to `ids`
 * (may be NULL if capacity is 0), *count is how many there are. Errors: UNSUPPORTED (the bundle has no tokenizer), RANGE (text too
 * long). */
int tw_tokenize(const tw_decoder *decoder, const char *text, size_t n, unsigned flags,
                uint32_t *ids, size_t capacity, size_t *count, tw_error *err);
/* Text of ids, not terminated; *n bytes in all, of which capacity's go to `text`. `ids` and `text`
 * may be NULL if their counts are 0. Special tokens give nothing. Errors: UNSUPPORTED, RANGE (an id outside of the vocabulary). */
int tw_detokenize(const tw_decoder *decoder, const uint32_t *ids, size_t count, char *text,
                  size_t capacity, size_t *n, tw_error *err);

/* ---- deployments and sessions ---- */

/* Puts weights and programs onto the device. A device in this process uses the mapped weights in
 * place. Errors: TARGET (the bundle's target has another hash than the device's; names both),
 * VERSION, VERIFY (opened with NO_RULES), NOMEM (device memory: have, need). */
int tw_deploy(tw_device *device, const tw_decoder *decoder, tw_deployment **out, tw_error *err);
void tw_deployment_destroy(tw_deployment *deployment);

enum tw_mode { TW_MODE_FAST = 0, TW_MODE_STRICT = 1 };

struct tw_session_options {
    uint32_t size;
    /* positions to use; 0: the bundle's; more than the bundle's is refused */
    uint32_t n_ctx;
    enum tw_mode mode;  /* strict: one op at a time, every access checked; slow */
    uint32_t n_threads; /* fast mode; 0: the device's choice */
    /* tokens fed in one step at most; 0: the prefill program's rows; 1: token by token */
    uint32_t chunk;
    uint32_t random_schedule; /* strict: pick engines at random, from `seed`; gives the same bits */
    uint64_t seed;
};

/* A new sequence at position 0. Errors: USAGE (an option out of range; the device was reset), FORMAT
 * (the bundle lacks a program or tensor), NOMEM (names the device's limit that is reached). */
int tw_session_create(tw_deployment *deployment, const struct tw_session_options *options,
                      tw_session **out, tw_error *err);
void tw_session_destroy(tw_session *session);

struct tw_session_info {
    uint32_t size;
    uint32_t n_vocab, n_ctx, chunk, n_threads;
    uint32_t position;
    uint64_t steps;
    const char *mode, *target, *device;
};
int tw_session_get_info(const tw_session *session, struct tw_session_info *info, tw_error *err);

/* Appends n tokens (n > 0) to the sequence. Allocates nothing and makes no system call but to wake
 * threads. Errors, before anything has run: RANGE (an id outside of the vocabulary), CONTEXT_FULL,
 * USAGE (no tokens; the device was reset).
 * FAULT (names program, site, engine, op and graph operation; also logits that are infinite or not
 * numbers, with the layer and operation where that began) and TRUNCATED (the bundle's file was cut:
 * tw_guard_files) end the session: it can only be destroyed. */
int tw_session_feed(tw_session *session, const uint32_t *ids, size_t n, tw_error *err);
/* n_vocab logits of what follows the last token fed, valid until the session's next feed. NULL
 * before the first feed and after a rewind (and for session NULL, whose position is 0). */
const float *tw_session_logits(const tw_session *session);
uint32_t tw_session_position(const tw_session *session);
/* Forgets the tokens from `position` on. Errors: USAGE (beyond the current position). */
int tw_session_rewind(tw_session *session, uint32_t position, tw_error *err);

/* ---- generation ---- */

enum tw_generate_flags {
    TW_GENERATE_IGNORE_EOS = 1,    /* do not stop at the tokens that end a text */
    TW_GENERATE_PRINT_SPECIAL = 2, /* special tokens appear in the text */
    /* on_token gets NULL for the logits. Greedy tokens are then chosen on the device, a few at a
     * time; a callback or *stop that ends the text leaves a session whose logits are NULL. */
    TW_GENERATE_NO_LOGITS = 4
};

struct tw_generate_options {
    uint32_t size;
    uint32_t n_predict; /* tokens at most; 0: until the text ends or the context is full */
    uint32_t flags;
    float temperature;  /* 0: greedy, the lowest id among equals */
    uint32_t top_k;     /* 0: no limit */
    float top_p, min_p; /* top_p 0 means 1: no limit; min_p 0: no limit */
    uint64_t seed;      /* same seed, same tokens, on every device */
    /* Any may be NULL. These two return 0, or another value to stop after this token. on_text gets
     * whole UTF-8 characters; needs a tokenizer. The bytes of a character that is not complete when
     * tw_generate returns wait in the session: they come with its rest if the next call's prompt is
     * the last token chosen, and otherwise as U+FFFD at its beginning. */
    int (*on_token)(void *ctx, uint32_t id, const float *logits);
    int (*on_text)(void *ctx, const char *text, size_t n);
    void *ctx;
    /* or NULL: generation ends after the current token once it is not 0 */
    const volatile sig_atomic_t *stop;
    /* or NULL: after each part of the prompt; the last time, before the first token, with done == total. */
    void (*on_prompt)(void *ctx, uint32_t done, uint32_t total);
};

enum tw_stop_reason {
    TW_STOP_COUNT = 0, /* n_predict tokens */
    /* one of the ids that end a text, which is not counted, passed on or printed */
    TW_STOP_END = 1,
    TW_STOP_CONTEXT = 2,  /* the context is full; tw_generate returns CONTEXT_FULL */
    TW_STOP_CALLBACK = 3, /* a callback said so */
    TW_STOP_INTERRUPT = 4 /* *stop; tw_generate returns INTERRUPTED */
};

#define TW_GREEDY_MAX 256u
#define TW_GREEDY_STOPS 4u
enum tw_greedy_flags {
    TW_GREEDY_NO_LOGITS = 1 /* they stay on the device: tw_session_logits may be NULL */
};
struct tw_greedy_options {
    uint32_t size;
    uint32_t n;                     /* tokens at most: 1 to TW_GREEDY_MAX */
    uint32_t n_stops;               /* at most TW_GREEDY_STOPS */
    uint32_t stop[TW_GREEDY_STOPS]; /* ids that end the run */
    uint32_t flags;                 /* tw_greedy_flags */
};

/* Feeds `id`, then what is likeliest to follow (the lowest id among equals), then what follows
 * that: one command for the device, which chooses and feeds by itself. `options` must not be NULL:
 * there is no default for n. tokens (room for n of them)
 * gets the *n_tokens that were chosen; the last one is not fed, so the next run may begin with it;
 * the logits are those that it was chosen from. *reason: COUNT (n tokens), END (the last one is a
 * stop), CONTEXT (the last one has no room), INTERRUPT. The same tokens as by feeding one at a
 * time. Allocates nothing. Errors: those of feed; USAGE (n or n_stops out of range); UNSUPPORTED
 * (the device cannot). With FAULT the tokens before it are told. */
int tw_session_run_greedy(tw_session *session, uint32_t id, const struct tw_greedy_options *options,
                          uint32_t *tokens, uint32_t *n_tokens, enum tw_stop_reason *reason,
                          tw_error *err);
/* Ends the session's greedy run before its next token, or else its next run before the first; then
 * it is forgotten. A device that does not share memory with this process notices it only between
 * runs. May be called from any thread and from signal handlers. NULL is legal. */
void tw_session_interrupt(tw_session *session);

struct tw_generate_result {
    uint32_t size;
    enum tw_stop_reason reason;
    uint32_t n_prompt, n_generated;
    /* first_token: from the call to the first token chosen */
    double prefill_s, first_token_s, decode_s;
};

/* Feeds the prompt (n_prompt > 0) and generates. `result` (may be NULL) is filled in any case but
 * USAGE. The last token chosen is not fed: the next call's prompt begins with it. Errors: those of
 * feed; USAGE (no prompt; a sampling parameter); CONTEXT_FULL and INTERRUPTED after all text so far
 * was passed on. */
int tw_generate(tw_session *session, const uint32_t *prompt, size_t n_prompt,
                const struct tw_generate_options *options, struct tw_generate_result *result,
                tw_error *err);

#ifdef __cplusplus
}
#endif
#endif
