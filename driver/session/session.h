/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: one sequence. It holds the pages of its state, or owns the state of a bundle without
 * pages, and runs its steps on an executor, which it shares with other sessions. One thread at a
 * time uses it.
 */
#ifndef TW_DRIVER_SESSION_SESSION_H
#define TW_DRIVER_SESSION_SESSION_H

#include "driver/device/deploy.h"
#include "driver/tokenizer/utf8_stream.h"
#include "loader/base/stop.h"

#include <stdatomic.h>

/* The i32 inputs that a program may have, in their order in the request. The table of pages is
 * written apart, when it has changed. */
enum session_input {
    IN_IDS = 0,
    IN_POS = 1,
    IN_ROWS = 2,
    IN_END = 3,
    /* position and end as states count them that are read through windows, and the table of their
     * pages, which is short enough to be part of every request */
    IN_WINDOW_POS = 4,
    IN_WINDOW_END = 5,
    IN_WINDOW_PAGES = 6,
    IN_COUNT = 7
};

/* A program "decode.N" runs N = 2, 4, ... rows, each of any sequence. */
#define TW_BATCH_PROGRAMS 4u
#define TW_BATCH_MAX 16u

/* A page table on the device. The sessions of an executor write it when it is their turn: it has
 * the first `valid` entries of the owner's. Programs may have it in common. */
struct page_table {
    uint64_t address;
    const struct tw_session *owner;
    uint32_t valid;
};

/* A loaded program and the request that runs a step of it, laid out once: struct tw_wire_run,
 * n_inputs times struct tw_wire_input, data. */
struct session_program {
    const struct tw_program *program; /* NULL: the bundle has none of that kind */
    uint32_t number;                  /* on the device */
    bool loaded;
    bool broken; /* a step has failed or was cut: the device refuses it until it is loaded again */
    uint32_t index; /* in the bundle */
    uint32_t rows;
    uint32_t lanes; /* sequences in a step: 1, or `rows` of a program that has a row for each */
    struct page_table *table[TW_BATCH_MAX]; /* of each lane; NULL: the program has none */
    uint64_t logits_address;
    uint64_t logits_stride;     /* bytes of a row; a program of all logits has `rows` of them */
    const float *logits_mapped; /* or NULL: the device does not share its memory */
    /* 8-byte aligned; TW_DEVICE_IN_FLIGHT copies, `stride` bytes apart, so that several steps can
     * be in flight. */
    uint8_t *request;
    uint32_t request_bytes, stride;
    uint32_t input[IN_COUNT]; /* offsets in a request; TW_NONE: not an input of the program */
    uint32_t window_slots;    /* entries of the table of windows */
    /* in the first copy, after a step's request: the tail that makes it a greedy run's request */
    struct tw_wire_greedy *greedy;
    /* the lists of the best logits of a step, and how many entries they have together; 0: none */
    uint64_t choice_address;
    uint32_t n_choices, choice_k; /* choice_k: of each list */
};

/* The output of a program that gets its logits. */
struct session_output {
    const char *name;
    bool all_rows;
    bool lanes; /* each row is of a sequence of its own: every input has one for each */
};

/* Where tw_generate() left off: the bytes of an incomplete character, and the token that must be
 * fed next, and at which position, to continue it. */
struct session_text {
    struct tw_utf8_stream utf8;
    uint32_t id, position;
};

/* Programs loaded on the device with their binding rows: what steps run on. Sessions whose state is
 * in the deployment's pool share one; any other session has its own, as its state is part of it.
 * Whoever runs steps holds the lock, from the first input to the last output. */
struct tw_executor {
    struct tw_executor *next; /* of the deployment, if it is shared */
    struct tw_deployment *deployment;
    uint32_t users; /* under the deployment's lock */
    bool shared;
    enum tw_mode mode;
    uint32_t wanted_threads, n_threads;
    pthread_mutex_t lock;
    uint64_t *segment_address; /* n_segments: the deployment's and its own */
    uint64_t bind_address;
    uint64_t *bind;                                  /* host copy of the rows */
    struct session_program decode, prefill, score;   /* all but decode: loaded when first used */
    struct session_program batch[TW_BATCH_PROGRAMS]; /* "decode.2", "decode.4", ...; the same */
    /* Most sequences in a step: the rows of the largest of them; 1: none. May change, to 1, under
     * the lock. */
    _Atomic uint32_t batch_rows;
    uint32_t joint_faults; /* of joint steps, one after the other, each row of which was good */
    uint32_t n_tables;
    struct page_table table[3 + 2 * TW_BATCH_MAX]; /* of all programs */
    /* Words that end greedy runs, one for each session, if the device shares its memory, so that it
     * sees them; free ones are a list, under the deployment's lock. */
    uint64_t words_address;
    _Atomic uint32_t *words;
    uint16_t *next_word, free_word;
};

