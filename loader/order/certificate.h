/* SPDX-License-Identifier: Apache-2.0
 *
 * The certificate of a program and its checker: no deadlock, no race, no read of what was never
 * written, for any trip count, any schedule and any number of steps (tilewright-machine(7),
 * CERTIFICATE).
 *
 * Why one order proves all schedules. Each FIFO has one producer and one consumer, words of
 * semaphores only grow, and waits consume nothing: a runnable op stays runnable until it runs. So
 * if one order lets every engine run to its end, no schedule can get stuck, and the orders that
 * waits impose are the same in all of them. The certificate is such an order with the loops kept
 * rolled: a list of turns,
 *     RUN stream n     the stream executes its next n ops (none of them LOOP or END)
 *     LOOP k s1..sk    the k streams, each at a LOOP of the same trip or count, enter it together
 *     END              the streams of the innermost open LOOP, each at its END, leave it
 * In the terms of marked graphs, the list gives every op a rank, which proves that no cycle is
 * without tokens: an op's rank is its place in the list, a loop's period the length of its body,
 * and dependences on earlier iterations have distance 1 or more because a body restores every
 * level that it changes.
 *
 * The checker executes the list once on abstract state (FIFO levels, words, clocks, written bytes).
 * It does not trust the list: a wrong one is refused and can never make a bad program pass. Linear
 * in the ops; work and memory have budgets, beyond which a program is refused (loader/README.md,
 * "Memory").
 *
 * In a loop, the list has everybody's first iteration, then everybody's second: iterations that
 * overlap (a flag of iteration i, waited for in iteration i + d) need no more than that, since no
 * wait is for a later iteration. When one iteration proves all others is in check_loops.c.
 *
 * Refused although they could be sound (kept simple on purpose): different loops of engines that
 * communicate with each other; flags of a later iteration; pages in flight where a loop begins;
 * conflicting accesses of two engines inside one open loop without flags, in parts of an object
 * that move with a loop, or in an order that only a freed page implies; thresholds below the
 * increments of several engines that have arrived; reads of what is written in a loop over a trip,
 * which may run no iteration, or through another buffer.
 */
#ifndef TW_LOADER_ORDER_CERTIFICATE_H
#define TW_LOADER_ORDER_CERTIFICATE_H

#include "loader/verify/verify.h"
#include "tilewright/bundle.h"

/* X(number, name, what it requires); numbers continue those of loader/verify/verify.h */
#define TW_ORDER_RULES(X)                                                                         \
    X(18, certificate, "the certificate is present, complete, and made for this program")         \
    X(19, witness,                                                                                \
      "the certificate's turns follow every stream from its first op to its last, loops entered " \
      "and left together")                                                                        \
    X(20, no_deadlock,                                                                            \
      "every wait is satisfied where the certificate's order reaches it, in every iteration")     \
    X(21, exact_threshold,                                                                        \
      "where several engines increment a word, a threshold equals what has arrived, and nothing " \
      "more can arrive before the wait is over")                                                  \
    X(22, closed_loop,                                                                            \
      "a loop restores every FIFO level; its thresholds grow by what arrives in an iteration, "   \
      "and each iteration begins with what the one before began with")                            \
    X(23, section_order,                                                                          \
      "no engine enters a section before every engine has left the previous one; the last one "   \
      "closes the step")                                                                          \
    X(24, race_free, "conflicting accesses of different engines are ordered by waits")            \
    X(25, defined,                                                                                \
      "every byte read was written before, in this step, and not overwritten through another "    \
      "buffer")                                                                                   \
    X(26, memory_apart,                                                                           \
      "buffers that share bytes are used by one engine, or in different sections: their "         \
      "lifetimes do not overlap")                                                                 \
    X(27, flag_after_data,                                                                        \
      "no engine blocks between a multicast and its flag, or publishes pages between what it "    \
      "sends to other sites and its next flag")                                                   \
    X(28, bindings_apart,                                                                         \
      "no two tensors, and no two instances of one, are bound to the same bytes if one is "       \
      "written")                                                                                  \
    X(29, step_budget,                                                                            \
      "a step executes at most as many ops as the limit allows, and exactly as many as the "      \
      "certificate states")

