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
 * compile.h compiles models to bundles, emulate.h serves an emulated device, program.h reads
 * programs as text, error.h defines the errors; these headers are all that the shared library
 * exports.
 *
 * Objects are reference-counted and may be closed and destroyed in any order: an object that others
 * were created from is freed with the last of them. A device that is closed before its sessions is
 * therefore released with the last session. destroy(NULL) and close(NULL) do nothing.
 *
 * Errors: a function that can fail returns 0 or a TW_E_* code and fills `err` (which may be NULL)
 * with one line. Each function lists the codes specific to it. Beyond these, any function that
 * creates an object may return NOMEM; any that uses a device DEVICE_LOST, TIMEOUT or PROTOCOL; and
 * any function USAGE, if a pointer is NULL that may not be, an undefined flag bit is set, or the
 * `size` of a structure is too small. A pointer may be NULL only where its contract says so. Unless
 * stated otherwise, a function that fails leaves its output parameters unset and its objects
 * unchanged.
 *
 * Threads: a device or deployment may be used by several threads at once, a session by one at a
 * time. A decoder is immutable. Functions block until they are done. The library never prints,
 * exits, or installs signal handlers, except for the one that tw_guard_files() installs.
 *
 * Option and info structures begin with `size`: set it to the sizeof of the structure. Zero fields
 * mean the default. An options pointer may be NULL for all defaults. Structures only grow at their
 * end: if the caller's is shorter than the library's, only `size` bytes are read or written; if it
 * is longer, the extra fields are ignored (tw_version_number() returns the library's version).
 * Callbacks receive structures of the library's size.
 *
 * Stop words: a function with a parameter or option `stop` polls *stop several times a second and
 * returns once it is not 0; one that waits for a device's step does so within 100 ms, whatever the
 * step is. A signal handler may assign to such a word; another thread sets it with
 * an atomic store, __atomic_store_n(stop, 1, __ATOMIC_RELAXED). NULL means that it is never
 * stopped.
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

/* Returns the version of the linked library, as text and in the form of TW_VERSION_NUMBER (which is
 * that of the header). */
const char *tw_version(void);
uint32_t tw_version_number(void);

/* Installs a SIGBUS handler that protects against bundle files being truncated. Weights are read
 * from the mapped bundle file while a session runs; if another process truncates that file, such a
 * read raises SIGBUS, which by default kills the process. After this call the step fails with
 * TRUNCATED and the file's name instead. The handler acts only on faults inside this library's file
 * mappings (it replaces the pages by zeros and marks the mapping) and passes every other SIGBUS to
 * the previous handler, or lets it kill the process. It is process-wide; a program that installs
 * its own handler later should chain to this one. May be called at any time and from any thread; a
 * second call does nothing. Not needed if bundles are only ever replaced by rename. Errors:
 * INTERNAL. */
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
    char target[64];   /* name of its target; "": accepts bundles for any target */
    char state[32];    /* "ready", or why it cannot be used */
    char detail[160];  /* one human-readable line */
    /* speed of its link in Mbit/s; 0: no link, or unknown */
    uint32_t link_mbits;
    /* highest link speed of the device; above link_mbits: another port or cable would be faster */
    uint32_t link_best_mbits;
    /* Of an open device: 1 if it runs the programs that this process sends without checking them
     * itself, so whoever may open it must be trusted with it. 0: it checks them, or is this
     * process; or not known, as in lists, which open nothing. */
    uint32_t trusts_host;
};

/* Calls found() for every device until it returns false. A device that cannot be used is reported
 * with the reason as its state; it does not make the function fail. `info` is valid during the
 * callback. */
int tw_device_list(bool (*found)(void *ctx, const struct tw_device_info *info), void *ctx,
                   tw_error *err);

enum tw_device_event {
    TW_DEVICE_ARRIVED = 1,
    TW_DEVICE_LEFT = 2,   /* info is the last known */
    TW_DEVICE_CHANGED = 3 /* its state has changed: "busy", "ready", ... */
};
/* Watches the list of devices: calls changed() with ARRIVED for each device present, then for each
 * device that arrives, leaves or changes its state, within about a second. Returns when changed()
 * returns false or *stop is not 0 (`stop` may be NULL). changed() runs on the caller's thread and
 * may call the library, including to open the device. Errors: NOMEM. */
int tw_device_watch(bool (*changed)(void *ctx, enum tw_device_event event,
                                    const struct tw_device_info *info),
                    void *ctx, const volatile sig_atomic_t *stop, tw_error *err);