/* The pages of a sequence, of one kind of state: those of slots first, first + 1, ..., of
 * TW_KV_BLOCK positions each. `first` is not 0 only of windows. */
struct session_pages {
    struct tw_pool_holder holder;
    uint32_t *page; /* room for as many as the sequence can have: `n` page numbers */
    uint32_t n, room, first;
    /* of windows: pages taken in advance, so that no step of a feed can lack one */
    uint32_t *spare, n_spare;
};

/* A session's part in a tw_step() that is running. */
struct session_turn {
    struct tw_step_entry *entry; /* NULL: it has none */
    const uint32_t *ids;         /* the tokens that are left, `n` of them */
    size_t n;
    bool rides; /* takes rows of steps with others */
    /* In the step that is being made: how many of its tokens; the lane of the last one; the
     * requests that read its logits, [first_read, end_read) of the step's. */
    uint32_t rows, lane;
    uint64_t first_read, end_read;
    struct tw_device_read read;
};

struct tw_session {
    struct tw_deployment *deployment;
    struct tw_executor *executor;
    struct session_text text;
    enum tw_mode mode;
    uint32_t n_vocab, n_ctx, chunk;
    uint32_t position;
    uint32_t *ids; /* n_ctx: the sequence, up to its position */
    uint64_t steps;
    bool broken; /* a step failed or was cancelled: the state is undefined */
    struct session_pages pages, window;
    /* The window begins after what the next step needs, because the sequence was cut: the tokens
     * must be fed again first. */
    bool window_lost;
    /* The state, or its beginning, came from a file or from memory that the caller gave: who made
     * it computed what they liked, so that no other session may have it from the cache. */
    bool foreign;
    /* words that end a step: the session's own, and that of the tw_generate() in progress; or
     * NULL */
    const volatile sig_atomic_t *stop[TW_STOP_WORDS];
    struct tw_session_options options;  /* prefix_salt is not kept */
    bool caches;                        /* it uses the deployment's prefix cache */
    uint8_t prefix_root[TW_HASH_BYTES]; /* what its prefixes stand for, and whose they are */
    uint32_t n_reused;                  /* tokens that the last prompt had from there */
    const float *logits;                /* of the last step, or NULL */
    float *logits_copy;                 /* n_vocab */
    /* What is fetched instead of logits while tw_session_use_lists() says so, of the last step;
     * NULL: logits are fetched. */
    struct tw_top *lists;
    uint32_t n_lists;
    /* Not 0 ends a greedy run. One of the executor's words, or its own. */
    uint64_t interrupt_address;
    _Atomic uint32_t *interrupt, own_interrupt;
    struct session_turn turn;
    struct {
        struct tw_wire_tokens head;
        uint32_t id[TW_WIRE_MAX_TOKENS];
    } tokens; /* the answer to a greedy run */
};

/* ---- executors ---- */

/* Gives the session an executor, one that it can share if there is such a one, with the programs
 * that its options ask for. Errors: FORMAT, NOMEM, those of tw_device_call(). */
int tw_executor_get(struct tw_session *s, tw_error *err);
/* Gives it back. */
void tw_executor_put(struct tw_session *s);
/* Finds the smallest program for `rows` rows of several sequences, at most x->batch_rows, and loads
 * it if that has not been done. Under the lock. Errors: those of tw_session_load_program(). */
int tw_executor_batch(struct tw_executor *x, uint32_t rows, struct session_program **out,
                      tw_error *err);
/* Loads a program again that a step has broken. Under the lock. Errors: those of LOAD. */
int tw_executor_mend(struct tw_executor *x, struct session_program *p, tw_error *err);

/* ---- pages ---- */