enum tw_order_rule {
#define TW_X(number, name, text) TW_ORDER_##name = number,
    TW_ORDER_RULES(TW_X)
#undef TW_X
};

enum tw_turn { TW_TURN_RUN = 1, TW_TURN_LOOP = 2, TW_TURN_END = 3 };
/* A word: turn << 28 | stream or number of streams; RUN is followed by n, LOOP by its streams. */
#define TW_TURN_WORD(turn, value) ((uint32_t)(turn) << 28 | (uint32_t)(value))

#define TW_CERT_MAGIC 0x32435754u /* "TWC2" */
/* .tw.cert: this header, then for each program a struct tw_cert_entry, then the words of all. */
struct tw_cert_header {
    uint32_t magic, n_programs;
    uint8_t bindings_hash[TW_HASH_BYTES]; /* tw_bindings_hash of all binding rows */
};
struct tw_cert_entry {
    uint8_t program_hash[TW_HASH_BYTES]; /* tw_program_hash */
    uint32_t first_word, n_words;        /* after the entries */
    uint64_t step_ops;                   /* tw_program_step_ops */
};
TW_STATIC_ASSERT(sizeof(struct tw_cert_header) == 40, "certificate header");
TW_STATIC_ASSERT(sizeof(struct tw_cert_entry) == 48, "certificate entry");

/* The first version of the section, still read: it states neither bindings nor ops per step. */
#define TW_CERT_MAGIC_1 0x31435754u /* "TWC1" */
struct tw_cert_header_1 {
    uint32_t magic, n_programs;
};
struct tw_cert_entry_1 {
    uint8_t program_hash[TW_HASH_BYTES];
    uint32_t first_word, n_words;
};
TW_STATIC_ASSERT(sizeof(struct tw_cert_entry_1) == 40, "certificate entry of version 1");

/* A program's certificate; the words belong to its creator. */
struct tw_certificate {
    const uint32_t *words;
    uint32_t n_words;
    uint64_t step_ops; /* as stated; TW_STEP_OPS_UNSTATED: not stated */
};
#define TW_STEP_OPS_UNSTATED 0u

/* Returns the maximum number of ops that a step executes, loops multiplied out; saturates. */
uint64_t tw_program_step_ops(const struct tw_program *program);

/* Checks a program that tw_verify_program accepts against its certificate. Adds counts to `report`,
 * which may be NULL. Errors: VERIFY ("rule 24 race_free: ..."), NOMEM. */
int tw_check_order(const struct tw_program *program, const struct tw_certificate *certificate,
                   struct tw_verify_report *report, tw_error *err);
/* The same; asks `interrupt` as tw_verify_program_until() does. */
int tw_check_order_until(const struct tw_program *program, const struct tw_certificate *certificate,
                         const struct tw_interrupt *interrupt, struct tw_verify_report *report,
                         tw_error *err);

/* The same for one section of a program, composed alone, before the others are there: activations
 * count as written where it begins, and its step is its own. What it refuses is wrong in every
 * program; that an earlier section writes what this one reads only the whole program shows. */
int tw_check_section(const struct tw_program *section, const struct tw_certificate *certificate,
                     struct tw_verify_report *report, tw_error *err);

/* Computes BLAKE2b-256 of a program's tables (without binding rows) and streams. */
void tw_program_hash(const struct tw_program *program, uint8_t out[TW_HASH_BYTES]);

/* Finds the certificates of n programs in the content of .tw.cert and compares hashes;
 * bindings_hash is that of the bundle's rows (tw_bindings_hash). The words in `out` point into the
 * section. Errors: VERIFY (rule 18). */
int tw_certificate_open(const void *section, size_t size, const struct tw_program *programs,
                        uint32_t n, const uint8_t bindings_hash[TW_HASH_BYTES],
                        struct tw_certificate *out, tw_error *err);

#endif