struct tw_device_options {
    uint32_t size;
    /* maximum threads of the emulator's fast mode; 0: the processors this process may use */
    uint32_t n_threads;
    /* emulator only: "scalar", "avx2", "avx512", "neon", "neon-dot"; NULL: the fastest */
    const char *isa;
    uint64_t memory_bytes; /* emulator only; 0: the host's memory */
    /* Timeout in milliseconds for a device outside this process; 0: ten seconds. It
     * restarts whenever the device makes progress. */
    uint32_t deadline_ms;
};

/* Opens a device for exclusive use. `selector` is an index of the list, "emu[:TARGET]",
 * "usb[:SERIAL]", "usb:BUS-PORT[.PORT...]", "pcie[:BDF]", "socket:NAME" (or a path), "null"; NULL:
 * "emu". *out is the caller's: tw_device_close(). Once any call has failed with DEVICE_LOST or
 * TIMEOUT, the handle is dead: each later call fails with DEVICE_LOST and the first cause without
 * touching the device; close it and open the device again. Errors: NO_DEVICE (lists the devices
 * present), DEVICE_BUSY (names the holder), VERSION (names the side to upgrade), USAGE,
 * UNSUPPORTED. */
int tw_device_open(const char *selector, const struct tw_device_options *options, tw_device **out,
                   tw_error *err);
/* Releases the device, now or when the last deployment and session on it is destroyed. NULL is
 * legal. */
void tw_device_close(tw_device *device);
/* Describes an open device: selector, target, state, device name, link speed and whom it trusts. */
int tw_device_get_info(const tw_device *device, struct tw_device_info *info, tw_error *err);

/* Returns the device's target as JSON, suitable as tw_compile_options.target to compile a model for
 * this device; "" if the device accepts bundles for any target, or reports only a name
 * (tw_device_info.target). Valid as long as the device. */
const char *tw_device_target(const tw_device *device);

/* Returns the recovery steps that tw_device_open() had to take ("both endpoints were cleared"); ""
 * if none. Valid as long as the device. */
const char *tw_device_recovered(const tw_device *device);

/* Frees everything on the device, including the weights it keeps for later opens, and checks that
 * it answers. Existing deployments and sessions on it can then only be destroyed; using them fails
 * with USAGE ("the device was reset"). Errors: FAULT (memory is still in use after the reset). */
int tw_device_reset(tw_device *device, tw_error *err);

/* What a process is doing with a device that it has open, from the status page that it publishes
 * (`tilewright top`). */
struct tw_status_info {
    uint32_t size;
    uint32_t pid;
    char program[32], device[80], target[64], bundle[64];
    char state[16];           /* "idle", "running" a step, "waiting" for another request, "lost" */
    char doing[16];           /* the request in progress: "RUN", "WRITE", ...; "": none */
    char error[200];          /* of the last request that failed; lost: the cause; or "" */
    uint32_t position, n_ctx; /* of the session that stepped last */
    uint64_t tokens, prompt_tokens, steps;
    double tokens_per_s; /* of the last seconds; 0 while nothing is generated */
    uint64_t sent_bytes, received_bytes;
    uint64_t resent, damaged;  /* retransmissions; packets received damaged */
    double open_s, progress_s; /* seconds since it was opened; since it last made progress */
    char bundle_file[256];     /* the name of the bundle's file; `bundle` is its first 63 bytes */
    /* Pages of state of its deployments: all of them; those that hold something, which includes
     * what follows; those that two or more hold; those of the prefix cache. */
    uint32_t pages, pages_used, pages_shared, pages_cached;
};

/* Returns the status of an open device of this process. */
int tw_device_get_status(tw_device *device, struct tw_status_info *info, tw_error *err);
/* Calls found() for every device that a process on this computer has open and whose status this
 * user may read, until it returns false. Read-only: opens no device. `info` is valid during the
 * callback. */
int tw_status_list(bool (*found)(void *ctx, const struct tw_status_info *info), void *ctx,
                   tw_error *err);

struct tw_selftest_step {
    uint32_t size;
    const char *name;
    double seconds;
    uint64_t bytes; /* bytes transferred if the step measures a throughput; else 0 */
};
/* Tests an open device without disturbing what is deployed on it: memory, transfers, a small
 * program. Calls passed() (may be NULL) after each step that passed. Errors: FAULT (what was found
 * and expected, and where), UNSUPPORTED (too little memory to test). */
int tw_device_selftest(tw_device *device,
                       void (*passed)(void *ctx, const struct tw_selftest_step *step), void *ctx,
                       tw_error *err);

/* ---- decoders: bundle files ---- */

enum tw_decoder_flags {
    TW_DECODER_CHECK_HASH = 1, /* recompute every hash: reads the whole file */
    /* parse only, do not verify: for inspecting a file; such a decoder cannot be deployed */
    TW_DECODER_NO_RULES = 2
};