/* Gives the session room for page numbers, none of which it has yet. Errors: NOMEM. */
int tw_session_make_pages(struct tw_session *s, tw_error *err);
void tw_session_free_pages(struct tw_session *s);
/* Sees to it that the session alone holds the pages of positions [from, to), from being the
 * session's position: takes new ones, copies a shared one; of windows, only has them ready for
 * tw_session_slide(). Under the executor's lock. Errors: NOMEM (out of pages; nothing has changed),
 * those of tw_device_call(). */
int tw_session_own_pages(struct tw_session *s, uint32_t from, uint32_t to, tw_error *err);
/* Moves the window to a step over [from, to), at most TW_WIRE_MAX_TOKENS of the positions that the
 * session has pages ready for: gives back what the step does not see. Under the executor's lock.
 * Errors: those of tw_device_call(). */
int tw_session_slide(struct tw_session *s, uint32_t from, uint32_t to, tw_error *err);
/* Returns whether moving the window to a step from `from` on would give pages back. */
bool tw_session_leaves_behind(const struct tw_session *s, uint32_t from);
/* Gives a new session the pages of another, of the same deployment and context. */
void tw_session_share_pages(struct tw_session *s, const struct tw_session *from);
/* Gives the session n pages, which its holder has taken, instead of those that it has, which it
 * gives back. */
void tw_session_replace_pages(struct tw_session *s, const uint32_t *pages, uint32_t n);
/* The same with the pages of a prefix, in both pools. */
void tw_session_take_over(struct tw_session *s, const struct tw_prefix_sequence *from);
/* Gives back the pages of the positions from `position` on. */
void tw_session_drop_pages(struct tw_session *s, uint32_t position);
/* Sees to it that the table, which may be NULL, is the session's. Under the executor's lock.
 * Errors: those of tw_device_call(). */
int tw_session_write_table(struct tw_session *s, struct page_table *t, tw_error *err);
/* Checks that a step over [from, to) reaches pages of the pool only, and writes none that others
 * hold: in a step with others it would disturb them. Errors: FAULT. */
int tw_session_check_pages(struct tw_session *s, uint32_t from, uint32_t to, tw_error *err);

/* ---- the prefix cache ---- */

/* Prepares a new session for the cache, if its options ask for it. */
void tw_session_begin_prefix(struct tw_session *s);
/* Leaves the session's sequence in the cache: its whole pages, or, when it ends, also the last one.
 * Does nothing if it does not use the cache, or is not usable. */
void tw_session_leave_prefix(struct tw_session *s, bool ends);
/* Takes what the cache has of n checked tokens, but for the last one; returns how many. */
uint32_t tw_session_take_prefix(struct tw_session *s, const uint32_t *ids, size_t n);
/* Feeds n checked tokens, of which the cache is to have the windows, too. Errors: those of
 * tw_session_feed(). */
int tw_session_feed_part(struct tw_session *s, const uint32_t *ids, size_t n, tw_error *err);

/* Saves the session's sequence as a state of its prefix root, without waiting for the disk. Errors:
 * those of tw_session_save(). */
int tw_session_save_prefix(const struct tw_session *s, const char *path, uint64_t *written_bytes,
                           tw_error *err);
/* Opens a saved prefix of the session's root, for its tokens. Errors: those of tw_saved_open(). */
struct tw_saved;
int tw_session_open_prefix(const struct tw_session *s, const char *path, struct tw_saved **out,
                           tw_error *err);
/* Makes its first n tokens the session's. Errors: those of tw_session_restore(). */
int tw_session_restore_prefix(struct tw_session *s, struct tw_saved *file, uint32_t n,
                              tw_error *err);
/* Returns how many bytes a saved prefix of n tokens takes, more or less. */
uint64_t tw_session_prefix_bytes(const struct tw_session *s, uint32_t n);

/* ---- steps ---- */

/* From now on steps fetch the lists of the best logits, of which they have `top_k` at least, and
 * not the logits. Returns false, and changes nothing, if the programs have no such lists, or the
 * device shares its memory, so that logits need not be fetched, or there is no memory. */
bool tw_session_use_lists(struct tw_session *s, uint32_t top_k);
/* Ends that; legal without. */
void tw_session_use_logits(struct tw_session *s);

