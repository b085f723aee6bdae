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
 * Objects are destroyed in the opposite order; each must outlive what was made from it.
 * destroy(NULL) and close(NULL) are legal.
 *
 * Errors: a function that can fail returns 0 or a TW_E_* code and fills `err` (which may be NULL)
 * with one line. Listed are the codes that mean something for that function; NOMEM is possible
 * wherever something is created, and DEVICE_LOST, TIMEOUT, PROTOCOL wherever a device is involved.
 * A failed function leaves its out-parameters unset and its objects as they were, unless told
 * otherwise.
 *
 * Threads: a device and a deployment may be used from many threads at a time, a session from one at
 * a time. A decoder does not change. Functions block until they are done. The library never prints,
 * exits, or installs signal handlers.
 *
 * Option and info structures begin with `size`: set it to sizeof the structure. Zero fields mean
 * the default. An options pointer may be NULL: all defaults.
 */
#ifndef TILEWRIGHT_TILEWRIGHT_H
#define TILEWRIGHT_TILEWRIGHT_H

#include "tilewright/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_VERSION "0.1.0"

/* Version of the library that is linked, as text. */
const char *tw_version(void);

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
void tw_device_list(bool (*found)(void *ctx, const struct tw_device_info *info), void *ctx);

enum tw_device_event {
    TW_DEVICE_ARRIVED = 1,
    TW_DEVICE_LEFT = 2,   /* info is the last that was known of it */
    TW_DEVICE_CHANGED = 3 /* its state is another: "busy", "ready", ... */
};
/* Watches the list: calls changed() with ARRIVED for each device that there is, then for whatever
 * comes, goes or changes, within about a second. Returns when changed() returns false or *stop (set
 * it from a signal handler or another thread; may be NULL) is not 0. changed() may use the library,
 * also open the device. Errors: NOMEM. */
int tw_device_watch(bool (*changed)(void *ctx, enum tw_device_event event,
                                    const struct tw_device_info *info),
                    void *ctx, const volatile int *stop, tw_error *err);

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
void tw_device_close(tw_device *device);
/* selector, target and state of an open device. */
void tw_device_get_info(const tw_device *device, struct tw_device_info *info);

/* What opening it took beyond asking, in words ("both endpoints were reset"), or "": it answered at
 * once. Lives as long as the device. */
const char *tw_device_recovered(const tw_device *device);

/* Frees everything on the device, what it kept for later included, and sees that it answers. What
 * was deployed on it can only be destroyed. */
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
};

/* The same of an open device. info->size says how much of it there is room for. */
void tw_device_get_status(tw_device *device, struct tw_status_info *info);
/* Calls found() for every device that a process of this computer has open and this user may know
 * of, until it returns false. Disturbs nobody. */
void tw_status_list(bool (*found)(void *ctx, const struct tw_status_info *info), void *ctx);

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

/* Serves a device through one or more doors: a UNIX socket ("socket:NAME" for other processes), a
 * USB device for QEMU, a USB cable of this board. */
struct tw_serve_options {
    uint32_t size;
    /* of the socket, or a NAME for the well-known folder that discovery reads; NULL: no socket */
    const char *path;
    const char *target;    /* the machine that it plays; NULL: any bundle's */
    const char *isa;       /* as in tw_device_options */
    const char *faults;    /* fault plan (tw_fault_plan), for tests; NULL: none */
    uint64_t seed;         /* of the plan */
    uint64_t memory_bytes; /* 0: the host's */
    uint32_t n_threads;    /* 0: the processors this process may use */
    /* Or NULL: called once for each door when hosts can come through it: "socket:PATH",
     * "usbredir:PATH", "gadget:CONTROLLER", "ivshmem:PATH". */
    void (*ready)(void *ctx, const char *door);
    void *ctx;
    /* path of a UNIX socket where QEMU finds the device (-device usb-redir); NULL: none */
    const char *usbredir;
    const char *usb_speed; /* of that device: "full", "high" (also NULL), "super" */
    /* not 0: be the USB device of this Linux board (FunctionFS; needs root) */
    uint32_t gadget;
    const char *udc; /* its controller in /sys/class/udc; NULL: the first */
    /* serial number on USB; NULL: the board's, or one made of the usbredir path */
    const char *serial;
    /* not NULL: be a device that cannot run, for this reason; then there is no socket */
    const char *recovery;
    /* Not NULL: be a PCIe device in a QEMU guest: path of the socket for its ivshmem-doorbell, file
     * of the guest's RAM (NULL: no DMA), socket of its monitor (NULL: it has no IOMMU), and the
     * device's bus << 8 | slot << 3 | function. */
    const char *ivshmem, *guest_ram, *monitor;
    uint32_t requester;
};