/* Maps and checks a bundle; `flags` of tw_decoder_flags. *out is the caller's: tw_decoder_close().
 * Errors: IO, TRUNCATED, FORMAT, RANGE, HASH, VERIFY, UNSUPPORTED (also a bundle of another format
 * or machine ABI: recompile, or upgrade). */
int tw_decoder_open(const char *path, unsigned flags, tw_decoder **out, tw_error *err);
/* Closes the bundle, now or with the last deployment made from it. NULL is legal. */
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
    uint64_t bytes_per_token; /* bytes of weights read per decode step */
    uint8_t content_hash[32], target_hash[32];
    char target[64], model[128], arch[32], license[64], tool[64];
    /* texts of the bundle, or NULL; valid as long as the decoder */
    const char *path, *plan, *origin;
    /* token ids that end generation: end of sequence, of a turn, of a message */
    uint32_t n_ends, end[TW_ENDS_MAX];
    const char *kv; /* element type of the key and value caches: "f32", "f16"; NULL: no caches */
    const char *chat_template; /* the model's, as in its file; NULL: none. Valid as long as the
                                * decoder */
};
/* Describes the bundle. */
int tw_decoder_get_info(const tw_decoder *decoder, struct tw_decoder_info *info, tw_error *err);

#define TW_CLASSES_MAX 4u
struct tw_program_info {
    uint32_t size;
    uint32_t rows; /* maximum tokens per step */
    uint32_t n_sites, mesh_width, mesh_height, n_chips;
    uint32_t n_tensors, n_buffers, n_semaphores, n_groups, n_trips, n_stages;
    uint32_t n_edges; /* always 0: programs no longer have any */
    uint32_t n_sections;
    uint64_t sram_bytes, sram_used; /* per site, all memory classes; used: by the fullest site */
    uint64_t n_ops, n_words;
    const char *name;
    /* bytes of each memory class of a site (0: there is none), and what the fullest site uses */
    uint64_t class_bytes[TW_CLASSES_MAX], class_used[TW_CLASSES_MAX];
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
/* Describe entry `index` of the decoder's tables of programs, segments and symbols. The texts are
 * valid as long as the decoder. Errors: USAGE (index out of range). */
int tw_decoder_get_program(const tw_decoder *decoder, uint32_t index, struct tw_program_info *info,
                           tw_error *err);
int tw_decoder_get_segment(const tw_decoder *decoder, uint32_t index, struct tw_segment_info *info,
                           tw_error *err);
int tw_decoder_get_symbol(const tw_decoder *decoder, uint32_t index, struct tw_symbol_info *info,
                          tw_error *err);

/* A buffer in the SRAM of a site. Sections are numbered within the program; UINT32_MAX and a NULL
 * name if no op touches the buffer. */
struct tw_map_info {
    uint32_t size;
    uint32_t buffer, mem_class, pages;
    uint64_t offset, bytes;
    uint32_t first_section, last_section;
    const char *name, *kind, *dtype;
    const char *tensor; /* the activation, param or state that it holds, or NULL */
    const char *first_name, *last_name;
    /* what it holds of each instance of a param or state: window_rows rows of window_row_bytes
     * bytes from byte window_first on, one every window_stride bytes; window_rows 0: not a
     * window */
    uint64_t window_first, window_stride, window_row_bytes;
    uint32_t window_rows;
};
/* Calls found() for each buffer of the site, in order of memory class and
 * offset, until it returns false.
 * Errors: USAGE (no such program or site), NOMEM. */
int tw_decoder_map(const tw_decoder *decoder, uint32_t program, uint32_t site,
                   bool (*found)(void *ctx, const struct tw_map_info *info), void *ctx,
                   tw_error *err);

#define TW_RULES_MAX 32u
struct tw_rules_info {
    uint32_t size;
    uint32_t n_rules;
    uint32_t failed_rule;           /* 0: none */
    uint64_t checked[TW_RULES_MAX]; /* objects checked, indexed by the rule's number */
};
/* Checks every program against the rules of the tile machine. `info` (may be NULL) is filled on
 * success and on VERIFY. Errors: VERIFY. */
int tw_decoder_verify(tw_decoder *decoder, struct tw_rules_info *info, tw_error *err);
/* Return the name and the text of rule 1..n_rules; NULL for other numbers. Static strings. */
const char *tw_rule_name(uint32_t rule);
const char *tw_rule_text(uint32_t rule);

/* Prints a program as text; program NULL: all of them. Errors: USAGE (no such program; lists the
 * programs), NOSPACE. */
int tw_decoder_print(const tw_decoder *decoder, const char *program, FILE *out, tw_error *err);

/* ---- text ---- */

enum tw_tokenize_flags {
    TW_TOKENIZE_NO_BOS = 1, /* do not prepend BOS, even if the vocabulary asks for it */
    TW_TOKENIZE_SPECIAL = 2 /* parse the names of special tokens in the text as these tokens */
};

/* Converts text[0..n) to token ids (`text` may be NULL if n is 0). Tokens that the model takes
 * whole from any text (USER_DEFINED) are found; control tokens, such as the end of a turn, are not
 * unless TW_TOKENIZE_SPECIAL is set. Stores the first `capacity` ids in `ids` (may be NULL if
 * capacity is 0) and the total number in *count. Errors: UNSUPPORTED (the bundle has no tokenizer),
 * RANGE (text too long). */
int tw_tokenize(const tw_decoder *decoder, const char *text, size_t n, unsigned flags,
                uint32_t *ids, size_t capacity, size_t *count, tw_error *err);
/* Describes a token. */
struct tw_token_info {
    uint32_t size;
    uint32_t is_control; /* it has no text of its own: tw_detokenize() leaves it out */
    uint32_t is_end;     /* it ends generation */
    uint32_t reserved;
    /* its text, or the name of a control token; not terminated; valid as long as the decoder */
    const char *text;
    size_t n_text;
};
/* Errors: UNSUPPORTED (the bundle has no tokenizer), RANGE (an id outside the vocabulary). */
int tw_decoder_get_token(const tw_decoder *decoder, uint32_t id, struct tw_token_info *info,
                         tw_error *err);
/* Converts ids to text. Stores the first `capacity` bytes in `text`, without a terminator, and the
 * total length in *n. `ids` and `text` may be NULL if their counts are 0. Special tokens produce no
 * text. Errors: UNSUPPORTED (the bundle has no tokenizer), RANGE (an id outside the vocabulary). */
int tw_detokenize(const tw_decoder *decoder, const uint32_t *ids, size_t count, char *text,
                  size_t capacity, size_t *n, tw_error *err);

/* ---- chats: messages to a prompt ---- */

/* A chat template, ready to turn messages into a prompt for one decoder. Immutable: any number of
 * threads may render it. Until it is destroyed it keeps the decoder open. */
typedef struct tw_chat tw_chat;

struct tw_chat_options {
    uint32_t size;
    const char *template_text; /* Jinja, or the name of a built-in template; NULL: the decoder's */
    /* seconds since 1970 for templates that write the date, in local time; 0: the current time */
    int64_t now;
};

/* Reads a template, of which it keeps what it needs; NULL options: defaults. *out is the caller's:
 * tw_chat_destroy(). Errors: UNSUPPORTED (the bundle has no template or no tokenizer; the template
 * uses a construct that is not supported, which the message names with line and column, or is
 * nested too deeply), FORMAT (its syntax), RANGE (more than 1 MiB), USAGE (NULL; template_text is
 * neither a name nor a template), NOMEM. */
int tw_chat_create(const tw_decoder *decoder, const struct tw_chat_options *options, tw_chat **out,
                   tw_error *err);
/* Frees it. NULL is legal. */
void tw_chat_destroy(tw_chat *chat);

/* Renders the template. json[0..n): an object with the template's variables: "messages", an array
 * of objects with "role" and "content"; "add_generation_prompt", true to have the answer of the
 * assistant begun; and whatever else the template knows (tools, enable_thinking). bos_token and
 * eos_token are defined. Stores the first `capacity` bytes in `text`, without a terminator, and the
 * total length in *length. Errors: FORMAT (the JSON; messages that the template refuses, with its
 * words), UNSUPPORTED, RANGE (too large, nested too deeply, takes too long), USAGE (NULL; `text`
 * may be if `capacity` is 0), NOMEM (also: the template needs more memory than it may have). */
int tw_chat_render(const tw_chat *chat, const char *json, size_t n, char *text, size_t capacity,
                   size_t *length, tw_error *err);
/* Renders and converts to token ids, the first `capacity` of them in `ids` and the total number in
 * *count. Special tokens come from the template only: what spells one in the messages stays text,
 * but for the names of roles, of which templates make markers. If the vocabulary asks for BOS there
 * is exactly one at the beginning, whoever writes it. Errors: those of tw_chat_render() and
 * tw_tokenize(). */
int tw_chat_tokenize(const tw_chat *chat, const char *json, size_t n, uint32_t *ids,
                     size_t capacity, size_t *count, tw_error *err);

/* Returns the name of built-in template number `index`; NULL if there are no more. */
const char *tw_chat_builtin_name(uint32_t index);

/* ---- deployments and sessions ---- */

/* Puts weights and programs onto the device, and allocates the pages of state. An emulator in this
 * process uses the mapped weights in place. *out is the caller's: tw_deployment_destroy(). Errors:
 * TARGET (the bundle was compiled for a target other than the device's; names both), VERSION,
 * VERIFY (opened with NO_RULES), NOMEM (device memory: have, need). */
int tw_deploy(tw_device *device, const tw_decoder *decoder, tw_deployment **out, tw_error *err);

struct tw_deploy_options {
    uint32_t size;
    /* Positions that all sessions together can hold, a whole number of pages of TW_PAGE_POSITIONS;
     * 0: 16 sequences of the bundle's context, at most 32,768 and what half of the free memory
     * holds. A page is shared by the sessions that have it in common.
     * Without effect on a bundle that keeps a state for each session. */
    uint64_t state_positions;
    /* Where prefixes that tw_session_keep_prefix() keeps are saved, too, so that they outlast the
     * process: a folder of this user's, which is created if its parent exists; NULL: nowhere. When
     * one has been kept, others are removed as long as all files take more than prefix_bytes; 0: 1
     * GiB. */
    const char *prefix_folder;
    uint64_t prefix_bytes;
};
#define TW_PAGE_POSITIONS 64u
/* The same with options. Errors besides: IO (prefix_folder cannot be created, is another user's, or
 * others may write to it). */
int tw_deploy_with(tw_device *device, const tw_decoder *decoder,
                   const struct tw_deploy_options *options, tw_deployment **out, tw_error *err);
/* Frees the deployment's memory on the device, now or with the last session on it. NULL is
 * legal. */
void tw_deployment_destroy(tw_deployment *deployment);

enum tw_mode { TW_MODE_FAST = 0, TW_MODE_STRICT = 1 };

struct tw_session_options {
    uint32_t size;
    /* positions to use; 0: the bundle's, or as many as the deployment has if those are fewer; more
     * than either is an error */
    uint32_t n_ctx;
    enum tw_mode mode;  /* strict: one op at a time, every access checked; slow */
    uint32_t n_threads; /* fast mode; 0: the device's choice */
    /* maximum tokens per step; 0: the prefill program's rows; 1: token by token */
    uint32_t chunk;
    uint32_t random_schedule; /* strict: pick engines at random, from `seed`; same result */
    uint64_t seed;
    /* or NULL: once it is not 0, the session's functions return INTERRUPTED. A step that is running
     * then may complete within 40 ms; after that it is ended in its middle, and the session can
     * only be destroyed. Must outlive the session. */
    const volatile sig_atomic_t *stop;
    /* 1: the session begins prompts with what the deployment's prefix cache has of them, and leaves
     * its sequence there ("prefix cache", below) */
    uint32_t prefix_cache;
    /* or NULL: sessions find only what sessions of the same salt left. Copied. */
    const char *prefix_salt;
};

/* Creates a sequence at position 0. *out is the caller's: tw_session_destroy(). Errors: USAGE (an
 * option out of range; the device was reset), FORMAT (the bundle lacks a program or tensor), NOMEM
 * (names the device limit that was reached). */
int tw_session_create(tw_deployment *deployment, const struct tw_session_options *options,
                      tw_session **out, tw_error *err);
/* Creates a session that goes on from where `session` is: same tokens, same logits, same options.
 * The two share the pages of state that they have in common; a page is copied, on the device, when
 * one of them writes to it. *out is the caller's. The same thread rule as for a step of `session`.
 * Errors: FAULT (an earlier step failed), UNSUPPORTED (the bundle does not keep its state in pages:
 * compile it again), NOMEM. */
int tw_session_fork(const tw_session *session, tw_session **out, tw_error *err);
/* Frees the session and its memory on the device; pages that no other session holds are free again.
 * NULL is legal. */
void tw_session_destroy(tw_session *session);

struct tw_session_info {
    uint32_t size;
    uint32_t n_vocab, n_ctx, chunk, n_threads;
    uint32_t position;
    uint64_t steps;
    const char *mode, *target, *device;
    uint32_t pages;    /* of state that it holds, shared ones included */
    uint32_t n_reused; /* tokens that its last prompt had from the prefix cache */
    uint32_t batch;    /* most sessions that can share a step (tw_step); 1: none */
};
/* Describes a session; its texts are valid as long as the session. */
int tw_session_get_info(const tw_session *session, struct tw_session_info *info, tw_error *err);

/* Appends n tokens (n > 0) to the sequence. Does not allocate; makes no system call other than to
 * wake threads. Errors, before anything has run: RANGE (an id outside the vocabulary),
 * CONTEXT_FULL, NOMEM (no page of state is free: says who holds how many), USAGE (no tokens; the
 * device was reset). INTERRUPTED (tw_session_options.stop):
 * tw_session_position() tells how many tokens were fed. Errors that end the session, so that it
 * can only be destroyed: FAULT (names program, site, engine, op and graph operation; also if logits
 * are infinite or NaN, with the layer and operation where that began) TRUNCATED (the bundle's
 * file was truncated: tw_guard_files); and INTERRUPTED if a step was ended in its middle, as the
 * message says. */
int tw_session_feed(tw_session *session, const uint32_t *ids, size_t n, tw_error *err);
/* Returns the n_vocab logits that follow the last token fed, valid until the session's next feed.
 * NULL before the first feed, after a rewind, and if `session` is NULL. */
const float *tw_session_logits(const tw_session *session);
/* Appends n tokens (n > 0) as tw_session_feed() does, and writes the logits after each of them:
 * n rows of n_vocab floats. They are, bit for bit, those that feeding the tokens one by one gives;
 * tw_session_logits() returns the last row. The first call loads a program and allocates. Errors:
 * those of tw_session_feed(); UNSUPPORTED (the bundle has no program for it: compile with
 * tw_compile_options.all_logits), and those of tw_session_create() that concern loading it. */
int tw_session_score(tw_session *session, const uint32_t *ids, size_t n, float *logits,
                     tw_error *err);
/* Returns how many tokens the sequence has; 0 if `session` is NULL. */
uint32_t tw_session_position(const tw_session *session);
/* Discards the tokens from `position` on, and the incomplete character that the last text may have
 * ended with. Errors: USAGE (beyond the current position). */
int tw_session_rewind(tw_session *session, uint32_t position, tw_error *err);

/* ---- prefix cache ---- */

/* A deployment keeps the state of sequences in pages that no session holds. A prompt that begins
 * like one of them then starts from there: its first tokens are compared, one by one, and the pages
 * shared as with a fork, so that the logits are the same bits. When a session needs pages and none
 * is free, those of the cache are: first those that are worth least, by the number of tokens up to
 * them and the time since they were used. No session is disturbed.
 *
 * Sessions use the cache that ask for it (tw_session_options.prefix_cache) and whose state is in
 * pages. They leave their sequence in it when they are destroyed, and what a rewind, a restore or
 * the end of a prompt leaves of whole pages. tw_generate() begins and ends prompts this way. A
 * session leaves nothing while its state came from tw_session_restore(), which anybody may have
 * made, or was forked from such a one; it does again once it has been rewound to position 0. */

/* Appends n tokens (n > 0) as tw_session_feed() does, except that those are not computed with which
 * the cache has a sequence that begins like the session's; at least the last one is. *n_reused (may
 * be NULL) of them had been computed before. Errors: those of tw_session_feed(). After one of them
 * the session may have some of the tokens, also after NOMEM: tw_session_position() says how far it
 * got, and *n_reused is set if it is beyond where it began. */
int tw_session_feed_prompt(tw_session *session, const uint32_t *ids, size_t n, uint32_t *n_reused,
                           tw_error *err);
/* Only takes what the cache has of the n tokens that are about to be fed, but for the last one:
 * *n_reused of them, which may be 0. The others are still to be fed. A damaged or foreign file in
 * the cache's folder is no error: it is not used. Errors: those of tw_session_feed(). */
int tw_session_reuse_prefix(tw_session *session, const uint32_t *ids, size_t n, uint32_t *n_reused,
                            tw_error *err);
/* Leaves the session's sequence in the cache now: whole pages; and, if the deployment has a folder
 * for prefixes, in a file there, where older ones make room for it. *written_bytes (may be NULL)
 * went to that file: only what it did not have, and 0 for sequences of less than a page or more
 * bytes than the folder may have, and for models with sliding windows in contexts longer than
 * these. Files are for this user only (mode 0600), and one that is cut or damaged is never used.
 * Does nothing for a session that does not use the cache, or whose state was restored. Errors:
 * FAULT (an earlier step failed), USAGE (the device was reset), NOMEM, INTERRUPTED; IO, NOSPACE:
 * the folder cannot be used or written to, or another process has the file for too long. The cache
 * in memory has the sequence all the same. */
int tw_session_keep_prefix(tw_session *session, uint64_t *written_bytes, tw_error *err);

/* ---- several sessions at once ---- */

/* The tokens of one session in a tw_step(). */
struct tw_step_entry {
    tw_session *session;
    const uint32_t *ids; /* n > 0 tokens to append */
    size_t n;
    uint32_t flags; /* none are defined: 0 */
    int code;       /* receives 0 or the session's error */
    tw_error *err;  /* or NULL; filled if the code is not 0 */
};

/* Appends tokens to several sessions, each of which is in the list once, with as few steps of the
 * device as possible; one step takes about the time of a single token, however many sequences it
 * has. Sessions of one deployment with the same mode and number of threads share steps if the
 * bundle has programs for it (tw_compile_options.batch_rows); the rests of prompts ride along.
 * Others take steps of their own. What a session has afterwards is, bit for bit, what
 * tw_session_feed() gives, whatever its company; only tw_session_info.steps may differ.
 *
 * Each entry gets its own result, and the errors are those of tw_session_feed(): a session that is
 * refused, that faults or whose logits are infinite or NaN does not disturb the others. USAGE: also
 * an entry of a session that is in the list before. A step that runs is interrupted by a stop word
 * that all its sessions have; other stop words take effect before the next step. Returns 0 if all
 * went well, or the code of the first entry that did not, with its error in *err; USAGE for an
 * empty list. Does not allocate, except to load a program when a number of sequences first needs
 * it; makes no system call other than to wake threads. Several threads may step sessions of one
 * deployment at a time, each its own. */
int tw_step(struct tw_step_entry *entries, size_t n_entries, tw_error *err);

/* ---- generation ---- */

/* What tw_generate() does when the context is full, before it feeds the next token. The session is
 * then rewound, and those of its tokens that stay are fed again, at positions from 0 on: so it has
 * the bits of a session that was fed these tokens only. */
enum tw_on_full {
    TW_FULL_STOP = 0,  /* nothing: it ends with CONTEXT_FULL */
    TW_FULL_SLIDE = 1, /* the newer half of the context stays */
    TW_FULL_SINK = 2 /* the first n_sink tokens stay, and the newest, half of the context in all */
};

enum tw_generate_flags {
    TW_GENERATE_IGNORE_EOS = 1,    /* do not stop at the tokens that end a text */
    TW_GENERATE_PRINT_SPECIAL = 2, /* special tokens appear in the text */
    /* on_token gets NULL for the logits. Greedy tokens are then chosen on the device, a few at a
     * time; if a callback or *stop ends the text, the session's logits are NULL afterwards.
     * Others are drawn from the lists of a bundle that has them (tw_compile_options.top_k, not
     * below this top_k), if logits would have to be read from the device: they are NULL, too. */
    TW_GENERATE_NO_LOGITS = 4,
    /* *stop ends generation between steps only, so that the session can go on, however long a step
     * takes */
    TW_GENERATE_WHOLE_STEPS = 8
};

/* A number to add to the logit of a token; -INFINITY: it is never chosen. */
struct tw_logit_bias {
    uint32_t id;
    float bias;
};

#define TW_STOP_TEXTS_MAX 16u
#define TW_STOP_TEXT_BYTES_MAX 256u

/* Sampling takes these steps, in this order (driver/decode/sampler.h defines them): logit bias,
 * penalties, top_k, typical, top_p, min_p, temperature. */
struct tw_generate_options {
    uint32_t size;
    uint32_t n_predict; /* maximum tokens; 0: until the text ends or the context is full */
    uint32_t flags;
    float temperature;  /* 0: greedy, the lowest id among equals */
    uint32_t top_k;     /* 0: no limit */
    float top_p, min_p; /* top_p 0 means 1: no limit; min_p 0: no limit */
    uint64_t seed;      /* same seed, same tokens, on every device */
    /* Any of them may be NULL; they run on the caller's thread. on_token and on_text return 0, or
     * another value to stop after this token; after one of on_text's, it is not called again, even
     * if some text was held back. on_text gets whole UTF-8 characters and needs a
     * tokenizer. If a character is incomplete when tw_generate() returns, the session keeps its
     * bytes: the next call completes it if its prompt is the last token chosen, and otherwise
     * begins with U+FFFD. */
    int (*on_token)(void *ctx, uint32_t id, const float *logits);
    int (*on_text)(void *ctx, const char *text, size_t n);
    void *ctx;
    /* or NULL: generation ends after the current token once it is not 0, or in the middle of a step
     * as tw_session_options.stop says */
    const volatile sig_atomic_t *stop;
    /* or NULL: called after each part of the prompt; done == total in the last call, before the
     * first token */
    void (*on_prompt)(void *ctx, uint32_t done, uint32_t total);
    float typical; /* 0 means 1: no limit */
    /* Of tokens among the last repeat_last_n of history, prompt and text. Penalties 0: none;
     * repeat_penalty 1: none. repeat_last_n 0 means 64; UINT32_MAX: the whole context. */
    float repeat_penalty, presence_penalty, frequency_penalty;
    uint32_t repeat_last_n;
    /* tokens before the prompt, which the session has; for penalties only */
    uint32_t n_history;
    const uint32_t *history;
    const struct tw_logit_bias *logit_bias;
    uint32_t n_logit_bias;
    /* Texts that end the text, where they begin: at most TW_STOP_TEXTS_MAX, of 1 to
     * TW_STOP_TEXT_BYTES_MAX bytes of UTF-8. on_text does not get them, nor anything that may turn
     * out to begin one; on_token gets every token. They may span tokens. */
    uint32_t n_stop_texts;
    const char *const *stop_texts;
    uint32_t on_full; /* enum tw_on_full; the prompt may then be longer than the context, too */
    uint32_t n_sink;  /* of TW_FULL_SINK: less than half of the context; 0: 4 */
};

enum tw_stop_reason {
    TW_STOP_COUNT = 0, /* n_predict tokens were generated */
    /* a token that ends the text was chosen; tw_generate neither counts it nor passes it on */
    TW_STOP_END = 1,
    TW_STOP_CONTEXT = 2,   /* the context is full; tw_generate returns CONTEXT_FULL */
    TW_STOP_CALLBACK = 3,  /* a callback asked to stop */
    TW_STOP_INTERRUPT = 4, /* *stop; tw_generate returns INTERRUPTED */
    TW_STOP_TEXT = 5       /* the text came to one of stop_texts */
};

#define TW_GREEDY_MAX 256u
#define TW_GREEDY_STOPS 4u
enum tw_greedy_flags {
    TW_GREEDY_NO_LOGITS = 1 /* do not fetch the logits: tw_session_logits may return NULL */
};
struct tw_greedy_options {
    uint32_t size;
    uint32_t n;                     /* maximum tokens: 1 to TW_GREEDY_MAX */
    uint32_t n_stops;               /* at most TW_GREEDY_STOPS */
    uint32_t stop[TW_GREEDY_STOPS]; /* ids that end the run */
    uint32_t flags;                 /* tw_greedy_flags */
};

/* Feeds `id`, then repeatedly the most likely next token (the lowest id among equals), in a single
 * request: the device chooses and feeds by itself. `options` must not be NULL, as n has no default.
 * `tokens` (room for n) receives the *n_tokens chosen. The last one is not fed, so the next run may
 * begin with it; the session's logits are those it was chosen from. *reason: COUNT (n tokens), END
 * (the last one is in `stop`), CONTEXT (no room to feed the last one), INTERRUPT (also if the
 * session's stop word is set before a token is begun). Chooses the same
 * tokens as feeding one at a time. Does not allocate. Errors: those of tw_session_feed(); USAGE (n
 * or n_stops out of range); UNSUPPORTED (not a capability of the device). On FAULT and
 * INTERRUPTED, `tokens` holds those generated before it. */
int tw_session_run_greedy(tw_session *session, uint32_t id, const struct tw_greedy_options *options,
                          uint32_t *tokens, uint32_t *n_tokens, enum tw_stop_reason *reason,
                          tw_error *err);
/* Ends the session's greedy run before its next token; if none is in progress, ends the next one
 * before its first token. Affects one run. A device that does not share memory with this process
 * notices it only between runs. May be called from any thread and from signal handlers. NULL is
 * legal. */
void tw_session_interrupt(tw_session *session);

struct tw_generate_result {
    uint32_t size;
    enum tw_stop_reason reason;
    uint32_t n_prompt, n_generated;
    /* seconds; first_token_s: from the call until the first token was chosen */
    double prefill_s, first_token_s, decode_s;
    uint32_t n_reused; /* tokens of the prompt that were not computed: the prefix cache had them */
    /* how often the context was full and went on (tw_generate_options.on_full), and how many tokens
     * the session lost by that, all times together */
    uint32_t n_windows, n_dropped;
};

/* Feeds the prompt (n_prompt > 0) and generates. `result` (may be NULL) is filled unless an
 * argument is invalid. The last token chosen is not fed: begin the next call's prompt with it.
 * Errors: those of tw_session_feed(); USAGE (no prompt; a sampling parameter out of range);
 * CONTEXT_FULL and INTERRUPTED, both after all text so far has been passed on. */
int tw_generate(tw_session *session, const uint32_t *prompt, size_t n_prompt,
                const struct tw_generate_options *options, struct tw_generate_result *result,
                tw_error *err);

#ifdef __cplusplus
}
#endif
#endif