/* Returns the index of the bundle's program of that name, or else of the first one whose name is
 * that and a dot and anything; -1: there is none. */
int tw_session_find_program(const struct tw_bundle *b, const char *name);
/* Loads the bundle's program of that name (tw_session_find_program()): finds its tensors, of which
 * `output` gets the logits (the last row's, or with all_rows one row for each token), lays out the
 * request, loads it on the device. Does nothing if it is loaded. A bundle without it leaves
 * out->program NULL. Errors: FORMAT (names the tensor), NOMEM, and those of tw_device_call(). */
int tw_session_load_program(struct tw_executor *x, const char *name,
                            const struct session_output *output, struct session_program *out,
                            tw_error *err);
/* Unloads it from the device and frees the request; legal if it was not loaded. */
void tw_session_unload_program(struct tw_executor *x, struct session_program *p);

/* Returns USAGE if the device was reset after the session's deployment, which freed all of it. */
static inline int tw_session_check_reset(const struct tw_session *s, tw_error *err) {
    return tw_device_check_reset(s->deployment->device, s->deployment->resets, err);
}
/* The same, and FAULT if an earlier step failed. */
int tw_session_check_usable(const struct tw_session *s, tw_error *err);
/* Takes the pages of n more positions. Errors: those of tw_session_own_pages(). */
int tw_session_take_pages(struct tw_session *s, size_t n, tw_error *err);
/* Feeds n checked tokens, for which the session has pages, in steps of its own; `wanted`: the
 * logits of the last one are wanted. Errors: those of tw_session_feed(), after which the session is
 * broken if it has to be. */
int tw_session_feed_alone(struct tw_session *s, const uint32_t *ids, size_t n, bool prompt,
                          bool wanted, tw_error *err);
/* Feeds all tokens again if the window is lost. Errors: those of tw_session_feed(). */
int tw_session_restore_window(struct tw_session *s, tw_error *err);
/* Returns whether the device can feed itself with the session's programs. */
bool tw_session_can_greedy(const struct tw_session *s);
/* Checks whether n tokens can be fed. Errors: USAGE, FAULT (an earlier step failed), CONTEXT_FULL,
 * RANGE. */
int tw_session_check_feed(const struct tw_session *s, const uint32_t *ids, size_t n, tw_error *err);
/* What tw_session_rewind() does with tokens; an incomplete character of the text stays. */
void tw_session_drop_tokens(struct tw_session *s, uint32_t position);
/* Returns true if one of the session's stop words is set. */
static inline bool tw_session_stopped(const struct tw_session *s) {
    return tw_stopped(s->stop[0]) || tw_stopped(s->stop[1]);
}
/* Returns true if the device cancelled a request in the middle of a step; one that was cancelled
 * before its step began has changed nothing. */
bool tw_session_was_cut(const struct tw_wire_failure *f);
/* Writes the inputs of a step to the program's request number `copy`, and returns it. */
uint8_t *tw_session_set_inputs(const struct tw_session *s, const struct session_program *p,
                               uint32_t copy, uint32_t position, const uint32_t *ids,
                               uint32_t rows);
/* Rewrites the message of a refused step, or one that does not end, so that it names section and
 * graph operation. `code` and `err` are those of the request. Returns the code. */
int tw_session_explain(const struct tw_session *s, const struct session_program *p,
                       const struct tw_wire_failure *f, int code, tw_error *err);

/* Finds out why logits are not finite: runs n requests again, in order, checking each operation's
 * result, and reports the first one that is infinite or NaN. They must be the requests of the last
 * steps, so that the session's position stays the same. Returns FAULT. */
int tw_session_explain_numbers(struct tw_session *s, const struct session_program *const *programs,
                               uint8_t *const *requests, size_t n, tw_error *err);
/* Sets s->logits to those of the last step, which ran p. Errors: those of tw_device_read(). */
int tw_session_fetch_logits(struct tw_session *s, const struct session_program *p, tw_error *err);

/* Reports n tokens, fed in that many steps up to the session's position, on the status page. */
void tw_session_report(const struct tw_session *s, uint32_t n, uint32_t steps, bool prompt);
/* Marks the session as broken after a failed step and reports it on the status page. Returns
 * `code`. */
int tw_session_break(struct tw_session *s, int code, const tw_error *err);

#endif