/* Returns when *stop (set it from a signal handler) is not 0. Errors: DEVICE_BUSY (names who serves
 * this path, or has this controller), NO_DEVICE (no such target or controller), USAGE, UNSUPPORTED,
 * IO. */
int tw_serve(const struct tw_serve_options *options, const volatile int *stop, tw_error *err);
/* Name and effect of fault plan `index`; NULL behind the last. */
const char *tw_fault_plan(uint32_t index, const char **text);

/* ---- decoders: bundle files ---- */

enum tw_decoder_flags {
    TW_DECODER_CHECK_HASH = 1, /* recompute every hash: reads the whole file */
    /* parse only, do not verify: for looking at a file; such a decoder cannot be deployed */
    TW_DECODER_NO_RULES = 2
};

/* Maps and checks a bundle. Errors: IO, TRUNCATED, FORMAT, RANGE, VERSION, HASH, VERIFY,
 * UNSUPPORTED. */
int tw_decoder_open(const char *path, unsigned flags, tw_decoder **out, tw_error *err);
void tw_decoder_close(tw_decoder *decoder);

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
};
void tw_decoder_get_info(const tw_decoder *decoder, struct tw_decoder_info *info);

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
/* Entry `index` of the decoder's tables. False behind the last. */
bool tw_decoder_get_program(const tw_decoder *decoder, uint32_t index,
                            struct tw_program_info *info);
bool tw_decoder_get_segment(const tw_decoder *decoder, uint32_t index,
                            struct tw_segment_info *info);
bool tw_decoder_get_symbol(const tw_decoder *decoder, uint32_t index, struct tw_symbol_info *info);

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

/* ---- programs as text: files in the language of tws(5) ---- */

/* Makes a certificate of a program that obeys the rules without one: *words stay valid until the
 * next call or the end of ctx. A text has none of its own; the compiler makes them
 * (compiler/spatial/certify.h). Errors: VERIFY where there is none. */
struct tw_program;
typedef int (*tw_prover)(void *ctx, const struct tw_program *program, const uint32_t **words,
                         uint32_t *n_words, tw_error *err);

/* The same for the programs of a text file, one or more; their order is proved by `prover` (NULL:
 * not looked at). `info` (may be NULL) is filled in any case; *n_programs (may be NULL): how many
 * were looked at. Errors: IO, FORMAT and RANGE (FILE:LINE:COL: what was found and expected),
 * VERIFY. */
int tw_program_file_verify(const char *path, tw_prover prover, void *ctx,
                           struct tw_rules_info *info, uint32_t *n_programs, tw_error *err);
/* What running a program in every order of its ops can show. */
enum tw_schedules_found {
    TW_FOUND_RACE = 1,     /* two ops touch the same bytes in either order, and one writes */
    TW_FOUND_DIFFERS = 2,  /* two orders leave different bytes in an Output or State */
    TW_FOUND_FAULT = 4,    /* an order faults */
    TW_FOUND_DEADLOCK = 8, /* an order ends with engines that wait */
    TW_FOUND_LIMIT = 16    /* the budget ran out: not every order was run */
};
struct tw_schedules_finding {
    enum tw_schedules_found kind;
    const char *what; /* one line: which ops, which byte, which fault */
    /* The order that shows it, by "SITE:ENGINE*OPS" one after the other (loops run along); DIFFERS
     * has two. NULL: none. */
    const char *schedule[2];
};
/* The result for one program; its texts live as long as the call. */
struct tw_schedules_info {
    uint32_t size;
    uint32_t line; /* of the program in its file */
    const char *program;
    uint32_t input;  /* what Inputs held that are no ids: a loop over a trip runs so often */
    uint32_t found;  /* bits of enum tw_schedules_found; 0: all orders end with the same bytes */
    uint64_t states; /* distinct states with a choice; 0: one order stood for all */
    uint64_t ends;   /* orders that ran to their end */
    uint32_t n_findings;
    const struct tw_schedules_finding *findings;
};

/* Runs each program of a text file on the strict emulated machine in every order of its engines' ops
 * that can make a difference, instead of proving their order, with small made-up Params and Inputs
 * (loops over a trip run as often as they can, then once, then not at all); for programs of some
 * hundred ops (at most 4096 a step, its loops unrolled). max_states (0: 65536) bounds the states that
 * are remembered, `limit_bytes` (0: 1 GiB) the memory. `each` (may be NULL) is called with each result. Errors: those
 * of tw_program_file_verify (the rules that need no order are checked before); VERIFY if any program
 * has a finding (the first one's line); NOMEM where the budget ran out and nothing was found. */
int tw_program_file_explore(const char *path, uint32_t max_states, uint64_t limit_bytes,
                            void (*each)(void *ctx, const struct tw_schedules_info *info),
                            void *ctx, tw_error *err);
/* Prints them in the canonical form. Errors: IO, FORMAT, RANGE, USAGE, NOSPACE, as above. */
int tw_program_file_print(const char *path, const char *program, FILE *out, tw_error *err);

/* ---- text ---- */

enum tw_tokenize_flags {
    TW_TOKENIZE_NO_BOS = 1, /* no BOS in front, whatever the vocabulary says */
    TW_TOKENIZE_SPECIAL = 2 /* the names of special tokens in the text stand for them */
};

/* Ids of text[0..n): as many as `capacity` has room for go to `ids` (may be NULL if capacity is 0),
 * *count is how many there are. Errors: UNSUPPORTED (the bundle has no tokenizer), RANGE (text too
 * long). */
int tw_tokenize(const tw_decoder *decoder, const char *text, size_t n, unsigned flags,
                uint32_t *ids, size_t capacity, size_t *count, tw_error *err);
/* Text of ids, not terminated; *n bytes in all, of which capacity's go to `text`. Special tokens
 * give nothing. Errors: UNSUPPORTED, RANGE (an id outside of the vocabulary). */
int tw_detokenize(const tw_decoder *decoder, const uint32_t *ids, size_t count, char *text,
                  size_t capacity, size_t *n, tw_error *err);

/* ---- deployments and sessions ---- */

/* Puts weights and programs onto the device. A device in this process uses the mapped weights in
 * place. Errors: TARGET (names both targets), VERSION, VERIFY (opened with NO_RULES), NOMEM (device
 * memory: have, need). */
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

/* A new sequence at position 0. Errors: USAGE (an option out of range), FORMAT (the bundle lacks a
 * program or tensor), NOMEM. */
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
void tw_session_get_info(const tw_session *session, struct tw_session_info *info);

/* Appends n tokens (n > 0) to the sequence. Allocates nothing and makes no system call but to wake
 * threads. Errors, before anything has run: RANGE (an id outside of the vocabulary), CONTEXT_FULL.
 * FAULT (names program, site, engine, op and graph operation) ends the session: it can only be
 * destroyed. */
int tw_session_feed(tw_session *session, const uint32_t *ids, size_t n, tw_error *err);
/* n_vocab logits of what follows the last token fed, valid until the session's next feed. NULL
 * before the first feed and after a rewind. */
const float *tw_session_logits(const tw_session *session);
uint32_t tw_session_position(const tw_session *session);
/* Forgets the tokens from `position` on. Errors: USAGE (beyond the current position). */
int tw_session_rewind(tw_session *session, uint32_t position, tw_error *err);

/* ---- generation ---- */

enum tw_generate_flags {
    TW_GENERATE_IGNORE_EOS = 1,    /* do not stop at the tokens that end a text */
    TW_GENERATE_PRINT_SPECIAL = 2, /* special tokens appear in the text */
    /* on_token gets NULL for the logits. Greedy tokens are then chosen on the device, a few at a
     * time; a callback or
     * *stop that ends the text leaves a session whose logits are NULL. */
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
     * whole UTF-8 characters; needs a tokenizer. */
    int (*on_token)(void *ctx, uint32_t id, const float *logits);
    int (*on_text)(void *ctx, const char *text, size_t n);
    /* After each part of the prompt; the last time, before the first token, with done == total. */
    void (*on_prompt)(void *ctx, uint32_t done, uint32_t total);
    void *ctx;
    /* or NULL: generation ends after the current token once it is not 0 (set it from a signal
     * handler) */
    const volatile int *stop;
};

enum tw_stop_reason {
    TW_STOP_COUNT = 0,    /* n_predict tokens */
    TW_STOP_END = 1,      /* the text's end token, which is not counted, passed on or printed */
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
 * that: one command for the device, which chooses and feeds by itself. tokens (room for n of them)
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
 * runs. May be called from any thread and from signal handlers. */
void tw_session_interrupt(tw_session *session);

struct tw_generate_result {
    uint32_t size;
    enum tw_stop_reason reason;
    uint32_t n_prompt, n_generated;
    /* first_token: from the call to the first token chosen */
    double prefill_s, first_token_s, decode_s;
};

/* Feeds the prompt (n_prompt > 0) and generates. `result` (may be NULL) is filled in any case. The
 * last token chosen is not fed. Errors: those of feed; USAGE (a sampling parameter); CONTEXT_FULL
 * and INTERRUPTED after all text so far was passed on. */
int tw_generate(tw_session *session, const uint32_t *prompt, size_t n_prompt,
                const struct tw_generate_options *options, struct tw_generate_result *result,
                tw_error *err);

#ifdef __cplusplus
}
#endif
#endif
